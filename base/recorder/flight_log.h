/*
 * flight_log.h - the operations of one rank, read from a copy of its flight recorder's memory
 * (flight_file.h) and checked: whatever the copy has, the log is safe to use and to print.
 */
#ifndef DDPI_FLIGHT_LOG_H
#define DDPI_FLIGHT_LOG_H

#include "flight_file.h"

#include <ddprun/status.h>

struct ddpi_flight_log {
    struct ddpi_flight_place place; /* rank < world_size; texts are printable */
    struct ddpi_flight_names names; /* "" : no such operation */
    uint64_t begun;                 /* operations, of which the last ones are in @ops */
    size_t ngroups;
    struct ddpi_flight_group groups[DDPI_FLIGHT_GROUPS]; /* by serial number; rank < size */
    size_t count;
    struct ddpi_flight_op *ops; /* by number, which is unique */
};

/* Read the @len bytes at @copy, which may have any address. DDP_E_PROTOCOL: they are no such copy,
 * or another version's. On DDP_OK *@ret_log is the caller's to destroy. */
DDP_MUST_CHECK ddp_status ddpi_flight_log_read(const void *copy, size_t len,
                                               struct ddpi_flight_log **ret_log,
                                               struct ddp_error *err);
void ddpi_flight_log_destroy(struct ddpi_flight_log *log); /* NULL is allowed */

/* The group of @op; NULL: the process has made too many groups since. */
const struct ddpi_flight_group *ddpi_flight_group_of(const struct ddpi_flight_log *log,
                                                     const struct ddpi_flight_op *op);

/* "all_reduce #17", and with its arguments: "all_reduce #17 (sum of 100 float32)". */
enum { DDPI_FLIGHT_TEXT = 128 };
void ddpi_flight_name(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                      char text[DDPI_FLIGHT_TEXT]);
void ddpi_flight_describe(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                          char text[DDPI_FLIGHT_TEXT]);

/* The name of the operation, of its type and of its reduction; "unknown" if it has none. */
const char *ddpi_flight_operation(const struct ddpi_flight_log *log,
                                  const struct ddpi_flight_op *op);
const char *ddpi_flight_dtype(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op);
const char *ddpi_flight_reduction(const struct ddpi_flight_log *log,
                                  const struct ddpi_flight_op *op);

/* "scheduled", "started", "completed" or "failed". */
const char *ddpi_flight_state_name(enum ddpi_flight_state state);

/* Called, and neither completed nor failed. */
static inline bool ddpi_flight_is_pending(const struct ddpi_flight_op *op)
{
    return op->state == DDPI_FLIGHT_SCHEDULED || op->state == DDPI_FLIGHT_STARTED;
}

#endif
