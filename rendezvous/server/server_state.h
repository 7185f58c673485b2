/*
 * server_state.h - the state of a server. Each group of fields is written by the file that it is
 * named after; listeners, refusals, failure rates and vouching are registries that own their data.
 */
#ifndef DDPI_SERVER_STATE_H
#define DDPI_SERVER_STATE_H

#include "busy_poll.h"
#include "conn.h"
#include "failure_rate.h"
#include "listeners.h"
#include "peer_owner.h"
#include "refusals.h"
#include "round_keys.h"
#include "sink.h"
#include "vouching.h"

/* Called once, then cleared. NULL: not set. */
struct server_callback {
    void (*call)(void *ctx);
    void *ctx;
};

struct ddpi_server {
    struct ddpi_log log;
    struct ddpi_conn_env env;
    struct ddpi_stream_shared shared;
    struct ddpi_kv *kv;
    struct ddpi_round_keys *rounds;
    struct ddpi_listeners listeners;
    struct ddpi_refusals refusals;
    struct ddpi_list conns;       /* ddpi_conn::of_server */
    struct ddpi_credential token; /* env.gate points here if there is one */
    void (*rounds_elsewhere)(void *ctx, struct ddpi_bytes key, bool set); /* or NULL */
    void (*job_changed)(void *ctx, const char *job, const struct ddpi_rounds_summary *now);
    void *rounds_ctx;
    bool showing; /* the owner changes a key itself */
    bool closing;
    bool draining;
    struct server_callback drained, idle, closed;

    struct {
        uint64_t accepted;
        uint64_t connections; /* open, of max_connections */
        uint64_t half_open_count;
        uint32_t max_connections;
        uint32_t max_half_open;
        struct ddpi_list half_open; /* ddpi_conn::of_half_open, in order of arrival */
        struct ddpi_failure_rate failures;
        struct ddpi_vouching vouching;
        struct ddpi_owners owners;
        bool vouches; /* the owner does, for this user's TCPStore clients on this machine */
    } admission;

    struct {
        bool on;                        /* admits nobody ... */
        char leader[DDPI_ENDPOINT_MAX]; /* ... but names this store; "": none is known */
    } standby;

    struct {
        char job[DDPI_JOB_MAX + 1]; /* that the store is for; "": none */
        uint64_t deserted_ms;       /* since when it has had no member */
        struct server_callback over;
    } job_end;

    char *keeper_status; /* NULL: none */
    size_t keeper_status_len;
    uint64_t keeper_status_ms; /* when it was set, by the loop */

    struct {
        struct ddpi_kv_scope *tcpstore_scope;
        char tcpstore_job[DDPI_JOB_MAX + 1]; /* of clients at ports of no job; "": none */
        bool named_only;                     /* nodes of a job without a name are refused */
    } jobs;

    struct {
        uint64_t served;
        uint64_t by_op[DDPI_OP_COUNT]; /* of these */
        struct ddpi_list dirty;        /* ddpi_conn::of_dirty */
        struct ddpi_list withheld;     /* the same, of those whose output may not leave yet */
        struct ddpi_list held;         /* ddpi_conn::of_held */
    } requests;

    struct {
        uint64_t deleted;                                  /* keys */
        bool pending;                                      /* a job has ended since the last look */
        char prefix[sizeof "job//g/" + DDPI_JOB_MAX + 24]; /* being deleted; "": none */
    } reclaim;

    struct {
        struct ddpi_sink sink; /* commit NULL: none */
        void (*sink_failed)(void *ctx, const struct ddp_error *why);
        void *sink_failed_ctx;
        bool changed;      /* since the last commit began */
        uint64_t changes;  /* told to the sink */
        bool release_due;  /* a commit has ended: connections that wait for it may go on */
        bool committing;   /* a commit is under way ... */
        bool beginning;    /* ... and has not returned yet */
        uv_timer_t expiry; /* the next deadline of the core or of a round */
        uint64_t expiry_at;
        bool expiry_due;
        uv_check_t after_io; /* these two end a turn: after connections, and after timers */
        uv_prepare_t before_io;
        uv_idle_t no_sleep; /* active: the loop polls without sleeping */
        struct ddpi_busy_poll busy_poll;
        unsigned handles; /* not closed yet, of these four */
        size_t most_held; /* bytes in use since memory was last given back */
        size_t most_keys; /* of these, in keys */
    } turn;
};

#endif
