/*
 * table.h - intrusive hash table over byte strings. The hash is keyed with a secret seed
 * (SipHash-2-4), so that a peer cannot choose names that all fall into one slot.
 *
 * A table owns its slots, never its nodes. Growing and shrinking are spread over the insertions and
 * removals that follow, so no single operation costs more because the table is large.
 */
#ifndef DDPI_TABLE_H
#define DDPI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DDPI_SEED_SIZE = 16 };

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

/* The same, and free all objects in the table, which have their nodes at @offset. */
void ddpi_table_finish_free(struct ddpi_table *table, size_t offset);

struct ddpi_table_node *ddpi_table_find(const struct ddpi_table *table, const void *key,
                                        size_t len);

uint64_t ddpi_table_hash(const struct ddpi_table *table, const void *key, size_t len);

/* Lets the processor fetch the memory that finding keys with these @hashes will touch, for all keys
 * at the same time. Puts the nodes where they will probably be found, or NULL, into @ret_nodes. */
void ddpi_table_prefetch(const struct ddpi_table *table, const uint64_t *hashes, size_t count,
                         struct ddpi_table_node **ret_nodes);

/* @node->key and key_len are set, and the key is not in the table. false, with nothing changed,
 * only when there is no memory for the very first slots. */
bool ddpi_table_insert(struct ddpi_table *table, struct ddpi_table_node *node);

/* @node is in the table. */
void ddpi_table_remove(struct ddpi_table *table, struct ddpi_table_node *node);

/* Walks all nodes in no particular order; NULL at the end. Start with a zeroed iterator. Insert and
 * remove nothing during the walk; if the table is finished next, the node returned last may be
 * freed. */
struct ddpi_table_iter {
    size_t slot;
    struct ddpi_table_node *next;
};
struct ddpi_table_node *ddpi_table_next(const struct ddpi_table *table,
                                        struct ddpi_table_iter *iter);

#endif
