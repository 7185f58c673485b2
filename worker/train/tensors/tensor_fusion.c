/*
 * tensor_fusion.c - Horovod's fusion with look-ahead, on units: single tensors, and groups that
 * stay together. Owns nothing.
 */
#include "tensor_fusion.h"

#include <string.h>

/* Of uneven all-gathers sizes are known only when they are carried out, and divided then. */
static bool is_fused(const struct ddpi_tensor_response *response)
{
    return !response->failed && (response->request.kind == DDPI_TENSOR_ALL_REDUCE ||
                                 response->request.kind == DDPI_TENSOR_UNEVEN_GATHER);
}

static bool may_share(const struct ddpi_tensor_response *a, const struct ddpi_tensor_response *b)
{
    const struct ddpi_tensor_request *x = &a->request, *y = &b->request;
    return is_fused(a) && is_fused(b) && y->kind == x->kind && x->dtype == y->dtype &&
           x->op == y->op && x->set == y->set && x->on_gpu == y->on_gpu &&
           memcmp(&x->prescale, &y->prescale, sizeof x->prescale) == 0 &&
           memcmp(&x->postscale, &y->postscale, sizeof x->postscale) == 0;
}

/* On a GPU Horovod gives each tensor a multiple of 16 bytes. Nothing is copied here; but what is
 * reduced together is the same. */
static size_t bytes_of(const struct ddpi_tensor_request *request)
{
    enum { GPU_UNIT = 16 };
    size_t bytes = ddpi_tensor_bytes(request), padding = -bytes % GPU_UNIT;
    return !request->on_gpu || bytes > SIZE_MAX - padding ? bytes : bytes + padding;
}

/* Where the unit that begins at @begin ends, and its bytes. Tensors of a group lie in a row. */
static size_t unit_end(const struct ddpi_tensor_response *const *ready, size_t count, size_t begin,
                       size_t *ret_bytes)
{
    const struct ddpi_tensor_request *first = &ready[begin]->request;
    size_t end = begin + 1, bytes = bytes_of(first);
    size_t last = first->group_size > count - begin ? count : begin + first->group_size;
    *ret_bytes = bytes;
    for (; end < last; end++) {
        const struct ddpi_tensor_request *next = &ready[end]->request;
        if (!may_share(ready[begin], ready[end]) || strcmp(first->group, next->group) != 0 ||
            __builtin_add_overflow(bytes, bytes_of(next), &bytes))
            return begin + 1;
    }
    *ret_bytes = bytes;
    return end;
}

struct packing {
    const struct ddpi_tensor_response *const *ready;
    size_t count;
    size_t threshold;
    size_t *order;
    size_t used; /* responses in order[] */
    bool *taken; /* is in order[] */
};

static void take_unit(struct packing *packing, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        packing->order[packing->used++] = i;
        packing->taken[i] = true;
    }
}

/* Fill the batch of @bytes that the unit before @begin, with @first, has opened. */
static void fill_batch(struct packing *packing, size_t first, size_t begin, size_t bytes)
{
    size_t skipped = 0, unit_bytes;
    for (size_t i = begin, end; i < packing->count && bytes <= packing->threshold; i = end) {
        end = i + 1;
        if (packing->taken[i])
            continue;
        end = unit_end(packing->ready, packing->count, i, &unit_bytes);
        size_t room = packing->threshold - bytes;
        if (unit_bytes <= room && may_share(packing->ready[first], packing->ready[i])) {
            take_unit(packing, i, end);
            bytes += unit_bytes;
        } else if (__builtin_add_overflow(skipped, unit_bytes, &skipped) || skipped > room) {
            return;
        }
    }
}

size_t ddpi_tensor_fuse(const struct ddpi_tensor_response *const *ready, size_t count,
                        size_t threshold, size_t *order, size_t *ends, bool *taken)
{
    struct packing packing = {ready, count, threshold, order, 0, taken};
    size_t batches = 0;
    memset(taken, 0, count * sizeof *taken);
    for (size_t i = 0; i < count; i++) {
        if (taken[i])
            continue;
        size_t bytes, end = unit_end(ready, count, i, &bytes);
        take_unit(&packing, i, end);
        if (may_share(ready[i], ready[i]) && threshold > 0)
            fill_batch(&packing, i, end, bytes);
        ends[batches++] = packing.used;
    }
    return batches;
}
