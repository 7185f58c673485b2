/*
 * job_keys.c - see job_keys.h. Lists the keys, and asks for the value of each. Owns a note of each
 * key that is asked for.
 */
#include "job_keys.h"

#include "mem.h"
#include "round_names.h"

#include <stdio.h>
#include <string.h>

enum { ASK_MS = 10000 };

static void end_reading(struct job_keys *keys)
{
    keys->reading = 0;
    keys->hooks.over(keys->hooks.ctx);
}

/* A request of one reading. Its result does not name the key. */
struct asked_key {
    struct job_keys *keys;
    uint64_t reading;
    char key[];
};

static bool ask(struct job_keys *keys, enum ddp_store_op op, const char *key,
                ddp_store_uv_done *done)
{
    size_t size = strlen(key) + 1;
    struct asked_key *asked = ddpi_calloc(1, sizeof *asked + size);
    if (asked == NULL)
        return false;
    asked->keys = keys;
    asked->reading = keys->reading;
    memcpy(asked->key, key, size);
    const struct ddp_store_request request = {
        .size = sizeof request, .op = op, .timeout_ms = ASK_MS, .key = key};
    bool sent = keys->store != NULL &&
                ddp_store_uv_submit(keys->store, &request, done, asked, NULL, NULL) == DDP_OK;
    if (!sent)
        ddpi_free(asked);
    return sent;
}

/* The first failure is kept. A key may have been deleted since it was listed. */
static void note_status(struct job_keys *keys, ddp_status status)
{
    if (keys->status == DDP_OK && status != DDP_E_NOT_FOUND)
        keys->status = status;
}

/* Whether @result is one of the reading that is under way; if the store was away, that begins
 * again. */
static bool is_current(const struct asked_key *asked, const struct ddp_store_result *result)
{
    struct job_keys *keys = asked->keys;
    bool was_away = result->status == DDP_E_TIMEOUT || result->status == DDP_E_CLOSED;
    bool current = asked->reading == keys->reading && keys->store != NULL;
    if (current && was_away)
        job_keys_read(keys, keys->state_only);
    return current && !was_away;
}

static void on_value(void *data, const struct ddp_store_result *result)
{
    struct asked_key *asked = data;
    struct job_keys *keys = asked->keys;
    if (is_current(asked, result)) {
        bool last = --keys->asked == 0;
        note_status(keys, result->status);
        if (result->status == DDP_OK)
            keys->hooks.value(keys->hooks.ctx, asked->key, result->version, result->value,
                              result->value_len);
        if (last && asked->reading == keys->reading)
            end_reading(keys);
    }
    ddpi_free(asked);
}

static void ask_value(struct job_keys *keys, const char *key)
{
    if (ask(keys, DDP_STORE_OP_TRY_GET, key, on_value))
        keys->asked++;
    else
        note_status(keys, DDP_E_NOMEM);
}

static void on_listed(void *data, const struct ddp_store_result *result)
{
    struct asked_key *asked = data;
    struct job_keys *keys = asked->keys;
    if (is_current(asked, result)) {
        note_status(keys, result->status);
        for (size_t i = 0; result->status == DDP_OK && i < result->count; i++)
            ask_value(keys, result->keys[i]);
        if (keys->asked == 0) /* there is no job */
            end_reading(keys);
    }
    ddpi_free(asked);
}

void job_keys_init(struct job_keys *keys, const char *job, const struct job_keys_hooks *hooks)
{
    *keys = (struct job_keys){.hooks = *hooks};
    snprintf(keys->prefix, sizeof keys->prefix, DDPI_ROUND_PREFIX "%s/", job);
}

void job_keys_read(struct job_keys *keys, bool state_only)
{
    char state[sizeof keys->prefix + sizeof "state"];
    snprintf(state, sizeof state, "%sstate", keys->prefix);
    keys->hooks.begun(keys->hooks.ctx);
    keys->state_only = state_only;
    keys->reading = ++keys->readings;
    keys->asked = 0;
    keys->status = DDP_OK;
    if (state_only)
        ask_value(keys, state);
    else if (!ask(keys, DDP_STORE_OP_LIST, keys->prefix, on_listed))
        note_status(keys, DDP_E_NOMEM);
    if (keys->status != DDP_OK && keys->store != NULL)
        end_reading(keys);
}

void job_keys_stop(struct job_keys *keys)
{
    keys->reading = 0;
}
