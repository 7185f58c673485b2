/*
 * session.c - sessions. A session has a lease, which any client that knows its token renews, over
 * any connection; the keys tied to the session vanish when it is closed or its lease ends. Owns the
 * sessions; entries.c ties keys to them.
 *
 * A session does not belong to a connection, so nothing has to be taken over when one is lost. The
 * token is the session's number and a secret, which only the store's seed can make. A client may
 * hold a session, until another client does: then the session does not outlive its process. Whether
 * a connection ended with its process, or was only lost, the server decides (conn.h).
 */
#include "clock.h"
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <ddprun/store.h>
#include <sodium.h>
#include <string.h>

_Static_assert(sizeof(struct ddp_store_session) == DDPI_SESSION_SIZE, "tokens cross as they are");
_Static_assert(DDPI_SEED_SIZE >= crypto_generichash_KEYBYTES_MIN, "a seed keys the secret");

/* The secret follows from the number and the store's seed. */
static void make_token(const struct ddpi_kv *kv, struct kv_session *session)
{
    uint8_t *secret = session->token + sizeof session->number;
    memcpy(session->token, &session->number, sizeof session->number);
    (void)crypto_generichash(secret, DDPI_SESSION_SIZE - sizeof session->number, session->token,
                             sizeof session->number, kv->sessions.seed, DDPI_SEED_SIZE);
}

/* ---- the end ---- */

/* Drops a small number of keys; true: there were no more, and @session is freed. */
static bool session_drop_small(struct ddpi_kv *kv, struct kv_session *session)
{
    for (size_t dropped = 0; !ddpi_list_empty(&session->keys);) {
        if (!ddpi_kv_take_small(kv, &dropped))
            return false;
        ddpi_kv_drop(kv, ddpi_kv_session_first(session));
    }
    ddpi_table_remove(&kv->sessions, &session->node);
    ddpi_list_remove(&session->of_over);
    ddpi_kv_refund(kv, session->account, KV_ROOM_BYTES, sizeof(*session));
    ddpi_free(session);
    return true;
}

/* All keys of @session are gone at once, no matter how many they are (entries.c). */
static void session_end(struct ddpi_kv *kv, struct kv_session *session)
{
    ddpi_heap_remove(&kv->leases, &session->lease);
    ddpi_list_remove(&session->of_holder);
    ddpi_kv_refund(kv, session->account, KV_ROOM_SESSIONS, 1);
    ddpi_kv_emit(
        kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_SESSION_END, .session = session->number});
    if (session_drop_small(kv, session))
        return;
    ddpi_list_append(&kv->over, &session->of_over);
    ddpi_kv_scope_recount(kv, ddpi_bytes_of("", 0));
}

/* Takes turns, so that sessions with few keys do not wait for one with very many. */
void ddpi_kv_session_drop(struct ddpi_kv *kv)
{
    bool more = true;
    while (more && !ddpi_list_empty(&kv->over)) {
        struct kv_session *session = ddpi_container_of(kv->over.next, struct kv_session, of_over);
        if (session_drop_small(kv, session))
            continue;
        ddpi_list_remove(&session->of_over);
        ddpi_list_append(&kv->over, &session->of_over);
        more = kv->work_left > 0;
    }
}

/* ---- their life ---- */

/* @number is a uint64_t, or a token, which begins with one. */
static struct kv_session *session_numbered(const struct ddpi_kv *kv, const void *number)
{
    struct ddpi_table_node *node = ddpi_table_find(&kv->sessions, number, sizeof(uint64_t));
    return node != NULL ? ddpi_container_of(node, struct kv_session, node) : NULL;
}

/* A lease ends when ddpi_kv_expire() finds it: a request applied before that came in time. */
static struct kv_session *session_with(const struct ddpi_kv *kv, struct ddpi_bytes token)
{
    if (token.len != DDPI_SESSION_SIZE)
        return NULL;
    struct kv_session *session = session_numbered(kv, token.data);
    bool alive = session != NULL && !ddpi_kv_session_is_over(session);
    return alive && sodium_memcmp(session->token, token.data, token.len) == 0 ? session : NULL;
}

/* The session that @call names; NULL: there is none, and the call fails with DDP_E_NOT_FOUND. */
static struct kv_session *session_find(const struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = session_with(kv, call->request->session);
    if (session == NULL)
        ddpi_error_set(&call->err, DDP_E_NOT_FOUND,
                       "there is no such session: its lease is over, or it was closed");
    return session;
}

uint64_t ddpi_kv_session_number(const struct ddpi_kv *kv, struct ddpi_bytes token)
{
    const struct kv_session *session = session_with(kv, token);
    return session != NULL ? session->number : 0;
}

static ddp_status session_check_open(struct ddpi_kv *kv, struct kv_call *call,
                                     struct kv_account *account)
{
    uint32_t lease_ms = call->request->count;
    if (lease_ms == 0 || lease_ms > DDP_STORE_LEASE_MAX_MS)
        return ddpi_error_set(&call->err, DDP_E_INVALID, "a lease of %u ms; it may have 1 to %d ms",
                              lease_ms, DDP_STORE_LEASE_MAX_MS);
    ddp_status status = ddpi_kv_check_room(kv, account, KV_ROOM_SESSIONS, 1, &call->err);
    if (status != DDP_OK)
        return status;
    return ddpi_kv_check_growth(kv, account, 0, sizeof(struct kv_session), &call->err);
}

/* A session without a lease. NULL: no memory. */
static struct kv_session *session_make(struct ddpi_kv *kv, struct kv_account *account,
                                       uint64_t number)
{
    struct kv_session *session = ddpi_calloc(1, sizeof(*session));
    if (session == NULL)
        return NULL;
    session->account = account;
    session->number = number;
    session->node.key = session->token;
    session->node.key_len = sizeof session->number;
    ddpi_list_init(&session->keys);
    ddpi_list_init(&session->of_holder);
    ddpi_list_init(&session->of_over);
    make_token(kv, session);
    if (!ddpi_table_insert(&kv->sessions, &session->node)) {
        ddpi_free(session);
        return NULL;
    }
    ddpi_kv_charge(kv, account, KV_ROOM_BYTES, sizeof(*session));
    return session;
}

static ddp_status session_create(struct ddpi_kv *kv, struct kv_account *account, uint64_t number,
                                 uint32_t lease_ms, uint64_t now_ms, struct kv_session **ret,
                                 struct ddp_error *err)
{
    struct kv_session *session = session_make(kv, account, number);
    if (session == NULL)
        return ddpi_error_nomem(err, sizeof(*session));
    session->lease_ms = lease_ms;
    if (!ddpi_heap_insert(&kv->leases, &session->lease, ddpi_deadline(now_ms, lease_ms))) {
        (void)session_drop_small(kv, session); /* it has no keys */
        return ddpi_error_nomem(err, sizeof(*session));
    }
    ddpi_kv_charge(kv, account, KV_ROOM_SESSIONS, 1);
    *ret = session;
    return DDP_OK;
}

/* The number is a version, which sinks keep: so no number comes again after a restart, also if no
 * record of its session is left. */
ddp_status ddpi_kv_session_open(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = NULL;
    struct kv_account *account =
        call->client->agent ? kv->reserve : ddpi_kv_account_for(kv, call->client, call->key);
    uint64_t number = (kv->last_session > kv->version ? kv->last_session : kv->version) + 1;
    ddp_status status = session_check_open(kv, call, account);
    if (status == DDP_OK)
        status = session_create(kv, account, number, call->request->count, call->now_ms, &session,
                                &call->err);
    if (status != DDP_OK)
        return status;
    kv->last_session = kv->version = number;
    call->reply.session = ddpi_bytes_of(session->token, sizeof session->token);
    ddpi_kv_emit(kv, &(struct ddpi_mutation){.kind = DDPI_MUTATION_SESSION_OPEN,
                                             .session = session->number,
                                             .value = call->reply.session,
                                             .lease_ms = session->lease_ms});
    return DDP_OK;
}

ddp_status ddpi_kv_session_restore(struct ddpi_kv *kv, uint64_t number, struct ddpi_bytes token,
                                   uint32_t lease_ms, uint64_t now_ms, struct ddp_error *err)
{
    struct kv_session *session;
    if (token.len != DDPI_SESSION_SIZE || memcmp(token.data, &number, sizeof number) != 0 ||
        session_numbered(kv, &number) != NULL || lease_ms == 0 || lease_ms > DDP_STORE_LEASE_MAX_MS)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed session");
    /* No record says which account paid. The sessions of nodes matter most. */
    ddp_status status = session_create(kv, kv->reserve, number, lease_ms, now_ms, &session, err);
    if (status != DDP_OK)
        return status;
    memcpy(session->token, token.data, token.len); /* its secret was made with another seed */
    kv->last_session = number > kv->last_session ? number : kv->last_session;
    return DDP_OK;
}

ddp_status ddpi_kv_session_tie(struct ddpi_kv *kv, uint64_t number, struct kv_entry *entry,
                               struct ddp_error *err)
{
    struct kv_session *session = session_numbered(kv, &number);
    struct kv_tie *tie = ddpi_calloc(1, sizeof(*tie));
    bool cut_short = session == NULL && tie != NULL;
    if (cut_short)
        session = session_make(kv, kv->reserve, number);
    if (tie == NULL || session == NULL) {
        ddpi_free(tie);
        return ddpi_error_nomem(err, sizeof(*tie));
    }
    if (cut_short) {
        ddpi_list_append(&kv->over, &session->of_over);
        kv->last_session = number > kv->last_session ? number : kv->last_session;
    }
    tie->session = session;
    ddpi_kv_tie(kv, tie, entry);
    return DDP_OK;
}

static void session_renew(struct ddpi_kv *kv, struct kv_session *session, uint64_t now_ms)
{
    ddpi_heap_remove(&kv->leases, &session->lease); /* leaves room for the insertion */
    (void)ddpi_heap_insert(&kv->leases, &session->lease, ddpi_deadline(now_ms, session->lease_ms));
}

void ddpi_kv_renew_leases(struct ddpi_kv *kv, uint64_t now_ms)
{
    struct ddpi_table_iter iter = {0};
    for (struct ddpi_table_node *node; (node = ddpi_table_next(&kv->sessions, &iter)) != NULL;) {
        struct kv_session *session = ddpi_container_of(node, struct kv_session, node);
        if (!ddpi_kv_session_is_over(session))
            session_renew(kv, session, now_ms);
    }
}

ddp_status ddpi_kv_session_keep(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = session_find(kv, call);
    if (session == NULL)
        return DDP_E_NOT_FOUND;
    session_renew(kv, session, call->now_ms);
    return DDP_OK;
}

ddp_status ddpi_kv_session_hold(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = session_find(kv, call);
    if (session == NULL)
        return DDP_E_NOT_FOUND;
    session_renew(kv, session, call->now_ms);
    ddpi_list_remove(&session->of_holder);
    ddpi_list_append(&call->client->held, &session->of_holder);
    return DDP_OK;
}

static struct kv_session *held_first(const struct ddpi_kv_client *client)
{
    return ddpi_container_of(client->held.next, struct kv_session, of_holder);
}

void ddpi_kv_session_release(struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->held))
        ddpi_list_remove(&held_first(client)->of_holder);
}

void ddpi_kv_client_dead(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->held))
        session_end(kv, held_first(client));
}

ddp_status ddpi_kv_session_close(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = session_find(kv, call);
    if (session == NULL)
        return DDP_E_NOT_FOUND;
    session_end(kv, session);
    return DDP_OK;
}

ddp_status ddpi_kv_set_ephemeral(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_session *session = session_find(kv, call);
    if (session == NULL)
        return DDP_E_NOT_FOUND;
    struct kv_tie *tie = ddpi_calloc(1, sizeof(*tie));
    if (tie == NULL)
        return ddpi_error_nomem(&call->err, sizeof(*tie));
    tie->session = session;
    return ddpi_kv_put_tied(kv, call, tie);
}

static struct kv_session *session_earliest(const struct ddpi_kv *kv)
{
    struct ddpi_heap_node *node = ddpi_heap_top(&kv->leases);
    return node != NULL ? ddpi_container_of(node, struct kv_session, lease) : NULL;
}

uint64_t ddpi_kv_next_lease(const struct ddpi_kv *kv)
{
    const struct kv_session *session = session_earliest(kv);
    return session != NULL ? session->lease.at : UINT64_MAX;
}

void ddpi_kv_expire_leases(struct ddpi_kv *kv, uint64_t now_ms)
{
    for (struct kv_session *session; (session = session_earliest(kv)) != NULL &&
                                     session->lease.at <= now_ms && ddpi_kv_take_work(kv);)
        session_end(kv, session);
}

void ddpi_kv_session_finish(struct ddpi_kv *kv)
{
    ddpi_table_finish_free(&kv->sessions, offsetof(struct kv_session, node));
    ddpi_heap_finish(&kv->leases);
}
