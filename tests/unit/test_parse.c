/*
 * test_parse.c - strict parsing: tables of what is accepted, with its value, and of what is not.
 * Whatever is refused leaves the result alone, is DDP_E_INVALID, and is quoted in the sentence.
 */
#include "check_main.h"
#include "parse.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static void assert_refused(const char *text, ddp_status status, const struct ddp_error *err)
{
    ck_assert_msg(status == DDP_E_INVALID, "'%s' gave %s", text, ddp_status_name(status));
    ck_assert_int_eq(err->status, DDP_E_INVALID);
    char shown[DDP_ERROR_TEXT];
    snprintf(shown, sizeof shown, "%s", text);
    ddpi_text_mask(shown); /* as every sentence does */
    ck_assert_msg(strstr(err->msg, shown) != NULL, "'%s' is not in: %s", shown, err->msg);
}

START_TEST(integers)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"4", 4},
        {"-3", -3},
        {"-0", 0},
        {"007", 7},
        {"2147483648", INT64_C(2147483648)},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    static const char *const bad[] = {
        "",
        "-",
        "4x",
        "x4",
        "+1",
        " 1",
        "1 ",
        "1\n",
        "\t1",
        "1e3",
        "1.0",
        "1,000",
        "0x10",
        "--1",
        "- 1",
        "1-",
        "inf",
        "nan",
        "\xd9\xa3",
        "1_000",
        "four",
        "99999999999999999999",
        "9223372036854775808",
        "-9223372036854775809",
    };
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(good); i++) {
        int64_t value = 77;
        ck_assert_int_eq(ddpi_parse_int(good[i].text, INT64_MIN, INT64_MAX, &value, &err), DDP_OK);
        ck_assert(value == good[i].value);
    }
    for (size_t i = 0; i < LENGTH(bad); i++) {
        int64_t value = 77;
        ddp_status status = ddpi_parse_int(bad[i], INT64_MIN, INT64_MAX, &value, &err);
        assert_refused(bad[i], status, &err);
        ck_assert(value == 77);
    }
}
END_TEST

START_TEST(integers_have_a_range)
{
    struct ddp_error err;
    static const char *const outside[] = {"0", "9", "-3", "99999999999"};
    static const char *const inside[] = {"1", "5", "8"};
    for (size_t i = 0; i < LENGTH(outside); i++) {
        int64_t value = 77;
        assert_refused(outside[i], ddpi_parse_int(outside[i], 1, 8, &value, &err), &err);
        ck_assert_ptr_nonnull(strstr(err.msg, "range 1 to 8"));
        ck_assert(value == 77);
    }
    for (size_t i = 0; i < LENGTH(inside); i++) {
        int64_t value = 77;
        ck_assert_int_eq(ddpi_parse_int(inside[i], 1, 8, &value, &err), DDP_OK);
        ck_assert(value == inside[i][0] - '0');
    }
}
END_TEST

START_TEST(booleans)
{
    static const char *const yes[] = {"1", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "false", "FALSE", "False"};
    static const char *const bad[] = {"", "2", "01", "yes", "on", "t", " 1", "true ", "truee"};
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(yes); i++) {
        bool value = false;
        ck_assert_int_eq(ddpi_parse_bool(yes[i], &value, &err), DDP_OK);
        ck_assert(value);
        ck_assert_int_eq(ddpi_parse_bool(no[i], &value, &err), DDP_OK);
        ck_assert(!value);
    }
    for (size_t i = 0; i < LENGTH(bad); i++) {
        bool value = true;
        assert_refused(bad[i], ddpi_parse_bool(bad[i], &value, &err), &err);
        ck_assert(value);
    }
}
END_TEST

START_TEST(durations)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"0", 0},
        {"30", 30000},
        {"1.5", 1500},
        {"1.5s", 1500},
        {"200ms", 200},
        {"0.2s", 200},
        {"5m", 300000},
        {"0.5m", 30000},
        {"1h", 3600000},
        {"1.25h", 4500000},
        {"0.001s", 1},
        {"0.0009s", 0},
        {"2S", 2000},
        {"10MS", 10},
        {"1.999999999s", 1999},
        {"0.1", 100},
        {"0.3s", 300},
        {"4.35s", 4350},
        {"1.0000000009s", 1000},
        {"18446744073709551615ms", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",
        "s",
        "ms",
        "-1",
        "-1s",
        "+1s",
        " 1s",
        "1 s",
        "1s ",
        "1e3",
        "1.s",
        "1.",
        ".5",
        ".5s",
        "1..5",
        "1,5s",
        "1d",
        "1us",
        "1sec",
        "1ss",
        "1h30m",
        "0x1s",
        "inf",
        "nan",
        "1.5.5s",
        "1.-5",
        "s1",
        "18446744073709551616ms",
        "5124095576031h",
        "99999999999999999999",
    };
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(good); i++) {
        uint64_t ms = 77;
        ck_assert_int_eq(ddpi_parse_duration_ms(good[i].text, 1000, UINT64_MAX, &ms, &err), DDP_OK);
        ck_assert_msg(ms == good[i].ms, "'%s' gave %llu", good[i].text, (unsigned long long)ms);
    }
    for (size_t i = 0; i < LENGTH(bad); i++) {
        uint64_t ms = 77;
        ddp_status status = ddpi_parse_duration_ms(bad[i], 1000, UINT64_MAX, &ms, &err);
        assert_refused(bad[i], status, &err);
        ck_assert(ms == 77);
    }
}
END_TEST

START_TEST(durations_have_a_default_unit_and_a_limit)
{
    struct ddp_error err;
    uint64_t ms = 77;
    ck_assert_int_eq(ddpi_parse_duration_ms("250", 1, 1000, &ms, &err), DDP_OK);
    ck_assert(ms == 250);
    ck_assert_int_eq(ddpi_parse_duration_ms("1s", 1, 1000, &ms, &err), DDP_OK);
    ck_assert(ms == 1000);
    assert_refused("1001ms", ddpi_parse_duration_ms("1001ms", 1, 1000, &ms, &err), &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "limit of 1000 ms"));
    assert_refused("1.001s", ddpi_parse_duration_ms("1.001s", 1, 1000, &ms, &err), &err);
    ck_assert(ms == 1000);
}
END_TEST

START_TEST(a_number_too_long_for_64_bits_is_over_the_limit)
{
    static const char number[] = "99999999999999999999999";
    struct ddp_error err;
    uint64_t value = 77;
    assert_refused(number, ddpi_parse_duration_ms(number, 1000, 5000, &value, &err), &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "limit of 5000 ms"));
    assert_refused(number, ddpi_parse_size(number, 4096, &value, &err), &err);
    ck_assert_ptr_nonnull(strstr(err.msg, "limit of 4096 bytes"));
    ck_assert(value == 77);
}
END_TEST

START_TEST(sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"7B", 7},
        {"64K", 65536},
        {"64k", 65536},
        {"64KiB", 65536},
        {"1M", 1 << 20},
        {"1MiB", 1 << 20},
        {"2G", UINT64_C(2) << 30},
        {"2gib", UINT64_C(2) << 30},
        {"17179869183G", UINT64_C(17179869183) << 30},
        {"18446744073709551615", UINT64_MAX},
    };
    static const char *const bad[] = {
        "",
        "K",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1 K",
        "1.5K",
        "1.0",
        "1KB",
        "1T",
        "1KK",
        "1e3",
        "0x1",
        "1Ki",
        "K1",
        "1,0",
        "B",
        "1Bk",
        "1.K",
        "17179869184G",
        "18446744073709551616",
        "99999999999999999999K",
    };
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(good); i++) {
        uint64_t bytes = 77;
        ck_assert_int_eq(ddpi_parse_size(good[i].text, UINT64_MAX, &bytes, &err), DDP_OK);
        ck_assert_msg(bytes == good[i].bytes, "'%s' gave %llu", good[i].text,
                      (unsigned long long)bytes);
    }
    for (size_t i = 0; i < LENGTH(bad); i++) {
        uint64_t bytes = 77;
        assert_refused(bad[i], ddpi_parse_size(bad[i], UINT64_MAX, &bytes, &err), &err);
        ck_assert(bytes == 77);
    }
    uint64_t bytes = 77;
    ck_assert_int_eq(ddpi_parse_size("4K", 4096, &bytes, &err), DDP_OK);
    assert_refused("5K", ddpi_parse_size("5K", 4096, &bytes, &err), &err);
    ck_assert(bytes == 4096);
}
END_TEST

START_TEST(endpoints)
{
    static const struct {
        const char *text, *host;
        int port; /* -1 = none */
    } good[] = {
        {"localhost", "localhost", -1},
        {"node-1.cluster.example:29400", "node-1.cluster.example", 29400},
        {"10.0.0.1:0", "10.0.0.1", 0},
        {"10.0.0.1", "10.0.0.1", -1},
        {"a:65535", "a", 65535},
        {"[::1]", "::1", -1},
        {"[::1]:29400", "::1", 29400},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", 1},
        {"[::ffff:10.0.0.1]:80", "::ffff:10.0.0.1", 80},
        {"[name]:1", "name", 1},
    };
    static const char *const bad[] = {
        "",
        ":",
        ":1",
        "a:",
        "a:b",
        "a:1:2",
        "::1",
        "::1:29400",
        "fe80::1",
        "[]",
        "[]:1",
        "[::1",
        "::1]",
        "[::1]1",
        "[::1]x:1",
        "[::1]:",
        "[::1]:x",
        "[::1]::1",
        "[[::1]]",
        "[a]:b]:1",
        "a:65536",
        "a:-1",
        "a:+1",
        "a: 1",
        "a:1 ",
        "a b",
        " a",
        "a ",
        "a\n:1",
        "a,b",
        "http://a",
        "a/b:1",
        "a]:1",
        "a:1e3",
        "a:0x1",
        "\xc3\xa9:1",
        "a:99999999999999999999",
        "[a b]:1",
    };
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(good); i++) {
        struct ddpi_endpoint endpoint;
        memset(&endpoint, 0x55, sizeof endpoint);
        ck_assert_int_eq(ddpi_parse_endpoint(good[i].text, &endpoint, &err), DDP_OK);
        ck_assert_str_eq(endpoint.host, good[i].host);
        ck_assert(endpoint.has_port == (good[i].port >= 0));
        ck_assert_uint_eq(endpoint.port, good[i].port >= 0 ? (uint16_t)good[i].port : 0);
    }
    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct ddpi_endpoint endpoint = {.host = "kept", .port = 7};
        assert_refused(bad[i], ddpi_parse_endpoint(bad[i], &endpoint, &err), &err);
        ck_assert_str_eq(endpoint.host, "kept");
        ck_assert_uint_eq(endpoint.port, 7);
        ck_assert_int_eq(ddpi_parse_endpoint(bad[i], &endpoint, NULL), DDP_E_INVALID);
    }
}
END_TEST

START_TEST(host_names_have_a_limit)
{
    char text[DDPI_HOST_MAX + 8];
    struct ddpi_endpoint endpoint;
    memset(text, 'a', sizeof text);
    memcpy(text + DDPI_HOST_MAX - 1, ":1", 3);
    ck_assert_int_eq(ddpi_parse_endpoint(text, &endpoint, NULL), DDP_OK);
    ck_assert_uint_eq(strlen(endpoint.host), DDPI_HOST_MAX - 1);
    text[DDPI_HOST_MAX - 1] = 'a';
    memcpy(text + DDPI_HOST_MAX, ":1", 3);
    ck_assert_int_eq(ddpi_parse_endpoint(text, &endpoint, NULL), DDP_E_INVALID);
}
END_TEST

START_TEST(the_sentence_names_port_and_endpoint)
{
    struct ddpi_endpoint endpoint;
    struct ddp_error err;
    ck_assert_int_eq(ddpi_parse_endpoint("node:70000", &endpoint, &err), DDP_E_INVALID);
    ck_assert_str_eq(err.msg, "the port in 'node:70000': '70000' is not in the range 0 to 65535");
}
END_TEST

START_TEST(lists_of_endpoints)
{
    static const char *const good[] = {"a:1", "a:1,[::1]:2", "1.2.3.4:5,b:6,c:7", "a:1,a:1"};
    static const char *const bad[] = {
        "",         ",",           "a:1,",     ",a:1",
        "a:1,,b:2", "a:1,b:70000", "a:1 ,b:2", "1:1,2:1,3:1,4:1,5:1,6:1,7:1,8:1,9:1"};
    char text[DDPI_ENDPOINTS_TEXT], small[12];
    struct ddpi_endpoints list;
    struct ddp_error err;
    for (size_t i = 0; i < LENGTH(good); i++) {
        ck_assert_int_eq(ddpi_parse_endpoints(good[i], &list, &err), DDP_OK);
        ck_assert_uint_eq(list.count, i == 2 ? 3 : 1 + (i > 0));
        ddpi_endpoints_text(&list, text, sizeof text);
        ck_assert_str_eq(text, good[i]);
    }
    ddpi_endpoints_text(&list, small, 8);
    ck_assert_str_eq(small, "a:1,a:1");
    ddpi_endpoints_text(&list, small, 7);
    ck_assert_str_eq(small, "");
    for (size_t i = 0; i < LENGTH(bad); i++) {
        list.count = 7;
        assert_refused(bad[i], ddpi_parse_endpoints(bad[i], &list, &err), &err);
        ck_assert_uint_eq(list.count, 7);
    }
}
END_TEST

START_TEST(lists_are_walked_item_by_item)
{
    static const struct {
        const char *text;
        const char *items[5];
    } rows[] = {
        {"a,b,c", {"a", "b", "c"}},
        {"one", {"one"}},
        {"", {""}},
        {",", {"", ""}},
        {"a,,b,", {"a", "", "b", ""}},
        {" a ;b,c;d", {" a ;b", "c;d"}},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *cursor = rows[i].text, *item;
        size_t len, count = 0;
        while (ddpi_parse_list_next(&cursor, ',', &item, &len)) {
            ck_assert_ptr_nonnull(rows[i].items[count]);
            ck_assert_uint_eq(len, strlen(rows[i].items[count]));
            ck_assert_int_eq(strncmp(item, rows[i].items[count], len), 0);
            count++;
        }
        ck_assert_ptr_null(rows[i].items[count]);
        ck_assert(!ddpi_parse_list_next(&cursor, ',', &item, &len));
    }
}
END_TEST

START_TEST(variables_of_an_environment)
{
    char one[] = "ONE=1", once[] = "ONCE=", odd[] = "ODD", again[] = "ONE=2";
    char *envp[] = {odd, once, one, again, NULL};
    ck_assert_str_eq(ddpi_parse_env(envp, "ONE TWO", 3), "1");
    ck_assert_str_eq(ddpi_parse_env(envp, "ONCE", 4), "");
    ck_assert_ptr_null(ddpi_parse_env(envp, "ON", 2));
    ck_assert_ptr_null(ddpi_parse_env(envp, "ODD", 3));
    ck_assert_ptr_null(ddpi_parse_env(envp + 4, "ONE", 3));
}
END_TEST

START_TEST(hosts_of_loopback)
{
    static const char *const yes[] = {"localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"};
    static const char *const no[] = {"", "node1", "10.0.0.1", "127.example.org", "::2", "0.0.0.0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        ck_assert_msg(ddpi_host_is_loopback(yes[i]), "'%s'", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(!ddpi_host_is_loopback(no[i]), "'%s'", no[i]);
}
END_TEST

START_TEST(hosts_in_digits)
{
    static const char *const yes[] = {"127.0.0.1", "10.1", "0", "::", "fe80::1%eth0"};
    static const char *const no[] = {"", "localhost", "127.example.org", "1.2.3.4.5", "node1"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        ck_assert_msg(ddpi_host_is_address(yes[i]), "'%s'", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(!ddpi_host_is_address(no[i]), "'%s'", no[i]);
}
END_TEST

START_TEST(hexadecimal_numbers)
{
    static const char *const bad[] = {"", "g", "A", "-1", " 1", "1 ", "0x1", "11111111111111111"};
    uint64_t value;
    ck_assert(ddpi_parse_hex("0", &value) && value == 0);
    ck_assert(ddpi_parse_hex("1f", &value) && value == 31);
    ck_assert(ddpi_parse_hex("ffffffffffffffff", &value) && value == UINT64_MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!ddpi_parse_hex(bad[i], &value), "'%s'", bad[i]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("parse");
    TCase *numbers = tcase_create("numbers");
    ADD_TESTS(numbers, hexadecimal_numbers, integers, integers_have_a_range, booleans, durations,
              durations_have_a_default_unit_and_a_limit,
              a_number_too_long_for_64_bits_is_over_the_limit, sizes);
    suite_add_tcase(suite, numbers);
    TCase *names = tcase_create("names");
    ADD_TESTS(names, endpoints, lists_of_endpoints, host_names_have_a_limit,
              the_sentence_names_port_and_endpoint, lists_are_walked_item_by_item,
              hosts_of_loopback, hosts_in_digits, variables_of_an_environment);
    suite_add_tcase(suite, names);
    return suite;
}
