/*
 * test_proof.c - keys against published vectors; proofs and seals that every change breaks.
 */
#include "check_main.h"
#include "proof.h"

#include <stdio.h>
#include <stdlib.h>

enum { LONG = 96 };

static size_t from_hex(const char *hex, uint8_t *ret, size_t size)
{
    size_t len;
    ck_assert_int_eq(sodium_hex2bin(ret, size, hex, strlen(hex), NULL, &len, NULL), 0);
    return len;
}

static void count_up(uint8_t *bytes, size_t len, uint8_t from)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(from + i);
}

static void assert_hkdf(struct ddpi_bytes salt, struct ddpi_bytes secret, struct ddpi_bytes info,
                        const char *wanted_hex)
{
    uint8_t wanted[LONG], got[LONG], key[DDPI_KEY_SIZE];
    size_t len = from_hex(wanted_hex, wanted, sizeof wanted);
    ddpi_hkdf_extract(salt.data, salt.len, secret.data, secret.len, key);
    ddpi_hkdf_expand(key, info.data, info.len, got, len);
    ck_assert_mem_eq(got, wanted, len);
}

/* RFC 5869, appendix A: the three with SHA-256. */
START_TEST(hkdf_vectors)
{
    uint8_t secret[LONG], salt[LONG], info[LONG];
    memset(secret, 0x0b, 22);
    count_up(salt, 13, 0);
    count_up(info, 10, 0xf0);
    assert_hkdf(
        ddpi_bytes_of(salt, 13), ddpi_bytes_of(secret, 22), ddpi_bytes_of(info, 10),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
    assert_hkdf(
        ddpi_bytes_of("", 0), ddpi_bytes_of(secret, 22), ddpi_bytes_of("", 0),
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
    count_up(secret, 80, 0);
    count_up(salt, 80, 0x60);
    count_up(info, 80, 0xb0);
    assert_hkdf(
        ddpi_bytes_of(salt, 80), ddpi_bytes_of(secret, 80), ddpi_bytes_of(info, 80),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb"
        "41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}
END_TEST

/* ---- identities ---- */

START_TEST(roles_have_names)
{
    enum ddpi_role role;
    for (unsigned i = 0; ddpi_role_name(i) != NULL; i++) {
        ck_assert(ddpi_role_of_name(ddpi_role_name(i), &role));
        ck_assert_uint_eq(role, i);
    }
    ck_assert_ptr_null(ddpi_role_name(4));
    ck_assert(!ddpi_role_of_name("root", &role) && !ddpi_role_of_name("", &role));
}
END_TEST

START_TEST(names_of_jobs)
{
    char name[DDPI_JOB_MAX + 2];
    memset(name, 'j', sizeof name);
    ck_assert(ddpi_job_valid("a", 1) && ddpi_job_valid("A-z_0.9", 7) && ddpi_job_valid("_.", 2));
    ck_assert(ddpi_job_valid(name, DDPI_JOB_MAX) && !ddpi_job_valid(name, DDPI_JOB_MAX + 1));
    ck_assert(!ddpi_job_valid("", 0) && !ddpi_job_valid(".a", 2) && !ddpi_job_valid("..", 2));
    ck_assert(!ddpi_job_valid("-", 1) && ddpi_job_valid("--", 2)); /* a key file's "none" */
    for (int c = 0; c < 256; c++) {
        char one = (char)c;
        bool allowed =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        ck_assert_int_eq(ddpi_job_valid(&one, 1), allowed);
    }
}
END_TEST

START_TEST(each_text_has_a_name)
{
    static const struct {
        const char *text, *name;
    } rows[] = {{"a.b-C_9", "a.b-C_9"}, {"exp/1", "exp_1"}, {"a\"b\n", "a_b_"}, {".a", "_a"},
                {"..", "_."},           {"-", "_"},         {"", "_"},          {"\xc3\xa4", "__"}};
    char name[DDPI_JOB_MAX + 1], text[2 * DDPI_JOB_MAX] = "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ddpi_job_name(rows[i].text, name);
        ck_assert_str_eq(name, rows[i].name);
        ck_assert(ddpi_job_valid(name, strlen(name)));
    }
    memset(text, 'j', sizeof text - 1);
    ddpi_job_name(text, name);
    ck_assert(strlen(name) == DDPI_JOB_MAX && ddpi_job_valid(name, DDPI_JOB_MAX));
}
END_TEST

static const struct ddpi_credential token = {
    .is_token = true,
    .secret = {1, 2, 3, 4, 5, 6, 7, 8, 9},
};

static const struct ddpi_identity identities[] = {
    {DDPI_ROLE_AGENT, "", 0, false, 0},     {DDPI_ROLE_WORKER, "", 0, false, 0},
    {DDPI_ROLE_OBSERVER, "", 0, false, 0},  {DDPI_ROLE_WORKER, "a", 0, false, 0},
    {DDPI_ROLE_WORKER, "b", 0, false, 0},   {DDPI_ROLE_WORKER, "ab", 0, false, 0},
    {DDPI_ROLE_WORKER, "a", 1, false, 0},   {DDPI_ROLE_WORKER, "a", UINT64_C(1) << 56, false, 0},
    {DDPI_ROLE_OBSERVER, "a", 0, false, 0}, {DDPI_ROLE_WORKER, "a0", 0, false, 0},
    {DDPI_ROLE_WORKER, "a", 0, false, 1},
};

enum { IDENTITIES = sizeof identities / sizeof *identities };

START_TEST(each_identity_has_a_key_of_its_own)
{
    uint8_t keys[IDENTITIES][DDPI_KEY_SIZE];
    for (size_t i = 0; i < IDENTITIES; i++) {
        ck_assert_int_eq(ddpi_credential_key(&token, &identities[i], keys[i], NULL), DDP_OK);
        ck_assert_mem_ne(keys[i], token.secret, DDPI_KEY_SIZE);
        for (size_t k = 0; k < i; k++)
            ck_assert_mem_ne(keys[i], keys[k], DDPI_KEY_SIZE);
    }
    struct ddpi_credential other = token;
    uint8_t key[DDPI_KEY_SIZE];
    other.secret[31] ^= 1;
    ck_assert_int_eq(ddpi_credential_key(&other, &identities[0], key, NULL), DDP_OK);
    ck_assert_mem_ne(key, keys[0], DDPI_KEY_SIZE);
}
END_TEST

START_TEST(a_key_is_of_one_identity_only)
{
    for (size_t i = 0; i < IDENTITIES; i++) {
        struct ddpi_credential own = {.identity = identities[i], .secret = {42}};
        for (size_t k = 0; k < IDENTITIES; k++) {
            struct ddp_error err;
            uint8_t key[DDPI_KEY_SIZE];
            ddp_status status = ddpi_credential_key(&own, &identities[k], key, &err);
            ck_assert_int_eq(status, i == k ? DDP_OK : DDP_E_DENIED);
            ck_assert(i != k || memcmp(key, own.secret, sizeof key) == 0);
            if (i == k)
                continue;
            bool of_stores =
                identities[i].store != identities[k].store && strstr(err.msg, "begun anew") != NULL;
            ck_assert(of_stores || strstr(err.msg, ddpi_role_name(identities[k].role)) != NULL);
        }
    }
}
END_TEST

/* ---- handshakes ---- */

static struct ddpi_handshake handshake_of(const char *one, const char *two, uint8_t key)
{
    struct ddpi_handshake handshake;
    ddpi_handshake_begin(&handshake);
    ddpi_handshake_add(&handshake, one, strlen(one));
    ddpi_handshake_add(&handshake, two, strlen(two));
    memset(handshake.key, key, sizeof handshake.key);
    return handshake;
}

START_TEST(both_sides_come_to_the_same)
{
    struct ddpi_handshake a = handshake_of("hello", "challenge", 1);
    struct ddpi_handshake b = handshake_of("hello", "challenge", 1);
    uint8_t client[DDPI_PROOF_SIZE], server[DDPI_PROOF_SIZE];
    ddpi_handshake_prove(&a, DDPI_SIDE_CLIENT, client);
    ck_assert(ddpi_handshake_check(&b, DDPI_SIDE_CLIENT, client));
    ddpi_handshake_prove(&b, DDPI_SIDE_SERVER, server);
    ck_assert(ddpi_handshake_check(&a, DDPI_SIDE_SERVER, server));
    /* Neither can be sent back as one's own. */
    ck_assert(!ddpi_handshake_check(&b, DDPI_SIDE_SERVER, client));
    ck_assert(!ddpi_handshake_check(&a, DDPI_SIDE_CLIENT, server));
}
END_TEST

START_TEST(whatever_differs_breaks_the_proof)
{
    struct ddpi_handshake good = handshake_of("hello", "challenge", 1);
    const struct ddpi_handshake others[] = {
        handshake_of("hellp", "challenge", 1), handshake_of("hello", "challengf", 1),
        handshake_of("hell", "ochallenge", 1), handshake_of("hello", "", 1),
        handshake_of("", "challenge", 1),      handshake_of("challenge", "hello", 1),
        handshake_of("hello", "challenge", 2),
    };
    uint8_t proof[DDPI_PROOF_SIZE];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        ddpi_handshake_prove(&others[i], DDPI_SIDE_CLIENT, proof);
        ck_assert(!ddpi_handshake_check(&good, DDPI_SIDE_CLIENT, proof));
    }
    ddpi_handshake_prove(&good, DDPI_SIDE_CLIENT, proof);
    for (size_t bit = 0; bit < 8 * sizeof proof; bit++) {
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(!ddpi_handshake_check(&good, DDPI_SIDE_CLIENT, proof));
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ck_assert(ddpi_handshake_check(&good, DDPI_SIDE_CLIENT, proof));
}
END_TEST

/* ---- seals ---- */

static struct ddpi_seals client, server;
static struct ddpi_buf wire;

static void setup(void)
{
    struct ddpi_handshake handshake = handshake_of("hello", "challenge", 1);
    ddpi_seals_begin(&client, &handshake, DDPI_SIDE_CLIENT);
    ddpi_seals_begin(&server, &handshake, DDPI_SIDE_SERVER);
    ddpi_buf_init(&wire, 4096);
}

static void teardown(void)
{
    ddpi_buf_finish(&wire);
}

/* Seal @text behind what is in the wire; where its bytes begin. */
static size_t put(struct ddpi_seals *seals, const char *text)
{
    size_t before = ddpi_buf_len(&wire);
    ck_assert(ddpi_seals_put(seals, &wire, before, ddpi_buf_append(&wire, text, strlen(text))));
    ck_assert_uint_eq(ddpi_buf_len(&wire), before + strlen(text) + ddpi_seals_size(seals));
    return before;
}

static bool check(struct ddpi_seals *seals, size_t at, size_t len)
{
    return ddpi_seals_check(seals, ddpi_buf_head(&wire) + at, len);
}

START_TEST(frames_arrive_in_both_directions)
{
    size_t one = put(&client, "one"), two = put(&client, "two"), answer = put(&server, "one");
    ck_assert(check(&server, one, 3) && check(&server, two, 3));
    ck_assert(check(&client, answer, 3));
    ck_assert_mem_ne(ddpi_buf_head(&wire) + one, ddpi_buf_head(&wire) + answer, 3 + DDPI_SEAL_SIZE);
}
END_TEST

START_TEST(every_flipped_bit_is_seen)
{
    char text[100];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    put(&client, text);
    uint8_t *bytes = wire.data + wire.head;
    for (size_t bit = 0; bit < 8 * ddpi_buf_len(&wire); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert(!check(&server, 0, sizeof text - 1));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ck_assert(check(&server, 0, sizeof text - 1));
}
END_TEST

START_TEST(no_frame_counts_twice_or_out_of_turn)
{
    size_t one = put(&client, "one"), two = put(&client, "two"), three = put(&client, "one");
    ck_assert(!check(&server, two, 3)); /* before its turn, or with one dropped */
    ck_assert(check(&server, one, 3));
    ck_assert(!check(&server, one, 3));   /* replayed */
    ck_assert(!check(&server, three, 3)); /* the same text later is another frame */
    ck_assert(check(&server, two, 3) && check(&server, three, 3));
    ck_assert(!check(&client, one, 3)); /* reflected */
}
END_TEST

START_TEST(another_handshake_has_other_keys)
{
    struct ddpi_handshake handshake = handshake_of("hello", "another challenge", 1);
    struct ddpi_seals late;
    ddpi_seals_begin(&late, &handshake, DDPI_SIDE_SERVER);
    ck_assert(!check(&late, put(&client, "one"), 3));
}
END_TEST

START_TEST(what_does_not_fit_is_taken_back)
{
    struct ddpi_seals before = client;
    put(&client, "one");
    size_t len = ddpi_buf_len(&wire);
    wire.limit = len + 3 + DDPI_SEAL_SIZE - 1;
    ck_assert(!ddpi_seals_put(&client, &wire, len, ddpi_buf_append(&wire, "two", 3)));
    ck_assert(!ddpi_seals_put(&client, &wire, len, false));
    ck_assert_uint_eq(ddpi_buf_len(&wire), len);
    ck_assert_uint_eq(client.out.sequence, before.out.sequence + 1);
    wire.limit++;
    put(&client, "two");
    ck_assert(check(&server, 0, 3) && check(&server, len, 3));
}
END_TEST

START_TEST(without_seals_nothing_is_added)
{
    struct ddpi_seals off = {0};
    put(&off, "one");
    ck_assert_uint_eq(ddpi_buf_len(&wire), 3);
    ck_assert(!ddpi_seals_put(&off, &wire, 3, false));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("auth");
    TCase *keys = tcase_create("keys");
    ADD_TESTS(keys, hkdf_vectors, roles_have_names, names_of_jobs, each_text_has_a_name,
              each_identity_has_a_key_of_its_own, a_key_is_of_one_identity_only);
    suite_add_tcase(suite, keys);
    TCase *handshakes = tcase_create("handshakes");
    tcase_add_test(handshakes, both_sides_come_to_the_same);
    tcase_add_test(handshakes, whatever_differs_breaks_the_proof);
    suite_add_tcase(suite, handshakes);
    TCase *seals = tcase_create("seals");
    tcase_add_checked_fixture(seals, setup, teardown);
    ADD_TESTS(seals, frames_arrive_in_both_directions, every_flipped_bit_is_seen,
              no_frame_counts_twice_or_out_of_turn, another_handshake_has_other_keys,
              what_does_not_fit_is_taken_back, without_seals_nothing_is_added);
    suite_add_tcase(suite, seals);
    return suite;
}
