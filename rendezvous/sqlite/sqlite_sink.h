/*
 * sqlite_sink.h - a sink that keeps the store's contents in an SQLite file (write-ahead log, a
 * commit is on the disk before it returns), so that a store that starts again goes on where it was.
 */
#ifndef DDPI_SQLITE_SINK_H
#define DDPI_SQLITE_SINK_H

#include "sink.h"

struct ddpi_sqlite_sink;

/*
 * The file at @path, made with mode 0600 if there is none. One process at a time.
 *
 * Fails with a sentence that names @path: DDP_E_INVALID, it is no regular file; DDP_E_DENIED,
 * another process has it open; DDP_E_PROTOCOL, it is damaged, or something else than a state;
 * DDP_E_SYSTEM.
 */
ddp_status ddpi_sqlite_sink_open(const char *path, struct ddpi_sqlite_sink **ret,
                                 struct ddp_error *err);

/* Commits nothing. NULL is allowed. */
void ddpi_sqlite_sink_close(struct ddpi_sqlite_sink *state);

/* All that it holds, in the order that ddpi_kv_restore() wants; ends at the first failure of
 * @take, with that. */
ddp_status ddpi_sqlite_sink_load(struct ddpi_sqlite_sink *state,
                                 ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation,
                                                    struct ddp_error *err),
                                 void *ctx, struct ddpi_mark *ret_mark, struct ddp_error *err);

/* Valid as long as @state. */
struct ddpi_sink ddpi_sqlite_sink_hooks(struct ddpi_sqlite_sink *state);

#endif
