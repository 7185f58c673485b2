/*
 * test_etcd_codec.c - requests to etcd's gateway as it wants them, its answers as versions 3.4 to
 * 3.6 write them, and what is none; addresses of an etcd.
 */
#include "check_main.h"
#include "etcd_address.h"
#include "etcd_codec.h"

#include <stdio.h>
#include <string.h>

static struct ddp_error why;

static struct ddpi_bytes text_of(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

static ddp_status parse(const char *text, struct ddpi_etcd_reply *ret)
{
    return ddpi_etcd_reply_parse(text_of(text), ret, &why);
}

static void assert_text(const struct ddpi_buf *buf, const char *expected)
{
    ck_assert_uint_eq(ddpi_buf_len(buf), strlen(expected));
    ck_assert_int_eq(memcmp(ddpi_buf_head(buf), expected, strlen(expected)), 0);
}

START_TEST(base64)
{
    static const char *const bad[] = {"Zg",   "Zg=",  "Zg==Zg==", "Zh==",    "Zm9=",      "Zm9-",
                                      "=m9v", "Z===", "Zm 9",     "Zm9\xff", "\xc3\xa9Zm"};
    struct ddpi_buf buf;
    for (size_t len = 0; len < 300; len++) {
        uint8_t bytes[300];
        struct ddpi_buf back;
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i * 7 + len);
        ddpi_buf_init(&buf, 1024);
        ddpi_buf_init(&back, 1024);
        ck_assert(ddpi_etcd_put_bytes(&buf, "k", ddpi_bytes_of(bytes, len)));
        ck_assert(
            ddpi_base64_get((const char *)ddpi_buf_head(&buf) + 5, ddpi_buf_len(&buf) - 6, &back));
        ck_assert_uint_eq(ddpi_buf_len(&back), len);
        ck_assert(len == 0 || memcmp(ddpi_buf_head(&back), bytes, len) == 0);
        ddpi_buf_finish(&buf);
        ddpi_buf_finish(&back);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ddpi_buf_init(&buf, 1024);
        ck_assert_msg(!ddpi_base64_get(bad[i], strlen(bad[i]), &buf), "%s", bad[i]);
        ddpi_buf_finish(&buf);
    }
}
END_TEST

START_TEST(requests)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 4096);
    const struct ddpi_etcd_range range = {
        .key = text_of("foo"), .end = text_of("fop"), .revision = 5, .limit = 10};
    ck_assert(ddpi_etcd_put_range(&buf, &range));
    assert_text(&buf,
                "{\"key\":\"Zm9v\",\"range_end\":\"Zm9w\",\"revision\":\"5\",\"limit\":\"10\"}");
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    const struct ddpi_etcd_op put = {DDPI_ETCD_PUT, text_of("foo"), text_of("bar"), 4242};
    ck_assert(ddpi_etcd_put_op(&buf, &put));
    assert_text(&buf, "{\"request_put\":{\"key\":\"Zm9v\",\"value\":\"YmFy\",\"lease\":\"4242\"}}");
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    ck_assert(ddpi_etcd_put_compare_mod(&buf, text_of("foo"), 0));
    assert_text(&buf, "{\"key\":\"Zm9v\",\"target\":\"MOD\",\"result\":\"EQUAL\","
                      "\"mod_revision\":\"0\"}");
    ddpi_buf_consume(&buf, ddpi_buf_len(&buf));
    ck_assert(ddpi_etcd_prefix_end(text_of("/a/"), &buf));
    assert_text(&buf, "/a0");
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(errors_of_all_versions)
{
    static const struct {
        const char *text;
        enum ddpi_etcd_code code;
        const char *message;
    } rows[] = {
        {"{\"error\":\"etcdserver: no\",\"message\":\"etcdserver: no\",\"code\":5}", 5,
         "etcdserver: no"},
        {"{\"code\":8,\"message\":\"full\",\"details\":[]}", 8, "full"},
        {"{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"no leader\"}}", 14,
         "no leader"},
        {"{\"error\":{\"code\":9,\"message\":\"exists\"}}", 9, "exists"},
        {"{\"error\":\"odd\"}", DDPI_ETCD_UNKNOWN, "odd"},
        {"{\"code\":4711,\"message\":\"a\\u0007b\"}", DDPI_ETCD_UNKNOWN, "a?b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddpi_etcd_reply reply;
        ck_assert_msg(parse(rows[i].text, &reply) == DDP_OK, "%s", rows[i].text);
        ck_assert_int_eq(reply.code, rows[i].code);
        ck_assert_str_eq(reply.message, rows[i].message);
        ddpi_etcd_reply_finish(&reply);
    }
}
END_TEST

START_TEST(what_is_no_answer)
{
    static const char *const bad[] = {
        "",
        "garbage",
        "[]",
        "{\"header\":",
        "{\"header\":1}",
        "{\"header\":{\"revision\":\"-1\"}}",
        "{\"header\":{\"revision\":\"18446744073709551616\"}}",
        "{\"header\":{\"revision\":[]}}",
        "{\"code\":\"5\"}",
        "{\"header\":{},\"header\":{}}",
        "{}{}",
    };
    struct ddpi_etcd_reply reply;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(parse(bad[i], &reply) == DDP_E_PROTOCOL, "%s", bad[i]);
        ddpi_etcd_reply_finish(&reply);
    }
    ck_assert_int_eq(parse("{\"header\":{\"revision\":\"18446744073709551615\"}}\n", &reply),
                     DDP_OK);
    ck_assert(reply.revision == UINT64_MAX);
    ddpi_etcd_reply_finish(&reply);
}
END_TEST

static ddp_status count_kv(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    (void)err;
    ck_assert(ddpi_bytes_equal(kv->key, text_of("foo")));
    ck_assert_uint_eq(kv->mod_revision, 3);
    *(size_t *)ctx += 1 + kv->value.len;
    return DDP_OK;
}

START_TEST(transactions_and_streams)
{
    struct ddpi_etcd_reply reply;
    size_t count = 0;
    uint64_t ttl;
    ck_assert_int_eq(parse("{\"header\":{\"revision\":\"7\"},\"responses\":[{\"response_range\":{"
                           "\"kvs\":[{\"key\":\"Zm9v\",\"mod_revision\":\"3\"},{\"key\":\"Zm9v\","
                           "\"mod_revision\":3,\"value\":\"YmFy\"}],\"count\":\"2\"}}]}",
                           &reply),
                     DDP_OK);
    ck_assert(!ddpi_etcd_succeeded(&reply));
    ck_assert_int_eq(ddpi_etcd_each_kv(ddpi_etcd_range_at(&reply, 0), count_kv, &count, &why),
                     DDP_OK);
    ck_assert_uint_eq(count, 5);
    ck_assert_ptr_null(ddpi_etcd_range_at(&reply, 1));
    ddpi_etcd_reply_finish(&reply);
    ck_assert_int_eq(parse("{\"result\":{\"header\":{\"revision\":\"9\"},\"TTL\":\"5\"}}", &reply),
                     DDP_OK);
    ck_assert_uint_eq(reply.revision, 9);
    ck_assert_int_eq(ddpi_etcd_get_number(reply.root, "TTL", &ttl, &why), DDP_OK);
    ck_assert_uint_eq(ttl, 5);
    ddpi_etcd_reply_finish(&reply);
    ck_assert_int_eq(parse("{\"kvs\":[{\"key\":\"Zm9\"}]}", &reply), DDP_OK);
    ck_assert_int_eq(ddpi_etcd_each_kv(reply.root, count_kv, &count, &why), DDP_E_PROTOCOL);
    ddpi_etcd_reply_finish(&reply);
}
END_TEST

START_TEST(addresses)
{
    static const char *const bad[] = {
        "etcd://",
        "etcd://h",
        "etcd://h/",
        "etcd:///p",
        "etcd://h:0/p",
        "etcd://h,/p",
        "etcd://u:p@h/p",
        "etcd://h/a//b",
        "etcd://h/a b",
        "etcd://h:70000/p",
        "etcd://a,b,c,d,e,f,g,h,i,j/p",
        "etcd://unix:/run/x/etcd:1",
        "etcd://unix:/run/x/etcd:1:/",
        "etcds://unix:/run/x/etcd:1:/jobs",
        "etcd://unix:/1234567890123456789012345678901234567890123456789012345678901234567890123456"
        "789012345678901234567890123456789:/p",
    };
    struct ddpi_etcd_address address;
    ck_assert_int_eq(
        ddpi_etcd_address_parse("etcds://h1:2379,[::1]:1,h3/some/prefix/", &address, &why), DDP_OK);
    ck_assert(address.tls && address.count == 3);
    ck_assert_str_eq(address.at[1].host, "::1");
    ck_assert_uint_eq(address.at[2].port, 2379);
    ck_assert_str_eq(address.prefix, "/some/prefix");
    char text[DDPI_ETCD_MEMBER_TEXT];
    ddpi_etcd_member_text(&address, 1, text);
    ck_assert_str_eq(text, "[::1]:1");
    ck_assert_int_eq(ddpi_etcd_address_parse("etcd://unix:/run/x/etcd:1:/jobs/", &address, &why),
                     DDP_OK);
    ck_assert_str_eq(address.socket, "/run/x/etcd:1");
    ck_assert_str_eq(address.prefix, "/jobs");
    ddpi_etcd_member_text(&address, 0, text);
    ck_assert_str_eq(text, "/run/x/etcd:1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(ddpi_etcd_address_parse(bad[i], &address, &why) == DDP_E_INVALID, "%s",
                      bad[i]);
    ck_assert(ddpi_etcd_address_is("etcd://x") && !ddpi_etcd_address_is("/var/lib/state"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("etcd_codec");
    TCase *group = tcase_create("pure");
    ADD_TESTS(group, base64, requests, errors_of_all_versions, what_is_no_answer,
              transactions_and_streams, addresses);
    suite_add_tcase(suite, group);
    return suite;
}
