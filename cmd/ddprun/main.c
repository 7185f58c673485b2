/*
 * main.c - main() of ddprun: command line -> configuration -> guard and agent -> exit code.
 *
 * It puts together what does not know of each other: the store's server and the agent, on one
 * event loop that it alone runs. Everything that can be wrong with the command line, but a port in
 * use, is found before the split into guard and agent; and that, too, before a worker is started.
 */
#include "error.h"
#include "guard.h"
#include "master_port.h"
#include "mem.h"
#include "membership.h"
#include "multi_node.h"
#include "outcome.h"
#include "plan.h"
#include "pmi_exchange.h"
#include "reap.h"
#include "secrecy.h"
#include "server.h"
#include "single_node.h"
#include "text.h"
#include "token_file.h"
#include "version.h"
#include "worker_env.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char usage_text[] =
    "usage: ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
    "\n"
    "Start the workers of a distributed training job with RANK, WORLD_SIZE, LOCAL_RANK,\n"
    "MASTER_ADDR and so on in their environment, supervise them, and stop or restart all of\n"
    "them when one fails. Arguments after PROGRAM are passed to it.\n"
    "\n"
    "  ddprun --nproc-per-node=4 ./worker              four workers on this machine\n"
    "  ddprun --nproc-per-node=gpu train.py --lr 0.1   a Python script, one worker per GPU\n"
    "  ddprun --nproc-per-node=4 --max-restarts=3 --log-dir=logs --tee=3 ./worker\n";

enum { PREFIX_SIZE = 32, SAID_MAX = 8192 };

/* One line on stderr. Names and values in it come from outside, and are not to drive the terminal.
 */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[SAID_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ddpi_text_mask(text);
    fprintf(stderr, "ddprun: %s\n", text);
}

static int fail(int code, const struct ddp_error *err)
{
    say("%s", err->msg);
    return code;
}

/* ---- the agent's process ----------------------------------------------------------------- */

/* The store, and what belongs to the time in which the agent runs. */
struct run {
    uv_loop_t loop;
    struct membership membership;
    bool several; /* nodes: then @remote has the rounds, else @local, whose store is @server */
    struct local_job local;
    struct remote_job remote;
    struct pmi_exchanges pmi;
    struct ddpi_server *server;
    struct ddpi_log log;       /* of that server */
    struct master_port master; /* not kept where the store is the master */
    int exit_code;
};

/* What TCPStore clients, who cannot say to which generation they belong, see of the store. */
static void tcpstore_prefix(char *text, size_t size, uint64_t generation)
{
    worker_env_store_prefix(text, size, "", generation);
    size_t used = strlen(text);
    snprintf(text + used, size - used, "tcp/");
}

/* The keyspaces before it are of no use any more; in its own nothing is to be found that somebody
 * has put there before. */
static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    struct run *run = ctx;
    char prefix[PREFIX_SIZE];
    master_port_renew(&run->master);
    seat->master_port = run->master.number;
    tcpstore_prefix(prefix, sizeof prefix, generation);
    ddp_status status = ddpi_server_set_tcpstore_prefix(run->server, prefix, err);
    worker_env_store_prefix(prefix, sizeof prefix, "", generation - 1);
    ddpi_server_detach(run->server, prefix);
    worker_env_store_prefix(prefix, sizeof prefix, "", generation);
    ddpi_server_detach(run->server, prefix);
    return status;
}

/* The port that this node says, and says again when it comes back to the store. */
static void renew_port(struct run *run)
{
    master_port_renew(&run->master);
    run->membership.member.says.master_port = run->master.number;
}

static void on_publish(void *ctx, const struct ddp_round_member *says)
{
    struct run *run = ctx;
    if (run->several && says->phase == DDP_ROUND_IDLE)
        renew_port(run);
    if (run->several)
        remote_job_publish(&run->remote, says);
    else
        local_job_publish(&run->local, says);
}

static void on_describe(void *ctx, const char *text)
{
    struct run *run = ctx;
    remote_job_describe(&run->remote, text);
}

static void on_leave(void *ctx)
{
    struct run *run = ctx;
    if (run->several) /* a job of one node ends with it */
        remote_job_leave(&run->remote);
}

static void on_hurry(void *ctx)
{
    struct run *run = ctx;
    remote_job_hurry(&run->remote);
}

/* The loop is not to wait for a look-up of a name that has been given up. */
static void on_remote_closed(void *ctx)
{
    struct run *run = ctx;
    membership_close(&run->membership);
    uv_stop(&run->loop);
}

static void on_done(void *ctx, int exit_code)
{
    struct run *run = ctx;
    run->exit_code = exit_code;
    if (run->several) {
        remote_job_close(&run->remote, on_remote_closed, run);
        return;
    }
    membership_close(&run->membership);
    local_job_close(&run->local);
    ddpi_server_close(run->server, NULL, NULL);
}

static void count_handle(uv_handle_t *handle, void *arg)
{
    (void)handle;
    ++*(unsigned *)arg;
}

static unsigned count_handles(uv_loop_t *loop)
{
    unsigned count = 0;
    uv_walk(loop, count_handle, &count);
    return count;
}

/* All of them have been closed, or are being. */
static void await_handles(uv_loop_t *loop)
{
    while (count_handles(loop) > 0 && uv_loop_alive(loop))
        uv_run(loop, UV_RUN_ONCE);
    assert(count_handles(loop) == 0 && "a handle was not closed");
}

/* The token of a store that nobody but this machine reaches: whoever has it may prove it, but only
 * where all have to must it be there. */
static ddp_status take_token(const struct remote_job_config *config, struct ddpi_credential *ret,
                             bool *ret_there, struct ddp_error *err)
{
    bool needed = config->auth == DDPI_SERVER_AUTH_ALWAYS;
    ddp_status status = DDP_E_NOT_FOUND;
    if (config->token_file != NULL)
        status = needed && !config->token_named ? ddpi_token_obtain(config->token_file, ret, err)
                                                : ddpi_token_read(config->token_file, ret, err);
    else if (needed)
        status =
            ddpi_error_set(err, DDP_E_DENIED,
                           "all have to prove that they have a token (--auth=always), and there "
                           "is no HOME for one; name it by --token-file");
    *ret_there = status == DDP_OK && ret->is_token;
    return needed ? status : DDP_OK;
}

/* Its workers are the only ones who are to come; the agent, in whose process it is, vouches for
 * those that are TCPStore clients. */
static ddp_status create_store(struct plan *plan, struct run *run, struct ddp_error *err)
{
    const struct meeting *meeting = &plan->meeting;
    const struct remote_job_config *config = &plan->remote;
    struct ddpi_credential token = {0};
    char prefix[PREFIX_SIZE];
    bool there;
    tcpstore_prefix(prefix, sizeof prefix, 0);
    ddp_status status = take_token(config, &token, &there, err);
    const struct ddpi_server_options options = {.host = meeting->store_host,
                                                .port = meeting->store_port,
                                                .tcpstore_prefix = prefix,
                                                .token = there ? &token : NULL,
                                                .auth = config->auth,
                                                .trust_local_users = config->trust_local_users,
                                                .tls = config->tls && config->token_named,
                                                .vouches = true,
                                                .log = &run->log};
    run->log = (struct ddpi_log){remote_job_on_log, &run->membership, DDPI_LOG_WARN};
    if (status == DDP_OK)
        status = ddpi_server_create(&run->loop, &options, &run->server, err);
    ddpi_wipe(&token, sizeof token);
    if (status != DDP_OK)
        return meeting->store_flag != NULL ? ddpi_error_wrap(err, status, "%s", meeting->store_flag)
                                           : status;
    plan->worker_keys.wanted = config->auth == DDPI_SERVER_AUTH_ALWAYS;
    plan->worker_keys.store = ddpi_server_number(run->server);
    return DDP_OK;
}

/* A port of this node that its first worker may bind, for a script that brings its own rendezvous.
 */
static ddp_status reserve_port(struct plan *plan, struct run *run, struct ddp_error *err)
{
    const struct meeting *meeting = &plan->meeting;
    bool watched = !plan->remote.trust_local_users;
    ddp_status status = master_port_keep(&run->master, meeting->master_port, watched, err);
    plan->agent.port = &run->master.agent;
    if (status != DDP_OK && meeting->master_flag != NULL)
        return ddpi_error_wrap(err, status, "%s", meeting->master_flag);
    return status;
}

/* Of several nodes only that of rank 0 needs the port that was asked for, and another agent on this
 * machine may be that one. */
static ddp_status do_without_port(const struct meeting *meeting, ddp_status status,
                                  const struct ddp_error *err)
{
    if (meeting->master_port == 0 || err->sys_errno != EADDRINUSE)
        return status;
    say("%s; if this node is to have rank 0, that cannot listen there", err->msg);
    return DDP_OK;
}

/* Where the rounds are, and where the workers meet: at the store, or at a port that is kept free
 * for rank 0. */
static ddp_status open_job(struct plan *plan, struct run *run, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (!plan->agent.agent_store)
        status = reserve_port(plan, run, err);
    if (status != DDP_OK && plan->several)
        status = do_without_port(&plan->meeting, status, err);
    if (status == DDP_OK && plan->several) {
        plan->says.master_port = run->master.number;
        return DDP_OK;
    }
    if (status == DDP_OK)
        status = create_store(plan, run, err);
    if (status != DDP_OK)
        return status;
    plan->agent.store = ddpi_server_endpoint(run->server);
    if (plan->agent.agent_store)
        run->master.number = ddpi_server_port(run->server);
    return DDP_OK;
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

/* Whatever the caller of ddprun had blocked, too: a job must be possible to end. */
static void unblock_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Everything that the agent needs; on failure what was made is closed. */
static ddp_status open_run(struct plan *plan, const struct guard_agent *split, struct run *run,
                           struct ddp_error *err)
{
    const struct membership_link link = {
        .ctx = run,
        .publish = on_publish,
        .describe = run->several ? on_describe : NULL, /* nobody looks at one node */
        .leave = on_leave,
        .hurry = run->several ? on_hurry : NULL,
        .done = on_done};
    const struct member_config member = {.says = plan->says,
                                         .lease_ms = plan->several ? plan->remote.lease_ms : 0,
                                         .join_timeout_ms = plan->join_timeout_ms};
    plan->agent.guard = split;
    if (run->several) {
        struct ddp_store_options options = remote_job_store_options(&plan->remote);
        options.job = plan->remote.job;
        pmi_exchanges_init(&run->pmi, &run->loop, &options);
        plan->agent.pmi_link = &run->pmi.link;
    }
    ddp_status status =
        membership_init(&run->membership, &run->loop, &plan->agent, &member, &link, err);
    if (status != DDP_OK)
        return status;
    return run->several ? remote_job_open(&run->remote, &run->loop, &plan->remote, &run->membership,
                                          split, err)
                        : local_job_init(&run->local, &run->loop, &run->membership, err);
}

static int run_agent(struct plan *plan, const struct guard_agent *split, struct run *run)
{
    struct ddp_error err;
    ddp_status status = open_job(plan, run, &err);
    if (status != DDP_OK) {
        if (run->server != NULL)
            ddpi_server_close(run->server, NULL, NULL);
        await_handles(&run->loop);
        return fail(EXIT_CONFIG, &err);
    }
    run->several = plan->several;
    run->local.begin = on_begin;
    run->local.ctx = run;
    status = open_run(plan, split, run, &err);
    unblock_signals();
    if (status == DDP_OK)
        membership_start(&run->membership);
    else
        on_done(run, EXIT_CONFIG);
    uv_run(&run->loop, UV_RUN_DEFAULT);
    await_handles(&run->loop);
    int code = status == DDP_OK ? run->exit_code : fail(EXIT_CONFIG, &err);
    membership_finish(&run->membership);
    return code;
}

/* *@ret_waiting: a thread still waits for an answer, about a name or from a GPU's driver, or for a
 * program to be executed, and nothing can end it but the end of the process. */
static int agent_main(struct plan *plan, const struct guard_agent *split, bool *ret_waiting)
{
    struct ddp_error err;
    struct run *run = ddpi_calloc(1, sizeof *run);
    int sys_errno = run == NULL ? ENOMEM : reap_become_subreaper();
    if (sys_errno == 0)
        sys_errno = -uv_loop_init(&run->loop);
    ignore_signals();
    if (sys_errno != 0) {
        ddpi_error_sys(&err, sys_errno, "cannot set up the agent");
        ddpi_free(run);
        return fail(EXIT_CONFIG, &err);
    }
    master_port_init(&run->master);
    int code = run_agent(plan, split, run);
    master_port_close(&run->master);
    bool resolving = uv_loop_close(&run->loop) != 0;
    const struct agent *agent = &run->membership.agent;
    bool starting = agent->starter.spawner.left;
    *ret_waiting = resolving || starting || agent->gpus.left;
    if (!resolving && !starting) /* else the thread has the loop, or the launch, still */
        ddpi_free(run);
    return code;
}

/* ---- main ---------------------------------------------------------------------------------- */

static void clean_up(void *ctx)
{
    struct plan *plan = ctx;
    cgroup_remove(&plan->cgroup);
    watchdog_fifo_remove(&plan->timers);
    logdir_close(&plan->logs);
}

/* What is done without having been asked for, or not done though it was; once, as torchrun does. */
static void say_remarks(const struct ddprun_options *options, const struct plan *plan,
                        bool announce_logs)
{
    if (announce_logs)
        say("logs are kept in '%s'; --log-dir=DIR puts them elsewhere", plan->logs.path);
    if (options->conf.unknown[0] != '\0')
        say("--rdzv-conf: ignored unknown settings: %s", options->conf.unknown);
    if (options->use_env)
        say("--use-env does nothing: workers always have LOCAL_RANK in the environment");
    if (options->nproc_per_node > 1 && getenv("OMP_NUM_THREADS") == NULL)
        say("OMP_NUM_THREADS=1 in each worker, as they share this machine; set it to use more "
            "threads");
}

/* Who finds a fault in what listens for other nodes has the rights of the workers. */
static void warn_of_root(const struct plan *plan)
{
    if (plan->several && !plan_is_loopback(plan->remote.endpoint.host) && secrecy_is_root())
        say("a job of several nodes runs as root here; start it as a user of its own");
}

static int run_job(struct ddprun_options *options, char **operands)
{
    struct ddp_error err;
    struct plan plan = {0};
    struct guard_agent split;
    const struct guard_farewell farewell = {clean_up, &plan, &plan.cgroup};
    bool announce_logs = false, waiting = false;
    int bad = EXIT_CONFIG; /* the command line is good, but this machine may have no GPU */
    ddp_status status = ddprun_options_complete(options, &err);
    if (status == DDP_OK) {
        bad = EXIT_USAGE;
        status = plan_job(&plan, options, environ, &err);
    }
    if (status == DDP_OK) {
        bad = EXIT_CONFIG;
        status = plan_program(&plan, options, operands, &err);
    }
    if (status == DDP_OK)
        status = plan_files(&plan, &err);
    if (status == DDP_OK)
        status = plan_events(&plan, options, &err);
    if (status == DDP_OK) {
        guard_hold_signals();
        status = plan_logs(&plan, options, &announce_logs, &err);
    }
    if (status == DDP_OK)
        status = plan_timers(&plan, environ, &err);
    if (status == DDP_OK) {
        say_remarks(options, &plan, announce_logs);
        warn_of_root(&plan);
        cgroup_make(&plan.cgroup);
        plan.agent.cgroup = &plan.cgroup;
        status = guard_split(&farewell, &split, &err);
    }
    if (status == DDP_OK && plan.several) /* it will have the token */
        secrecy_hide_memory();
    int code = status == DDP_OK ? agent_main(&plan, &split, &waiting) : fail(bad, &err);
    cgroup_remove(&plan.cgroup); /* the guard may be gone */
    plan_finish(&plan);          /* in the agent; the guard does its part of it in clean_up() */
    if (waiting)
        _exit(code); /* exit() would wait for the thread, or take a library away from it */
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
    struct ddprun_options options;
    int operand;
    int sys_errno = node_ensure_stdio();
    if (sys_errno != 0)
        return EXIT_CONFIG; /* there is nowhere to say why */
    ddprun_options_init(&options);
    ddp_status status =
        options_parse(&ddprun_option_table, argc, argv, environ, &options, &operand, &err);
    if (status != DDP_OK)
        return fail(EXIT_USAGE, &err);
    if (options.version) {
        puts("ddprun " DDPRUN_VERSION);
    } else if (options.help) {
        print_help();
    } else if (options.usage) {
        fputs(usage_text, stdout);
        puts("\n'ddprun --help' lists all options.");
    } else if (operand == argc) {
        ddpi_error_set(&err, DDP_E_INVALID,
                       "no program was given; 'ddprun --nproc-per-node=4 ./worker' runs four "
                       "workers, 'ddprun -h' says more");
        return fail(EXIT_USAGE, &err);
    } else {
        return run_job(&options, argv + operand);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
