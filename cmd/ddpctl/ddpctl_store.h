/*
 * ddpctl_store.h - what the actions of "ddpctl store" share: their options and the state of one
 * call. Actions that make one request are in store_actions.c; each of the others has its own file.
 */
#ifndef CMD_DDPCTL_STORE_H
#define CMD_DDPCTL_STORE_H

#include "ddpctl.h"

struct ddpctl_watch_options {
    uint64_t from;  /* 0: the next change */
    uint64_t count; /* 0: unlimited */
    bool key;       /* watch one key, not a prefix */
    bool initial;
};

struct ddpctl_bench_options {
    uint32_t op;          /* index into the values of --op; UINT32_MAX: not given */
    uint32_t clients;     /* 0: the default, 1 */
    uint64_t duration_ms; /* 0: the default, 2 s */
    uint64_t value_size;  /* UINT64_MAX: not given */
    bool shared;
};

struct ddpctl_store_options {
    const char *endpoint;
    const char *prefix;
    uint64_t timeout_ms; /* UINT64_MAX: not given */
    struct ddpctl_auth auth;
    enum ddp_store_role role;
    const char *job;
    uint64_t epoch;
    int64_t if_version; /* -1: not given */
    struct ddpctl_watch_options watch;
    struct ddpctl_bench_options bench;
    bool json;
    bool help;
};

struct ddpctl_call {
    const struct ddpctl_store_options *options;
    const struct ddp_store_options *connect; /* how to connect */
    ddp_store *store;                        /* NULL for actions that connect themselves */
    uint32_t timeout_ms;                     /* of one request */
    char **words;                            /* operands of the action */
    size_t nwords;
};

ddp_status ddpctl_run_get(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_set(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_add(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_wait(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_list(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_delete(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_stats(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_fence(struct ddpctl_call *call, struct ddp_error *err);

/* These actions connect themselves. */
ddp_status ddpctl_run_watch(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_bench(struct ddpctl_call *call, struct ddp_error *err);
ddp_status ddpctl_run_port(struct ddpctl_call *call, struct ddp_error *err);

#endif
