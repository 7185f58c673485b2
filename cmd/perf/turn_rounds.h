/*
 * turn_rounds.h - contenders that take turns at one size, several times round. A machine that is
 * busy for a while slows all of them down.
 */
#ifndef CMD_PERF_TURN_ROUNDS_H
#define CMD_PERF_TURN_ROUNDS_H

#include "contender.h"

enum { ROUNDS = 7 /* turns of each contender for a size */ };

/* Let each of @count contenders make calls of @bytes in ROUNDS turns; their samples become those of
 * this size. */
bool rounds_play(struct contender *const *contenders, unsigned count, const char *call,
                 uint64_t bytes, struct ddp_error *err);

#endif
