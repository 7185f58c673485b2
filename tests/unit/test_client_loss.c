/*
 * test_client_loss.c - conversations of the client core that are cut at every byte, or have no
 * memory at any allocation; what is said of requests that were sent before the cut.
 */
#include "check_main.h"
#include "client_fixture.h"
#include "failmem.h"

#include <ddprun/store.h>

/* ---- a whole conversation, cut anywhere ---- */

enum { LAST_CHANGE = 20, CUTS_MAX = 4000 };

/* The server's store: changes 6 to LAST_CHANGE happen one after the other; requests are answered
 * as they come. Returns what it has to say to all that was sent. */
static void serve(uint64_t *latest)
{
    ddpi_client_fill(&client, NOW);
    while (ddpi_buf_len(&client.requests.out) > 0) {
        struct ddpi_frame frame;
        struct ddpi_message asked;
        const uint8_t *bytes = ddpi_buf_head(&client.requests.out);
        if (bytes[0] == 'D') { /* the greeting */
            ddpi_client_sent(&client, ddpi_buf_len(&client.requests.out));
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
    if (client.watches.all.next != &client.watches.all && *latest < LAST_CHANGE &&
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
        client_teardown();
        client_setup();
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
        bool sent = ddpi_buf_len(&client.requests.out) > 0;
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
        client_teardown();
        client_setup();
    }
}
END_TEST

/* ---- what is sent twice ---- */

enum loss { OUT_OF_TIME, REFUSED, CANCELED, LOSSES };

/* What was sent on the connection that is gone may have been executed, whatever ends it. */
static const struct {
    enum ddpi_op op;
    bool changes; /* the server */
} repeated[] = {
    {DDPI_OP_FENCE, true}, {DDPI_OP_SESSION_KEEP, true}, {DDPI_OP_SESSION_HOLD, true},
    {DDPI_OP_LIST, false}, {DDPI_OP_WATCH, false},       {DDPI_OP_TRY_GET, false},
};

START_TEST(what_was_sent_before_may_have_been_executed)
{
    static const ddp_status untouched[] = {DDP_E_UNREACHABLE, DDP_E_DENIED, DDP_E_CANCELED};
    int loss = _i % LOSSES;
    bool changes = repeated[_i / LOSSES].changes;
    struct ddpi_message asked;
    greet(1);
    ASK(0, .op = repeated[_i / LOSSES].op, KEY("k"));
    expect_asked(repeated[_i / LOSSES].op, &asked);
    lose(NOW);
    ck_assert_int_eq(results[0], DDP_E_INTERNAL); /* it is to be sent again */
    ASK(1, .op = repeated[_i / LOSSES].op, KEY("l"));
    if (loss == CANCELED) {
        ddpi_client_cancel(&client, &requests[0]);
        ddpi_client_cancel(&client, &requests[1]);
    } else {
        const struct ddp_error denied = {.status = DDP_E_DENIED, .msg = "not you"};
        ddpi_client_tick(&client, client.at_ms);
        if (loss == REFUSED)
            ddpi_client_lost(&client, &denied, NOW);
        else
            ddpi_client_tick(&client, NOW + SOON_MS);
    }
    ck_assert_int_eq(results[0], changes && loss != CANCELED ? DDP_E_CLOSED : untouched[loss]);
    ck_assert_int_eq(results[1], untouched[loss]);
    ck_assert_uint_eq(strstr(texts[0], "the server may have executed it") != NULL, changes);
    ck_assert_ptr_null(strstr(texts[1], "the server may have executed it"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("client_loss");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, client_setup, client_teardown);
    tcase_add_test(tcase, a_loss_at_every_byte);
    tcase_add_test(tcase, no_memory_at_any_point);
    tcase_add_loop_test(tcase, what_was_sent_before_may_have_been_executed, 0,
                        LOSSES * sizeof repeated / sizeof *repeated);
    suite_add_tcase(suite, tcase);
    return suite;
}
