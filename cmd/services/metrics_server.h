/*
 * metrics_server.h - a job as seen from one of its agents, over HTTP and in a file:
 *
 *     GET /             a page for people, which asks for the rest
 *     GET /healthz      200 in every phase, with the phase as text
 *     GET /metrics      for Prometheus (metrics_text.h)
 *     GET /status.json  the job, as ddpctl status --json shows it, and its latest generations
 *     GET /tail/RANK    the last lines of the worker of that local rank, of stdout and stderr
 *
 * Over loopback any user of this machine gets the first three, and the user of the job all, unless
 * a token was named. Over another address all but the page and /healthz need the token as a bearer
 * token.
 *
 * It costs a launch one listening socket: the HTTP server is loaded, and the store connected to,
 * a second after the start, or at the first request.
 */
#ifndef CMD_METRICS_SERVER_H
#define CMD_METRICS_SERVER_H

#include "http_server.h"
#include "job_watch.h"
#include "listener.h"
#include "membership.h"
#include "peer_owner.h"
#include "store_kept.h"

enum { METRICS_TOKEN_SIZE = 2 * DDPI_KEY_SIZE + 1 };

struct metrics_config {
    int fd;                         /* listens; -1: nobody is served */
    bool beyond;                    /* other machines can reach it */
    char token[METRICS_TOKEN_SIZE]; /* in hex; "": none */
    bool token_named;               /* by the user, who wants it asked for over loopback, too */
    const char *textfile;           /* written every METRICS_FILE_MS; NULL: none */
    bool trust_local_users;
};

enum { METRICS_FILE_MS = 15000 };

struct metrics_server {
    const struct metrics_config *config;
    struct membership *membership;
    struct ddp_store_options options;
    const char *job;
    const struct store_kept *kept;
    struct ddpi_listener_env env;
    struct ddpi_listener *listener; /* NULL: not open */
    struct ddpi_owners owners;
    uv_timer_t later; /* until it connects; then until the file is written again */
    bool timer_open;
    struct http_server *http; /* NULL until the first connection */
    struct job_watch watch;
    bool watching;
    bool broken;    /* the HTTP server could not be loaded */
    bool told_file; /* that the file cannot be written */
};

struct metrics_wish {
    const char *listen;     /* "[HOST:]PORT"; NULL, "": do not */
    const char *textfile;   /* the same */
    const char *token_file; /* NULL: the user's, which is made if there is none */
    bool trust_local_users;
};

/* Listen, and read or make the token if it is needed. DDP_E_INVALID: a text is wrong. DDP_E_DENIED:
 * the token file cannot be used. DDP_E_SYSTEM: the address cannot be used. */
DDP_MUST_CHECK ddp_status metrics_config_make(struct metrics_config *config,
                                              const struct metrics_wish *wish,
                                              struct ddp_error *err);

/* Serve @job, of which @membership is a node. Takes over the socket. What @options point to, @job,
 * @kept and @config must outlive the server. */
void metrics_server_open(struct metrics_server *server, uv_loop_t *loop,
                         const struct metrics_config *config,
                         const struct ddp_store_options *options, const char *job,
                         const struct store_kept *kept, struct membership *membership);

/* Write the file a last time. The handles close while the loop turns. Does nothing to a zeroed
 * struct. */
void metrics_server_close(struct metrics_server *server);

#endif
