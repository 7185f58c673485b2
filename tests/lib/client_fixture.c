/*
 * client_fixture.c - the core, recorded answers and events, and the words of a server.
 */
#include "client_fixture.h"

#include "check_main.h"

#include <stdio.h>

static const struct ddpi_identity nobody;
const struct ddpi_greet_terms nobody_in_particular = {.identity = &nobody};

struct ddpi_client client;
struct ddpi_client_request requests[REQUESTS_MAX];
ddp_status results[REQUESTS_MAX]; /* DDP_E_INTERNAL: none */
char texts[REQUESTS_MAX][256];
unsigned answers;
struct told told[TOLD_MAX];
size_t ntold;
uint32_t jitter;
struct ddpi_buf wire; /* from the server */

static void on_done(void *ctx, struct ddpi_client_request *request,
                    const struct ddpi_message *reply)
{
    ck_assert_ptr_eq(ctx, &client);
    size_t i = (size_t)(request - requests);
    ck_assert_int_eq(results[i], DDP_E_INTERNAL); /* once */
    results[i] = reply->status;
    snprintf(texts[i], sizeof texts[i], "%.*s", (int)reply->text.len,
             (const char *)reply->text.data);
    answers++;
}

static ddp_status on_event(void *ctx, struct ddpi_client_watch *watch,
                           const struct ddpi_message *event, struct ddp_error *err)
{
    (void)ctx;
    (void)err;
    ck_assert_uint_lt(ntold, TOLD_MAX);
    struct told *it = &told[ntold++];
    *it = (struct told){.watch = watch->id, .version = event->version, .number = event->number};
    snprintf(it->value, sizeof it->value, "%.*s", (int)event->value.len,
             event->value.len > 0 ? (const char *)event->value.data : "");
    return DDP_OK;
}

static uint32_t next_random(void *ctx)
{
    (void)ctx;
    return jitter;
}

void client_setup(void)
{
    const struct ddpi_client_hooks hooks = {
        .ctx = &client, .done = on_done, .event = on_event, .random = next_random};
    ddpi_client_init(&client, &hooks);
    ddpi_buf_init(&wire, 1024 * 1024);
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        results[i] = DDP_E_INTERNAL;
    answers = 0;
    ntold = 0;
    jitter = 0;
}

void client_teardown(void)
{
    struct ddp_error err = {.status = DDP_E_CANCELED};
    ddpi_client_close(&client, &err);
    ddpi_client_finish(&client);
    ddpi_buf_finish(&wire);
}

/* ---- the scripted server ---- */

void put_welcome(uint64_t incarnation)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    const struct ddpi_welcome welcome = {
        .key_max = 4096, .value_max = 4096, .many_max = 16, .incarnation = incarnation};
    ck_assert(ddpi_preamble_put(&wire, &preamble) && ddpi_welcome_put(&wire, 0, &welcome));
}

void put_reply(const struct ddpi_message *reply)
{
    ck_assert(ddpi_reply_put(&wire, reply));
}

/* The first @len bytes of what the server has to say. */
void deliver_some(size_t len, uint64_t now_ms)
{
    while (len > 0 && (client.sm.state == CLIENT_GREETING || client.sm.state == CLIENT_OPEN)) {
        size_t room;
        uint8_t *at = ddpi_client_room(&client, &room);
        if (at == NULL) { /* as the edges do */
            const struct ddp_error err = {.status = DDP_E_NOMEM, .msg = "no room"};
            ddpi_client_lost(&client, &err, now_ms);
            return;
        }
        room = room < len ? room : len;
        memcpy(at, ddpi_buf_head(&wire), room);
        ddpi_buf_consume(&wire, room);
        ddpi_client_received(&client, room, now_ms);
        len -= room;
    }
}

void deliver(void)
{
    deliver_some(ddpi_buf_len(&wire), NOW);
    ck_assert_uint_eq(ddpi_buf_len(&wire), 0);
}

void lose(uint64_t now_ms)
{
    const struct ddp_error err = {.status = DDP_E_CLOSED, .msg = "cut"};
    ddpi_buf_consume(&wire, ddpi_buf_len(&wire));
    ddpi_client_lost(&client, &err, now_ms);
}

/* Everything in the output leaves; what was asked must be @op. */
void expect_asked(enum ddpi_op op, struct ddpi_message *ret)
{
    struct ddpi_frame frame;
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_ge(ddpi_buf_len(&client.requests.out), DDPI_FRAME_HEADER_SIZE);
    const uint8_t *bytes = ddpi_buf_head(&client.requests.out);
    ck_assert(ddpi_frame_get(bytes, &frame));
    ck_assert_int_eq(ddpi_request_get(&frame, bytes + DDPI_FRAME_HEADER_SIZE, ret, NULL), DDP_OK);
    ck_assert_int_eq(ret->op, op);
    ddpi_client_sent(&client, DDPI_FRAME_HEADER_SIZE + frame.payload_len);
}

void expect_nothing_asked(void)
{
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_eq(ddpi_buf_len(&client.requests.out), 0);
}

void greet(uint64_t incarnation)
{
    if (client.sm.state == CLIENT_IDLE)
        ddpi_client_start(&client, NOW);
    if (client.sm.state == CLIENT_WAITING)
        ddpi_client_tick(&client, client.at_ms);
    ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
    ddpi_client_connected(&client, &nobody_in_particular, NOW);
    ddpi_client_sent(&client, ddpi_buf_len(&client.requests.out));
    put_welcome(incarnation);
    deliver();
    ck_assert_uint_eq(client.sm.state, CLIENT_OPEN);
}

struct ddpi_client_request *ask(size_t i, const struct ddpi_message *message, uint32_t timeout_ms)
{
    requests[i] = (struct ddpi_client_request){.message = *message};
    ck_assert_int_eq(ddpi_client_submit(&client, &requests[i], timeout_ms, NOW, NULL), DDP_OK);
    return &requests[i];
}

/* A watch of everything that has begun at version 5. */
uint64_t begin_watch(void)
{
    struct ddpi_message asked;
    struct ddpi_client_request *request = ASK(0, .op = DDPI_OP_WATCH, KEY("w"), .count = 1);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .version = 5);
    deliver();
    ck_assert_int_eq(results[0], DDP_OK);
    return request->message.id;
}

void change(uint64_t watch, uint64_t version)
{
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = version, .number = DDPI_CHANGE_SET,
          KEY("w1"), .value = {"v", 1});
}
