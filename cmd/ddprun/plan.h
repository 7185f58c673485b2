/*
 * plan.h - turns the command line into the configuration of guard, agent and store, and checks all
 * of it before anything is started. Creates only log directory, event log and FIFO of timers.
 */
#ifndef CMD_PLAN_H
#define CMD_PLAN_H

#include "agent_config.h"
#include "binding.h"
#include "cgroup.h"
#include "ddprun_options.h"
#include "events.h"
#include "host.h"
#include "leash.h"
#include "logdir.h"
#include "metrics_server.h"
#include "multi_node.h"
#include "replicate.h"
#include "watchdog.h"
#include "worker_keys.h"
#include "worker_program.h"

#include <ddprun/round.h>

/* The addresses of the store and of rank 0. Strings are borrowed from the options. */
struct meeting {
    const char *store_host; /* the job's store listens here */
    uint16_t store_port;    /* 0: a free one */
    const char *store_flag; /* the option that set the port, for messages; NULL: none */
    const char *master_addr;
    uint16_t master_port; /* 0: a free one; unused with agent_store */
    const char *master_flag;
    bool agent_store; /* the store listens at MASTER_ADDR:MASTER_PORT; PyTorch's ranks use it */
};

struct plan {
    struct agent_config agent;    /* the caller adds store, ports and guard */
    struct ddp_round_member says; /* the record with which this node joins */
    struct meeting meeting;
    bool several;                   /* nodes; the store is at the endpoint of @multi */
    struct multi_node_config multi; /* token and authentication, also for one node */
    struct replicate replicate;     /* the keeper beside the agent, if there is to be one */
    struct worker_keys worker_keys;
    struct agent_keys agent_keys;
    uint64_t join_timeout_ms; /* 0: none */
    struct program program;
    char *pmix_server; /* NULL: not installed */
    struct agent_streams *streams;
    struct binding binding;
    struct logdir logs;
    struct watchdog_fifo timers;
    struct leash *leash;  /* NULL: started by a user */
    struct cgroup cgroup; /* of the workers; created just before the split */
    struct event_log event_log;
    struct metrics_config metrics;
    struct rlimit nofile; /* the limit before it was raised; the workers get it */
    uint32_t files;       /* how many the agent will open */
    char host[256];
    char run_id[HOST_UUID_SIZE];
    char *home_token;                /* the path of the user's default token; NULL: not used */
    char store[DDPI_ENDPOINTS_TEXT]; /* for several nodes; below: the prefix of the job's keys */
    char store_prefix[sizeof "job//" + DDPI_JOB_MAX];
};

/* Decide the rest. DDP_E_INVALID or DDP_E_UNSUPPORTED: the command line is wrong. */
DDP_MUST_CHECK ddp_status plan_job(struct plan *plan, const struct ddprun_options *options,
                                   char *const *envp, struct ddp_error *err);

/* Find the program, the first of @operands. */
DDP_MUST_CHECK ddp_status plan_program(struct plan *plan, const struct ddprun_options *options,
                                       char **operands, struct ddp_error *err);

/* Choose the processors of each worker, and from them OMP_NUM_THREADS unless it is set.
 * DDP_E_INVALID: there are too few cores for that. */
DDP_MUST_CHECK ddp_status plan_binding(struct plan *plan, const struct ddprun_options *options,
                                       char *const *envp, struct ddp_error *err);

/* How many ports this node keeps for its workers to listen on. */
uint32_t plan_worker_ports(const struct plan *plan);

/* Raise the limit on open files to the hard limit; the workers keep the old one. DDP_E_LIMIT: the
 * hard limit is too low for the number of workers. */
DDP_MUST_CHECK ddp_status plan_files(struct plan *plan, struct ddp_error *err);

/* Listen for those that look at the job. DDP_E_INVALID, DDP_E_DENIED, DDP_E_SYSTEM. */
DDP_MUST_CHECK ddp_status plan_metrics(struct plan *plan, const struct ddprun_options *options,
                                       struct ddp_error *err);

/* Create the directory for logs and error files. *@ret_announce: the user did not choose its place,
 * and has to be told. */
DDP_MUST_CHECK ddp_status plan_logs(struct plan *plan, const struct ddprun_options *options,
                                    bool *ret_announce, struct ddp_error *err);

/* Create the FIFO of the workers' timers, if TORCHELASTIC_ENABLE_FILE_TIMER=1. */
DDP_MUST_CHECK ddp_status plan_timers(struct plan *plan, char *const *envp, struct ddp_error *err);

/* Open the event log, if --event-log asks for it. */
DDP_MUST_CHECK ddp_status plan_events(struct plan *plan, const struct ddprun_options *options,
                                      struct ddp_error *err);

/* Free the plan, and remove the log directory unless it is kept. Works on a zeroed plan, too. */
void plan_finish(struct plan *plan);

/* Choose the addresses of a job of one node; pure. @shared_off: the store is not the master. */
void plan_meeting(const struct ddprun_options *options, bool shared_off, struct meeting *ret);

/* Whether the job has several nodes, or one node and a store beyond loopback, as in scripts that
 * run on one node or many. Pure. */
bool plan_needs_a_store(const struct ddprun_options *options);

#endif
