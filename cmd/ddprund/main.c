/*
 * main.c - main() of ddprund: the store as a service of its own.
 *
 * Owns the loop, the server, its state, the log and the signals: SIGTERM and SIGINT drain the
 * server, a second one stops it at once, SIGHUP reopens the log file. The states of the process:
 *
 *   listening --SIGTERM--> draining --no request waits, timeout, second signal--> stopped
 */
#include "cluster_summary.h"
#include "ddprund_options.h"
#include "endpoint_mark.h"
#include "error.h"
#include "etcd_state.h"
#include "exit_codes.h"
#include "host.h"
#include "keeper.h"
#include "keeper_link.h"
#include "logfile.h"
#include "mem.h"
#include "secrecy.h"
#include "sqlite_sink.h"
#include "systemd.h"
#include "thread.h"
#include "token_file.h"
#include "version.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    LARGE_BLOCK = 256 * 1024,
    OWN_FILES = 16, /* of the loop, the log, the state, a listener, a few clients */
};

static const char usage_text[] =
    "usage: ddprund [OPTIONS]\n"
    "\n"
    "The ddprun store as a service of its own, for any number of jobs: native clients and "
    "PyTorch's\n"
    "TCPStore clients on the same ports. It prints 'listening on HOST:PORT' for each address.\n"
    "\n"
    "  ddprund                                        on 127.0.0.1:29400\n"
    "  ddprund --listen=127.0.0.1:0,[::1]:0           on free ports, IPv4 and IPv6\n"
    "  ddprund --state=/var/lib/ddprund/state         keeps its keys when it is restarted\n"
    "  ddprund --state=etcd://10.0.0.2,10.0.0.3/jobs  keeps them in etcd, so that a ddprund on\n"
    "                                                 another machine can take over\n"
    "  ddprund --listen=10.0.0.1:29400                for other machines, which need the token in\n"
    "                                                 ~/.config/ddprun/token\n";

static const int handled_signals[] = {SIGTERM, SIGINT, SIGHUP, KEEPER_END_SIGNAL};
enum { SIGNALS = sizeof handled_signals / sizeof *handled_signals };

struct daemon {
    struct ddprund_options options;
    struct logfile logfile;
    const char *notify_socket;
    uv_loop_t loop;
    uv_signal_t signals[SIGNALS];
    uv_timer_t drain_timer;
    struct ddpi_server *server;
    struct ddpi_sqlite_sink *state; /* NULL: not in a file */
    struct etcd_state *etcd;        /* NULL: not in etcd */
    struct keeper_link keeper;
    bool leads;                          /* its state in etcd */
    char kept[DDPI_CLUSTER_SUMMARY_MAX]; /* how the store is kept, as it is shown */
    size_t kept_len;
    char *home_token; /* the path of the user's default token; NULL: not used */
    uint32_t adopted; /* the number of listening sockets from a service manager */
    bool draining;
    bool stopped;
    int code; /* exit code */
};

static int ddprund_fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddprund: %s\n", err->msg);
    return code;
}

static void notify(struct daemon *daemon, const char *state)
{
    struct ddp_error err;
    if (systemd_notify(daemon->notify_socket, state, &err) != DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN, "%s", err.msg);
}

/* ---- endpoints ---- */

/* Call @act for each endpoint that clients know in advance: its port was given. */
static void for_endpoints(struct daemon *daemon,
                          void (*act)(struct daemon *, const char *, uint16_t))
{
    static const struct ddprund_listen standard = {.count = 1, .at[0].endpoint.port = DDPRUND_PORT};
    const struct ddprund_listen *listen = &daemon->options.listen;
    const char *text;
    if (daemon->adopted + listen->count == 0)
        listen = &standard;
    for (size_t i = 0; (text = ddpi_server_endpoint_at(daemon->server, i)) != NULL; i++) {
        struct ddpi_endpoint endpoint;
        size_t given = i - daemon->adopted;
        bool known =
            i < daemon->adopted || (given < listen->count && listen->at[given].endpoint.port != 0);
        if (known && ddpi_parse_endpoint(text, &endpoint, NULL) == DDP_OK)
            act(daemon, endpoint.host, endpoint.port);
    }
}

static void leave_mark(struct daemon *daemon, const char *host, uint16_t port)
{
    struct ddp_error err;
    if (endpoint_mark_leave(host, port, &err) != DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN,
                 "no mark for port %u (%s): a node that starts while ddprund is down could run a "
                 "store there; start it with --rdzv-conf=is_host=false",
                 port, err.msg);
}

static void remove_mark(struct daemon *daemon, const char *host, uint16_t port)
{
    (void)daemon;
    endpoint_mark_remove(host, port);
}

/* Without state and jobs, nothing is lost when another store takes this one's place. */
static void remove_marks(struct daemon *daemon)
{
    if (daemon->options.state == NULL && ddpi_server_stats(daemon->server).members == 0)
        for_endpoints(daemon, remove_mark);
}

/* ---- the end ---- */

static void log_totals(struct daemon *daemon)
{
    struct ddpi_server_stats stats = ddpi_server_stats(daemon->server);
    ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO,
             "stopped with %" PRIu64 " connections and %" PRIu64 " requests waiting; it had "
             "%" PRIu64 " connections and %" PRIu64 " requests, refused %" PRIu64
             " connections, displaced %" PRIu64 ", turned away %" PRIu64 ", dismissed %" PRIu64
             ", denied %" PRIu64 ", closed %" PRIu64 " to save memory, and refused %" PRIu64
             " requests",
             stats.connections, stats.waits, stats.accepted, stats.requests, stats.refused,
             stats.displaced, stats.throttled, stats.dismissed, stats.denied, stats.overloaded,
             stats.limited);
}

static void daemon_stop(struct daemon *daemon)
{
    if (daemon->stopped)
        return;
    daemon->stopped = true;
    log_totals(daemon);
    ddpi_server_close(daemon->server, NULL, NULL);
    etcd_state_close(daemon->etcd); /* after the server, as another process may lead from then on */
    daemon->etcd = NULL;
    keeper_link_close(&daemon->keeper);
    uv_close((uv_handle_t *)&daemon->drain_timer, NULL);
    for (size_t i = 0; i < SIGNALS; i++)
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
}

static void on_drained(void *ctx)
{
    daemon_stop(ctx);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN,
             "requests still wait after %" PRIu64 " ms; closing their connections",
             daemon->options.drain_timeout_ms);
    daemon_stop(daemon);
}

/* A store in etcd hands over at once, as its standby sees the listeners close: two would answer. */
static void daemon_drain(struct daemon *daemon, int signum)
{
    if (daemon->draining || daemon->etcd != NULL) {
        notify(daemon, "STOPPING=1");
        daemon->draining = true;
        daemon_stop(daemon);
        return;
    }
    daemon->draining = true;
    remove_marks(daemon); /* before the listeners close */
    ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO,
             "%s: no new connections; %" PRIu64 " waiting requests have %" PRIu64 " ms",
             strsignal(signum), ddpi_server_stats(daemon->server).waits,
             daemon->options.drain_timeout_ms);
    notify(daemon, "STOPPING=1");
    uv_timer_start(&daemon->drain_timer, on_drain_timeout, daemon->options.drain_timeout_ms, 0);
    ddpi_server_drain(daemon->server, on_drained, daemon);
}

/* ---- state ---- */

/* A store in etcd that another process leads now starts anew, as a standby; a service manager does
 * that. */
static void on_state_failed(void *ctx, const struct ddp_error *why)
{
    struct daemon *daemon = ctx;
    bool led = why->status == DDP_E_CLOSED;
    if (daemon->stopped)
        return;
    if (daemon->options.log_file != NULL || (led && daemon->draining)) /* else it is told below */
        ddpi_log(&daemon->logfile.log, DDPI_LOG_ERROR, "%s", why->msg);
    if (!led || !daemon->draining)
        daemon->code = ddprund_fail(led ? EXIT_TRY_AGAIN : EXIT_CONFIG, why);
    daemon_stop(daemon);
}

static void on_etcd_leads(void *ctx)
{
    struct daemon *daemon = ctx;
    daemon->leads = true;
    notify(daemon, "STATUS=serving");
}

static void on_etcd_stands_by(void *ctx)
{
    notify(ctx, "STATUS=standing by");
}

static ddp_status open_etcd(struct daemon *daemon, struct ddp_error *err)
{
    const struct etcd_state_options options = {.options = &daemon->options,
                                               .server = daemon->server,
                                               .log = &daemon->logfile.log,
                                               .ctx = daemon,
                                               .leads = on_etcd_leads,
                                               .stands_by = on_etcd_stands_by,
                                               .failed = on_state_failed};
    return etcd_state_open(&daemon->loop, &options, &daemon->etcd, err);
}

/* ---- the keeper that has started this ddprund ---- */

static void on_keeper_status(void *ctx, const char *text, size_t len)
{
    struct daemon *daemon = ctx;
    struct ddp_error err;
    if (ddpi_server_set_keeper_status(daemon->server, text, len, &err) != DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_ERROR, "%s", err.msg);
}

static void on_job_over(void *ctx)
{
    struct daemon *daemon = ctx;
    keeper_link_over(&daemon->keeper);
}

static void on_keeper_job(void *ctx, const char *job)
{
    struct daemon *daemon = ctx;
    if (!daemon->stopped)
        ddpi_server_end_with(daemon->server, job, on_job_over, daemon);
}

static void on_keeper_open(void *ctx)
{
    struct daemon *daemon = ctx;
    struct ddp_error err;
    if (daemon->stopped || daemon->etcd != NULL || open_etcd(daemon, &err) == DDP_OK)
        return;
    daemon->code = ddprund_fail(EXIT_CONFIG, &err);
    daemon_stop(daemon);
}

/* What an earlier leader has shown stays until the keeper speaks, or has been silent. */
static void on_keeper_kept(void *ctx, const char *text, size_t len)
{
    struct daemon *daemon = ctx;
    bool shown = len == daemon->kept_len && memcmp(text, daemon->kept, len) == 0;
    if (!daemon->leads || len > sizeof daemon->kept || (shown && len > 0))
        return;
    if (len == 0)
        (void)ddpi_server_delete_prefix(daemon->server, DDPI_STORE_KEEPERS_KEY);
    else if (ddpi_server_show(daemon->server, DDPI_STORE_KEEPERS_KEY, text, len, NULL) != DDP_OK)
        return;
    memcpy(daemon->kept, text, len);
    daemon->kept_len = len;
}

static ddp_status obey_keeper(struct daemon *daemon, struct ddp_error *err)
{
    daemon->keeper.ctx = daemon;
    daemon->keeper.status = on_keeper_status;
    daemon->keeper.job = on_keeper_job;
    daemon->keeper.open = on_keeper_open;
    daemon->keeper.kept = on_keeper_kept;
    return keeper_link_open(&daemon->keeper, &daemon->loop, (int)daemon->options.keeper_fd, err);
}

static ddp_status take_mutation(void *ctx, const struct ddpi_mutation *mutation,
                                struct ddp_error *err)
{
    return ddpi_server_restore(ctx, mutation, err);
}

static ddp_status open_state(struct daemon *daemon, struct ddp_error *err)
{
    struct ddpi_mark mark;
    if (daemon->options.state == NULL)
        return DDP_OK;
    if (etcd_state_is(&daemon->options)) { /* until it leads, it admits nobody */
        ddpi_server_stand_by(daemon->server, "", 0);
        return DDP_OK;
    }
    ddp_status status = ddpi_sqlite_sink_open(daemon->options.state, &daemon->state, err);
    if (status == DDP_OK)
        status = ddpi_sqlite_sink_load(daemon->state, take_mutation, daemon->server, &mark, err);
    if (status != DDP_OK)
        return status;
    if (ddpi_sqlite_sink_was_emptied(daemon->state))
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN,
                 "the state %s was an empty file, so this is a new store; if it held one before, "
                 "end this ddprund and restore the latest copy",
                 daemon->options.state);
    ddpi_server_restore_mark(daemon->server, &mark);
    const struct ddpi_sink sink = ddpi_sqlite_sink_hooks(daemon->state);
    ddpi_server_set_sink(daemon->server, &sink, on_state_failed, daemon);
    struct ddpi_server_stats stats = ddpi_server_stats(daemon->server);
    ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO,
             "%s holds %" PRIu64 " keys and %" PRIu64 " sessions; the latest version is %" PRIu64,
             daemon->options.state, stats.keys, stats.sessions, mark.version);
    return DDP_OK;
}

/* ---- signals ---- */

static void reload(struct daemon *daemon)
{
    char state[64];
    struct ddp_error err;
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, ddpi_monotonic_us());
    notify(daemon, state);
    if (logfile_reopen(&daemon->logfile, &err) == DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO, "the log file was opened again");
    else
        ddpi_log(&daemon->logfile.log, DDPI_LOG_ERROR, "%s; still using the old one", err.msg);
    notify(daemon, "READY=1");
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *daemon = handle->data;
    if (signum == SIGHUP)
        reload(daemon);
    else if (keeper_ends_by(daemon->options.cluster_job, signum))
        daemon_drain(daemon, signum);
}

/* The service must survive the end of the reader of its output, and the size limit of the log file.
 * Signals must end it, even if the caller had blocked them. */
static void prepare_signals(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    (void)ddpi_thread_unblock_signals();
}

static void watch_signals(struct daemon *daemon)
{
    for (size_t i = 0; i < SIGNALS; i++) {
        uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        uv_signal_start(&daemon->signals[i], on_signal, handled_signals[i]);
    }
    uv_timer_init(&daemon->loop, &daemon->drain_timer);
    daemon->drain_timer.data = daemon;
}

/* ---- the start ---- */

/* By default malloc raises its mmap threshold, up to 32 MiB, when large blocks are freed. Then
 * output that clients do not read grows by copies, and freed memory is not returned to the
 * system. */
static void keep_heap_small(void)
{
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK);
}

/* Creates the default token if there is none. */
static ddp_status read_token(struct daemon *daemon, struct ddpi_credential *ret,
                             struct ddp_error *err)
{
    char *path;
    const struct ddprund_options *options = &daemon->options;
    if (options->token_fd > 0)
        return ddpi_token_read_fd((int)options->token_fd, ret, err);
    if (options->token_file != NULL)
        return ddpi_token_read(options->token_file, ret, err);
    ddp_status status =
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_token_obtain(path, ret, err);
    ddpi_free(status == DDP_OK ? daemon->home_token : path);
    if (status == DDP_OK)
        daemon->home_token = path;
    return status;
}

/* Some clients must authenticate, so there must be a token. */
static ddp_status give_token(struct daemon *daemon, struct ddp_error *err)
{
    struct ddpi_credential token;
    ddp_status status = read_token(daemon, &token, err);
    if (status == DDP_OK)
        status = ddpi_server_set_token(daemon->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status;
}

/* Clients of this user have the same default token, and expect the store to prove it. Failing to
 * read or create it does not prevent the service of this machine, unless the user named the token
 * or its file is not safe. */
static ddp_status give_own_token(struct daemon *daemon, struct ddp_error *err)
{
    const struct ddprund_options *options = &daemon->options;
    bool named = options->token_fd > 0 || options->token_file != NULL;
    struct ddpi_credential token;
    if (options->server.auth == DDPI_SERVER_AUTH_NEVER)
        return DDP_OK;
    ddp_status status = read_token(daemon, &token, err);
    bool needless = status != DDP_OK && status != DDP_E_DENIED && !named;
    if (status == DDP_OK)
        status = ddpi_server_set_token(daemon->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return needless ? DDP_OK : status;
}

static ddp_status listen_at(struct daemon *daemon, const struct ddprund_address *at,
                            struct ddp_error *err)
{
    const struct ddpi_endpoint *where = &at->endpoint;
    ddp_status status = ddpi_server_listen(daemon->server, where->host, where->port, at->job, err);
    if (status != DDP_E_DENIED)
        return status;
    status = give_token(daemon, err);
    return status == DDP_OK
               ? ddpi_server_listen(daemon->server, where->host, where->port, at->job, err)
               : status;
}

static ddp_status adopt(struct daemon *daemon, int fd, struct ddp_error *err)
{
    ddp_status status = ddpi_server_adopt(daemon->server, fd, err);
    if (status != DDP_E_DENIED)
        return status;
    status = give_token(daemon, err);
    return status == DDP_OK ? ddpi_server_adopt(daemon->server, fd, err) : status;
}

static ddp_status adopt_sockets(struct daemon *daemon, uint32_t *ret_count, struct ddp_error *err)
{
    uint32_t count = 0;
    ddp_status status =
        systemd_listen_fds(getenv("LISTEN_PID"), getenv("LISTEN_FDS"), getpid(), &count, err);
    for (uint32_t i = 0; status == DDP_OK && i < count; i++) {
        status = adopt(daemon, SYSTEMD_FIRST_FD + (int)i, err);
        if (status != DDP_OK)
            status = ddpi_error_wrap(err, status, "LISTEN_FDS");
    }
    *ret_count = count;
    return status;
}

static ddp_status listen_everywhere(struct daemon *daemon, struct ddp_error *err)
{
    static const struct ddprund_address standard = {
        .endpoint = {.host = "127.0.0.1", .port = DDPRUND_PORT, .has_port = true}};
    const struct ddprund_listen *listen = &daemon->options.listen;
    const struct ddprund_listen *data_ports = &daemon->options.data_ports;
    ddp_status status = give_own_token(daemon, err);
    if (status == DDP_OK)
        status = adopt_sockets(daemon, &daemon->adopted, err);
    for (uint32_t i = 0; status == DDP_OK && i < listen->count; i++)
        status = listen_at(daemon, &listen->at[i], err);
    if (status == DDP_OK && daemon->adopted + listen->count == 0)
        status = listen_at(daemon, &standard, err);
    for (uint32_t i = 0; status == DDP_OK && i < data_ports->count; i++)
        status = listen_at(daemon, &data_ports->at[i], err);
    return status;
}

static void announce(struct daemon *daemon)
{
    const char *endpoint;
    if (daemon->options.server.auth == DDPI_SERVER_AUTH_NEVER)
        fputs("ddprund: clients are not authenticated (--no-auth): anyone who can reach an address "
              "below can read and change all keys\n",
              stderr);
    for (size_t i = 0; (endpoint = ddpi_server_endpoint_at(daemon->server, i)) != NULL; i++) {
        const char *job = ddpi_server_job_at(daemon->server, i);
        const char *for_job = *job != '\0' ? " for the job " : "";
        printf("listening on %s%s%s\n", endpoint, for_job, job);
        ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO, "listening on %s%s%s", endpoint, for_job,
                 job);
    }
    char number[DDPI_STORE_NUMBER];
    ddpi_store_number_put(ddpi_server_number(daemon->server), number);
    if (daemon->home_token != NULL)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO, "the token is in %s", daemon->home_token);
    if (!etcd_state_is(&daemon->options)) /* else it is known later */
        ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO, "this is the store %s", number);
    if (fflush(stdout) != 0)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN, "standard output cannot be written");
    if (secrecy_is_root() && daemon->options.cluster_job == NULL) /* else ddprun has said it */
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN,
                 "this runs as root without need: run it as a user of its own, as the systemd unit "
                 "does");
    notify(daemon, "READY=1");
}

static int daemon_serve(struct daemon *daemon)
{
    struct ddp_error err;
    struct ddpi_server_options *server = &daemon->options.server;
    server->log = &daemon->logfile.log;
    etcd_state_limit(&daemon->options);
    if (ddpi_server_create_unbound(&daemon->loop, server, &daemon->server, &err) != DDP_OK)
        return ddprund_fail(EXIT_CONFIG, &err);
    bool kept = daemon->options.keeper_fd != 0;
    if (open_state(daemon, &err) != DDP_OK || listen_everywhere(daemon, &err) != DDP_OK ||
        (kept && obey_keeper(daemon, &err) != DDP_OK) ||
        (!kept && etcd_state_is(&daemon->options) && open_etcd(daemon, &err) != DDP_OK)) {
        ddpi_server_close(daemon->server, NULL, NULL);
        uv_run(&daemon->loop, UV_RUN_DEFAULT);
        return ddprund_fail(EXIT_CONFIG, &err);
    }
    watch_signals(daemon);
    if (!kept) /* nobody hosts a store at one of several endpoints */
        for_endpoints(daemon, leave_mark);
    announce(daemon);
    keeper_link_ready(&daemon->keeper);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    return daemon->code;
}

/* ---- being a keeper ---- */

static void on_keeper_ready(void *ctx)
{
    notify(ctx, "READY=1");
}

static void on_keeper_reload(void *ctx)
{
    reload(ctx);
}

static int daemon_keep(struct daemon *daemon, int argc, char *const *argv)
{
    struct ddp_error err;
    struct ddpi_credential token;
    const struct ddprund_options *options = &daemon->options;
    if (read_token(daemon, &token, &err) != DDP_OK)
        return ddprund_fail(EXIT_CONFIG, &err);
    if (!token.is_token) {
        ddpi_wipe(&token, sizeof token);
        ddpi_error_set(&err, DDP_E_INVALID,
                       "--cluster needs the token itself, and this is the key of one role");
        return ddprund_fail(EXIT_CONFIG, &err);
    }
    const struct keeper_options keeper = {.list = options->cluster,
                                          .job = options->cluster_job,
                                          .advertise = options->advertise,
                                          .cluster_dir = options->cluster_dir,
                                          .port = DDPRUND_PORT,
                                          .peer_port = (uint16_t)options->peer_port,
                                          .state_lease_ms = options->state_lease_ms,
                                          .tls = options->server.tls,
                                          .listens = options->listen.count > 0,
                                          .token = &token,
                                          .argv = argv,
                                          .argc = argc,
                                          .log = &daemon->logfile.log,
                                          .has_log_file = options->log_file != NULL,
                                          .ready = on_keeper_ready,
                                          .reload = on_keeper_reload,
                                          .ctx = daemon};
    int code = keeper_run(&daemon->loop, &keeper);
    ddpi_wipe(&token, sizeof token);
    return code;
}

static int daemon_run(struct daemon *daemon, int argc, char *const *argv)
{
    struct ddp_error err;
    const char *path = daemon->options.log_file;
    prepare_signals();
    secrecy_hide_memory();
    ddp_status status = host_need_files(OWN_FILES, NULL, &err);
    if (status != DDP_OK) {
        ddpi_error_advise(&err, status,
                          "raise it with 'ulimit -n', or LimitNOFILE= of the service");
        return ddprund_fail(EXIT_CONFIG, &err);
    }
    keep_heap_small();
    if (daemon->options.keeper_fd == 0) /* else the keeper is the service */
        daemon->notify_socket = getenv("NOTIFY_SOCKET");
    status = logfile_open(&daemon->logfile, path, daemon->options.log_level, &ddpi_clock_monotonic,
                          &err);
    if (status != DDP_OK)
        return ddprund_fail(EXIT_CONFIG, &err);
    if (daemon->logfile.fd < 0)
        fprintf(stderr,
                "ddprund: no process reads the FIFO '%s': log lines are left out until one does\n",
                path);
    int uv_err = uv_loop_init(&daemon->loop);
    if (uv_err != 0) {
        ddpi_error_sys(&err, -uv_err, "cannot set up the event loop");
        return ddprund_fail(EXIT_CONFIG, &err);
    }
    bool keeps = daemon->options.cluster != NULL && daemon->options.keeper_fd == 0;
    int code = keeps ? daemon_keep(daemon, argc, argv) : daemon_serve(daemon);
    ddpi_sqlite_sink_close(daemon->state);
    ddpi_free(daemon->home_token);
    int left = uv_loop_close(&daemon->loop);
    assert(left == 0 && "a handle was not closed");
    (void)left;
    logfile_close(&daemon->logfile);
    return code;
}

int main(int argc, char **argv)
{
    struct ddp_error err;
    struct daemon daemon = {0};
    if (host_ensure_stdio() != 0)
        return EXIT_CONFIG; /* without stderr there is no way to say why */
    if (ddprund_options_parse(argc, argv, environ, &daemon.options, &err) != DDP_OK)
        return ddprund_fail(EXIT_USAGE, &err);
    if (daemon.options.version) {
        puts("ddprund " DDPRUN_VERSION);
    } else if (daemon.options.help) {
        fputs(usage_text, stdout);
        options_print_help(&ddprund_option_table, stdout);
    } else if (daemon.options.usage) {
        fputs(usage_text, stdout);
        puts("\n'ddprund --help' lists all options.");
    } else {
        return daemon_run(&daemon, argc, argv);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
