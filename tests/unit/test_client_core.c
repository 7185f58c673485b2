/*
 * test_client_core.c - the client core against a scripted server: what is asked, answered and told,
 * in every state, and what becomes of it when the connection is lost.
 */
#include "check_main.h"
#include "client_fixture.h"

#include <limits.h>

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
    {DDPI_OP_SET_EPHEMERAL, false}, {DDPI_OP_SESSION_HOLD, true},
};

START_TEST(only_what_does_no_harm_is_sent_again)
{
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = ops[_i].op, KEY("k"));
    expect_asked(ops[_i].op, &asked);
    ASK(1, .op = ops[_i].op, KEY("l")); /* not sent */
    ddpi_client_fill(&client, NOW);
    ck_assert_uint_gt(ddpi_buf_len(&client.requests.out), 1);
    ddpi_client_sent(&client, ddpi_buf_len(&client.requests.out) - 1); /* but for its last byte */
    lose(NOW);
    ck_assert_int_eq(results[0], ops[_i].again ? DDP_E_INTERNAL : DDP_E_CLOSED);
    if (!ops[_i].again)
        ck_assert_ptr_nonnull(strstr(texts[0], "the server may have executed it: cut"));
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
    REPLY(.op = DDPI_OP_WATCH, .id = asked.id, .status = DDP_E_NOMEM, .text = {"no", 2});
    deliver(); /* a watch that cannot go on: another try on another connection */
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    ck_assert_ptr_nonnull(strstr(client.why.msg, "a watch cannot be resumed: no"));
}
END_TEST

static const ddp_status for_good[] = {DDP_E_LIMIT, DDP_E_DENIED, DDP_E_INVALID, DDP_E_UNSUPPORTED};

START_TEST(a_watch_that_is_refused_for_good)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t watch = begin_watch();
    lose(NOW);
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    if (_i % 2 == 0)
        REPLY(.op = DDPI_OP_WATCH, .id = watch, .status = for_good[_i], .text = {"no", 2});
    else
        REPLY(.op = DDPI_OP_WATCH, .id = watch, .status = for_good[_i]);
    deliver();
    ck_assert_uint_eq(ntold, 1);
    ck_assert_uint_eq(told[0].watch, watch);
    ck_assert_int_eq(told[0].number, DDPI_CHANGE_NONE);
    ck_assert_uint_eq(told[0].version, 5);
    ck_assert_str_eq(told[0].value, _i % 2 == 0 ? "no" : "refused");
    ck_assert_uint_eq(client.sm.state, CLIENT_OPEN); /* all else goes on */
    ck_assert(ddpi_list_empty(&client.watches.all));
    lose(NOW);
    greet(1);
    expect_nothing_asked();
}
END_TEST

/* However well others go on: what loses the connection each time is dialled less and less often. */
START_TEST(a_watch_that_loses_the_connection)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t good = begin_watch();
    ASK(1, .op = DDPI_OP_WATCH, KEY("x"), .count = 1);
    expect_asked(DDPI_OP_WATCH, &asked);
    uint64_t bad = asked.id;
    REPLY(.op = DDPI_OP_WATCH, .id = bad, .version = 5);
    deliver();
    lose(NOW);
    jitter = UINT32_MAX / 2;
    for (unsigned i = 1; i < 8; i++) {
        greet(1);
        ck_assert_uint_eq(client.attempts, i);
        REPLY(.op = DDPI_OP_WATCH, .id = good, .version = 5);
        REPLY(.op = DDPI_OP_WATCH, .id = bad, .status = DDP_E_GONE);
        REPLY(.op = DDPI_OP_WATCH, .id = bad, .status = _i == 0 ? DDP_E_GONE : DDP_E_NOMEM);
        deliver();
        ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    }
    greet(1);
    REPLY(.op = DDPI_OP_WATCH, .id = good, .version = 5);
    REPLY(.op = DDPI_OP_WATCH, .id = bad, .version = 5);
    deliver();
    ck_assert_uint_eq(client.attempts, 0);
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

/* Only this connection has no such watch yet: the client still had it. */
START_TEST(a_watch_that_ends_while_it_resumes)
{
    struct ddpi_message asked;
    greet(1);
    uint64_t watch = begin_watch();
    lose(NOW);
    ASK(1, .op = DDPI_OP_UNWATCH, .number = (int64_t)watch);
    ASK(2, .op = DDPI_OP_UNWATCH, .number = (int64_t)watch + 100);
    greet(1);
    expect_asked(DDPI_OP_WATCH, &asked);
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .status = DDP_E_GONE, .version = 99);
    for (int i = 0; i < 2; i++) {
        expect_asked(DDPI_OP_UNWATCH, &asked);
        REPLY(.op = DDPI_OP_UNWATCH, .id = asked.id, .status = DDP_E_NOT_FOUND);
    }
    deliver();
    ck_assert_int_eq(results[1], DDP_OK);
    ck_assert_int_eq(results[2], DDP_E_NOT_FOUND);
    expect_asked(DDPI_OP_WATCH, &asked); /* was asked for again before the end was known */
    REPLY(.op = DDPI_OP_WATCH, .id = watch, .version = 100);
    change(watch, 101);
    deliver();
    expect_asked(DDPI_OP_UNWATCH, &asked);
    ck_assert_uint_eq((uint64_t)asked.number, watch);
    ck_assert_uint_eq(ntold, 0);
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
    struct ddp_error why; /* the attempt has just begun: the one before tells more */
    ddpi_client_why(&client, &why);
    ck_assert_str_eq(why.msg, client.why.msg);
    ck_assert_ptr_null(strstr(why.msg, "does not answer"));
    ddpi_client_tick(&client, client.at_ms);
    ck_assert_ptr_nonnull(strstr(client.why.msg, "does not answer"));
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

/* All are dialled in turn, and only then is there a longer pause, which grows by rounds. */
START_TEST(several_servers_are_dialled_in_turn)
{
    uint64_t now_ms = NOW, most = DDPI_CLIENT_BACKOFF_FIRST_MS;
    client.endpoints = 3;
    greet(1);
    ck_assert_uint_eq(client.endpoint, 0);
    for (uint32_t lost = 1; lost <= 12; lost++) {
        jitter = (uint32_t)most;
        lose(now_ms);
        ck_assert_uint_eq(client.endpoint, lost % 3);
        ck_assert_uint_eq(client.at_ms, lost % 3 == 0 ? now_ms + most : now_ms + 1);
        most *= lost % 3 == 0 ? 2 : 1;
        now_ms = client.at_ms;
        ddpi_client_tick(&client, now_ms);
        ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
        ck_assert_uint_eq(client.at_ms, now_ms + DDPI_CLIENT_ATTEMPT_OF_SEVERAL_MS);
    }
    ddpi_client_tick(&client, client.at_ms); /* nobody answers */
    ck_assert_str_eq(client.why.msg, "no connection within 1500 ms");
}
END_TEST

/* Whoever keeps a session must find a server that is back before it is lost. */
START_TEST(attempts_do_not_become_too_rare)
{
    static const uint64_t limits[][2] = {{0, DDPI_CLIENT_BACKOFF_MAX_MS},
                                         {125, 125},
                                         {1, DDPI_CLIENT_BACKOFF_FIRST_MS},
                                         {100000, DDPI_CLIENT_BACKOFF_MAX_MS}};
    client.backoff_max_ms = limits[_i][0];
    greet(1);
    for (int i = 0; i < 20; i++) {
        jitter = 0;
        lose(NOW);
        ddpi_client_tick(&client, client.at_ms);
        ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
    }
    jitter = (uint32_t)limits[_i][1];
    lose(NOW);
    ck_assert_uint_eq(client.at_ms, NOW + limits[_i][1]);
    ddpi_client_tick(&client, client.at_ms);
    jitter = (uint32_t)limits[_i][1] + 1; /* beyond what is drawn from */
    lose(NOW);
    ck_assert_uint_eq(client.at_ms, NOW);
}
END_TEST

static void refuse_on(const struct ddpi_greet_terms *terms, ddp_status status)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    ck_assert_uint_eq(client.sm.state, CLIENT_DIALING);
    ddpi_client_connected(&client, terms, NOW);
    ddpi_client_sent(&client, ddpi_buf_len(&client.requests.out));
    ck_assert(ddpi_preamble_put(&wire, &preamble) &&
              ddpi_refusal_put(&wire, DDPI_FRAME_BYE, 0, status, 0, ddpi_bytes_of("not you", 7)));
    deliver();
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
}

static void refuse(ddp_status status)
{
    refuse_on(&nobody_in_particular, status);
}

START_TEST(a_server_that_lets_nobody_in)
{
    ddp_status status = _i == 0 ? DDP_E_DENIED : DDP_E_PROTOCOL;
    jitter = DDPI_CLIENT_BACKOFF_MAX_MS;
    ddpi_client_start(&client, NOW);
    ASK(0, .op = DDPI_OP_SET, KEY("k"));
    ASK(1, .op = DDPI_OP_WATCH, KEY("w"));
    refuse(status);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(results[i], status);
        ck_assert_str_eq(texts[i], "not you");
    }
    ck_assert_uint_eq(client.at_ms, NOW + DDPI_CLIENT_BACKOFF_MAX_MS);
    ddpi_client_tick(&client, client.at_ms); /* for nobody */
    ck_assert_uint_eq(client.sm.state, CLIENT_WAITING);
    ck_assert_uint_eq(ddpi_client_next(&client), UINT64_MAX);

    ASK(2, .op = DDPI_OP_SET, KEY("k")); /* has less time than it takes until the next attempt */
    ck_assert_uint_eq(ddpi_client_next(&client), NOW + SOON_MS);
    ddpi_client_tick(&client, NOW + SOON_MS);
    ck_assert_int_eq(results[2], status);
    ck_assert_ptr_nonnull(strstr(texts[2], "not you"));

    struct ddpi_message asked;
    ask(3, &(const struct ddpi_message){.op = DDPI_OP_STATS}, 100000);
    ck_assert_uint_eq(ddpi_client_next(&client), client.at_ms);
    greet(1);
    expect_asked(DDPI_OP_STATS, &asked);
}
END_TEST

/* Whichever of them it is: that the others are down is not the reason. */
START_TEST(one_of_several_servers_refuses)
{
    bool was_open = _i >= 3;
    client.endpoints = 3;
    if (was_open) {
        greet(1);
        lose(NOW);
        for (int i = 0; i < 2; i++) { /* the rest of the round that began with the loss */
            ddpi_client_tick(&client, client.at_ms);
            lose(NOW);
        }
        ck_assert(!client.refused);
        ddpi_client_tick(&client, client.at_ms);
    } else {
        ddpi_client_start(&client, NOW);
    }
    ASK(0, .op = DDPI_OP_SET, KEY("k"));
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(results[0], DDP_E_INTERNAL);
        if (i > 0)
            ddpi_client_tick(&client, client.at_ms);
        if (i == _i % 3)
            refuse(DDP_E_DENIED);
        else
            lose(NOW);
        ck_assert_uint_eq(client.refused, i == 2);
    }
    ck_assert_int_eq(results[0], DDP_E_DENIED);
    ck_assert_str_eq(texts[0], "not you");
    ck_assert_int_eq(client.why.status, DDP_E_DENIED);
    ASK(1, .op = DDPI_OP_SET, KEY("k"));
    for (int i = 0; i < 3; i++) { /* a round in which none refuses */
        ddpi_client_tick(&client, client.at_ms);
        lose(NOW);
    }
    ck_assert(!client.refused);
    ck_assert_int_eq(results[1], DDP_E_INTERNAL);
}
END_TEST

START_TEST(a_refusal_is_the_reason_while_others_are_tried)
{
    client.endpoints = 2;
    ddpi_client_start(&client, NOW);
    ASK(0, .op = DDPI_OP_SET, KEY("k"));
    refuse(DDP_E_DENIED);
    ddpi_client_tick(&client, NOW + SOON_MS); /* the other one does not answer */
    ck_assert_int_eq(results[0], DDP_E_DENIED);
    ck_assert_str_eq(texts[0], "not sent before the deadline: not you");
}
END_TEST

START_TEST(a_watch_is_reason_enough_to_ask_again)
{
    greet(1);
    (void)begin_watch();
    lose(NOW);
    ddpi_client_tick(&client, client.at_ms);
    jitter = DDPI_CLIENT_BACKOFF_MAX_MS;
    refuse(DDP_E_DENIED);
    ddpi_client_tick(&client, NOW); /* nothing is late */
    ck_assert_uint_eq(ddpi_client_next(&client), NOW + DDPI_CLIENT_BACKOFF_MAX_MS);
    greet(1);
    struct ddpi_message asked;
    expect_asked(DDPI_OP_WATCH, &asked);
}
END_TEST

static void no_random(void *bytes, size_t len)
{
    memset(bytes, 7, len);
}

/* Whoever has the port while the server is down can say "denied". */
START_TEST(who_was_let_in_and_is_to_come_back_doubts_a_refusal)
{
    static const struct ddpi_credential token = {.is_token = true};
    static const struct ddpi_identity nobody;
    static const struct ddpi_greet_terms with_a_token = {
        .identity = &nobody, .credential = &token, .random = no_random};
    struct ddpi_message asked;
    client.persists = _i == 0;
    greet(1);
    lose(NOW);
    ASK(0, .op = DDPI_OP_SET, KEY("k"));
    jitter = 0;
    for (int i = 0; i < 3; i++) {
        ddpi_client_tick(&client, client.at_ms);
        refuse_on(_i == 0 ? &nobody_in_particular : &with_a_token, DDP_E_DENIED);
        ck_assert(!client.refused);
        ck_assert_int_eq(results[0], DDP_E_INTERNAL);
    }
    greet(1);
    expect_asked(DDPI_OP_SET, &asked);
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
    ck_assert_str_eq(texts[1], "canceled; the server may have executed it");
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

/* ---- every state, every input ---- */

enum input { TICK, LATE, SUBMIT, CANCEL, LOSE, CLOSE, INPUTS };

static void reach(unsigned state)
{
    struct ddp_error err = {.status = DDP_E_CLOSED, .msg = "closed"};
    if (state == CLIENT_OPEN || state == CLIENT_WAITING)
        greet(1);
    else if (state == CLIENT_DIALING || state == CLIENT_GREETING)
        ddpi_client_start(&client, NOW);
    if (state == CLIENT_GREETING)
        ddpi_client_connected(&client, &nobody_in_particular, NOW);
    jitter = 10;
    if (state == CLIENT_WAITING)
        lose(NOW);
    if (state == CLIENT_CLOSED)
        ddpi_client_close(&client, &err);
    ck_assert_uint_eq(client.sm.state, state);
}

#define SAME UINT_MAX
static const unsigned reached[CLIENT_CLOSED + 1][INPUTS] = {
    [CLIENT_IDLE] = {SAME, SAME, SAME, SAME, SAME, CLIENT_CLOSED},
    [CLIENT_DIALING] = {SAME, CLIENT_WAITING, SAME, SAME, CLIENT_WAITING, CLIENT_CLOSED},
    [CLIENT_GREETING] = {SAME, CLIENT_WAITING, SAME, SAME, CLIENT_WAITING, CLIENT_CLOSED},
    [CLIENT_OPEN] = {SAME, CLIENT_WAITING, SAME, SAME, CLIENT_WAITING, CLIENT_CLOSED},
    [CLIENT_WAITING] = {SAME, CLIENT_DIALING, SAME, SAME, SAME, CLIENT_CLOSED},
    [CLIENT_CLOSED] = {SAME, SAME, SAME, SAME, SAME, SAME},
};

START_TEST(every_state_takes_every_input)
{
    unsigned state = (unsigned)_i / INPUTS, input = (unsigned)_i % INPUTS;
    const struct ddp_error err = {.status = DDP_E_CANCELED, .msg = "end"};
    bool lives = state != CLIENT_CLOSED;
    bool loses = state == CLIENT_DIALING || state == CLIENT_GREETING || state == CLIENT_OPEN;
    reach(state);
    if (lives) {
        ASK(0, .op = DDPI_OP_SET, KEY("k"));
        ddpi_client_fill(&client, NOW);
    }
    switch (input) {
    case TICK:
        ddpi_client_tick(&client, NOW);
        break;
    case LATE:
        ddpi_client_tick(&client, NOW + 10 * DDPI_CLIENT_ATTEMPT_MS);
        break;
    case SUBMIT:
        requests[1].message.op = DDPI_OP_STATS;
        ck_assert_int_eq(ddpi_client_submit(&client, &requests[1], SOON_MS, NOW, NULL),
                         lives ? DDP_OK : DDP_E_CLOSED);
        break;
    case CANCEL:
        if (lives)
            ddpi_client_cancel(&client, &requests[0]);
        break;
    case LOSE:
        if (loses)
            lose(NOW);
        break;
    default:
        ddpi_client_close(&client, &err);
    }
    unsigned wanted = reached[state][input] == SAME ? state : reached[state][input];
    ck_assert_uint_eq(client.sm.state, wanted);
    bool ends = input == LATE || input == CANCEL || input == CLOSE;
    ck_assert_uint_eq(answers, lives && ends ? 1 : 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("client_core");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, the_table_is_sound);
    tcase_add_test(tcase, answers_find_their_requests);
    tcase_add_loop_test(tcase, only_what_does_no_harm_is_sent_again, 0, sizeof ops / sizeof *ops);
    ADD_TESTS(tcase, watches_go_on_before_anything_else, a_server_that_has_forgotten,
              another_server, a_watch_from_a_version);
    tcase_add_loop_test(tcase, a_watch_that_is_refused_for_good, 0,
                        sizeof for_good / sizeof *for_good);
    tcase_add_loop_test(tcase, a_watch_that_loses_the_connection, 0, 2);
    ADD_TESTS(tcase, an_ended_watch_stays_ended, a_watch_that_ends_while_it_resumes,
              deadlines_without_a_connection, a_silent_server_is_given_up,
              attempts_end_and_become_rare, several_servers_are_dialled_in_turn);
    tcase_add_loop_test(tcase, attempts_do_not_become_too_rare, 0, 4);
    tcase_add_loop_test(tcase, a_server_that_lets_nobody_in, 0, 2);
    tcase_add_loop_test(tcase, one_of_several_servers_refuses, 0, 6);
    ADD_TESTS(tcase, a_refusal_is_the_reason_while_others_are_tried,
              a_watch_is_reason_enough_to_ask_again);
    tcase_add_loop_test(tcase, who_was_let_in_and_is_to_come_back_doubts_a_refusal, 0, 2);
    tcase_add_test(tcase, what_is_canceled);
    tcase_add_test(tcase, an_end_for_good);
    tcase_add_loop_test(tcase, servers_that_break_the_rules, 0, 5);
    tcase_add_loop_test(tcase, every_state_takes_every_input, 0, (CLIENT_CLOSED + 1) * INPUTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
