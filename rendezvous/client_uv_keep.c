/*
 * client_uv_keep.c - sessions that the asynchronous client keeps alive: a keep-alive at each third
 * of the lease, and soon again when one failed for any other reason than that the session has
 * ended. Owns what is kept.
 */
#include "client_uv_impl.h"
#include "clock.h"
#include "error.h"
#include "mem.h"

enum { AGAIN_MS = 100 };

struct kept {
    struct ddpi_list of_store;
    struct uv_request request;
    struct ddp_store_session session;
    uint32_t lease_ms;
    uint64_t next_ms;
    bool asked;  /* the request is on its way */
    bool closed; /* nobody wants it kept any more */
};

struct kept *ddpi_uv_kept_create(uint32_t lease_ms)
{
    struct kept *kept = ddpi_calloc(1, sizeof(*kept));
    if (kept != NULL) {
        kept->lease_ms = lease_ms;
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

void ddpi_uv_keep(ddp_store_uv *store, struct kept *kept, const struct ddp_store_session *session)
{
    kept->session = *session;
    kept->next_ms = ddpi_deadline(ddpi_uv_now(), kept->lease_ms / 3);
    ddpi_list_append(&store->kept, &kept->of_store);
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
}

void ddpi_uv_was_kept(ddp_store_uv *store, struct kept *kept, ddp_status status)
{
    uint32_t third_ms = kept->lease_ms / 3;
    kept->asked = false;
    kept->next_ms =
        ddpi_deadline(ddpi_uv_now(), status == DDP_OK || third_ms < AGAIN_MS ? third_ms : AGAIN_MS);
    bool ended = status == DDP_E_NOT_FOUND && !kept->closed;
    if (ended)
        ddpi_list_remove(&kept->of_store); /* before anybody closes it */
    if (ended && store->hooks.session_ended != NULL && !store->closing)
        store->hooks.session_ended(store->hooks.data, store, &kept->session);
    if (ended || kept->closed)
        ddpi_uv_kept_destroy(kept);
}

static void keep(ddp_store_uv *store, struct kept *kept, uint64_t now_ms)
{
    kept->request = (struct uv_request){
        .kept = kept,
        .request = {.message = {.op = DDPI_OP_SESSION_KEEP,
                                .session = ddpi_bytes_of(kept->session.token,
                                                         sizeof kept->session.token)}}};
    kept->asked = ddpi_client_submit(&store->core, &kept->request.request, kept->lease_ms, now_ms,
                                     NULL) == DDP_OK;
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
