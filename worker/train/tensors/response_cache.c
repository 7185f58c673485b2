/*
 * response_cache.c - numbered slots; the least recently used one is given away. Owns the slots.
 */
#include "response_cache.h"

#include "error.h"
#include "mem.h"

#include <string.h>

ddp_status ddpi_response_cache_init(struct ddpi_response_cache *cache, uint32_t capacity,
                                    struct ddp_error *err)
{
    *cache = (struct ddpi_response_cache){.capacity = capacity};
    if (capacity == 0)
        return DDP_OK;
    cache->slots = ddpi_calloc(capacity, sizeof *cache->slots);
    cache->wanted = ddpi_calloc(capacity, sizeof *cache->wanted);
    if (cache->slots != NULL && cache->wanted != NULL)
        return DDP_OK;
    ddpi_response_cache_finish(cache);
    return ddpi_error_nomem(err, (unsigned long long)capacity * sizeof *cache->slots);
}

void ddpi_response_cache_finish(struct ddpi_response_cache *cache)
{
    ddpi_name_table_finish(&cache->names);
    ddpi_free(cache->slots);
    ddpi_free(cache->wanted);
}

enum ddpi_cache_answer ddpi_response_cache_find(const struct ddpi_response_cache *cache,
                                                const struct ddpi_tensor_request *request,
                                                uint32_t *ret_slot)
{
    char a[DDPI_TENSOR_VALUE], b[DDPI_TENSOR_VALUE];
    const struct ddpi_cached_response *slot =
        ddpi_name_table_find(&cache->names, request->set, request->name);
    if (slot == NULL)
        return DDPI_CACHE_MISS;
    *ret_slot = (uint32_t)(slot - cache->slots);
    return ddpi_tensor_difference(&slot->request, request, a, b) == NULL ? DDPI_CACHE_HIT
                                                                         : DDPI_CACHE_DIFFERS;
}

bool ddpi_response_cache_find_group(const struct ddpi_response_cache *cache,
                                    const struct ddpi_tensor_request *request, uint32_t *ret_slot)
{
    const struct ddpi_cached_response *slot =
        request->group_size > 0 ? ddpi_name_table_find(&cache->names, request->set, request->group)
                                : NULL;
    if (slot != NULL)
        *ret_slot = (uint32_t)(slot - cache->slots);
    return slot != NULL;
}

static void evict_one(struct ddpi_response_cache *cache, struct ddpi_cached_response *slot)
{
    ddpi_name_table_remove(&cache->names, slot->request.set, slot->request.name);
    slot->used = false;
}

static bool same_group(const struct ddpi_tensor_request *a, const struct ddpi_tensor_request *b)
{
    return a->group_size != 0 && a->set == b->set && strcmp(a->group, b->group) == 0;
}

void ddpi_response_cache_evict(struct ddpi_response_cache *cache, uint32_t slot)
{
    struct ddpi_tensor_request *request = &cache->slots[slot].request;
    evict_one(cache, &cache->slots[slot]);
    for (uint32_t i = 0; request->group_size != 0 && i < cache->nslots; i++)
        if (cache->slots[i].used && same_group(request, &cache->slots[i].request))
            evict_one(cache, &cache->slots[i]);
}

/* A slot that is free, or was used longest ago. */
static uint32_t find_room(struct ddpi_response_cache *cache)
{
    uint32_t best = 0;
    if (cache->names.count == cache->nslots && cache->nslots < cache->capacity)
        return cache->nslots++;
    for (uint32_t i = 0; i < cache->nslots; i++) {
        if (!cache->slots[i].used)
            return i;
        if (cache->slots[i].last_use < cache->slots[best].last_use)
            best = i;
    }
    ddpi_response_cache_evict(cache, best);
    return best;
}

ddp_status ddpi_response_cache_put(struct ddpi_response_cache *cache,
                                   const struct ddpi_tensor_request *request, struct ddp_error *err)
{
    if (cache->capacity == 0 || request->group_size > cache->capacity)
        return DDP_OK;
    struct ddpi_cached_response *slot = &cache->slots[find_room(cache)];
    slot->request = *request;
    slot->used = true;
    slot->last_use = ++cache->uses;
    if (ddpi_name_table_add(&cache->names, request->set, slot->request.name, slot))
        return DDP_OK;
    return ddpi_error_nomem(err, sizeof *slot);
}

/* Append the group of @first, or @first alone; nothing if one of the group is not wanted by all. */
static uint32_t append_hits(struct ddpi_response_cache *cache, uint32_t first, uint32_t *ret_slots)
{
    const struct ddpi_tensor_request *request = &cache->slots[first].request;
    uint32_t count = 0;
    if (request->group_size == 0) {
        ret_slots[count++] = first;
    } else {
        for (uint32_t i = first; i < cache->nslots; i++)
            if (cache->wanted[i] && same_group(request, &cache->slots[i].request))
                ret_slots[count++] = i;
        if (count < request->group_size)
            count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        cache->wanted[ret_slots[i]] = false;
        cache->slots[ret_slots[i]].last_use = ++cache->uses;
    }
    return count;
}

uint32_t ddpi_response_cache_hits(struct ddpi_response_cache *cache, const uint64_t *common,
                                  uint32_t *ret_slots)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < cache->nslots; i++)
        cache->wanted[i] = cache->slots[i].used && (common[i / 64] >> i % 64 & 1) != 0;
    for (uint32_t i = 0; i < cache->nslots; i++)
        if (cache->wanted[i])
            count += append_hits(cache, i, ret_slots + count);
    return count;
}
