/*
 * restore.c - how contents that a sink has kept (sink.h) go back into a fresh core. Owns nothing.
 */
#include "error.h"
#include "kv_impl.h"

#include <ddprun/store.h>

static ddp_status restore_key(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                              struct ddp_error *err)
{
    struct kv_change change;
    if (mutation->version == 0 || ddpi_kv_find_value(kv, mutation->key) != NULL)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a key has no version, or comes twice");
    ddp_status status = ddpi_kv_prepare(kv, mutation->key, mutation->value, &change, err);
    if (status != DDP_OK)
        return status;
    kv->version = mutation->version - 1;
    ddpi_kv_commit(kv, &change);
    return DDP_OK;
}

static ddp_status restore_tie(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                              struct ddp_error *err)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, mutation->key);
    if (entry == NULL)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a session has a key that does not exist");
    return ddpi_kv_session_tie(kv, mutation->session, entry, err);
}

static ddp_status restore_past(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                               enum ddpi_change_kind kind, struct ddp_error *err)
{
    if (mutation->version == 0)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a change has no version");
    ddpi_kv_remember_past(kv, kind, mutation->version, mutation->key, mutation->value);
    return DDP_OK;
}

ddp_status ddpi_kv_restore(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                           uint64_t now_ms, struct ddp_error *err)
{
    struct kv_entry *entry;
    if (mutation->value.len > DDP_STORE_VALUE_MAX)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a value has %zu bytes; at most %d are possible",
                              mutation->value.len, DDP_STORE_VALUE_MAX);
    switch (mutation->kind) {
    case DDPI_MUTATION_SET:
        return restore_key(kv, mutation, err);
    case DDPI_MUTATION_TIE:
        return restore_tie(kv, mutation, err);
    case DDPI_MUTATION_PUSH:
        return ddpi_kv_enqueue(kv, mutation->key, mutation->value, &entry, err);
    case DDPI_MUTATION_SESSION_OPEN:
        return ddpi_kv_session_restore(kv, mutation->session, mutation->value, mutation->lease_ms,
                                       now_ms, err);
    case DDPI_MUTATION_DETACH:
        return ddpi_kv_restore_detached(kv, mutation, err);
    case DDPI_MUTATION_PAST_SET:
        return restore_past(kv, mutation, DDPI_CHANGE_SET, err);
    case DDPI_MUTATION_PAST_DELETE:
        return restore_past(kv, mutation, DDPI_CHANGE_DELETE, err);
    case DDPI_MUTATION_DELETE:
    case DDPI_MUTATION_POP:
    case DDPI_MUTATION_SESSION_END:
    case DDPI_MUTATION_DETACHED_END:
    case DDPI_MUTATION_REMEMBER:
        break;
    }
    return ddpi_error_set(err, DDP_E_PROTOCOL, "a record of kind %d is a change, not contents",
                          (int)mutation->kind);
}

void ddpi_kv_restore_mark(struct ddpi_kv *kv, const struct ddpi_mark *mark, uint64_t now_ms)
{
    kv->version = mark->version > kv->version ? mark->version : kv->version;
    if (mark->remembers && !kv->history.on)
        kv->history.floor = mark->floor;
    kv->history.on = kv->history.on || mark->remembers;
    ddpi_kv_renew_leases(kv, now_ms);
}
