/*
 * state_sync.c - gives all ranks the newest commit, and goes on without dead ranks. Owns nothing
 * between calls. It must not decide which commit is the newest: state_choice.c does.
 *
 * Ranks gather a record of each. What follows from the records is the same on all ranks, so all
 * take the same way: broadcast nothing, broadcast the newest commit, or look for the blob that
 * differs.
 */
#include "elastic_state.h"

#include "checksum.h"
#include "error.h"
#include "mem.h"
#include "state_choice.h"

#include <string.h>

/* ---- blobs that differ ---- */

static struct ddpi_blob_shape shape_of(const struct ddp_state *state, uint64_t i)
{
    struct ddpi_blob_shape shape = {.bytes = 0};
    if (i < state->count) {
        shape.bytes = state->blobs[i].bytes;
        memcpy(shape.name, state->blobs[i].name, strlen(state->blobs[i].name));
    }
    return shape;
}

/* Rank @root shows its blob @i to all. */
static ddp_status show_blob(const struct ddp_state *state, ddp_comm *comm, uint64_t i,
                            uint32_t root, struct ddpi_blob_shape *ret, struct ddp_error *err)
{
    *ret = shape_of(state, i);
    return ddp_broadcast(comm, ret, sizeof *ret, DDP_UINT8, root, NULL, err);
}

/* Blob by blob, as this needs no memory and happens once. */
static ddp_status find_difference(const struct ddp_state *state, ddp_comm *comm,
                                  const struct ddpi_state_record *records, uint32_t odd,
                                  struct ddp_error *err)
{
    struct ddpi_blob_shape first, other;
    bool odd_has_more = records[odd].blobs > records[0].blobs;
    uint64_t shared = odd_has_more ? records[0].blobs : records[odd].blobs;
    for (uint64_t i = 0; i < shared; i++) {
        ddp_status status = show_blob(state, comm, i, 0, &first, err);
        if (status == DDP_OK)
            status = show_blob(state, comm, i, odd, &other, err);
        if (status == DDP_OK)
            status = ddpi_blob_compare(i, &first, &other, odd, err);
        if (status != DDP_OK)
            return status;
    }
    uint32_t has = odd_has_more ? odd : 0;
    ddp_status status = show_blob(state, comm, shared, has, &first, err);
    return status != DDP_OK ? status
                            : ddpi_blob_missing(shared, &first, has, odd_has_more ? 0 : odd, err);
}

/* ---- the newest commit ---- */

static uint64_t sum_of_commit(const struct ddp_state *state)
{
    struct ddpi_checksum sum;
    ddpi_checksum_start(&sum);
    return state->number != 0 ? ddpi_checksum_end(&sum, state->committed, state->bytes) : 0;
}

/* DDP_E_MISMATCH: ranks have different blobs. */
static ddp_status choose_commit(struct ddp_state *state, ddp_comm *comm,
                                struct ddpi_state_choice *ret, struct ddp_error *err)
{
    const struct ddpi_state_record own = {.digest = state->digest,
                                          .blobs = state->count,
                                          .term = state->term,
                                          .number = state->number,
                                          .sum = sum_of_commit(state)};
    uint32_t world_size = ddp_comm_world_size(comm);
    struct ddpi_state_record *records = ddpi_calloc(world_size, sizeof *records);
    if (records == NULL)
        return ddpi_error_nomem(err, world_size * sizeof *records);
    ddp_status status =
        ddp_all_gather(comm, &own, records, DDPI_STATE_RECORD_NUMBERS, DDP_UINT64, NULL, err);
    if (status == DDP_OK) {
        *ret = ddpi_state_choose(records, world_size);
        if (ret->odd != 0)
            status = find_difference(state, comm, records, ret->odd, err);
    }
    ddpi_free(records);
    return status;
}

/* All but the root receive into the spare copy, so nobody loses a commit if the root dies. */
static ddp_status broadcast_commit(struct ddp_state *state, ddp_comm *comm,
                                   const struct ddpi_state_choice *choice, struct ddp_error *err)
{
    bool sends_commit = choice->number != 0 && ddp_comm_rank(comm) == choice->root;
    uint8_t *buffer = sends_commit ? state->committed : state->spare;
    ddp_status status =
        ddp_broadcast(comm, buffer, state->bytes, DDP_UINT8, choice->root, NULL, err);
    if (status == DDP_OK && !sends_commit)
        ddpi_state_take_spare(state, choice->term, choice->number != 0 ? choice->number : 1);
    return status;
}

ddp_status ddp_state_sync(ddp_state *state, ddp_comm *comm, struct ddp_error *err)
{
    struct ddpi_state_choice choice = {.odd = 0};
    ddp_status status = DDP_OK;
    /* In case that no rank has a commit: a copy that fails must fail before others wait for it. */
    if (state->number == 0 && ddp_comm_rank(comm) == 0)
        status = ddpi_state_copy_blobs(state, err);
    if (status == DDP_OK)
        status = choose_commit(state, comm, &choice, err);
    if (status == DDP_OK && choice.missing)
        status = broadcast_commit(state, comm, &choice, err);
    if (status != DDP_OK)
        return status;
    state->term = choice.term + 1;
    return ddp_state_restore(state, err);
}

/* ---- deaths ---- */

static bool tells_of_death(ddp_status status)
{
    return status == DDP_E_PEER_DEAD || status == DDP_E_CLOSED;
}

ddp_status ddp_state_recover(ddp_state *state, ddp_comm **comm, uint32_t timeout_ms,
                             struct ddp_error *err)
{
    ddp_status status = DDP_E_PEER_DEAD;
    /* As many rounds as there are ranks that can die, so that it ends. */
    for (uint32_t left = ddp_comm_world_size(*comm); left > 0 && tells_of_death(status); left--) {
        ddp_comm *rest = NULL;
        status = ddp_comm_shrink(*comm, NULL, 0, 0, timeout_ms, &rest, err);
        if (status != DDP_OK)
            return status;
        ddp_comm_destroy(*comm);
        *comm = rest;
        status = ddp_state_sync(state, rest, err);
    }
    return status;
}
