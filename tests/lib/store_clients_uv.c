/*
 * store_clients_uv.c - the row of the asynchronous client, whose loop runs until an answer or an
 * event has come.
 */
#include "store_clients.h"

#include <stdio.h>
#include <string.h>

static bool submits;

static void uv_setup(void)
{
    store_uv_setup();
    clients_use(&uv_clients);
}

static void on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct store_client *client = data;
    ck_assert_ptr_eq(store, client->uv);
    ck_assert_uint_lt(client->nevents, sizeof client->events / sizeof *client->events);
    client_keep_event(&client->events[client->nevents++], event);
}

static void on_state(void *data, ddp_store_uv *store, enum ddp_store_uv_state state,
                     const char *text)
{
    struct store_client *client = data;
    ck_assert_ptr_eq(store, client->uv);
    ck_assert((strlen(text) == 0) == (state == DDP_STORE_UV_CONNECTED));
    client->states[state]++;
}

static void on_session_end(void *data, ddp_store_uv *store, const struct ddp_store_session *session)
{
    struct store_client *client = data;
    ck_assert(store == client->uv && session != NULL);
    client->sessions_ended++;
}

static ddp_status uv_open(const struct ddp_store_options *options, struct store_client *client,
                          struct ddp_error *err)
{
    const struct ddp_store_uv_hooks hooks = {.size = sizeof hooks,
                                             .data = client,
                                             .event = on_event,
                                             .state = on_state,
                                             .session_ended = on_session_end};
    return ddp_store_uv_open(&loop, options, &hooks, &client->uv, err);
}

static void uv_close_client(struct store_client *client)
{
    close_uv(client->uv);
}

static void on_done(void *data, const struct ddp_store_result *result)
{
    struct outcome *outcome = data;
    ck_assert(!submits && !outcome->there); /* never from within submit */
    ck_assert_uint_eq(result->request, outcome->id);
    ck_assert((strlen(result->message) == 0) == (result->status == DDP_OK));
    outcome->there = true;
    outcome->status = result->status;
    outcome->version = result->version;
    outcome->watch = result->watch;
    outcome->number = result->number;
    snprintf(outcome->err.msg, sizeof outcome->err.msg, "%s", result->message);
    if (result->value != NULL)
        client_keep_value(outcome, result->value, result->value_len);
    else if (result->keys != NULL)
        client_keep_keys(outcome, result->keys, result->count);
    if (result->session != NULL)
        outcome->session = *result->session;
    outcome->client->answers++;
}

static void uv_start(struct outcome *outcome)
{
    submits = true;
    outcome->status = ddp_store_uv_submit(outcome->client->uv, &outcome->request, on_done, outcome,
                                          &outcome->id, &outcome->err);
    submits = false;
    outcome->there = outcome->status != DDP_OK;
}

static void uv_finish(struct outcome *outcome)
{
    UNTIL(outcome->there);
}

static bool uv_next_event(struct store_client *client, uint32_t timeout_ms, struct seen_event *ret)
{
    UNTIL(timeout_ms == 0 || client->read < client->nevents);
    if (client->read == client->nevents)
        return false;
    *ret = client->events[client->read++];
    return true;
}

const struct client_row uv_clients = {"asynchronous",  uv_setup, store_uv_teardown, uv_open,
                                      uv_close_client, uv_start, uv_finish,         uv_next_event};
