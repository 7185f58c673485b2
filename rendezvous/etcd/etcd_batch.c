/*
 * etcd_batch.c - see etcd_batch.h. Owns the chunks, and the numbers of the values of all queues.
 */
#include "etcd_batch.h"

#include "error.h"
#include "mem.h"

#include <stdio.h>

/* A queue in etcd: the numbers of its values. */
struct etcd_queue {
    struct ddpi_table_node node;
    struct ddpi_list numbers;
    char name[];
};

struct etcd_number {
    struct ddpi_list of_queue;
    uint64_t number;
};

/* ---- chunks ---- */

void ddpi_etcd_chunk_free(struct ddpi_etcd_chunk *chunk)
{
    ddpi_list_remove(&chunk->of_batch);
    for (size_t i = 0; i < chunk->count; i++)
        ddpi_free(chunk->ops[i].bytes);
    ddpi_free(chunk);
}

static ddp_status add_chunk(struct ddpi_etcd_batch *batch, struct ddp_error *err)
{
    struct ddpi_etcd_chunk *chunk = ddpi_calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return ddpi_error_nomem(err, sizeof(*chunk));
    ddpi_list_append(&batch->chunks, &chunk->of_batch);
    return DDP_OK;
}

static struct ddpi_etcd_chunk *last_chunk(const struct ddpi_etcd_batch *batch)
{
    return ddpi_list_empty(&batch->chunks)
               ? NULL
               : ddpi_container_of(batch->chunks.prev, struct ddpi_etcd_chunk, of_batch);
}

/* A chunk with room for @ops more operations of @bytes. */
static ddp_status need_room(struct ddpi_etcd_batch *batch, size_t ops, size_t bytes,
                            struct ddp_error *err)
{
    struct ddpi_etcd_chunk *last = last_chunk(batch);
    if (last != NULL && last->count + ops <= DDPI_ETCD_OPS &&
        last->bytes + bytes <= DDPI_ETCD_BYTES)
        return DDP_OK;
    if (last != NULL)
        last->meta = batch->meta;
    ddp_status status = add_chunk(batch, err);
    if (status == DDP_OK && last != NULL)
        batch->closed_size += ddpi_etcd_chunk_size(last);
    return status;
}

size_t ddpi_etcd_batch_size(const struct ddpi_etcd_batch *batch)
{
    const struct ddpi_etcd_chunk *last = last_chunk(batch);
    return batch->closed_size + (last != NULL ? ddpi_etcd_chunk_size(last) : 0);
}

static struct ddpi_etcd_chunk_op *find_op(struct ddpi_etcd_chunk *chunk, struct ddpi_bytes key)
{
    if (chunk == NULL || key.len == 0)
        return NULL;
    for (size_t i = 0; i < chunk->count; i++)
        if (chunk->ops[i].key_len == key.len && memcmp(chunk->ops[i].bytes, key.data, key.len) == 0)
            return &chunk->ops[i];
    return NULL;
}

/* What a request takes for an operation besides its key and value, and more. */
enum { OP_OVERHEAD = 64 };

static size_t op_size(const struct ddpi_etcd_chunk_op *op)
{
    return op->key_len + op->value_len + OP_OVERHEAD;
}

ddp_status ddpi_etcd_chunk_put(struct ddpi_etcd_chunk *chunk, struct ddpi_bytes key,
                               struct ddpi_bytes value, bool deletes, struct ddp_error *err)
{
    struct ddpi_etcd_chunk_op *op = find_op(chunk, key);
    if (op == NULL && chunk->count > DDPI_ETCD_OPS)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a transaction has no room for a change");
    uint8_t *bytes = ddpi_calloc(1, key.len + value.len);
    if (bytes == NULL)
        return ddpi_error_nomem(err, key.len + value.len);
    memcpy(bytes, key.data, key.len);
    if (value.len > 0)
        memcpy(bytes + key.len, value.data, value.len);
    if (op == NULL)
        op = &chunk->ops[chunk->count++];
    else
        chunk->bytes -= op_size(op);
    ddpi_free(op->bytes);
    *op = (struct ddpi_etcd_chunk_op){bytes, key.len, value.len, deletes};
    chunk->bytes += op_size(op);
    return DDP_OK;
}

enum { TEXT_MAX = 4 * 1024 * 1024 };

/* One operation; the chunk has room. @record NULL: the key is deleted. */
static ddp_status add_op(struct ddpi_etcd_batch *batch, enum ddpi_etcd_section section,
                         const struct ddpi_bytes *key, uint64_t number,
                         const struct ddpi_etcd_record *record, struct ddp_error *err)
{
    struct ddpi_buf text;
    ddpi_buf_init(&text, TEXT_MAX);
    bool put = key != NULL ? ddpi_etcd_put_key(&text, batch->root, section, *key)
                           : ddpi_etcd_put_numbered(&text, batch->root, section, number);
    size_t key_len = ddpi_buf_len(&text);
    put = put && (record == NULL || ddpi_etcd_put_record(&text, record));
    struct ddpi_etcd_chunk *chunk = last_chunk(batch);
    ddp_status status = DDP_OK;
    if (!put || chunk == NULL)
        status = ddpi_error_nomem(err, key_len);
    else
        status = ddpi_etcd_chunk_put(
            chunk, ddpi_bytes_of(ddpi_buf_head(&text), key_len),
            ddpi_bytes_of(ddpi_buf_head(&text) + key_len, ddpi_buf_len(&text) - key_len),
            record == NULL, err);
    ddpi_buf_finish(&text);
    return status;
}

/* ---- queues ---- */

static struct etcd_queue *find_queue(const struct ddpi_etcd_batch *batch, struct ddpi_bytes name)
{
    struct ddpi_table_node *node = ddpi_table_find(&batch->queues, name.data, name.len);
    return node != NULL ? ddpi_container_of(node, struct etcd_queue, node) : NULL;
}

static struct etcd_queue *make_queue(struct ddpi_etcd_batch *batch, struct ddpi_bytes name)
{
    struct etcd_queue *queue = ddpi_calloc(1, sizeof(*queue) + name.len + 1);
    if (queue == NULL)
        return NULL;
    if (name.len > 0)
        memcpy(queue->name, name.data, name.len);
    queue->node.key = queue->name;
    queue->node.key_len = name.len;
    ddpi_list_init(&queue->numbers);
    if (ddpi_table_insert(&batch->queues, &queue->node))
        return queue;
    ddpi_free(queue);
    return NULL;
}

static void free_number(struct etcd_number *number)
{
    ddpi_list_remove(&number->of_queue);
    ddpi_free(number);
}

ddp_status ddpi_etcd_batch_know_queued(struct ddpi_etcd_batch *batch, struct ddpi_bytes name,
                                       uint64_t number, struct ddp_error *err)
{
    struct etcd_queue *queue = find_queue(batch, name);
    struct etcd_number *known = ddpi_calloc(1, sizeof(*known));
    if (queue == NULL)
        queue = make_queue(batch, name);
    if (queue == NULL || known == NULL) {
        ddpi_free(known);
        return ddpi_error_nomem(err, sizeof(*queue) + name.len);
    }
    known->number = number;
    ddpi_list_append(&queue->numbers, &known->of_queue);
    return DDP_OK;
}

ddp_status ddpi_etcd_batch_drop_queued(struct ddpi_etcd_batch *batch, uint64_t number,
                                       struct ddp_error *err)
{
    ddp_status status = need_room(batch, 1, DDPI_ETCD_KEY_MAX, err);
    if (status != DDP_OK)
        return status;
    return add_op(batch, DDPI_ETCD_SECTION_QUEUED, NULL, number, NULL, err);
}

static ddp_status push(struct ddpi_etcd_batch *batch, const struct ddpi_mutation *mutation,
                       struct ddp_error *err)
{
    const struct ddpi_etcd_record record = {.section = DDPI_ETCD_SECTION_QUEUED,
                                            .mutation = *mutation};
    uint64_t number = ++batch->meta.queued;
    ddp_status status = ddpi_etcd_batch_know_queued(batch, mutation->key, number, err);
    return status == DDP_OK ? add_op(batch, record.section, NULL, number, &record, err) : status;
}

static ddp_status pop(struct ddpi_etcd_batch *batch, struct ddpi_bytes name, struct ddp_error *err)
{
    struct etcd_queue *queue = find_queue(batch, name);
    if (queue == NULL)
        return DDP_OK;
    struct etcd_number *first =
        ddpi_container_of(queue->numbers.next, struct etcd_number, of_queue);
    ddp_status status = add_op(batch, DDPI_ETCD_SECTION_QUEUED, NULL, first->number, NULL, err);
    free_number(first);
    if (ddpi_list_empty(&queue->numbers)) {
        ddpi_table_remove(&batch->queues, &queue->node);
        ddpi_free(queue);
    }
    return status;
}

/* ---- changes ---- */

static ddp_status remember(struct ddpi_etcd_batch *batch, const struct ddpi_mutation *mutation,
                           struct ddp_error *err)
{
    bool set = mutation->kind == DDPI_MUTATION_SET;
    struct ddpi_etcd_record record = {.section = DDPI_ETCD_SECTION_PAST, .mutation = *mutation};
    record.mutation.kind = set ? DDPI_MUTATION_PAST_SET : DDPI_MUTATION_PAST_DELETE;
    return add_op(batch, record.section, NULL, mutation->version, &record, err);
}

static ddp_status add_change(struct ddpi_etcd_batch *batch, const struct ddpi_mutation *mutation,
                             struct ddp_error *err)
{
    struct ddpi_etcd_record record = {.mutation = *mutation, .queued = batch->meta.queued};
    switch (mutation->kind) {
    case DDPI_MUTATION_SET:
        record.section = DDPI_ETCD_SECTION_KEY;
        return add_op(batch, record.section, &mutation->key, 0, &record, err);
    case DDPI_MUTATION_DELETE:
        return add_op(batch, DDPI_ETCD_SECTION_KEY, &mutation->key, 0, NULL, err);
    case DDPI_MUTATION_PUSH:
        return push(batch, mutation, err);
    case DDPI_MUTATION_POP:
        return pop(batch, mutation->key, err);
    case DDPI_MUTATION_SESSION_OPEN:
        record.section = DDPI_ETCD_SECTION_SESSION;
        return add_op(batch, record.section, NULL, mutation->session, &record, err);
    case DDPI_MUTATION_SESSION_END:
        return add_op(batch, DDPI_ETCD_SECTION_SESSION, NULL, mutation->session, NULL, err);
    case DDPI_MUTATION_DETACH:
        record.section = DDPI_ETCD_SECTION_DETACHED;
        return add_op(batch, record.section, NULL, mutation->number, &record, err);
    case DDPI_MUTATION_DETACHED_END:
        return add_op(batch, DDPI_ETCD_SECTION_DETACHED, NULL, mutation->number, NULL, err);
    case DDPI_MUTATION_REMEMBER:
    case DDPI_MUTATION_PAST_SET:
    case DDPI_MUTATION_PAST_DELETE:
        break;
    }
    return DDP_OK;
}

static ddp_status check_length(const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    if (mutation->key.len <= DDPI_ETCD_KEY_MAX && mutation->value.len <= DDPI_ETCD_VALUE_MAX)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "a key of %zu bytes with a value of %zu is too long for a state in etcd, "
                          "which takes %d and %d; keep large data elsewhere",
                          mutation->key.len, mutation->value.len, DDPI_ETCD_KEY_MAX,
                          DDPI_ETCD_VALUE_MAX);
}

ddp_status ddpi_etcd_batch_change(struct ddpi_etcd_batch *batch,
                                  const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    struct ddpi_mark *mark = &batch->meta.mark;
    size_t bytes = mutation->key.len + mutation->value.len + sizeof batch->root + 2 * OP_OVERHEAD;
    size_t times = mutation->remembered ? 2 : 1;
    ddp_status status = check_length(mutation, err);
    if (status == DDP_OK)
        status = need_room(batch, times, times * bytes, err);
    if (status == DDP_OK)
        status = add_change(batch, mutation, err);
    if (status == DDP_OK && mutation->remembered)
        status = remember(batch, mutation, err);
    if (mutation->kind == DDPI_MUTATION_REMEMBER) {
        mark->remembers = true;
        mark->floor = mark->version;
    }
    if (mutation->kind == DDPI_MUTATION_SET || mutation->kind == DDPI_MUTATION_DELETE)
        mark->version = mutation->version > mark->version ? mutation->version : mark->version;
    return status;
}

/* ---- taking ---- */

/* The number of a change that @op remembers, if it does that. */
static bool past_version(const struct ddpi_etcd_batch *batch, const struct ddpi_etcd_chunk_op *op,
                         uint64_t *ret)
{
    struct ddpi_etcd_record record;
    size_t root = strlen(batch->root);
    if (op->deletes || op->bytes[root] != DDPI_ETCD_SECTION_PAST ||
        ddpi_etcd_get_record(ddpi_bytes_of(op->bytes + root, op->key_len - root),
                             ddpi_bytes_of(op->bytes + op->key_len, op->value_len), &record,
                             NULL) != DDP_OK)
        return false;
    *ret = record.mutation.version;
    return true;
}

/* etcd refuses a transaction that deletes what it writes. */
static void drop_past(const struct ddpi_etcd_batch *batch, struct ddpi_etcd_chunk *chunk)
{
    size_t kept = 0;
    for (size_t i = 0; i < chunk->count; i++) {
        uint64_t version;
        if (past_version(batch, &chunk->ops[i], &version) && version <= chunk->forget) {
            chunk->bytes -= op_size(&chunk->ops[i]);
            ddpi_free(chunk->ops[i].bytes);
        } else {
            chunk->ops[kept++] = chunk->ops[i];
        }
    }
    memset(&chunk->ops[kept], 0, (chunk->count - kept) * sizeof *chunk->ops);
    chunk->count = kept;
}

ddp_status ddpi_etcd_batch_take(struct ddpi_etcd_batch *batch, const struct ddpi_mark *mark,
                                struct ddpi_list *ret, struct ddp_error *err)
{
    uint64_t incarnation = batch->meta.mark.incarnation;
    if (ddpi_list_empty(&batch->chunks)) {
        ddp_status status = add_chunk(batch, err);
        if (status != DDP_OK)
            return status;
    }
    struct ddpi_etcd_chunk *last =
        ddpi_container_of(batch->chunks.prev, struct ddpi_etcd_chunk, of_batch);
    batch->meta.mark = *mark;
    batch->meta.mark.incarnation = incarnation;
    last->meta = batch->meta;
    if (mark->remembers && mark->floor > batch->forgotten) {
        last->forget = batch->forgotten = mark->floor;
        drop_past(batch, last);
    }
    ddpi_list_move_all(ret, &batch->chunks);
    batch->closed_size = 0;
    return DDP_OK;
}

/* ---- life ---- */

void ddpi_etcd_batch_init(struct ddpi_etcd_batch *batch, const char *root,
                          const struct ddpi_etcd_meta *meta, const uint8_t seed[DDPI_SEED_SIZE])
{
    *batch = (struct ddpi_etcd_batch){.meta = *meta};
    snprintf(batch->root, sizeof batch->root, "%s", root);
    ddpi_list_init(&batch->chunks);
    ddpi_table_init(&batch->queues, seed);
    batch->forgotten = meta->mark.remembers ? meta->mark.floor : 0;
}

static void free_queue(struct etcd_queue *queue)
{
    while (!ddpi_list_empty(&queue->numbers))
        free_number(ddpi_container_of(queue->numbers.next, struct etcd_number, of_queue));
    ddpi_free(queue);
}

void ddpi_etcd_batch_finish(struct ddpi_etcd_batch *batch)
{
    struct ddpi_table_iter iter = {0};
    struct ddpi_table_node *node = ddpi_table_next(&batch->queues, &iter), *next;
    for (; node != NULL; node = next) {
        next = ddpi_table_next(&batch->queues, &iter);
        free_queue(ddpi_container_of(node, struct etcd_queue, node));
    }
    ddpi_table_finish(&batch->queues);
    while (!ddpi_list_empty(&batch->chunks))
        ddpi_etcd_chunk_free(
            ddpi_container_of(batch->chunks.next, struct ddpi_etcd_chunk, of_batch));
}
