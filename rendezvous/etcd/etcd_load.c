/*
 * etcd_load.c - see etcd_load.h. Owns copies of all records until they are given.
 */
#include "etcd_load.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    FIRST_LIMIT = 64,
    /* Two costs meet. For each page a member counts all keys that are left, so few pages are good.
     * And it gathers a page before it sends the first byte: so many of the longest values take it
     * seconds, so the limit grows only while the values are short. */
    MOST_LIMIT = 1024,
    PAGE_TARGET = 4 * 1024 * 1024, /* bytes of the answer */
    KV_OVERHEAD = 128,             /* of it, for each key: names, revisions */
    SHORTEN = 16,                  /* so a few tries lead from many short values to the longest */
};

struct etcd_loaded {
    struct ddpi_etcd_record record; /* points into text */
    uint8_t text[];
};

void ddpi_etcd_load_init(struct ddpi_etcd_load *load, const char *root)
{
    *load = (struct ddpi_etcd_load){.limit = FIRST_LIMIT};
    snprintf(load->root, sizeof load->root, "%s", root);
    ddpi_buf_init(&load->cursor, 2 * DDPI_ETCD_KEY_MAX);
}

void ddpi_etcd_load_finish(struct ddpi_etcd_load *load)
{
    for (size_t i = 0; i < load->count; i++)
        ddpi_free(load->records[i]);
    ddpi_free(load->records);
    ddpi_buf_finish(&load->cursor);
    load->records = NULL;
    load->count = load->size = 0;
}

/* ---- pages ---- */

bool ddpi_etcd_load_put_request(struct ddpi_etcd_load *load, struct ddpi_buf *buf)
{
    struct ddpi_buf end;
    const struct ddpi_bytes root = ddpi_bytes_of(load->root, strlen(load->root));
    ddpi_buf_init(&end, DDPI_ETCD_ROOT_MAX);
    bool good =
        ddpi_etcd_prefix_end(root, &end) &&
        (ddpi_buf_len(&load->cursor) > 0 || ddpi_buf_append(&load->cursor, root.data, root.len));
    const struct ddpi_etcd_range range = {
        .key = ddpi_bytes_of(ddpi_buf_head(&load->cursor), ddpi_buf_len(&load->cursor)),
        .end = ddpi_bytes_of(ddpi_buf_head(&end), ddpi_buf_len(&end)),
        .revision = load->revision,
        .limit = load->limit};
    good = good && ddpi_etcd_put_range(buf, &range);
    ddpi_buf_finish(&end);
    return good;
}

static ddp_status grow(struct ddpi_etcd_load *load, struct ddp_error *err)
{
    if (load->count < load->size)
        return DDP_OK;
    size_t size = load->size > 0 ? 2 * load->size : FIRST_LIMIT;
    struct etcd_loaded **longer = ddpi_realloc(load->records, size, sizeof *longer);
    if (longer == NULL)
        return ddpi_error_nomem(err, size * sizeof *longer);
    load->records = longer;
    load->size = size;
    return DDP_OK;
}

static ddp_status take_record(struct ddpi_etcd_load *load, struct ddpi_bytes rest,
                              struct ddpi_bytes value, struct ddp_error *err)
{
    ddp_status status = grow(load, err);
    if (status != DDP_OK)
        return status;
    size_t len = rest.len + value.len;
    struct etcd_loaded *loaded = ddpi_calloc(1, sizeof(*loaded) + len);
    if (loaded == NULL)
        return ddpi_error_nomem(err, len);
    memcpy(loaded->text, rest.data, rest.len);
    if (value.len > 0)
        memcpy(loaded->text + rest.len, value.data, value.len);
    load->records[load->count++] = loaded;
    return ddpi_etcd_get_record(ddpi_bytes_of(loaded->text, rest.len),
                                ddpi_bytes_of(loaded->text + rest.len, value.len), &loaded->record,
                                err);
}

uint32_t ddpi_etcd_load_next_limit(uint32_t limit, size_t keys, size_t bytes)
{
    size_t each = bytes / keys * 4 / 3 + KV_OVERHEAD; /* base64 */
    size_t fitting = PAGE_TARGET / each;
    uint32_t most = limit < MOST_LIMIT / 2 ? 2 * limit : MOST_LIMIT;
    if (fitting == 0)
        return 1;
    return fitting < most ? (uint32_t)fitting : most;
}

bool ddpi_etcd_load_shorten(struct ddpi_etcd_load *load)
{
    bool could = load->limit > 1;
    load->limit = load->limit > SHORTEN ? load->limit / SHORTEN : 1;
    return could;
}

struct etcd_page {
    struct ddpi_etcd_load *load;
    size_t keys;
    size_t bytes;
};

static ddp_status take_kv(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct etcd_page *page = ctx;
    struct ddpi_etcd_load *load = page->load;
    const struct ddpi_bytes root = ddpi_bytes_of(load->root, strlen(load->root));
    if (!ddpi_bytes_has_prefix(kv->key, root))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "etcd has answered with a key of others");
    ddpi_buf_consume(&load->cursor, ddpi_buf_len(&load->cursor));
    if (!ddpi_buf_append(&load->cursor, kv->key.data, kv->key.len) ||
        !ddpi_buf_put_u8(&load->cursor, 0)) /* the next key */
        return ddpi_error_nomem(err, kv->key.len);
    page->keys++;
    page->bytes += kv->key.len + kv->value.len;
    const struct ddpi_bytes rest =
        ddpi_bytes_of((const char *)kv->key.data + root.len, kv->key.len - root.len);
    if (ddpi_bytes_equal(rest, ddpi_bytes_of("leader", 6)))
        return DDP_OK;
    if (!ddpi_bytes_equal(rest, ddpi_bytes_of("meta", 4)))
        return take_record(load, rest, kv->value, err);
    load->has_meta = true;
    return ddpi_etcd_get_meta(kv->value, &load->meta, err);
}

ddp_status ddpi_etcd_load_take_page(struct ddpi_etcd_load *load,
                                    const struct ddpi_etcd_reply *reply, bool *ret_more,
                                    struct ddp_error *err)
{
    struct etcd_page page = {.load = load};
    if (load->revision == 0)
        load->revision = reply->revision;
    ddp_status status = ddpi_etcd_each_kv(reply->root, take_kv, &page, err);
    *ret_more = page.keys >= load->limit;
    if (page.keys > 0)
        load->limit = ddpi_etcd_load_next_limit(load->limit, page.keys, page.bytes);
    if (status == DDP_OK && !*ret_more && !load->has_meta)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the record 'meta' is missing");
    return status;
}

/* ---- the journal ---- */

ddp_status ddpi_etcd_load_journal(const struct ddpi_etcd_load *load, struct ddpi_list *ret,
                                  struct ddp_error *err)
{
    uint64_t count = load->meta.journal, next = 0;
    ddp_status status = DDP_OK;
    for (size_t i = 0; status == DDP_OK && i < load->count; i++) {
        const struct ddpi_etcd_record *record = &load->records[i]->record;
        if (record->section != DDPI_ETCD_SECTION_JOURNAL || record->queued >= count)
            continue; /* those are of a journal that was never complete */
        bool gap = !ddpi_list_empty(ret) && record->queued != next;
        next = record->queued + 1;
        status = gap ? ddpi_error_set(err, DDP_E_PROTOCOL, "a part of the journal is missing")
                     : ddpi_etcd_journal_read(load->root, record->queued, count,
                                              record->mutation.value, ret, err);
    }
    if (status == DDP_OK && count > 0 && next != count)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the end of the journal is missing");
    return status;
}

/* ---- giving ---- */

/* The order of ddpi_kv_restore(). */
static int rank_of(enum ddpi_etcd_section section)
{
    static const char order[] = {DDPI_ETCD_SECTION_SESSION,  DDPI_ETCD_SECTION_KEY,
                                 DDPI_ETCD_SECTION_DETACHED, DDPI_ETCD_SECTION_QUEUED,
                                 DDPI_ETCD_SECTION_PAST,     DDPI_ETCD_SECTION_JOURNAL};
    const char *found = memchr(order, (int)section, sizeof order);
    return found != NULL ? (int)(found - order) : 0;
}

/* Within a section: by version, or by number. */
static uint64_t place_of(const struct ddpi_etcd_record *record)
{
    switch (record->section) {
    case DDPI_ETCD_SECTION_SESSION:
        return record->mutation.session;
    case DDPI_ETCD_SECTION_QUEUED:
    case DDPI_ETCD_SECTION_JOURNAL:
        return record->queued;
    case DDPI_ETCD_SECTION_DETACHED:
        return record->mutation.number;
    case DDPI_ETCD_SECTION_KEY:
    case DDPI_ETCD_SECTION_PAST:
        break;
    }
    return record->mutation.version;
}

static int compare_loaded(const void *a, const void *b)
{
    const struct ddpi_etcd_record *left = &(*(struct etcd_loaded *const *)a)->record;
    const struct ddpi_etcd_record *right = &(*(struct etcd_loaded *const *)b)->record;
    int ranks = rank_of(left->section) - rank_of(right->section);
    uint64_t here = place_of(left), there = place_of(right);
    return ranks != 0 ? ranks : (here > there) - (here < there);
}

/* A deletion in progress covers earlier values of queues, which have no versions by which the core
 * could tell. */
static bool is_detached(const struct ddpi_etcd_load *load, size_t first_deletion,
                        const struct ddpi_etcd_record *queued)
{
    for (size_t i = first_deletion; i < load->count; i++) {
        const struct ddpi_etcd_record *record = &load->records[i]->record;
        if (record->section != DDPI_ETCD_SECTION_DETACHED)
            break;
        if (queued->queued <= record->queued &&
            ddpi_bytes_has_prefix(queued->mutation.key, record->mutation.key))
            return true;
    }
    return false;
}

struct etcd_giving {
    ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err);
    void *ctx;
    size_t first_deletion; /* its index; the count: there is none */
};

static ddp_status give_record(struct ddpi_etcd_load *load, struct ddpi_etcd_batch *batch,
                              const struct ddpi_etcd_record *record,
                              const struct etcd_giving *giving, struct ddp_error *err)
{
    const struct ddpi_mutation *mutation = &record->mutation;
    if (record->section == DDPI_ETCD_SECTION_JOURNAL)
        return DDP_OK; /* the next journal takes its place */
    bool queued = record->section == DDPI_ETCD_SECTION_QUEUED;
    if (queued && is_detached(load, giving->first_deletion, record))
        return ddpi_etcd_batch_drop_queued(batch, record->queued, err);
    ddp_status status = giving->take(giving->ctx, mutation, err);
    if (status == DDP_OK && queued)
        status = ddpi_etcd_batch_know_queued(batch, mutation->key, record->queued, err);
    return status;
}

ddp_status ddpi_etcd_load_give(struct ddpi_etcd_load *load, struct ddpi_etcd_batch *batch,
                               const uint8_t seed[DDPI_SEED_SIZE],
                               ddp_status (*take)(void *ctx, const struct ddpi_mutation *mutation,
                                                  struct ddp_error *err),
                               void *ctx, struct ddp_error *err)
{
    struct etcd_giving giving = {.take = take, .ctx = ctx, .first_deletion = load->count};
    ddp_status status = DDP_OK;
    ddpi_etcd_batch_init(batch, load->root, &load->meta, seed);
    if (load->count > 0)
        qsort(load->records, load->count, sizeof *load->records, compare_loaded);
    for (size_t i = 0; status == DDP_OK && i < load->count; i++) {
        const struct ddpi_etcd_record *record = &load->records[i]->record;
        if (record->section == DDPI_ETCD_SECTION_DETACHED && i < giving.first_deletion)
            giving.first_deletion = i;
        status = give_record(load, batch, record, &giving, err);
    }
    return status;
}
