/*
 * plan.c - decides everything about a job from its command line. Owns the streams, the program and
 * the log directory. Must not start a process or open a socket.
 */
#include "plan.h"

#include "error.h"
#include "hwloc_library.h"
#include "local_ranks.h"
#include "mem.h"
#include "peer_owner.h"
#include "processors.h"
#include "signames.h"
#include "token_file.h"
#include "worker_starter.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    DEFAULT_PORT = 29400, /* torchrun's */
    OWN_FILES = 26,       /* of the loop, the guard and the store, and a few for short times */
    FILES_OF_START = 4,   /* of a worker that is being prepared, besides */
    FILES_OF_WORKER = 5,  /* two pipes, pidfd, connection to our store, PMI socket */
};

/* The job with --replicate, if it is given no name. */
static const char replicate_job[] = "job";

static bool endpoint_given(const struct ddprun_options *options)
{
    return options->rdzv_endpoints.count > 0 && !options->standalone;
}

static bool is_static(const struct ddprun_options *options)
{
    return options->rdzv_backend == DDPRUN_STATIC && !options->standalone;
}

/* ---- streams, signals, names ---- */

static ddp_status plan_streams(struct plan *plan, const struct ddprun_options *options,
                               struct ddp_error *err)
{
    uint32_t nproc = options->agent.nproc;
    uint8_t redirect[HOST_NPROC_MAX], tee[HOST_NPROC_MAX];
    bool hidden[HOST_NPROC_MAX];
    ddp_status status = local_ranks_parse_streams(options->redirects, nproc, redirect, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--redirects (or PET_REDIRECTS)");
    status = local_ranks_parse_streams(options->tee, nproc, tee, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--tee (or PET_TEE)");
    status = local_ranks_parse_filter(options->local_ranks_filter, nproc, hidden, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--local-ranks-filter (or PET_LOCAL_RANKS_FILTER)");
    plan->streams = ddpi_calloc(nproc, sizeof *plan->streams);
    if (plan->streams == NULL)
        return ddpi_error_nomem(err, nproc * sizeof *plan->streams);
    for (uint32_t i = 0; i < nproc; i++)
        plan->streams[i] = (struct agent_streams){redirect[i], tee[i], hidden[i]};
    plan->agent.streams = plan->streams;
    return DDP_OK;
}

static ddp_status plan_signals(struct agent_config *agent, const struct ddprun_options *options,
                               struct ddp_error *err)
{
    ddp_status status = signame_parse_list(options->signals_to_handle, &agent->ending_signals, err);
    if (status == DDP_OK)
        status = signame_parse_list(options->forward_signals, &agent->forwarded_signals, err);
    agent->ending_signals_text = options->signals_to_handle;
    return status;
}

/* A job of one node gets a random id, unless it has a name or its static backend an address. */
static void plan_identity(struct plan *plan, const struct ddprun_options *options)
{
    bool named = option_given(options->rdzv_id) && !options->standalone;
    bool fixed =
        is_static(options) && (endpoint_given(options) || options->master_port != UINT32_MAX);
    if (!named && !fixed)
        host_random_uuid(plan->run_id);
    plan->agent.run_id = named ? options->rdzv_id : fixed ? DDPI_JOB_UNNAMED : plan->run_id;
}

static const char *line_template(const struct ddprun_options *options)
{
    if (options->no_prefix)
        return "";
    return option_given(options->line_template) ? options->line_template
                                                : "[${role_name}${local_rank}]:";
}

/* ---- the store and rank 0 ---- */

/* The address to listen on. No resolver is asked for "localhost". */
static const char *listening_address(const char *host)
{
    return strcasecmp(host, "localhost") == 0 ? "127.0.0.1" : host;
}

static void plan_store(const struct ddprun_options *options, struct meeting *meeting)
{
    if (is_static(options) || !endpoint_given(options))
        return;
    const struct ddpi_endpoint *endpoint = &options->rdzv_endpoints.at[0];
    meeting->store_host = listening_address(endpoint->host);
    meeting->store_port = endpoint->port;
    meeting->store_flag = "--rdzv-endpoint";
}

/* Rank 0 listens on --master-port, unless that is @store_port, where other nodes find the store. */
static void take_master_port(const struct ddprun_options *options, uint32_t store_port,
                             struct meeting *meeting)
{
    if (options->master_port == UINT32_MAX || options->master_port == store_port)
        return;
    meeting->master_port = (uint16_t)options->master_port;
    meeting->master_flag = "--master-port";
}

static void plan_master(const struct ddprun_options *options, struct meeting *meeting)
{
    const char *at_endpoint = endpoint_given(options) ? options->rdzv_endpoints.at[0].host : NULL;
    meeting->master_addr = option_given(options->master_addr)  ? options->master_addr
                           : option_given(options->local_addr) ? options->local_addr
                           : at_endpoint != NULL               ? at_endpoint
                                                               : "127.0.0.1";
    take_master_port(options, UINT32_MAX, meeting);
    if (is_static(options) && at_endpoint != NULL) { /* its endpoint is the master */
        meeting->master_addr = at_endpoint;
        meeting->master_port = options->rdzv_endpoints.at[0].port;
        meeting->master_flag = "--rdzv-endpoint";
    }
}

/* Whether the store may serve as the master. The only worker of a job needs no store, but it may
 * start processes (mp.spawn) with a MASTER_ADDR and MASTER_PORT of its own, and they must not take
 * that for our store. */
static bool may_share_store(const struct ddprun_options *options, bool shared_off)
{
    bool alone = options->agent.nproc == 1 && (options->max_nodes == 1 || options->standalone);
    return !shared_off && !alone;
}

/* The store listens at the master's address if that is on loopback and no option says otherwise. */
static void share_store(struct meeting *meeting)
{
    if (!ddpi_host_is_loopback(meeting->master_addr))
        return;
    const char *address = listening_address(meeting->master_addr);
    bool elsewhere = strcmp(address, meeting->store_host) != 0 ||
                     (meeting->master_port != 0 && meeting->master_port != meeting->store_port);
    if (meeting->store_flag != NULL && elsewhere)
        return;
    meeting->agent_store = true;
    if (meeting->store_flag != NULL)
        return;
    meeting->store_host = address;
    meeting->store_port = meeting->master_port;
    meeting->store_flag = meeting->master_flag;
}

void plan_meeting(const struct ddprun_options *options, bool shared_off, struct meeting *ret)
{
    struct meeting meeting = {.store_host = "127.0.0.1"};
    plan_store(options, &meeting);
    plan_master(options, &meeting);
    if (may_share_store(options, shared_off))
        share_store(&meeting);
    *ret = meeting;
}

/* Fill the record with which this node joins. An empty @address stands for the one from which the
 * node reaches the store. */
static void plan_member(struct plan *plan, const struct ddprun_options *options, uint32_t min_nodes,
                        uint32_t max_nodes, const char *address)
{
    struct ddp_round_member *says = &plan->says;
    *says = (struct ddp_round_member){
        .node_rank = options->node_rank == UINT32_MAX ? -1 : (int32_t)options->node_rank,
        .terms = {.min_nodes = min_nodes,
                  .max_nodes = max_nodes,
                  .max_restarts = options->agent.max_restarts,
                  .settle_ms = (uint32_t)options->settle_ms,
                  .lease_ms = plan->multi.lease_ms,
                  .crash_loop = options->crash_loop,
                  .join = options->join_policy,
                  .quarantine = options->quarantine,
                  .worker_ports = options->tf_config},
    };
    snprintf(says->name, sizeof says->name, "%.*s", DDP_ROUND_NAME_SIZE - 1, plan->host);
    snprintf(says->role, sizeof says->role, "%.*s", DDP_ROUND_ROLE_SIZE - 1, options->agent.role);
    for (char *c = says->role; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c)) /* a record must not have control characters */
            *c = '?';
    snprintf(says->address, sizeof says->address, "%.*s", DDP_ROUND_ADDRESS_SIZE - 1, address);
}

static void plan_single(struct plan *plan, const struct ddprun_options *options, bool shared_off)
{
    struct agent_config *agent = &plan->agent;
    plan_meeting(options, shared_off, &plan->meeting);
    plan_identity(plan, options);
    agent->store_prefix = "";
    agent->agent_store = plan->meeting.agent_store;
    agent->master_addr = plan->meeting.master_addr;
    plan->multi.job = "";
    plan_member(plan, options, 1, 1, agent->master_addr);
}

/* ---- several nodes ---- */

/* With the static backend, --master-addr and --master-port may give the address of the store. */
static ddp_status plan_endpoints(const struct ddprun_options *options, struct ddpi_endpoints *ret,
                                 struct ddp_error *err)
{
    bool given_here = options->rdzv_endpoints.count > 0;
    *ret = options->rdzv_endpoints;
    if (!given_here && option_given(options->master_addr))
        snprintf(ret->at[ret->count++].host, DDPI_HOST_MAX, "%s", options->master_addr);
    if (ret->count == 0)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--nnodes=%u:%u needs --rdzv-endpoint=HOST[:PORT], the same on all nodes: the address "
            "of a ddprund, or of one of the nodes, which then runs the store",
            options->min_nodes, options->max_nodes);
    for (uint32_t i = 0; i < ret->count; i++) {
        struct ddpi_endpoint *one = &ret->at[i];
        if (!one->has_port)
            one->port = !given_here && options->master_port != UINT32_MAX
                            ? (uint16_t)options->master_port
                            : DEFAULT_PORT;
        if (one->port == 0)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "--rdzv-endpoint: other nodes cannot know which port 0 becomes; "
                                  "give the same port on all nodes, such as %d",
                                  DEFAULT_PORT);
    }
    if (options->rdzv_endpoints.count > 1 && options->conf.is_host > 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--rdzv-endpoint: several addresses are those of ddprund services, "
                              "so no node hosts the store; leave out is_host");
    return DDP_OK;
}

/* Without --master-port, or if that is the port of the store, the store serves as the master, as
 * with torchrun's static backend. */
static void plan_multi_master(struct plan *plan, const struct ddprun_options *options,
                              bool shared_off)
{
    struct multi_node_config *multi = &plan->multi;
    bool at_endpoint = options->master_port == multi->endpoint.port;
    take_master_port(options, multi->endpoint.port, &plan->meeting);
    plan->agent.agent_store =
        may_share_store(options, shared_off) && plan->meeting.master_flag == NULL;
    multi->is_master = plan->agent.agent_store && (is_static(options) || at_endpoint);
}

/* Choose the named token; else the user's default token, which needs a home directory. */
static void plan_token(struct plan *plan, const struct ddprun_options *options)
{
    struct multi_node_config *multi = &plan->multi;
    multi->auth = options->auth;
    multi->trust_local_users = options->trust_local_users;
    multi->tls = options->agent.tls;
    if (multi->auth == DDPI_SERVER_AUTH_NEVER)
        return;
    multi->token_named = option_given(options->token_file);
    if (!multi->token_named)
        (void)!ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &plan->home_token,
                                       NULL);
    multi->token_file = multi->token_named ? options->token_file : plan->home_token;
}

/* Workers authenticate to each other; also to the store if the agent does so. */
static void plan_keys(struct plan *plan)
{
    struct multi_node_config *multi = &plan->multi;
    bool asked = multi->token_named || !multi->is_loopback;
    if (plan->several && multi->token_file == NULL)
        return;
    multi->worker_keys = &plan->worker_keys;
    plan->worker_keys = (struct worker_keys){
        .job = multi->job, .token_file = multi->token_file, .makes_token = !asked};
    plan->agent_keys = (struct agent_keys){worker_keys_make, &plan->worker_keys};
    plan->agent.keys = &plan->agent_keys;
}

static bool all_loopback(const struct ddpi_endpoints *endpoints)
{
    for (uint32_t i = 0; i < endpoints->count; i++)
        if (!ddpi_host_is_loopback(endpoints->at[i].host))
            return false;
    return true;
}

bool plan_needs_a_store(const struct ddprun_options *options)
{
    const struct ddpi_endpoints *endpoints = &options->rdzv_endpoints;
    bool elsewhere = endpoints->count > 1 ||
                     (endpoint_given(options) && !is_static(options) && !all_loopback(endpoints));
    return !options->standalone && (options->max_nodes > 1 || elsewhere || options->leash);
}

/* One node at a store of several jobs has nobody to agree with on a name. */
static const char *choose_job_name(struct plan *plan, const struct ddprun_options *options)
{
    if (option_given(options->rdzv_id))
        return options->rdzv_id;
    if (options->replicate)
        return replicate_job; /* a ddprund takes no job without a name */
    if (options->max_nodes > 1)
        return DDPI_JOB_UNNAMED;
    host_random_uuid(plan->run_id);
    return plan->run_id;
}

static ddp_status plan_multi(struct plan *plan, const struct ddprun_options *options,
                             bool shared_off, struct ddp_error *err)
{
    struct agent_config *agent = &plan->agent;
    struct multi_node_config *multi = &plan->multi;
    const char *name = choose_job_name(plan, options);
    struct ddpi_endpoints endpoints;
    ddp_status status = plan_endpoints(options, &endpoints, err);
    if (status != DDP_OK)
        return status;
    if (!ddpi_job_valid(name, strlen(name)))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--rdzv-id: '%s' cannot be the name of a job of several nodes: use 1 "
                              "to %d characters of [A-Za-z0-9._-], the first not '.'",
                              name, DDPI_JOB_MAX);
    multi->job = name;
    multi->endpoint = endpoints.at[0];
    multi->is_loopback = all_loopback(&endpoints);
    multi->is_launched = options->leash;
    multi->is_replicated = options->replicate;
    bool elsewhere = options->leash || endpoints.count > 1; /* the launcher is, or a ddprund */
    multi->is_host = elsewhere ? 0 : options->conf.is_host;
    multi->store = plan->store;
    multi->lease_ms = (uint32_t)options->lease_ms;
    ddpi_endpoints_text(&endpoints, plan->store, sizeof plan->store);
    snprintf(plan->store_prefix, sizeof plan->store_prefix, "job/%s/", name);
    agent->run_id = name;
    agent->store = plan->store;
    agent->store_prefix = plan->store_prefix;
    /* TCPStore clients of other nodes would need TLS, which they do not have; and a store that
     * moves to another node must not be the master. */
    plan_multi_master(plan, options, shared_off || options->agent.tls || options->replicate);
    plan->join_timeout_ms = options->join_timeout_ms;
    plan_member(plan, options, options->min_nodes, options->max_nodes,
                option_given(options->local_addr) ? options->local_addr : "");
    return replicate_plan(&plan->replicate, options, &endpoints, name, err);
}

/* ---- the plan ---- */

/* A single worker on a terminal behaves as without ddprun. */
static bool wants_pty(const struct plan *plan, const struct ddprun_options *options)
{
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    bool alone = !plan->several && options->agent.nproc == 1;
    return !options->no_pty && (options->pty || (alone && terminal));
}

static ddp_status check_together(const struct plan *plan, const struct ddprun_options *options,
                                 struct ddp_error *err)
{
    if (options->module && options->no_python)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--module (-m) and --no-python contradict each other; leave one out");
    if (options->leash != (plan->leash != NULL))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--leash must be the first option; ddprun gives it to the ddprun "
                              "that it starts on each host of --hosts");
    if (options->agent.tls && options->auth == DDPI_SERVER_AUTH_NEVER)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--tls (or DDPRUN_TLS) needs a token, and --no-auth uses none; leave one out");
    if (options->standalone && options->min_nodes > 1)
        return ddpi_error_set(
            err, DDP_E_INVALID,
            "--standalone runs one node, but --nnodes (or PET_NNODES) asks for %u; leave one out",
            options->min_nodes);
    return replicate_check(options, err);
}

ddp_status plan_job(struct plan *plan, const struct ddprun_options *options, char *const *envp,
                    struct ddp_error *err)
{
    static const char sharing[] = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
    static const char error_file[] = "TORCHELASTIC_ERROR_FILE";
    const char *shared_off = ddpi_parse_env(envp, sharing, strlen(sharing));
    bool off = shared_off != NULL && strcmp(shared_off, "1") == 0;
    struct agent_config *agent = &plan->agent;
    ddp_status status = check_together(plan, options, err);
    if (status != DDP_OK)
        return status;
    *agent = options->agent;
    status = plan_streams(plan, options, err);
    if (status == DDP_OK)
        status = plan_signals(agent, options, err);
    if (status != DDP_OK)
        return status;
    host_name(plan->host, sizeof plan->host);
    plan->several = plan_needs_a_store(options);
    if (plan->several)
        status = plan_multi(plan, options, off, err);
    else
        plan_single(plan, options, off);
    if (status != DDP_OK)
        return status;
    plan_token(plan, options);
    plan_keys(plan);
    agent->host = plan->host;
    agent->voice = ddprun_options_voice(options);
    agent->line_template = line_template(options);
    agent->pty = wants_pty(plan, options);
    agent->node_check = option_given(options->node_check) ? options->node_check : NULL;
    agent->local_address = option_given(options->local_addr) ? options->local_addr : NULL;
    agent->envp = envp;
    agent->error_file = ddpi_parse_env(envp, error_file, strlen(error_file));
    agent->logs = &plan->logs;
    return DDP_OK;
}

/* A worker that is bound has its cores; else all share what this process may use. */
static uint32_t threads_of_worker(const struct plan *plan)
{
    uint32_t nproc = plan->agent.nproc;
    uint32_t bound = plan->binding.sets != NULL ? plan->binding.cores : UINT32_MAX;
    uint32_t share = ddpi_processors() / nproc;
    uint32_t threads = bound < share || share == 0 ? bound : share;
    return threads == UINT32_MAX || threads == 0 ? 1 : threads;
}

ddp_status plan_binding(struct plan *plan, const struct ddprun_options *options, char *const *envp,
                        struct ddp_error *err)
{
    static const char devices[] = "CUDA_VISIBLE_DEVICES", threads[] = "OMP_NUM_THREADS";
    uint32_t nproc = options->agent.nproc;
    ddp_status status = options->numa_binding != BINDING_NONE ? hwloc_library_load(err) : DDP_OK;
    if (status == DDP_OK)
        status = binding_make(&plan->binding, options->numa_binding, nproc,
                              ddpi_parse_env(envp, devices, strlen(devices)), err);
    if (status != DDP_OK)
        return status;
    plan->agent.binding = &plan->binding;
    if (nproc > 1 && ddpi_parse_env(envp, threads, strlen(threads)) == NULL)
        plan->agent.omp_threads = threads_of_worker(plan);
    return DDP_OK;
}

uint32_t plan_worker_ports(const struct plan *plan)
{
    return plan->says.terms.worker_ports ? plan->agent.nproc : 1;
}

ddp_status plan_files(struct plan *plan, struct ddp_error *err)
{
    uint32_t nproc = plan->agent.nproc;
    uint32_t starts = nproc < WORKER_STARTER_AHEAD ? nproc : WORKER_STARTER_AHEAD;
    uint32_t needed = OWN_FILES + starts * FILES_OF_START + nproc * FILES_OF_WORKER;
    needed += plan_worker_ports(plan);
    for (uint32_t i = 0; i < plan->agent.nproc; i++)
        needed += (uint32_t)__builtin_popcount(plan->streams[i].tee);
    plan->files = needed;
    ddp_status status = host_need_files(needed, &plan->nofile, err);
    if (status != DDP_OK)
        return ddpi_error_advise(err, status, "raise it with 'ulimit -n', or start fewer workers");
    plan->agent.nofile = &plan->nofile;
    return DDP_OK;
}

/* The argument that torch.distributed.launch puts before those of the script. */
static char *legacy_argument(const struct ddprun_options *options)
{
    static char underscore[] = "--local_rank=${local_rank}", dash[] = "--local-rank=${local_rank}";
    static char *const arguments[] = {[DDPRUN_NO_LOCAL_RANK] = NULL,
                                      [DDPRUN_LOCAL_RANK] = underscore,
                                      [DDPRUN_LOCAL_DASH] = dash};
    return arguments[options->legacy_local_rank];
}

ddp_status plan_program(struct plan *plan, const struct ddprun_options *options, char **operands,
                        struct ddp_error *err)
{
    ddp_status status = program_resolve(operands, legacy_argument(options), options->module,
                                        options->no_python, &plan->program, err);
    plan->agent.program = plan->program.path;
    plan->agent.interpreter = plan->program.interprets ? plan->program.path : NULL;
    plan->agent.argv = plan->program.argv;
    bool unnamed = plan->several && (strcmp(plan->multi.job, DDPI_JOB_UNNAMED) == 0 ||
                                     plan->multi.job == replicate_job);
    if (status == DDP_OK && unnamed)
        program_describe(operands, options->module, plan->says.command, sizeof plan->says.command);
    plan->agent.preload =
        option_given(options->preload) && plan->program.script ? options->preload : NULL;
    plan->agent.serves_pmi = options->mpi != DDPRUN_MPI_PMIX;
    plan->agent.serves_pmix = options->mpi != DDPRUN_MPI_PMI;
    if (plan->agent.serves_pmix)
        plan->pmix_server = program_find_pmix_server();
    plan->agent.pmix_server = plan->pmix_server;
    plan->agent.is_ours = ddpi_owners_peer_is_ours;
    return status;
}

ddp_status plan_logs(struct plan *plan, const struct ddprun_options *options, bool *ret_announce,
                     struct ddp_error *err)
{
    const char *base = option_given(options->log_dir) ? options->log_dir : NULL;
    bool filtered = option_given(plan->agent.filters[0]) || option_given(plan->agent.filters[1]);
    bool wants_files = filtered;
    for (uint32_t i = 0; i < plan->agent.nproc; i++)
        wants_files |= plan->streams[i].redirect != 0 || plan->streams[i].tee != 0;
    if (base != NULL && strcmp(base, "/dev/null") == 0 && filtered)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--duplicate-stdout-filters and --duplicate-stderr-filters write to "
                              "files, but --log-dir=/dev/null allows none; name a directory");
    ddp_status status = logdir_open(&plan->logs, base, plan->agent.run_id, wants_files, err);
    *ret_announce = status == DDP_OK && plan->logs.end == LOGDIR_KEPT && base == NULL;
    return status;
}

ddp_status plan_timers(struct plan *plan, char *const *envp, struct ddp_error *err)
{
    static const char enable[] = "TORCHELASTIC_ENABLE_FILE_TIMER",
                      place[] = "TORCHELASTIC_TIMER_FILE";
    const char *enabled = ddpi_parse_env(envp, enable, strlen(enable));
    const char *path = ddpi_parse_env(envp, place, strlen(place));
    const char *temporary = getenv("TMPDIR");
    if (enabled == NULL || strcmp(enabled, "1") != 0)
        return DDP_OK;
    ddp_status status = watchdog_fifo_make(&plan->timers, option_given(path) ? path : NULL,
                                           option_given(temporary) ? temporary : "/tmp", err);
    if (status != DDP_OK)
        return status;
    plan->agent.timer_file = plan->timers.path;
    plan->agent.timer_fd = plan->timers.fd;
    return DDP_OK;
}

ddp_status plan_metrics(struct plan *plan, const struct ddprun_options *options,
                        struct ddp_error *err)
{
    const struct metrics_wish wish = {.listen = options->metrics_listen,
                                      .textfile = options->metrics_textfile,
                                      .token_file = option_given(options->metrics_token_file)
                                                        ? options->metrics_token_file
                                                        : NULL,
                                      .trust_local_users = options->trust_local_users};
    ddp_status status = metrics_config_make(&plan->metrics, &wish, err);
    plan->agent.shows_output = status == DDP_OK && plan->metrics.fd >= 0;
    return status;
}

ddp_status plan_events(struct plan *plan, const struct ddprun_options *options,
                       struct ddp_error *err)
{
    if (!option_given(options->event_log))
        return DDP_OK;
    ddp_status status = event_log_open(&plan->event_log, options->event_log, err);
    if (status == DDP_OK)
        plan->agent.event_log = &plan->event_log;
    return status;
}

void plan_finish(struct plan *plan)
{
    worker_keys_finish(&plan->worker_keys);
    if (plan->agent.event_log != NULL)
        event_log_close(&plan->event_log);
    watchdog_fifo_remove(&plan->timers);
    logdir_close(&plan->logs);
    replicate_finish(&plan->replicate);
    program_finish(&plan->program);
    ddpi_free(plan->pmix_server);
    plan->pmix_server = NULL;
    ddpi_free(plan->home_token);
    plan->home_token = NULL;
    binding_finish(&plan->binding);
    ddpi_free(plan->streams);
    plan->streams = NULL;
}
