/*
 * state_choice.c - chooses among the commits of all ranks, and compares their blobs. Pure: what it
 * reads comes from other ranks. Owns nothing.
 */
#include "state_choice.h"

#include "bytes.h"
#include "error.h"

#include <inttypes.h>
#include <string.h>

/* ---- which commit ---- */

static bool is_newer(const struct ddpi_state_record *a, const struct ddpi_state_record *b)
{
    if (a->number == 0 || b->number == 0)
        return a->number > b->number;
    return a->term != b->term ? a->term > b->term : a->number > b->number;
}

struct ddpi_state_choice ddpi_state_choose(const struct ddpi_state_record *records, uint32_t count)
{
    struct ddpi_state_choice choice = {.odd = 0};
    for (uint32_t rank = 1; rank < count; rank++) {
        if (choice.odd == 0 &&
            (records[rank].digest != records[0].digest || records[rank].blobs != records[0].blobs))
            choice.odd = rank;
        if (is_newer(&records[rank], &records[choice.root]))
            choice.root = rank;
    }
    const struct ddpi_state_record *newest = &records[choice.root];
    choice.number = newest->number;
    choice.term = newest->number != 0 ? newest->term : 0;
    choice.missing = newest->number == 0;
    for (uint32_t rank = 0; rank < count; rank++)
        choice.missing |= is_newer(newest, &records[rank]) || records[rank].sum != newest->sum;
    return choice;
}

/* ---- whether blobs are the same ---- */

uint64_t ddpi_state_digest(const struct ddp_checkpoint_blob *blobs, size_t count)
{
    uint64_t digest = DDPI_DIGEST64_NONE;
    for (size_t i = 0; i < count; i++) {
        const uint64_t size = blobs[i].bytes;
        digest = ddpi_digest64(digest, blobs[i].name, strlen(blobs[i].name) + 1);
        digest = ddpi_digest64(digest, &size, sizeof size);
    }
    return digest;
}

static int name_bytes(const struct ddpi_blob_shape *shape)
{
    return (int)strnlen(shape->name, DDP_CHECKPOINT_NAME);
}

ddp_status ddpi_blob_compare(uint64_t i, const struct ddpi_blob_shape *first,
                             const struct ddpi_blob_shape *other, uint32_t odd,
                             struct ddp_error *err)
{
    if (first->bytes == other->bytes && strncmp(first->name, other->name, DDP_CHECKPOINT_NAME) == 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_MISMATCH,
                          "blob %" PRIu64 " of the state is '%.*s' with %" PRIu64
                          " bytes on rank 0, but '%.*s' with %" PRIu64
                          " bytes on rank %u; register the same blobs in the same order everywhere",
                          i, name_bytes(first), first->name, first->bytes, name_bytes(other),
                          other->name, other->bytes, odd);
}

ddp_status ddpi_blob_missing(uint64_t i, const struct ddpi_blob_shape *blob, uint32_t has,
                             uint32_t lacks, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_MISMATCH,
                          "blob %" PRIu64 " of the state, '%.*s', is on rank %u, but not on rank "
                          "%u; register the same blobs in the same order everywhere",
                          i, name_bytes(blob), blob->name, has, lacks);
}
