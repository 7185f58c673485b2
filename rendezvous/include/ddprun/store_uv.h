/*
 * ddprun/store_uv.h - asynchronous client of the ddprun store, on the program's own libuv loop.
 * ddprun/store.h explains keys, versions, watches and sessions.
 *
 * Threads: all calls must be made on the thread that runs the loop, and all callbacks come there.
 * No call blocks, runs the loop or starts a thread (libuv looks up host names in a thread of its
 * own).
 *
 * Signals: the program must ignore SIGPIPE, as libuv requires for its streams; else a connection
 * that breaks during a write ends the program.
 *
 * Callbacks: they come from the loop, never from within a call of this header, and may make any of
 * its calls. What their arguments point to is valid until they return.
 *
 * Lost connections: as in ddprun/store.h. Requests wait for a connection, also for the first one,
 * until their own deadlines. A server that refuses the client thereby answers all requests at once:
 * DDP_E_DENIED or DDP_E_PROTOCOL.
 */
#ifndef DDPRUN_STORE_UV_H
#define DDPRUN_STORE_UV_H

#include <ddprun/store.h>

#ifdef __cplusplus
extern "C" {
#endif

struct uv_loop_s; /* uv_loop_t of <uv.h> */

typedef struct ddp_store_uv ddp_store_uv;

enum ddp_store_uv_state {
    DDP_STORE_UV_CONNECTED = 1, /* and watches have been resumed */
    DDP_STORE_UV_LOST = 2,      /* or the first attempt failed; the client reconnects by itself */
    DDP_STORE_UV_ENDED = 3,     /* for good, because of DDP_STORE_NO_RECONNECT */
    DDP_STORE_UV_REFUSED = 4    /* by the server; the client tries again */
};

/* Callbacks of a handle; each may be NULL. Set @size to sizeof(struct ddp_store_uv_hooks). */
struct ddp_store_uv_hooks {
    size_t size;
    void *data; /* passed to each callback */
    /* A watched key has changed. DDP_STORE_EVENT_LOST with a value is the last event of its watch;
     * the value says why it has ended. */
    void (*event)(void *data, ddp_store_uv *store, const struct ddp_store_event *event);
    /* The connection's state has changed; @why is a sentence, "" for DDP_STORE_UV_CONNECTED. */
    void (*state)(void *data, ddp_store_uv *store, enum ddp_store_uv_state state, const char *why);
    /* A session of DDP_STORE_KEEP or DDP_STORE_HOLD has ended, and its keys are deleted. */
    void (*session_ended)(void *data, ddp_store_uv *store, const struct ddp_store_session *session);
    /* The lease of a session was renewed: it lasts at least until one lease after @sent_ms
     * (milliseconds of CLOCK_MONOTONIC), when the request was sent. A program may set @size so that
     * it leaves this member out. */
    void (*session_kept)(void *data, ddp_store_uv *store, const struct ddp_store_session *session,
                         uint64_t sent_ms);
};

/* Operations; each does what the function of that name in ddprun/store.h does. Comments: the fields
 * of the request -> the fields of the result. */
enum ddp_store_op {
    DDP_STORE_OP_SET = 1,          /* key, value -> version */
    DDP_STORE_OP_GET,              /* key -> value, version */
    DDP_STORE_OP_TRY_GET,          /* key -> value, version */
    DDP_STORE_OP_ADD,              /* key, number -> number */
    DDP_STORE_OP_COMPARE_AND_SWAP, /* key, value, version -> version */
    DDP_STORE_OP_TRANSACT,         /* clauses, count -> version */
    DDP_STORE_OP_WAIT,             /* keys, count */
    DDP_STORE_OP_DELETE,           /* key */
    DDP_STORE_OP_LIST,             /* key: the prefix -> keys, count */
    DDP_STORE_OP_BARRIER,          /* key: the name; count */
    DDP_STORE_OP_WATCH,            /* key, flags, version: where to start -> watch, version */
    DDP_STORE_OP_UNWATCH,          /* watch */
    DDP_STORE_OP_SESSION_OPEN,     /* lease_ms, flags -> session */
    DDP_STORE_OP_SESSION_KEEP,     /* session */
    DDP_STORE_OP_SESSION_CLOSE,    /* session */
    DDP_STORE_OP_SET_EPHEMERAL,    /* session, key, value -> version */
    DDP_STORE_OP_STATS,            /* -> value */
    DDP_STORE_OP_OPEN_PORT,        /* key: the job; session -> number: the port */
    DDP_STORE_OP_FENCE             /* key: the job; number: the epoch -> version: its epoch */
};

/* A flag of DDP_STORE_OP_SESSION_OPEN: renew the lease automatically, every sixth of it and on each
 * new connection, until the session or the handle is closed. */
#define DDP_STORE_KEEP 2u

/* The same, and end the session at once when this process ends or ddp_store_uv_close() closes the
 * connection: the kernel then sends a FIN. If other processes have duplicates of the socket
 * (ddp_store_uv_socket()), the session ends with the last of them. A connection that is lost in any
 * other way, for example because the machine fails, does not end the session; its lease decides.
 * The same is true for a process that ends before it has read all that the server has sent (the
 * kernel sends a RST then), for each end of a connection that speaks TLS (DDP_STORE_TLS: others on
 * the network can forge a FIN), and for servers older than this flag. */
#define DDP_STORE_HOLD 4u

/* A request. Set @size to sizeof(struct ddp_store_request), and fields that the operation does not
 * use to zero. What it points to is copied. */
struct ddp_store_request {
    size_t size;
    enum ddp_store_op op;
    uint32_t timeout_ms; /* 0: look once, do not wait; DDP_STORE_FOREVER: 49 days */
    const char *key;
    const void *value;
    size_t value_len;
    uint64_t version;
    int64_t number;
    uint32_t flags;
    uint32_t lease_ms;
    uint64_t watch;
    const char *const *keys;
    const struct ddp_store_clause *clauses;
    size_t count;
    const struct ddp_store_session *session;
};

/* A result. Fields that the operation does not set are zero. If @status is not DDP_OK, only
 * @request, @status and @message are set, and @version with DDP_E_CONFLICT and DDP_E_GONE. */
struct ddp_store_result {
    uint64_t request;    /* its number, from ddp_store_uv_submit() */
    ddp_status status;   /* what the function in ddprun/store.h would return */
    const char *message; /* a sentence for the user; "" for DDP_OK */
    const void *value;   /* followed by a NUL that is not counted */
    size_t value_len;
    uint64_t version;
    int64_t number;
    uint64_t watch;
    char *const *keys;
    size_t count;
    const struct ddp_store_session *session;
};

typedef void ddp_store_uv_done(void *data, const struct ddp_store_result *result);

/**
 * Make a handle on @loop. Returns at once; the client connects when the loop runs.
 *
 * connect_timeout_ms of @options is ignored: the client tries until it is connected. @hooks may be
 * NULL. Neither is kept. On DDP_OK *@ret_store is a handle; close it with ddp_store_uv_close(). It
 * keeps the loop alive until then.
 * DDP_E_INVALID: an option breaks a rule in its comment. DDP_E_LIMIT: the prefix is too long.
 * DDP_E_DENIED: the token file cannot be used; @err says why. DDP_E_NOMEM: out of memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_uv_open(struct uv_loop_s *loop,
                                                    const struct ddp_store_options *options,
                                                    const struct ddp_store_uv_hooks *hooks,
                                                    ddp_store_uv **ret_store,
                                                    struct ddp_error *err);

/**
 * Submit @request. @done (may be NULL) is called once, from the loop, with @data and the result.
 *
 * Requests of one turn of the loop are sent together. On DDP_OK *@ret_request (may be NULL) is the
 * number of the request. On any other status nothing is sent and @done is not called:
 * DDP_E_INVALID: a field breaks a rule. DDP_E_LIMIT: a key, a value or a list is too large.
 * DDP_E_CLOSED: the handle has ended, or is being closed. DDP_E_NOMEM: out of memory.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_uv_submit(ddp_store_uv *store,
                                                      const struct ddp_store_request *request,
                                                      ddp_store_uv_done *done, void *data,
                                                      uint64_t *ret_request, struct ddp_error *err);

/**
 * Cancel @request: its result is DDP_E_CANCELED, from the loop, unless the reply comes first. The
 * server may have executed it.
 *
 * DDP_E_NOT_FOUND: there is no such request; it may have been answered.
 */
DDP_API ddp_status ddp_store_uv_cancel(ddp_store_uv *store, uint64_t request);

/**
 * The socket of the connection, or -1 while the client is not connected and accepted. It belongs to
 * the handle: the program may inspect or duplicate it (see DDP_STORE_HOLD), not read, write or
 * close it.
 */
DDP_API int ddp_store_uv_socket(const ddp_store_uv *store);

/**
 * Close the handle: answer all requests with DDP_E_CANCELED, close the connection, free the handle,
 * then call @closed (may be NULL) with @data. All of this happens in the loop. Call it once, and do
 * not use the handle afterwards, except in callbacks that still come.
 *
 * Sessions are not closed: a session with DDP_STORE_HOLD ends with the connection, if that does
 * not speak TLS, others with their lease. A lookup of the store's name cannot be interrupted:
 * @closed does not wait for it, but the loop stays alive until the resolver returns.
 */
DDP_API void ddp_store_uv_close(ddp_store_uv *store, void (*closed)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
