/*
 * name_table.h - finds what belongs to a tensor's name within a set of ranks. Pure.
 *
 * Owns neither names nor values: a name must last as long as it is in the table.
 */
#ifndef DDPI_NAME_TABLE_H
#define DDPI_NAME_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ddpi_name_slot {
    const char *name; /* NULL: nothing has been here, or what was has been removed */
    uint32_t set;
    bool used; /* a search goes on behind it */
    void *value;
};

struct ddpi_name_table {
    struct ddpi_name_slot *slots;
    size_t nslots; /* a power of two */
    size_t nused;  /* slots that a search goes on behind */
    size_t count;  /* names */
};

/* A table of zeros is empty. */
void ddpi_name_table_finish(struct ddpi_name_table *table);

/* NULL if the name is not in the table. */
void *ddpi_name_table_find(const struct ddpi_name_table *table, uint32_t set, const char *name);

/* The name is not in the table yet. False if memory is short; then the table is unchanged. */
bool ddpi_name_table_add(struct ddpi_name_table *table, uint32_t set, const char *name,
                         void *value);

/* Does nothing if the name is not in the table. */
void ddpi_name_table_remove(struct ddpi_name_table *table, uint32_t set, const char *name);

#endif
