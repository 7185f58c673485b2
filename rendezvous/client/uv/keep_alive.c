/*
 * keep_alive.c - sessions that the asynchronous client keeps alive. Owns what it knows about each.
 *
 * A keep-alive is sent every sixth of the lease, first of all on each new connection, and soon
 * again if one failed for any reason but the end of the session. While there is no connection, the
 * client dials often enough to find a store that comes back within the lease.
 *
 * A keep-alive counts from when it was made: one that still waits when a new connection opens is
 * made anew there, so that the time it reports is true.
 */
#include "keep_alive.h"

#include "clock.h"
#include "dial.h"
#include "mem.h"

#include <netinet/tcp.h>

enum { RETRY_MS = 100, KEEPS_PER_LEASE = 6, DIALS_PER_LEASE = 8 };

struct kept_session {
    struct ddpi_list of_store;
    struct uv_request request;
    struct ddp_store_session session;
    uint32_t lease_ms;
    bool hold;
    uint64_t next_ms;
    uint64_t sent_ms; /* when the request was made */
    bool pending;     /* the request has not been answered */
    bool closed;      /* the caller has closed the session; freed when the request is answered */
};

struct kept_session *ddpi_uv_kept_create(uint32_t lease_ms, bool hold)
{
    struct kept_session *kept = ddpi_calloc(1, sizeof(*kept));
    if (kept != NULL) {
        kept->lease_ms = lease_ms;
        kept->hold = hold;
        ddpi_list_init(&kept->of_store);
    }
    return kept;
}

void ddpi_uv_kept_destroy(struct kept_session *kept)
{
    if (kept == NULL)
        return;
    ddpi_list_remove(&kept->of_store);
    ddpi_free(kept);
}

static struct kept_session *kept_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct kept_session, of_store);
}

/* Let the kernel end a connection that is silent for half the lease, while there is time to make
 * another one; with a long lease it does so earlier. */
static void limit_silence(ddp_store_uv *store, const struct kept_session *kept)
{
    unsigned ms = kept->lease_ms / 2 > RETRY_MS ? kept->lease_ms / 2 : RETRY_MS;
    uv_os_fd_t fd;
    if (ms < DDPI_LINK_SILENCE_MS && uv_fileno((uv_handle_t *)&store->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

static void limit_backoff(ddp_store_uv *store)
{
    uint64_t least_ms = UINT64_MAX;
    ddpi_list_for_each (node, &store->kept) {
        const struct kept_session *kept = kept_of(node);
        if (!kept->closed && kept->lease_ms < least_ms)
            least_ms = kept->lease_ms;
    }
    uint64_t pause_ms = least_ms / DIALS_PER_LEASE;
    store->core.persists = least_ms != UINT64_MAX;
    store->core.backoff_max_ms = least_ms == UINT64_MAX ? 0 : pause_ms != 0 ? pause_ms : 1;
}

void ddpi_uv_keep(ddp_store_uv *store, struct kept_session *kept,
                  const struct ddp_store_session *session)
{
    kept->session = *session;
    kept->next_ms =
        kept->hold ? 0 : ddpi_deadline(ddpi_monotonic_ms(), kept->lease_ms / KEEPS_PER_LEASE);
    ddpi_list_append(&store->kept, &kept->of_store);
    limit_backoff(store);
    if (kept->hold)
        limit_silence(store, kept);
}

bool ddpi_uv_holds_session(const ddp_store_uv *store)
{
    ddpi_list_for_each (node, &store->kept)
        if (kept_of(node)->hold)
            return true;
    return false;
}

void ddpi_uv_unkeep(ddp_store_uv *store, const struct ddp_store_session *session)
{
    ddpi_list_for_each_safe (node, &store->kept) {
        struct kept_session *kept = kept_of(node);
        if (memcmp(&kept->session, session, sizeof *session) != 0)
            continue;
        kept->closed = true;
        if (!kept->pending)
            ddpi_uv_kept_destroy(kept);
    }
    limit_backoff(store);
}

void ddpi_uv_unkeep_all(ddp_store_uv *store)
{
    while (!ddpi_list_empty(&store->kept))
        ddpi_uv_kept_destroy(kept_of(store->kept.next));
}

void ddpi_uv_keep_alive_done(ddp_store_uv *store, struct kept_session *kept, ddp_status status)
{
    uint32_t pause_ms = kept->lease_ms / KEEPS_PER_LEASE;
    if (status == DDP_OK)
        kept->next_ms = ddpi_deadline(kept->sent_ms, pause_ms);
    else
        kept->next_ms =
            ddpi_deadline(ddpi_monotonic_ms(), pause_ms < RETRY_MS ? pause_ms : RETRY_MS);
    if (status == DDP_OK && !kept->closed && store->hooks.session_kept != NULL && !store->closing)
        store->hooks.session_kept(store->hooks.data, store, &kept->session, kept->sent_ms);
    kept->pending = false; /* not before: the hook may close the session, which would free it */
    bool ended = status == DDP_E_NOT_FOUND && !kept->closed;
    if (ended) {
        ddpi_list_remove(&kept->of_store); /* so that the hook cannot free it */
        limit_backoff(store);
    }
    if (ended && store->hooks.session_ended != NULL && !store->closing)
        store->hooks.session_ended(store->hooks.data, store, &kept->session);
    if (ended || kept->closed)
        ddpi_uv_kept_destroy(kept);
}

/* ---- sending ---- */

/* A reply that takes longer than half the lease comes too late for another attempt. */
static uint32_t keep_alive_timeout_ms(const struct kept_session *kept)
{
    return kept->lease_ms / 2;
}

static void make_keep_alive(struct kept_session *kept, uint64_t now_ms)
{
    kept->sent_ms = now_ms;
    kept->request = (struct uv_request){
        .kept = kept,
        .request = {.message = {.op = kept->hold ? DDPI_OP_SESSION_HOLD : DDPI_OP_SESSION_KEEP,
                                .session = ddpi_bytes_of(kept->session.token,
                                                         sizeof kept->session.token)}}};
}

void ddpi_uv_keep_alive_all(ddp_store_uv *store)
{
    uint64_t now_ms = ddpi_monotonic_ms();
    ddpi_list_for_each (node, &store->kept) {
        struct kept_session *kept = kept_of(node);
        if (kept->closed)
            continue; /* its last request is pending */
        if (kept->pending)
            ddpi_client_cancel(&store->core, &kept->request.request);
        make_keep_alive(kept, now_ms);
        ddpi_client_urge(&store->core, &kept->request.request, keep_alive_timeout_ms(kept), now_ms);
        kept->pending = true;
        if (kept->hold)
            limit_silence(store, kept);
    }
}

static void send_keep_alive(ddp_store_uv *store, struct kept_session *kept, uint64_t now_ms)
{
    make_keep_alive(kept, now_ms);
    kept->pending = ddpi_client_submit(&store->core, &kept->request.request,
                                       keep_alive_timeout_ms(kept), now_ms, NULL) == DDP_OK;
    if (!kept->pending)
        kept->next_ms = UINT64_MAX; /* the handle has ended */
}

void ddpi_uv_keep_alive_due(ddp_store_uv *store, uint64_t now_ms)
{
    ddpi_list_for_each (node, &store->kept) {
        struct kept_session *kept = kept_of(node);
        if (!kept->pending && kept->next_ms <= now_ms)
            send_keep_alive(store, kept, now_ms);
    }
}

uint64_t ddpi_uv_keep_alive_next(const ddp_store_uv *store)
{
    uint64_t next_ms = UINT64_MAX;
    ddpi_list_for_each (node, &store->kept) {
        const struct kept_session *kept = kept_of(node);
        if (!kept->pending && kept->next_ms < next_ms)
            next_ms = kept->next_ms;
    }
    return next_ms;
}
