/*
 * dump_set.h - what the agents of a job have answered: the records of its ranks, of the latest
 * generation that one of them knows. Pure.
 */
#ifndef CMD_DUMP_SET_H
#define CMD_DUMP_SET_H

#include "flight_compare.h"

#include <jansson.h>
#include <stdio.h>

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

/* ---- as text for a person (dump_text.c) ---- */

/* Print @set, which has been compared, to @out: for each communicator what is the matter with it,
 * and where each rank is. @job NULL: it has one node, and no name. */
void dump_text_print(const struct dump_set *set, const char *job, FILE *out);

/* ---- as JSON (dump_json.c) ---- */

/* The records of a rank have the keys of PyTorch's flight recorder, version 2.10, so that programs
 * that read its dumps read these. */

enum { DUMP_JSON_SCHEMA = 1 };

/* @job NULL: it has one node, and no name. {"schema", "job", "generation", "world_size",
 * "communicators": [...], "ranks": {"0": {...}}} of
 * @set, which has been compared. NULL: memory is short. The caller owns the result. */
json_t *dump_json(const struct dump_set *set, const char *job);

/* The records of set->logs[index] alone, as PyTorch has them. Its analyser knows operations of NCCL
 * only: so names begin with "nccl:", a failed operation counts as started, and what NCCL does not
 * have is left out. NULL: memory is short. */
json_t *dump_json_rank(const struct dump_set *set, size_t index);

#endif
