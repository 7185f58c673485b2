/*
 * keep_alive.c - sessions that the asynchronous client keeps alive: a keep-alive at each sixth
 * of the lease, first thing on each new connection, and soon again when one failed for any other
 * reason than that the session has ended; while there is no connection, one is tried for often
 * enough that a store that is back within the lease is found in time. Owns what is kept.
 *
 * A keep-alive that is sent counts from when it was asked: one that still waits when there is a new
 * connection is asked anew there, so that what it says is true.
 */
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "uv_impl.h"

#include <netinet/tcp.h>

enum { AGAIN_MS = 100, KEEPS_A_LEASE = 6, DIALS_A_LEASE = 8 };

struct kept {
    struct ddpi_list of_store;
    struct uv_request request;
    struct ddp_store_session session;
    uint32_t lease_ms;
    bool hold;
    uint64_t next_ms;
    uint64_t asked_ms; /* when the request was made */
    bool asked;        /* the request is on its way */
    bool closed;       /* nobody wants it kept any more */
};

struct kept *ddpi_uv_kept_create(uint32_t lease_ms, bool hold)
{
    struct kept *kept = ddpi_calloc(1, sizeof(*kept));
    if (kept != NULL) {
        kept->lease_ms = lease_ms;
        kept->hold = hold;
        ddpi_list_init(&kept->of_store);
    }
    return kept;
}

void ddpi_uv_kept_destroy(struct kept *kept)
{
    if (kept == NULL)
        return;
    ddpi_list_remove(&kept->of_store);
    ddpi_free(kept);
}

static struct kept *kept_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct kept, of_store);
}

/* A link that is silent for half a lease is given up while there is time to make another one. */
static void limit_silence(ddp_store_uv *store, const struct kept *kept)
{
    unsigned ms = kept->lease_ms / 2 > AGAIN_MS ? kept->lease_ms / 2 : AGAIN_MS;
    uv_os_fd_t fd;
    if (uv_fileno((uv_handle_t *)&store->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void limit_backoff(ddp_store_uv *store)
{
    uint64_t least_ms = UINT64_MAX;
    ddpi_list_for_each (node, &store->kept) {
        const struct kept *kept = kept_of(node);
        if (!kept->closed && kept->lease_ms < least_ms)
            least_ms = kept->lease_ms;
    }
    uint64_t pause_ms = least_ms / DIALS_A_LEASE;
    store->core.persists = least_ms != UINT64_MAX;
    store->core.backoff_max_ms = least_ms == UINT64_MAX ? 0 : pause_ms != 0 ? pause_ms : 1;
}

void ddpi_uv_keep(ddp_store_uv *store, struct kept *kept, const struct ddp_store_session *session)
{
    kept->session = *session;
    kept->next_ms = kept->hold ? 0 : ddpi_deadline(ddpi_uv_now(), kept->lease_ms / KEEPS_A_LEASE);
    ddpi_list_append(&store->kept, &kept->of_store);
    limit_backoff(store);
    if (kept->hold)
        limit_silence(store, kept);
}

bool ddpi_uv_holds(const ddp_store_uv *store)
{
    ddpi_list_for_each (node, &store->kept)
        if (kept_of(node)->hold)
            return true;
    return false;
}

void ddpi_uv_unkeep(ddp_store_uv *store, const struct ddp_store_session *session)
{
    ddpi_list_for_each_safe (node, &store->kept) {
        struct kept *kept = kept_of(node);
        if (memcmp(&kept->session, session, sizeof *session) != 0)
            continue;
        kept->closed = true;
        if (!kept->asked)
            ddpi_uv_kept_destroy(kept);
    }
    limit_backoff(store);
}

void ddpi_uv_was_kept(ddp_store_uv *store, struct kept *kept, ddp_status status)
{
    uint32_t pause_ms = kept->lease_ms / KEEPS_A_LEASE;
    kept->asked = false;
    if (status == DDP_OK)
        kept->next_ms = ddpi_deadline(kept->asked_ms, pause_ms);
    else
        kept->next_ms = ddpi_deadline(ddpi_uv_now(), pause_ms < AGAIN_MS ? pause_ms : AGAIN_MS);
    if (status == DDP_OK && !kept->closed && store->hooks.session_kept != NULL && !store->closing)
        store->hooks.session_kept(store->hooks.data, store, &kept->session, kept->asked_ms);
    bool ended = status == DDP_E_NOT_FOUND && !kept->closed;
    if (ended) {
        ddpi_list_remove(&kept->of_store); /* before anybody closes it */
        limit_backoff(store);
    }
    if (ended && store->hooks.session_ended != NULL && !store->closing)
        store->hooks.session_ended(store->hooks.data, store, &kept->session);
    if (ended || kept->closed)
        ddpi_uv_kept_destroy(kept);
}

/* An answer that has not come after half the lease comes too late for another try. */
static uint32_t patience_ms(const struct kept *kept)
{
    return kept->lease_ms / 2;
}

static void prepare(struct kept *kept, uint64_t now_ms)
{
    kept->asked_ms = now_ms;
    kept->request = (struct uv_request){
        .kept = kept,
        .request = {.message = {.op = kept->hold ? DDPI_OP_SESSION_HOLD : DDPI_OP_SESSION_KEEP,
                                .session = ddpi_bytes_of(kept->session.token,
                                                         sizeof kept->session.token)}}};
}

void ddpi_uv_keep_all(ddp_store_uv *store)
{
    uint64_t now_ms = ddpi_uv_now();
    ddpi_list_for_each (node, &store->kept) {
        struct kept *kept = kept_of(node);
        if (kept->closed)
            continue; /* its request is on its way */
        if (kept->asked)
            ddpi_client_cancel(&store->core, &kept->request.request);
        prepare(kept, now_ms);
        ddpi_client_urge(&store->core, &kept->request.request, patience_ms(kept), now_ms);
        kept->asked = true;
        if (kept->hold)
            limit_silence(store, kept);
    }
}

static void keep(ddp_store_uv *store, struct kept *kept, uint64_t now_ms)
{
    prepare(kept, now_ms);
    kept->asked = ddpi_client_submit(&store->core, &kept->request.request, patience_ms(kept),
                                     now_ms, NULL) == DDP_OK;
    if (!kept->asked)
        kept->next_ms = UINT64_MAX; /* the handle has ended */
}

void ddpi_uv_keep_due(ddp_store_uv *store, uint64_t now_ms)
{
    ddpi_list_for_each (node, &store->kept) {
        struct kept *kept = kept_of(node);
        if (!kept->asked && kept->next_ms <= now_ms)
            keep(store, kept, now_ms);
    }
}

uint64_t ddpi_uv_keep_next(const ddp_store_uv *store)
{
    uint64_t next_ms = UINT64_MAX;
    ddpi_list_for_each (node, &store->kept) {
        const struct kept *kept = kept_of(node);
        if (!kept->asked && kept->next_ms < next_ms)
            next_ms = kept->next_ms;
    }
    return next_ms;
}

void ddpi_uv_unkeep_all(ddp_store_uv *store)
{
    while (!ddpi_list_empty(&store->kept))
        ddpi_uv_kept_destroy(kept_of(store->kept.next));
}
