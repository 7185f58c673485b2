/*
 * client_core.h - a client of the store, independent of how its bytes travel: requests and replies,
 * deadlines, watches, and what happens to them when the connection is lost.
 *
 * Pure: takes bytes, times and losses; gives bytes, replies and events. It has no file descriptor,
 * clock or thread. The edges (blocking/ on poll(2), uv/ on a libuv loop) connect when the state
 * says so, carry the bytes and tell the time.
 *
 *     IDLE --> DIALING --connected--> GREETING --WELCOME--> OPEN --fatal error--> CLOSED
 *                 ^  |                   |                   |
 *          timer  |  +--no listener------+--refused----------+--connection lost
 *                 |                                          v
 *                 +--------------------------------------- WAITING (10 ms to 2 s, random)
 *
 *   IDLE      not started
 *   DIALING   the edge must connect, and then call ddpi_client_connected()
 *   GREETING  connected; the handshake is not complete
 *   OPEN      requests are sent
 *   WAITING   there is no connection; ddpi_client_tick() dials again
 *   CLOSED    for good
 *
 * Of several servers, which take each other's place, one serves and the others refuse. A client
 * that loses its server, or is refused, dials the next one at once, and waits only after it has
 * tried all of them. It counts as refused when a round of attempts is over in which one server
 * refused it for a reason that will not pass by itself.
 *
 * On a new connection the client first resumes all watches, then sends its requests. A request that
 * the server may have executed already, and must not execute twice, is not sent again: it is
 * answered DDP_E_CLOSED. A server that refuses the client thereby answers all requests; it is
 * dialled again, seldom, while there are new requests or watches. But a client that was let in
 * once, and has a token or keeps sessions, treats a refusal without proof like a server that is
 * down: any program that took the server's port could have sent it.
 */
#ifndef DDPI_CLIENT_CORE_H
#define DDPI_CLIENT_CORE_H

#include "client_frame.h"
#include "client_greet.h"
#include "client_watch.h"
#include "request_queue.h"
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
    DDPI_CLIENT_ATTEMPT_MS = 5000,            /* for one attempt to connect and to greet */
    DDPI_CLIENT_ATTEMPT_OF_SEVERAL_MS = 1500, /* the same while there are other servers */
    DDPI_CLIENT_BACKOFF_FIRST_MS = 10,
    DDPI_CLIENT_BACKOFF_MAX_MS = 2000,
    DDPI_CLIENT_BACKOFF_START_MS = 200, /* the limit before the first connection */
};

struct ddpi_client_hooks {
    void *ctx;
    /* @request is answered and belongs to its owner again; @reply is valid during the call. */
    void (*done)(void *ctx, struct ddpi_client_request *request, const struct ddpi_message *reply);
    ddpi_client_event_fn *event;
    /* The connection has opened; may be NULL. ddpi_client_urge() may be called from here. */
    void (*opened)(void *ctx);
    uint32_t (*random)(void *ctx);
};

struct ddpi_client {
    struct ddpi_sm sm;
    struct ddpi_client_hooks hooks;
    bool no_reconnect;       /* set by the edge */
    uint32_t endpoints;      /* set by the edge: how many servers there are to dial, at least 1 */
    uint32_t endpoint;       /* DIALING: which of them the edge must dial */
    bool persists;           /* set by the edge: it keeps sessions and must return to them */
    uint64_t backoff_max_ms; /* set by the edge: a limit between attempts; 0: none */
    bool was_open;           /* at least once */
    bool refused;            /* all servers were tried, and one refused; `why` is its reason */
    struct ddpi_request_queue requests;
    struct ddpi_client_watches watches;
    struct ddpi_tls *tls;    /* of this connection; NULL: plain text */
    struct ddpi_buf coming;  /* TLS: bytes that the edge has read */
    struct ddpi_buf leaving; /* TLS: bytes that the edge must send */
    struct ddpi_buf in;
    size_t need; /* bytes that `in` must have before it is worth parsing */
    struct ddpi_greet greet;
    struct ddpi_welcome welcome; /* of the last server */
    bool proven;                 /* that server has proven that it has the token */
    uint64_t at_ms;              /* WAITING: when to dial; DIALING and GREETING: when to give up */
    unsigned attempts;        /* to connect, since a server last served all requests and watches */
    struct ddp_error why;     /* there is no connection */
    struct ddp_error refusal; /* the last one of this round of attempts; DDP_OK: none */
};

void ddpi_client_init(struct ddpi_client *client, const struct ddpi_client_hooks *hooks);
/* No request may be left. */
void ddpi_client_finish(struct ddpi_client *client);

/* From IDLE: start to dial. */
void ddpi_client_start(struct ddpi_client *client, uint64_t now_ms);

/* Queue @request, whose id is set here. Does not call `done`. On failure nothing is queued:
 * DDP_E_CLOSED, DDP_E_NOMEM. */
ddp_status ddpi_client_submit(struct ddpi_client *client, struct ddpi_client_request *request,
                              uint32_t timeout_ms, uint64_t now_ms, struct ddp_error *err);
/* From the hook `opened`: queue @request in front of all others. */
void ddpi_client_urge(struct ddpi_client *client, struct ddpi_client_request *request,
                      uint32_t timeout_ms, uint64_t now_ms);
/* Write queued requests into the output, as far as the state and the room there allow. */
void ddpi_client_fill(struct ddpi_client *client, uint64_t now_ms);
/* Answer @request with DDP_E_CANCELED now, and tell the server to forget it. */
void ddpi_client_cancel(struct ddpi_client *client, struct ddpi_client_request *request);

/* In DIALING: the edge looks up the endpoint's name, and can do nothing else until it has. The time
 * for this attempt begins after that: a slow resolver says nothing about the server. */
void ddpi_client_resolving(struct ddpi_client *client);
void ddpi_client_resolved(struct ddpi_client *client, uint64_t now_ms);
/* In DIALING: the edge has connected. */
void ddpi_client_connected(struct ddpi_client *client, const struct ddpi_greet_terms *terms,
                           uint64_t now_ms);
/* The bytes to send now. When they have been sent there may be more. */
struct ddpi_buf *ddpi_client_output(struct ddpi_client *client, uint64_t now_ms);
/* The first @len of them have been sent. */
void ddpi_client_sent(struct ddpi_client *client, size_t len);
/* Take all of them, in exchange for the empty buffer @buf. */
void ddpi_client_take_output(struct ddpi_client *client, struct ddpi_buf *buf);
/* Memory for bytes to receive; NULL: none. */
uint8_t *ddpi_client_room(struct ddpi_client *client, size_t *ret_len);
/* @len bytes were received into that memory. */
void ddpi_client_received(struct ddpi_client *client, size_t len, uint64_t now_ms);
/* In DIALING, GREETING and OPEN: the connection is lost, or was not made, because of @err. The edge
 * closes its socket, as it does whenever it finds the state WAITING or CLOSED. */
void ddpi_client_lost(struct ddpi_client *client, const struct ddp_error *err, uint64_t now_ms);

/* Act on what is due at @now_ms. */
void ddpi_client_tick(struct ddpi_client *client, uint64_t now_ms);
/* When to call ddpi_client_tick(), at the latest; UINT64_MAX: never. */
uint64_t ddpi_client_next(const struct ddpi_client *client);

/* The number of the last server's store. False: there was none, or it proved nothing. */
bool ddpi_client_met(const struct ddpi_client *client, uint64_t *ret_number);

/* Why there is no connection. */
void ddpi_client_why(const struct ddpi_client *client, struct ddp_error *err);

/* For good: answer all requests with @err. */
void ddpi_client_close(struct ddpi_client *client, const struct ddp_error *err);

#endif
