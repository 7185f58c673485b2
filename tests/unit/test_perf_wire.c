/*
 * test_perf_wire.c - the load generator's requests are what the server's decoder reads, replies are
 * found at every cut, refusals are seen, and scripts name the keys that they should.
 */
#include "check_main.h"
#include "failmem.h"
#include "perf_wire.h"
#include "proto.h"

#include <string.h>

static struct ddpi_bytes text(const char *s)
{
    return ddpi_bytes_of(s, strlen(s));
}

static bool is(const struct ddpi_buf *buf, const char *expected)
{
    return ddpi_buf_len(buf) == strlen(expected) &&
           memcmp(ddpi_buf_head(buf), expected, strlen(expected)) == 0;
}

START_TEST(resp_requests)
{
    const struct perf_request set = {.op = PERF_SET, .key = text("key"), .value = text("value")};
    const struct perf_request get = {.op = PERF_GET, .key = text("key")};
    const struct perf_request wait = {.op = PERF_WAIT, .key = text("key")};
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    ck_assert(perf_wire_resp.put_greeting(&buf));
    ck_assert(is(&buf, "*1\r\n$4\r\nPING\r\n"));
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    ck_assert(perf_wire_resp.put(&buf, &set));
    ck_assert(is(&buf, "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n"));
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    ck_assert(perf_wire_resp.put(&buf, &get));
    ck_assert(is(&buf, "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"));
    ck_assert(!perf_wire_resp.put(&buf, &wait));
    ddpi_buf_finish(&buf);
}
END_TEST

/* 0 for each beginning that is not whole; from there on the whole, whatever follows. */
static void check_cuts(ptrdiff_t (*reply_len)(const uint8_t *, size_t), const void *bytes,
                       size_t whole, size_t len)
{
    for (size_t cut = 0; cut <= len; cut++)
        ck_assert_int_eq(reply_len(bytes, cut), cut < whole ? 0 : (ptrdiff_t)whole);
}

START_TEST(resp_replies)
{
    ptrdiff_t (*reply_len)(const uint8_t *, size_t) = perf_wire_resp.reply_len;
    check_cuts(reply_len, "+OK\r\n+OK\r\n", 5, 10);
    check_cuts(reply_len, "$3\r\nabc\r\n$", 9, 10);
    check_cuts(reply_len, "$0\r\n\r\n", 6, 6);
    static const char *const bad[] = {"-ERR no\r\n",     "$-1\r\n", "$\r\n", "$1x\r\n",
                                      "$1234567890\r\n", "+OK\n",   "\n",    "*1\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(reply_len((const uint8_t *)bad[i], strlen(bad[i])), -1);
}
END_TEST

START_TEST(native_requests)
{
    static const enum ddpi_op ops[] = {DDPI_OP_SET,         DDPI_OP_TRY_GET, DDPI_OP_GET,
                                       DDPI_OP_BARRIER,     DDPI_OP_WATCH,   DDPI_OP_LIST,
                                       DDPI_OP_SESSION_OPEN};
    for (int op = PERF_SET; op <= PERF_SESSION; op++) {
        const struct perf_request request = {.op = (enum perf_op)op,
                                             .id = 7,
                                             .key = text("key"),
                                             .value = text("value"),
                                             .arrivals = 3};
        struct ddpi_buf buf;
        struct ddpi_frame frame;
        struct ddpi_message message = {0};
        ddpi_buf_init(&buf, 1024);
        ck_assert(perf_wire_native.put(&buf, &request));
        ck_assert(ddpi_frame_get(ddpi_buf_head(&buf), &frame));
        ck_assert_int_eq(
            ddpi_request_get(&frame, ddpi_buf_head(&buf) + DDPI_FRAME_HEADER_SIZE, &message, NULL),
            DDP_OK);
        ck_assert_int_eq(message.op, ops[op]);
        ck_assert_uint_eq(message.id, 7);
        ck_assert_uint_eq(message.key.len, op == PERF_SESSION ? 0 : 3);
        if (op == PERF_SET)
            ck_assert_uint_eq(message.value.len, 5);
        if (op == PERF_BARRIER)
            ck_assert_uint_eq(message.count, 3);
        if (op == PERF_SESSION)
            ck_assert_uint_gt(message.count, 60000); /* ms of its lease */
        if (op == PERF_WAIT || op == PERF_BARRIER)
            ck_assert_uint_gt(message.timeout_ms, 60000);
        ddpi_buf_finish(&buf);
    }
}
END_TEST

START_TEST(native_replies)
{
    const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    const struct ddpi_welcome welcome = {.key_max = 1, .value_max = 2, .many_max = 3};
    const struct ddpi_message reply = {.op = DDPI_OP_TRY_GET, .id = 9, .value = text("value")};
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    ck_assert(ddpi_preamble_put(&buf, &preamble) && ddpi_welcome_put(&buf, 0, &welcome));
    size_t greeting = ddpi_buf_len(&buf);
    ck_assert(ddpi_reply_put(&buf, &reply));
    size_t whole = ddpi_buf_len(&buf);
    const uint8_t *bytes = ddpi_buf_head(&buf);
    check_cuts(perf_wire_native.greeting_len, bytes, greeting, whole);
    check_cuts(perf_wire_native.reply_len, bytes + greeting, whole - greeting, whole - greeting);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(native_refusals)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    ck_assert(ddpi_refusal_put(&buf, ddpi_type_of_op(DDPI_OP_TRY_GET), 1, DDP_E_NOT_FOUND, 0,
                               text("no")));
    ck_assert_int_eq(perf_wire_native.reply_len(ddpi_buf_head(&buf), ddpi_buf_len(&buf)), -1);
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    ck_assert(ddpi_refusal_put(&buf, DDPI_FRAME_BYE, 0, DDP_OK, 0, text("bye")));
    ck_assert_int_eq(perf_wire_native.reply_len(ddpi_buf_head(&buf), ddpi_buf_len(&buf)), -1);
    ck_assert_int_eq(perf_wire_native.greeting_len((const uint8_t *)"HTTP/1.1", 8), -1);
    ddpi_buf_finish(&buf);
}
END_TEST

/* The keys of a native script, in its order. */
START_TEST(scripts)
{
    const struct perf_pattern pattern = {
        .op = PERF_SET, .prefix = "p/", .first = 8, .step = 3, .keys = 10};
    static const char *const expected[] = {"p/000000008", "p/000000001", "p/000000004",
                                           "p/000000007", "p/000000000"};
    struct perf_script script;
    ck_assert(perf_script_init(&script, &perf_wire_native, &pattern, 5));
    ck_assert_uint_eq(script.count, 5);
    ck_assert_uint_eq(ddpi_buf_len(&script.bytes), 5 * script.each);
    for (size_t i = 0; i < 5; i++) {
        const uint8_t *request = ddpi_buf_head(&script.bytes) + i * script.each;
        struct ddpi_frame frame;
        struct ddpi_message message = {0};
        ck_assert(ddpi_frame_get(request, &frame));
        ck_assert_int_eq(ddpi_request_get(&frame, request + DDPI_FRAME_HEADER_SIZE, &message, NULL),
                         DDP_OK);
        ck_assert_uint_eq(message.key.len, strlen(expected[i]));
        ck_assert_mem_eq(message.key.data, expected[i], message.key.len);
        ck_assert_uint_eq(message.value.len, PERF_VALUE_LEN);
    }
    perf_script_finish(&script);
}
END_TEST

START_TEST(a_list_names_the_prefix)
{
    const struct perf_pattern pattern = {
        .op = PERF_LIST, .prefix = "p/", .first = 8, .step = 3, .keys = 10};
    struct perf_script script;
    struct ddpi_frame frame;
    struct ddpi_message message = {0};
    ck_assert(perf_script_init(&script, &perf_wire_native, &pattern, 2));
    const uint8_t *request = ddpi_buf_head(&script.bytes) + script.each;
    ck_assert(ddpi_frame_get(request, &frame));
    ck_assert_int_eq(ddpi_request_get(&frame, request + DDPI_FRAME_HEADER_SIZE, &message, NULL),
                     DDP_OK);
    ck_assert(ddpi_bytes_equal(message.key, text("p/")));
    perf_script_finish(&script);
}
END_TEST

START_TEST(scripts_that_cannot_be)
{
    const struct perf_pattern set = {.op = PERF_SET, .prefix = "p/", .step = 1, .keys = 10};
    const struct perf_pattern barrier = {.op = PERF_BARRIER, .prefix = "p/", .step = 1, .keys = 10};
    struct perf_script script;
    ck_assert(!perf_script_init(&script, &perf_wire_resp, &barrier, 1));
    perf_script_finish(&script);
    failmem_start(0);
    ck_assert(!perf_script_init(&script, &perf_wire_native, &set, 1));
    ck_assert(failmem_stop());
    perf_script_finish(&script);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("perf_wire");
    TCase *tcase = tcase_create("wire");
    ADD_TESTS(tcase, resp_requests, resp_replies, native_requests, native_replies, native_refusals,
              scripts, a_list_names_the_prefix, scripts_that_cannot_be);
    suite_add_tcase(suite, tcase);
    return suite;
}
