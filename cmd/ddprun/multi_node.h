/*
 * multi_node.h - this node's way to the rounds of a job of several: a member at a store, which is a
 * ddprund's, another node's, or, when nobody else has it, the endpoint is an address of this
 * machine, and no ddprund of this machine has it as its own, one in this very process.
 */
#ifndef CMD_MULTI_NODE_H
#define CMD_MULTI_NODE_H

#include "endpoint_mark.h"
#include "guard.h"
#include "membership.h"
#include "parse.h"
#include "server.h"
#include "worker_keys.h"

#include <ddprun/round.h>
#include <uv.h>

struct remote_job_config {
    const char *job;
    struct ddpi_endpoint endpoint; /* of the store, as it was given */
    int is_host;            /* whether to have the store: 1 yes, 0 no, -1 if the address is ours */
    const char *store;      /* the same as text, "host:port" */
    const char *token_file; /* NULL: there is none, and nothing is proven */
    bool token_named;       /* by the user: then everywhere; else it is his own, beyond loopback */
    enum ddpi_server_auth auth;
    bool trust_local_users;
    bool tls;
    /* If this node has the store, TCPStore clients that come to its endpoint are the job's. */
    bool is_master;
    uint32_t lease_ms;
    struct worker_keys *worker_keys; /* told which store it is; NULL: there are none */
};

struct remote_job_lookup;

struct remote_job {
    const struct remote_job_config *config;
    struct membership *membership;
    const struct guard_agent *guard; /* NULL: there is none */
    uv_loop_t *loop;
    struct remote_job_lookup *lookup; /* of the endpoint's addresses; NULL: that is over */
    ddp_round *round;                 /* NULL: until then, and in the end */
    struct ddpi_server *server;       /* NULL: the store is somebody else's */
    struct ddpi_log log;              /* of that server, to whom it may concern */
    char mark[ENDPOINT_MARK_PATH];    /* of the ddprund whose the endpoint is; "": there is none */
    bool connected;                   /* as told last */
    bool told;
    bool left;
    bool lingering;            /* all is over but that others need our store */
    void (*closed)(void *ctx); /* of remote_job_close() */
    void *ctx;
};

/* How a client of this node connects to the job's store, as an agent that sees all keys. */
struct ddp_store_options remote_job_store_options(const struct remote_job_config *config);

/* For a store that this process has: its log goes to the job's messages; @ctx: struct membership.
 */
void remote_job_on_log(void *ctx, enum ddpi_log_level level, const char *line);

/* Have the store, if it is to be had here, and connect to it in any case: as soon as the loop has
 * looked up the endpoint's addresses, which is not waited for. What fails then, the member leaves
 * for. On failure, too, remote_job_close() follows. */
DDP_MUST_CHECK ddp_status remote_job_open(struct remote_job *job, uv_loop_t *loop,
                                          const struct remote_job_config *config,
                                          struct membership *membership,
                                          const struct guard_agent *guard, struct ddp_error *err);

/* What the member publishes, which is told when there is somebody to tell; how its workers are;
 * that it leaves. */
void remote_job_publish(struct remote_job *job, const struct ddp_round_member *says);
void remote_job_describe(struct remote_job *job, const char *text);
void remote_job_leave(struct remote_job *job);

/* Close all of it, after remote_job_leave() when that has been answered: @closed follows, from the
 * loop or at once. Who has the store goes last, when all others have left; or after
 * remote_job_hurry(). A look-up that nobody can interrupt may be left to the loop. */
void remote_job_close(struct remote_job *job, void (*closed)(void *ctx), void *ctx);
void remote_job_hurry(struct remote_job *job);

#endif
