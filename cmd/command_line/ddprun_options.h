/*
 * ddprun_options.h - what can be said on ddprun's command line, and how it is understood.
 */
#ifndef CMD_DDPRUN_OPTIONS_H
#define CMD_DDPRUN_OPTIONS_H

#include "agent.h"
#include "binding.h"
#include "blacklist.h"
#include "completion.h"
#include "options.h"

#include "parse.h"
#include "rdzv_conf.h"
#include "scheduler.h"
#include "server.h"
#include <ddprun/round.h>

/* In the order of the words of --rdzv-backend. */
enum ddprun_backend { DDPRUN_STATIC, DDPRUN_C10D };

/* What workers get as their first argument, as from torch.distributed.launch. */
enum ddprun_legacy { DDPRUN_NO_LOCAL_RANK, DDPRUN_LOCAL_RANK, DDPRUN_LOCAL_DASH };

/* By which protocol MPI programs are served; in the order of the words of --mpi. */
enum ddprun_mpi { DDPRUN_MPI_AUTO, DDPRUN_MPI_PMI, DDPRUN_MPI_PMIX };

/* The lease of a node with --replicate, and the least that it may be: by then another machine has
 * the store of one that has died, so that its death alone ends no generation. */
enum { DDPRUN_REPLICATE_LEASE_MS = 5000 };

/* Variables for other hosts: NAME or NAME=VALUE, one for each time that the option is given. */
enum { DDPRUN_EXPORTS_MAX = 256 };
struct ddprun_exports {
    const char *names[DDPRUN_EXPORTS_MAX];
    uint32_t count;
};

/* Where a value is from: the command line, or a variable. */
struct ddprun_source {
    const struct option *option;
    const char *variable; /* of @variable_len bytes; NULL: the command line */
    size_t variable_len;
    const char *text;
};
enum { DDPRUN_SOURCES_MAX = 128 }; /* more are not shown */

/* The values as given; NULL and false mean "not given". */
struct ddprun_options {
    struct agent_config agent; /* what the agent gets as it was given; nproc: on this machine */
    const char *workers;       /* per node, as it was written */
    enum ddprun_backend rdzv_backend;
    const char *rdzv_id;
    const char *log_dir;
    const char *redirects;
    const char *tee;
    const char *local_ranks_filter;
    const char *line_template;
    const char *preload;   /* modules; "auto"; NULL or "": none */
    const char *event_log; /* "-": standard error */
    const char *metrics_listen;
    const char *metrics_token_file;
    const char *metrics_textfile;
    const char *signals_to_handle;
    const char *forward_signals;
    const char *master_addr;
    const char *local_addr;
    struct ddpi_endpoints rdzv_endpoints; /* count 0: not given */
    uint32_t master_port;                 /* UINT32_MAX = not given */
    uint32_t min_nodes;                   /* 0 = not given, until ddprun_options_complete() */
    uint32_t max_nodes;
    uint32_t node_rank; /* UINT32_MAX = not given */
    uint32_t crash_loop;
    uint32_t quarantine;
    const char *node_check; /* command for the shell; NULL or "": none */
    bool replicate;
    uint64_t settle_ms;
    uint64_t lease_ms;
    uint64_t join_timeout_ms;
    enum ddp_round_join join_policy;
    const char *token_file;
    enum ddpi_server_auth auth; /* of the store, if this node has it */
    bool trust_local_users;
    struct rdzv_conf conf;
    uint64_t monitor_interval_ms; /* accepted: nothing here polls */
    bool standalone;
    bool module;
    bool no_python;
    bool quiet;
    bool verbose;
    bool no_prefix;
    bool pty;
    bool no_pty;
    bool tf_config;
    enum binding_mode numa_binding;
    uint32_t start_method; /* accepted: nothing depends on it */
    /* Many hosts, started from this one. */
    const char *hosts;     /* "a:4,b:4"; NULL or "": none */
    const char *hostfile;  /* the same; at most one of these three */
    const char *discovery; /* a program that lists them */
    const char *include, *exclude;
    const char *launcher;
    struct ddprun_exports exports;
    struct blacklist_range cooldown;
    uint64_t start_timeout_ms;
    uint32_t np;                                      /* workers of the job; 0: not given */
    struct ddprun_source sources[DDPRUN_SOURCES_MAX]; /* for --dry-run */
    uint32_t source_count;
    bool dry_run;
    bool leash;   /* this is one of the agents */
    bool use_env; /* accepted: it is the default */
    enum ddprun_legacy legacy_local_rank;
    enum completion_shell completion; /* to be printed; COMPLETION_NONE: none */
    enum ddprun_mpi mpi;
    bool help;
    bool usage;
    bool version;
};

extern const struct option_table ddprun_option_table;

/* The times that --rdzv-conf may give too; a part of ddprun_options_complete(). */
void ddprun_options_complete_times(struct ddprun_options *options);

/* The defaults, before environment and command line. */
void ddprun_options_init(struct ddprun_options *options);

/* How much ddprun itself says. */
enum voice ddprun_options_voice(const struct ddprun_options *options);

/* Whether the job runs on hosts that are listed, and started from here. */
bool ddprun_options_have_hosts(const struct ddprun_options *options);

/* The first argument of the program that is written like an option of ddprun which says how many
 * workers there are, where they meet, or what follows a failure; NULL: there is none. @operands are
 * the program and its arguments. Programs often have options of the other groups themselves. */
const char *ddprun_options_misplaced(char *const *operands);

/* Whether a scheduler decides where the nodes meet, as neither an option nor a variable of torchrun
 * does; and what it says, for a process that it has started on each node. Strings of @job are
 * borrowed. */
bool ddprun_options_want_scheduler(const struct ddprun_options *options);
void ddprun_options_take_scheduler(struct ddprun_options *options, const struct scheduler_job *job);

/* What the values mean here and together: joins what --rdzv-conf says with the options for the
 * same, and counts the workers, which may take asking the driver of the GPUs. DDP_E_SYSTEM: it
 * cannot be said on this machine. Before anything else uses @options. */
DDP_MUST_CHECK ddp_status ddprun_options_complete(struct ddprun_options *options,
                                                  struct ddp_error *err);

#endif
