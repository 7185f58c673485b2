/*
 * test_dialect_tcpstore.c - the dialect of PyTorch's clients, on the core: captured exchanges cut
 * in every way, every truncation, every limit and limit + 1, malformed input.
 */
#include "check_main.h"
#include "sample.h"
#include "tcpstore_peer.h"

#include <ddprun/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- captured exchanges ---- */

enum row_kind {
    SECTION_ROW,
    OPEN_ROW,
    SENDS_ROW,
    GETS_ROW,
    GETS_ANY_ROW,
    QUIET_ROW,
    CLOSES_ROW,
    CLOSED_ROW
};

struct row {
    enum row_kind kind;
    char peer;
    const char *hex;
};

static const struct row rows[] = {
#define SECTION(name) {SECTION_ROW, 0, name},
#define CALL(text)
#define OPEN(p)          {OPEN_ROW, #p[0], NULL},
#define SENDS(p, hex)    {SENDS_ROW, #p[0], hex},
#define GETS(p, hex)     {GETS_ROW, #p[0], hex},
#define GETS_ANY(p, hex) {GETS_ANY_ROW, #p[0], hex},
#define QUIET(p)         {QUIET_ROW, #p[0], NULL},
#define CLOSES(p)        {CLOSES_ROW, #p[0], NULL},
#define CLOSED(p)        {CLOSED_ROW, #p[0], NULL},
#include "tcpstore_exchanges.def"
};

enum { ROWS = sizeof rows / sizeof *rows, SECTIONS = 7, BYTE_BY_BYTE = -1 };

static size_t unhex(const char *hex, uint8_t *bytes, size_t size)
{
    static const char digits[] = "0123456789abcdef";
    size_t len = strlen(hex) / 2;
    ck_assert_uint_le(len, size);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((strchr(digits, hex[2 * i]) - digits) * 16 +
                             (strchr(digits, hex[2 * i + 1]) - digits));
    return len;
}

/* The first bytes of what it got; or, in any order, as many bytes with the same sum. */
static void assert_gets(struct peer *peer, const char *hex, bool any_order)
{
    uint8_t wanted[1024];
    size_t len = unhex(hex, wanted, sizeof wanted);
    ck_assert_uint_ge(ddpi_buf_len(&peer->out), len);
    const uint8_t *got = ddpi_buf_head(&peer->out);
    unsigned sums[2] = {0};
    for (size_t i = 0; i < len; i++) {
        sums[0] += wanted[i];
        sums[1] += got[i];
    }
    ck_assert_msg(any_order ? sums[0] == sums[1] : memcmp(got, wanted, len) == 0, "%s", hex);
    ddpi_buf_consume(&peer->out, len);
}

static void send_cut(struct peer *peer, const char *hex, int cut)
{
    uint8_t bytes[1024];
    size_t len = unhex(hex, bytes, sizeof bytes);
    if (cut == BYTE_BY_BYTE) {
        for (size_t i = 0; i < len; i++)
            peer_feed(peer, bytes + i, 1);
        return;
    }
    peer_feed(peer, bytes, (size_t)cut);
    peer_feed(peer, bytes + cut, len - (size_t)cut);
}

/* The section that begins at row @first; message number @cut_row is cut in two. */
static void play(size_t first, size_t cut_row, int cut)
{
    peers_setup();
    for (size_t i = first + 1; i < ROWS && rows[i].kind != SECTION_ROW; i++) {
        struct peer *peer = &peers[rows[i].peer - 'A'];
        switch (rows[i].kind) {
        case SENDS_ROW:
            send_cut(peer, rows[i].hex, cut == BYTE_BY_BYTE ? cut : i == cut_row ? cut : 0);
            break;
        case GETS_ROW:
        case GETS_ANY_ROW:
            assert_gets(peer, rows[i].hex, rows[i].kind == GETS_ANY_ROW);
            break;
        case QUIET_ROW:
            ck_assert_uint_eq(ddpi_buf_len(&peer->out), 0);
            break;
        case CLOSES_ROW:
            peer_close(peer);
            break;
        case CLOSED_ROW:
            ck_assert(peer->closed);
            break;
        default:
            ck_assert(!peer->closed);
        }
    }
    for (int i = 0; i < PEERS; i++)
        ck_assert_uint_eq(ddpi_buf_len(&peers[i].out), 0);
}

static size_t section(int number)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == SECTION_ROW && number-- == 0)
            return i;
    ck_abort_msg("no such section");
}

START_TEST(exchanges)
{
    size_t first = section(_i);
    play(first, 0, 0);
    play(first, 0, BYTE_BY_BYTE);
}
END_TEST

START_TEST(exchanges_cut_anywhere)
{
    size_t first = section(_i);
    for (size_t i = first + 1; i < ROWS && rows[i].kind != SECTION_ROW; i++)
        for (int cut = 1; rows[i].kind == SENDS_ROW && cut < (int)strlen(rows[i].hex) / 2;
             cut += sample_stride())
            play(first, i, cut);
}
END_TEST

/* ---- one request at a time ---- */

/* A request of each type, built as by request(). */
static struct ddpi_buf *sample(uint8_t type)
{
    struct ddpi_buf *bytes = request(type);
    switch (type) {
    case DDPI_TCPSTORE_CHECK:
    case DDPI_TCPSTORE_WAIT:
    case DDPI_TCPSTORE_MULTI_GET:
        request_u64(3);
        request_string("k");
        request_string("");
        request_string("another");
        break;
    case DDPI_TCPSTORE_MULTI_SET:
        request_u64(2);
        request_string("k");
        request_string("value");
        request_string("l");
        request_string("");
        break;
    case DDPI_TCPSTORE_VALIDATE:
    case DDPI_TCPSTORE_PING:
        ck_assert(ddpi_buf_append(bytes, "abcd", 4));
        break;
    case DDPI_TCPSTORE_GETNUMKEYS:
    case DDPI_TCPSTORE_CANCEL_WAIT:
    case DDPI_TCPSTORE_LIST_KEYS:
        break;
    default:
        request_string("k");
        if (type == DDPI_TCPSTORE_COMPARE_SET)
            request_string("");
        if (type == DDPI_TCPSTORE_SET || type == DDPI_TCPSTORE_COMPARE_SET ||
            type == DDPI_TCPSTORE_APPEND || type == DDPI_TCPSTORE_QUEUE_PUSH)
            request_string("value");
        if (type == DDPI_TCPSTORE_ADD || type == DDPI_TCPSTORE_BARRIER)
            request_u64(1);
    }
    return bytes;
}

START_TEST(half_a_request_does_nothing)
{
    const struct ddpi_buf *whole = sample((uint8_t)_i);
    size_t len = ddpi_buf_len(whole);
    uint8_t *bytes = malloc(len);
    memcpy(bytes, ddpi_buf_head(whole), len);
    for (size_t cut = 1; cut < len; cut++) {
        peers_setup();
        struct peer *peer = peer_open(0);
        peer_feed(peer, bytes, cut);
        ck_assert(!peer->closed);
        ck_assert_uint_le(peer->need, len); /* it never asks for more than there is */
        struct ddpi_kv_stats stats = ddpi_kv_stats(kv);
        ck_assert_uint_eq(stats.version, 0);
        ck_assert_uint_eq(stats.bytes, 0);
        peer_got(peer, "", 0);
    }
    free(bytes);
}
END_TEST

START_TEST(who_does_not_validate_is_closed)
{
    for (unsigned at = 0; at < DDPI_TCPSTORE_HELLO_SIZE; at++) {
        peers_setup();
        uint8_t hello[DDPI_TCPSTORE_HELLO_SIZE];
        memcpy(hello, DDPI_TCPSTORE_HELLO, sizeof hello);
        hello[at] ^= 0x10;
        peer_feed(&peers[0], hello, at);
        ck_assert(!peers[0].closed);
        peer_feed(&peers[0], hello + at, 1); /* at the first byte that is wrong */
        ck_assert(peers[0].closed);
        ck_assert_int_eq(peers[0].status, DDP_E_PROTOCOL);
    }
    peers_setup();
    for (uint8_t type = 1; type < DDPI_TCPSTORE_TYPES; type++) {
        sample(type);
        if (type < PEERS) {
            request_send(&peers[type]);
            ck_assert(peers[type].closed);
        }
    }
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, 0);
}
END_TEST

START_TEST(unknown_operations_close)
{
    for (int type = DDPI_TCPSTORE_TYPES; type < 256; type++) {
        peers_setup();
        struct peer *peer = peer_open(0);
        request((uint8_t)type);
        request_send(peer);
        ck_assert(peer->closed);
        ck_assert_int_eq(peer->status, DDP_E_PROTOCOL);
    }
    struct peer *peer = peer_open(1);
    peer_feed(peer, DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE); /* nor a second VALIDATE */
    ck_assert(peer->closed);
}
END_TEST

/* ---- limits ---- */

static const struct ddpi_kv_limits small = {
    .room = {[KV_ROOM_KEYS] = 100, [KV_ROOM_BYTES] = 100000},
    .of_job = {[KV_ROOM_KEYS] = 100, [KV_ROOM_BYTES] = 100000},
    .waits_per_client = 2,
    .tcpstore_key_len = 8,
    .tcpstore_value_len = 20,
    .tcpstore_many = 3};

/* @number where the type has a length or a count first: is that refused at once? */
static bool refused(uint8_t type, const char *strings_before, uint64_t number)
{
    peers_make(&small);
    struct peer *peer = peer_open(0);
    request(type);
    for (const char *s = strings_before; *s != '\0'; s++)
        request_bytes(s, 1);
    request_u64(number);
    request_send(peer);
    ck_assert(!peer->closed || peer->status == DDP_E_LIMIT);
    ck_assert(!peer->closed || peer->why.msg[0] != '\0');
    return peer->closed;
}

START_TEST(lengths_and_counts_are_limited)
{
    static const struct {
        uint8_t type;
        const char *before;
        uint64_t max;
    } cases[] = {
        {DDPI_TCPSTORE_SET, "", 8},
        {DDPI_TCPSTORE_SET, "k", 20},
        {DDPI_TCPSTORE_COMPARE_SET, "", 8},
        {DDPI_TCPSTORE_COMPARE_SET, "k", 20},
        {DDPI_TCPSTORE_COMPARE_SET, "ke", 20},
        {DDPI_TCPSTORE_GET, "", 8},
        {DDPI_TCPSTORE_ADD, "", 8},
        {DDPI_TCPSTORE_CHECK, "", 3},
        {DDPI_TCPSTORE_WAIT, "", 3},
        {DDPI_TCPSTORE_DELETE_KEY, "", 8},
        {DDPI_TCPSTORE_APPEND, "", 8},
        {DDPI_TCPSTORE_APPEND, "k", 20},
        {DDPI_TCPSTORE_MULTI_GET, "", 3},
        {DDPI_TCPSTORE_MULTI_SET, "", 3},
        {DDPI_TCPSTORE_QUEUE_PUSH, "", 8},
        {DDPI_TCPSTORE_QUEUE_PUSH, "k", 20},
        {DDPI_TCPSTORE_QUEUE_POP, "", 8},
        {DDPI_TCPSTORE_QUEUE_LEN, "", 8},
        {DDPI_TCPSTORE_BARRIER, "", 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t above[] = {cases[i].max + 1, UINT64_C(1) << 32, UINT64_C(1) << 60,
                                  UINT64_MAX - 7, UINT64_MAX};
        ck_assert(!refused(cases[i].type, cases[i].before, cases[i].max));
        for (size_t k = 0; k < sizeof above / sizeof *above; k++)
            ck_assert(refused(cases[i].type, cases[i].before, above[k]));
    }
}
END_TEST

START_TEST(strings_in_lists_are_limited)
{
    for (unsigned over = 0; over < 2; over++)
        for (unsigned at = 0; at < 6; at++) { /* three pairs, one string of which is longest */
            peers_make(&small);
            struct peer *peer = peer_open(0);
            request(DDPI_TCPSTORE_MULTI_SET);
            request_u64(3);
            char string[32] = "abcdefghijklmnopqrstuvwxyz";
            for (unsigned i = 0; i < 6; i++) {
                string[0] = (char)('a' + i);
                request_bytes(string, i != at ? 1 : (i % 2 == 0 ? 8u : 20u) + over);
            }
            request_send(peer);
            ck_assert_int_eq(peer->closed, over == 1);
            ck_assert_uint_eq(ddpi_kv_stats(kv).keys, over == 1 ? 0 : 3);
        }
}
END_TEST

START_TEST(a_request_as_a_whole_is_limited)
{
    peers_setup();
    enum { PART = 8 * 1024 * 1024, PARTS = 8 };
    char *value = calloc(PART, 1);
    struct peer *peer = peer_open(0);
    request(DDPI_TCPSTORE_MULTI_SET);
    request_u64(PARTS);
    for (int i = 0; i < PARTS - 1; i++) {
        char key[] = {(char)('a' + i), '\0'};
        request_string(key);
        request_bytes(value, PART);
    }
    request_string("h");
    request_u64(PART);
    request_send(peer);
    ck_assert(peer->closed);
    ck_assert_int_eq(peer->status, DDP_E_LIMIT);
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, 0);
    free(value);
}
END_TEST

START_TEST(a_full_store_closes_who_fills_it)
{
    peers_make(&small);
    char key[4] = "a";
    for (int i = 0; i < 100; i++) {
        request(DDPI_TCPSTORE_SET);
        snprintf(key, sizeof key, "%d", i);
        request_string(key);
        request_string("v");
        request_send(i == 0 ? peer_open(0) : &peers[0]);
    }
    request(DDPI_TCPSTORE_SET);
    request_string("0");
    request_string("another");
    request_send(&peers[0]);
    ck_assert(!peers[0].closed);
    static const uint8_t fillers[] = {DDPI_TCPSTORE_SET,       DDPI_TCPSTORE_COMPARE_SET,
                                      DDPI_TCPSTORE_ADD,       DDPI_TCPSTORE_APPEND,
                                      DDPI_TCPSTORE_MULTI_SET, DDPI_TCPSTORE_BARRIER};
    for (size_t i = 0; i < sizeof fillers; i++) {
        struct peer *peer = peer_open((int)i + 1);
        sample(fillers[i]);
        request_send(peer);
        ck_assert(peer->closed);
        ck_assert_int_eq(peer->status, DDP_E_LIMIT);
    }
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 100);
    request(DDPI_TCPSTORE_GETNUMKEYS);
    request_send(&peers[0]);
    peer_got_number(&peers[0], 100);
}
END_TEST

START_TEST(replies_are_bounded)
{
    struct peer *peer = peer_open(0);
    char value[1000] = {0};
    request(DDPI_TCPSTORE_SET);
    request_string("k");
    request_bytes(value, sizeof value);
    request_send(peer);
    peer->out.limit = 2500;
    request(DDPI_TCPSTORE_MULTI_GET);
    request_u64(3);
    request_string("k");
    request_string("k");
    request_string("k");
    request_send(peer);
    ck_assert(peer->overflow);
    ck_assert_uint_eq(ddpi_buf_len(&peer->out), 2016);
    static const uint8_t others[] = {DDPI_TCPSTORE_GET, DDPI_TCPSTORE_LIST_KEYS,
                                     DDPI_TCPSTORE_QUEUE_POP, DDPI_TCPSTORE_GETNUMKEYS};
    for (size_t i = 0; i < sizeof others; i++) {
        peer = peer_open((int)i + 1);
        sample(DDPI_TCPSTORE_QUEUE_PUSH);
        request_send(peer);
        peer->out.limit = 7;
        sample(others[i]);
        request_send(peer);
        ck_assert(peer->overflow);
        peer_got(peer, "", 0); /* the whole or nothing */
    }
    peer = peer_open(9);
    peer->out.limit = 3;
    sample(DDPI_TCPSTORE_PING);
    request_send(peer);
    ck_assert(peer->closed);
    ck_assert_int_eq(peer->status, DDP_E_NOMEM);
}
END_TEST

START_TEST(many_keys_in_many_pieces)
{
    enum { MANY = 128 * 1024, SEGMENT = 1440 };
    struct peer *peer = &peers[0], *waiting = &peers[1];
    peer_open(0);
    peer_open(1);
    struct ddpi_buf *bytes = request(DDPI_TCPSTORE_WAIT);
    request_u64(MANY);
    char key[16];
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "/%d", i);
        request_string(key);
    }
    request_send(waiting);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    request(DDPI_TCPSTORE_MULTI_SET);
    request_u64(MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(key, sizeof key, "/%d", i);
        request_string(key);
        request_string(key);
    }
    size_t len = ddpi_buf_len(bytes);
    uint8_t *copy = malloc(len);
    memcpy(copy, ddpi_buf_head(bytes), len);
    /* As a connection would: the rest of a request is read in pieces of what it needs. */
    for (size_t at = 0; at < len;) {
        ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 0);
        size_t piece = peer->need > at + SEGMENT ? peer->need - at : SEGMENT;
        piece = piece < len - at ? piece : len - at;
        peer_feed(peer, copy + at, piece);
        at += piece;
    }
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, MANY);
    peer_got(waiting, "\0", 1);
    free(copy);
}
END_TEST

/* ---- the scope ---- */

static void set_key(struct peer *peer, const char *key)
{
    request(DDPI_TCPSTORE_SET);
    request_string(key);
    request_string("v");
    request_send(peer);
}

static void assert_num_keys(struct peer *peer, uint64_t wanted)
{
    request(DDPI_TCPSTORE_GETNUMKEYS);
    request_send(peer);
    peer_got_number(peer, wanted);
}

static void native(struct ddpi_message message)
{
    struct peer *peer = &peers[PEERS - 1];
    struct ddpi_kv_scope *scope = peer->client.scope;
    peer->client.scope = NULL;
    peer->client.tcpstore = false;
    ddpi_kv_apply(kv, &peer->client, &message, 0);
    peer->client.scope = scope;
    ddpi_buf_consume(&peer->out, ddpi_buf_len(&peer->out));
    peer->closed = false;
}

START_TEST(clients_see_their_scope_only)
{
    struct peer *peer = peer_open(0);
    native((struct ddpi_message){.op = DDPI_OP_SET, .key = {"elsewhere", 9}});
    native((struct ddpi_message){.op = DDPI_OP_SET, .key = {"t", 1}});
    assert_num_keys(peer, 0);
    set_key(peer, "/k");
    native((struct ddpi_message){.op = DDPI_OP_SET, .key = {"t/x", 3}, .value = {"v", 1}});
    assert_num_keys(peer, 2);
    request(DDPI_TCPSTORE_GET);
    request_string("x");
    request_send(peer);
    peer_got(peer, "\1\0\0\0\0\0\0\0v", 9);
    request(DDPI_TCPSTORE_GET);
    request_string("elsewhere");
    request_send(peer);
    peer_got(peer, "\0\0\0\0\0\0\0\0", 8);
    request(DDPI_TCPSTORE_LIST_KEYS);
    request_send(peer);
    peer_got(peer, "\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0/k\1\0\0\0\0\0\0\0x", 27);
    native((struct ddpi_message){.op = DDPI_OP_DELETE, .key = {"t/x", 3}});
    assert_num_keys(peer, 1);

    peer_close(peer);
    peers_scope("t/2/");
    peer = peer_open(1);
    assert_num_keys(peer, 0);
    native((struct ddpi_message){.op = DDPI_OP_SET, .key = {"t/3/k", 5}});
    peer_close(peer);
    peers_scope("t/");
    peer = peer_open(2);
    assert_num_keys(peer, 2);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, ddpi_bytes_of("t/", 2)), 2);
    assert_num_keys(peer, 0);
}
END_TEST

START_TEST(an_empty_scope_is_everything)
{
    peers_scope("");
    struct peer *peer = peer_open(0);
    native((struct ddpi_message){.op = DDPI_OP_SET, .key = {"elsewhere", 9}});
    set_key(peer, "");
    assert_num_keys(peer, 2);
}
END_TEST

START_TEST(one_wait_at_a_time)
{
    struct peer *a = peer_open(0), *b = peer_open(1);
    for (int i = 0; i < 3; i++) {
        request(DDPI_TCPSTORE_WAIT);
        request_u64(1);
        request_string(i == 2 ? "last" : "first");
        request_send(a);
    }
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set_key(b, "first");
    peer_got(a, "", 0);
    assert_num_keys(a, 1); /* other requests are answered meanwhile */
    set_key(b, "last");
    peer_got(a, "\0", 1);
    for (int i = 0; i < 2; i++) { /* one answer each, whether there is a wait or not */
        sample(DDPI_TCPSTORE_WAIT);
        request_send(a);
        sample(DDPI_TCPSTORE_CANCEL_WAIT);
        request_send(a);
        peer_got(a, "\1", 1);
        request_send(a);
        peer_got(a, "\1", 1);
    }
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tcpstore");
    TCase *tcase = tcase_create("codec");
    tcase_add_checked_fixture(tcase, peers_setup, peers_teardown);
    tcase_add_loop_test(tcase, exchanges, 0, SECTIONS);
    tcase_add_loop_test(tcase, exchanges_cut_anywhere, 0, SECTIONS);
    tcase_add_loop_test(tcase, half_a_request_does_nothing, 1, DDPI_TCPSTORE_TYPES);
    ADD_TESTS(tcase, who_does_not_validate_is_closed, unknown_operations_close,
              lengths_and_counts_are_limited, strings_in_lists_are_limited,
              a_request_as_a_whole_is_limited, a_full_store_closes_who_fills_it,
              replies_are_bounded, many_keys_in_many_pieces, clients_see_their_scope_only,
              an_empty_scope_is_everything, one_wait_at_a_time);
    suite_add_tcase(suite, tcase);
    return suite;
}
