/*
 * test_proto.c - the native codec: round trips, every truncation, every limit and limit + 1.
 */
#include "check_main.h"
#include "proto.h"

#include <ddprun/store.h>
#include <stdlib.h>
#include <string.h>

enum { BIG = 80 * 1024 * 1024 };

static struct ddpi_buf wire;
static struct ddpi_buf packed;
static struct ddpi_buf clauses;

static void setup(void)
{
    ddpi_buf_init(&wire, BIG);
    ddpi_buf_init(&packed, BIG);
    ddpi_buf_init(&clauses, BIG);
}

static void teardown(void)
{
    ddpi_buf_finish(&wire);
    ddpi_buf_finish(&packed);
    ddpi_buf_finish(&clauses);
}

static struct ddpi_bytes text_of(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

static void put_key(const char *key)
{
    ck_assert(ddpi_keys_put(&packed, text_of(key)));
}

static void put_clause(struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct ddpi_clause clause = {
        .kind = 250, .version = UINT64_MAX - 2, .key = key, .value = value};
    ck_assert(ddpi_clauses_put(&clauses, &clause));
}

static struct ddpi_clauses clauses_of(uint32_t count)
{
    return (struct ddpi_clauses){ddpi_buf_head(&clauses), ddpi_buf_len(&clauses), count};
}

/* Every member set, so that one which crosses the wire by mistake or not at all is seen. */
static struct ddpi_message sample(enum ddpi_op op)
{
    put_key("a");
    put_key("");
    put_key("key three");
    put_clause(text_of("x"), text_of("value"));
    put_clause(text_of(""), text_of(""));
    return (struct ddpi_message){
        .op = op,
        .id = UINT64_C(0x1122334455667788),
        .key = text_of("the key"),
        .keys = {ddpi_buf_head(&packed), ddpi_buf_len(&packed), 3, false},
        .value = ddpi_bytes_of("va\0lue", 6),
        .version = UINT64_MAX - 1,
        .number = INT64_MIN,
        .count = UINT32_MAX,
        .timeout_ms = 123456789,
        .text = text_of("why it failed"),
        .clauses = clauses_of(2),
        .session = text_of("a token of some length"),
    };
}

static void assert_bytes(struct ddpi_bytes got, struct ddpi_bytes wanted, bool there)
{
    ck_assert_uint_eq(got.len, there ? wanted.len : 0);
    ck_assert(!there || memcmp(got.data, wanted.data, wanted.len) == 0);
}

static void assert_fields(const struct ddpi_message *got, const struct ddpi_message *wanted,
                          unsigned fields)
{
    ck_assert_uint_eq(got->id, wanted->id);
    ck_assert_int_eq(got->op, wanted->op);
    ck_assert_int_eq(got->status, wanted->status);
    assert_bytes(got->key, wanted->key, fields & DDPI_KEY);
    assert_bytes(got->value, wanted->value, fields & DDPI_VALUE);
    assert_bytes(got->text, wanted->text, fields & DDPI_TEXT);
    assert_bytes(ddpi_bytes_of(got->keys.packed, got->keys.packed_len),
                 ddpi_bytes_of(wanted->keys.packed, wanted->keys.packed_len), fields & DDPI_KEYS);
    ck_assert_uint_eq(got->keys.count, fields & DDPI_KEYS ? wanted->keys.count : 0);
    assert_bytes(ddpi_bytes_of(got->clauses.packed, got->clauses.packed_len),
                 ddpi_bytes_of(wanted->clauses.packed, wanted->clauses.packed_len),
                 fields & DDPI_CLAUSES);
    assert_bytes(got->session, wanted->session, fields & DDPI_SESSION);
    ck_assert_uint_eq(got->clauses.count, fields & DDPI_CLAUSES ? wanted->clauses.count : 0);
    ck_assert_uint_eq(got->version, fields & DDPI_VERSION ? wanted->version : 0);
    ck_assert_int_eq(got->number, fields & DDPI_NUMBER ? wanted->number : 0);
    ck_assert_uint_eq(got->count, fields & DDPI_COUNT ? wanted->count : 0);
    ck_assert_uint_eq(got->timeout_ms, fields & DDPI_TIMEOUT ? wanted->timeout_ms : 0);
}

static const struct {
    unsigned request, reply;
} rows[] = {
#define DDPI_MESSAGE(symbol, type, name, role, request, reply) {request, reply},
#include "proto.def"
#undef DDPI_MESSAGE
};

typedef ddp_status get_fn(const struct ddpi_frame *frame, const void *payload,
                          struct ddpi_message *ret, struct ddp_error *err);

/* What @wire holds comes back whole, and every cut of its payload is refused. The payload is
 * copied to the heap in its exact size, where a sanitizer sees a read behind its end. */
static void round_trip(get_fn *get, const struct ddpi_message *wanted, unsigned fields)
{
    struct ddpi_frame frame;
    ck_assert(ddpi_frame_get(ddpi_buf_head(&wire), &frame));
    ck_assert_uint_eq(ddpi_buf_len(&wire), DDPI_FRAME_HEADER_SIZE + frame.payload_len);
    uint32_t whole = frame.payload_len;
    for (uint32_t len = 0; len <= whole; len++) {
        uint8_t *payload = malloc(len > 0 ? len : 1);
        memcpy(payload, ddpi_buf_head(&wire) + DDPI_FRAME_HEADER_SIZE, len);
        struct ddpi_message got = {.id = 77};
        frame.payload_len = len;
        ddp_status status = get(&frame, payload, &got, NULL);
        ck_assert_int_eq(status, len == whole ? DDP_OK : DDP_E_PROTOCOL);
        if (status == DDP_OK)
            assert_fields(&got, wanted, fields);
        else
            ck_assert_uint_eq(got.id, 77);
        free(payload);
    }
    /* One byte too many is as wrong as one too few. */
    ck_assert(ddpi_buf_put_u8(&wire, 0));
    frame.payload_len = whole + 1;
    struct ddpi_message got;
    ck_assert_int_eq(get(&frame, ddpi_buf_head(&wire) + DDPI_FRAME_HEADER_SIZE, &got, NULL),
                     DDP_E_PROTOCOL);
}

START_TEST(requests_round_trip)
{
    struct ddpi_message request = sample((enum ddpi_op)_i);
    ck_assert(ddpi_request_put(&wire, &request));
    ck_assert_uint_le(ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE, ddpi_request_max(request.op));
    round_trip(ddpi_request_get, &request, rows[_i].request);
}
END_TEST

START_TEST(replies_round_trip)
{
    struct ddpi_message reply = sample((enum ddpi_op)_i);
    ck_assert(ddpi_reply_put(&wire, &reply));
    ck_assert_uint_le(ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE, ddpi_reply_max(reply.op));
    round_trip(ddpi_reply_get, &reply, rows[_i].reply);
}
END_TEST

START_TEST(failed_replies_round_trip)
{
    struct ddpi_message reply = sample((enum ddpi_op)_i);
    reply.status = DDP_E_CONFLICT;
    ck_assert(ddpi_reply_put(&wire, &reply));
    round_trip(ddpi_reply_get, &reply, DDPI_VERSION | DDPI_TEXT);
}
END_TEST

START_TEST(negative_statuses_cross)
{
    struct ddpi_message reply = {.op = DDPI_OP_SET, .status = DDP_E_NOMEM, .text = {"", 0}};
    ck_assert(ddpi_reply_put(&wire, &reply));
    struct ddpi_frame frame;
    ck_assert(ddpi_frame_get(ddpi_buf_head(&wire), &frame));
    ck_assert_int_eq(frame.status, DDP_E_NOMEM);
}
END_TEST

static ddp_status decode(void)
{
    struct ddpi_frame frame;
    struct ddpi_message got;
    ck_assert(ddpi_frame_get(ddpi_buf_head(&wire), &frame));
    ddp_status status =
        ddpi_request_get(&frame, ddpi_buf_head(&wire) + DDPI_FRAME_HEADER_SIZE, &got, NULL);
    ddpi_buf_consume(&wire, ddpi_buf_len(&wire));
    return status;
}

START_TEST(limits_hold_to_the_byte)
{
    char *bytes = calloc(DDP_STORE_VALUE_MAX + 1, 1);
    for (size_t more = 0; more <= 1; more++) {
        ddp_status wanted = more == 0 ? DDP_OK : DDP_E_LIMIT;
        struct ddpi_message m = {.op = DDPI_OP_GET, .key = {bytes, DDP_STORE_KEY_MAX + more}};
        ck_assert(ddpi_request_put(&wire, &m));
        ck_assert_uint_eq(ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE,
                          ddpi_request_max(DDPI_OP_GET) + more);
        ck_assert_int_eq(decode(), wanted);

        m = (struct ddpi_message){
            .op = DDPI_OP_SET, .key = {"k", 1}, .value = {bytes, DDP_STORE_VALUE_MAX + more}};
        ck_assert(ddpi_request_put(&wire, &m));
        ck_assert_int_eq(decode(), wanted);

        ddpi_buf_consume(&packed, ddpi_buf_len(&packed));
        for (size_t i = 0; i < DDP_STORE_MANY_MAX + more; i++)
            put_key("k");
        m = (struct ddpi_message){.op = DDPI_OP_WAIT,
                                  .keys = {ddpi_buf_head(&packed), ddpi_buf_len(&packed),
                                           (uint32_t)(DDP_STORE_MANY_MAX + more), false}};
        ck_assert(ddpi_request_put(&wire, &m));
        ck_assert_int_eq(decode(), wanted);

        ddpi_buf_consume(&packed, ddpi_buf_len(&packed));
        ck_assert(ddpi_keys_put(&packed, ddpi_bytes_of(bytes, DDP_STORE_KEY_MAX + more)));
        m.keys = (struct ddpi_keys){ddpi_buf_head(&packed), ddpi_buf_len(&packed), 1, false};
        ck_assert(ddpi_request_put(&wire, &m));
        ck_assert_int_eq(decode(), wanted);
    }
    free(bytes);
}
END_TEST

static ddp_status transact(uint32_t count)
{
    struct ddpi_message m = {.op = DDPI_OP_TRANSACT, .clauses = clauses_of(count)};
    ck_assert(ddpi_request_put(&wire, &m));
    ck_assert_uint_le(ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE,
                      ddpi_request_max(DDPI_OP_TRANSACT) + 1000);
    ddpi_buf_consume(&clauses, ddpi_buf_len(&clauses));
    return decode();
}

START_TEST(limits_of_transactions)
{
    char *bytes = calloc(DDP_STORE_VALUE_MAX + 1, 1);
    for (size_t more = 0; more <= 1; more++) {
        ddp_status wanted = more == 0 ? DDP_OK : DDP_E_LIMIT;
        for (size_t i = 0; i < DDP_STORE_CLAUSES_MAX + more; i++)
            put_clause(text_of("k"), text_of(""));
        ck_assert_int_eq(transact((uint32_t)(DDP_STORE_CLAUSES_MAX + more)), wanted);
        put_clause(ddpi_bytes_of(bytes, DDP_STORE_KEY_MAX + more), text_of(""));
        ck_assert_int_eq(transact(1), wanted);
        put_clause(text_of("k"), ddpi_bytes_of(bytes, DDP_STORE_VALUE_MAX / 2));
        put_clause(text_of("l"), ddpi_bytes_of(bytes, DDP_STORE_VALUE_MAX / 2 + more));
        ck_assert_int_eq(transact(2), wanted);
    }
    free(bytes);
}
END_TEST

START_TEST(clauses_come_back)
{
    put_clause(text_of("key"), ddpi_bytes_of("a\0b", 3));
    struct ddpi_clauses all = clauses_of(1);
    struct ddpi_clause got;
    for (size_t len = 0; len < all.packed_len; len++) {
        struct ddpi_clauses cut = {all.packed, len, 1};
        ck_assert(!ddpi_clauses_next(&cut, &got));
    }
    ck_assert(ddpi_clauses_next(&all, &got));
    ck_assert_uint_eq(got.kind, 250);
    ck_assert_uint_eq(got.version, UINT64_MAX - 2);
    ck_assert(ddpi_bytes_equal(got.key, text_of("key")));
    ck_assert(ddpi_bytes_equal(got.value, ddpi_bytes_of("a\0b", 3)));
    ck_assert(!ddpi_clauses_next(&all, &got));
}
END_TEST

START_TEST(absurd_counts_and_lengths_are_refused)
{
    uint8_t payload[12];
    memset(payload, 0xff, sizeof payload);
    struct ddpi_message got;
    for (unsigned op = 0; op < DDPI_OP_NATIVE_COUNT; op++) {
        struct ddpi_frame frame = {.type = ddpi_type_of_op((enum ddpi_op)op),
                                   .payload_len = sizeof payload};
        ck_assert_int_eq(ddpi_request_get(&frame, payload, &got, NULL), DDP_E_PROTOCOL);
    }
    struct ddpi_frame with_status = {.type = ddpi_type_of_op(DDPI_OP_GET), .status = DDP_E_TIMEOUT};
    ck_assert_int_eq(ddpi_request_get(&with_status, payload, &got, NULL), DDP_E_PROTOCOL);
    struct ddpi_frame unknown = {.type = 255};
    ck_assert_int_eq(ddpi_request_get(&unknown, payload, &got, NULL), DDP_E_PROTOCOL);
}
END_TEST

START_TEST(a_full_buffer_takes_nothing)
{
    struct ddpi_message request = sample(DDPI_OP_SET);
    ck_assert(ddpi_request_put(&wire, &request));
    size_t whole = ddpi_buf_len(&wire);
    for (size_t limit = 0; limit < whole; limit++) {
        struct ddpi_buf small;
        ddpi_buf_init(&small, limit);
        ck_assert(!ddpi_request_put(&small, &request));
        ck_assert_uint_eq(ddpi_buf_len(&small), 0);
        ddpi_buf_finish(&small);
    }
}
END_TEST

START_TEST(headers_are_strict)
{
    struct ddpi_message request = sample(DDPI_OP_ADD);
    ck_assert(ddpi_request_put(&wire, &request));
    struct ddpi_frame frame;
    uint8_t header[DDPI_FRAME_HEADER_SIZE];
    memcpy(header, ddpi_buf_head(&wire), sizeof header);
    header[6] = 1; /* reserved */
    ck_assert(!ddpi_frame_get(header, &frame));
    header[6] = 0;
    header[5] = 100; /* no such status */
    ck_assert(!ddpi_frame_get(header, &frame));
    header[5] = 0;
    ck_assert(ddpi_frame_get(header, &frame));
    ck_assert_uint_eq(frame.id, request.id);
}
END_TEST

START_TEST(preambles)
{
    struct ddpi_preamble ours = {2, 5}, got;
    ck_assert(ddpi_preamble_put(&wire, &ours));
    ck_assert_uint_eq(ddpi_buf_len(&wire), DDPI_PREAMBLE_SIZE);
    ck_assert(ddpi_preamble_get(ddpi_buf_head(&wire), &got));
    ck_assert(got.version_min == 2 && got.version_max == 5);
    for (size_t len = 1; len <= DDPI_PREAMBLE_SIZE; len++)
        ck_assert(ddpi_preamble_plausible(ddpi_buf_head(&wire), len));
    ck_assert(!ddpi_preamble_plausible("GET / HTTP", 10));
    ck_assert(!ddpi_preamble_plausible("DDPX", 4));
    ck_assert(!ddpi_preamble_get((const uint8_t *)"DDPS\0\0\1\0", &got)); /* 0 is no version */
    ck_assert(!ddpi_preamble_get((const uint8_t *)"DDPS\3\0\2\0", &got)); /* upside down */

    static const struct {
        struct ddpi_preamble theirs;
        uint16_t chosen;
    } cases[] = {{{1, 1}, 0}, {{1, 2}, 2}, {{3, 4}, 4}, {{5, 9}, 5}, {{6, 9}, 0}, {{1, 9}, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(ddpi_version_choose(&ours, &cases[i].theirs), cases[i].chosen);
        ck_assert_uint_eq(ddpi_version_choose(&cases[i].theirs, &ours), cases[i].chosen);
    }
}
END_TEST

static struct ddpi_hello hello_of(uint32_t auth)
{
    struct ddpi_hello hello = {
        .auth = auth,
        .identity = {.role = DDPI_ROLE_WORKER, .job = "a.job", .epoch = UINT64_MAX - 1}};
    memset(hello.nonce, 0x5a, sizeof hello.nonce);
    memcpy(hello.vouches_for, "its.job", 8);
    return hello;
}

/* What the frame in the wire has, without its header; the wire is empty then. */
static size_t take_payload(uint8_t *ret, size_t size)
{
    size_t len = ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE;
    ck_assert_uint_le(len, size);
    memcpy(ret, ddpi_buf_head(&wire) + DDPI_FRAME_HEADER_SIZE, len);
    ddpi_buf_consume(&wire, ddpi_buf_len(&wire));
    return len;
}

START_TEST(hello)
{
    struct ddpi_hello sent = hello_of(DDPI_AUTH_HMAC), got;
    uint8_t bytes[DDPI_HELLO_MAX];
    ck_assert(ddpi_hello_put(&wire, 9, &sent));
    size_t len = take_payload(bytes, sizeof bytes);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_hello_get(bytes, cut, &got));
    for (size_t more = 0; more < 5; more++) { /* a later version may append */
        memset(&got, 0xff, sizeof got);
        ck_assert(ddpi_hello_get(bytes, len + more, &got));
        ck_assert(got.auth == DDPI_AUTH_HMAC && got.identity.role == DDPI_ROLE_WORKER &&
                  got.identity.epoch == UINT64_MAX - 1 && !got.identity.proven);
        ck_assert_str_eq(got.identity.job, "a.job");
        ck_assert_mem_eq(got.nonce, sent.nonce, sizeof got.nonce);
        ck_assert_str_eq(got.vouches_for, "its.job");
    }
    /* A client without authentication may leave out its identity, but not send half of it. */
    bytes[0] = DDPI_AUTH_NONE;
    for (size_t cut = 0; cut < len; cut++)
        ck_assert_int_eq(ddpi_hello_get(bytes, cut, &got), cut == 4);
    ck_assert(ddpi_hello_get(bytes, 4, &got) && got.identity.role == DDPI_ROLE_AGENT);
    ck_assert(got.identity.job[0] == '\0' && got.identity.epoch == 0);
}
END_TEST

START_TEST(hello_with_a_bad_identity)
{
    enum { ROLE_AT = 4, JOB_LEN_AT = 13, JOB_AT = 17 };
    struct ddpi_hello sent = hello_of(DDPI_AUTH_HMAC), got;
    uint8_t bytes[DDPI_HELLO_MAX];
    memset(sent.identity.job, 'j', DDPI_JOB_MAX);
    ck_assert(ddpi_hello_put(&wire, 9, &sent));
    size_t len = take_payload(bytes, sizeof bytes);
    ck_assert_uint_lt(len, DDPI_HELLO_MAX);
    ck_assert(ddpi_hello_get(bytes, len, &got));
    bytes[ROLE_AT] = 4;
    ck_assert(!ddpi_hello_get(bytes, len, &got));
    bytes[ROLE_AT] = DDPI_ROLE_OBSERVER;
    bytes[JOB_AT] = '.';
    ck_assert(!ddpi_hello_get(bytes, len, &got));
    bytes[JOB_AT] = 'j';
    bytes[JOB_LEN_AT]++; /* one more than a name may have */
    memset(bytes + len, 'j', 32);
    ck_assert(!ddpi_hello_get(bytes, len + 32, &got));
    bytes[JOB_LEN_AT + 3] = 0xff;
    ck_assert(!ddpi_hello_get(bytes, len, &got));
}
END_TEST

START_TEST(before_authentication_there_is_one_kibibyte)
{
    uint8_t proof[DDPI_PROOF_SIZE] = {0};
    ck_assert(ddpi_proof_put(&wire, 0, proof));
    ck_assert_uint_eq(
        DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + DDPI_HELLO_MAX + ddpi_buf_len(&wire), 1024);
}
END_TEST

START_TEST(challenge)
{
    struct ddpi_challenge sent = {.store = 0x1234567890abcdef}, got = {.store = 7};
    uint8_t bytes[sizeof sent + 1];
    struct ddpi_frame frame;
    memset(sent.nonce, 0xa5, sizeof sent.nonce);
    ck_assert(ddpi_challenge_put(&wire, 3, &sent));
    ck_assert(ddpi_frame_get(ddpi_buf_head(&wire), &frame));
    ck_assert(frame.type == DDPI_FRAME_CHALLENGE && frame.id == 3);
    size_t len = take_payload(bytes, sizeof bytes);
    ck_assert_uint_eq(len, DDPI_NONCE_SIZE + 8);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_challenge_get(bytes, cut, &got));
    ck_assert(!ddpi_challenge_get(bytes, len + 1, &got) && got.store == 7);
    ck_assert(ddpi_challenge_get(bytes, len, &got));
    ck_assert(memcmp(got.nonce, sent.nonce, sizeof got.nonce) == 0 && got.store == sent.store);
}
END_TEST

START_TEST(proof)
{
    uint8_t sent[DDPI_PROOF_SIZE], got[DDPI_PROOF_SIZE] = {0}, bytes[DDPI_PROOF_SIZE + 1];
    memset(sent, 0xa5, sizeof sent);
    ck_assert(ddpi_proof_put(&wire, 3, sent));
    size_t len = take_payload(bytes, sizeof bytes);
    ck_assert_uint_eq(len, DDPI_PROOF_SIZE);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_proof_get(bytes, cut, got));
    ck_assert(!ddpi_proof_get(bytes, len + 1, got) && got[0] == 0);
    ck_assert(ddpi_proof_get(bytes, len, got));
    ck_assert_mem_eq(got, sent, sizeof got);
}
END_TEST

START_TEST(welcome)
{
    enum { APPENDED = 4 };
    struct ddpi_welcome sent = {.key_max = 1, .value_max = 2, .many_max = 3, .incarnation = 4};
    struct ddpi_welcome got;
    uint8_t bytes[DDPI_HELLO_MAX];
    memset(sent.proof, 0xa5, sizeof sent.proof);
    ck_assert(ddpi_welcome_put(&wire, 9, &sent));
    size_t len = take_payload(bytes, sizeof bytes);
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_welcome_get(bytes, cut, &got));
    for (int later = 0; later < 2; later++) { /* fields of a later version stand before the proof */
        ck_assert(ddpi_welcome_get(bytes, len, &got));
        ck_assert(got.key_max == 1 && got.value_max == 2 && got.many_max == 3);
        ck_assert_uint_eq(got.incarnation, 4);
        ck_assert_mem_eq(got.proof, sent.proof, sizeof got.proof);
        memmove(bytes + len - DDPI_PROOF_SIZE + APPENDED, bytes + len - DDPI_PROOF_SIZE,
                DDPI_PROOF_SIZE);
        memset(bytes + len - DDPI_PROOF_SIZE, 0, APPENDED);
        len += APPENDED;
    }
}
END_TEST

START_TEST(refusal)
{
    const uint8_t *payload;
    size_t len;
    uint64_t version;
    struct ddpi_bytes text;
    ck_assert(ddpi_refusal_put(&wire, DDPI_FRAME_BYE, 0, DDP_E_DENIED, 5, text_of("no")));
    payload = ddpi_buf_head(&wire) + DDPI_FRAME_HEADER_SIZE;
    len = ddpi_buf_len(&wire) - DDPI_FRAME_HEADER_SIZE;
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_refusal_get(payload, cut, &version, &text));
    ck_assert(ddpi_refusal_get(payload, len, &version, &text));
    ck_assert(version == 5 && text.len == 2);
}
END_TEST

START_TEST(types_are_unique)
{
    for (unsigned a = 0; a < DDPI_OP_NATIVE_COUNT; a++) {
        enum ddpi_op found;
        uint8_t type = ddpi_type_of_op((enum ddpi_op)a);
        ck_assert_uint_ge(type, 16);
        ck_assert(ddpi_op_of_type(type, &found) && found == a);
        ck_assert_str_ne(ddpi_op_name((enum ddpi_op)a), "unknown");
    }
    ck_assert_str_eq(ddpi_op_name(DDPI_OP_COUNT), "unknown");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("proto");
    TCase *tcase = tcase_create("codec");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, requests_round_trip, 0, DDPI_OP_NATIVE_COUNT);
    tcase_add_loop_test(tcase, replies_round_trip, 0, DDPI_OP_NATIVE_COUNT);
    tcase_add_loop_test(tcase, failed_replies_round_trip, 0, DDPI_OP_NATIVE_COUNT);
    ADD_TESTS(tcase, negative_statuses_cross, limits_hold_to_the_byte, limits_of_transactions,
              clauses_come_back, absurd_counts_and_lengths_are_refused, a_full_buffer_takes_nothing,
              headers_are_strict, preambles, hello, hello_with_a_bad_identity,
              before_authentication_there_is_one_kibibyte, challenge, proof, welcome, refusal,
              types_are_unique);
    suite_add_tcase(suite, tcase);
    return suite;
}
