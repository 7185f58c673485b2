/*
 * sink_fixture.h - the core of kv_fixture.h with a sink, through several lives. Which sink it is,
 * is a row: SQLite's file, or etcd's records in a model of etcd (etcd_model.c).
 */
#ifndef TESTS_SINK_FIXTURE_H
#define TESTS_SINK_FIXTURE_H

#include "kv_fixture.h"
#include "sink.h"

struct sink_row {
    const char *name;
    /* A checked fixture: nothing is kept yet; and everything is removed. */
    void (*setup)(void);
    void (*teardown)(void);
    /* Pass all that is kept to sink_take(). */
    ddp_status (*open)(struct ddpi_sink *ret_hooks, struct ddpi_mark *ret_mark,
                       struct ddp_error *err);
    /* As a kill would: nothing more is committed. */
    void (*close)(void);
};

extern const struct sink_row sink_in_sqlite, sink_in_etcd;

/* The row that is in use, from its setup() on. */
void sink_use(const struct sink_row *row);
ddp_status sink_take(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err);

/* A life: a new core gets what is kept, and tells the sink of each change. */
void sink_begin(const struct ddpi_kv_limits *limits);
/* The same; a failure is returned, and sink_end() follows as well. */
ddp_status sink_try_begin(const struct ddpi_kv_limits *limits, struct ddp_error *err);
void sink_commit(void);
void sink_end(void);

/* With what this life began. */
extern struct ddpi_mark sink_restored;
/* All that cores got in all lives since sink_use(), a line each. */
const char *sink_given(void);

/* SQLite's file. */
extern char sink_file[];

#endif
