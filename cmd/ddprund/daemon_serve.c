/*
 * daemon_serve.c - the store while it serves. Owns the server and its state: SIGTERM and SIGINT
 * drain the server, a second one stops it at once, SIGHUP opens the log file again.
 *
 *   listening --SIGTERM--> draining --no request waits, timeout, second signal--> stopped
 */
#include "daemon.h"

#include "clock.h"
#include "error.h"
#include "exit_codes.h"
#include "keeper.h"
#include "secrecy.h"
#include "systemd.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const int handled_signals[DAEMON_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, KEEPER_END_SIGNAL};

int daemon_fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddprund: %s\n", err->msg);
    return code;
}

void daemon_notify(struct daemon *daemon, const char *state)
{
    struct ddp_error err;
    if (systemd_notify(daemon->notify_socket, state, &err) != DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN, "%s", err.msg);
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
    for (size_t i = 0; i < DAEMON_SIGNALS; i++)
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
        daemon_notify(daemon, "STOPPING=1");
        daemon->draining = true;
        daemon_stop(daemon);
        return;
    }
    daemon->draining = true;
    daemon_remove_marks(daemon); /* before the listeners close */
    ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO,
             "%s: no new connections; %" PRIu64 " waiting requests have %" PRIu64 " ms",
             strsignal(signum), ddpi_server_stats(daemon->server).waits,
             daemon->options.drain_timeout_ms);
    daemon_notify(daemon, "STOPPING=1");
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
        daemon->code = daemon_fail(led ? EXIT_TRY_AGAIN : EXIT_CONFIG, why);
    daemon_stop(daemon);
}

static void on_etcd_leads(void *ctx)
{
    struct daemon *daemon = ctx;
    daemon->leads = true;
    daemon_notify(daemon, "STATUS=serving");
}

static void on_etcd_stands_by(void *ctx)
{
    daemon_notify(ctx, "STATUS=standing by");
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
    daemon->code = daemon_fail(EXIT_CONFIG, &err);
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

void daemon_reload(struct daemon *daemon)
{
    char state[64];
    struct ddp_error err;
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, ddpi_monotonic_us());
    daemon_notify(daemon, state);
    if (logfile_reopen(&daemon->logfile, &err) == DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_INFO, "the log file was opened again");
    else
        ddpi_log(&daemon->logfile.log, DDPI_LOG_ERROR, "%s; still using the old one", err.msg);
    daemon_notify(daemon, "READY=1");
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct daemon *daemon = handle->data;
    if (signum == SIGHUP)
        daemon_reload(daemon);
    else if (keeper_ends_by(daemon->options.cluster_job, signum))
        daemon_drain(daemon, signum);
}

static void watch_signals(struct daemon *daemon)
{
    for (size_t i = 0; i < DAEMON_SIGNALS; i++) {
        uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        uv_signal_start(&daemon->signals[i], on_signal, handled_signals[i]);
    }
    uv_timer_init(&daemon->loop, &daemon->drain_timer);
    daemon->drain_timer.data = daemon;
}

/* ---- the start ---- */

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
    daemon_notify(daemon, "READY=1");
}

int daemon_serve(struct daemon *daemon)
{
    struct ddp_error err;
    struct ddpi_server_options *server = &daemon->options.server;
    server->log = &daemon->logfile.log;
    etcd_state_limit(&daemon->options);
    if (ddpi_server_create_unbound(&daemon->loop, server, &daemon->server, &err) != DDP_OK)
        return daemon_fail(EXIT_CONFIG, &err);
    bool kept = daemon->options.keeper_fd != 0;
    if (open_state(daemon, &err) != DDP_OK || daemon_listen(daemon, &err) != DDP_OK ||
        (kept && obey_keeper(daemon, &err) != DDP_OK) ||
        (!kept && etcd_state_is(&daemon->options) && open_etcd(daemon, &err) != DDP_OK)) {
        ddpi_server_close(daemon->server, NULL, NULL);
        uv_run(&daemon->loop, UV_RUN_DEFAULT);
        return daemon_fail(EXIT_CONFIG, &err);
    }
    watch_signals(daemon);
    if (!kept) /* nobody hosts a store at one of several endpoints */
        daemon_leave_marks(daemon);
    announce(daemon);
    keeper_link_ready(&daemon->keeper);
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    return daemon->code;
}
