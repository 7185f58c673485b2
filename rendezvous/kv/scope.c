/*
 * scope.c - scopes: a client with a scope sees the keys with one prefix only, without that prefix.
 * Owns the scopes.
 *
 * A scope counts its keys from the first request for their number. Scopes are sorted by prefix, and
 * each points to the innermost scope around it. The scopes of a key are found from the last one
 * that does not sort after the key: that one, if the key begins with its prefix, and those around
 * it.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

struct ddpi_kv_scope {
    struct ddpi_kv_scope *outer;
    bool counted; /* nkeys has all keys, and follows their changes */
    size_t nkeys;
    struct kv_cursor cursor; /* while counting: the last key counted */
    unsigned refs;
    size_t len;
    char prefix[];
};

static struct ddpi_bytes scope_prefix_of(const struct ddpi_kv_scope *scope)
{
    return ddpi_bytes_of(scope->prefix, scope->len);
}

struct ddpi_bytes ddpi_kv_scope_prefix(const struct ddpi_kv_scope *scope)
{
    return scope != NULL ? scope_prefix_of(scope) : ddpi_bytes_of("", 0);
}

/* Counts the keys after the cursor, as far as there is work left. */
static ddp_status count_some(struct ddpi_kv *kv, struct ddpi_kv_scope *scope, struct ddp_error *err)
{
    struct ddpi_bytes prefix = scope_prefix_of(scope);
    const struct kv_entry *last = NULL, *entry = ddpi_kv_cursor_next(kv, &scope->cursor, prefix);
    for (; entry != NULL && ddpi_kv_take_work(kv); entry = ddpi_kv_order_next(kv, entry, prefix)) {
        scope->nkeys += ddpi_kv_has_value(entry);
        last = entry;
    }
    scope->counted = entry == NULL;
    ddp_status status = DDP_OK;
    if (!scope->counted && last != NULL)
        status = ddpi_kv_cursor_set(&scope->cursor, ddpi_kv_name(last), err);
    if (scope->counted || status != DDP_OK)
        ddpi_kv_cursor_finish(&scope->cursor);
    scope->nkeys = status == DDP_OK ? scope->nkeys : 0; /* begins again the next time */
    return status;
}

ddp_status ddpi_kv_scope_nkeys(struct ddpi_kv *kv, struct ddpi_kv_scope *scope, size_t *ret,
                               bool *ret_done, struct ddp_error *err)
{
    *ret_done = true;
    if (scope == NULL) {
        *ret = kv->used[KV_ROOM_KEYS];
        *ret_done = !ddpi_kv_has_gone(kv);
        return DDP_OK;
    }
    ddp_status status = scope->counted ? DDP_OK : count_some(kv, scope, err);
    *ret_done = scope->counted;
    *ret = scope->nkeys;
    return status;
}

/* How many scopes do not sort after @key. */
static size_t scope_rank(const struct ddpi_kv *kv, struct ddpi_bytes key)
{
    size_t low = 0, high = kv->nscopes;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ddpi_bytes_compare(scope_prefix_of(kv->scopes[middle]), key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The innermost scope around @key, of the first @rank ones. */
static struct ddpi_kv_scope *scope_around(const struct ddpi_kv *kv, struct ddpi_bytes key,
                                          size_t rank)
{
    struct ddpi_kv_scope *scope = rank > 0 ? kv->scopes[rank - 1] : NULL;
    while (scope != NULL && !ddpi_bytes_has_prefix(key, scope_prefix_of(scope)))
        scope = scope->outer;
    return scope;
}

/* Whether @key has been counted. */
static bool cursor_has_passed(const struct kv_cursor *cursor, struct ddpi_bytes key)
{
    return cursor->key != NULL &&
           ddpi_bytes_compare(key, ddpi_bytes_of(cursor->key, cursor->len)) <= 0;
}

void ddpi_kv_scope_count(struct ddpi_kv *kv, struct ddpi_bytes key, int change)
{
    struct ddpi_kv_scope *scope = scope_around(kv, key, scope_rank(kv, key));
    for (; scope != NULL; scope = scope->outer)
        if (scope->counted || cursor_has_passed(&scope->cursor, key))
            scope->nkeys += (size_t)change;
}

void ddpi_kv_scope_recount(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    for (size_t i = 0; i < kv->nscopes; i++) {
        struct ddpi_kv_scope *scope = kv->scopes[i];
        if (!ddpi_bytes_has_prefix(prefix, scope_prefix_of(scope)) &&
            !ddpi_bytes_has_prefix(scope_prefix_of(scope), prefix))
            continue;
        ddpi_kv_cursor_finish(&scope->cursor);
        scope->counted = false;
        scope->nkeys = 0;
    }
}

static struct ddpi_kv_scope *scope_find(const struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    size_t rank = scope_rank(kv, prefix);
    bool there = rank > 0 && ddpi_bytes_equal(scope_prefix_of(kv->scopes[rank - 1]), prefix);
    return there ? kv->scopes[rank - 1] : NULL;
}

/* Moves scopes with @prefix, from @rank on, that are directly inside @from into @to. */
static void move_inner(struct ddpi_kv *kv, size_t rank, struct ddpi_bytes prefix,
                       const struct ddpi_kv_scope *from, struct ddpi_kv_scope *to)
{
    for (; rank < kv->nscopes && ddpi_bytes_has_prefix(scope_prefix_of(kv->scopes[rank]), prefix);
         rank++)
        if (kv->scopes[rank]->outer == from)
            kv->scopes[rank]->outer = to;
}

static void scope_insert(struct ddpi_kv *kv, struct ddpi_kv_scope *scope)
{
    struct ddpi_bytes prefix = scope_prefix_of(scope);
    size_t rank = scope_rank(kv, prefix);
    scope->outer = scope_around(kv, prefix, rank);
    move_inner(kv, rank, prefix, scope->outer, scope);
    memmove(kv->scopes + rank + 1, kv->scopes + rank,
            (kv->nscopes - rank) * sizeof(struct ddpi_kv_scope *));
    kv->scopes[rank] = scope;
    kv->nscopes++;
}

/* NULL: no memory. */
static struct ddpi_kv_scope *scope_make(struct ddpi_kv *kv, struct ddpi_bytes prefix)
{
    struct ddpi_kv_scope **scopes =
        ddpi_realloc(kv->scopes, kv->nscopes + 1, sizeof(struct ddpi_kv_scope *));
    if (scopes == NULL)
        return NULL;
    kv->scopes = scopes;
    struct ddpi_kv_scope *scope = ddpi_calloc(1, sizeof(*scope) + prefix.len + 1);
    if (scope == NULL)
        return NULL;
    scope->len = prefix.len;
    if (prefix.len > 0)
        memcpy(scope->prefix, prefix.data, prefix.len);
    scope_insert(kv, scope);
    return scope;
}

ddp_status ddpi_kv_scope_get(struct ddpi_kv *kv, struct ddpi_bytes prefix,
                             struct ddpi_kv_scope **ret, struct ddp_error *err)
{
    if (prefix.len > DDPI_KV_SCOPE_MAX)
        return ddpi_error_set(err, DDP_E_LIMIT, "a prefix of %zu bytes; at most %d are allowed",
                              prefix.len, DDPI_KV_SCOPE_MAX);
    struct ddpi_kv_scope *scope = scope_find(kv, prefix);
    if (scope == NULL)
        scope = scope_make(kv, prefix);
    if (scope == NULL)
        return ddpi_error_nomem(err, sizeof(*scope) + prefix.len + 1);
    scope->refs++;
    *ret = scope;
    return DDP_OK;
}

void ddpi_kv_scope_put(struct ddpi_kv *kv, struct ddpi_kv_scope *scope)
{
    if (scope == NULL || --scope->refs > 0)
        return;
    struct ddpi_bytes prefix = scope_prefix_of(scope);
    size_t rank = scope_rank(kv, prefix); /* one after its own */
    kv->nscopes--;
    memmove(kv->scopes + rank - 1, kv->scopes + rank,
            (kv->nscopes - rank + 1) * sizeof(struct ddpi_kv_scope *));
    move_inner(kv, rank - 1, prefix, scope, scope->outer);
    ddpi_kv_cursor_finish(&scope->cursor);
    ddpi_free(scope);
}

void ddpi_kv_scope_finish(struct ddpi_kv *kv)
{
    ddpi_free(kv->scopes);
}

ddp_status ddpi_kv_full_key(const struct ddpi_kv *kv, const struct ddpi_kv_client *client,
                            struct ddpi_bytes key, struct ddpi_bytes *ret_full,
                            struct ddp_error *err)
{
    uint32_t max = client->tcpstore ? kv->limits.tcpstore_key_len : kv->limits.key_len;
    if (client->agent && max < DDPI_KV_RESERVED_KEY_MAX && ddpi_kv_is_reserved(key))
        max = DDPI_KV_RESERVED_KEY_MAX;
    if (key.len > max)
        return ddpi_error_set(err, DDP_E_LIMIT, "a key of %zu bytes; at most %u are allowed",
                              key.len, max);
    *ret_full = key;
    const struct ddpi_kv_scope *scope = client->scope;
    if (scope == NULL || scope->len == 0)
        return DDP_OK;
    memcpy(kv->full_key, scope->prefix, scope->len);
    if (key.len > 0)
        memcpy(kv->full_key + scope->len, key.data, key.len);
    *ret_full = ddpi_bytes_of(kv->full_key, scope->len + key.len);
    return DDP_OK;
}

struct ddpi_bytes ddpi_kv_seen_key(const struct ddpi_kv_client *client, struct ddpi_bytes full)
{
    size_t hidden = client->scope != NULL ? client->scope->len : 0;
    return ddpi_bytes_of((const char *)full.data + hidden, full.len - hidden);
}

ddp_status ddpi_kv_next_key(const struct ddpi_kv *kv, struct kv_call *call, struct ddpi_keys *keys,
                            struct ddpi_bytes *ret_full, bool *ret_more)
{
    struct ddpi_bytes key;
    *ret_more = ddpi_keys_next(keys, &key);
    return *ret_more ? ddpi_kv_full_key(kv, call->client, key, ret_full, &call->err) : DDP_OK;
}
