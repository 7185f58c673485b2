/*
 * main.c - main() of ddprund: the store as a service of its own, or the keeper of one in a cluster.
 * Owns the loop and the log.
 */
#include "daemon.h"
#include "error.h"
#include "exit_codes.h"
#include "host.h"
#include "keeper.h"
#include "mem.h"
#include "secrecy.h"
#include "thread.h"
#include "version.h"

#include <assert.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

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

/* ---- being a keeper ---- */

static void on_keeper_ready(void *ctx)
{
    daemon_notify(ctx, "READY=1");
}

static void on_keeper_reload(void *ctx)
{
    daemon_reload(ctx);
}

static int daemon_keep(struct daemon *daemon, int argc, char *const *argv)
{
    struct ddp_error err;
    struct ddpi_credential token;
    const struct ddprund_options *options = &daemon->options;
    if (daemon_read_token(daemon, &token, &err) != DDP_OK)
        return daemon_fail(EXIT_CONFIG, &err);
    if (!token.is_token) {
        ddpi_wipe(&token, sizeof token);
        ddpi_error_set(&err, DDP_E_INVALID,
                       "--cluster needs the token itself, and this is the key of one role");
        return daemon_fail(EXIT_CONFIG, &err);
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

/* ---- the start ---- */

/* The service must survive the end of the reader of its output, and the size limit of the log file.
 * Signals must end it, even if the caller had blocked them. */
static void prepare_signals(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    (void)ddpi_thread_unblock_signals();
}

/* By default malloc raises its mmap threshold, up to 32 MiB, when large blocks are freed. Then
 * output that clients do not read grows by copies, and freed memory is not returned to the
 * system. */
static void keep_heap_small(void)
{
    mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
    mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK);
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
        return daemon_fail(EXIT_CONFIG, &err);
    }
    keep_heap_small();
    if (daemon->options.keeper_fd == 0) /* else the keeper is the service */
        daemon->notify_socket = getenv("NOTIFY_SOCKET");
    status = logfile_open(&daemon->logfile, path, daemon->options.log_level, &ddpi_clock_monotonic,
                          &err);
    if (status != DDP_OK)
        return daemon_fail(EXIT_CONFIG, &err);
    if (daemon->logfile.fd < 0)
        fprintf(stderr,
                "ddprund: no process reads the FIFO '%s': log lines are left out until one does\n",
                path);
    int uv_err = uv_loop_init(&daemon->loop);
    if (uv_err != 0) {
        ddpi_error_sys(&err, -uv_err, "cannot set up the event loop");
        return daemon_fail(EXIT_CONFIG, &err);
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
        return daemon_fail(EXIT_USAGE, &err);
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
