/*
 * store_clients.c - what the rows share, and the row of the blocking client.
 */
#include "store_clients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct client_row *row_in_use;
static struct outcome *outcomes;

void clients_use(const struct client_row *row)
{
    row_in_use = row;
}

ddp_status client_try_open(const struct ddp_store_options *options, struct store_client **ret,
                           struct ddp_error *err)
{
    struct store_client *client = calloc(1, sizeof *client);
    ddp_status status = row_in_use->open(options, client, err);
    if (status == DDP_OK)
        *ret = client;
    else
        free(client);
    return status;
}

struct store_client *client_open_at(const char *endpoint, const char *prefix, uint32_t flags)
{
    struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = endpoint != NULL ? endpoint : store_thread_endpoint(server),
        .prefix = prefix,
        .connect_timeout_ms = LONG_MS,
        .flags = flags};
    struct store_client *client = NULL;
    secure(&options);
    OK(client_try_open(&options, &client, &why));
    return client;
}

struct store_client *client_open(const char *prefix)
{
    return client_open_at(NULL, prefix, 0);
}

void client_close(struct store_client *client)
{
    row_in_use->close(client);
    free(client);
}

struct outcome *client_start(struct store_client *client, struct ddp_store_request request)
{
    struct outcome *outcome = calloc(1, sizeof *outcome);
    request.size = sizeof request;
    request.timeout_ms = request.timeout_ms == 0         ? LONG_MS
                         : request.timeout_ms == AT_ONCE ? 0
                                                         : request.timeout_ms;
    outcome->client = client;
    outcome->request = request;
    outcome->next = outcomes;
    outcomes = outcome;
    client_keep_value(outcome, "", 0);
    row_in_use->start(outcome);
    return outcome;
}

struct outcome *client_finish(struct outcome *outcome)
{
    row_in_use->finish(outcome);
    return outcome;
}

struct outcome *client_expect(ddp_status wanted, struct outcome *outcome)
{
    ck_assert_msg(outcome->status == wanted, "operation %d: %s, not %s: %s",
                  (int)outcome->request.op, ddp_status_name(outcome->status),
                  ddp_status_name(wanted), outcome->err.msg);
    return outcome;
}

void client_keep_value(struct outcome *outcome, const char *value, size_t len)
{
    ck_assert_int_eq(value[len], '\0');
    outcome->value = realloc(outcome->value, len + 1);
    memcpy(outcome->value, value, len + 1);
    outcome->value_len = len;
}

void client_keep_keys(struct outcome *outcome, char *const *keys, size_t count)
{
    char text[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used < sizeof text; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? "," : "", keys[i]);
    client_keep_value(outcome, text, strlen(text));
    outcome->count = count;
}

void client_keep_event(struct seen_event *seen, const struct ddp_store_event *event)
{
    ck_assert_uint_eq(event->key_len, strlen(event->key));
    *seen =
        (struct seen_event){.kind = event->kind, .watch = event->watch, .version = event->version};
    snprintf(seen->key, sizeof seen->key, "%s", event->key);
    snprintf(seen->value, sizeof seen->value, "%s", (const char *)event->value);
}

struct seen_event client_next_event(struct store_client *client)
{
    struct seen_event event;
    ck_assert(row_in_use->next_event(client, LONG_MS, &event));
    return event;
}

bool client_has_event(struct store_client *client)
{
    struct seen_event event;
    return row_in_use->next_event(client, 0, &event);
}

void client_await_waits(size_t wanted)
{
    while (store_thread_stats(server).waits != wanted) {
        uv_run(&loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

/* ---- the blocking client ---- */

static void blocking_setup(void)
{
    store_uv_setup(); /* the loop is idle */
    clients_use(&blocking_clients);
}

static ddp_status blocking_open(const struct ddp_store_options *options,
                                struct store_client *client, struct ddp_error *err)
{
    return ddp_store_connect(options, &client->blocking, err);
}

static void blocking_close(struct store_client *client)
{
    ddp_store_close(client->blocking);
}

static ddp_status get(ddp_store *store, const struct ddp_store_request *r, struct outcome *o)
{
    void *value = NULL;
    size_t len = 0;
    ddp_status status =
        r->op == DDP_STORE_OP_GET
            ? ddp_store_get(store, r->key, r->timeout_ms, &value, &len, &o->version, &o->err)
            : ddp_store_try_get(store, r->key, r->timeout_ms, &value, &len, &o->version, &o->err);
    if (status == DDP_OK)
        client_keep_value(o, value, len);
    ddp_store_free(value);
    return status;
}

static ddp_status list(ddp_store *store, const struct ddp_store_request *r, struct outcome *o)
{
    char **keys = NULL;
    size_t count = 0;
    ddp_status status = ddp_store_list(store, r->key, r->timeout_ms, &keys, &count, &o->err);
    if (status == DDP_OK)
        client_keep_keys(o, keys, count);
    ddp_store_free(keys);
    return status;
}

static ddp_status stats(ddp_store *store, const struct ddp_store_request *r, struct outcome *o)
{
    char *text = NULL;
    ddp_status status = ddp_store_stats(store, r->timeout_ms, &text, &o->err);
    if (status == DDP_OK)
        client_keep_value(o, text, strlen(text));
    ddp_store_free(text);
    return status;
}

/* Operations on watches and sessions. */
static ddp_status run_other(ddp_store *store, const struct ddp_store_request *r, struct outcome *o)
{
    struct ddp_error *err = &o->err;
    switch (r->op) {
    case DDP_STORE_OP_WATCH:
        return ddp_store_watch(store, r->key, r->flags, r->version, r->timeout_ms, &o->watch,
                               &o->version, err);
    case DDP_STORE_OP_UNWATCH:
        return ddp_store_unwatch(store, r->watch, r->timeout_ms, err);
    case DDP_STORE_OP_SESSION_OPEN:
        return ddp_store_session_open(store, r->lease_ms, r->timeout_ms, &o->session, err);
    case DDP_STORE_OP_SESSION_KEEP:
        return ddp_store_session_keep(store, r->session, r->timeout_ms, err);
    case DDP_STORE_OP_SESSION_CLOSE:
        return ddp_store_session_close(store, r->session, r->timeout_ms, err);
    case DDP_STORE_OP_SET_EPHEMERAL:
        return ddp_store_set_ephemeral(store, r->session, r->key, r->value, r->value_len,
                                       r->timeout_ms, &o->version, err);
    default:
        ck_abort_msg("operation %d", (int)r->op);
    }
}

static ddp_status run_request(ddp_store *store, const struct ddp_store_request *r,
                              struct outcome *o)
{
    struct ddp_error *err = &o->err;
    switch (r->op) {
    case DDP_STORE_OP_SET:
        return ddp_store_set(store, r->key, r->value, r->value_len, r->timeout_ms, &o->version,
                             err);
    case DDP_STORE_OP_GET:
    case DDP_STORE_OP_TRY_GET:
        return get(store, r, o);
    case DDP_STORE_OP_ADD:
        return ddp_store_add(store, r->key, r->number, r->timeout_ms, &o->number, err);
    case DDP_STORE_OP_COMPARE_AND_SWAP:
        return ddp_store_compare_and_swap(store, r->key, r->version, r->value, r->value_len,
                                          r->timeout_ms, &o->version, err);
    case DDP_STORE_OP_TRANSACT:
        return ddp_store_transact(store, r->clauses, r->count, r->timeout_ms, &o->version, err);
    case DDP_STORE_OP_WAIT:
        return ddp_store_wait(store, r->keys, r->count, r->timeout_ms, err);
    case DDP_STORE_OP_DELETE:
        return ddp_store_delete(store, r->key, r->timeout_ms, err);
    case DDP_STORE_OP_LIST:
        return list(store, r, o);
    case DDP_STORE_OP_BARRIER:
        return ddp_store_barrier(store, r->key, (uint32_t)r->count, r->timeout_ms, err);
    case DDP_STORE_OP_STATS:
        return stats(store, r, o);
    default:
        return run_other(store, r, o);
    }
}

static void blocking_run(void *arg)
{
    struct outcome *outcome = arg;
    outcome->status = run_request(outcome->client->blocking, &outcome->request, outcome);
}

static void blocking_start(struct outcome *outcome)
{
    ck_assert_int_eq(uv_thread_create(&outcome->thread, blocking_run, outcome), 0);
}

static void blocking_finish(struct outcome *outcome)
{
    uv_thread_join(&outcome->thread);
}

static bool blocking_next_event(struct store_client *client, uint32_t timeout_ms,
                                struct seen_event *ret)
{
    struct ddp_store_event *event;
    ddp_status status = ddp_store_next_event(client->blocking, timeout_ms, &event, &why);
    ck_assert_msg(status == DDP_OK || (timeout_ms == 0 && status == DDP_E_TIMEOUT), "%s", why.msg);
    if (status != DDP_OK)
        return false;
    client_keep_event(ret, event);
    ddp_store_free(event);
    return true;
}

const struct client_row blocking_clients = {"blocking",      blocking_setup,     store_uv_teardown,
                                            blocking_open,   blocking_close,     blocking_start,
                                            blocking_finish, blocking_next_event};
