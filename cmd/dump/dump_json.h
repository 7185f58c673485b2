/*
 * dump_json.h - a dump as JSON. The records of a rank have the keys of PyTorch's flight recorder,
 * version 2.10, so that programs that read its dumps read these.
 */
#ifndef CMD_DUMP_JSON_H
#define CMD_DUMP_JSON_H

#include "dump_set.h"

#include <jansson.h>

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
