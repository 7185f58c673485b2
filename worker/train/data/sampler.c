/*
 * sampler.c - <ddprun/ddp_sampler.h>: which positions of the order of an epoch belong to a rank.
 * Owns the order of a sampler that shuffles. It must know nothing of data or of other ranks.
 */
#include <ddprun/ddp_sampler.h>

#include "error.h"
#include "mem.h"
#include "permutation.h"

#include <stdbool.h>

struct ddp_sampler {
    struct ddp_sampler_options options;
    uint64_t share;  /* items of each rank */
    uint64_t *order; /* of the items in this epoch; NULL: 0, 1, 2, ... */
};

static ddp_status check_options(const struct ddp_sampler_options *options, struct ddp_error *err)
{
    if (options->size != sizeof *options)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the size of the ddp_sampler_options is %zu, not %zu: set it to "
                              "sizeof(struct ddp_sampler_options)",
                              options->size, sizeof *options);
    if (options->world_size == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the world_size of the sampler is 0: it must be at least 1");
    if (options->rank >= options->world_size)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the rank of the sampler is %u: with a world_size of %u it must be "
                              "at most %u",
                              options->rank, options->world_size, options->world_size - 1);
    if (options->count > INT64_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the sampler has a count of %llu items: at most %lld are possible",
                              (unsigned long long)options->count, (long long)INT64_MAX);
    return DDP_OK;
}

static uint64_t share_of(const struct ddp_sampler_options *options)
{
    uint64_t whole = options->count / options->world_size;
    bool pads = !options->drop_last && options->count % options->world_size != 0;
    return whole + pads;
}

ddp_status ddp_sampler_create(const struct ddp_sampler_options *options, ddp_sampler **ret_sampler,
                              struct ddp_error *err)
{
    ddp_status status = check_options(options, err);
    if (status != DDP_OK)
        return status;
    ddp_sampler *sampler = ddpi_calloc(1, sizeof *sampler);
    if (sampler == NULL)
        return ddpi_error_nomem(err, sizeof *sampler);
    sampler->options = *options;
    sampler->share = share_of(options);
    if (options->shuffle && options->count > 0) {
        sampler->order = ddpi_calloc((size_t)options->count, sizeof *sampler->order);
        if (sampler->order == NULL) {
            ddpi_free(sampler);
            return ddpi_error_nomem(err, options->count * sizeof *sampler->order);
        }
    }
    ddp_sampler_set_epoch(sampler, 0);
    *ret_sampler = sampler;
    return DDP_OK;
}

void ddp_sampler_destroy(ddp_sampler *sampler)
{
    if (sampler == NULL)
        return;
    ddpi_free(sampler->order);
    ddpi_free(sampler);
}

void ddp_sampler_set_epoch(ddp_sampler *sampler, uint64_t epoch)
{
    if (sampler->order != NULL)
        ddpi_permutation_fill(sampler->order, sampler->options.count,
                              sampler->options.seed + epoch);
}

uint64_t ddp_sampler_count(const ddp_sampler *sampler)
{
    return sampler->share;
}

uint64_t ddp_sampler_index(const ddp_sampler *sampler, uint64_t k)
{
    if (k >= sampler->share)
        return UINT64_MAX;
    /* Only positions that pad the order lie behind its end: there it begins anew. */
    uint64_t at =
        (sampler->options.rank + k * sampler->options.world_size) % sampler->options.count;
    return sampler->order != NULL ? sampler->order[at] : at;
}

uint64_t ddp_sampler_fill(const ddp_sampler *sampler, uint64_t first, uint64_t count,
                          uint64_t *items)
{
    if (first >= sampler->share)
        return 0;
    uint64_t left = sampler->share - first;
    uint64_t filled = count < left ? count : left;
    for (uint64_t i = 0; i < filled; i++)
        items[i] = ddp_sampler_index(sampler, first + i);
    return filled;
}
