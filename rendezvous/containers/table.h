/*
 * table.h - intrusive hash table over byte-string keys, with a keyed hash.
 *
 * It owns its slots, never its nodes. Growing and shrinking are spread over the insertions and
 * removals that follow, so no single operation costs more when the table is large.
 */
#ifndef DDPI_TABLE_H
#define DDPI_TABLE_H

#include "siphash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_table_node {
    struct ddpi_table_node *next;
    uint64_t hash;
    const void *key; /* belongs to the owner of the node; unchanged while it is in a table */
    size_t key_len;
};

struct ddpi_table_slots {
    struct ddpi_table_node **at;
    size_t size; /* a power of two, or 0 */
};

struct ddpi_table {
    uint8_t seed[DDPI_SEED_SIZE];
    struct ddpi_table_slots now;
    struct ddpi_table_slots old; /* being emptied into `now` */
    size_t moved;                /* slots of `old` that are empty already */
    size_t count;
};

void ddpi_table_init(struct ddpi_table *table, const uint8_t seed[DDPI_SEED_SIZE]);
void ddpi_table_finish(struct ddpi_table *table);

struct ddpi_table_node *ddpi_table_find(const struct ddpi_table *table, const void *key,
                                        size_t len);

uint64_t ddpi_table_hash(const struct ddpi_table *table, const void *key, size_t len);

/* Keys with these @hashes will be looked for next: let the processor fetch what that touches, for
 * all of them at the same time. Stores the nodes where they will probably be found, or NULL, in
 * @ret_nodes. */
enum { DDPI_TABLE_AHEAD = 16 };
void ddpi_table_prefetch(const struct ddpi_table *table, const uint64_t *hashes, size_t count,
                         struct ddpi_table_node **ret_nodes);

/* @node->key and key_len are set, and the key is not in the table. false, with nothing changed,
 * only when the very first slots cannot be had. */
bool ddpi_table_insert(struct ddpi_table *table, struct ddpi_table_node *node);

/* @node is in the table. */
void ddpi_table_remove(struct ddpi_table *table, struct ddpi_table_node *node);

/* Walks all nodes in no particular order. Nothing may be inserted or removed during the walk; but
 * where the table is finished next, the node returned last may be freed. Start with a zeroed
 * iterator; NULL at the end. */
struct ddpi_table_iter {
    size_t slot;
    struct ddpi_table_node *next;
};
struct ddpi_table_node *ddpi_table_next(const struct ddpi_table *table,
                                        struct ddpi_table_iter *iter);

#endif
