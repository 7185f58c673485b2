/*
 * etcd_http.h - HTTP on the caller's libuv loop, by libcurl: one exchange is one request and its
 * whole answer, or the reason why there is none. It knows nothing of etcd, and repeats nothing.
 */
#ifndef DDPI_ETCD_HTTP_H
#define DDPI_ETCD_HTTP_H

#include "buf.h"
#include "etcd_library.h"
#include "list.h"

#include <stdbool.h>
#include <uv.h>

/* Of TLS; NULL: not given. They must live as long as the struct that they are given to. */
struct ddpi_etcd_files {
    const char *ca;   /* NULL: the system's */
    const char *cert; /* of this client */
    const char *key;
};

enum { DDPI_ETCD_HTTP_TOO_LONG = 413 };

struct ddpi_etcd_http;

struct ddpi_etcd_exchange {
    struct ddpi_etcd_http *http; /* NULL: not under way */
    CURL *easy;
    struct curl_slist *headers;
    struct ddpi_buf answer;
    bool too_long;
    /* Set by the owner, and kept: an answer that is longer than @most (0: than the request says) is
     * no failure; @instead counts as the answer then, with DDPI_ETCD_HTTP_TOO_LONG. NULL: it is
     * one. */
    const char *instead;
    size_t most;
    char reason[CURL_ERROR_SIZE];
    /* It has ended: @failure is NULL and @http_status set, or a clause says why there is no answer.
     * The answer is valid until the exchange is begun or dropped again. */
    void (*done)(struct ddpi_etcd_exchange *exchange, long http_status, const char *failure);
    void *ctx;
};

struct ddpi_etcd_request {
    const char *url;
    const char *socket; /* on this machine, for the host of @url; NULL: none */
    const char *body;   /* NULL: GET. Must stay until the end of the exchange */
    size_t body_len;
    const char *token; /* of a user; NULL: none */
    uint32_t timeout_ms;
    size_t answer_max;
};

/* Loads libcurl, which blocks for some ms. DDP_E_UNSUPPORTED: it is missing. */
ddp_status ddpi_etcd_http_create(uv_loop_t *loop, const struct ddpi_etcd_files *files,
                                 struct ddpi_etcd_http **ret, struct ddp_error *err);

/* After all exchanges are dropped. The memory goes when the loop has closed the handles. */
void ddpi_etcd_http_destroy(struct ddpi_etcd_http *http);

void ddpi_etcd_exchange_init(struct ddpi_etcd_exchange *exchange);
/* Begin; done() is called from the loop. DDP_E_NOMEM. */
ddp_status ddpi_etcd_exchange_begin(struct ddpi_etcd_http *http,
                                    struct ddpi_etcd_exchange *exchange,
                                    const struct ddpi_etcd_request *request, struct ddp_error *err);
/* End it without done(), and free what it has. Always allowed after init. */
void ddpi_etcd_exchange_drop(struct ddpi_etcd_http *http, struct ddpi_etcd_exchange *exchange);

#endif
