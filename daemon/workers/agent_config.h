/*
 * agent_config.h - the configuration of the agent and its workers, from the command line. All
 * values have been checked.
 */
#ifndef DAEMON_AGENT_CONFIG_H
#define DAEMON_AGENT_CONFIG_H

#include "main_program.h"
#include "voice.h"

#include <ddprun/status.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct binding;
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

/* The key with which workers authenticate to each other. */
struct agent_key {
    int fd;         /* to read it from; 0: no key */
    bool for_store; /* the store asks for it too */
};

/* Where keys come from: make() returns one for @generation; the agent closes it. */
struct agent_keys {
    ddp_status (*make)(void *ctx, uint64_t generation, struct agent_key *ret_key,
                       struct ddp_error *err);
    void *ctx;
};

/* The port that is reserved on this node for rank 0. check() fails when another user of this
 * machine has a socket there and could take rank 0's place. With @failed it looks more closely,
 * which takes some ms. */
struct agent_port {
    ddp_status (*check)(void *ctx, uint16_t port, bool failed, struct ddp_error *err);
    void *ctx;
};

/* What Horovod's programs are told. */
struct agent_horovod {
    uint16_t port;      /* of their rendezvous, on 127.0.0.1; 0: there is none */
    char interface[16]; /* by which they reach each other; "": they find out by themselves */
};

/* Borrowed until agent_close(). */
struct agent_config {
    const char *program;     /* path to execute */
    const char *interpreter; /* @program, if it runs a script or module; else NULL */
    char *const *argv;       /* from argv[1] on, ${local_rank} is replaced */
    const char *preload;     /* modules that workers are forked with (warm_process.h); NULL: none */
    char *const *envp;
    const char *host; /* short name of this node */
    const char *role;
    const char *run_id;
    const char *master_addr;       /* for seats that do not name one */
    const char *store;             /* "host:port" */
    const char *store_prefix;      /* of the job's keys; the generation's prefix follows it */
    const struct agent_keys *keys; /* NULL: workers have no key */
    const struct agent_port *port; /* NULL: the workers meet at the store */
    bool tls;                      /* workers use TLS with the store */
    bool tls_ranks;                /* workers use TLS with each other */
    const char *timeline;          /* DDP_TIMELINE; NULL: an inherited one stays */
    const char *local_address;     /* at which other nodes reach this one; NULL: not said */
    bool agent_store;              /* master_addr and the seat's port are the store's */
    const char *filters[2];        /* of lines of stdout and stderr; NULL or "": none */
    const char *line_template;     /* prefix of console lines; "": none */
    const char *timer_file;        /* TORCHELASTIC_TIMER_FILE, which the agent reads; NULL: none */
    int timer_fd;                  /* @timer_file, open; 0: none */
    const char *error_file;        /* TORCHELASTIC_ERROR_FILE of ddprun; NULL or "": none */
    const struct logdir *logs;     /* open; its opener closes it */
    const struct event_log *event_log; /* open; its opener closes it; NULL: none */
    bool shows_output;                 /* keep the end of what each worker writes, for a page */
    enum voice voice;                  /* how much the agent says */
    uint32_t nproc;                    /* workers of this node */
    const struct binding *binding;     /* the processors of each worker */
    uint32_t omp_threads;              /* OMP_NUM_THREADS of the workers; 0: as inherited */
    uint32_t max_restarts;
    uint32_t flight_records;             /* of each worker; 0: no flight recorder */
    const char *node_check;              /* command for the shell; NULL: none */
    uint64_t node_check_timeout_ms;      /* from its start to SIGTERM */
    uint64_t shutdown_timeout_ms;        /* from asking workers to stop to killing them */
    uint64_t failure_timeout_ms;         /* the same, after a failure */
    uint64_t gpu_memory_timeout_ms;      /* for GPU memory to be freed before a restart */
    const struct agent_streams *streams; /* by local rank */
    enum signal_scope signal_scope;      /* of signals that stop workers or are forwarded */
    bool virtual_local_rank;
    bool pty;                    /* workers write to terminals, not to pipes */
    const struct rlimit *nofile; /* the workers' limit on open files; NULL: the agent's */
    sigset_t ending_signals;     /* end the job */
    sigset_t forwarded_signals;  /* are forwarded to the workers, without further effect */
    const char *ending_signals_text;
    int *told; /* the signal that the launcher has sent; the agent clears it; NULL: no launcher */
    const struct cgroup *cgroup;     /* for the workers; NULL: none */
    const struct guard_agent *guard; /* NULL: no guard */
    const struct pmi_link *pmi_link; /* to the MPI ranks of other nodes; NULL: one node */
    bool (*is_ours)(int fd); /* the peer of a connection within this machine; if serves_pmix */
    const char *pmix_server; /* program of pmix_host.h; NULL: not installed */
    bool serves_pmi;         /* to MPI programs of MPICH's family */
    bool serves_pmix;        /* to those of Open MPI */
    /* Both are read when a worker starts. */
    const struct agent_horovod *horovod; /* NULL: none */
    /* What follows the task in TF_CONFIG, as JSON without its first brace; NULL: workers do not get
     * that variable. */
    char *const *tf_cluster;
};

#endif
