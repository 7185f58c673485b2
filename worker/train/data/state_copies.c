/*
 * state_copies.c - creates a state, copies its blobs, and sets them back. It must not communicate,
 * which state_sync.c does.
 */
#include "elastic_state.h"

#include "checkpoint_head.h"
#include "error.h"
#include "mem.h"
#include "state_choice.h"

#include <string.h>

/* ---- life ---- */

static int copy_host_memory(void *to, const void *from, size_t bytes, void *arg)
{
    (void)arg;
    memcpy(to, from, bytes);
    return 0;
}

static void copy_list(struct ddp_state *state, const struct ddp_state_options *options)
{
    char *name = state->names;
    for (size_t i = 0; i < options->count; i++) {
        size_t len = strlen(options->blobs[i].name) + 1;
        memcpy(name, options->blobs[i].name, len);
        state->blobs[i] = options->blobs[i];
        state->blobs[i].name = name;
        name += len;
    }
    state->count = options->count;
    state->copy = options->copy != NULL ? options->copy : copy_host_memory;
    state->copy_arg = options->copy_arg;
    state->digest = ddpi_state_digest(state->blobs, state->count);
}

ddp_status ddp_state_create(const struct ddp_state_options *given, ddp_state **ret_state,
                            struct ddp_error *err)
{
    struct ddp_state_options options = {0};
    size_t bytes = 0, text = 0;
    *ret_state = NULL;
    if (given->size < offsetof(struct ddp_state_options, copy))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "ddp_state_create(): the size of the options is not set");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    const struct ddpi_blob_limits limits = {"state", "memory", PTRDIFF_MAX};
    ddp_status status = ddpi_blobs_check(options.blobs, options.count, &limits, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < options.count; i++) {
        bytes += options.blobs[i].bytes;
        text += strlen(options.blobs[i].name) + 1;
    }
    ddp_state *state = ddpi_calloc(1, sizeof *state);
    if (state == NULL)
        return ddpi_error_nomem(err, sizeof *state);
    state->bytes = bytes;
    state->blobs = ddpi_calloc(options.count, sizeof *state->blobs);
    state->names = ddpi_calloc(text, 1);
    state->committed = ddpi_calloc(bytes + 1, 1); /* a state of empty blobs has copies, too */
    state->spare = ddpi_calloc(bytes + 1, 1);
    if (state->blobs == NULL || state->names == NULL || state->committed == NULL ||
        state->spare == NULL) {
        ddp_state_destroy(state);
        return ddpi_error_nomem(err, 2 * (unsigned long long)bytes + text +
                                         options.count * sizeof *state->blobs);
    }
    copy_list(state, &options);
    *ret_state = state;
    return DDP_OK;
}

void ddp_state_destroy(ddp_state *state)
{
    if (state == NULL)
        return;
    ddpi_free(state->spare);
    ddpi_free(state->committed);
    ddpi_free(state->names);
    ddpi_free(state->blobs);
    ddpi_free(state);
}

/* ---- copies ---- */

static ddp_status copy_one(const struct ddp_state *state, size_t i, void *to, const void *from,
                           struct ddp_error *err)
{
    size_t bytes = state->blobs[i].bytes;
    int code = bytes > 0 ? state->copy(to, from, bytes, state->copy_arg) : 0;
    if (code == 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_SYSTEM,
                          "the function that copies the %zu bytes of blob '%s' failed with %d",
                          bytes, state->blobs[i].name, code);
}

ddp_status ddpi_state_copy_blobs(struct ddp_state *state, struct ddp_error *err)
{
    uint8_t *to = state->spare;
    for (size_t i = 0; i < state->count; to += state->blobs[i++].bytes) {
        ddp_status status = copy_one(state, i, to, state->blobs[i].data, err);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

void ddpi_state_take_spare(struct ddp_state *state, uint64_t term, uint64_t number)
{
    uint8_t *complete = state->spare;
    state->spare = state->committed;
    state->committed = complete;
    state->term = term;
    state->number = number;
}

ddp_status ddp_state_commit(ddp_state *state, struct ddp_error *err)
{
    ddp_status status = ddpi_state_copy_blobs(state, err);
    if (status == DDP_OK)
        ddpi_state_take_spare(state, state->term, state->number + 1);
    return status;
}

ddp_status ddp_state_restore(ddp_state *state, struct ddp_error *err)
{
    if (state->number == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the state has no commit to go back to: call ddp_state_sync() or "
                              "ddp_state_commit() before ddp_state_restore()");
    const uint8_t *from = state->committed;
    for (size_t i = 0; i < state->count; from += state->blobs[i++].bytes) {
        ddp_status status = copy_one(state, i, state->blobs[i].data, from, err);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

uint64_t ddp_state_commit_number(const ddp_state *state)
{
    return state->number;
}
