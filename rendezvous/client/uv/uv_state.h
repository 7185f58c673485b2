/*
 * uv_state.h - the structures of the asynchronous client, for its own files: keep_alive.c (sessions
 * that it keeps alive), uv_request.c (requests and results), uv_connection.c (the socket) and
 * uv_handle.c, on top of them.
 */
#ifndef DDPI_UV_STATE_H
#define DDPI_UV_STATE_H

#include "client_core.h"
#include "client_target.h"

#include <ddprun/store_uv.h>
#include <uv.h>

#define UV_LINK_STATES(X)                                                             \
    X(UV_LINK, NONE, DDPI_SM_TO(UV_LINK_CONNECTING), DDPI_SM_INITIAL | DDPI_SM_FINAL) \
    X(UV_LINK, CONNECTING, DDPI_SM_TO(UV_LINK_UP) | DDPI_SM_TO(UV_LINK_CLOSING), 0)   \
    X(UV_LINK, UP, DDPI_SM_TO(UV_LINK_CLOSING), 0)                                    \
    X(UV_LINK, CLOSING, DDPI_SM_TO(UV_LINK_NONE), 0)

DDPI_SM_DECLARE(ddpi_uv_link, UV_LINK_STATES);

/* A lookup of an endpoint's name. The system's resolver cannot be interrupted: while the core turns
 * to other endpoints the lookup goes on, and its result waits until this endpoint's turn has come.
 * If the handle is closed meanwhile, the result is dropped. */
struct uv_lookup {
    uv_getaddrinfo_t request;
    ddp_store_uv *store; /* NULL: it is closed */
    bool ended;          /* with the result: */
    int uv_err;
    struct addrinfo *infos;
};

struct ddp_store_uv {
    struct ddpi_target target;
    struct ddp_store_uv_hooks hooks;
    struct ddpi_client core;
    struct ddpi_list kept;            /* kept_session::of_store */
    enum ddp_store_uv_state reported; /* to the caller; 0: none */
    bool any_canceled;                /* some request is marked as canceled */

    struct ddpi_sm link;
    struct uv_lookup *lookups[DDPI_ENDPOINTS_MAX]; /* NULL: none; the loop has those under way */
    struct addrinfo *infos;                        /* of the endpoint that was dialled last */
    struct addrinfo *next;                         /* the address to try next */
    uint64_t address_until_ms;                     /* when to give up the present address */
    char tried[DDP_ERROR_TEXT / 2];
    struct ddpi_buf writing; /* libuv is writing it */

    uv_loop_t *loop;
    void (*settle)(ddp_store_uv *store); /* of uv_handle.c; ends each callback of libuv */
    uv_tcp_t tcp;                        /* CONNECTING to CLOSING */
    uv_timer_t timer;
    uv_idle_t soon;            /* active: settle in the next turn of the loop */
    uint64_t later_ms;         /* when to call ... */
    void (*later)(void *data); /* ... this; NULL: never */
    void *later_data;
    uv_connect_t connect;
    uv_write_t write;
    unsigned handles; /* timer and soon, not closed yet */
    bool closing;     /* by the caller's wish */
    bool finished;    /* all requests are answered: only libuv's handles are left */
    void (*closed_cb)(void *data);
    void *closed_data;
};

/* One request, with copies of what it points to. */
struct uv_request {
    struct ddpi_client_request request;
    ddp_store_uv_done *done;
    void *data;
    bool canceled;
    char *key;
    void *value;
    struct ddpi_buf packed; /* keys, or clauses */
    struct ddp_store_session session;
    struct kept_session *kept; /* SESSION_OPEN: what it becomes; a keep-alive: what it keeps */
};

/* A request of keep_alive.c, which the caller of the client knows nothing about. */
static inline bool ddpi_uv_is_keep_alive(const struct uv_request *request)
{
    enum ddpi_op op = request->request.message.op;
    return request->kept != NULL && (op == DDPI_OP_SESSION_KEEP || op == DDPI_OP_SESSION_HOLD);
}

static inline struct uv_request *ddpi_uv_request_of(struct ddpi_client_request *request)
{
    return ddpi_container_of(request, struct uv_request, request);
}

static inline void ddpi_uv_on_soon(uv_idle_t *idle)
{
    ddp_store_uv *store = idle->data;
    uv_idle_stop(idle);
    store->settle(store);
}

/* Settle in the next turn of the loop. */
static inline void ddpi_uv_soon(ddp_store_uv *store)
{
    if (!store->finished)
        uv_idle_start(&store->soon, ddpi_uv_on_soon);
}

/* ---- requests and results (uv_request.c) ---- */

/* The hook `done` of the client core. */
void ddpi_uv_request_done(void *ctx, struct ddpi_client_request *request,
                          const struct ddpi_message *reply);

/* Answer the requests that ddp_store_uv_cancel() has marked. */
void ddpi_uv_cancel_marked(ddp_store_uv *store);

/* ---- the connection: name lookup, connecting, reading, writing (uv_connection.c) ---- */

/* The client core has a connection that it reads from and writes to. */
bool ddpi_uv_is_connected(const ddp_store_uv *store);

/* Make of the connection what the core's state demands: dial, try the next address, or close. */
void ddpi_uv_follow_state(ddp_store_uv *store, uint64_t now_ms);

/* Write the core's output. */
void ddpi_uv_send_output(ddp_store_uv *store, uint64_t now_ms);

/* Give up the lookups. One that has begun ends only when the resolver does. */
void ddpi_uv_leave_lookups(ddp_store_uv *store);

#endif
