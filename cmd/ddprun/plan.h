/*
 * plan.h - from the command line to what guard, agent and store are told. Everything is decided and
 * checked here before anything is started; the one thing that is made is the log directory.
 */
#ifndef CMD_PLAN_H
#define CMD_PLAN_H

#include "agent_config.h"
#include "cgroup.h"
#include "ddprun_options.h"
#include "events.h"
#include "host.h"
#include "logdir.h"
#include "multi_node.h"
#include "watchdog.h"
#include "worker_keys.h"
#include "worker_program.h"

#include <ddprun/round.h>

/* Where the workers meet. Strings are borrowed from the options. */
struct meeting {
    const char *store_host; /* on which the job's store listens */
    uint16_t store_port;    /* 0 = a free one */
    const char *store_flag; /* the option that fixed the port, for sentences; NULL: none did */
    const char *master_addr;
    uint16_t master_port; /* 0 = a free one; not used if the store is the master */
    const char *master_flag;
    bool agent_store; /* MASTER_ADDR:MASTER_PORT is the store: PyTorch's ranks are its clients */
};

struct plan {
    struct agent_config agent;    /* but for what is known only later: store, ports, guard */
    struct ddp_round_member says; /* of this node, when it joins */
    struct meeting meeting;
    bool several;                   /* nodes: the store is at @multi's endpoint */
    struct multi_node_config multi; /* */
    struct worker_keys worker_keys;
    struct agent_keys agent_keys;
    uint64_t join_timeout_ms; /* 0: none */
    struct program program;
    struct agent_streams *streams;
    struct logdir logs;
    struct watchdog_fifo timers;
    struct cgroup cgroup; /* of the workers, made just before the split */
    struct event_log event_log;
    struct rlimit nofile; /* as it was: the workers' */
    char host[256];
    char run_id[HOST_UUID_SIZE];
    char *home_token;              /* where the user's own token is; NULL: it is not used */
    char store[DDPI_HOST_MAX + 8]; /* of several nodes, and the prefix of the job's keys there */
    char store_prefix[sizeof "job//" + DDPI_JOB_MAX];
};

/* Decide everything. DDP_E_INVALID or DDP_E_UNSUPPORTED: the command line is wrong. */
DDP_MUST_CHECK ddp_status plan_job(struct plan *plan, const struct ddprun_options *options,
                                   char *const *envp, struct ddp_error *err);

/* Find the program, the first of @operands. */
DDP_MUST_CHECK ddp_status plan_program(struct plan *plan, const struct ddprun_options *options,
                                       char **operands, struct ddp_error *err);

/* Take what the hard limit on open files allows; the workers' stays as it was. DDP_E_LIMIT: that is
 * not enough for so many workers. */
DDP_MUST_CHECK ddp_status plan_files(struct plan *plan, struct ddp_error *err);

/* Make the directory for logs and error files. *@ret_announce: it was nobody's wish to have it
 * there, so somebody should say where it is. */
DDP_MUST_CHECK ddp_status plan_logs(struct plan *plan, const struct ddprun_options *options,
                                    bool *ret_announce, struct ddp_error *err);

/* Make the FIFO of the workers' timers, if TORCHELASTIC_ENABLE_FILE_TIMER=1. */
DDP_MUST_CHECK ddp_status plan_timers(struct plan *plan, char *const *envp, struct ddp_error *err);

/* Open the log of events, if there is to be one. */
DDP_MUST_CHECK ddp_status plan_events(struct plan *plan, const struct ddprun_options *options,
                                      struct ddp_error *err);

/* Gives back what a plan holds; the log directory too. For one that is zeroed, too. */
void plan_finish(struct plan *plan);

/* Addresses that only this machine can reach; pure. */
bool plan_is_loopback(const char *host);

/* Where the workers of a job of one node meet; pure. @shared_off: as
 * TORCH_DISABLE_SHARE_RDZV_TCP_STORE says. */
void plan_meeting(const struct ddprun_options *options, bool shared_off, struct meeting *ret);

/* The job is of several nodes, or of one that is told of a store beyond loopback, as scripts do
 * that run on one node or many. Pure. */
bool plan_needs_a_store(const struct ddprun_options *options);

#endif
