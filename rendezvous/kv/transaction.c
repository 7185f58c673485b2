/*
 * transaction.c - transactions: conditions on some keys, and changes to some that are made all
 * together or not at all. Owns nothing; the entries are entries.c's.
 *
 * Everything that can fail, memory included, comes before the first change. Then keys are deleted
 * before others are set; no key is changed twice. So a request that waits for several keys never
 * sees one that is about to go together with one that has just come.
 */
#include "error.h"
#include "kv_impl.h"

#include <ddprun/store.h>
#include <inttypes.h>

static bool is_condition(const struct ddpi_clause *clause)
{
    return clause->kind == DDPI_IF_VERSION || clause->kind == DDPI_IF_VALUE;
}

static bool is_change(const struct ddpi_clause *clause)
{
    return clause->kind == DDPI_THEN_SET || clause->kind == DDPI_THEN_DELETE;
}

static ddp_status check_clause(const struct ddpi_kv *kv, const struct ddpi_clause *clause,
                               struct ddp_error *err)
{
    if (!is_condition(clause) && !is_change(clause))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a transaction has a clause of the unknown kind %u", clause->kind);
    if (clause->key.len > kv->limits.key_len)
        return ddpi_error_set(err, DDP_E_LIMIT, "a key of %zu bytes; at most %u are allowed",
                              clause->key.len, kv->limits.key_len);
    if (clause->value.len > kv->limits.value_len)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "a value of %zu bytes for '%.*s'; at most %u are allowed",
                              clause->value.len, KV_QUOTE(clause->key), kv->limits.value_len);
    return DDP_OK;
}

/* The clauses after the change @clause must be changes, too, and of other keys. */
static ddp_status check_after(const struct ddpi_clause *clause, struct ddpi_clauses after,
                              struct ddp_error *err)
{
    for (struct ddpi_clause other; ddpi_clauses_next(&after, &other);) {
        if (is_condition(&other))
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "the condition on '%.*s' comes after a change; conditions come "
                                  "first",
                                  KV_QUOTE(other.key));
        if (ddpi_bytes_equal(clause->key, other.key))
            return ddpi_error_set(err, DDP_E_INVALID, "a transaction changes '%.*s' twice",
                                  KV_QUOTE(other.key));
    }
    return DDP_OK;
}

static ddp_status check_form(const struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    if (clauses.count > DDP_STORE_CLAUSES_MAX)
        return ddpi_error_set(&call->err, DDP_E_LIMIT,
                              "a transaction of %u clauses; at most %d are allowed", clauses.count,
                              DDP_STORE_CLAUSES_MAX);
    for (struct ddpi_clause clause; ddpi_clauses_next(&clauses, &clause);) {
        ddp_status status = check_clause(kv, &clause, &call->err);
        if (status == DDP_OK && is_change(&clause))
            status = check_after(&clause, clauses, &call->err);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

static ddp_status check_condition(const struct ddpi_kv *kv, const struct ddpi_clause *clause,
                                  struct kv_call *call)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, clause->key);
    uint64_t version = entry != NULL ? entry->version : 0;
    if (clause->kind == DDPI_IF_VERSION && version != clause->version) {
        call->reply.version = version;
        return ddpi_error_set(&call->err, DDP_E_CONFLICT,
                              "'%.*s' has version %" PRIu64 ", not %" PRIu64,
                              KV_QUOTE_SEEN(call->client, clause->key), version, clause->version);
    }
    if (clause->kind == DDPI_IF_VALUE &&
        (entry == NULL || !ddpi_bytes_equal(clause->value, ddpi_kv_value(entry)))) {
        call->reply.version = version;
        return ddpi_error_set(&call->err, DDP_E_CONFLICT,
                              entry == NULL ? "there is no key '%.*s'"
                                            : "'%.*s' does not have the expected value",
                              KV_QUOTE_SEEN(call->client, clause->key));
    }
    return DDP_OK;
}

/* The next of @clauses, with its full key, which is valid until the next call. */
static bool next_clause(const struct ddpi_kv *kv, const struct kv_call *call,
                        struct ddpi_clauses *clauses, struct ddpi_clause *ret)
{
    /* The lengths have been checked. */
    return ddpi_clauses_next(clauses, ret) &&
           ddpi_kv_full_key(kv, call->client, ret->key, &ret->key, NULL) == DDP_OK;
}

static ddp_status check_conditions(const struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    ddp_status status = DDP_OK;
    for (struct ddpi_clause clause; status == DDP_OK && next_clause(kv, call, &clauses, &clause);)
        status = check_condition(kv, &clause, call);
    return status;
}

/* What changes need of one account. */
struct need {
    struct kv_account *account; /* NULL: none yet */
    size_t keys;
    size_t bytes;
};

/* A client that sees all keys may change those of many jobs; the last job is charged for all. */
static void add_need(struct ddpi_kv *kv, struct need needs[2], const struct ddpi_clause *clause)
{
    const struct kv_entry *entry = ddpi_kv_find(kv, clause->key);
    size_t held = entry != NULL ? entry->value_len : 0;
    struct kv_account *account = ddpi_kv_account_get(kv, clause->key);
    struct need *need = &needs[account == kv->reserve];
    if (need->account != account)
        ddpi_kv_account_release(kv, need->account);
    need->account = account;
    need->keys += entry == NULL || entry->version == 0;
    need->bytes += clause->value.len > held ? clause->value.len - held : 0;
    need->bytes += entry == NULL ? ddpi_kv_entry_size(clause->key.len) : 0;
}

/* Whether the client may make the changes, and there is room. The room that deletes return is not
 * counted: for a moment the new values exist together with the old ones. */
static ddp_status check_changes(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    struct need needs[2] = {{0}};
    for (struct ddpi_clause clause; next_clause(kv, call, &clauses, &clause);) {
        ddp_status status =
            is_change(&clause) ? ddpi_kv_check_owner(kv, clause.key, &call->err) : DDP_OK;
        if (status != DDP_OK)
            return status;
        if (clause.kind == DDPI_THEN_SET)
            add_need(kv, needs, &clause);
    }
    ddp_status status = DDP_OK;
    for (size_t i = 0; i < 2 && status == DDP_OK; i++)
        if (needs[i].keys > 0 || needs[i].bytes > 0)
            status = ddpi_kv_check_growth(kv, needs[i].account, needs[i].keys, needs[i].bytes,
                                          &call->err);
    return status;
}

/* Allocates all that the changes need: *@ret_count of them in @changes, or none. */
static ddp_status prepare_changes(struct ddpi_kv *kv, struct kv_call *call,
                                  struct kv_change *changes, size_t *ret_count)
{
    struct ddpi_clauses clauses = call->request->clauses;
    ddp_status status = DDP_OK;
    size_t count = 0;
    for (struct ddpi_clause clause; status == DDP_OK && next_clause(kv, call, &clauses, &clause);) {
        if (clause.kind != DDPI_THEN_SET)
            continue;
        status = ddpi_kv_prepare(kv, clause.key, clause.value, &changes[count], &call->err);
        count += status == DDP_OK;
    }
    if (status == DDP_OK)
        *ret_count = count;
    else
        while (count > 0)
            ddpi_kv_abandon(kv, &changes[--count]);
    return status;
}

static void delete_keys(struct ddpi_kv *kv, const struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    for (struct ddpi_clause clause; next_clause(kv, call, &clauses, &clause);) {
        if (clause.kind != DDPI_THEN_DELETE)
            continue;
        struct kv_entry *entry = ddpi_kv_find_value(kv, clause.key);
        if (entry != NULL)
            ddpi_kv_drop(kv, entry);
    }
}

ddp_status ddpi_kv_transact(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_change changes[DDP_STORE_CLAUSES_MAX];
    size_t count = 0;
    ddp_status status = check_form(kv, call);
    if (status == DDP_OK)
        status = check_conditions(kv, call);
    if (status == DDP_OK)
        status = check_changes(kv, call);
    if (status == DDP_OK)
        status = prepare_changes(kv, call, changes, &count);
    if (status != DDP_OK)
        return status;
    delete_keys(kv, call);
    for (size_t i = 0; i < count; i++) {
        ddpi_kv_commit(kv, &changes[i]);
        ddpi_kv_written(kv, changes[i].entry);
    }
    call->reply.version = kv->version;
    return DDP_OK;
}
