/*
 * test_vouching.c - addresses, and the hosts and jobs that agents vouch for.
 */
#include "address.h"
#include "check_main.h"
#include "vouching.h"

#include <arpa/inet.h>
#include <string.h>

static const uint8_t seed[DDPI_SEED_SIZE] = {7};

static struct ddpi_address address(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(4711)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(4711)};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return ddpi_address_of((struct sockaddr *)&v4);
    ck_assert_int_eq(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return ddpi_address_of((struct sockaddr *)&v6);
}

static bool same(const struct ddpi_address *a, const struct ddpi_address *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

START_TEST(one_host_is_one_address)
{
    struct ddpi_address v4 = address("10.0.0.1"), mapped = address("::ffff:10.0.0.1"),
                        other = address("10.0.0.2"), v6 = address("fe80::1"), far = v6;
    far.scope = 2;
    ck_assert(same(&v4, &mapped) && !same(&v4, &other) && !same(&v4, &v6) && !same(&v6, &far));
}
END_TEST

START_TEST(loopback)
{
    static const char *const here[] = {"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1"};
    static const char *const elsewhere[] = {"10.0.0.1",        "128.0.0.1", "::2",        "fe80::1",
                                            "::ffff:10.0.0.1", "0.0.0.0",   "::127.0.0.1"};
    for (size_t i = 0; i < sizeof here / sizeof *here; i++) {
        struct ddpi_address it = address(here[i]);
        ck_assert_msg(ddpi_address_is_loopback(&it), "%s", here[i]);
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        struct ddpi_address it = address(elsewhere[i]);
        ck_assert_msg(!ddpi_address_is_loopback(&it), "%s", elsewhere[i]);
    }
    ck_assert(!ddpi_address_is_loopback(&(struct ddpi_address){0}));
    struct ddpi_address local = ddpi_address_of(&(struct sockaddr){.sa_family = AF_UNIX});
    ck_assert(same(&local, &(struct ddpi_address){0}));
}
END_TEST

START_TEST(addresses_as_text)
{
    static const char *const texts[] = {"10.0.0.1", "127.0.0.1", "fe80::1", "2001:db8::42"};
    char text[DDPI_ADDRESS_CHARS];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ddpi_address it = address(texts[i]);
        ddpi_address_format(&it, text);
        ck_assert_str_eq(text, texts[i]);
    }
}
END_TEST

START_TEST(as_long_as_one_is_there)
{
    struct ddpi_vouching vouching;
    struct ddpi_address one = address("10.0.0.1"), two = address("10.0.0.2");
    ddpi_vouch_init(&vouching, seed);
    ck_assert(!ddpi_vouch_covers(&vouching, &one, "j"));
    ddpi_vouch_remove(&vouching, &one, "j");
    ck_assert(ddpi_vouch_add(&vouching, &one, "j") && ddpi_vouch_add(&vouching, &one, "j"));
    ck_assert(ddpi_vouch_covers(&vouching, &one, "j") && !ddpi_vouch_covers(&vouching, &two, "j"));
    ddpi_vouch_remove(&vouching, &one, "j");
    ck_assert(ddpi_vouch_covers(&vouching, &one, "j"));
    ddpi_vouch_remove(&vouching, &one, "j");
    ck_assert(!ddpi_vouch_covers(&vouching, &one, "j"));
    ck_assert(ddpi_vouch_add(&vouching, &one, "j"));
    ck_assert(ddpi_vouch_covers(&vouching, &one, "j"));
    ddpi_vouch_finish(&vouching);
}
END_TEST

/* An agent of one job says nothing for another; one of all jobs does. */
START_TEST(each_job_by_itself)
{
    struct ddpi_vouching vouching;
    struct ddpi_address here = address("127.0.0.1");
    ddpi_vouch_init(&vouching, seed);
    ck_assert(ddpi_vouch_add(&vouching, &here, "one"));
    ck_assert(ddpi_vouch_covers(&vouching, &here, "one"));
    ck_assert(!ddpi_vouch_covers(&vouching, &here, "other") &&
              !ddpi_vouch_covers(&vouching, &here, "on") &&
              !ddpi_vouch_covers(&vouching, &here, ""));
    ck_assert(ddpi_vouch_add(&vouching, &here, ""));
    ck_assert(ddpi_vouch_covers(&vouching, &here, "other") &&
              ddpi_vouch_covers(&vouching, &here, ""));
    ddpi_vouch_remove(&vouching, &here, "");
    ck_assert(!ddpi_vouch_covers(&vouching, &here, "other"));
    ddpi_vouch_remove(&vouching, &here, "one");
    ck_assert(!ddpi_vouch_covers(&vouching, &here, "one"));
    ddpi_vouch_finish(&vouching);
}
END_TEST

START_TEST(many_hosts)
{
    enum { HOSTS = 5000 };
    struct ddpi_vouching vouching;
    struct ddpi_address it = address("10.0.0.0");
    ddpi_vouch_init(&vouching, seed);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < HOSTS; i++) {
            memcpy(it.ip + 12, &i, sizeof i);
            if (round < 2)
                ck_assert(ddpi_vouch_add(&vouching, &it, "j"));
            else if (i % 2 == 0)
                ddpi_vouch_remove(&vouching, &it, "j");
            ck_assert(ddpi_vouch_covers(&vouching, &it, "j"));
        }
    for (uint32_t i = 0; i < HOSTS; i += 2) {
        memcpy(it.ip + 12, &i, sizeof i);
        ddpi_vouch_remove(&vouching, &it, "j");
        ck_assert(!ddpi_vouch_covers(&vouching, &it, "j"));
    }
    ck_assert_uint_eq(vouching.hosts.count, HOSTS / 2);
    ddpi_vouch_finish(&vouching); /* a sanitizer sees what it forgets */
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("vouching");
    TCase *addresses = tcase_create("addresses");
    ADD_TESTS(addresses, one_host_is_one_address, loopback, addresses_as_text);
    suite_add_tcase(suite, addresses);
    TCase *counts = tcase_create("counts");
    ADD_TESTS(counts, as_long_as_one_is_there, each_job_by_itself, many_hosts);
    suite_add_tcase(suite, counts);
    return suite;
}
