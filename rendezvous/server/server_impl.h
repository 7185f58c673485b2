/*
 * server_impl.h - what the files of the server share: server.c (its life, and where it listens),
 * door.c (who comes in, and what is refused), requests.c (what they ask, the end of a
 * turn), jobs.c (jobs and their data ports), reclaim.c (what jobs leave behind) and
 * round_hooks.c (what rounds ask of a server). Nobody else includes it.
 */
#ifndef DDPI_SERVER_IMPL_H
#define DDPI_SERVER_IMPL_H

#include "busy_poll.h"
#include "conn.h"
#include "failure_rate.h"
#include "peer_owner.h"
#include "round_keys.h"
#include "server.h"
#include "vouching.h"

/* As much as one connection can make the server do in one turn by what it sends. */
enum { DDPI_SERVER_SCRATCH = 4 * 1024 };

/* X(counter, words): what peers can make the server refuse as often as they like, which must not
 * fill the log; and how it says that there were so many more. */
#define SERVER_REFUSALS(X)                                                                         \
    X(refused, "refused %u more connections")                                                      \
    X(displaced, "closed %u more connections that were not authenticated yet")                     \
    X(throttled, "turned away %u more connections of those who fail too often")                    \
    X(dismissed, "closed %u more connections for what their peers did")                            \
    X(denied, "denied %u more connections")                                                        \
    X(overloaded, "closed %u more connections because all together had reached --max-input-total") \
    X(limited, "refused %u more requests")

enum refusal {
#define REFUSAL(counter, words) REFUSAL_##counter,
    SERVER_REFUSALS(REFUSAL)
#undef REFUSAL
        REFUSALS
};

/* What of one kind of refusals the log has been told. */
struct hush {
    uint64_t since_ms;
    unsigned logged;
    unsigned unlogged;
};

struct ddpi_server {
    struct ddpi_conn_env env;
    struct ddpi_listener_env listener_env;
    struct ddpi_kv *kv;
    struct ddpi_round_keys *rounds;
    struct ddpi_kv_scope *tcpstore_scope;
    char tcpstore_job[DDPI_JOB_MAX + 1]; /* of clients at ports of no job; "": of none */
    struct ddpi_list listeners;          /* ddpi_listener::of_server */
    struct ddpi_list conns;              /* ddpi_conn::of_server */
    struct ddpi_list half_open;          /* ddpi_conn::of_half_open, in order of arrival */
    struct ddpi_list dirty;              /* ddpi_conn::of_dirty */
    struct ddpi_list held;               /* ddpi_conn::of_held */
    struct ddpi_log log;
    uint32_t max_connections;
    uint32_t max_data_ports;
    uint32_t max_half_open;
    struct ddpi_rate rate; /* of connections that fail */
    struct ddpi_conn_shared shared;
    size_t most_held;             /* bytes, since memory was given back last */
    size_t most_keys;             /* ... of these, in keys */
    struct ddpi_tls_engine *tls;  /* NULL: none; env.tls is the same */
    struct ddpi_credential token; /* env.gate points here where there is one */
    struct ddpi_admission admission;
    struct ddpi_owners owners;
    bool vouches; /* for TCPStore clients of this machine, who are this user's */
    struct hush hushes[REFUSALS];
    struct ddpi_server_stats counts; /* without what the core knows */

    struct ddpi_sink sink; /* commit NULL: none */
    void (*sink_failed)(void *ctx, const struct ddp_error *why);
    void *sink_failed_ctx;
    bool changed;            /* since the last commit */
    bool may_have_leftovers; /* a job has ended since there were none */
    char leftovers[sizeof "job//g/" + DDPI_JOB_MAX + 24]; /* a prefix that is going; "": none */

    uv_timer_t expiry; /* the next deadline of the core, or of a round */
    uint64_t expiry_at;
    bool expiry_due;
    uv_check_t after_io; /* these two end a turn: behind connections, and behind timers */
    uv_prepare_t before_io;
    uv_idle_t no_sleep; /* active: the loop polls without sleeping */
    struct ddpi_awake awake;
    unsigned handles; /* not closed yet: these four, and each listener */
    bool closing;
    bool draining;
    void (*drained_cb)(void *ctx); /* NULL: not draining, or it has been called */
    void *drained_ctx;
    void (*deserted_cb)(void *ctx); /* NULL: nobody waits for that, or it has been called */
    void *deserted_ctx;
    void (*close_cb)(void *ctx);
    void *close_ctx;

    char scratch[DDPI_SERVER_SCRATCH];
};

/* server.c */
void ddpi_server_maybe_closed(struct ddpi_server *server);
/* In this turn the loop looks for input without sleeping. */
void ddpi_server_poll_once_more(struct ddpi_server *server);

/* Where a listener is to be, and whom it is for. */
struct ddpi_listen_at {
    const char *host;
    uint16_t port;
    char job[DDPI_JOB_MAX + 1]; /* "": any */
    uint64_t session;           /* it ends with this session; 0: with the server */
    uint64_t generation;        /* ... or with this generation of the job; 0: with none */
};

/* It was asked for by the owner of the server, and stays. */
static inline bool ddpi_server_is_permanent(const struct ddpi_listener *listener)
{
    return listener->session == 0 && listener->generation == 0;
}

ddp_status ddpi_server_add_listener(struct ddpi_server *server, const struct ddpi_listen_at *at,
                                    const struct ddpi_listener **ret, struct ddp_error *err);

/* jobs.c */
/* Who is about to be admitted belongs to a job, or to all: to that of its port, or that it says. */
ddp_status ddpi_server_enter_job(struct ddpi_server *server, struct ddpi_conn *conn,
                                 struct ddp_error *err);
/* The requests FENCE and OPEN_PORT. */
ddp_status ddpi_server_fence(struct ddpi_server *server, struct ddpi_conn *conn,
                             const struct ddpi_message *request, struct ddpi_message *reply,
                             struct ddp_error *err);
ddp_status ddpi_server_open_port(struct ddpi_server *server, struct ddpi_conn *conn,
                                 const struct ddpi_message *request, struct ddpi_message *reply,
                                 struct ddp_error *err);
/* 0 as long as nobody has fenced it. What cannot be understood keeps everybody out. */
uint64_t ddpi_server_epoch(const struct ddpi_server *server, const char *job);
/* End all epochs of @job before @epoch. DDP_E_CONFLICT: it is in a later one. */
ddp_status ddpi_server_set_epoch(struct ddpi_server *server, const char *job, uint64_t epoch,
                                 struct ddp_error *err);
/* Those that @job has besides what the server was started with. */
void ddpi_server_close_ports_of(struct ddpi_server *server, const char *job);
/* Whether there may be @more data ports. DDP_E_LIMIT. */
ddp_status ddpi_server_check_ports(const struct ddpi_server *server, size_t more,
                                   struct ddp_error *err);
/* @session has ended. */
void ddpi_server_close_ports(struct ddpi_server *server, uint64_t session);

/* round_hooks.c */
ddp_status ddpi_server_create_rounds(struct ddpi_server *server, const uint8_t seed[DDPI_SEED_SIZE],
                                     struct ddp_error *err);

/* reclaim.c */
/* The end of a turn: if room is short, some of what jobs have left behind goes. */
void ddpi_server_make_room(struct ddpi_server *server);
/* Append lines as in DDPI_SERVER_STATS for the job @only, or for at most @most. */
void ddpi_server_list_jobs(const struct ddpi_server *server, const char *only, unsigned most,
                           struct ddpi_buf *text);

/* door.c */
/* Hooks of the listeners and of connections. */
void ddpi_server_on_connected(void *owner, const struct ddpi_listener *listener, int fd,
                              const struct sockaddr *peer);
void ddpi_server_on_shed(void *owner);
bool ddpi_server_on_fault(void *owner, const struct ddpi_conn *conn);
/* Its peer has been admitted, or it is closed. */
void ddpi_server_not_half_open(struct ddpi_server *server, struct ddpi_conn *conn);
/* It ends; its peer's address pays for that, if it is half-open. */
void ddpi_server_charge(struct ddpi_server *server, const struct ddpi_conn *conn);
/* Count it; whether the log may say so. */
bool ddpi_server_refuse(struct ddpi_server *server, enum refusal refusal);
/* Tell the log what it has not been told. */
void ddpi_server_log_refusals(struct ddpi_server *server);

/* requests.c */
/* What connections and listeners call back; the limits and the gate are server.c's to set. */
void ddpi_server_init_env(struct ddpi_server *server, uv_loop_t *loop);
/* The core's callback. */
void ddpi_server_on_reply(void *ctx, struct ddpi_kv_client *client,
                          const struct ddpi_message *reply);
void ddpi_server_on_change(void *ctx, const struct ddpi_mutation *mutation);
/* What has changed is durable, or all connections are dropped. */
ddp_status ddpi_server_commit(struct ddpi_server *server, struct ddp_error *err);
/* All input of this turn is read: what is over ends, if something is. */
void ddpi_server_expire(struct ddpi_server *server);
/* All input of this turn is read: those go on whose requests stand in line. */
void ddpi_server_work(struct ddpi_server *server);
/* The end of a turn: what was answered leaves. */
void ddpi_server_settle(struct ddpi_server *server);

#endif
