/*
 * etcd_model.c - etcd as a list of keys, with etcd's rules, and the sink that writes to it with the
 * codec of etcd. A load takes several pages, and applies a complete journal first, as a new leader
 * does.
 */
#include "etcd_model.h"

#include "check_main.h"
#include "etcd_load.h"
#include "sink_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 4096 };

/* ---- a model of etcd ---- */

static struct model_key {
    char *key, *value;
    size_t key_len, value_len;
} model[RECORDS];
static size_t nmodel;
static uint64_t revision;

static size_t model_find(const uint8_t *key, size_t len)
{
    size_t i = 0;
    while (i < nmodel && (model[i].key_len != len || memcmp(model[i].key, key, len) != 0))
        i++;
    return i;
}

static void model_remove(size_t i)
{
    free(model[i].key);
    free(model[i].value);
    model[i] = model[--nmodel];
}

static char *copy_of(const void *bytes, size_t len)
{
    char *copy = malloc(len + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, len);
    return copy;
}

static void model_put(const uint8_t *key, size_t key_len, const uint8_t *value, size_t value_len)
{
    size_t i = model_find(key, key_len);
    if (i < nmodel)
        model_remove(i);
    ck_assert_uint_lt(nmodel, RECORDS);
    model[nmodel++] =
        (struct model_key){copy_of(key, key_len), copy_of(value, value_len), key_len, value_len};
}

static void model_put_meta(const struct ddpi_etcd_meta *meta)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    ck_assert(ddpi_etcd_put_meta(&buf, meta));
    model_put((const uint8_t *)ETCD_MODEL_ROOT "meta", strlen(ETCD_MODEL_ROOT "meta"),
              ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    ddpi_buf_finish(&buf);
}

static void model_clear(void)
{
    while (nmodel > 0)
        model_remove(nmodel - 1);
}

static void model_forget(uint64_t version)
{
    struct ddpi_etcd_record record;
    for (size_t i = nmodel; i-- > 0;)
        if (model[i].key[strlen(ETCD_MODEL_ROOT)] == 'h' &&
            ddpi_etcd_get_record(ddpi_bytes_of(model[i].key + strlen(ETCD_MODEL_ROOT),
                                               model[i].key_len - strlen(ETCD_MODEL_ROOT)),
                                 ddpi_bytes_of(model[i].value, model[i].value_len), &record,
                                 NULL) == DDP_OK &&
            record.mutation.version <= version)
            model_remove(i);
}

/* One transaction, and etcd's limits on it. */
static void model_apply(const struct ddpi_etcd_chunk *chunk)
{
    ck_assert_uint_le(chunk->count + 1 + (chunk->forget > 0), 128);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct ddpi_etcd_chunk_op *op = &chunk->ops[i];
        for (size_t k = 0; k < i; k++)
            ck_assert(chunk->ops[k].key_len != op->key_len ||
                      memcmp(chunk->ops[k].bytes, op->bytes, op->key_len) != 0);
        size_t at = model_find(op->bytes, op->key_len);
        if (!op->deletes)
            model_put(op->bytes, op->key_len, op->bytes + op->key_len, op->value_len);
        else if (at < nmodel)
            model_remove(at);
    }
    model_forget(chunk->forget);
    model_put_meta(&chunk->meta);
    revision++;
}

static int compare_model(const void *a, const void *b)
{
    const struct model_key *left = a, *right = b;
    return ddpi_bytes_compare(ddpi_bytes_of(left->key, left->key_len),
                              ddpi_bytes_of(right->key, right->key_len));
}

/* The answer of etcd to the request for a page of @limit keys from @cursor. */
static void model_answer(struct ddpi_bytes cursor, uint32_t limit, struct ddpi_buf *ret)
{
    uint32_t count = 0;
    char header[80];
    snprintf(header, sizeof header, "{\"header\":{\"revision\":\"%" PRIu64 "\"},\"kvs\":[",
             revision);
    ck_assert(ddpi_etcd_put_text(ret, header));
    qsort(model, nmodel, sizeof *model, compare_model);
    for (size_t i = 0; i < nmodel && count < limit; i++) {
        const struct ddpi_bytes key = ddpi_bytes_of(model[i].key, model[i].key_len);
        if (ddpi_bytes_compare(key, cursor) < 0)
            continue;
        ck_assert(
            ddpi_etcd_put_text(ret, count++ > 0 ? ",{" : "{") &&
            ddpi_etcd_put_bytes(ret, "key", key) && ddpi_etcd_put_text(ret, ",") &&
            ddpi_etcd_put_bytes(ret, "value", ddpi_bytes_of(model[i].value, model[i].value_len)) &&
            ddpi_etcd_put_text(ret, "}"));
    }
    ck_assert(ddpi_etcd_put_text(ret, "]}\n"));
}

/* ---- the sink ---- */

static const uint8_t seed_of_tables[DDPI_SEED_SIZE] = {42};
static struct ddpi_etcd_batch batch;
static struct ddp_error why;
static struct ddpi_etcd_meta committed; /* what the last commit left */

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

static void etcd_setup(void)
{
    revision = 1;
    model_put_meta(&(struct ddpi_etcd_meta){.mark.incarnation = 7});
    sink_use(&sink_in_etcd);
}

static void load_pages(struct ddpi_etcd_load *load)
{
    struct ddpi_etcd_reply reply;
    struct ddpi_buf text, request;
    bool more = true;
    ddpi_etcd_load_init(load, ETCD_MODEL_ROOT);
    load->limit = 3; /* several pages */
    while (more) {
        ddpi_buf_init(&text, 64 << 20);
        ddpi_buf_init(&request, 1 << 20);
        ck_assert(ddpi_etcd_load_put_request(load, &request));
        model_answer(ddpi_bytes_of(ddpi_buf_head(&load->cursor), ddpi_buf_len(&load->cursor)),
                     load->limit, &text);
        OK(ddpi_etcd_reply_parse(ddpi_bytes_of(ddpi_buf_head(&text), ddpi_buf_len(&text)), &reply,
                                 &why));
        OK(ddpi_etcd_load_take_page(load, &reply, &more, &why));
        ddpi_etcd_reply_finish(&reply);
        ddpi_buf_finish(&text);
        ddpi_buf_finish(&request);
    }
}

/* At most @most of them; the others are forgotten, as by a leader that dies. */
static size_t apply_chunks(struct ddpi_list *chunks, size_t most)
{
    size_t count = 0;
    while (!ddpi_list_empty(chunks)) {
        struct ddpi_etcd_chunk *chunk =
            ddpi_container_of(chunks->next, struct ddpi_etcd_chunk, of_batch);
        if (count++ < most)
            model_apply(chunk);
        ddpi_etcd_chunk_free(chunk);
    }
    return count;
}

static void etcd_change(void *ctx, const struct ddpi_mutation *mutation)
{
    (void)ctx;
    OK(ddpi_etcd_batch_change(&batch, mutation, &why));
}

size_t etcd_model_commit_some(size_t most)
{
    const struct ddpi_mark mark = ddpi_kv_mark(kv);
    struct ddpi_list chunks;
    ddpi_list_init(&chunks);
    OK(ddpi_etcd_batch_take(&batch, &mark, &chunks, &why));
    OK(ddpi_etcd_journal_wrap(ETCD_MODEL_ROOT, &committed, &chunks, &why));
    committed = batch.meta;
    return apply_chunks(&chunks, most);
}

static void etcd_commit(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done)
{
    (void)ctx;
    (void)mark;
    etcd_model_commit_some(SIZE_MAX);
    done.call(done.ctx, NULL);
}

static ddp_status etcd_open(struct ddpi_sink *ret_hooks, struct ddpi_mark *ret_mark,
                            struct ddp_error *err)
{
    struct ddpi_etcd_load load;
    struct ddpi_list chunks;
    load_pages(&load);
    if (load.meta.journal > 0) {
        ddpi_list_init(&chunks);
        OK(ddpi_etcd_load_journal(&load, &chunks, &why));
        ddpi_etcd_load_finish(&load);
        apply_chunks(&chunks, SIZE_MAX);
        load_pages(&load);
        ck_assert_uint_eq(load.meta.journal, 0);
    }
    *ret_hooks = (struct ddpi_sink){.change = etcd_change, .commit = etcd_commit};
    ddp_status status = ddpi_etcd_load_give(&load, &batch, seed_of_tables, sink_take, NULL, err);
    *ret_mark = load.meta.mark;
    committed = batch.meta;
    ddpi_etcd_load_finish(&load);
    return status;
}

static void etcd_close(void)
{
    ddpi_etcd_batch_finish(&batch);
}

const struct sink_row sink_in_etcd = {
    .name = "etcd",
    .setup = etcd_setup,
    .teardown = model_clear,
    .open = etcd_open,
    .close = etcd_close,
};
