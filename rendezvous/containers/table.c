/*
 * table.c - the hash table. Nodes hang in chains. The number of slots doubles at one node per two
 * slots and halves at one per eight; until the old slots are empty both sets are searched, and each
 * insertion and removal moves a few of the old slots.
 */
#include "table.h"

#include "mem.h"

#include <sodium.h>
#include <string.h>

_Static_assert(DDPI_SEED_SIZE == crypto_shorthash_KEYBYTES, "a seed is the hash's key");

/* Four old slots per insertion empty them long before the new slots are full. Sixteen per removal
 * empty them before the table may be halved again, so that a table that loses all its nodes becomes
 * small. */
enum { FIRST_SIZE = 64, MOVES_PER_INSERT = 4, MOVES_PER_REMOVAL = 16 };

void ddpi_table_init(struct ddpi_table *table, const uint8_t seed[DDPI_SEED_SIZE])
{
    *table = (struct ddpi_table){0};
    memcpy(table->seed, seed, DDPI_SEED_SIZE);
}

void ddpi_table_finish(struct ddpi_table *table)
{
    ddpi_free(table->now.at);
    ddpi_free(table->old.at);
    *table = (struct ddpi_table){0};
}

static struct ddpi_table_node **slot_of(const struct ddpi_table_slots *slots, uint64_t hash)
{
    return &slots->at[hash & (slots->size - 1)];
}

/* The pointer that points to the wanted node, or NULL. */
static struct ddpi_table_node **search(const struct ddpi_table_slots *slots, uint64_t hash,
                                       const void *key, size_t len)
{
    if (slots->size == 0)
        return NULL;
    for (struct ddpi_table_node **link = slot_of(slots, hash); *link != NULL; link = &(*link)->next)
        if ((*link)->hash == hash && (*link)->key_len == len &&
            (len == 0 || memcmp((*link)->key, key, len) == 0))
            return link;
    return NULL;
}

static struct ddpi_table_node **search_both(const struct ddpi_table *table, uint64_t hash,
                                            const void *key, size_t len)
{
    struct ddpi_table_node **link = search(&table->now, hash, key, len);
    return link != NULL ? link : search(&table->old, hash, key, len);
}

uint64_t ddpi_table_hash(const struct ddpi_table *table, const void *key, size_t len)
{
    uint64_t hash;
    _Static_assert(sizeof hash == crypto_shorthash_BYTES, "a hash is one word");
    (void)crypto_shorthash((uint8_t *)&hash, key, len, table->seed);
    return hash;
}

struct ddpi_table_node *ddpi_table_find(const struct ddpi_table *table, const void *key, size_t len)
{
    struct ddpi_table_node **link = search_both(table, ddpi_table_hash(table, key, len), key, len);
    return link != NULL ? *link : NULL;
}

void ddpi_table_prefetch(const struct ddpi_table *table, const uint64_t *hashes, size_t count,
                         struct ddpi_table_node **ret_nodes)
{
    for (size_t i = 0; i < count; i++)
        if (table->now.size > 0)
            __builtin_prefetch(slot_of(&table->now, hashes[i]));
    for (size_t i = 0; i < count; i++) {
        ret_nodes[i] = table->now.size > 0 ? *slot_of(&table->now, hashes[i]) : NULL;
        __builtin_prefetch(ret_nodes[i]);
    }
}

static void push(const struct ddpi_table_slots *slots, struct ddpi_table_node *node)
{
    struct ddpi_table_node **slot = slot_of(slots, node->hash);
    node->next = *slot;
    *slot = node;
}

static void move_some(struct ddpi_table *table, int slots)
{
    for (int i = 0; i < slots && table->moved < table->old.size; i++) {
        struct ddpi_table_node *node = table->old.at[table->moved];
        table->old.at[table->moved++] = NULL;
        while (node != NULL) {
            struct ddpi_table_node *next = node->next;
            push(&table->now, node);
            node = next;
        }
    }
    if (table->old.size > 0 && table->moved == table->old.size) {
        ddpi_free(table->old.at);
        table->old = (struct ddpi_table_slots){0};
    }
}

/* Without memory the table stays correct, and its chains get longer. */
static void resize(struct ddpi_table *table, size_t size)
{
    struct ddpi_table_node **at = ddpi_calloc(size, sizeof(*at));
    if (at == NULL)
        return;
    table->old = table->now;
    table->now = (struct ddpi_table_slots){.at = at, .size = size};
    table->moved = 0;
}

bool ddpi_table_insert(struct ddpi_table *table, struct ddpi_table_node *node)
{
    if (table->count >= table->now.size / 2 && table->old.size == 0)
        resize(table, table->now.size > 0 ? table->now.size * 2 : FIRST_SIZE);
    if (table->now.size == 0)
        return false;
    node->hash = ddpi_table_hash(table, node->key, node->key_len);
    push(&table->now, node);
    table->count++;
    move_some(table, MOVES_PER_INSERT);
    return true;
}

void ddpi_table_remove(struct ddpi_table *table, struct ddpi_table_node *node)
{
    struct ddpi_table_node **link = search_both(table, node->hash, node->key, node->key_len);
    *link = node->next;
    node->next = NULL;
    table->count--;
    if (table->count < table->now.size / 8 && table->now.size > FIRST_SIZE && table->old.size == 0)
        resize(table, table->now.size / 2);
    move_some(table, MOVES_PER_REMOVAL);
}

struct ddpi_table_node *ddpi_table_next(const struct ddpi_table *table,
                                        struct ddpi_table_iter *iter)
{
    while (iter->next == NULL && iter->slot < table->now.size + table->old.size) {
        size_t slot = iter->slot++;
        iter->next =
            slot < table->now.size ? table->now.at[slot] : table->old.at[slot - table->now.size];
    }
    struct ddpi_table_node *node = iter->next;
    if (node != NULL)
        iter->next = node->next;
    return node;
}

void ddpi_table_finish_free(struct ddpi_table *table, size_t offset)
{
    struct ddpi_table_iter iter = {0};
    for (struct ddpi_table_node *node; (node = ddpi_table_next(table, &iter)) != NULL;)
        ddpi_free((char *)node - offset);
    ddpi_table_finish(table);
}
