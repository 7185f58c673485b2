/*
 * test_ddpctl_common.c - bytes as JSON: text, base64 at every length, what json cannot say raw; and
 * an exit code for each status.
 */
#include "check_main.h"
#include "ddpctl.h"
#include "job_json.h"

#include <stdlib.h>
#include <string.h>

static void assert_json(const void *bytes, size_t len, const char *expected)
{
    json_t *json = json_bytes(bytes, len);
    ck_assert_ptr_nonnull(json);
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    ck_assert_str_eq(text, expected);
    free(text);
    json_decref(json);
}

START_TEST(text_is_a_string)
{
    assert_json(NULL, 0, "\"\"");
    assert_json("plain", 5, "\"plain\"");
    assert_json("a\0b\n\"\\", 6, "\"a\\u0000b\\n\\\"\\\\\"");
    assert_json("\xe2\x82\xac", 3, "\"\\u20AC\"");
}
END_TEST

/* The test vectors of RFC 4648, with bytes that are no UTF-8. */
START_TEST(other_bytes_are_base64)
{
    assert_json("\xff", 1, "{\"base64\":\"/w==\"}");
    assert_json("\xff\xfe", 2, "{\"base64\":\"//4=\"}");
    assert_json("\xff\xfe\xfd", 3, "{\"base64\":\"//79\"}");
    assert_json("\xff\0\0\0", 4, "{\"base64\":\"/wAAAA==\"}");
    assert_json("foob\x80r", 6, "{\"base64\":\"Zm9vYoBy\"}");
    assert_json("\xe2\x82", 2, "{\"base64\":\"4oI=\"}");     /* cut short */
    assert_json("\xed\xa0\x80", 3, "{\"base64\":\"7aCA\"}"); /* a lone surrogate */
}
END_TEST

START_TEST(what_a_terminal_may_see)
{
    static const struct {
        const char *bytes, *shown;
    } rows[] = {
        {"", ""},
        {"plain ~", "plain ~"},
        {"a\tb\n\x1b\x7f", "a\\x09b\\x0a\\x1b\\x7f"},
        {"back\\slash", "back\\\\slash"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b \xc2\xa0", "\\xc2\\x9b \xc2\xa0"}, /* of eight bits: it drives one */
        {"\x9b \xff", "\\x9b \\xff"},                 /* begins nothing */
        {"\xe2\x82", "\\xe2\\x82"},                   /* cut off */
        {"\xe2\x82x", "\\xe2\\x82x"},
        {"\xc0\x9b", "\\xc0\\x9b"}, /* longer than it had to be */
        {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* half of a pair */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond the last */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        ck_assert_ptr_nonnull(out);
        ddpctl_print_bytes(out, rows[i].bytes, strlen(rows[i].bytes));
        ck_assert_int_eq(fclose(out), 0);
        ck_assert_str_eq(text, rows[i].shown);
        free(text);
    }
}
END_TEST

START_TEST(exit_codes)
{
    static const struct {
        ddp_status status;
        int code;
    } rows[] = {
        {DDP_OK, 0},        {DDP_E_NOT_FOUND, 1}, {DDP_E_CONFLICT, 1},
        {DDP_E_TYPE, 1},    {DDP_E_LIMIT, 1},     {DDP_E_NOMEM, 1},
        {DDP_E_SYSTEM, 1},  {DDP_E_INVALID, 2},   {DDP_E_UNREACHABLE, 69},
        {DDP_E_CLOSED, 69}, {DDP_E_PROTOCOL, 69}, {DDP_E_TIMEOUT, 75},
        {DDP_E_DENIED, 77},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_int_eq(ddpctl_exit_of(rows[i].status), rows[i].code);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ddpctl_common");
    TCase *tcase = tcase_create("values");
    ADD_TESTS(tcase, text_is_a_string, other_bytes_are_base64, what_a_terminal_may_see, exit_codes);
    suite_add_tcase(suite, tcase);
    return suite;
}
