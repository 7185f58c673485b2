/*
 * perf_coll_math.h - what a collective moves, what it must give, and how its speed is counted.
 * Pure.
 *
 * Inputs are small whole numbers that follow from the rank and the index, chosen so that every
 * reduction of them is exact in every type and in every order: so what comes out can be compared
 * bit by bit, and the number of wrong elements is exact.
 */
#ifndef CMD_PERF_COLL_MATH_H
#define CMD_PERF_COLL_MATH_H

#include <ddprun/comm.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, name, other name, its size is the total of all ranks, reduces, has a root). */
#define COLL_CALL_MAP(X)                                                         \
    X(COLL_ALL_REDUCE, "allreduce", "all_reduce", false, true, false)            \
    X(COLL_REDUCE, "reduce", "reduce", false, true, true)                        \
    X(COLL_BROADCAST, "broadcast", "broadcast", false, false, true)              \
    X(COLL_ALL_GATHER, "allgather", "all_gather", true, false, false)            \
    X(COLL_REDUCE_SCATTER, "reducescatter", "reduce_scatter", true, true, false) \
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

/* What one call moves. */
struct coll_shape {
    size_t count;              /* elements, as the call takes them */
    size_t size;               /* bytes, as the table shows them and as speed is counted */
    size_t send_len, recv_len; /* bytes of a rank's buffers */
};

/* Of about @size bytes. Where the size is that of all ranks together, each part is a multiple of 16
 * bytes. */
struct coll_shape coll_shape(enum coll_call call, uint64_t size, ddp_dtype dtype, uint32_t ranks);

/* Bus bandwidth is size / time times this: what the slowest link must carry whatever the algorithm.
 */
double coll_bus_factor(enum coll_call call, uint32_t ranks);

/* The size behind @size: times @factor, or plus @step if that is 1; 0 when it is beyond @end. */
uint64_t coll_next_size(uint64_t size, uint64_t end, uint64_t step, uint32_t factor);

/* The inputs of ranks [@from, @to), reduced; those of one rank if it is one. */
struct coll_pattern {
    ddp_dtype dtype;
    ddp_reduce_op op; /* where @to - @from is more than 1 */
    uint32_t ranks;   /* of the world */
    uint32_t from, to;
};

/* Elements [@first, @first + @count) of it. */
void coll_fill(const struct coll_pattern *pattern, uint64_t first, size_t count, void *elements);

/* How many of @count elements differ. */
uint64_t coll_differ(ddp_dtype dtype, const void *a, const void *b, size_t count);

#endif
