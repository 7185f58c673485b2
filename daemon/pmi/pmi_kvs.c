/*
 * pmi_kvs.c - a search tree of the C library. An entry holds key and value in one block.
 */
#include "pmi_kvs.h"

#include "mem.h"

#include <search.h>
#include <string.h>

struct kvs_entry {
    const char *key; /* compared in the tree; points to @text in a stored entry */
    const char *value;
    size_t bytes;
    char text[];
};

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct kvs_entry *)a)->key, ((const struct kvs_entry *)b)->key);
}

void pmi_kvs_init(struct pmi_kvs *kvs, size_t limit)
{
    *kvs = (struct pmi_kvs){.limit = limit};
}

void pmi_kvs_finish(struct pmi_kvs *kvs)
{
    tdestroy(kvs->tree, ddpi_free);
    kvs->tree = NULL;
    kvs->bytes = 0;
}

static struct kvs_entry *find_entry(const struct pmi_kvs *kvs, const char *key)
{
    const struct kvs_entry wanted = {.key = key};
    struct kvs_entry *const *found = tfind(&wanted, &kvs->tree, compare_keys);
    return found != NULL ? *found : NULL;
}

static struct kvs_entry *make_entry(const char *key, const char *value)
{
    size_t key_size = strlen(key) + 1, value_size = strlen(value) + 1;
    struct kvs_entry *entry = ddpi_calloc(1, sizeof *entry + key_size + value_size);
    if (entry == NULL)
        return NULL;
    entry->key = memcpy(entry->text, key, key_size);
    entry->value = memcpy(entry->text + key_size, value, value_size);
    entry->bytes = key_size + value_size;
    return entry;
}

ddp_status pmi_kvs_put(struct pmi_kvs *kvs, const char *key, const char *value)
{
    struct kvs_entry *before = find_entry(kvs, key);
    size_t others = kvs->bytes - (before != NULL ? before->bytes : 0);
    size_t bytes = strlen(key) + strlen(value) + 2;
    if (bytes > kvs->limit || others > kvs->limit - bytes)
        return DDP_E_LIMIT;
    struct kvs_entry *entry = make_entry(key, value);
    if (entry == NULL)
        return DDP_E_NOMEM;
    struct kvs_entry **place = tsearch(entry, &kvs->tree, compare_keys);
    if (place == NULL) {
        ddpi_free(entry);
        return DDP_E_NOMEM;
    }
    *place = entry; /* replaces @before, if any */
    ddpi_free(before);
    kvs->bytes = others + bytes;
    return DDP_OK;
}

const char *pmi_kvs_get(const struct pmi_kvs *kvs, const char *key)
{
    const struct kvs_entry *entry = find_entry(kvs, key);
    return entry != NULL ? entry->value : NULL;
}
