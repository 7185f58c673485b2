/*
 * http_server.h - an HTTP/1.1 server on the caller's libuv loop, for small requests of processes of
 * this machine. The owner accepts the connections and decides which of them to serve. It gets each
 * request whole, and answers it at once or later. libmicrohttpd does the protocol; the first
 * http_server_create() loads it, so a program that nobody asks does not pay for it.
 *
 * Bounded: connections, the head (32 KiB) and the body of a request, all bodies together, and the
 * time that a client takes (http_connections.h). When all connections are in use, the client that
 * has taken longest makes room. A body that is too large is refused by its Content-Length; one
 * without that, a chunked one, is not taken.
 *
 * Unless the server is for other machines too, a request whose Host is neither localhost nor a
 * loopback address is refused with 403: a page in a browser, whose name was made to point to this
 * machine, sends such a one.
 */
#ifndef CMD_HTTP_SERVER_H
#define CMD_HTTP_SERVER_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

struct http_server;

/* A whole request. It lives until it is answered; what it points to is valid until the call of
 * request() returns. */
struct http_request {
    const char *method;        /* "GET" */
    const char *path;          /* without the query; %XX is decoded */
    const char *authorization; /* the header of that name; NULL: none */
    bool names_loopback;       /* its Host does, or it has none */
    int fd;                    /* of the connection, to ask who is at its other end */
    const void *body;
    size_t body_len;
};

struct http_options {
    void *ctx;
    /* Answer @request with http_answer(), from here or later from the loop, or by returning a
     * status other than 0, which has no body. 401 asks for a bearer token. */
    unsigned (*request)(void *ctx, struct http_request *request);
    unsigned max_connections;
    uint64_t limit_ms; /* for a client to send a request and to read the answer */
    size_t max_body;   /* of one request */
    size_t max_body_total;
    const char *methods; /* what a 405 names: "GET, HEAD" */
    bool any_host;       /* for other machines, too: the owner checks what requests authorize */
};

/* Blocks for some ms while the library loads. DDP_E_UNSUPPORTED: this machine has no
 * libmicrohttpd, or this build has no HTTP. */
DDP_MUST_CHECK ddp_status http_server_create(uv_loop_t *loop, const struct http_options *options,
                                             struct http_server **ret, struct ddp_error *err);

/* Serve the connection @fd of @peer; the server closes it. */
void http_server_take(struct http_server *server, int fd, const struct sockaddr *peer);

/* Answer @request with @status and the @len @bytes, which are copied. @type: "text/plain", ...;
 * NULL: not told. */
void http_answer(struct http_request *request, unsigned status, const char *type, const void *bytes,
                 size_t len);

/* Close all connections. All requests must have been answered. The handles close, and the memory is
 * freed, while the loop turns. */
void http_server_destroy(struct http_server *server);

#endif
