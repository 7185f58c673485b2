/*
 * pmi_exchange.c - sets this node's text and waits for the texts of the other nodes. A node sets
 * its text when it reaches the exchange, so waiting for all keys is the barrier.
 */
#include "pmi_exchange.h"

#include "error.h"
#include "mem.h"

#include <inttypes.h>
#include <stdio.h>

enum { KEY_SIZE = 64 };

/* A pending request for the text of a node. */
struct text_request {
    struct pmi_exchanges *exchanges;
    uint32_t node;
};

static void cut_off(struct pmi_exchanges *exchanges, const char *why)
{
    char text[DDP_ERROR_TEXT + 64];
    snprintf(text, sizeof text, "the MPI ranks of this node cannot reach those of other nodes: %s",
             why);
    pmi_cut_off(exchanges->pmi, text);
}

static void on_set(void *data, const struct ddp_store_result *result)
{
    struct pmi_exchanges *exchanges = data;
    if (result->status != DDP_OK && exchanges->store != NULL)
        cut_off(exchanges, result->message);
}

static void on_text(void *data, const struct ddp_store_result *result)
{
    struct text_request *request = data;
    struct pmi_exchanges *exchanges = request->exchanges;
    uint32_t node = request->node;
    ddpi_free(request);
    if (exchanges->store == NULL)
        return; /* the generation is over */
    if (result->status == DDP_OK)
        pmi_heard(exchanges->pmi, node, result->value, result->value_len);
    else
        cut_off(exchanges, result->message);
}

static void make_key(char key[KEY_SIZE], const struct pmi_exchange *exchange, uint32_t node)
{
    snprintf(key, KEY_SIZE, "g%" PRIu64 "/pmi/%" PRIu32 "/%" PRIu32, exchange->generation,
             exchange->number, node);
}

static ddp_status pmi_text_set(struct pmi_exchanges *exchanges, const struct pmi_exchange *exchange,
                               struct ddp_error *err)
{
    char key[KEY_SIZE];
    make_key(key, exchange, exchange->node_rank);
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_SET,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = key,
                                              .value = exchange->text,
                                              .value_len = exchange->len};
    return ddp_store_uv_submit(exchanges->store, &request, on_set, exchanges, NULL, err);
}

static ddp_status pmi_text_get(struct pmi_exchanges *exchanges, const struct pmi_exchange *exchange,
                               uint32_t node, struct ddp_error *err)
{
    char key[KEY_SIZE];
    struct text_request *wanted = ddpi_calloc(1, sizeof *wanted);
    if (wanted == NULL)
        return ddpi_error_nomem(err, sizeof *wanted);
    *wanted = (struct text_request){exchanges, node};
    make_key(key, exchange, node);
    const struct ddp_store_request request = {.size = sizeof request,
                                              .op = DDP_STORE_OP_GET,
                                              .timeout_ms = DDP_STORE_FOREVER,
                                              .key = key};
    ddp_status status = ddp_store_uv_submit(exchanges->store, &request, on_text, wanted, NULL, err);
    if (status != DDP_OK)
        ddpi_free(wanted);
    return status;
}

static ddp_status on_exchange(void *ctx, const struct pmi_exchange *exchange, struct ddp_error *err)
{
    struct pmi_exchanges *exchanges = ctx;
    ddp_status status = DDP_OK;
    exchanges->pmi = exchange->pmi;
    if (exchanges->store == NULL)
        status =
            ddp_store_uv_open(exchanges->loop, &exchanges->options, NULL, &exchanges->store, err);
    if (status == DDP_OK)
        status = pmi_text_set(exchanges, exchange, err);
    for (uint32_t i = 0; i < exchange->nodes && status == DDP_OK; i++)
        if (i != exchange->node_rank)
            status = pmi_text_get(exchanges, exchange, i, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "the MPI ranks of other nodes");
}

static void on_forget(void *ctx)
{
    struct pmi_exchanges *exchanges = ctx;
    ddp_store_uv *store = exchanges->store;
    exchanges->store = NULL;
    if (store != NULL)
        ddp_store_uv_close(store, NULL, NULL);
}

void pmi_exchanges_init(struct pmi_exchanges *exchanges, uv_loop_t *loop,
                        const struct ddp_store_options *options)
{
    *exchanges = (struct pmi_exchanges){
        .loop = loop,
        .options = *options,
        .link = {.ctx = exchanges, .exchange = on_exchange, .forget = on_forget},
    };
}
