/*
 * perf_coll_math.h - how much a collective moves, which result it must give, and how its speed is
 * computed. Pure.
 *
 * Inputs are small integers computed from the rank and the index, chosen so that every reduction of
 * them is exact in every type and in every order. So results are compared bit by bit, and the
 * number of wrong elements is exact.
 */
#ifndef CMD_PERF_COLL_MATH_H
#define CMD_PERF_COLL_MATH_H

#include <ddprun/comm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, name, other name, size is the total of all ranks, reduces, has a root). */
#define COLL_CALL_MAP(X)                                                         \
    X(COLL_ALL_REDUCE, "allreduce", "all_reduce", false, true, false)            \
    X(COLL_REDUCE, "reduce", "reduce", false, true, true)                        \
    X(COLL_BROADCAST, "broadcast", "broadcast", false, false, true)              \
    X(COLL_ALL_GATHER, "allgather", "all_gather", true, false, false)            \
    X(COLL_REDUCE_SCATTER, "reducescatter", "reduce_scatter", true, true, false) \
    X(COLL_ALL_TO_ALL, "alltoall", "all_to_all", true, false, false)             \
    X(COLL_SENDRECV, "sendrecv", "sendrecv", false, false, false)                \
    X(COLL_BARRIER, "barrier", "barrier", false, false, false)

enum coll_call {
#define COLL_CALL_ENUM(symbol, name, other, total, reduces, rooted) symbol,
    COLL_CALL_MAP(COLL_CALL_ENUM)
#undef COLL_CALL_ENUM
        COLL_CALLS
};

struct coll_kind {
    const char *name, *other;
    bool total, reduces, rooted;
};

extern const struct coll_kind coll_kinds[COLL_CALLS];

/* The sizes of one call. */
struct coll_shape {
    size_t count;              /* elements: the argument of the call */
    size_t size;               /* bytes: shown in the table, and used to compute the speed */
    size_t send_len, recv_len; /* bytes of a rank's buffers */
};

/* A call of about @size bytes. If the size is the total of all ranks, each rank's part is a
 * multiple of 16 bytes. */
struct coll_shape coll_shape(enum coll_call call, uint64_t size, ddp_dtype dtype, uint32_t ranks);

/* Bus bandwidth is size / time times this: the load of the slowest link for any algorithm. */
double coll_bus_factor(enum coll_call call, uint32_t ranks);

/* The size after @size: times @factor, or plus @step if @factor is 1; 0 if it is beyond @end. */
uint64_t coll_next_size(uint64_t size, uint64_t end, uint64_t step, uint32_t factor);

/* The reduced inputs of ranks [@from, @to), or the input of a single rank. */
struct coll_pattern {
    ddp_dtype dtype;
    ddp_reduce_op op; /* used if @to - @from is more than 1 */
    uint32_t ranks;   /* world size */
    uint32_t from, to;
};

/* Write elements [@first, @first + @count) of the pattern. */
void coll_fill(const struct coll_pattern *pattern, uint64_t first, size_t count, void *elements);

/* Count the elements that differ, of @count. */
uint64_t coll_differ(ddp_dtype dtype, const void *a, const void *b, size_t count);

#endif
