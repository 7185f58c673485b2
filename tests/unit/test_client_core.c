/*
 * test_client_core.c - the client core against a scripted server: what is asked, answered and told,
 * and what becomes of it when the connection is lost at any byte, or memory at any allocation.
 */
#include "check_main.h"
#include "client_core.h"
#include "failmem.h"

#include <ddprun/store.h>
#include <stdio.h>

enum { REQUESTS_MAX = 16, TOLD_MAX = 64, NOW = 1000, SOON_MS = 500 };

struct told {
    uint64_t watch;
    uint64_t version;
    int64_t number;
};

static const struct ddpi_identity nobody;
static const struct ddpi_greet_terms nobody_in_particular = {.identity = &nobody};

static struct ddpi_client client;
static struct ddpi_client_request requests[REQUESTS_MAX];
static ddp_status results[REQUESTS_MAX]; /* DDP_E_INTERNAL: none */
static char texts[REQUESTS_MAX][256];
static unsigned answers;
static struct told told[TOLD_MAX];
static size_t ntold;
static uint32_t jitter;
static struct ddpi_buf wire; /* from the server */

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
    told[ntold++] = (struct told){watch->id, event->version, event->number};
    return DDP_OK;
}

static uint32_t next_random(void *ctx)
{
    (void)ctx;
    return jitter;
}

static void setup(void)
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

static void teardown(void)
{
    struct ddp_error err = {.status = DDP_E_CANCELED};
    ddpi_client_close(&client, &err);
    ddpi_client_finish(&client);
    ddpi_buf_finish(&wire);
}

/* --- the scripted server --- */

static void put_welcome(uint64_t incarnation)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    const struct ddpi_welcome welcome = {
        .key_max = 4096, .value_max = 4096, .many_max = 16, .incarnation = incarnation};
    ck_assert(ddpi_preamble_put(&wire, &preamble) && ddpi_welcome_put(&wire, 0, &welcome));
}

static void put_reply(const struct ddpi_message *reply)
{
    ck_assert(ddpi_reply_put(&wire, reply));
}

#define REPLY(...) put_reply(&(const struct ddpi_message){__VA_ARGS__})

/* The first @len bytes of what the server has to say. */
static void deliver_some(size_t len, uint64_t now_ms)
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

static void deliver(void)
{
    deliver_some(ddpi_buf_len(&wire), NOW);
    ck_assert_uint_eq(ddpi_buf_len(&wire), 0);
}

static void lose(uint64_t now_ms)
{
    const struct ddp_error err = {.status = DDP_E_CLOSED, .msg = "cut"};
    ddpi_buf_consume(&wire, ddpi_buf_len(&wire));
    ddpi_client_lost(&client, &err, now_ms);
}

/* Everything in the output leaves; what was asked must be @op. */
static void expect_asked(enum ddpi_op op, struct ddpi_message *ret)
{
    struct ddpi_frame frame;
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_ge(ddpi_buf_len(&client.out), DDPI_FRAME_HEADER_SIZE);
    const uint8_t *bytes = ddpi_buf_head(&client.out);
    ck_assert(ddpi_frame_get(bytes, &frame));
    ck_assert_int_eq(ddpi_request_get(&frame, bytes + DDPI_FRAME_HEADER_SIZE, ret, NULL), DDP_OK);
    ck_assert_int_eq(ret->op, op);
    ddpi_client_sent(&client, DDPI_FRAME_HEADER_SIZE + frame.payload_len);
}

static void expect_nothing_asked(void)
{
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_eq(ddpi_buf_len(&client.out), 0);
}

static void greet(uint64_t incarnation)
{
    if (client.sm.state == CLIENT_IDLE)
        ddpi_client_start(&client, NOW);
    if (client.sm.state == CLIENT_WAITING)
        ddpi_client_tick(&client, client.at_ms);
    ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
    ddpi_client_connected(&client, &nobody_in_particular, NOW);
    ddpi_client_sent(&client, ddpi_buf_len(&client.out));
    put_welcome(incarnation);
    deliver();
    ck_assert_uint_eq(client.sm.state, CLIENT_OPEN);
}

static struct ddpi_client_request *ask(size_t i, const struct ddpi_message *message,
                                       uint32_t timeout_ms)
{
    requests[i] = (struct ddpi_client_request){.message = *message};
    ck_assert_int_eq(ddpi_client_submit(&client, &requests[i], timeout_ms, NOW, NULL), DDP_OK);
    return &requests[i];
}

#define ASK(i, ...) ask(i, &(const struct ddpi_message){__VA_ARGS__}, SOON_MS)
#define KEY(text)   .key = {text, sizeof text - 1}

/* A watch of everything that has begun at version 5. */
static uint64_t begin_watch(void)
{
    struct ddpi_message asked;
    struct ddpi_client_request *request = ASK(0, .op = DDPI_OP_WATCH, KEY("w"), .count = 1);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .version = 5);
    deliver();
    ck_assert_int_eq(results[0], DDP_OK);
    return request->message.id;
}

static void change(uint64_t watch, uint64_t version)
{
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = version, .number = DDPI_CHANGE_SET,
          KEY("w1"), .value = {"v", 1});
}

/* --- tests --- */

START_TEST(the_table_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&ddpi_client_sm));
}
END_TEST

START_TEST(answers_find_their_requests)
{
    struct ddpi_message get, set;
    greet(1);
    ASK(0, .op = DDPI_OP_GET, KEY("a"));
    ASK(1, .op = DDPI_OP_SET, KEY("b"), .value = {"v", 1});
    expect_asked(DDPI_OP_GET, &get);
    ck_assert_uint_eq(get.timeout_ms, SOON_MS);
    expect_asked(DDPI_OP_SET, &set);
    expect_nothing_asked();
    REPLY(.op = DDPI_OP_SET, .id = set.id, .version = 7);
    REPLY(.op = DDPI_OP_GET, .id = get.id, .status = DDP_E_TIMEOUT, .text = {"late", 4});
    deliver();
    ck_assert_int_eq(results[0], DDP_E_TIMEOUT);
    ck_assert_str_eq(texts[0], "late");
    ck_assert_int_eq(results[1], DDP_OK);
}
END_TEST

/* Each operation, sent and not sent, when the connection is lost. */
static const struct {
    enum ddpi_op op;
    bool again;
} ops[] = {
    {DDPI_OP_SET, false},           {DDPI_OP_GET, true},
    {DDPI_OP_TRY_GET, true},        {DDPI_OP_ADD, false},
    {DDPI_OP_CAS, false},           {DDPI_OP_WAIT, true},
    {DDPI_OP_DELETE, false},        {DDPI_OP_LIST, true},
    {DDPI_OP_BARRIER, false},       {DDPI_OP_STATS, true},
    {DDPI_OP_TRANSACT, false},      {DDPI_OP_WATCH, true},
    {DDPI_OP_UNWATCH, true},        {DDPI_OP_SESSION_OPEN, false},
    {DDPI_OP_SESSION_KEEP, true},   {DDPI_OP_SESSION_CLOSE, false},
    {DDPI_OP_SET_EPHEMERAL, false},
};

START_TEST(only_what_does_no_harm_is_sent_again)
{
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = ops[_i].op, KEY("k"));
    expect_asked(ops[_i].op, &asked);
    ASK(1, .op = ops[_i].op, KEY("l")); /* not sent */
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_gt(ddpi_buf_len(&client.out), 1);
    ddpi_client_sent(&client, ddpi_buf_len(&client.out) - 1); /* but for its last byte */
    lose(NOW);
    ck_assert_int_eq(results[0], ops[_i].again ? DDP_E_INTERNAL : DDP_E_CLOSED);
    if (!ops[_i].again)
        ck_assert_ptr_nonnull(strstr(texts[0], "may have been done or not: cut"));
    ck_assert_int_eq(results[1], DDP_E_INTERNAL);
    greet(1);
    if (ops[_i].again)
        expect_asked(ops[_i].op, &asked); /* in the order of old */
    expect_asked(ops[_i].op, &asked);
    ck_assert_uint_eq(asked.id, requests[1].message.id);
    expect_nothing_asked();
}
END_TEST

START_TEST(watches_go_on_before_anything_else)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t watch = begin_watch();
    change(watch, 8);
    deliver();
    lose(NOW);
    ASK(1, .op = DDPI_OP_LIST, KEY(""));
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    ck_assert_uint_eq(asked.id, watch);
    ck_assert_uint_eq(asked.version, 9);
    ck_assert_uint_eq(asked.count, 1);
    ck_assert_uint_eq(asked.key.len, 1);
    expect_asked(DDPI_OP_LIST, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = 11);
    change(watch, 9);
    change(watch, 11);
    deliver();
    ck_assert_uint_eq(ntold, 3);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(told[i].watch, watch);
        ck_assert_int_eq(told[i].number, DDPI_CHANGE_SET);
    }
    ck_assert(told[0].version == 8 && told[1].version == 9 && told[2].version == 11);
}
END_TEST

static void expect_gap(uint64_t watch, uint64_t at)
{
    struct ddpi_message asked;
    expect_asked(DDPI_OP_WATCH, &asked);
    ck_assert_uint_eq(asked.id, watch);
    ck_assert_uint_eq(asked.version, 0);
    ck_assert_uint_eq(ntold, 0); /* not before it has begun */
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = at);
    change(watch, at + 1);
    deliver();
    ck_assert_uint_eq(ntold, 2);
    ck_assert_int_eq(told[0].number, DDPI_CHANGE_NONE);
    ck_assert_uint_eq(told[0].version, at);
    ck_assert_uint_eq(told[1].version, at + 1);
}

START_TEST(a_server_that_has_forgotten)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t watch = begin_watch();
    lose(NOW);
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    ck_assert_uint_eq(asked.version, 6);
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .status = DDP_E_GONE, .version = 99);
    deliver();
    expect_gap(watch, 100);
}
END_TEST

START_TEST(another_server)
{
    greet(1);
    uint64_t watch = begin_watch();
    lose(NOW);
    greet(2);
    lose(NOW); /* before it has answered: still a gap, whoever comes next */
    greet(2);
    expect_gap(watch, 1);
    lose(NOW);
    greet(2);
    struct ddpi_message asked;
    expect_asked(DDPI_OP_WATCH, &asked);
    ck_assert_uint_eq(asked.version, 3);
}
END_TEST

START_TEST(a_watch_from_a_version)
{
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = DDPI_OP_WATCH, KEY("w"), .version = 3);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .version = 5);
    change(asked.id, 4);
    deliver();
    ck_assert_uint_eq(ntold, 1);
    ASK(1, .op = DDPI_OP_WATCH, KEY("x"), .version = 1);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .status = DDP_E_GONE, .version = 5);
    deliver();
    ck_assert_int_eq(results[1], DDP_E_GONE); /* who asked for it is told */
    lose(NOW);
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    ck_assert_uint_eq(asked.version, 5);
    expect_nothing_asked();
    lose(NOW);
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .status = DDP_E_LIMIT, .text = {"no", 2});
    deliver(); /* a watch that cannot go on: another try on another connection */
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    ck_assert_ptr_nonnull(strstr(client.why.msg, "a watch cannot go on: no"));
}
END_TEST

START_TEST(an_ended_watch_stays_ended)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t watch = begin_watch();
    ASK(1, .op = DDPI_OP_UNWATCH, .number = (int64_t)watch);
    expect_asked(DDPI_OP_UNWATCH, &asked);
    change(watch, 6); /* was on its way */
    REPLY(.op = DDPI_OP_UNWATCH, .id = asked.id);
    change(watch, 7);
    deliver();
    ck_assert_uint_eq(ntold, 1);
    lose(NOW);
    greet(1);
    expect_nothing_asked();
}
END_TEST

START_TEST(deadlines_without_a_connection)
{
    ddpi_client_start(&client, NOW);
    ASK(0, .op = DDPI_OP_GET, KEY("k"));
    ck_assert_uint_eq(ddpi_client_next(&client), NOW + SOON_MS);
    const struct ddp_error refused = {.status = DDP_E_UNREACHABLE, .msg = "refused"};
    ddpi_client_lost(&client, &refused, NOW);
    ddpi_client_tick(&client, NOW + SOON_MS - 1);
    ck_assert_uint_eq(answers, 0);
    ddpi_client_tick(&client, NOW + SOON_MS);
    ck_assert_int_eq(results[0], DDP_E_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(texts[0], "refused"));
}
END_TEST

START_TEST(a_silent_server_is_given_up)
{
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = DDPI_OP_GET, KEY("k"));
    ask(1, &(const struct ddpi_message){.op = DDPI_OP_GET, KEY("l")}, 100000);
    expect_asked(DDPI_OP_GET, &asked);
    expect_asked(DDPI_OP_GET, &asked);
    uint64_t late = NOW + SOON_MS + DDPI_CLIENT_GRACE_MS;
    ddpi_client_tick(&client, NOW + SOON_MS);
    ck_assert_uint_eq(ddpi_client_next(&client), late);
    ddpi_client_tick(&client, late);
    ck_assert_int_eq(results[0], DDP_E_CLOSED);
    ck_assert_ptr_nonnull(strstr(texts[0], "did not answer within 1000 ms"));
    ck_assert_int_eq(results[1], DDP_E_INTERNAL);
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    greet(1);
    ddpi_client_fill(&client, late);
    expect_asked(DDPI_OP_GET, &asked);
    ck_assert_uint_eq(asked.id, requests[1].message.id);
}
END_TEST

START_TEST(attempts_end_and_become_rare)
{
    uint64_t now_ms = NOW, most = DDPI_CLIENT_BACKOFF_FIRST_MS;
    ddpi_client_start(&client, now_ms);
    ck_assert_uint_eq(ddpi_client_next(&client), now_ms + DDPI_CLIENT_ATTEMPT_MS);
    ddpi_client_tick(&client, now_ms + DDPI_CLIENT_ATTEMPT_MS);
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    greet(1);
    for (int i = 1; i < 20; i++, most *= 2) { /* the first attempt counts */
        uint64_t limit =
            most * 2 < DDPI_CLIENT_BACKOFF_MAX_MS ? most * 2 : DDPI_CLIENT_BACKOFF_MAX_MS;
        jitter = (uint32_t)limit;
        lose(now_ms);
        ck_assert_uint_eq(client.at_ms, now_ms + limit);
        jitter = (uint32_t)limit + 1;
        ddpi_client_tick(&client, client.at_ms);
        ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
    }
    jitter = 0;
    ddpi_client_connected(&client, &nobody_in_particular, now_ms);
    ddpi_client_tick(&client, client.at_ms);
    ck_assert_ptr_nonnull(strstr(client.why.msg, "says nothing"));
    greet(1);
    struct ddpi_message asked;
    ASK(0, .op = DDPI_OP_STATS);
    expect_asked(DDPI_OP_STATS, &asked);
    REPLY(.op = DDPI_OP_STATS, .id = asked.id);
    deliver();
    jitter = DDPI_CLIENT_BACKOFF_FIRST_MS;
    lose(now_ms); /* it served: back to short waits */
    ck_assert_uint_eq(client.at_ms, now_ms + DDPI_CLIENT_BACKOFF_FIRST_MS);
}
END_TEST

START_TEST(what_is_canceled)
{
    struct ddpi_message asked;
    greet(1);
    ddpi_client_cancel(&client, ASK(0, .op = DDPI_OP_SET, KEY("k")));
    ck_assert_str_eq(texts[0], "canceled");
    expect_nothing_asked();
    ASK(1, .op = DDPI_OP_SET, KEY("k"));
    expect_asked(DDPI_OP_SET, &asked);
    uint64_t set = asked.id;
    ddpi_client_cancel(&client, &requests[1]);
    ck_assert_str_eq(texts[1], "canceled; it may have been done or not");
    ASK(2, .op = DDPI_OP_GET, KEY("k"));
    expect_asked(DDPI_OP_GET, &asked);
    uint64_t get = asked.id;
    ddpi_client_cancel(&client, &requests[2]);
    expect_asked(DDPI_OP_CANCEL_REQUEST, &asked);
    ck_assert_uint_eq((uint64_t)asked.number, get);
    REPLY(.op = DDPI_OP_SET, .id = set, .version = 1); /* nobody minds */
    REPLY(.op = DDPI_OP_GET, .id = get, .status = DDP_E_CANCELED);
    REPLY(.op = DDPI_OP_CANCEL_REQUEST, .id = asked.id);
    deliver();

    ASK(3, .op = DDPI_OP_WATCH, KEY("w"));
    expect_asked(DDPI_OP_WATCH, &asked);
    uint64_t watch = asked.id;
    ddpi_client_cancel(&client, &requests[3]);
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = 1);
    change(watch, 2);
    deliver();
    expect_asked(DDPI_OP_UNWATCH, &asked);
    ck_assert_uint_eq((uint64_t)asked.number, watch);
    expect_nothing_asked();
    ck_assert_uint_eq(client.sm.state, CLIENT_OPEN);
    ck_assert_uint_eq(ntold, 0);
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(results[i], DDP_E_CANCELED);
}
END_TEST

START_TEST(an_end_for_good)
{
    struct ddpi_message asked;
    struct ddp_error err;
    client.no_reconnect = true;
    ddpi_client_start(&client, NOW);
    lose(NOW); /* there was none yet: it may try again */
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    greet(1);
    ASK(0, .op = DDPI_OP_GET, KEY("k"));
    expect_asked(DDPI_OP_GET, &asked);
    ASK(1, .op = DDPI_OP_GET, KEY("k"));
    ck_assert(
        ddpi_refusal_put(&wire, DDPI_FRAME_BYE, 0, DDP_E_TIMEOUT, 0, ddpi_bytes_of("shut", 4)));
    deliver();
    ck_assert_uint_eq(client.sm.state, CLIENT_CLOSED);
    ck_assert_int_eq(results[0], DDP_E_CLOSED);
    ck_assert_int_eq(results[1], DDP_E_CLOSED);
    ck_assert_str_eq(texts[1], "shut");
    requests[2].message.op = DDPI_OP_STATS;
    ck_assert_int_eq(ddpi_client_submit(&client, &requests[2], 1, NOW, &err), DDP_E_CLOSED);
    ck_assert_ptr_nonnull(strstr(err.msg, "shut"));
    ck_assert_uint_eq(ddpi_client_next(&client), UINT64_MAX);
}
END_TEST

START_TEST(servers_that_break_the_rules)
{
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = DDPI_OP_GET, KEY("k"));
    expect_asked(DDPI_OP_GET, &asked);
    switch (_i) {
    case 0:
        REPLY(.op = DDPI_OP_GET, .id = asked.id + 1);
        break;
    case 1:
        REPLY(.op = DDPI_OP_SET, .id = asked.id);
        break;
    case 2:
        ck_assert(ddpi_buf_append(&wire, "\1\0\0\0\x11\0\0\0\1\0\0\0\0\0\0\0x", 17));
        break;
    case 3:
        ck_assert(ddpi_buf_append(&wire, "\xff\xff\xff\xff\x11\0\0\0\1\0\0\0\0\0\0\0", 16));
        break;
    default:
        ck_assert(ddpi_buf_append(&wire, "\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0", 16));
        break;
    }
    deliver();
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    ck_assert_int_eq(client.why.status, _i == 4 ? DDP_E_CLOSED : DDP_E_PROTOCOL);
    greet(1);
    expect_asked(DDPI_OP_GET, &asked);
}
END_TEST

/* --- a whole conversation, cut anywhere --- */

enum { LAST_CHANGE = 20, CUTS_MAX = 4000 };

/* The server's store: changes 6 to LAST_CHANGE happen one after the other; requests are answered
 * as they come. Returns what it has to say to all that was sent. */
static void serve(uint64_t *latest)
{
    ddpi_client_fill(&client, NOW);
    while (ddpi_buf_len(&client.out) > 0) {
        struct ddpi_frame frame;
        struct ddpi_message asked;
        const uint8_t *bytes = ddpi_buf_head(&client.out);
        if (bytes[0] == 'D') { /* the greeting */
            ddpi_client_sent(&client, ddpi_buf_len(&client.out));
            put_welcome(1);
            return;
        }
        ck_assert(ddpi_frame_get(bytes, &frame));
        ck_assert_int_eq(ddpi_request_get(&frame, bytes + DDPI_FRAME_HEADER_SIZE, &asked, NULL),
                         DDP_OK);
        if (asked.op == DDPI_OP_WATCH) {
            uint64_t from = asked.version != 0 ? asked.version : *latest + 1;
            REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .version = *latest);
            for (; from <= *latest; from++)
                change(asked.id, from);
        } else {
            REPLY(.op = asked.op, .id = asked.id);
        }
        ddpi_client_sent(&client, DDPI_FRAME_HEADER_SIZE + frame.payload_len);
    }
    if (client.watches.next != &client.watches && *latest < LAST_CHANGE &&
        client.sm.state == CLIENT_OPEN)
        change(1, ++*latest);
}

/* One conversation in which the connection is cut after @cut bytes from the server; false: it was
 * over before. */
static bool converse(size_t cut)
{
    uint64_t latest = 5;
    bool was_cut = false;
    ddpi_client_start(&client, NOW);
    ASK(0, .op = DDPI_OP_WATCH, KEY("w"), .version = 6, .count = 1);
    ASK(1, .op = DDPI_OP_SET, KEY("k"), .value = {"v", 1});
    ASK(2, .op = DDPI_OP_TRY_GET, KEY("k"));
    for (int turn = 0; turn < 200 && (answers < 3 || ntold < LAST_CHANGE - 5); turn++) {
        if (client.sm.state == CLIENT_WAITING)
            ddpi_client_tick(&client, client.at_ms);
        if (client.sm.state == CLIENT_DIALING)
            ddpi_client_connected(&client, &nobody_in_particular, NOW);
        serve(&latest);
        size_t len = ddpi_buf_len(&wire);
        if (!was_cut && cut < len) {
            was_cut = true;
            deliver_some(cut, NOW);
            lose(NOW);
        } else {
            deliver();
            cut -= was_cut ? 0 : len;
        }
    }
    ck_assert_uint_eq(answers, 3);
    ck_assert_int_eq(results[0], DDP_OK);
    ck_assert(results[1] == DDP_OK || (was_cut && results[1] == DDP_E_CLOSED));
    ck_assert_int_eq(results[2], DDP_OK);
    ck_assert_uint_eq(ntold, LAST_CHANGE - 5);
    for (size_t i = 0; i < ntold; i++)
        ck_assert_uint_eq(told[i].version, 6 + i);
    return was_cut;
}

START_TEST(a_loss_at_every_byte)
{
    size_t cut = 0;
    while (converse(cut)) {
        ck_assert_uint_lt(++cut, CUTS_MAX);
        teardown();
        setup();
    }
    ck_assert_uint_gt(cut, 300);
}
END_TEST

/* The same, while the Nth allocation fails: whatever comes of it, each request is answered once and
 * no change is told twice. */
static bool converse_without_memory(unsigned n)
{
    uint64_t latest = 5;
    for (int i = 0; i < 3; i++)
        requests[i] = (struct ddpi_client_request){
            .message = {.op = i == 0 ? DDPI_OP_WATCH : DDPI_OP_GET, KEY("w"), .count = 1}};
    requests[0].message.version = 6;
    ddpi_client_start(&client, NOW);
    failmem_start_some(n, 1);
    unsigned asked = 0;
    for (int i = 0; i < 3; i++)
        asked += ddpi_client_submit(&client, &requests[i], SOON_MS, NOW, NULL) == DDP_OK;
    for (int turn = 0; turn < 60; turn++) {
        if (client.sm.state == CLIENT_WAITING)
            ddpi_client_tick(&client, client.at_ms);
        if (client.sm.state == CLIENT_DIALING)
            ddpi_client_connected(&client, &nobody_in_particular, NOW);
        ddpi_client_fill(&client, NOW);
        bool sent = ddpi_buf_len(&client.out) > 0;
        bool failed = failmem_stop(); /* the server has memory */
        if (sent || client.sm.state == CLIENT_OPEN)
            serve(&latest);
        if (!failed)
            failmem_start_some(n, 1);
        deliver_some(ddpi_buf_len(&wire), NOW);
        ddpi_buf_consume(&wire, ddpi_buf_len(&wire));
    }
    bool failed = failmem_stop();
    ddpi_client_tick(&client, NOW + SOON_MS + DDPI_CLIENT_GRACE_MS);
    ck_assert_uint_eq(answers, asked);
    for (size_t i = 1; i < ntold; i++)
        ck_assert_uint_eq(told[i].version, told[i - 1].version + 1);
    return failed;
}

START_TEST(no_memory_at_any_point)
{
    for (unsigned n = 0; n < 12; n++) {
        (void)converse_without_memory(n);
        teardown();
        setup();
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("client_core");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_table_is_sound);
    tcase_add_test(tcase, answers_find_their_requests);
    tcase_add_loop_test(tcase, only_what_does_no_harm_is_sent_again, 0, sizeof ops / sizeof *ops);
    tcase_add_test(tcase, watches_go_on_before_anything_else);
    tcase_add_test(tcase, a_server_that_has_forgotten);
    tcase_add_test(tcase, another_server);
    tcase_add_test(tcase, a_watch_from_a_version);
    tcase_add_test(tcase, an_ended_watch_stays_ended);
    tcase_add_test(tcase, deadlines_without_a_connection);
    tcase_add_test(tcase, a_silent_server_is_given_up);
    tcase_add_test(tcase, attempts_end_and_become_rare);
    tcase_add_test(tcase, what_is_canceled);
    tcase_add_test(tcase, an_end_for_good);
    tcase_add_loop_test(tcase, servers_that_break_the_rules, 0, 5);
    tcase_add_test(tcase, a_loss_at_every_byte);
    tcase_add_test(tcase, no_memory_at_any_point);
    suite_add_tcase(suite, tcase);
    return suite;
}
