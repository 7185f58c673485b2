/*
 * test_tls_key.c - which key TLS is spoken by, and how a client calls itself.
 */
#include "check_main.h"
#include "tls_key.h"

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "thirty-two bytes that are secret"};
static struct ddp_error err;

#define STORE UINT64_C(0xfedcba9876543210)

static struct ddpi_tls_key make(struct ddpi_identity who)
{
    struct ddpi_tls_key key;
    ck_assert_int_eq(ddpi_tls_key_make(&token, &who, &key, &err), DDP_OK);
    return key;
}

static bool find(const char *name, uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    return ddpi_tls_key_find(&token, STORE, (const uint8_t *)name, strlen(name), ret_secret);
}

START_TEST(both_sides_have_the_same)
{
    static const struct {
        struct ddpi_identity who;
        const char *name;
    } rows[] = {
        {{.role = DDPI_ROLE_AGENT}, "ddprun 1 agent - 0 0"},
        {{.role = DDPI_ROLE_WORKER, .job = "train.7_x-y", .epoch = 12},
         "ddprun 1 worker train.7_x-y 12 0"},
        {{.role = DDPI_ROLE_OBSERVER, .job = "-a", .epoch = INT64_MAX},
         "ddprun 1 observer -a 9223372036854775807 0"},
    };
    uint8_t first[DDPI_TLS_KEY_SIZE];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ddpi_tls_key key = make(rows[i].who);
        uint8_t secret[DDPI_TLS_KEY_SIZE], proof[DDPI_KEY_SIZE];
        ck_assert_uint_eq(key.identity_len, strlen(rows[i].name));
        ck_assert_mem_eq(key.identity, rows[i].name, key.identity_len);
        ck_assert(find(rows[i].name, secret));
        ck_assert_mem_eq(secret, key.secret, sizeof secret);
        /* It is neither another's, nor the one that proofs are made with. */
        ck_assert(i == 0 || memcmp(secret, first, sizeof secret) != 0);
        memcpy(first, secret, sizeof first);
        ck_assert_int_eq(ddpi_credential_key(&token, &rows[i].who, proof, &err), DDP_OK);
        ck_assert_mem_ne(secret, proof, sizeof secret);
    }
}
END_TEST

START_TEST(longest_names_fit)
{
    struct ddpi_identity who = {.role = DDPI_ROLE_OBSERVER, .epoch = INT64_MAX};
    memset(who.job, 'j', DDPI_JOB_MAX);
    struct ddpi_tls_key key = make(who);
    uint8_t secret[DDPI_TLS_KEY_SIZE];
    ck_assert_uint_lt(key.identity_len, sizeof key.identity);
    ck_assert(ddpi_tls_key_find(&token, STORE, (uint8_t *)key.identity, key.identity_len, secret));
    ck_assert_mem_eq(secret, key.secret, sizeof secret);
}
END_TEST

START_TEST(what_nobody_is_called)
{
    static const char *const names[] = {"",
                                        "ddprun 1 ",
                                        "ddprun 1 agent",
                                        "ddprun 1 agent -",
                                        "ddprun 1 agent - ",
                                        "ddprun 1 agent - 0",
                                        "ddprun 1 agent - 0 ",
                                        "ddprun 1 agent - 0 0 ",
                                        "ddprun 1 agent - 0 0 0",
                                        "ddprun 1 agent - 0 00",
                                        "ddprun 1 agent - 0 g",
                                        "ddprun 1 agent - 0 F",
                                        "ddprun 1 agent - 0 fedcba9876543211", /* not here */
                                        "ddprun 1 agent - 0 fedcba98765432100",
                                        "ddprun 1 agent  0 0",
                                        "ddprun 1 agent - -1 0",
                                        "ddprun 1 agent - 00 0",
                                        "ddprun 1 agent - 07 0",
                                        "ddprun 1 agent - 9223372036854775808 0",
                                        "ddprun 1 agent - 0x1 0",
                                        "ddprun 1 agent .j 0 0",
                                        "ddprun 1 agent j/k 0 0",
                                        "ddprun 1 root - 0 0",
                                        "ddprun 2 agent - 0 0",
                                        "Ddprun 1 agent - 0 0"};
    uint8_t secret[DDPI_TLS_KEY_SIZE];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ck_assert_msg(!find(names[i], secret), "'%s'", names[i]);
    char longer[DDPI_TLS_IDENTITY_MAX + 2];
    memset(longer, 'j', sizeof longer);
    memcpy(longer, "ddprun 1 agent ", 15);
    ck_assert(!ddpi_tls_key_find(&token, STORE, (uint8_t *)longer, sizeof longer, secret));
    ck_assert(
        !ddpi_tls_key_find(&token, STORE, (const uint8_t *)"ddprun 1 agent - 0 0\0", 21, secret));
    ck_assert(!ddpi_tls_key_find(NULL, STORE, (const uint8_t *)"ddprun 1 agent - 0 0", 20, secret));
}
END_TEST

/* A key of a role names the store that it was made for, and no other server accepts it. */
START_TEST(a_key_is_of_one_store_only)
{
    struct ddpi_identity who = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2, .store = STORE};
    struct ddpi_credential worker = {.identity = who};
    ck_assert_int_eq(ddpi_credential_key(&token, &who, worker.secret, &err), DDP_OK);
    struct ddpi_identity said = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2};
    struct ddpi_tls_key key;
    uint8_t secret[DDPI_TLS_KEY_SIZE];
    ck_assert_int_eq(ddpi_tls_key_make(&worker, &said, &key, &err), DDP_OK);
    const uint8_t *name = (const uint8_t *)key.identity;
    ck_assert(ddpi_tls_key_find(&token, STORE, name, key.identity_len, secret));
    ck_assert_mem_eq(secret, key.secret, sizeof secret);
    ck_assert(!ddpi_tls_key_find(&token, STORE + 1, name, key.identity_len, secret));
    /* Nor is it of any use without saying so. */
    ck_assert(find("ddprun 1 worker j 2 0", secret));
    ck_assert_mem_ne(secret, key.secret, sizeof secret);
}
END_TEST

START_TEST(a_key_is_of_one_identity_only)
{
    struct ddpi_credential worker = {.identity = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2},
                                     .secret = "thirty-two bytes of the worker j"};
    struct ddpi_tls_key key;
    ck_assert_int_eq(ddpi_tls_key_make(&worker, &worker.identity, &key, &err), DDP_OK);
    struct ddpi_identity agent = {.role = DDPI_ROLE_AGENT};
    ck_assert_int_eq(ddpi_tls_key_make(&worker, &agent, &key, &err), DDP_E_DENIED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tls_key");
    TCase *tcase = tcase_create("names");
    ADD_TESTS(tcase, both_sides_have_the_same, longest_names_fit, what_nobody_is_called,
              a_key_is_of_one_identity_only, a_key_is_of_one_store_only);
    suite_add_tcase(suite, tcase);
    return suite;
}
