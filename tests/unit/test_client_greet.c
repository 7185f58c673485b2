/*
 * test_client_greet.c - the client's greeting: in pieces of any size, from servers of every kind.
 */
#include "check_main.h"
#include "client_greet.h"
#include "failmem.h"

static const struct ddpi_identity nobody;
static const struct ddpi_greet_terms nobody_in_particular = {.identity = &nobody};

static struct ddpi_buf in, out;
static struct ddpi_greet greet;

static void setup(void)
{
    ddpi_buf_init(&in, 65536);
    ddpi_buf_init(&out, 65536);
    ck_assert_int_eq(ddpi_greet_begin(&greet, &nobody_in_particular, &out, NULL), DDP_OK);
}

static void teardown(void)
{
    ddpi_buf_finish(&in);
    ddpi_buf_finish(&out);
}

static void put_good(struct ddpi_buf *buf)
{
    static const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    static const struct ddpi_welcome welcome = {
        .key_max = 1, .value_max = 2, .many_max = 3, .incarnation = 4};
    ck_assert(ddpi_preamble_put(buf, &preamble) && ddpi_welcome_put(buf, 0, &welcome));
}

START_TEST(it_says_hello_at_once)
{
    struct ddpi_preamble preamble;
    struct ddpi_frame frame;
    struct ddpi_hello hello;
    const uint8_t *bytes = ddpi_buf_head(&out);
    ck_assert(ddpi_preamble_get(bytes, &preamble));
    ck_assert(ddpi_frame_get(bytes + DDPI_PREAMBLE_SIZE, &frame));
    ck_assert_uint_eq(frame.type, DDPI_FRAME_HELLO);
    ck_assert(ddpi_hello_get(bytes + DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE, frame.payload_len,
                             &hello));
    ck_assert_uint_eq(ddpi_buf_len(&out),
                      DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + frame.payload_len);
}
END_TEST

START_TEST(cut_at_every_byte)
{
    struct ddpi_buf all;
    ddpi_buf_init(&all, 1024);
    put_good(&all);
    size_t len = ddpi_buf_len(&all), need;
    for (size_t cut = 0; cut < len; cut++) {
        ddpi_buf_consume(&in, ddpi_buf_len(&in));
        ddpi_buf_consume(&out, ddpi_buf_len(&out));
        ck_assert_int_eq(ddpi_greet_begin(&greet, &nobody_in_particular, &out, NULL), DDP_OK);
        ck_assert(ddpi_buf_append(&in, ddpi_buf_head(&all), cut));
        ck_assert_int_eq(ddpi_greet_take(&greet, &in, &out, &need, NULL), DDP_OK);
        ck_assert_uint_gt(need, ddpi_buf_len(&in));
        ck_assert(ddpi_buf_append(&in, ddpi_buf_head(&all) + cut, len - cut));
        ck_assert(ddpi_buf_append(&in, "x", 1)); /* no part of it */
        ck_assert_int_eq(ddpi_greet_take(&greet, &in, &out, &need, NULL), DDP_OK);
        ck_assert_uint_eq(need, 0);
        ck_assert_uint_eq(ddpi_buf_len(&in), 1);
        ck_assert(greet.welcome.key_max == 1 && greet.welcome.incarnation == 4);
    }
    ddpi_buf_finish(&all);
}
END_TEST

START_TEST(servers_that_are_none)
{
    static const struct {
        const char *bytes;
        size_t len;
        ddp_status status;
        const char *text;
    } cases[] = {
        {"H", 1, DDP_E_PROTOCOL, "not a ddprun store"},
        {"DDPS\0\0\1\0", 8, DDP_E_PROTOCOL, "not a ddprun store"},
        {"DDPS\x09\0\x09\0", 8, DDP_E_PROTOCOL, "versions 9 to 9"},
        {"DDPS\3\0\3\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0", 24, DDP_E_PROTOCOL, "answer to HELLO"},
        {"DDPS\3\0\3\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0", 24, DDP_E_PROTOCOL, "answer to HELLO"},
        {"DDPS\3\0\3\0\xff\xff\xff\xff\1\0\0\0\0\0\0\0\0\0\0\0", 24, DDP_E_PROTOCOL, "header"},
        {"DDPS\3\0\3\0\0\0\0\0\2\6\0\0\0\0\0\0\0\0\0\0", 24, DDP_E_PROTOCOL, "malformed BYE"},
        {"DDPS\3\0\3\0\x0e\0\0\0\2\7\0\0\0\0\0\0\0\0\0\0"
         "\0\0\0\0\0\0\0\0\2\0\0\0no",
         38, DDP_E_LIMIT, "no"},
    };
    struct ddp_error err;
    size_t need;
    ck_assert(ddpi_buf_append(&in, cases[_i].bytes, cases[_i].len));
    ck_assert_int_eq(ddpi_greet_take(&greet, &in, &out, &need, &err), cases[_i].status);
    ck_assert_msg(strstr(err.msg, cases[_i].text) != NULL, "%s", err.msg);
}
END_TEST

START_TEST(no_memory)
{
    struct ddpi_buf none;
    ddpi_buf_init(&none, 1024);
    failmem_start(0);
    ck_assert_int_eq(ddpi_greet_begin(&greet, &nobody_in_particular, &none, NULL), DDP_E_NOMEM);
    ck_assert(failmem_stop());
    ddpi_buf_finish(&none);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("client_greet");
    TCase *tcase = tcase_create("greet");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, it_says_hello_at_once);
    tcase_add_test(tcase, cut_at_every_byte);
    tcase_add_loop_test(tcase, servers_that_are_none, 0, 8);
    tcase_add_test(tcase, no_memory);
    suite_add_tcase(suite, tcase);
    return suite;
}
