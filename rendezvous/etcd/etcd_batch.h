/*
 * etcd_batch.h - gathers the changes of the store as transactions of etcd. Pure.
 *
 * A batch is a line of chunks; each chunk is one transaction. Changes of one key within a chunk are
 * one operation, as etcd takes a key only once in a transaction. A chunk that is full is closed
 * between two changes of the core, so each chunk leaves contents that the core has had.
 */
#ifndef DDPI_ETCD_BATCH_H
#define DDPI_ETCD_BATCH_H

#include "etcd_codec.h"
#include "etcd_record.h"
#include "list.h"
#include "table.h"

/* etcd's limits are 128 operations and 1.5 MiB. One operation is for `meta`, one for what watches
 * no longer need, one for the journal. The longest value must fit twice: in a key and in the
 * history of watches. */
enum {
    DDPI_ETCD_OPS = 125,
    DDPI_ETCD_BYTES = 1472 * 1024,
    DDPI_ETCD_VALUE_MAX = 704 * 1024,
    DDPI_ETCD_KEY_MAX = 16 * 1024,
};

struct ddpi_etcd_chunk_op {
    uint8_t *bytes; /* the key, then the value */
    size_t key_len;
    size_t value_len;
    bool deletes;
};

struct ddpi_etcd_chunk {
    struct ddpi_list of_batch;
    struct ddpi_etcd_chunk_op ops[DDPI_ETCD_OPS + 1];
    size_t count;
    size_t bytes;
    uint64_t forget;            /* changes up to this version; 0: none */
    struct ddpi_etcd_meta meta; /* after it */
};

/* The memory that it takes, about. */
static inline size_t ddpi_etcd_chunk_size(const struct ddpi_etcd_chunk *chunk)
{
    return sizeof *chunk + chunk->bytes;
}

struct ddpi_etcd_batch {
    char root[DDPI_ETCD_ROOT_MAX];
    struct ddpi_list chunks;    /* oldest first */
    size_t closed_size;         /* of all but the last of them, as ddpi_etcd_chunk_size() */
    struct ddpi_etcd_meta meta; /* after all changes so far */
    struct ddpi_table queues;   /* of struct etcd_queue: which values each queue has */
    uint64_t forgotten;
};

/* @root: PREFIX/v1/; @meta: of the contents as they are; @seed: random, see table.h. */
void ddpi_etcd_batch_init(struct ddpi_etcd_batch *batch, const char *root,
                          const struct ddpi_etcd_meta *meta, const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_etcd_batch_finish(struct ddpi_etcd_batch *batch);

/* A value of a queue that etcd has already; in their order. */
ddp_status ddpi_etcd_batch_know_queued(struct ddpi_etcd_batch *batch, struct ddpi_bytes queue,
                                       uint64_t number, struct ddp_error *err);
/* Delete the value @number of a queue that the core does not have. */
ddp_status ddpi_etcd_batch_drop_queued(struct ddpi_etcd_batch *batch, uint64_t number,
                                       struct ddp_error *err);

/* Add a change. DDP_E_LIMIT: it is too long for etcd. After a failure the batch is useless. */
ddp_status ddpi_etcd_batch_change(struct ddpi_etcd_batch *batch,
                                  const struct ddpi_mutation *mutation, struct ddp_error *err);

/* The changes so far belong together: set the mark, and move their chunks to the end of @ret. */
ddp_status ddpi_etcd_batch_take(struct ddpi_etcd_batch *batch, const struct ddpi_mark *mark,
                                struct ddpi_list *ret, struct ddp_error *err);

/* The memory of the changes since the last ddpi_etcd_batch_take(), about. */
size_t ddpi_etcd_batch_size(const struct ddpi_etcd_batch *batch);

/* One operation; one of the same key is replaced. DDP_E_PROTOCOL: it is full. */
ddp_status ddpi_etcd_chunk_put(struct ddpi_etcd_chunk *chunk, struct ddpi_bytes key,
                               struct ddpi_bytes value, bool deletes, struct ddp_error *err);
void ddpi_etcd_chunk_free(struct ddpi_etcd_chunk *chunk);

#endif
