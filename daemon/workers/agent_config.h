/*
 * agent_config.h - what the user wants of the agent, as the command line leaves it: everything in
 * it has been checked.
 */
#ifndef DAEMON_AGENT_CONFIG_H
#define DAEMON_AGENT_CONFIG_H

#include <ddprun/status.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct event_log;
struct cgroup;
struct guard_agent;
struct logdir;
struct pmi_link;
struct rlimit;

/* Which streams go where, per local rank: bit 0 stdout, bit 1 stderr. */
struct agent_streams {
    uint8_t redirect; /* to a file only */
    uint8_t tee;      /* to a file and the console; stronger than redirect */
    bool hidden;      /* not on the console */
};

/* By which workers prove to each other who they are. */
struct agent_key {
    int fd;         /* to read it from; 0: there is none */
    bool for_store; /* which asks for it, too */
};

/* Where it comes from: make() gives one that is good in @generation, which the agent closes. */
struct agent_keys {
    ddp_status (*make)(void *ctx, uint64_t generation, struct agent_key *ret_key,
                       struct ddp_error *err);
    void *ctx;
};

/* The port that is kept on this node for rank 0. check() has a sentence about it when another user
 * of this machine has a socket there, and so could take rank 0's place. After a failure it looks
 * more closely, which takes some ms. */
struct agent_port {
    ddp_status (*check)(void *ctx, uint16_t port, bool failed, struct ddp_error *err);
    void *ctx;
};

/* Borrowed until agent_close(). */
struct agent_config {
    const char *program;     /* path to execute */
    const char *interpreter; /* the same, if it runs a script or module; NULL: it is a program */
    char *const *argv;       /* from argv[1] on, ${local_rank} is replaced */
    char *const *envp;
    const char *host; /* short name of this node */
    const char *role;
    const char *run_id;
    const char *master_addr;           /* where a seat does not name one */
    const char *store;                 /* "host:port" */
    const char *store_prefix;          /* of the job's keys, before that of a generation */
    const struct agent_keys *keys;     /* NULL: workers have none */
    const struct agent_port *port;     /* NULL: the workers meet at the store */
    bool tls;                          /* workers are told to speak TLS with the store, */
    bool tls_ranks;                    /* ... and with each other */
    bool agent_store;                  /* the workers' meeting point is the store itself */
    const char *filters[2];            /* of lines of stdout and stderr; NULL or "": none */
    const char *line_template;         /* prefix of console lines; "" = none */
    const char *timer_file;            /* TORCHELASTIC_TIMER_FILE that we read; NULL: none */
    int timer_fd;                      /* the same, open; 0: none */
    const char *error_file;            /* TORCHELASTIC_ERROR_FILE of ddprun; NULL or "": none */
    const struct logdir *logs;         /* open; whoever opened it closes it */
    const struct event_log *event_log; /* the same; NULL: none is wanted */
    uint32_t nproc;
    uint32_t max_restarts;
    uint64_t shutdown_timeout_ms;        /* from asking workers to stop to killing them */
    uint64_t failure_timeout_ms;         /* the same after a failure */
    uint64_t gpu_memory_timeout_ms;      /* for memory of GPUs to come back before a restart */
    const struct agent_streams *streams; /* nproc of them */
    bool virtual_local_rank;
    bool pty;                    /* workers write to terminals, not to pipes */
    const struct rlimit *nofile; /* the workers' limit on open files; NULL: the agent's */
    sigset_t ending_signals;     /* end the job */
    sigset_t forwarded_signals;  /* go to the workers, and nothing else happens */
    const char *ending_signals_text;
    const struct cgroup *cgroup;     /* that workers are put into; NULL: none */
    const struct guard_agent *guard; /* its end-of-file: the guard is gone; NULL: there is none */
    const struct pmi_link *pmi_link; /* to the MPI ranks of other nodes; NULL: there are none */
};

#endif
