/*
 * dump_set.h - what the agents of a job have answered: the records of its ranks, of the latest
 * generation that one of them knows. Pure.
 */
#ifndef CMD_DUMP_SET_H
#define CMD_DUMP_SET_H

#include "flight_compare.h"

struct dump_set {
    uint64_t generation;
    uint32_t world_size;
    size_t count, room;
    struct ddpi_flight_log **logs;     /* by rank */
    struct ddpi_flight_report *report; /* of dump_set_compare() */
};

/* Works on a zeroed set, too. */
void dump_set_finish(struct dump_set *set);

/* Take the answer of a rank. It replaces an earlier one of that rank; one of an earlier generation
 * than others is dropped, one of a later generation replaces all. DDP_E_PROTOCOL: it is no
 * answer. */
DDP_MUST_CHECK ddp_status dump_set_take(struct dump_set *set, const void *answer, size_t len,
                                        struct ddp_error *err);

/* Whether all ranks have answered. */
bool dump_set_complete(const struct dump_set *set);

/* Compare the ranks; fills report. */
DDP_MUST_CHECK ddp_status dump_set_compare(struct dump_set *set, struct ddp_error *err);

#endif
