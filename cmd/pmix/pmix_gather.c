/*
 * pmix_gather.c - sets this node's key and waits for those of the others. Owns the connection to
 * the store, and what has arrived until all has.
 */
#include "pmix_gather.h"

#include "error.h"
#include "mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { GATHER_KEY = 128 };

/* An exchange under way. */
struct exchange {
    struct pmix_gathering *gathering;
    struct pmix_gather asked;
    uint32_t requests; /* not answered yet */
    ddp_status status; /* the first that is not DDP_OK */
    char why[DDP_ERROR_TEXT];
    struct pmix_text *texts;
};

/* The request for one node's text. */
struct wanted {
    struct exchange *exchange;
    uint32_t at; /* in the group */
};

static void gather_key(char key[GATHER_KEY], const struct pmix_gather *asked, uint32_t node)
{
    snprintf(key, GATHER_KEY, "pmix/%s/%" PRIu32, asked->name, node);
}

static void free_exchange(struct exchange *exchange)
{
    for (uint32_t i = 0; exchange->texts != NULL && i < exchange->asked.count; i++)
        ddpi_free(exchange->texts[i].bytes);
    ddpi_free(exchange->texts);
    ddpi_free(exchange);
}

static void fail_exchange(struct exchange *exchange, ddp_status status, const char *why)
{
    if (exchange->status != DDP_OK)
        return;
    exchange->status = status;
    snprintf(exchange->why, sizeof exchange->why, "%s", why);
}

static void answer_exchange(struct exchange *exchange)
{
    if (--exchange->requests > 0)
        return;
    exchange->asked.done(exchange->asked.ctx, exchange->status, exchange->texts, exchange->why);
    free_exchange(exchange);
}

static bool keep_text(struct exchange *exchange, uint32_t at, const void *bytes, size_t len)
{
    struct pmix_text *text = &exchange->texts[at];
    text->bytes = ddpi_calloc(len + 1, 1);
    if (text->bytes == NULL)
        return false;
    memcpy(text->bytes, bytes, len);
    text->len = len;
    return true;
}

static void on_own_set(void *data, const struct ddp_store_result *result)
{
    struct exchange *exchange = data;
    if (result->status != DDP_OK)
        fail_exchange(exchange, result->status, result->message);
    answer_exchange(exchange);
}

static void on_other_got(void *data, const struct ddp_store_result *result)
{
    struct wanted *wanted = data;
    struct exchange *exchange = wanted->exchange;
    if (result->status != DDP_OK)
        fail_exchange(exchange, result->status, result->message);
    else if (!keep_text(exchange, wanted->at, result->value, result->value_len))
        fail_exchange(exchange, DDP_E_NOMEM, "no memory is left");
    ddpi_free(wanted);
    answer_exchange(exchange);
}

static ddp_status ask_store(struct exchange *exchange, struct ddp_store_request *request,
                            ddp_store_uv_done *done, void *data, struct ddp_error *err)
{
    request->size = sizeof *request;
    request->timeout_ms = DDP_STORE_FOREVER;
    ddp_status status =
        ddp_store_uv_submit(exchange->gathering->store, request, done, data, NULL, err);
    exchange->requests += status == DDP_OK;
    return status;
}

static ddp_status set_own(struct exchange *exchange, struct ddp_error *err)
{
    const struct pmix_gather *asked = &exchange->asked;
    char key[GATHER_KEY];
    gather_key(key, asked, exchange->gathering->node_rank);
    struct ddp_store_request request = {
        .op = DDP_STORE_OP_SET, .key = key, .value = asked->own.bytes, .value_len = asked->own.len};
    return ask_store(exchange, &request, on_own_set, exchange, err);
}

static ddp_status get_other(struct exchange *exchange, uint32_t at, struct ddp_error *err)
{
    char key[GATHER_KEY];
    struct wanted *wanted = ddpi_calloc(1, sizeof *wanted);
    if (wanted == NULL)
        return ddpi_error_nomem(err, sizeof *wanted);
    *wanted = (struct wanted){exchange, at};
    gather_key(key, &exchange->asked, exchange->asked.nodes[at]);
    struct ddp_store_request request = {.op = DDP_STORE_OP_GET, .key = key};
    ddp_status status = ask_store(exchange, &request, on_other_got, wanted, err);
    if (status != DDP_OK)
        ddpi_free(wanted);
    return status;
}

ddp_status pmix_gather_connect(struct pmix_gathering *gathering, struct ddp_error *err)
{
    if (gathering->store != NULL)
        return DDP_OK;
    return ddp_store_uv_open(gathering->loop, gathering->options, NULL, &gathering->store, err);
}

/* Called with one request more than there are, so that no answer ends the exchange meanwhile. */
static ddp_status exchange_with_others(struct exchange *exchange, struct ddp_error *err)
{
    struct pmix_gathering *gathering = exchange->gathering;
    ddp_status status = pmix_gather_connect(gathering, err);
    if (status == DDP_OK)
        status = set_own(exchange, err);
    for (uint32_t i = 0; i < exchange->asked.count && status == DDP_OK; i++)
        if (exchange->asked.nodes[i] != gathering->node_rank)
            status = get_other(exchange, i, err);
    return status;
}

void pmix_gather_begin(struct pmix_gathering *gathering, const struct pmix_gather *gather)
{
    struct ddp_error err = {.msg = "no memory is left"};
    struct exchange *exchange = ddpi_calloc(1, sizeof *exchange);
    if (exchange != NULL)
        exchange->texts = ddpi_calloc(gather->count, sizeof *exchange->texts);
    if (exchange == NULL || exchange->texts == NULL) {
        gather->done(gather->ctx, DDP_E_NOMEM, NULL, err.msg);
        ddpi_free(exchange);
        return;
    }
    exchange->gathering = gathering;
    exchange->asked = *gather;
    exchange->requests = 1;
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < gather->count && status == DDP_OK; i++)
        if (gather->nodes[i] == gathering->node_rank &&
            !keep_text(exchange, i, gather->own.bytes, gather->own.len))
            status = DDP_E_NOMEM;
    if (status == DDP_OK && gather->count > 1)
        status = exchange_with_others(exchange, &err);
    if (status != DDP_OK)
        fail_exchange(exchange, status, err.msg);
    answer_exchange(exchange);
}
