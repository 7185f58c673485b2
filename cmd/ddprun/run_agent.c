/*
 * run_agent.c - the agent's process, a child of the guard. Owns the event loop, this node's
 * membership and, for a job of one node, the store and its rounds. Jobs of one node and of several
 * nodes have two tables of one interface. Nothing else may run the loop.
 */
#include "launcher.h"

#include "error.h"
#include "exit_codes.h"
#include "flight_answers.h"
#include "horovod.h"
#include "host.h"
#include "interface.h"
#include "master_port.h"
#include "mem.h"
#include "membership.h"
#include "metrics_server.h"
#include "multi_node.h"
#include "pmi_exchange.h"
#include "reap.h"
#include "server.h"
#include "single_node.h"
#include "thread.h"
#include "token_file.h"
#include "worker_env.h"
#include "worker_ports.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PREFIX_SIZE = 32 };

struct run;

/* A job of one node, or of several. */
struct run_ops {
    /* Choose the master: the store, or a port reserved for rank 0. */
    ddp_status (*prepare)(struct plan *plan, struct run *run, struct ddp_error *err);
    /* Connect to the round machine. close() follows, even after a failure. */
    ddp_status (*open)(const struct plan *plan, const struct guard_agent *split, struct run *run,
                       struct ddp_error *err);
    /* Close what both have opened and the membership; close_run() closes what both kinds have. */
    void (*close)(struct run *run);
    struct membership_link link; /* its ctx is set later, to the run */
};

struct run {
    uv_loop_t loop;
    const struct run_ops *ops;
    struct membership membership;
    struct single_node single;
    struct multi_node multi;
    struct pmi_exchanges pmi;
    struct flight_answers flight;
    struct horovod horovod;
    struct metrics_server metrics;
    struct ddpi_server *server;                 /* the store of a job of one node */
    struct ddpi_log log;                        /* of that server */
    char job[DDPI_JOB_MAX + 1];                 /* its name there */
    char prefix[sizeof "job//" + DDPI_JOB_MAX]; /* of the job's keys there, for ddpctl dump */
    struct leash *leash;                        /* NULL: there is none */
    struct master_port master;                  /* not reserved if the store is the master */
    struct worker_ports ports;
    struct tf_cluster cluster; /* for --tf-config */
    int exit_code;
};

static void close_run(struct run *run)
{
    if (run->leash != NULL)
        leash_close(run->leash);
    metrics_server_close(&run->metrics);
    flight_answers_close(&run->flight);
    horovod_close(&run->horovod);
    run->ops->close(run);
}

static void on_done(void *ctx, int exit_code)
{
    struct run *run = ctx;
    run->exit_code = exit_code;
    close_run(run);
}

/* Reserve a port that rank 0 may bind, for a script with a rendezvous of its own. */
static ddp_status reserve_port(struct plan *plan, struct run *run, struct ddp_error *err)
{
    const struct meeting *meeting = &plan->meeting;
    bool watched = !plan->multi.trust_local_users;
    ddp_status status = master_port_keep(&run->master, meeting->master_port, watched, err);
    plan->agent.port = &run->master.agent;
    if (status != DDP_OK && meeting->master_flag != NULL)
        return ddpi_error_wrap(err, status, "%s", meeting->master_flag);
    return status;
}

/* The node chooses other ports for its workers before each generation. A member that is done may be
 * in the next generation before it learns that this one was stopped, and others may have read where
 * its workers will listen: it keeps the ports that it has published. */
static void renew_ports(struct run *run)
{
    struct ddp_round_member *says = &run->membership.member.says;
    if (says->phase == DDP_ROUND_DONE)
        worker_ports_keep(&run->ports, says->generation);
    if (says->phase != DDP_ROUND_IDLE)
        return;
    worker_ports_renew(&run->ports, says->generation);
    says->first_port = run->ports.first;
}

/* Answer those who ask this node about the job: ddpctl dump, an HTTP client, Horovod's programs. */
static void serve(const struct plan *plan, struct run *run, const struct ddp_store_options *store,
                  const struct ddp_store_options *asked, const char *job)
{
    flight_answers_open(&run->flight, &run->loop, asked, &run->membership.agent);
    metrics_server_open(&run->metrics, &run->loop, &plan->metrics, store, job, &run->multi.kept,
                        &run->membership);
    horovod_open(&run->horovod, &run->loop, store, plan->multi.trust_local_users, &run->membership);
}

/* ---- a job of one node: store and rounds are in this process ---- */

/* The prefix of the keys of TCPStore clients, whose protocol has no generations. */
static void tcpstore_prefix(char *text, size_t size, uint64_t generation)
{
    worker_env_store_prefix(text, size, "", generation);
    size_t used = strlen(text);
    snprintf(text + used, size - used, "tcp/");
}

/* Delete the keys of the last generation, and keys of the new one that were set too early. */
static ddp_status on_single_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
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
    const struct ddp_round_member *says = &run->membership.member.says;
    if (status == DDP_OK && says->terms.worker_ports)
        status = tf_cluster_make(&run->cluster, &says, 1, err);
    return status;
}

/* Only this machine can reach the store, so clients may authenticate if there is a token, but must
 * do so only with --auth=always. */
static ddp_status take_token(const struct multi_node_config *config, struct ddpi_credential *ret,
                             bool *ret_there, struct ddp_error *err)
{
    bool needed = config->auth == DDPI_SERVER_AUTH_ALWAYS;
    ddp_status status = DDP_E_NOT_FOUND;
    if (config->token_file != NULL)
        status = needed && !config->token_named ? ddpi_token_obtain(config->token_file, ret, err)
                                                : ddpi_token_read(config->token_file, ret, err);
    else if (needed)
        status = ddpi_error_set(err, DDP_E_DENIED,
                                "all clients must authenticate with a token (--auth=always), but "
                                "there is no HOME to keep one; name a file with --token-file");
    *ret_there = status == DDP_OK && ret->is_token;
    return needed ? status : DDP_OK;
}

/* ddpctl asks for a change. */
static void on_single_asked(void *ctx, struct ddpi_bytes key, bool set)
{
    struct run *run = ctx;
    single_node_asked(&run->single, key, set);
}

/* As the store is in its process, the agent vouches for workers that are TCPStore clients. */
static ddp_status create_store(struct plan *plan, struct run *run, struct ddp_error *err)
{
    const struct meeting *meeting = &plan->meeting;
    const struct multi_node_config *config = &plan->multi;
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
                                                .rounds_elsewhere = on_single_asked,
                                                .rounds_ctx = run,
                                                .vouches = true,
                                                .log = &run->log};
    run->log = (struct ddpi_log){store_host_on_log, &run->membership, DDPI_LOG_WARN};
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

static ddp_status prepare_single(struct plan *plan, struct run *run, struct ddp_error *err)
{
    ddp_status status = plan->agent.agent_store ? DDP_OK : reserve_port(plan, run, err);
    if (status == DDP_OK)
        status = create_store(plan, run, err);
    if (status != DDP_OK)
        return status;
    plan->agent.store = ddpi_server_endpoint(run->server);
    if (plan->agent.agent_store)
        run->master.number = ddpi_server_port(run->server);
    return DDP_OK;
}

static void show_single(void *ctx, const char *key, const void *value, size_t len)
{
    const struct run *run = ctx;
    (void)!ddpi_server_show(run->server, key, value, len, NULL);
}

static ddp_status open_single(const struct plan *plan, const struct guard_agent *split,
                              struct run *run, struct ddp_error *err)
{
    struct ddp_store_options store = multi_node_store_options(&plan->multi);
    (void)split;
    store.endpoint = plan->agent.store;
    store.flags = 0; /* it is in this process */
    run->single.begin = on_single_begin;
    run->single.show = show_single;
    run->single.ctx = run;
    ddpi_job_name(plan->agent.run_id, run->job);
    run->single.job = run->job;
    snprintf(run->prefix, sizeof run->prefix, "job/%s/", run->job);
    struct ddp_store_options asked = store;
    asked.prefix = run->prefix;
    serve(plan, run, &store, &asked, run->job);
    snprintf(run->horovod.place.interface, sizeof run->horovod.place.interface, "lo");
    return single_node_init(&run->single, &run->loop, &run->membership, err);
}

static void publish_single(void *ctx, const struct ddp_round_member *says)
{
    struct run *run = ctx;
    renew_ports(run);
    single_node_publish(&run->single, says);
}

static void describe_single(void *ctx, const char *text)
{
    struct run *run = ctx;
    single_node_describe(&run->single, text);
}

static void leave_single(void *ctx)
{
    (void)ctx; /* the job ends with its node */
}

static void close_single(struct run *run)
{
    membership_close(&run->membership);
    single_node_close(&run->single);
    ddpi_server_close(run->server, NULL, NULL);
}

static const struct run_ops single_ops = {prepare_single, open_single, close_single,
                                          .link = {.publish = publish_single,
                                                   .describe = describe_single,
                                                   .leave = leave_single,
                                                   .done = on_done}};

/* ---- a job of several nodes: store and rounds are elsewhere, or on one of the nodes ---- */

/* Only the node of rank 0 needs the port of --master-port, and the agent of that node may have
 * reserved it on this machine. */
static ddp_status accept_used_port(const struct meeting *meeting, ddp_status status,
                                   const struct ddp_error *err)
{
    if (meeting->master_port == 0 || err->sys_errno != EADDRINUSE)
        return status;
    print_message("%s; rank 0 cannot listen there if it runs on this node", err->msg);
    return DDP_OK;
}

static ddp_status prepare_multi(struct plan *plan, struct run *run, struct ddp_error *err)
{
    struct ddp_store_options options = multi_node_store_options(&plan->multi);
    options.job = plan->multi.job;
    pmi_exchanges_init(&run->pmi, &run->loop, &options);
    plan->agent.pmi_link = &run->pmi.link;
    if (plan->agent.agent_store)
        return DDP_OK;
    ddp_status status = reserve_port(plan, run, err);
    plan->says.master_port = run->master.number;
    return status == DDP_OK ? DDP_OK : accept_used_port(&plan->meeting, status, err);
}

/* Workers of different nodes reach each other where the nodes reach the store, or at the address
 * that was given for this node. A node that reaches the store by loopback, although others do not,
 * has no better way than the default route. */
static void on_met(void *ctx, int socket)
{
    struct run *run = ctx;
    const char *given = run->membership.member.says.address;
    char *interface = run->horovod.place.interface;
    if (given[0] != '\0') {
        interface_of_text(given, interface);
        return;
    }
    interface_of_socket(socket, interface);
    if (strcmp(interface, "lo") == 0 && !run->multi.config->is_loopback)
        interface_to_the_world(interface);
}

static ddp_status open_multi(const struct plan *plan, const struct guard_agent *split,
                             struct run *run, struct ddp_error *err)
{
    serve(plan, run, &run->pmi.options, &run->pmi.options, plan->multi.job);
    run->multi.cluster = plan->says.terms.worker_ports ? &run->cluster : NULL;
    run->multi.met = on_met;
    run->multi.ctx = run;
    return multi_node_open(&run->multi, &run->loop, &plan->multi, &run->membership, split,
                           plan->replicate.notify, err);
}

/* The node chooses another port each time it becomes idle, if it has to. */
static void publish_multi(void *ctx, const struct ddp_round_member *says)
{
    struct run *run = ctx;
    if (says->phase == DDP_ROUND_IDLE) {
        master_port_renew(&run->master);
        run->membership.member.says.master_port = run->master.number;
    }
    renew_ports(run);
    multi_node_publish(&run->multi, says);
}

static void describe_multi(void *ctx, const char *text)
{
    struct run *run = ctx;
    multi_node_describe(&run->multi, text);
}

/* The keeper beside this agent goes on until the job is over. If that is now, the keepers end by
 * themselves, unless they have lost each other: as long as it takes to know that is enough. A node
 * without a store cannot know when the job is over. */
static void keep_sidecar(const struct run *run)
{
    const struct member *member = &run->membership.member;
    bool ended = member->seat.order == DDP_ROUND_END && !member->seat.spare;
    bool goes_on = run->multi.reached && (member->says.leaving || member->seat.spare);
    uint64_t ms = 0;
    if (goes_on && run->multi.connected)
        ms = GUARD_SIDECAR_STAYS;
    else if (goes_on || ended)
        ms = member->lease_ms + (uint64_t)REPLICATE_STATE_LEASE_MS;
    guard_keep_sidecar(run->membership.agent.config->guard, ms);
}

static void leave_multi(void *ctx)
{
    struct run *run = ctx;
    keep_sidecar(run);
    multi_node_leave(&run->multi);
}

static void hurry_multi(void *ctx)
{
    struct run *run = ctx;
    multi_node_hurry(&run->multi);
}

/* Stop the loop, which would wait for an abandoned name look-up. */
static void on_multi_closed(void *ctx)
{
    struct run *run = ctx;
    membership_close(&run->membership);
    uv_stop(&run->loop);
}

static void close_multi(struct run *run)
{
    multi_node_close(&run->multi, on_multi_closed, run);
}

static const struct run_ops multi_ops = {prepare_multi, open_multi, close_multi,
                                         .link = {.publish = publish_multi,
                                                  .describe = describe_multi,
                                                  .leave = leave_multi,
                                                  .hurry = hurry_multi,
                                                  .done = on_done}};

/* ---- the loop ---- */

static void count_handle(uv_handle_t *handle, void *arg)
{
    (void)handle;
    ++*(unsigned *)arg;
}

/* Run @loop until all handles, which are closed or closing, have been closed. */
static void await_handles(uv_loop_t *loop)
{
    for (;;) {
        unsigned count = 0;
        uv_walk(loop, count_handle, &count);
        bool is_alive = uv_loop_alive(loop) != 0;
        assert((count == 0 || is_alive) && "a handle was not closed");
        if (count == 0 || !is_alive)
            return;
        uv_run(loop, UV_RUN_ONCE);
    }
}

/* The agent must survive writing to the terminal from a background process group, the end of the
 * reader of its output, and the size limit of a log file. */
static void ignore_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGTTOU, SIGTTIN, SIGXFSZ};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        sigaction(ignored[i], &ignore, NULL);
}

/* Nobody waits for the result of the job, and its store is gone. */
static void on_launcher_gone(void *ctx)
{
    struct run *run = ctx;
    membership_leave(&run->membership, EXIT_UNREACHABLE, "the launcher of the job is gone");
}

static ddp_status open_run(struct plan *plan, const struct guard_agent *split, struct run *run,
                           struct ddp_error *err)
{
    struct membership_link link = run->ops->link;
    const struct member_config member = {.says = plan->says,
                                         .lease_ms = plan->multi.lease_ms,
                                         .join_timeout_ms = plan->join_timeout_ms};
    link.ctx = run;
    plan->agent.guard = split;
    plan->agent.told = plan->leash != NULL ? &plan->leash->told : NULL;
    ddp_status status =
        membership_init(&run->membership, &run->loop, &plan->agent, &member, &link, err);
    run->leash = plan->leash;
    if (status == DDP_OK && run->leash != NULL)
        status = leash_watch(run->leash, &run->loop, on_launcher_gone, run, err);
    return status == DDP_OK ? run->ops->open(plan, split, run, err) : status;
}

static int exit_with(const struct ddp_error *err)
{
    print_message("%s", err->msg);
    return EXIT_CONFIG;
}

static int run_loop(struct plan *plan, const struct guard_agent *split, struct run *run)
{
    struct ddp_error err;
    run->ops = plan->several ? &multi_ops : &single_ops;
    plan->agent.horovod = &run->horovod.place;
    plan->agent.tf_cluster = plan->says.terms.worker_ports ? &run->cluster.text : NULL;
    worker_ports_init(&run->ports, plan_worker_ports(plan));
    if (run->ops->prepare(plan, run, &err) != DDP_OK) {
        await_handles(&run->loop);
        return exit_with(&err);
    }
    ddp_status status = open_run(plan, split, run, &err);
    (void)ddpi_thread_unblock_signals(); /* they must end the job */
    if (status == DDP_OK)
        membership_start(&run->membership);
    else
        close_run(run);
    uv_run(&run->loop, UV_RUN_DEFAULT);
    await_handles(&run->loop);
    int code = status == DDP_OK ? run->exit_code : exit_with(&err);
    membership_finish(&run->membership);
    return code;
}

int run_agent(struct plan *plan, const struct guard_agent *split, bool *ret_waiting)
{
    struct ddp_error err;
    struct run *run = ddpi_calloc(1, sizeof *run);
    int sys_errno = run == NULL ? ENOMEM : reap_become_subreaper();
    if (sys_errno == 0)
        sys_errno = -uv_loop_init(&run->loop);
    ignore_signals();
    host_make_room_for_files(plan->files);
    if (sys_errno != 0) {
        ddpi_error_sys(&err, sys_errno, "cannot set up the agent");
        ddpi_free(run);
        return exit_with(&err);
    }
    master_port_init(&run->master);
    int code = run_loop(plan, split, run);
    master_port_close(&run->master);
    worker_ports_close(&run->ports);
    tf_cluster_finish(&run->cluster);
    bool resolving = uv_loop_close(&run->loop) != 0;
    const struct agent *agent = &run->membership.agent;
    bool starting =
        agent->starter.spawner.left || agent->warm.spawner.left || agent->check.spawner.left;
    *ret_waiting = resolving || starting || agent->gpus.left;
    if (!resolving && !starting) /* else the thread still uses the loop or the launch */
        ddpi_free(run);
    return code;
}
