/*
 * etcd_journal.c - see etcd_journal.h. Owns nothing.
 */
#include "etcd_journal.h"

#include "error.h"
#include "mem.h"

enum { PART_MAX = 2 * 1024 * 1024, JOURNAL_MAX = 1 << 20 };

static struct ddpi_etcd_chunk *chunk_in(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_etcd_chunk, of_batch);
}

/* ---- writing ---- */

static bool put_part(struct ddpi_buf *buf, const struct ddpi_etcd_chunk *chunk)
{
    bool good = ddpi_etcd_put_meta(buf, &chunk->meta) && ddpi_buf_put_u64(buf, chunk->forget) &&
                ddpi_buf_put_u32(buf, (uint32_t)chunk->count);
    for (size_t i = 0; good && i < chunk->count; i++) {
        const struct ddpi_etcd_chunk_op *op = &chunk->ops[i];
        good = ddpi_buf_put_u8(buf, op->deletes) && ddpi_buf_put_u32(buf, (uint32_t)op->key_len) &&
               ddpi_buf_put_u32(buf, (uint32_t)op->value_len) &&
               ddpi_buf_append(buf, op->bytes, op->key_len + op->value_len);
    }
    return good;
}

static ddp_status make_chunk(struct ddpi_list *before, const struct ddpi_etcd_meta *meta,
                             struct ddpi_etcd_chunk **ret, struct ddp_error *err)
{
    *ret = ddpi_calloc(1, sizeof **ret);
    if (*ret == NULL)
        return ddpi_error_nomem(err, sizeof **ret);
    (*ret)->meta = *meta;
    ddpi_list_append(before, &(*ret)->of_batch); /* a list in front of a node ends before it */
    return DDP_OK;
}

/* @text NULL: remove that part. */
static ddp_status put_journal_op(struct ddpi_etcd_chunk *chunk, const char *root, uint64_t index,
                                 const struct ddpi_buf *text, struct ddp_error *err)
{
    struct ddpi_buf key;
    ddpi_buf_init(&key, 2 * DDPI_ETCD_ROOT_MAX);
    bool put = ddpi_etcd_put_numbered(&key, root, DDPI_ETCD_SECTION_JOURNAL, index);
    const struct ddpi_bytes value = text != NULL
                                        ? ddpi_bytes_of(ddpi_buf_head(text), ddpi_buf_len(text))
                                        : ddpi_bytes_of("", 0);
    ddp_status status =
        put ? ddpi_etcd_chunk_put(chunk, ddpi_bytes_of(ddpi_buf_head(&key), ddpi_buf_len(&key)),
                                  value, text == NULL, err)
            : ddpi_error_nomem(err, sizeof *chunk);
    ddpi_buf_finish(&key);
    return status;
}

/* A chunk that writes @chunk to the journal, before the node @place. */
static ddp_status write_part(const char *root, const struct ddpi_etcd_meta *before,
                             const struct ddpi_etcd_chunk *chunk, uint64_t index,
                             struct ddpi_list *place, struct ddp_error *err)
{
    struct ddpi_etcd_chunk *writer;
    struct ddpi_buf text;
    ddp_status status = make_chunk(place, before, &writer, err);
    if (status != DDP_OK)
        return status;
    ddpi_buf_init(&text, PART_MAX);
    const struct ddpi_etcd_record record = {.section = DDPI_ETCD_SECTION_JOURNAL};
    bool put = ddpi_etcd_put_record(&text, &record) && put_part(&text, chunk);
    status =
        put ? put_journal_op(writer, root, index, &text, err) : ddpi_error_nomem(err, PART_MAX);
    ddpi_buf_finish(&text);
    return status;
}

ddp_status ddpi_etcd_journal_wrap(const char *root, const struct ddpi_etcd_meta *before,
                                  struct ddpi_list *chunks, struct ddp_error *err)
{
    struct ddpi_etcd_chunk *point;
    struct ddpi_etcd_meta complete = *before;
    struct ddpi_list *first = chunks->next;
    uint64_t count = 0, index = 0;
    ddpi_list_for_each (node, chunks)
        count++;
    if (count < 2)
        return DDP_OK;
    ddp_status status = DDP_OK;
    for (struct ddpi_list *node = first; status == DDP_OK && node != chunks; node = node->next)
        status = write_part(root, before, chunk_in(node), index++, first, err);
    complete.journal = count;
    if (status == DDP_OK)
        status = make_chunk(first, &complete, &point, err);
    index = 0;
    for (struct ddpi_list *node = first; status == DDP_OK && node != chunks; node = node->next) {
        chunk_in(node)->meta.journal = index + 1 < count ? count : 0;
        status = put_journal_op(chunk_in(node), root, index++, NULL, err);
    }
    return status;
}

/* ---- reading ---- */

static ddp_status read_op(struct ddpi_rd *rd, struct ddpi_etcd_chunk *chunk, struct ddp_error *err)
{
    uint8_t deletes = ddpi_rd_u8(rd);
    uint32_t key_len = ddpi_rd_u32(rd), value_len = ddpi_rd_u32(rd);
    const uint8_t *key = ddpi_rd_bytes(rd, key_len), *value = ddpi_rd_bytes(rd, value_len);
    if (rd->failed || key_len == 0 || deletes > 1)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a part of the journal is damaged");
    return ddpi_etcd_chunk_put(chunk, ddpi_bytes_of(key, key_len), ddpi_bytes_of(value, value_len),
                               deletes == 1, err);
}

ddp_status ddpi_etcd_journal_read(const char *root, uint64_t index, uint64_t count,
                                  struct ddpi_bytes value, struct ddpi_list *ret,
                                  struct ddp_error *err)
{
    struct ddpi_etcd_chunk *chunk;
    struct ddpi_etcd_meta meta;
    struct ddpi_rd rd = ddpi_rd_of(value.data, value.len);
    const uint8_t *head = ddpi_rd_bytes(&rd, DDPI_ETCD_META_SIZE);
    if (head == NULL || count > JOURNAL_MAX)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a part of the journal is damaged");
    ddp_status status = ddpi_etcd_get_meta(ddpi_bytes_of(head, DDPI_ETCD_META_SIZE), &meta, err);
    if (status == DDP_OK)
        status = make_chunk(ret, &meta, &chunk, err);
    if (status != DDP_OK)
        return status;
    chunk->meta.journal = index + 1 < count ? count : 0;
    chunk->forget = ddpi_rd_u64(&rd);
    uint32_t ops = ddpi_rd_u32(&rd);
    for (uint32_t i = 0; status == DDP_OK && i < ops; i++)
        status = read_op(&rd, chunk, err);
    if (status == DDP_OK && !ddpi_rd_done(&rd))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a part of the journal is damaged");
    return status == DDP_OK ? put_journal_op(chunk, root, index, NULL, err) : status;
}
