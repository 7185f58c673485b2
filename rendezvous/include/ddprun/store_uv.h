/*
 * ddprun/store_uv.h - the asynchronous client of the ddprun store, on the program's own libuv loop.
 * What keys, versions, watches and sessions are is in ddprun/store.h.
 *
 * Threads: all calls are made, and all callbacks come, on the thread that runs the loop. Nothing
 * here blocks, runs the loop or starts a thread (but for names, which libuv looks up in one of its
 * own).
 * Signals: the program ignores SIGPIPE, as libuv asks of all that use its streams; else a
 * connection that breaks while something is sent would end it. Callbacks: they come from the loop,
 * never from within a call of this header, and may make any of its calls. What they are given is
 * valid until they return. Lost connections: as in ddprun/store.h. Requests wait for the
 * connection, the first one included, until their own deadlines; a server that is there but does
 * not let the client in answers them all at once, DDP_E_DENIED or DDP_E_PROTOCOL.
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
    DDP_STORE_UV_CONNECTED = 1, /* to the server, and the watches go on */
    DDP_STORE_UV_LOST = 2,      /* or the first attempt failed; it connects again by itself */
    DDP_STORE_UV_ENDED = 3,     /* for good: the option DDP_STORE_NO_RECONNECT */
    DDP_STORE_UV_REFUSED =
        4 /* the server is there, but does not let the client in; it asks again */
};

/* Who is told what. NULL is allowed everywhere. Set @size to sizeof(struct ddp_store_uv_hooks). */
struct ddp_store_uv_hooks {
    size_t size;
    void *data; /* given to each of them */
    /* A change of something watched. A DDP_STORE_EVENT_LOST with a value is the last of its watch;
     * the value says why it ended. */
    void (*event)(void *data, ddp_store_uv *store, const struct ddp_store_event *event);
    /* The connection; @why is a sentence, "" for DDP_STORE_UV_CONNECTED. */
    void (*state)(void *data, ddp_store_uv *store, enum ddp_store_uv_state state, const char *why);
    /* A session that was to be kept has ended all the same, and its keys are gone. */
    void (*session_ended)(void *data, ddp_store_uv *store, const struct ddp_store_session *session);
    /* A session was kept: the server has answered what was sent at @sent_ms (milliseconds of
     * CLOCK_MONOTONIC) or later, so its lease is not over before so much time has passed since. A
     * program that knows it by @size may leave this member out. */
    void (*session_kept)(void *data, ddp_store_uv *store, const struct ddp_store_session *session,
                         uint64_t sent_ms);
};

/* What can be asked, each as the function of that name in ddprun/store.h. */
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
    DDP_STORE_OP_WATCH,            /* key, flags, version: where to begin -> watch, version */
    DDP_STORE_OP_UNWATCH,          /* watch */
    DDP_STORE_OP_SESSION_OPEN,     /* lease_ms, flags -> session */
    DDP_STORE_OP_SESSION_KEEP,     /* session */
    DDP_STORE_OP_SESSION_CLOSE,    /* session */
    DDP_STORE_OP_SET_EPHEMERAL,    /* session, key, value -> version */
    DDP_STORE_OP_STATS,            /* -> value */
    DDP_STORE_OP_OPEN_PORT,        /* key: the job; session -> number: the port */
    DDP_STORE_OP_FENCE             /* key: the job; number: the epoch -> version: its epoch */
};

/* A flag of DDP_STORE_OP_SESSION_OPEN: keep it, at a sixth of its lease and on each new connection,
 * until it is closed by this handle or the handle is. */
#define DDP_STORE_KEEP 2u

/* The same, and hold it: it ends at once when this process does, or when ddp_store_uv_close() ends
 * the connection. The peer's kernel says so by a FIN once no process has the socket any more;
 * whoever gives a duplicate of it to another process (ddp_store_uv_socket()) has the session end
 * with the last of them. A connection that is lost in any other way, also that of a machine that is
 * gone, changes nothing: the lease decides. So it does when a process dies before it has read all
 * that the server had sent, since the kernel then sends a RST, and where the server is older than
 * this flag. */
#define DDP_STORE_HOLD 4u

/* What is asked. Set @size to sizeof(struct ddp_store_request), and what the operation does not
 * name to zero. All that it points to is copied. */
struct ddp_store_request {
    size_t size;
    enum ddp_store_op op;
    uint32_t timeout_ms; /* 0: look once, DDP_STORE_FOREVER: 49 days */
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

/* The answer. What the operation does not name is zero, and all but @message, if @status is not
 * DDP_OK; the @version of DDP_E_CONFLICT and DDP_E_GONE is the exception. */
struct ddp_store_result {
    uint64_t request;    /* its number, from ddp_store_uv_submit() */
    ddp_status status;   /* as the function in ddprun/store.h would return it */
    const char *message; /* the sentence for a person; "" for DDP_OK */
    const void *value;   /* a NUL behind it, not counted */
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
 * A handle on @loop. Returns at once; the first connection is made when the loop runs.
 *
 * Of @options, connect_timeout_ms has no meaning: it goes on trying until there is a connection.
 * @hooks may be NULL. Neither is kept. On DDP_OK *@ret_store is a handle that the caller gives back
 * with ddp_store_uv_close(), and which keeps the loop alive until then.
 * DDP_E_INVALID, DDP_E_LIMIT, DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_uv_open(struct uv_loop_s *loop,
                                                    const struct ddp_store_options *options,
                                                    const struct ddp_store_uv_hooks *hooks,
                                                    ddp_store_uv **ret_store,
                                                    struct ddp_error *err);

/**
 * Ask @request; @done (NULL is allowed) is called once with @data and the answer.
 *
 * What is asked within one turn of the loop is sent together. On DDP_OK *@ret_request (may be NULL)
 * is the number of the request. On anything else nothing is asked and @done is not called:
 * DDP_E_INVALID, DDP_E_LIMIT, DDP_E_CLOSED (the handle has ended, or is being closed), DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_store_uv_submit(ddp_store_uv *store,
                                                      const struct ddp_store_request *request,
                                                      ddp_store_uv_done *done, void *data,
                                                      uint64_t *ret_request, struct ddp_error *err);

/**
 * Give up @request: it is answered DDP_E_CANCELED when the loop comes to it, unless its answer
 * comes first. What it asks for may have been done or not.
 *
 * DDP_E_NOT_FOUND: there is no such request; it may have been answered.
 */
DDP_API ddp_status ddp_store_uv_cancel(ddp_store_uv *store, uint64_t request);

/**
 * The socket of the connection, or -1 while there is none on which the server has let the client
 * in. It stays the handle's: to look at, and to duplicate (see DDP_STORE_HOLD), but not to read or
 * write.
 */
DDP_API int ddp_store_uv_socket(const ddp_store_uv *store);

/**
 * Answer all requests with DDP_E_CANCELED, close the connection, free the handle, then call @closed
 * (may be NULL) with @data. All of that from the loop. Sessions are not closed: those that are held
 * end with the connection, those that were kept with their leases. Call it once; later only
 * callbacks may still mention the handle. If the store's name is just being looked up, which nobody
 * can interrupt, @closed does not wait for that, but the loop is alive until the resolver gives up.
 */
DDP_API void ddp_store_uv_close(ddp_store_uv *store, void (*closed)(void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
