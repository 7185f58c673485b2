/*
 * client.c - fuzzes the client core with all that a store may send, in pieces of a size that the
 * input chooses: every request is answered once, the changes of a watch only grow, and a connection
 * that is lost is dialled again.
 */
#include "client_core.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 4, TIMEOUT_MS = 100 };

struct state {
    struct ddpi_client client;
    struct ddpi_client_request requests[REQUESTS];
    unsigned answers[REQUESTS];
    uint64_t told;
};

static void on_done(void *ctx, struct ddpi_client_request *request,
                    const struct ddpi_message *reply)
{
    struct state *state = ctx;
    HOLDS(reply->id == request->message.id);
    state->answers[request - state->requests]++;
}

static ddp_status on_event(void *ctx, struct ddpi_client_watch *watch,
                           const struct ddpi_message *event, struct ddp_error *err)
{
    struct state *state = ctx;
    (void)err;
    HOLDS(event->number == DDPI_CHANGE_NONE || event->version > state->told);
    HOLDS(watch->started);
    state->told = event->version;
    return DDP_OK;
}

static uint32_t next_random(void *ctx)
{
    (void)ctx;
    return 0;
}

/* What is asked first has the ids 1 to 4, which the corpus answers. */
static void ask(struct state *state)
{
    static const enum ddpi_op ops[REQUESTS] = {DDPI_OP_WATCH, DDPI_OP_GET, DDPI_OP_SET,
                                               DDPI_OP_LIST};
    for (size_t i = 0; i < REQUESTS; i++) {
        state->requests[i].message = (struct ddpi_message){.op = ops[i], .key = {"k", 1}};
        HOLDS(ddpi_client_submit(&state->client, &state->requests[i], TIMEOUT_MS, 0, NULL) ==
              DDP_OK);
    }
}

static void connect_again(struct ddpi_client *client)
{
    static const struct ddpi_identity nobody;
    static const struct ddpi_greet_terms terms = {.identity = &nobody};
    if (client->sm.state == CLIENT_WAITING)
        ddpi_client_tick(client, client->at_ms);
    if (client->sm.state == CLIENT_DIALING)
        ddpi_client_connected(client, &terms, 0);
    ddpi_client_fill(client, 0);
    ddpi_client_sent(client, ddpi_buf_len(&client->requests.out));
}

static void receive(struct ddpi_client *client, const uint8_t *data, size_t size, size_t piece)
{
    for (size_t len; size > 0; data += len, size -= len) {
        size_t room;
        connect_again(client);
        uint8_t *at = ddpi_client_room(client, &room);
        HOLDS(at != NULL);
        len = room < size ? room : size;
        len = len < piece ? len : piece;
        memcpy(at, data, len);
        ddpi_client_received(client, len, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ddp_error end = {.status = DDP_E_CANCELED, .msg = "end"};
    if (size == 0)
        return 0;
    struct state *state = calloc(1, sizeof *state);
    const struct ddpi_client_hooks hooks = {
        .ctx = state, .done = on_done, .event = on_event, .random = next_random};
    ddpi_client_init(&state->client, &hooks);
    ddpi_client_start(&state->client, 0);
    ask(state);
    receive(&state->client, data + 1, size - 1, (size_t)data[0] + 1);
    ddpi_client_close(&state->client, &end);
    for (size_t i = 0; i < REQUESTS; i++)
        HOLDS(state->answers[i] == 1);
    ddpi_client_finish(&state->client);
    free(state);
    return 0;
}
