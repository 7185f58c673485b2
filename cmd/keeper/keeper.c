/*
 * keeper.c - see keeper.h. Owns the folder, both processes, and what it asks of etcd and of the
 * other keepers.
 */
#include "keeper.h"

#include "cluster_summary.h"
#include "error.h"
#include "exit_codes.h"
#include "keeper_check.h"
#include "keeper_etcd.h"
#include "keeper_look.h"
#include "keeper_peers.h"
#include "keeper_replace.h"
#include "keeper_rival.h"
#include "keeper_room.h"
#include "keeper_server.h"
#include "keeper_watch.h"
#include "mem.h"
#include "memory_file.h"
#include "text.h"
#include "token_file.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 50,
    LEASE_MS = 5000,    /* of an agent: two empty keepers wait for it, and for the store's */
    AGAIN_MS = 1000,    /* between two starts of a process that does not last */
    TURN_MS = 150,      /* from the start of one founder's etcd to that of the next */
    END_MS = 5000,      /* from a signal to SIGKILL */
    WAITING_MS = 10000, /* between lines that say who is missing, ... */
    MISSED_MS = 2000,   /* ... and before the first one */
    STATE_TEXT = KEEPER_PATH + 64,
};

#define PREFIX "/ddprun"

enum keeper_phase { RUNNING, WIPING, ENDING, OVER };

struct keeper {
    const struct keeper_options *options;
    const struct ddpi_log *log;
    uv_loop_t *loop;
    enum keeper_phase phase;
    int code;

    struct ddpi_cluster_list list;
    struct keeper_self self;
    char endpoint[DDPI_CLUSTER_ENDPOINT]; /* of this machine's store */
    struct ddpi_cluster cluster;
    struct keeper_folder folder;
    int token_fd;
    int address_fd; /* other keepers of this machine wait for it */
    struct keeper_peers *peers;
    struct keeper_watch watch;
    uint64_t end_by_ms;
    uint64_t told_waiting_ms;

    char state[STATE_TEXT]; /* the address of its etcd */
    struct keeper_server server;
    uint64_t server_at_ms; /* not to be started before */

    struct keeper_etcd program;
    struct keeper_child etcd;
    uint64_t etcd_at_ms; /* not to be started before; 0: this life has not started one */
    bool etcd_started;   /* once, so what it needs was there */
    bool existing;
    struct ddpi_etcd_client *client;
    struct keeper_look look;
    struct keeper_replace replace;
    struct keeper_room room;
    struct ddpi_cluster_step replaces;
};

static int keeper_fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddprund: %s\n", err->msg);
    return code;
}

static void endpoint_of(const struct keeper *keeper, unsigned number,
                        char text[DDPI_CLUSTER_ENDPOINT])
{
    ddpi_endpoint_text(&keeper->list.at[number], text, DDPI_CLUSTER_ENDPOINT);
}

/* ---- the end ---- */

static void stop(struct keeper *keeper, enum keeper_phase phase)
{
    bool ending = phase == ENDING;
    keeper->phase = phase;
    keeper->end_by_ms = uv_now(keeper->loop) + END_MS;
    keeper_look_forget(&keeper->look);
    keeper_replace_finish(&keeper->replace);
    keeper_room_finish(&keeper->room);
    keeper_child_signal(&keeper->server.child, ending ? KEEPER_END_SIGNAL : SIGKILL);
    if (phase != ENDING || !keeper_server_runs(&keeper->server))
        keeper_child_signal(&keeper->etcd, ending ? SIGTERM : SIGKILL); /* else a leader gives up
                                                                          * its lease first */
}

static void fail(struct keeper *keeper, int code, const struct ddp_error *err)
{
    if (keeper->options->has_log_file)
        ddpi_log(keeper->log, DDPI_LOG_ERROR, "%s", err->msg);
    keeper->code = keeper_fail(code, err);
    stop(keeper, ENDING);
}

static void wipe(struct keeper *keeper, const char *why)
{
    ddpi_log(keeper->log, DDPI_LOG_WARN, "this machine's part of the store is given up: %s", why);
    stop(keeper, WIPING);
}

/* ---- its ddprund ---- */

static void on_room(void *ctx, const char *why)
{
    struct keeper *keeper = ctx;
    if (why == NULL)
        ddpi_log(keeper->log, DDPI_LOG_INFO, "etcd has forgotten what is old, so that it has room");
    else
        ddpi_log(keeper->log, DDPI_LOG_WARN, "cannot make room in etcd: %s", why);
}

/* When to start a process again that has ended: at once, unless it does not last. */
static uint64_t start_again_ms(const struct keeper *keeper, const struct keeper_child *child)
{
    uint64_t now_ms = uv_now(keeper->loop);
    return now_ms - child->started_ms >= AGAIN_MS ? now_ms : child->started_ms + AGAIN_MS;
}

static void on_ready(void *ctx)
{
    const struct keeper *keeper = ctx;
    keeper->options->ready(keeper->options->ctx);
}

static void on_server_over(void *ctx)
{
    struct keeper *keeper = ctx;
    if (keeper->phase == RUNNING)
        ddpi_cluster_over(&keeper->cluster, uv_now(keeper->loop));
}

static void on_server_ended(void *ctx)
{
    struct keeper *keeper = ctx;
    const struct keeper_child *child = &keeper->server.child;
    char how[64];
    int code = WIFEXITED(child->wait_status) ? WEXITSTATUS(child->wait_status) : -1;
    if (keeper->phase == ENDING)
        keeper_child_signal(&keeper->etcd, SIGTERM);
    if (keeper->phase != RUNNING)
        return;
    if (!keeper->server.listened && code > 0) { /* it has said why */
        keeper->code = code;
        stop(keeper, ENDING);
        return;
    }
    keeper->server_at_ms =
        code == EXIT_TRY_AGAIN ? uv_now(keeper->loop) : start_again_ms(keeper, child);
    if (code == EXIT_CONFIG)
        keeper_room_begin(&keeper->room);
    keeper_child_describe(child, how, sizeof how);
    ddpi_log(keeper->log, DDPI_LOG_WARN, "the ddprund of this keeper %s; it is started again", how);
}

static void run_server(struct keeper *keeper)
{
    struct ddp_error err;
    uint64_t now_ms = uv_now(keeper->loop);
    if (keeper_server_runs(&keeper->server) || now_ms < keeper->server_at_ms ||
        keeper_server_start(&keeper->server, &err) == DDP_OK)
        return;
    keeper->server_at_ms = now_ms + AGAIN_MS;
    if (keeper->server.listened)
        ddpi_log(keeper->log, DDPI_LOG_WARN, "%s; it is tried again", err.msg);
    else
        fail(keeper, EXIT_CONFIG, &err);
}

/* It tells other keepers a status for a second only, so it gets each one anew. This keeper asks
 * before it answers: of two jobs with one list the later one hears of the other first, and ends. */
static void tell_server(struct keeper *keeper)
{
    char text[DDPI_KEEPER_STATUS_MAX];
    size_t len = ddpi_keeper_status_put(&keeper->cluster.own, text);
    if (len > 0 && keeper_peers_were_asked(keeper->peers))
        keeper_server_tell(&keeper->server, text, len);
    keeper_server_name(&keeper->server, ddpi_cluster_job(&keeper->cluster));
    if (ddpi_cluster_may_serve(&keeper->cluster, uv_now(keeper->loop)))
        keeper_server_open(&keeper->server);
}

/* It begins to serve at any time after its etcd says that it leads, so it is told again and again.
 * It shows what has changed. */
static void show_kept(struct keeper *keeper)
{
    char text[DDPI_CLUSTER_SUMMARY_MAX];
    struct ddpi_cluster_summary summary;
    if (!ddpi_cluster_summarize(&keeper->cluster, &keeper->list, uv_now(keeper->loop), &summary))
        return;
    size_t len = ddpi_cluster_summary_put(&summary, text);
    if (len > 0)
        keeper_server_show(&keeper->server, text, len);
}

/* ---- its etcd ---- */

static void on_etcd_ended(struct keeper_child *child)
{
    struct keeper *keeper = child->ctx;
    char how[64], line[KEEPER_ETCD_LINE];
    if (keeper->phase != RUNNING)
        return;
    if (WIFEXITED(child->wait_status) && WEXITSTATUS(child->wait_status) == 0) {
        wipe(keeper, "etcd was removed from its cluster");
        return;
    }
    keeper->etcd_at_ms = start_again_ms(keeper, child);
    keeper_child_describe(child, how, sizeof how);
    keeper_etcd_last_line(&keeper->program, line);
    ddpi_log(keeper->log, DDPI_LOG_WARN, "etcd %s; it is started again; its last line was: %s", how,
             line);
}

static void start_etcd(struct keeper *keeper)
{
    struct ddp_error err;
    const struct ddpi_keeper_status *own = &keeper->cluster.own;
    keeper->etcd_at_ms = uv_now(keeper->loop) + AGAIN_MS; /* if it cannot be started */
    if (keeper_etcd_start(&keeper->program, own->life, own->number, keeper->existing, &keeper->etcd,
                          keeper->loop, &err) == DDP_OK)
        keeper->etcd_started = true;
    else if (keeper->etcd_started)
        ddpi_log(keeper->log, DDPI_LOG_WARN, "%s; it is tried again", err.msg);
    else
        fail(keeper, EXIT_CONFIG, &err);
}

static void on_replaced(void *ctx, const char *why)
{
    struct keeper *keeper = ctx;
    char text[DDPI_CLUSTER_ENDPOINT];
    endpoint_of(keeper, keeper->replaces.machine, text);
    if (why == NULL)
        ddpi_log(keeper->log, DDPI_LOG_INFO,
                 "%s has lost its data, and is taken in as a new member", text);
    else
        ddpi_log(keeper->log, DDPI_LOG_WARN,
                 "%s has lost its data, and etcd does not take it in: %s", text, why);
    ddpi_cluster_replaced(&keeper->cluster, &keeper->replaces, why == NULL, uv_now(keeper->loop));
}

/* ---- what to do next ---- */

/* An etcd that founds a cluster asks the others whether it is a member already, and waits a second
 * for one that listens and does not answer yet. So the founders start one after the other. */
static void found(struct keeper *keeper, const struct ddpi_cluster_step *step)
{
    keeper->existing = step->action == CLUSTER_START_EXISTING;
    unsigned turn = keeper->existing ? 0 : keeper->self.number;
    ddpi_log(keeper->log, DDPI_LOG_INFO, "%s the cluster %016" PRIx64,
             keeper->existing ? "joining" : "founding", keeper->cluster.own.number);
    keeper->etcd_at_ms = uv_now(keeper->loop) + turn * TURN_MS;
}

static void take_step(struct keeper *keeper)
{
    uint64_t random;
    ddpi_token_random(&random, sizeof random);
    const struct ddpi_cluster_step step =
        ddpi_cluster_step(&keeper->cluster, random | 1, uv_now(keeper->loop));
    switch (step.action) {
    case CLUSTER_NONE:
        return;
    case CLUSTER_START_NEW:
    case CLUSTER_START_EXISTING:
        found(keeper, &step);
        return;
    case CLUSTER_REPLACE:
        keeper->replaces = step;
        keeper_replace_begin(&keeper->replace, step.machine);
        return;
    case CLUSTER_WIPE:
        wipe(keeper, step.why);
        return;
    case CLUSTER_END:
        ddpi_log(keeper->log, DDPI_LOG_INFO, "the job %s is over: this keeper ends",
                 ddpi_cluster_job(&keeper->cluster));
        keeper_rival_tell_over(keeper->address_fd);
        stop(keeper, OVER);
    }
}

/* Say who is missing, while nothing can begin. */
static void tell_waiting(struct keeper *keeper)
{
    char missing[DDPI_CLUSTER_LIST_TEXT] = "";
    size_t used = 0;
    uint64_t now_ms = uv_now(keeper->loop);
    if (keeper->cluster.own.phase != KEEPER_EMPTY || now_ms - keeper->told_waiting_ms < WAITING_MS)
        return;
    keeper->told_waiting_ms = now_ms;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        char text[DDPI_CLUSTER_ENDPOINT];
        if (i == keeper->self.number || ddpi_cluster_hears(&keeper->cluster, i, now_ms))
            continue;
        endpoint_of(keeper, i, text);
        used += (size_t)snprintf(missing + used, sizeof missing - used, "%s%s",
                                 used > 0 ? " and " : "", text);
    }
    if (used > 0) /* of a job: a person waits, too */
        ddpi_log(keeper->log, keeper->options->job != NULL ? DDPI_LOG_WARN : DDPI_LOG_INFO,
                 "waiting for the keeper%s at %s", strstr(missing, " and ") != NULL ? "s" : "",
                 missing);
}

/* By which the user says which machine this is. */
static const char *self_option(const struct keeper *keeper)
{
    return keeper->options->job != NULL ? "--local-addr" : "--advertise";
}

static void on_heard(void *ctx, unsigned machine, const struct ddpi_keeper_status *status,
                     uint64_t asked_ms)
{
    struct keeper *keeper = ctx;
    const struct keeper_check check = {
        .list = &keeper->list, .cluster = &keeper->cluster, .option = self_option(keeper)};
    struct ddp_error err;
    ddp_status checked = keeper_check_status(&check, machine, status, &err);
    if (checked == DDP_OK) {
        ddpi_cluster_hear(&keeper->cluster, status, asked_ms);
        checked = keeper_check_job(&check, uv_now(keeper->loop), &err);
    }
    if (checked == DDP_OK)
        return;
    if (keeper->phase != RUNNING || keeper->cluster.own.phase != KEEPER_EMPTY)
        return; /* the other one is new, and ends with this sentence */
    if (status->phase == KEEPER_ENDING)
        return; /* it is gone soon */
    ddpi_text_mask(err.msg);
    fail(keeper, EXIT_CONFIG, &err);
}

static void begin_life(struct keeper *keeper)
{
    uint64_t life;
    uint64_t quiet_ms = LEASE_MS + keeper->options->state_lease_ms;
    char data[KEEPER_DATA_NAME];
    keeper_etcd_data(keeper->cluster.own.life, data);
    keeper_folder_clear(&keeper->folder, data); /* of the last one; another one never uses it */
    ddpi_token_random(&life, sizeof life);
    ddpi_cluster_begin(&keeper->cluster, &keeper->list, keeper->self.number,
                       keeper->options->job != NULL ? keeper->options->job : "", life | 1,
                       (uint32_t)quiet_ms, uv_now(keeper->loop));
    keeper->phase = RUNNING;
    keeper->told_waiting_ms = uv_now(keeper->loop) + MISSED_MS - WAITING_MS;
    keeper->etcd_at_ms = keeper->server_at_ms = 0;
}

static void run_life(struct keeper *keeper)
{
    uint64_t now_ms = uv_now(keeper->loop);
    const struct keeper_look *look = &keeper->look;
    bool fresh = keeper_look_is_fresh(look, now_ms);
    ddpi_cluster_led(&keeper->cluster, look->quorum_ms != 0, fresh && look->leads,
                     fresh && look->knows_leader, now_ms);
    take_step(keeper);
    if (keeper->phase == RUNNING)
        run_server(keeper);
    if (keeper->phase == RUNNING && keeper->etcd_at_ms != 0 && !keeper_child_runs(&keeper->etcd) &&
        now_ms >= keeper->etcd_at_ms)
        start_etcd(keeper);
    if (keeper->phase != RUNNING)
        return;
    if (keeper_child_runs(&keeper->etcd))
        keeper_look_ask(&keeper->look, now_ms);
    tell_server(keeper);
    show_kept(keeper);
    tell_waiting(keeper);
}

static void close_all(struct keeper *keeper)
{
    keeper_watch_close(&keeper->watch);
    keeper_peers_close(keeper->peers);
    ddpi_etcd_client_destroy(keeper->client);
}

static void run_end(struct keeper *keeper)
{
    bool over = !keeper_server_runs(&keeper->server) && !keeper_child_runs(&keeper->etcd);
    if (over && keeper->phase == WIPING)
        begin_life(keeper);
    else if (over)
        close_all(keeper);
    else if (uv_now(keeper->loop) >= keeper->end_by_ms) {
        keeper_child_signal(&keeper->server.child, SIGKILL);
        keeper_child_signal(&keeper->etcd, SIGKILL);
    }
}

static void on_tick(void *ctx)
{
    struct keeper *keeper = ctx;
    keeper_peers_ask(keeper->peers);
    if (keeper->phase == RUNNING)
        run_life(keeper);
    else
        run_end(keeper);
}

/* Two of three must be there for a store. */
static void warn_of_loss(const struct keeper *keeper)
{
    unsigned others =
        ddpi_cluster_others(&keeper->cluster, 2 * DDPI_CLUSTER_FRESH_MS, uv_now(keeper->loop));
    if (keeper->cluster.own.phase != KEEPER_MEMBER || others >= 2)
        return;
    ddpi_log(keeper->log, DDPI_LOG_WARN,
             "this keeper ends, and %s of the three is left: the store stops until two are there, "
             "and nodes that need it wait",
             others == 0 ? "none" : "only one");
}

static void on_signal(void *ctx, int signum)
{
    struct keeper *keeper = ctx;
    if (signum == SIGHUP) {
        keeper->options->reload(keeper->options->ctx);
        keeper_child_signal(&keeper->server.child, SIGHUP);
    } else if (!keeper_ends_by(keeper->options->job, signum)) {
        ddpi_log(keeper->log, DDPI_LOG_INFO, "%s: this keeper ends with its job, or its guard",
                 strsignal(signum));
    } else if (keeper->phase != ENDING) {
        ddpi_log(keeper->log, DDPI_LOG_INFO, "%s: this keeper ends", strsignal(signum));
        warn_of_loss(keeper);
        stop(keeper, ENDING);
    } else { /* a second one */
        keeper->end_by_ms = uv_now(keeper->loop);
    }
}

/* ---- the start ---- */

/* The token as a file that both processes inherit. */
static ddp_status keep_token(struct keeper *keeper, struct ddp_error *err)
{
    char line[2 * DDPI_KEY_SIZE + 2];
    sodium_bin2hex(line, sizeof line, keeper->options->token->secret, DDPI_KEY_SIZE);
    line[sizeof line - 2] = '\n';
    line[sizeof line - 1] = '\0';
    keeper->token_fd = ddpi_memory_file_keep("ddprund-token", line, sizeof line - 1);
    int sys_errno = errno;
    ddpi_wipe(line, sizeof line);
    return keeper->token_fd >= 0 ? DDP_OK : ddpi_error_sys(err, sys_errno, "cannot keep the token");
}

static ddp_status open_client(struct keeper *keeper, struct ddp_error *err)
{
    struct ddpi_etcd_address address;
    ddp_status status = ddpi_etcd_address_parse(keeper->state, &address, err);
    if (status != DDP_OK)
        return status;
    const struct ddpi_etcd_client_options client = {.address = &address};
    status = ddpi_etcd_client_create(keeper->loop, &client, &keeper->client, err);
    keeper->look = (struct keeper_look){
        .client = keeper->client, .prefix = PREFIX, .endpoint = keeper->endpoint};
    keeper_look_init(&keeper->look);
    keeper->replace = (struct keeper_replace){
        .client = keeper->client, .list = &keeper->list, .done = on_replaced, .ctx = keeper};
    keeper_replace_init(&keeper->replace);
    keeper->room = (struct keeper_room){.client = keeper->client, .done = on_room, .ctx = keeper};
    keeper_room_init(&keeper->room);
    return status;
}

static void set_server(struct keeper *keeper)
{
    const struct keeper_options *options = keeper->options;
    keeper->server = (struct keeper_server){.loop = keeper->loop,
                                            .argv = options->argv,
                                            .argc = options->argc,
                                            .listens = options->listens,
                                            .endpoint = keeper->endpoint,
                                            .state = keeper->state,
                                            .token_fd = keeper->token_fd,
                                            .ready = on_ready,
                                            .over = on_server_over,
                                            .ended = on_server_ended,
                                            .ctx = keeper};
    keeper_server_init(&keeper->server);
}

static ddp_status open_peers(struct keeper *keeper, struct ddp_error *err)
{
    struct keeper_peers_options peers = {.list = &keeper->list,
                                         .token_fd = keeper->token_fd,
                                         .tls = keeper->options->tls,
                                         .log = keeper->log,
                                         .ctx = keeper,
                                         .heard = on_heard};
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        peers.asks[i] = i != keeper->self.number;
    return keeper_peers_open(keeper->loop, &peers, &keeper->peers, err);
}

/* DDP_E_NOT_FOUND: this machine is not listed. DDP_E_CLOSED: another keeper was here, until the end
 * of the job. */
static ddp_status take_place(struct keeper *keeper, struct ddp_error *err)
{
    const struct keeper_options *options = keeper->options;
    const struct keeper_self_question self = {.list = &keeper->list,
                                              .text = options->list,
                                              .advertise = options->advertise,
                                              .option = self_option(keeper),
                                              .waits = options->job != NULL ? on_ready : NULL,
                                              .ctx = keeper,
                                              .log = keeper->log};
    struct keeper_rival_question rival = {.list = &keeper->list,
                                          .self = &keeper->self,
                                          .job = options->job,
                                          .tls = options->tls,
                                          .log = keeper->log,
                                          .waits = on_ready,
                                          .ctx = keeper};
    ddp_status status = ddpi_cluster_list_parse(options->list, options->port, options->peer_port,
                                                &keeper->list, err);
    if (status == DDP_OK)
        status = keeper_self_find(&self, &keeper->self, err);
    if (status == DDP_OK)
        status = keeper_etcd_find(&keeper->program, err);
    if (status == DDP_OK)
        status = keep_token(keeper, err);
    rival.token_fd = keeper->token_fd;
    if (status == DDP_OK)
        status = keeper_rival_await(keeper->loop, &rival, &keeper->address_fd, err);
    return status == DDP_OK ? keeper_self_await_ports(&keeper->self, &keeper->list, err) : status;
}

/* All else that can be wrong before a process starts. */
static ddp_status prepare(struct keeper *keeper, struct ddp_error *err)
{
    const struct keeper_options *options = keeper->options;
    ddp_status status = keeper_folder_make(options->cluster_dir, &keeper->folder, err);
    if (status != DDP_OK)
        return status;
    endpoint_of(keeper, keeper->self.number, keeper->endpoint);
    snprintf(keeper->state, sizeof keeper->state, "etcd://unix:%s/" KEEPER_SOCKET ":" PREFIX,
             keeper->folder.path);
    set_server(keeper);
    keeper->program.list = &keeper->list;
    keeper->program.self = &keeper->self;
    keeper->program.folder = &keeper->folder;
    keeper->program.lease_ms = options->state_lease_ms;
    status = keeper_etcd_certify(&keeper->program, options->token, err);
    if (status == DDP_OK)
        status = open_client(keeper, err);
    if (status == DDP_OK)
        status = open_peers(keeper, err);
    return status;
}

int keeper_run(uv_loop_t *loop, const struct keeper_options *options)
{
    struct ddp_error err;
    struct keeper *keeper = ddpi_calloc(1, sizeof *keeper);
    if (keeper == NULL)
        return keeper_fail(EXIT_CONFIG, (ddpi_error_nomem(&err, sizeof *keeper), &err));
    keeper->options = options;
    keeper->log = options->log;
    keeper->loop = loop;
    keeper->token_fd = keeper->address_fd = keeper->folder.lock = -1;
    signal(SIGCHLD, SIG_DFL); /* ignored, as it may be inherited, it would leave no exit codes */
    keeper->etcd.ended = on_etcd_ended;
    keeper->etcd.ctx = keeper;
    ddp_status status = take_place(keeper, &err);
    bool needed = status != DDP_E_CLOSED && (options->job == NULL || status != DDP_E_NOT_FOUND);
    if (status == DDP_OK)
        status = prepare(keeper, &err);
    if (status == DDP_OK) {
        begin_life(keeper);
        keeper->watch = (struct keeper_watch){.tick = on_tick, .signal = on_signal, .ctx = keeper};
        keeper_watch_start(&keeper->watch, loop, TICK_MS);
    } else if (needed) {
        keeper->code = keeper_fail(EXIT_CONFIG, &err);
        keeper_peers_close(keeper->peers);
        ddpi_etcd_client_destroy(keeper->client);
    } else {
        on_ready(keeper);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    keeper_folder_remove(&keeper->folder);
    if (keeper->token_fd >= 0)
        close(keeper->token_fd);
    if (keeper->address_fd >= 0)
        close(keeper->address_fd);
    int code = keeper->code;
    ddpi_free(keeper);
    return code;
}
