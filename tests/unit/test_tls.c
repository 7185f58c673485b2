/*
 * test_tls.c - both sides of TLS played against each other: every cut, every flipped bit, wrong
 * keys, and what only looks like an end.
 */
#include "certificate.h"
#include "check_main.h"
#include "failmem.h"
#include "tls.h"

#include <link.h>
#include <string.h>

enum { WIRE_MAX = 4 * 1024 * 1024 };

static struct ddpi_tls_engine *engine;
static struct ddp_error err;

/* What an accepting side knows. */
struct keys {
    struct ddpi_tls_key key;
    bool asked;
};

/* Both sides, what each has said that has not arrived, and what each has understood. */
struct pair {
    struct keys keys;
    struct ddpi_tls *client, *server;
    struct ddpi_buf to_server, to_client;
    struct ddpi_buf at_server, at_client;
};

static struct ddpi_tls_key key_of(const char *identity, uint8_t fill)
{
    struct ddpi_tls_key key = {.identity_len = strlen(identity)};
    memcpy(key.identity, identity, key.identity_len);
    memset(key.secret, fill, sizeof key.secret);
    return key;
}

static bool find(void *ctx, const uint8_t *identity, size_t len, uint8_t ret_secret[32])
{
    struct keys *keys = ctx;
    keys->asked = true;
    if (len != keys->key.identity_len || memcmp(identity, keys->key.identity, len) != 0)
        return false;
    memcpy(ret_secret, keys->key.secret, DDPI_TLS_KEY_SIZE);
    return true;
}

static void begin_with(struct pair *pair, struct ddpi_tls_key ours, struct ddpi_tls_key theirs)
{
    *pair = (struct pair){.keys = {.key = theirs}};
    ddpi_buf_init(&pair->to_server, WIRE_MAX);
    ddpi_buf_init(&pair->to_client, WIRE_MAX);
    ddpi_buf_init(&pair->at_server, WIRE_MAX);
    ddpi_buf_init(&pair->at_client, WIRE_MAX);
    ck_assert_int_eq(ddpi_tls_connect(engine, &ours, &pair->client, &err), DDP_OK);
    ck_assert_int_eq(ddpi_tls_accept(engine, find, &pair->keys, &pair->server, &err), DDP_OK);
    struct ddpi_buf nothing;
    ddpi_buf_init(&nothing, 1);
    ck_assert_int_eq(ddpi_tls_put(pair->client, &nothing, 1, &pair->to_server, &err), DDP_OK);
}

static void begin(struct pair *pair)
{
    begin_with(pair, key_of("a", 7), key_of("a", 7));
}

static void finish(struct pair *pair)
{
    ddpi_tls_destroy(pair->client);
    ddpi_tls_destroy(pair->server);
    ddpi_buf_finish(&pair->to_server);
    ddpi_buf_finish(&pair->to_client);
    ddpi_buf_finish(&pair->at_server);
    ddpi_buf_finish(&pair->at_client);
}

/* At most @most bytes of what is on its way to the server, or to the client, arrive. */
static ddp_status arrive(struct pair *pair, bool at_server, size_t most)
{
    struct ddpi_buf *from = at_server ? &pair->to_server : &pair->to_client;
    struct ddpi_buf *answer = at_server ? &pair->to_client : &pair->to_server;
    size_t len = ddpi_buf_len(from) < most ? ddpi_buf_len(from) : most;
    ddp_status status =
        ddpi_tls_take(at_server ? pair->server : pair->client, ddpi_buf_head(from), len,
                      at_server ? &pair->at_server : &pair->at_client, answer, &err);
    ddpi_buf_consume(from, len);
    return status;
}

/* All that is on its way arrives in pieces of @piece bytes, until nobody says anything. */
static ddp_status talk(struct pair *pair, size_t piece)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK && ddpi_buf_len(&pair->to_server) + ddpi_buf_len(&pair->to_client) > 0)
        status = arrive(pair, ddpi_buf_len(&pair->to_server) > 0, piece);
    return status;
}

static void open_pair(struct pair *pair)
{
    begin(pair);
    ck_assert_int_eq(talk(pair, SIZE_MAX), DDP_OK);
    ck_assert(ddpi_tls_is_open(pair->client) && ddpi_tls_is_open(pair->server));
}

static ddp_status say(struct pair *pair, bool from_client, const void *bytes, size_t len)
{
    struct ddpi_buf plain;
    ddpi_buf_init(&plain, WIRE_MAX);
    ck_assert(ddpi_buf_append(&plain, bytes, len));
    ddp_status status = ddpi_tls_put(from_client ? pair->client : pair->server, &plain, SIZE_MAX,
                                     from_client ? &pair->to_server : &pair->to_client, &err);
    ck_assert_uint_eq(ddpi_buf_len(&plain), status == DDP_OK ? 0 : len);
    ddpi_buf_finish(&plain);
    return status;
}

static void setup(void)
{
    ck_assert_int_eq(ddpi_tls_engine_create(&engine, &err), DDP_OK);
}

static void teardown(void)
{
    ddpi_tls_engine_destroy(engine);
}

/* ---- it works ---- */

START_TEST(handshake_in_pieces_of_any_size)
{
    struct pair pair;
    begin(&pair);
    ck_assert_int_eq(talk(&pair, (size_t)_i), DDP_OK);
    ck_assert(ddpi_tls_is_open(pair.client) && ddpi_tls_is_open(pair.server));
    ck_assert_int_eq(say(&pair, true, "from the client", 15), DDP_OK);
    ck_assert_int_eq(say(&pair, false, "from the server", 15), DDP_OK);
    ck_assert_int_eq(talk(&pair, (size_t)_i), DDP_OK);
    ck_assert_uint_eq(ddpi_buf_len(&pair.at_server), 15);
    ck_assert_mem_eq(ddpi_buf_head(&pair.at_server), "from the client", 15);
    ck_assert_mem_eq(ddpi_buf_head(&pair.at_client), "from the server", 15);
    finish(&pair);
}
END_TEST

START_TEST(large_ones_arrive_whole_and_secret)
{
    static uint8_t large[1000 * 1000];
    struct pair pair;
    open_pair(&pair);
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (uint8_t)(i % 251);
    ck_assert_int_eq(say(&pair, true, large, sizeof large), DDP_OK);
    const uint8_t *wire = ddpi_buf_head(&pair.to_server);
    ck_assert_ptr_null(memmem(wire, ddpi_buf_len(&pair.to_server), large, 64));
    ck_assert_int_eq(talk(&pair, 10 * 1000), DDP_OK);
    ck_assert_uint_eq(ddpi_buf_len(&pair.at_server), sizeof large);
    ck_assert_mem_eq(ddpi_buf_head(&pair.at_server), large, sizeof large);
    finish(&pair);
}
END_TEST

START_TEST(what_is_to_be_sealed_at_once_is_bounded)
{
    struct pair pair;
    struct ddpi_buf plain;
    open_pair(&pair);
    ddpi_buf_init(&plain, WIRE_MAX);
    static const uint8_t many[100 * 1000];
    ck_assert(ddpi_buf_append(&plain, many, sizeof many));
    ck_assert_int_eq(ddpi_tls_put(pair.client, &plain, 30 * 1000, &pair.to_server, &err), DDP_OK);
    ck_assert_uint_eq(ddpi_buf_len(&plain), 70 * 1000);
    ddpi_buf_finish(&plain);
    finish(&pair);
}
END_TEST

START_TEST(nothing_is_said_before_it_is_open)
{
    struct pair pair;
    begin(&pair);
    struct ddpi_buf plain;
    ddpi_buf_init(&plain, 100);
    ck_assert(ddpi_buf_append(&plain, "early", 5));
    size_t before = ddpi_buf_len(&pair.to_server);
    ck_assert_int_eq(ddpi_tls_put(pair.client, &plain, SIZE_MAX, &pair.to_server, &err), DDP_OK);
    ck_assert_uint_eq(ddpi_buf_len(&plain), 5);
    ck_assert_uint_eq(ddpi_buf_len(&pair.to_server), before);
    ddpi_buf_finish(&plain);
    finish(&pair);
}
END_TEST

/* ---- it does not ---- */

static void expect_refused(struct ddpi_tls_key ours, struct ddpi_tls_key theirs, const char *words)
{
    struct pair pair;
    begin_with(&pair, ours, theirs);
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_DENIED);
    ck_assert(!ddpi_tls_is_open(pair.server));
    ck_assert_uint_eq(ddpi_buf_len(&pair.to_client), DDPI_TLS_REFUSAL_SIZE); /* an alert */
    ck_assert_int_eq(arrive(&pair, false, SIZE_MAX), DDP_E_DENIED);
    ck_assert(!ddpi_tls_is_open(pair.client));
    ck_assert_msg(strstr(err.msg, words) != NULL, "%s", err.msg);
    ck_assert_int_eq(say(&pair, true, "x", 1), DDP_E_CLOSED);
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_CLOSED);
    finish(&pair);
}

START_TEST(another_key_is_refused)
{
    expect_refused(key_of("a", 7), key_of("a", 8), "has another key");
}
END_TEST

START_TEST(an_unknown_identity_is_refused)
{
    expect_refused(key_of("b", 7), key_of("a", 7), "does not know this key");
}
END_TEST

START_TEST(who_does_not_take_tls_says_so)
{
    struct pair pair;
    begin(&pair);
    ck_assert(ddpi_buf_append(&pair.to_client, ddpi_tls_refusal, sizeof ddpi_tls_refusal));
    ck_assert_int_eq(arrive(&pair, false, SIZE_MAX), DDP_E_DENIED);
    ck_assert_msg(strstr(err.msg, "started without it (--tls)") != NULL, "%s", err.msg);
    finish(&pair);
}
END_TEST

START_TEST(another_protocol_is_called_that)
{
    static const char *const others[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH\r\n",
                                         "DDPR\1\0\2\0\0\0\0\0\0\0\0\0"};
    struct pair pair;
    begin(&pair);
    ck_assert(ddpi_buf_append(&pair.to_client, others[_i], strlen(others[_i])));
    ddp_status status = arrive(&pair, false, SIZE_MAX);
    ck_assert_msg(status == DDP_E_PROTOCOL && strstr(err.msg, "does not speak TLS") != NULL,
                  "%s: %s", others[_i], err.msg);
    finish(&pair);
}
END_TEST

/* Bytes that never become a handshake are counted. */
START_TEST(an_endless_handshake_ends)
{
    /* A ClientHello of the longest size there is, which never ends. */
    static const uint8_t header[] = {22, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3};
    uint8_t more[512] = {0};
    struct pair pair;
    begin(&pair);
    ddpi_buf_consume(&pair.to_server, ddpi_buf_len(&pair.to_server));
    ck_assert(ddpi_buf_append(&pair.to_server, header, sizeof header));
    ddp_status status = arrive(&pair, true, SIZE_MAX);
    for (size_t sent = sizeof header; status == DDP_OK; sent += sizeof more) {
        ck_assert_uint_le(sent, DDPI_TLS_HANDSHAKE_MAX);
        ck_assert(ddpi_buf_append(&pair.to_server, more, sizeof more));
        status = arrive(&pair, true, SIZE_MAX);
    }
    ck_assert_int_eq(status, DDP_E_PROTOCOL);
    finish(&pair);
}
END_TEST

/* What each side says until both are open, so that a test can change any of it. */
static size_t count_flight(unsigned flight)
{
    struct pair pair;
    begin(&pair);
    for (unsigned i = 0; i < flight; i++)
        ck_assert_int_eq(arrive(&pair, i % 2 == 0, SIZE_MAX), DDP_OK);
    size_t len = ddpi_buf_len(flight % 2 == 0 ? &pair.to_server : &pair.to_client);
    finish(&pair);
    return len;
}

/* Change a byte of the flight number @flight; whether both sides are open afterwards. */
static bool survives(unsigned flight, size_t at, uint8_t flip)
{
    struct pair pair;
    begin(&pair);
    for (unsigned i = 0; i < flight; i++)
        ck_assert_int_eq(arrive(&pair, i % 2 == 0, SIZE_MAX), DDP_OK);
    struct ddpi_buf *wire = flight % 2 == 0 ? &pair.to_server : &pair.to_client;
    wire->data[wire->head + at] ^= flip;
    (void)talk(&pair, SIZE_MAX);
    bool open = ddpi_tls_is_open(pair.client) && ddpi_tls_is_open(pair.server);
    finish(&pair);
    return open;
}

/* The header of a record has a version that counts for nothing, and so has the one byte of the
 * change of cipher that is there for the sake of old boxes on the way; all else is proven. */
static bool counts_for_nothing(unsigned flight, size_t at)
{
    return at == 1 || at == 2 || (flight > 0 && at > 2);
}

START_TEST(every_byte_of_the_greeting_is_proven)
{
    for (unsigned flight = 0; flight < 1; flight++) {
        size_t len = count_flight(flight);
        for (size_t at = 0; at < len; at++)
            ck_assert_msg(counts_for_nothing(flight, at) || !survives(flight, at, 1),
                          "flight %u, byte %zu of %zu", flight, at, len);
    }
}
END_TEST

START_TEST(the_end_of_each_flight_is_proven)
{
    for (unsigned flight = 0; flight < 3; flight++) {
        size_t len = count_flight(flight);
        for (size_t at = len - 32; at < len; at++)
            ck_assert_msg(!survives(flight, at, 0x80), "flight %u, byte %zu of %zu", flight, at,
                          len);
    }
}
END_TEST

START_TEST(every_flipped_bit_of_a_record_is_seen)
{
    struct pair pair;
    open_pair(&pair);
    ck_assert_int_eq(say(&pair, true, "secret", 6), DDP_OK);
    size_t len = ddpi_buf_len(&pair.to_server);
    finish(&pair);
    for (size_t at = 0; at < len; at++) {
        open_pair(&pair);
        ck_assert_int_eq(say(&pair, true, "secret", 6), DDP_OK);
        pair.to_server.data[pair.to_server.head + at] ^= 1;
        ddp_status status = talk(&pair, SIZE_MAX);
        /* A longer record is one that is not whole. */
        ck_assert(status != DDP_OK || ddpi_buf_len(&pair.at_server) == 0);
        finish(&pair);
    }
}
END_TEST

START_TEST(no_record_counts_twice_or_out_of_turn)
{
    struct pair pair;
    uint8_t first[100];
    open_pair(&pair);
    ck_assert_int_eq(say(&pair, true, "one", 3), DDP_OK);
    size_t len = ddpi_buf_len(&pair.to_server);
    ck_assert_uint_le(len, sizeof first);
    memcpy(first, ddpi_buf_head(&pair.to_server), len);
    ck_assert_int_eq(talk(&pair, SIZE_MAX), DDP_OK);
    ck_assert(ddpi_buf_append(&pair.to_server, first, len)); /* again */
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_DENIED);
    ck_assert_msg(strstr(err.msg, "integrity check") != NULL, "%s", err.msg);
    ck_assert_uint_eq(ddpi_buf_len(&pair.at_server), 3);
    finish(&pair);
    open_pair(&pair);
    ck_assert_int_eq(say(&pair, true, "one", 3), DDP_OK);
    ddpi_buf_consume(&pair.to_server, ddpi_buf_len(&pair.to_server)); /* dropped */
    ck_assert_int_eq(say(&pair, true, "two", 3), DDP_OK);
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_DENIED);
    finish(&pair);
}
END_TEST

/* What was recorded begins nothing: the server's part is new each time. */
START_TEST(a_recorded_conversation_is_of_no_use)
{
    struct pair recorded, pair;
    begin(&recorded);
    uint8_t hello[1024], rest[1024];
    size_t hello_len = ddpi_buf_len(&recorded.to_server);
    memcpy(hello, ddpi_buf_head(&recorded.to_server), hello_len);
    ck_assert_int_eq(arrive(&recorded, true, SIZE_MAX), DDP_OK);
    ck_assert_int_eq(arrive(&recorded, false, SIZE_MAX), DDP_OK);
    ck_assert_int_eq(say(&recorded, true, "set x", 5), DDP_OK);
    size_t rest_len = ddpi_buf_len(&recorded.to_server);
    memcpy(rest, ddpi_buf_head(&recorded.to_server), rest_len);
    finish(&recorded);
    begin(&pair);
    ddpi_buf_consume(&pair.to_server, ddpi_buf_len(&pair.to_server));
    ck_assert(ddpi_buf_append(&pair.to_server, hello, hello_len));
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_OK);
    ck_assert(ddpi_buf_append(&pair.to_server, rest, rest_len));
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_DENIED);
    ck_assert(!ddpi_tls_is_open(pair.server));
    ck_assert_uint_eq(ddpi_buf_len(&pair.at_server), 0);
    finish(&pair);
}
END_TEST

/* ---- the end ---- */

START_TEST(nobody_between_can_say_that_it_ends)
{
    struct pair pair;
    open_pair(&pair);
    static const uint8_t forged[] = {21, 3, 3, 0, 2, 1, 0}; /* close_notify in clear */
    ck_assert(ddpi_buf_append(&pair.to_server, forged, sizeof forged));
    ck_assert_int_eq(arrive(&pair, true, SIZE_MAX), DDP_E_DENIED);
    finish(&pair);
}
END_TEST

START_TEST(what_does_not_fit_is_no_loss_of_sense)
{
    struct pair pair;
    open_pair(&pair);
    struct ddpi_buf plain, small;
    ddpi_buf_init(&plain, 1000);
    ddpi_buf_init(&small, 10);
    ck_assert(ddpi_buf_append(&plain, "0123456789", 10));
    ck_assert_int_eq(ddpi_tls_put(pair.client, &plain, SIZE_MAX, &small, &err), DDP_E_NOMEM);
    ck_assert_int_eq(ddpi_tls_put(pair.client, &plain, SIZE_MAX, &small, &err), DDP_E_CLOSED);
    ck_assert_int_eq(say(&pair, false, "0123456789ab", 12), DDP_OK);
    ddpi_buf_finish(&pair.at_server);
    finish(&pair);
    ddpi_buf_finish(&plain);
    ddpi_buf_finish(&small);
    ddpi_tls_destroy(NULL);
    ddpi_tls_engine_destroy(NULL);
}
END_TEST

/* ---- without memory ---- */

/* The client says @words, as soon as it can; up to the first call that fails, which is one of
 * *@ret_side. */
static ddp_status converse(struct pair *pair, struct ddpi_buf *words, struct ddpi_tls **ret_side)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK) {
        bool at_server = ddpi_buf_len(&pair->to_server) > 0;
        if (at_server || ddpi_buf_len(&pair->to_client) > 0) {
            *ret_side = at_server ? pair->server : pair->client;
            status = arrive(pair, at_server, 1000);
        } else if (ddpi_buf_len(words) > 0) {
            *ret_side = pair->client;
            status = ddpi_tls_put(pair->client, words, SIZE_MAX, &pair->to_server, &err);
        } else {
            break;
        }
    }
    return status;
}

/* The @successes-th allocation fails, and no other; false: there are not so many. */
static bool fails_at(unsigned successes)
{
    struct ddpi_tls_engine *own = NULL;
    struct pair pair = {.keys = {.key = key_of("a", 7)}};
    struct ddpi_tls *side = NULL;
    static const uint8_t many[DDPI_TLS_RECORD_MAX + 1000];
    struct ddpi_buf words;
    ddpi_buf_init(&words, sizeof many);
    ck_assert(ddpi_buf_append(&words, many, sizeof many));
    ddpi_buf_init(&pair.to_server, WIRE_MAX);
    ddpi_buf_init(&pair.to_client, WIRE_MAX);
    ddpi_buf_init(&pair.at_server, WIRE_MAX);
    ddpi_buf_init(&pair.at_client, WIRE_MAX);
    failmem_start_some(successes, 1);
    ddp_status status = ddpi_tls_engine_create(&own, &err);
    if (status == DDP_OK)
        status = ddpi_tls_connect(own, &pair.keys.key, &pair.client, &err);
    if (status == DDP_OK)
        status = ddpi_tls_accept(own, find, &pair.keys, &pair.server, &err);
    if (status == DDP_OK)
        status = converse(&pair, &words, &side);
    bool failed = failmem_stop();
    ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
    ck_assert(!failed || strstr(err.msg, "memory") != NULL);
    if (failed && side != NULL) /* a part of what was said is lost: nothing may follow it */
        ck_assert_int_eq(ddpi_tls_take(side, "", 0, &pair.at_server, &pair.to_client, &err),
                         DDP_E_CLOSED);
    ck_assert(failed || ddpi_buf_len(&pair.at_server) == sizeof many);
    ddpi_buf_finish(&words);
    finish(&pair);
    ddpi_tls_engine_destroy(own);
    return failed;
}

START_TEST(whichever_allocation_fails)
{
    unsigned count = 0;
    while (fails_at(count))
        count++;
    ck_assert_uint_gt(count, 8); /* the engine, both sides, and what they say */
}
END_TEST

/* ---- certificates ---- */

START_TEST(a_certificate_depends_on_its_arguments_alone)
{
    static const char *const hosts[] = {"node1", "10.0.0.2", "fe80::1"}, *const others[] = {
                                                                             "node2"};
    static const uint8_t secret[DDPI_TLS_KEY_SIZE] = {1}, foreign[DDPI_TLS_KEY_SIZE] = {2};
    struct ddpi_certificate one, again, other;
    ck_assert_int_eq(ddpi_certificate_make(secret, hosts, 3, &one, &err), DDP_OK);
    ck_assert_int_eq(ddpi_certificate_make(secret, hosts, 3, &again, &err), DDP_OK);
    ck_assert_str_eq(one.certificate, again.certificate);
    ck_assert_str_eq(one.key, again.key);
    ck_assert_ptr_nonnull(strstr(one.certificate, "-----BEGIN CERTIFICATE-----"));
    ck_assert_ptr_nonnull(strstr(one.key, "-----BEGIN PRIVATE KEY-----"));
    ck_assert_int_eq(ddpi_certificate_make(foreign, hosts, 3, &other, &err), DDP_OK);
    ck_assert_str_ne(one.certificate, other.certificate);
    ck_assert_str_ne(one.key, other.key);
    ck_assert_int_eq(ddpi_certificate_make(secret, others, 1, &other, &err), DDP_OK);
    ck_assert_str_ne(one.certificate, other.certificate);
    ck_assert_str_eq(one.key, other.key);
}
END_TEST

START_TEST(what_is_no_host_gets_no_certificate)
{
    static const char *const bad[] = {"", "a,DNS:b", "a b", "a\n", "1.2.3", "::x"};
    static const uint8_t secret[DDPI_TLS_KEY_SIZE] = {1};
    struct ddpi_certificate made;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(ddpi_certificate_make(secret, &bad[i], 1, &made, &err) == DDP_E_INVALID, "%s",
                      bad[i]);
}
END_TEST

/* ---- who does not ask for it ---- */

static int find_ssl(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void)size;
    *(bool *)ctx |=
        strstr(info->dlpi_name, "libssl") != NULL || strstr(info->dlpi_name, "libcrypto") != NULL;
    return 0;
}

START_TEST(it_is_loaded_by_who_asks_for_it)
{
    bool before = false, after = false;
    dl_iterate_phdr(find_ssl, &before);
    setup();
    dl_iterate_phdr(find_ssl, &after);
    teardown();
    ck_assert(!before && after);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tls");
    TCase *loading = tcase_create("loading"); /* before the others, where tests share a process */
    tcase_add_test(loading, it_is_loaded_by_who_asks_for_it);
    suite_add_tcase(suite, loading);
    TCase *works = tcase_create("works");
    tcase_add_checked_fixture(works, setup, teardown);
    tcase_add_loop_test(works, handshake_in_pieces_of_any_size, 1, 300);
    ADD_TESTS(works, large_ones_arrive_whole_and_secret, what_is_to_be_sealed_at_once_is_bounded,
              nothing_is_said_before_it_is_open);
    suite_add_tcase(suite, works);
    TCase *refused = tcase_create("refused");
    tcase_add_checked_fixture(refused, setup, teardown);
    ADD_TESTS(refused, another_key_is_refused, an_unknown_identity_is_refused,
              who_does_not_take_tls_says_so);
    tcase_add_loop_test(refused, another_protocol_is_called_that, 0, 3);
    ADD_TESTS(refused, an_endless_handshake_ends, every_byte_of_the_greeting_is_proven,
              the_end_of_each_flight_is_proven, every_flipped_bit_of_a_record_is_seen,
              no_record_counts_twice_or_out_of_turn, a_recorded_conversation_is_of_no_use);
    suite_add_tcase(suite, refused);
    TCase *ends = tcase_create("ends");
    tcase_add_checked_fixture(ends, setup, teardown);
    tcase_add_test(ends, nobody_between_can_say_that_it_ends);
    tcase_add_test(ends, what_does_not_fit_is_no_loss_of_sense);
    suite_add_tcase(suite, ends);
    TCase *certificates = tcase_create("certificates");
    ADD_TESTS(certificates, a_certificate_depends_on_its_arguments_alone,
              what_is_no_host_gets_no_certificate);
    suite_add_tcase(suite, certificates);
    TCase *memory = tcase_create("memory");
    tcase_add_test(memory, whichever_allocation_fails);
    suite_add_tcase(suite, memory);
    return suite;
}
