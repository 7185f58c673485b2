/*
 * uv_impl.h - what the files of the asynchronous client share: handle.c (the handle and
 * its connection), request.c (requests and answers) and keep_alive.c (sessions that
 * are kept). Nobody else includes it.
 */
#ifndef DDPI_UV_IMPL_H
#define DDPI_UV_IMPL_H

#include "client_core.h"
#include "client_target.h"

#include <ddprun/store_uv.h>
#include <uv.h>

#define UV_LINK_STATES(X)                                                            \
    X(UV_LINK, NONE, DDPI_SM_TO(UV_LINK_RESOLVING) | DDPI_SM_TO(UV_LINK_CONNECTING), \
      DDPI_SM_INITIAL | DDPI_SM_FINAL)                                               \
    X(UV_LINK, RESOLVING, DDPI_SM_TO(UV_LINK_NONE), 0)                               \
    X(UV_LINK, CONNECTING, DDPI_SM_TO(UV_LINK_UP) | DDPI_SM_TO(UV_LINK_CLOSING), 0)  \
    X(UV_LINK, UP, DDPI_SM_TO(UV_LINK_CLOSING), 0)                                   \
    X(UV_LINK, CLOSING, DDPI_SM_TO(UV_LINK_NONE), 0)

DDPI_SM_DECLARE(ddpi_uv_link, UV_LINK_STATES);

/* A look-up of the store's name. Nobody can interrupt the system's resolver: when the handle is
 * closed meanwhile, the look-up goes on by itself, and its result is dropped. */
struct uv_lookup {
    uv_getaddrinfo_t request;
    ddp_store_uv *store; /* NULL: it is closed */
};

struct ddp_store_uv {
    struct ddpi_target target;
    struct ddp_store_uv_hooks hooks;
    struct ddpi_client core;
    struct ddpi_list kept;        /* kept::of_store */
    enum ddp_store_uv_state told; /* 0: nothing yet */
    bool any_canceled;            /* some request is to be given up */

    struct ddpi_sm link;
    struct addrinfo *infos; /* of the last look-up */
    struct addrinfo *next;  /* the address to try next */
    uint64_t address_until; /* how long for this one */
    char tried[DDP_ERROR_TEXT / 2];
    struct ddpi_buf flight; /* being written by libuv */

    uv_loop_t *loop;
    uv_tcp_t tcp; /* CONNECTING to CLOSING */
    uv_timer_t timer;
    uv_idle_t soon;            /* there is something to do in the next turn */
    uint64_t later_ms;         /* when to call ... */
    void (*later)(void *data); /* ... this; NULL: never */
    void *later_data;
    struct uv_lookup *lookup; /* RESOLVING; it belongs to the loop */
    uv_connect_t connect;
    uv_write_t write;
    unsigned handles; /* timer and soon, not closed yet */
    bool closing;     /* asked for */
    bool finished;    /* all is answered: only handles are left */
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
    struct ddpi_buf packed;           /* keys, or clauses */
    struct ddp_store_session session; /* that it is about */
    struct kept *kept; /* SESSION_OPEN: to be used if it succeeds; else whose keep-alive this is */
};

/* A request of keep_alive.c. */
static inline bool ddpi_uv_is_keep(const struct uv_request *asked)
{
    enum ddpi_op op = asked->request.message.op;
    return asked->kept != NULL && (op == DDPI_OP_SESSION_KEEP || op == DDPI_OP_SESSION_HOLD);
}

/* Monotonic milliseconds. */
uint64_t ddpi_uv_now(void);
/* Come back in the next turn of the loop. */
void ddpi_uv_soon(ddp_store_uv *store);

/* request.c */
void ddpi_uv_done(void *ctx, struct ddpi_client_request *request, const struct ddpi_message *reply);
void ddpi_uv_cancel_marked(ddp_store_uv *store);

/* keep_alive.c */
/* @hold: by DDP_STORE_HOLD. */
struct kept *ddpi_uv_kept_create(uint32_t lease_ms, bool hold);
void ddpi_uv_kept_destroy(struct kept *kept);
/* @kept is a session from now on. */
void ddpi_uv_keep(ddp_store_uv *store, struct kept *kept, const struct ddp_store_session *session);
/* It is to be closed. */
void ddpi_uv_unkeep(ddp_store_uv *store, const struct ddp_store_session *session);
/* A keep-alive was answered. */
void ddpi_uv_was_kept(ddp_store_uv *store, struct kept *kept, ddp_status status);
/* A new connection: keep all of them by it. */
void ddpi_uv_keep_all(ddp_store_uv *store);
/* The connection stands for the life of this process. */
bool ddpi_uv_holds(const ddp_store_uv *store);
/* Keep those whose time has come. */
void ddpi_uv_keep_due(ddp_store_uv *store, uint64_t now_ms);
uint64_t ddpi_uv_keep_next(const ddp_store_uv *store);
void ddpi_uv_unkeep_all(ddp_store_uv *store);

#endif
