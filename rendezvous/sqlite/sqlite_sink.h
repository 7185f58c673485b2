/*
 * sqlite_sink.h - a sink that keeps the store's contents in an SQLite file, so that a restarted
 * store continues where it stopped. It uses a write-ahead log; a commit blocks until it is on disk.
 */
#ifndef DDPI_SQLITE_SINK_H
#define DDPI_SQLITE_SINK_H

#include "sink.h"

struct ddpi_sqlite_sink;

/*
 * Open the file at @path, or create it with mode 0600. Only one process can have it open.
 *
 * DDP_E_INVALID: it is not a regular file. DDP_E_DENIED: another process has it open.
 * DDP_E_PROTOCOL: it is damaged, or not a state. DDP_E_SYSTEM. The sentence names @path.
 */
ddp_status ddpi_sqlite_sink_open(const char *path, struct ddpi_sqlite_sink **ret,
                                 struct ddp_error *err);

/* Whether the file was there without a byte: nothing was kept in it yet, or it was emptied. */
bool ddpi_sqlite_sink_was_emptied(const struct ddpi_sqlite_sink *state);

/* Does not commit. NULL is allowed. */
void ddpi_sqlite_sink_close(struct ddpi_sqlite_sink *state);

/* Pass all contents to @take, in the order that ddpi_kv_restore() needs; stops at the first failure
 * of
 * @take and returns it. */
ddp_status ddpi_sqlite_sink_load(struct ddpi_sqlite_sink *state,
                                 ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation,
                                                    struct ddp_error *err),
                                 void *ctx, struct ddpi_mark *ret_mark, struct ddp_error *err);

/* The hooks; valid until @state is closed. */
struct ddpi_sink ddpi_sqlite_sink_hooks(struct ddpi_sqlite_sink *state);

#endif
