/*
 * ddprun.c - main() of ddprun: command line -> configuration -> guard and agent -> exit code.
 *
 * It puts together what does not know of each other: the store's server and the agent, on one
 * event loop that it alone runs. Everything that can be wrong with the command line, but a port in
 * use, is found before the split into guard and agent; and that, too, before a worker is started.
 */
#include "agent.h"
#include "ddprun_options.h"
#include "error.h"
#include "guard.h"
#include "mem.h"
#include "node.h"
#include "outcome.h"
#include "placement.h"
#include "program.h"
#include "reap.h"
#include "server.h"
#include "signames.h"
#include "version.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

static const char usage_text[] =
    "usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Starts the workers of a distributed training job, gives each its place in the job by\n"
    "environment variables (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), watches them,\n"
    "and ends all when one fails. Everything after PROGRAM belongs to PROGRAM.\n"
    "\n"
    "  ddprun --nproc-per-node=4 ./worker              four workers on this machine\n"
    "  ddprun --nproc-per-node=gpu train.py --lr 0.1   a Python script, one worker per GPU\n"
    "  ddprun --nproc-per-node=4 --max-restarts=3 --log-dir=logs --tee=3 ./worker\n";

/* All that is derived from the command line, and what must live as long as the job. */
struct job {
    struct ddprun_options options;
    struct program program;
    struct agent_config config;
    struct agent_streams *streams;
    struct logdir logs;
    char host[256];
    char run_id[NODE_UUID_SIZE];
    int master_fd;        /* keeps the port aside */
    struct rlimit nofile; /* as it was */
};

static int fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddprun: %s\n", err->msg);
    return code;
}

/* ---- from options to configuration ------------------------------------------------------- */

static bool endpoint_given(const struct ddprun_options *options)
{
    return options->rdzv_endpoint.host[0] != '\0';
}

static bool is_static(const struct ddprun_options *options)
{
    return strcmp(options->rdzv_backend, "static") == 0;
}

static ddp_status plan_streams(struct job *job, struct ddp_error *err)
{
    const struct ddprun_options *options = &job->options;
    uint32_t nproc = job->config.nproc;
    uint8_t redirect[NODE_NPROC_MAX], tee[NODE_NPROC_MAX];
    bool hidden[NODE_NPROC_MAX];
    ddp_status status = ddprun_parse_streams(options->redirects, nproc, redirect, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--redirects (or PET_REDIRECTS)");
    status = ddprun_parse_streams(options->tee, nproc, tee, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--tee (or PET_TEE)");
    status = ddprun_parse_filter(options->local_ranks_filter, nproc, hidden, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "--local-ranks-filter (or PET_LOCAL_RANKS_FILTER)");
    job->streams = ddpi_calloc(nproc, sizeof *job->streams);
    if (job->streams == NULL)
        return ddpi_error_nomem(err, nproc * sizeof *job->streams);
    for (uint32_t i = 0; i < nproc; i++)
        job->streams[i] = (struct agent_streams){redirect[i], tee[i], hidden[i]};
    return DDP_OK;
}

/* The lists were checked when they were read. */
static ddp_status plan_signals(struct job *job, struct ddp_error *err)
{
    const struct ddprun_options *options = &job->options;
    ddp_status status =
        signame_parse_list(options->signals_to_handle, &job->config.ending_signals, err);
    if (status == DDP_OK)
        status = signame_parse_list(options->forward_signals, &job->config.forwarded_signals, err);
    job->config.ending_signals_text = options->signals_to_handle;
    return status;
}

/* torchrun's static backend on one node, without an address, is a job of its own as well. */
static void plan_identity(struct job *job)
{
    const struct ddprun_options *options = &job->options;
    bool named = options->rdzv_id != NULL && *options->rdzv_id != '\0' && !options->standalone;
    bool fixed = is_static(options) && !options->standalone &&
                 (endpoint_given(options) || options->master_port != UINT32_MAX);
    if (!named && !fixed)
        node_random_uuid(job->run_id);
    job->config.run_id = named ? options->rdzv_id : fixed ? "none" : job->run_id;
}

static const char *line_template(const struct ddprun_options *options)
{
    if (options->no_prefix)
        return "";
    bool given = options->line_template != NULL && *options->line_template != '\0';
    return given ? options->line_template : "[${role_name}${local_rank}]:";
}

static ddp_status plan(struct job *job, struct ddp_error *err)
{
    const struct ddprun_options *options = &job->options;
    if (options->module && options->no_python)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--module (-m) and --no-python contradict each other; leave one out");
    job->config.nproc = options->nproc_per_node;
    ddp_status status = plan_streams(job, err);
    if (status == DDP_OK)
        status = plan_signals(job, err);
    if (status != DDP_OK)
        return status;
    plan_identity(job);
    node_host_name(job->host, sizeof job->host);
    job->config.host = job->host;
    job->config.role = options->role;
    job->config.line_template = line_template(options);
    job->config.max_restarts = options->max_restarts;
    job->config.shutdown_timeout_ms = options->shutdown_timeout_ms;
    job->config.streams = job->streams;
    job->config.virtual_local_rank = options->virtual_local_rank;
    job->config.envp = environ;
    return DDP_OK;
}

static bool wants_files(const struct job *job)
{
    for (uint32_t i = 0; i < job->config.nproc; i++)
        if (job->streams[i].redirect != 0 || job->streams[i].tee != 0)
            return true;
    return false;
}

static ddp_status open_logs(struct job *job, struct ddp_error *err)
{
    const char *base = job->options.log_dir;
    bool given = base != NULL && *base != '\0';
    job->config.logs = &job->logs;
    ddp_status status =
        logdir_open(&job->logs, given ? base : NULL, job->config.run_id, wants_files(job), err);
    if (status == DDP_OK && job->logs.kept && !given)
        fprintf(stderr, "ddprun: logs are kept in '%s'; --log-dir=DIR puts them elsewhere\n",
                job->logs.path);
    return status;
}

/* The agent does it as well: either may be killed. */
static void close_logs(void *ctx)
{
    struct job *job = ctx;
    logdir_close(&job->logs);
}

static ddp_status plan_program(struct job *job, char **operands, struct ddp_error *err)
{
    ddp_status status =
        program_resolve(operands, job->options.module, job->options.no_python, &job->program, err);
    job->config.program = job->program.path;
    job->config.argv = job->program.argv;
    return status;
}

/* ---- the agent's process ----------------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcmp(host, "localhost") == 0;
}

/* Where the workers of a script that brings its own rendezvous meet. */
static ddp_status reserve_master_port(struct job *job, struct ddp_error *err)
{
    const struct ddprun_options *options = &job->options;
    bool from_endpoint = is_static(options) && endpoint_given(options) && !options->standalone;
    uint16_t port = 0;
    if (from_endpoint)
        port = options->rdzv_endpoint.port;
    else if (options->master_port != UINT32_MAX)
        port = (uint16_t)options->master_port;
    job->config.master_addr = from_endpoint                  ? options->rdzv_endpoint.host
                              : options->master_addr != NULL ? options->master_addr
                              : options->local_addr != NULL  ? options->local_addr
                                                             : "127.0.0.1";
    ddp_status status = node_reserve_port(port, &job->master_fd, &job->config.master_port, err);
    if (status != DDP_OK && from_endpoint)
        return ddpi_error_wrap(err, status, "--rdzv-endpoint");
    return status;
}

static ddp_status create_store(const struct job *job, uv_loop_t *loop,
                               struct ddpi_server **ret_server, struct ddp_error *err)
{
    const struct ddprun_options *options = &job->options;
    struct ddpi_server_options server = {.host = "127.0.0.1"};
    if (!is_static(options) && endpoint_given(options) && !options->standalone) {
        if (!is_loopback(options->rdzv_endpoint.host))
            return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                                  "--rdzv-endpoint: '%s' is not a loopback address; a job of one "
                                  "node keeps its store to itself: use localhost, or leave it out",
                                  options->rdzv_endpoint.host);
        bool by_name = strcmp(options->rdzv_endpoint.host, "localhost") == 0;
        server.host = by_name ? "127.0.0.1" : options->rdzv_endpoint.host;
        server.port = options->rdzv_endpoint.port;
    }
    ddp_status status = ddpi_server_create(loop, &server, ret_server, err);
    if (status != DDP_OK && server.port != 0)
        return ddpi_error_wrap(err, status, "--rdzv-endpoint");
    return status;
}

struct run {
    struct agent agent;
    struct ddpi_server *server;
};

static void on_new_generation(void *ctx, uint32_t generation)
{
    struct run *run = ctx;
    if (generation == 0)
        return;
    char prefix[32];
    placement_store_prefix(prefix, sizeof prefix, generation - 1);
    ddpi_server_delete_prefix(run->server, prefix);
}

static void on_done(void *ctx, int exit_code)
{
    (void)exit_code; /* it stays in the agent */
    struct run *run = ctx;
    agent_close(&run->agent);
    ddpi_server_close(run->server, NULL, NULL);
}

/* The agent must be able to write to the terminal from its own process group, and to survive a
 * reader of its output that goes away, and a log file that may not grow. */
static void ignore_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGTTOU, SIGTTIN, SIGXFSZ};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        sigaction(ignored[i], &ignore, NULL);
}

static int run_agent(struct job *job, const struct guard_agent *split, struct run *run,
                     uv_loop_t *loop)
{
    struct ddp_error err;
    ddp_status status = reserve_master_port(job, &err);
    if (status == DDP_OK)
        status = create_store(job, loop, &run->server, &err);
    if (status != DDP_OK)
        return fail(EXIT_CONFIG, &err);
    job->config.store = ddpi_server_endpoint(run->server);
    job->config.guard_fd = split->guard_fd;

    status = agent_init(&run->agent, loop, &job->config, &err);
    run->agent.new_generation = on_new_generation;
    run->agent.done = on_done;
    run->agent.ctx = run;
    sigprocmask(SIG_SETMASK, &split->signal_mask, NULL);
    if (status == DDP_OK)
        agent_start(&run->agent);
    else
        on_done(run, EXIT_CONFIG);
    uv_run(loop, UV_RUN_DEFAULT);
    int code = status == DDP_OK ? run->agent.exit_code : fail(EXIT_CONFIG, &err);
    agent_finish(&run->agent);
    close(job->master_fd);
    return code;
}

/* Three descriptors a worker: take what the hard limit allows, and leave the workers' limit alone.
 */
static void raise_file_limit(struct job *job)
{
    if (getrlimit(RLIMIT_NOFILE, &job->nofile) != 0)
        return;
    const struct rlimit raised = {job->nofile.rlim_max, job->nofile.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        job->config.nofile = &job->nofile;
}

static int agent_main(struct job *job, const struct guard_agent *split)
{
    struct ddp_error err;
    uv_loop_t loop;
    struct run *run = ddpi_calloc(1, sizeof *run);
    int sys_errno = reap_become_subreaper();
    int uv_status = uv_loop_init(&loop);
    ignore_signals();
    raise_file_limit(job);
    if (run == NULL || sys_errno != 0 || uv_status != 0) {
        ddpi_error_sys(&err,
                       sys_errno != 0   ? sys_errno
                       : uv_status != 0 ? -uv_status
                                        : ENOMEM,
                       "cannot set up the agent");
        ddpi_free(run);
        return fail(EXIT_CONFIG, &err);
    }
    int code = run_agent(job, split, run, &loop);
    uv_run(&loop, UV_RUN_DEFAULT); /* handles that a failure left closing */
    int left = uv_loop_close(&loop);
    assert(left == 0 && "a handle was not closed");
    (void)left;
    ddpi_free(run);
    return code;
}

/* ---- main ---------------------------------------------------------------------------------- */

static int run_job(struct job *job, char **operands)
{
    struct ddp_error err;
    struct guard_agent split;
    const struct guard_farewell farewell = {close_logs, job};
    ddp_status status = plan(job, &err);
    if (status != DDP_OK)
        return fail(EXIT_USAGE, &err);
    status = plan_program(job, operands, &err);
    guard_hold_signals();
    if (status == DDP_OK)
        status = open_logs(job, &err);
    if (status == DDP_OK)
        status = guard_split(&farewell, &split, &err);
    int code = status == DDP_OK ? agent_main(job, &split) : fail(EXIT_CONFIG, &err);
    close_logs(job);
    return code;
}

static void print_help(void)
{
    fputs(usage_text, stdout);
    options_print_help(&ddprun_option_table, stdout);
}

int main(int argc, char **argv)
{
    struct ddp_error err;
    struct job job = {.master_fd = -1};
    int operand;
    int sys_errno = node_ensure_stdio();
    if (sys_errno != 0)
        return EXIT_CONFIG; /* there is nowhere to say why */
    ddprun_options_init(&job.options);
    ddp_status status =
        options_parse(&ddprun_option_table, argc, argv, environ, &job.options, &operand, &err);
    if (status != DDP_OK)
        return fail(EXIT_USAGE, &err);
    if (job.options.version) {
        puts("ddprun " DDPRUN_VERSION);
    } else if (job.options.help) {
        print_help();
    } else if (job.options.usage) {
        fputs(usage_text, stdout);
        puts("\n'ddprun --help' lists all options.");
    } else if (operand == argc) {
        ddpi_error_set(&err, DDP_E_INVALID,
                       "no program was given; 'ddprun --nproc-per-node=4 ./worker' runs four "
                       "workers, 'ddprun -h' says more");
        return fail(EXIT_USAGE, &err);
    } else {
        int code = run_job(&job, argv + operand);
        program_finish(&job.program);
        ddpi_free(job.streams);
        return code;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
