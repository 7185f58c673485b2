/*
 * ddprun_options.h - what can be said on ddprun's command line, and how it is understood.
 */
#ifndef CMD_DDPRUN_OPTIONS_H
#define CMD_DDPRUN_OPTIONS_H

#include "agent.h"
#include "options.h"

#include "parse.h"
#include "rdzv_conf.h"
#include "server.h"
#include <ddprun/round.h>

/* In the order of the words of --rdzv-backend. */
enum ddprun_backend { DDPRUN_STATIC, DDPRUN_C10D };

/* The values as given; NULL and false mean "not given". */
struct ddprun_options {
    const char *workers; /* per node, as it was written */
    enum ddprun_backend rdzv_backend;
    const char *rdzv_id;
    const char *role;
    const char *log_dir;
    const char *redirects;
    const char *tee;
    const char *local_ranks_filter;
    const char *stdout_filters;
    const char *stderr_filters;
    const char *line_template;
    const char *event_log; /* "-": standard error */
    const char *signals_to_handle;
    const char *forward_signals;
    const char *master_addr;
    const char *local_addr;
    struct ddpi_endpoint rdzv_endpoint; /* host "" = not given */
    uint32_t master_port;               /* UINT32_MAX = not given */
    uint32_t nproc_per_node;            /* what @workers means on this machine */
    uint32_t min_nodes;
    uint32_t max_nodes;
    uint32_t node_rank; /* UINT32_MAX = not given */
    uint32_t max_restarts;
    uint32_t crash_loop;
    uint32_t flight_records;
    uint64_t shutdown_timeout_ms;
    uint64_t failure_timeout_ms;
    uint64_t gpu_memory_timeout_ms;
    uint64_t settle_ms;
    uint64_t lease_ms;
    uint64_t join_timeout_ms;
    enum ddp_round_join join_policy;
    const char *token_file;
    enum ddpi_server_auth auth; /* of the store, if this node has it */
    bool trust_local_users;
    bool tls;
    bool tls_ranks;
    struct rdzv_conf conf;
    uint64_t monitor_interval_ms; /* accepted: nothing here polls */
    bool standalone;
    bool module;
    bool no_python;
    bool no_prefix;
    bool pty;
    bool no_pty;
    bool virtual_local_rank;
    uint32_t start_method; /* accepted: nothing depends on it */
    bool use_env;          /* accepted: there is no other way */
    bool help;
    bool usage;
    bool version;
};

extern const struct option_table ddprun_option_table;

/* The defaults, before environment and command line. */
void ddprun_options_init(struct ddprun_options *options);

/* What the values mean here and together: joins what --rdzv-conf says with the options for the
 * same, and counts the workers, which may take asking the driver of the GPUs. DDP_E_SYSTEM: it
 * cannot be said on this machine. Before anything else uses @options. */
DDP_MUST_CHECK ddp_status ddprun_options_complete(struct ddprun_options *options,
                                                  struct ddp_error *err);

/* "3", or "0:3,1:2" (local rank:streams), into one byte per local rank: bit 0 stdout, bit 1
 * stderr. Ranks that are not named get 0. */
DDP_MUST_CHECK ddp_status ddprun_parse_streams(const char *text, uint32_t nproc, uint8_t *ret_bits,
                                               struct ddp_error *err);

/* "0,2": the local ranks that are shown; all others are marked in @ret_hidden. */
DDP_MUST_CHECK ddp_status ddprun_parse_filter(const char *text, uint32_t nproc, bool *ret_hidden,
                                              struct ddp_error *err);

#endif
