/*
 * etcd_client.h - calls to etcd that can be repeated: each is tried at one member after the other
 * until one answers or its deadline has passed. A call must therefore be one that may be applied
 * twice without harm; transactions compare first.
 *
 * Owns the list of members, the HTTP connections and the token of a user, which it obtains when
 * needed and again when etcd has forgotten it.
 */
#ifndef DDPI_ETCD_CLIENT_H
#define DDPI_ETCD_CLIENT_H

#include "etcd_address.h"
#include "etcd_codec.h"
#include "etcd_http.h"
#include "etcd_times.h"
#include "log.h"

struct ddpi_etcd_client;

struct ddpi_etcd_client_options {
    const struct ddpi_etcd_address *address; /* copied */
    struct ddpi_etcd_files files;
    const char *user;     /* NULL: none; both are copied */
    const char *password; /* of the user */
    /* No member answers; called again after each round of tries. Then: one does again. NULL: the
     * owner need not know. */
    void (*away)(void *ctx, const struct ddp_error *why);
    void (*back)(void *ctx);
    void *ctx;
};

/* What a call ends with. */
struct ddpi_etcd_outcome {
    /* DDP_OK: etcd has answered, perhaps with an error (reply->code); DDP_E_TIMEOUT: no member did,
     * and @err has the last reason; DDP_E_DENIED: the user or the password is wrong. */
    ddp_status status;
    const struct ddpi_etcd_reply *reply;
    const struct ddp_error *err;
    uint64_t begun_ms; /* by ddpi_etcd_now_ms(), before the try that was answered */
};

struct ddpi_etcd_call {
    const char *path;     /* "/v3/kv/txn" */
    uint32_t try_ms;      /* for each member */
    uint32_t total_ms;    /* no try begins later */
    struct ddpi_buf body; /* the caller fills it; empty: GET */
    void (*done)(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome);
    void *ctx;

    struct ddpi_etcd_client *client; /* NULL: not under way; the rest is the client's */
    struct ddpi_list of_client;
    struct ddpi_etcd_exchange exchange;
    uint64_t until_ms;
    uint64_t begun_ms;
    uint64_t tried_ns;
    unsigned member;
    unsigned tries;
    bool authenticated; /* anew, since a member failed last */
    uv_timer_t *pause;  /* until the next try */
};

enum { DDPI_ETCD_TRY_MS = 500, DDPI_ETCD_BODY_MAX = 8 * 1024 * 1024 };

/* Milliseconds that go on while the machine is suspended: leases at etcd do, too. */
uint64_t ddpi_etcd_now_ms(void);

ddp_status ddpi_etcd_client_create(uv_loop_t *loop, const struct ddpi_etcd_client_options *options,
                                   struct ddpi_etcd_client **ret, struct ddp_error *err);
/* Calls that are under way end without done(). NULL is allowed. */
void ddpi_etcd_client_destroy(struct ddpi_etcd_client *client);

/* What its requests have taken so far. */
const struct ddpi_etcd_times *ddpi_etcd_client_times(const struct ddpi_etcd_client *client);

void ddpi_etcd_call_init(struct ddpi_etcd_call *call);
/* Begin; done() is called from the loop, also for lack of memory. */
void ddpi_etcd_call_begin(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call);
/* End it without done(), and free what it has; always allowed after init. */
void ddpi_etcd_call_finish(struct ddpi_etcd_client *client, struct ddpi_etcd_call *call);

static inline bool ddpi_etcd_call_is_busy(const struct ddpi_etcd_call *call)
{
    return call->client != NULL;
}

#endif
