/*
 * client_core.h - what a client of the store does, whatever carries its bytes: requests and their
 * answers, deadlines, watches, and what becomes of them when the connection is lost.
 *
 * Pure: bytes, times and losses in; bytes, answers and events out. No file descriptor, clock or
 * thread inside. The edges (handle.c on poll(2), handle.c on a libuv loop) dial when the
 * state says so, carry bytes and tell the time.
 *
 * States (client_core.c has the table):
 *   IDLE      not begun
 *   DIALING   the edge is to connect, and then to call ddpi_client_connected()
 *   GREETING  connected; the handshake is not complete
 *   OPEN      requests are sent
 *   WAITING   the connection was lost, or there was none; tick() dials again
 *   CLOSED    for good
 *
 * A new connection first begins all watches again, each behind the last change it told; then what
 * is asked is sent. Of that, what may have been done already, and would be done twice, is not sent
 * again but answered DDP_E_CLOSED. A server that does not let the client in has answered all that
 * is asked; it is dialled again, seldom, only while something new is asked or something is watched.
 * But once a client that proves itself, or keeps sessions, was let in, a refusal that is not proven
 * is like a server that is not there: whoever took its port while it was down could have sent it.
 */
#ifndef DDPI_CLIENT_CORE_H
#define DDPI_CLIENT_CORE_H

#include "client_frame.h"
#include "client_greet.h"
#include "list.h"
#include "sm.h"

#define DDPI_CLIENT_STATES(X)                                                                  \
    X(CLIENT, IDLE, DDPI_SM_TO(CLIENT_DIALING) | DDPI_SM_TO(CLIENT_CLOSED), DDPI_SM_INITIAL)   \
    X(CLIENT, DIALING,                                                                         \
      DDPI_SM_TO(CLIENT_GREETING) | DDPI_SM_TO(CLIENT_WAITING) | DDPI_SM_TO(CLIENT_CLOSED), 0) \
    X(CLIENT, GREETING,                                                                        \
      DDPI_SM_TO(CLIENT_OPEN) | DDPI_SM_TO(CLIENT_WAITING) | DDPI_SM_TO(CLIENT_CLOSED), 0)     \
    X(CLIENT, OPEN, DDPI_SM_TO(CLIENT_WAITING) | DDPI_SM_TO(CLIENT_CLOSED), 0)                 \
    X(CLIENT, WAITING, DDPI_SM_TO(CLIENT_DIALING) | DDPI_SM_TO(CLIENT_CLOSED), 0)              \
    X(CLIENT, CLOSED, 0, DDPI_SM_FINAL)

DDPI_SM_DECLARE(ddpi_client, DDPI_CLIENT_STATES);

enum {
    DDPI_CLIENT_GRACE_MS = 1000,   /* what a server may take beyond a deadline */
    DDPI_CLIENT_ATTEMPT_MS = 5000, /* for one attempt to connect and to greet */
    DDPI_CLIENT_BACKOFF_FIRST_MS = 10,
    DDPI_CLIENT_BACKOFF_MAX_MS = 2000,
    DDPI_CLIENT_BACKOFF_START_MS = 200, /* the most before the first connection */
};

/* Something asked. The owner's memory, from ddpi_client_submit() until `done`. */
struct ddpi_client_request {
    struct ddpi_list of_client;
    struct ddpi_message message; /* what it points to stays as long */
    uint64_t deadline_ms;
    uint64_t frame_end; /* in the output of this connection; 0: not put there */
};

/* Something watched; the core's memory. */
struct ddpi_client_watch {
    struct ddpi_list of_client;
    uint64_t id;
    uint64_t told; /* all changes up to this version */
    uint32_t flags;
    bool on;     /* whoever asked for it knows that it has begun */
    bool due;    /* it was begun again on this connection, and the answer has not come */
    bool gap;    /* that answer ends a time whose changes are not told */
    bool missed; /* the owner's */
    size_t name_len;
    char name[];
};

struct ddpi_client_hooks {
    void *ctx;
    /* @request, which is the owner's again, is answered; @reply is valid during the call. */
    void (*done)(void *ctx, struct ddpi_client_request *request, const struct ddpi_message *reply);
    /* A change, valid during the call; with the number DDPI_CHANGE_NONE: changes up to its version
     * were missed, and if it has a value, the server does not go on with the watch, which ends;
     * the value says why. What is not DDP_OK ends the connection; on the next one it comes again.
     */
    ddp_status (*event)(void *ctx, struct ddpi_client_watch *watch,
                        const struct ddpi_message *event, struct ddp_error *err);
    /* A server speaks to us; NULL: nobody is told. What is urged from here goes first. */
    void (*opened)(void *ctx);
    uint32_t (*random)(void *ctx);
};

struct ddpi_client {
    struct ddpi_sm sm;
    struct ddpi_client_hooks hooks;
    bool no_reconnect;
    bool was_open;           /* once, at least */
    bool refused;            /* the latest attempt, for a reason that will not pass by itself */
    bool persists;           /* the edge's: it keeps sessions, and is to come back to them */
    uint64_t backoff_max_ms; /* the edge's: no longer between attempts; 0: no matter */
    struct ddpi_tls *tls;    /* of this connection; NULL: all goes as it is */
    struct ddpi_buf coming;  /* of TLS: what the edge has read, for a moment */
    struct ddpi_buf leaving; /* the same: what the edge is to send */
    struct ddpi_greet greet;
    struct ddpi_welcome welcome; /* of the latest server */
    bool proven;                 /* the same has proven itself */
    struct ddpi_buf in;
    struct ddpi_buf out;
    size_t need;              /* bytes in `in` before it makes sense to look */
    uint64_t left;            /* bytes of `out` that have left it on this connection */
    uint64_t last_id;         /* given */
    uint64_t at_ms;           /* WAITING: when to dial; DIALING and GREETING: when to give up */
    uint64_t look_ms;         /* no request expires before */
    unsigned attempts;        /* to connect, since a server last served all there is */
    struct ddpi_list queued;  /* ddpi_client_request::of_client, not put into `out` yet */
    struct ddpi_list asked;   /* the same, put there */
    struct ddpi_list watches; /* ddpi_client_watch::of_client */
    struct ddp_error why;     /* the connection was lost, or did not come about */
};

void ddpi_client_init(struct ddpi_client *client, const struct ddpi_client_hooks *hooks);
/* Nothing is asked any more. */
void ddpi_client_finish(struct ddpi_client *client);

/* From IDLE: begin to dial. */
void ddpi_client_start(struct ddpi_client *client, uint64_t now_ms);

/* Ask @request->message, whose id is set here. `done` is not called from here. On failure nothing
 * is asked: DDP_E_CLOSED, DDP_E_NOMEM. */
ddp_status ddpi_client_submit(struct ddpi_client *client, struct ddpi_client_request *request,
                              uint32_t timeout_ms, uint64_t now_ms, struct ddp_error *err);
/* From the hook `opened`: the same, before all else that is asked. */
void ddpi_client_urge(struct ddpi_client *client, struct ddpi_client_request *request,
                      uint32_t timeout_ms, uint64_t now_ms);
/* Put what is asked into `out`, as far as the state and the room there allow. */
void ddpi_client_fill(struct ddpi_client *client, uint64_t now_ms);
/* Answer it with DDP_E_CANCELED at once, and let the server forget it. */
void ddpi_client_cancel(struct ddpi_client *client, struct ddpi_client_request *request);

/* In DIALING: there is a connection, on which to say who the client is. */
void ddpi_client_connected(struct ddpi_client *client, const struct ddpi_greet_terms *terms,
                           uint64_t now_ms);
/* What is to be given to the connection now; when that has been done there may be more. */
struct ddpi_buf *ddpi_client_output(struct ddpi_client *client, uint64_t now_ms);
/* The first @len bytes of that have been. */
void ddpi_client_sent(struct ddpi_client *client, size_t len);
/* All of it has been, in exchange for the empty buffer @buf. */
void ddpi_client_take_output(struct ddpi_client *client, struct ddpi_buf *buf);
/* Room for what comes; NULL: no memory. */
uint8_t *ddpi_client_room(struct ddpi_client *client, size_t *ret_len);
/* @len bytes of the room were filled. */
void ddpi_client_received(struct ddpi_client *client, size_t len, uint64_t now_ms);
/* In DIALING, GREETING and OPEN: the connection is lost, or did not come about, because of @err.
 * The edge closes what it has of it, as it does whenever it finds the state WAITING or CLOSED. */
void ddpi_client_lost(struct ddpi_client *client, const struct ddp_error *err, uint64_t now_ms);

/* Time has passed. */
void ddpi_client_tick(struct ddpi_client *client, uint64_t now_ms);
/* When to call ddpi_client_tick(), at the latest; UINT64_MAX: never. */
uint64_t ddpi_client_next(const struct ddpi_client *client);
/* When @request is answered at the latest. */
uint64_t ddpi_client_expiry(const struct ddpi_client_request *request);

/* The number of the latest server's store; false: there was none, or it has not proven itself. */
bool ddpi_client_met(const struct ddpi_client *client, uint64_t *ret_number);

/* Why there is no connection. */
void ddpi_client_why(const struct ddpi_client *client, struct ddp_error *err);

/* For good: answer all that is asked with the status and the sentence of @err. */
void ddpi_client_close(struct ddpi_client *client, const struct ddp_error *err);

/* Within the core: core_watch.c */
ddp_status ddpi_client_watch_add(struct ddpi_client *client,
                                 const struct ddpi_client_request *request, struct ddp_error *err);
struct ddpi_client_watch *ddpi_client_watch_find(const struct ddpi_client *client, uint64_t id);
void ddpi_client_watch_drop(struct ddpi_client_watch *watch);
/* The answer to who asked for it. */
void ddpi_client_watch_begun(struct ddpi_client *client, const struct ddpi_client_request *request,
                             const struct ddpi_message *reply);
/* Anything else about a watch. */
ddp_status ddpi_client_watch_take(struct ddpi_client *client, const struct ddpi_message *reply,
                                  struct ddp_error *err);
/* Begin all of them again; @anew: from now on. */
bool ddpi_client_watch_resume(struct ddpi_client *client, bool anew);
/* All of them go on. */
bool ddpi_client_watch_settled(const struct ddpi_client *client);
/* Ask for something whose answer nobody wants. */
bool ddpi_client_put(struct ddpi_client *client, struct ddpi_message *message);

#endif
