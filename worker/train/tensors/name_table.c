/*
 * name_table.c - a hash table with open addressing (linear probing). Owns its slots.
 */
#include "name_table.h"

#include "bytes.h"
#include "mem.h"

#include <string.h>

enum { SLOTS_LEAST = 64 };

void ddpi_name_table_finish(struct ddpi_name_table *table)
{
    ddpi_free(table->slots);
    *table = (struct ddpi_name_table){0};
}

static uint64_t hash_name(uint32_t set, const char *name)
{
    uint64_t hash = ddpi_digest64(DDPI_DIGEST64_NONE ^ set, name, strlen(name));
    return hash ^ hash >> 32;
}

static struct ddpi_name_slot *find_slot(const struct ddpi_name_table *table, uint32_t set,
                                        const char *name)
{
    if (table->nslots == 0)
        return NULL;
    size_t at = hash_name(set, name) & (table->nslots - 1);
    for (; table->slots[at].used; at = (at + 1) & (table->nslots - 1)) {
        struct ddpi_name_slot *slot = &table->slots[at];
        if (slot->name != NULL && slot->set == set && strcmp(slot->name, name) == 0)
            return slot;
    }
    return NULL;
}

void *ddpi_name_table_find(const struct ddpi_name_table *table, uint32_t set, const char *name)
{
    struct ddpi_name_slot *slot = find_slot(table, set, name);
    return slot == NULL ? NULL : slot->value;
}

static void put_slot(struct ddpi_name_table *table, const struct ddpi_name_slot *entry)
{
    size_t at = hash_name(entry->set, entry->name) & (table->nslots - 1);
    while (table->slots[at].used)
        at = (at + 1) & (table->nslots - 1);
    table->slots[at] = *entry;
    table->nused++;
    table->count++;
}

/* Make room for twice the names that are left; what was removed costs nothing any more. */
static bool rebuild_slots(struct ddpi_name_table *table)
{
    size_t nslots = SLOTS_LEAST;
    while (nslots < table->count * 4)
        nslots *= 2;
    struct ddpi_name_table fresh = {.slots = ddpi_calloc(nslots, sizeof *fresh.slots),
                                    .nslots = nslots};
    if (fresh.slots == NULL)
        return false;
    for (size_t i = 0; i < table->nslots; i++)
        if (table->slots[i].name != NULL)
            put_slot(&fresh, &table->slots[i]);
    ddpi_free(table->slots);
    *table = fresh;
    return true;
}

bool ddpi_name_table_add(struct ddpi_name_table *table, uint32_t set, const char *name, void *value)
{
    if (table->nused + 1 > table->nslots / 2 && !rebuild_slots(table))
        return false;
    put_slot(table, &(struct ddpi_name_slot){name, set, true, value});
    return true;
}

void ddpi_name_table_remove(struct ddpi_name_table *table, uint32_t set, const char *name)
{
    struct ddpi_name_slot *slot = find_slot(table, set, name);
    if (slot == NULL)
        return;
    slot->name = NULL;
    table->count--;
}
