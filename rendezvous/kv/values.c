/*
 * values.c - how keys get their values: by a request, by a transaction, by the owner of the store,
 * who is past the limits and the reserved prefix, and from a sink. Owns nothing; the entries are
 * entries.c's.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <ctype.h>
#include <ddprun/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A new value with all the memory that it takes: either committed, which cannot fail and answers
 * the requests that wait for the key to exist, or abandoned. An entry has one at a time. */
struct kv_change {
    struct kv_entry *entry;
    char *value;             /* NULL: it is as long as the old one, and takes its place */
    struct ddpi_bytes bytes; /* of the request */
    struct kv_tie *tie;      /* to the session that the key goes with; NULL: none */
};

void ddpi_kv_reserve(struct ddpi_kv *kv, const char *prefix)
{
    kv->reserved = prefix;
}

ddp_status ddpi_kv_check_owner(const struct ddpi_kv *kv, struct ddpi_bytes key,
                               struct ddp_error *err)
{
    size_t len = strlen(kv->reserved);
    if (len == 0 || !ddpi_bytes_has_prefix(key, ddpi_bytes_of(kv->reserved, len)))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_DENIED, "only the server changes keys that begin with '%s'",
                          kv->reserved);
}

/* Whether the entry of a rounds' key exists only as a client waits for it that may not use the
 * reserve, and has paid for it. With its value it moves to the reserve. */
static bool paid_by_waiter(const struct ddpi_kv *kv, const struct kv_entry *entry)
{
    return entry->version == 0 && entry->queue == NULL && entry->account != kv->reserve &&
           ddpi_kv_is_reserved(ddpi_kv_name(entry));
}

static void move_to_reserve(struct ddpi_kv *kv, struct kv_entry *entry)
{
    size_t size = ddpi_kv_entry_size(entry->node.key_len);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, size);
    entry->account = kv->reserve;
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, size);
}

/* What a value needs besides its own bytes. */
static size_t entry_needs(const struct ddpi_kv *kv, const struct kv_entry *entry, size_t key_len)
{
    return entry == NULL || paid_by_waiter(kv, entry) ? ddpi_kv_entry_size(key_len) : 0;
}

static ddp_status value_check_room(struct ddpi_kv *kv, const struct kv_entry *entry,
                                   struct ddpi_bytes key, size_t value_len, struct ddp_error *err)
{
    bool fresh = entry == NULL || entry->version == 0;
    size_t held = fresh ? 0 : entry->value_len;
    size_t needed = value_len > held ? value_len - held : 0;
    struct kv_account *account =
        entry != NULL && !paid_by_waiter(kv, entry) ? entry->account : ddpi_kv_account_get(kv, key);
    needed += entry_needs(kv, entry, key.len);
    return ddpi_kv_check_growth(kv, account, fresh, needed, err);
}

static ddp_status change_prepare(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                                 struct kv_change *ret, struct ddp_error *err)
{
    struct kv_change change = {.entry = ddpi_kv_seek(kv, key), .bytes = value};
    if (change.entry != NULL && change.entry->version != 0 &&
        change.entry->value_len == value.len) {
        *ret = change;
        return DDP_OK;
    }
    change.value = ddpi_strndup(value.data, value.len);
    if (change.value == NULL)
        return ddpi_error_nomem(err, value.len);
    if (change.entry == NULL)
        change.entry = ddpi_kv_entry_make(kv, ddpi_kv_account_get(kv, key), key);
    if (change.entry == NULL) {
        ddpi_free(change.value);
        return ddpi_error_nomem(err, ddpi_kv_entry_size(key.len));
    }
    *ret = change;
    return DDP_OK;
}

static void entry_set_value(struct kv_entry *entry, const struct kv_change *change)
{
    if (change->value == NULL) {
        if (change->bytes.len > 0)
            memcpy(entry->value, change->bytes.data, change->bytes.len);
        return;
    }
    ddpi_free(entry->value);
    entry->value = change->value;
    entry->value_len = change->bytes.len;
}

static void change_commit(struct ddpi_kv *kv, const struct kv_change *change)
{
    struct kv_entry *entry = change->entry;
    bool fresh = entry->version == 0;
    if (paid_by_waiter(kv, entry))
        move_to_reserve(kv, entry);
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, change->bytes.len);
    ddpi_kv_refund(kv, entry->account, KV_ROOM_BYTES, entry->value_len);
    ddpi_kv_charge(kv, entry->account, KV_ROOM_KEYS, fresh);
    if (fresh)
        ddpi_kv_scope_count(kv, ddpi_kv_name(entry), 1);
    ddpi_kv_untie(kv, entry);
    if (change->tie != NULL)
        ddpi_kv_tie(kv, change->tie, entry);
    entry_set_value(entry, change);
    entry->version = ++kv->version;
    ddpi_kv_changed(kv, DDPI_CHANGE_SET, entry);
    if (fresh)
        ddpi_kv_appeared(kv, entry);
}

static void change_abandon(struct ddpi_kv *kv, const struct kv_change *change)
{
    ddpi_free(change->value);
    ddpi_kv_entry_release(kv, change->entry);
}

/* Gives @key a value, and answers the requests that wait for it to exist; put() also answers those
 * that wait for a write. @tie is taken over if it succeeds. */
static ddp_status store_value(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                              struct kv_tie *tie, struct kv_entry **ret_entry,
                              struct ddp_error *err)
{
    const struct kv_entry *entry = ddpi_kv_seek(kv, key);
    ddp_status status = ddpi_kv_check_owner(kv, key, err);
    if (status == DDP_OK)
        status = value_check_room(kv, entry, key, value.len, err);
    struct kv_change change;
    if (status == DDP_OK)
        status = change_prepare(kv, key, value, &change, err);
    if (status != DDP_OK)
        return status;
    change.tie = tie;
    change_commit(kv, &change);
    *ret_entry = change.entry;
    return DDP_OK;
}

static ddp_status put(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                      struct kv_tie *tie, uint64_t *ret_version, struct ddp_error *err)
{
    struct kv_entry *entry;
    ddp_status status = store_value(kv, key, value, tie, &entry, err);
    if (status != DDP_OK)
        return status;
    *ret_version = entry->version;
    ddpi_kv_written(kv, entry);
    return DDP_OK;
}

ddp_status ddpi_kv_put(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                       uint64_t *ret_version, struct ddp_error *err)
{
    return put(kv, key, value, NULL, ret_version, err);
}

ddp_status ddpi_kv_put_tied(struct ddpi_kv *kv, struct kv_call *call, struct kv_tie *tie)
{
    ddp_status status =
        put(kv, call->key, call->request->value, tie, &call->reply.version, &call->err);
    if (status != DDP_OK)
        ddpi_free(tie);
    return status;
}

ddp_status ddpi_kv_extend(struct ddpi_kv *kv, struct kv_entry *entry, struct ddpi_bytes more,
                          struct ddp_error *err)
{
    ddp_status status = ddpi_kv_check_owner(kv, ddpi_kv_name(entry), err);
    if (status != DDP_OK)
        return status;
    uint32_t most = kv->limits.value_len > kv->limits.tcpstore_value_len
                        ? kv->limits.value_len
                        : kv->limits.tcpstore_value_len;
    if (entry->value_len > most || more.len > most - entry->value_len)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "%zu bytes appended to a value of %zu; a value has at most %" PRIu32,
                              more.len, entry->value_len, most);
    status = ddpi_kv_check_growth(kv, entry->account, 0, more.len, err);
    if (status != DDP_OK)
        return status;
    size_t len = entry->value_len + more.len;
    char *value = ddpi_realloc(entry->value, len + 1, 1);
    if (value == NULL)
        return ddpi_error_nomem(err, len + 1);
    if (more.len > 0)
        memcpy(value + entry->value_len, more.data, more.len);
    value[len] = '\0';
    ddpi_kv_charge(kv, entry->account, KV_ROOM_BYTES, more.len);
    ddpi_kv_untie(kv, entry);
    entry->value = value;
    entry->value_len = len;
    entry->version = ++kv->version;
    ddpi_kv_changed(kv, DDPI_CHANGE_SET, entry);
    return DDP_OK;
}

/* The number that @text begins with, as strtoll reads it; false if there is none, or it does not
 * fit. */
static bool leading_number(const char *text, int64_t *ret)
{
    while (isspace((unsigned char)*text))
        text++;
    bool negative = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    if (!isdigit((unsigned char)*text))
        return false;
    int64_t sum = 0;
    for (; isdigit((unsigned char)*text); text++) {
        int digit = *text - '0';
        if (__builtin_mul_overflow(sum, 10, &sum) ||
            __builtin_add_overflow(sum, negative ? -digit : digit, &sum))
            return false;
    }
    *ret = sum;
    return true;
}

ddp_status ddpi_kv_count_up(struct ddpi_kv *kv, struct kv_call *call, int64_t delta,
                            int64_t *ret_sum, struct kv_entry **ret_entry)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, call->key);
    int64_t sum = 0;
    if (entry != NULL && !leading_number(entry->value, &sum))
        return ddpi_error_set(&call->err, DDP_E_TYPE,
                              "the value of '%.*s' does not begin with a 64-bit integer",
                              KV_QUOTE(call->request->key));
    (void)__builtin_add_overflow(sum, delta, &sum); /* it wraps */
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, sum);
    ddp_status status =
        store_value(kv, call->key, ddpi_bytes_of(text, (size_t)len), NULL, ret_entry, &call->err);
    if (status == DDP_OK)
        *ret_sum = sum;
    return status;
}

/* ---- the owner of the store ---- */

struct ddpi_bytes ddpi_kv_peek(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    const struct kv_entry *entry = ddpi_kv_find_value(kv, key);
    return entry != NULL ? ddpi_kv_value(entry) : ddpi_bytes_of(NULL, 0);
}

ddp_status ddpi_kv_poke(struct ddpi_kv *kv, struct ddpi_bytes key, struct ddpi_bytes value,
                        struct ddp_error *err)
{
    struct kv_change change;
    ddp_status status = change_prepare(kv, key, value, &change, err);
    if (status != DDP_OK)
        return status;
    change_commit(kv, &change);
    ddpi_kv_written(kv, change.entry);
    return DDP_OK;
}

void ddpi_kv_remove(struct ddpi_kv *kv, struct ddpi_bytes key)
{
    struct kv_entry *entry = ddpi_kv_find_value(kv, key);
    if (entry != NULL)
        ddpi_kv_drop(kv, entry);
}

void ddpi_kv_each(const struct ddpi_kv *kv, struct ddpi_bytes prefix,
                  bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                  void *ctx)
{
    ddpi_kv_each_from(kv, prefix, prefix, visit, ctx);
}

void ddpi_kv_each_from(const struct ddpi_kv *kv, struct ddpi_bytes from, struct ddpi_bytes prefix,
                       bool (*visit)(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value),
                       void *ctx)
{
    for (const struct kv_entry *entry = ddpi_kv_order_from(kv, from, prefix); entry != NULL;
         entry = ddpi_kv_order_next(kv, entry, prefix))
        if (ddpi_kv_has_value(entry) && !visit(ctx, ddpi_kv_name(entry), ddpi_kv_value(entry)))
            return;
}

/* ---- transactions ---- */

/* Conditions on some keys, and changes to some that are made all together or not at all.
 *
 * Everything that can fail, memory included, comes before the first change. Then keys are deleted
 * before others are set; no key is changed twice. So a request that waits for several keys never
 * sees one that is about to go together with one that has just come. */

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
    need->bytes += entry_needs(kv, entry, clause->key.len);
}

static ddp_status check_owners(const struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    ddp_status status = DDP_OK;
    for (struct ddpi_clause clause; status == DDP_OK && next_clause(kv, call, &clauses, &clause);)
        if (is_change(&clause))
            status = ddpi_kv_check_owner(kv, clause.key, &call->err);
    return status;
}

static ddp_status check_need(struct ddpi_kv *kv, const struct need *need, struct ddp_error *err)
{
    return need->keys == 0 && need->bytes == 0
               ? DDP_OK
               : ddpi_kv_check_growth(kv, need->account, need->keys, need->bytes, err);
}

/* Whether there is room for the changes. The room that deletes return is not counted: for a moment
 * the new values exist together with the old ones. The account of a job may be new; it does not
 * stay if there is none. */
static ddp_status check_growth(struct ddpi_kv *kv, struct kv_call *call)
{
    struct ddpi_clauses clauses = call->request->clauses;
    struct need needs[2] = {{0}};
    for (struct ddpi_clause clause; next_clause(kv, call, &clauses, &clause);)
        if (clause.kind == DDPI_THEN_SET)
            add_need(kv, needs, &clause);
    ddp_status status = check_need(kv, &needs[1], &call->err);
    if (status == DDP_OK)
        return check_need(kv, &needs[0], &call->err); /* releases the account itself */
    ddpi_kv_account_release(kv, needs[0].account);
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
        status = change_prepare(kv, clause.key, clause.value, &changes[count], &call->err);
        count += status == DDP_OK;
    }
    if (status == DDP_OK)
        *ret_count = count;
    else
        while (count > 0)
            change_abandon(kv, &changes[--count]);
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
        status = check_owners(kv, call);
    if (status == DDP_OK)
        status = check_growth(kv, call);
    if (status == DDP_OK)
        status = prepare_changes(kv, call, changes, &count);
    if (status != DDP_OK)
        return status;
    delete_keys(kv, call);
    for (size_t i = 0; i < count; i++) {
        change_commit(kv, &changes[i]);
        ddpi_kv_written(kv, changes[i].entry);
    }
    call->reply.version = kv->version;
    return DDP_OK;
}

/* ---- contents that a sink has kept ---- */

static ddp_status restore_key(struct ddpi_kv *kv, const struct ddpi_mutation *mutation,
                              struct ddp_error *err)
{
    struct kv_change change;
    if (mutation->version == 0 || ddpi_kv_find_value(kv, mutation->key) != NULL)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a key has no version, or comes twice");
    ddp_status status = change_prepare(kv, mutation->key, mutation->value, &change, err);
    if (status != DDP_OK)
        return status;
    kv->version = mutation->version - 1;
    change_commit(kv, &change);
    return mutation->session != 0 ? ddpi_kv_session_tie(kv, mutation->session, change.entry, err)
                                  : DDP_OK;
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
