/*
 * perf_torch.h - the store's server beside PyTorch's own, loaded by PyTorch's client.
 */
#ifndef CMD_PERF_TORCH_H
#define CMD_PERF_TORCH_H

#include "perf.h"

/* In the order of the table. */
#define PERF_TORCH_OPS(X) \
    X(SET, "set")         \
    X(GET, "get")         \
    X(ADD, "add")         \
    X(CHECK, "check")     \
    X(MANY, "multi_get")  \
    X(CAS, "compare_set")

enum perf_torch_op {
#define PERF_TORCH_OP(symbol, name) PERF_TORCH_##symbol,
    PERF_TORCH_OPS(PERF_TORCH_OP)
#undef PERF_TORCH_OP
        PERF_TORCH_OP_COUNT
};

enum perf_torch_side { PERF_TORCH_OURS, PERF_TORCH_THEIRS, PERF_TORCH_SIDES };

struct perf_torch_run {
    enum perf_torch_side side;
    enum perf_torch_op op;
    double rate;      /* requests per second */
    double server_us; /* processor time for one request */
};

/* A line of torch.py: "ddprun set 1000 50000 7000\n"; false if it is none. */
bool perf_torch_parse(const char *line, struct perf_torch_run *ret);

/* Left out, saying so, where no Python has PyTorch. */
bool perf_torch(struct perf *perf, struct ddp_error *err);

#endif
