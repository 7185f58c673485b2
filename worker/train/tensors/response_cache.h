/*
 * response_cache.h - responses that all ranks have agreed on before: a number for each name. Pure.
 *
 * All ranks make the same changes in the same order, so a number means the same on all. A rank that
 * wants a tensor again with the same arguments shows it by one bit.
 */
#ifndef DDPI_RESPONSE_CACHE_H
#define DDPI_RESPONSE_CACHE_H

#include "negotiation.h"

struct ddpi_cached_response {
    struct ddpi_tensor_request request;
    bool used;
    uint64_t last_use; /* the larger, the later */
};

struct ddpi_response_cache {
    struct ddpi_cached_response *slots;
    uint32_t capacity;
    uint32_t nslots; /* that have ever been used: the others have no bit */
    uint64_t uses;
    struct ddpi_name_table names;
    bool *wanted; /* scratch of ddpi_response_cache_hits() */
};

/* With @capacity 0 nothing is ever found. DDP_E_NOMEM: nothing is to be finished. */
ddp_status ddpi_response_cache_init(struct ddpi_response_cache *cache, uint32_t capacity,
                                    struct ddp_error *err);
void ddpi_response_cache_finish(struct ddpi_response_cache *cache);

enum ddpi_cache_answer { DDPI_CACHE_MISS, DDPI_CACHE_HIT, DDPI_CACHE_DIFFERS };

/* Whether there is a response to @request, or one to other arguments with its name; then
 * *@ret_slot is its number. */
enum ddpi_cache_answer ddpi_response_cache_find(const struct ddpi_response_cache *cache,
                                                const struct ddpi_tensor_request *request,
                                                uint32_t *ret_slot);

/* Whether the first tensor of the group of @request is remembered; then *@ret_slot is its number.
 * If @request is not, its group has other members than the one that is remembered. */
bool ddpi_response_cache_find_group(const struct ddpi_response_cache *cache,
                                    const struct ddpi_tensor_request *request, uint32_t *ret_slot);

/* Remember that all ranks want @request, which is not in the cache, in place of what has not been
 * used for longest. Of a group all or none is remembered: @group_size of its tensors come in a row.
 * DDP_E_NOMEM: the cache can only be finished. */
ddp_status ddpi_response_cache_put(struct ddpi_response_cache *cache,
                                   const struct ddpi_tensor_request *request,
                                   struct ddp_error *err);

/* Forget the response, with all of its group. */
void ddpi_response_cache_evict(struct ddpi_response_cache *cache, uint32_t slot);

/* Where the 64-bit words of a vector of bits for all numbers end. */
static inline size_t ddpi_response_cache_words(const struct ddpi_response_cache *cache)
{
    return ((size_t)cache->nslots + 63) / 64;
}

/*
 * Numbers that are wanted by all ranks, as their bits in @common say: fills @ret_slots, which has
 * room for `nslots`, and returns how many there are. Tensors of a group follow each other, and are
 * there only together. Notes the use.
 */
uint32_t ddpi_response_cache_hits(struct ddpi_response_cache *cache, const uint64_t *common,
                                  uint32_t *ret_slots);

#endif
