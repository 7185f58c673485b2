/*
 * daemon.h - the store as a service of its own. It belongs to main() of ddprund, with its loop and
 * its log.
 */
#ifndef CMD_DDPRUND_DAEMON_H
#define CMD_DDPRUND_DAEMON_H

#include "cluster_summary.h"
#include "ddprund_options.h"
#include "etcd_state.h"
#include "keeper_link.h"
#include "logfile.h"
#include "sqlite_sink.h"
#include "token_file.h"

#include <uv.h>

enum { DAEMON_SIGNALS = 4 };

struct daemon {
    struct ddprund_options options;
    struct logfile logfile;
    const char *notify_socket;
    uv_loop_t loop;
    uv_signal_t signals[DAEMON_SIGNALS];
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

/* Say what @err says. Returns @code. */
int daemon_fail(int code, const struct ddp_error *err);

/* Tell the service manager, if there is one. */
void daemon_notify(struct daemon *daemon, const char *state);

/* Open the log file again. */
void daemon_reload(struct daemon *daemon);

/* The token that the options name, or the user's, which is made if there is none. */
DDP_MUST_CHECK ddp_status daemon_read_token(struct daemon *daemon, struct ddpi_credential *ret,
                                            struct ddp_error *err);

/* Listen at all addresses of the options, and give the server the token that it needs there. */
DDP_MUST_CHECK ddp_status daemon_listen(struct daemon *daemon, struct ddp_error *err);

/* endpoint_mark.h, at each address that clients know in advance. */
void daemon_leave_marks(struct daemon *daemon);

/* Unless something would be lost if another store took the place of this one. */
void daemon_remove_marks(struct daemon *daemon);

/* Serve until a signal ends it. Returns the exit code. */
int daemon_serve(struct daemon *daemon);

#endif
