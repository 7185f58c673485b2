/*
 * test_failure_rate.c - buckets of tokens, on a clock that the test moves.
 */
#include "check_main.h"
#include "failure_rate.h"

enum { PER_SECOND = 20, BURST = 200, START_MS = 1000000 };

static const uint8_t seed[DDPI_SEED_SIZE] = {7};
static struct ddpi_failure_rate rate;

static void setup(void)
{
    ddpi_failure_rate_init(&rate, PER_SECOND, BURST, seed);
}

static void teardown(void)
{
    ddpi_failure_rate_finish(&rate);
}

static struct ddpi_address host(uint32_t number)
{
    struct ddpi_address address = {.scope = number};
    return address;
}

static void charge(const struct ddpi_address *address, unsigned times, uint64_t now_ms)
{
    for (unsigned i = 0; i < times; i++)
        ddpi_failure_rate_charge(&rate, address, now_ms);
}

START_TEST(a_burst_and_no_more)
{
    const struct ddpi_address one = host(1), other = host(2);
    ck_assert(ddpi_failure_rate_permits(&rate, &one, START_MS));
    charge(&one, BURST - 1, START_MS);
    ck_assert(ddpi_failure_rate_permits(&rate, &one, START_MS));
    charge(&one, 1, START_MS);
    ck_assert(!ddpi_failure_rate_permits(&rate, &one, START_MS));
    ck_assert(ddpi_failure_rate_permits(&rate, &other, START_MS));
}
END_TEST

START_TEST(time_brings_tokens_back)
{
    const struct ddpi_address one = host(1);
    charge(&one, 5 * BURST, START_MS); /* beyond what there is nothing is owed */
    const uint64_t token_ms = 1000 / PER_SECOND;
    ck_assert(!ddpi_failure_rate_permits(&rate, &one, START_MS + token_ms - 1));
    ck_assert(ddpi_failure_rate_permits(&rate, &one, START_MS + token_ms));
    charge(&one, 1, START_MS + token_ms);
    ck_assert(!ddpi_failure_rate_permits(&rate, &one, START_MS + 2 * token_ms - 1));
    ck_assert(ddpi_failure_rate_permits(&rate, &one, START_MS + 2 * token_ms));
}
END_TEST

START_TEST(a_bucket_does_not_run_over)
{
    const struct ddpi_address one = host(1);
    charge(&one, BURST, START_MS);
    const uint64_t later_ms = START_MS + UINT64_C(1000) * 3600 * 24 * 365 * 1000;
    charge(&one, BURST - 1, later_ms);
    ck_assert(ddpi_failure_rate_permits(&rate, &one, later_ms));
    charge(&one, 1, later_ms);
    ck_assert(!ddpi_failure_rate_permits(&rate, &one, later_ms));
    ck_assert(ddpi_failure_rate_permits(&rate, &one, UINT64_MAX));
}
END_TEST

START_TEST(looking_costs_nothing)
{
    for (uint32_t i = 0; i < 10 * DDPI_FAILURE_RATE_ADDRESSES; i++) {
        const struct ddpi_address address = host(i);
        ck_assert(ddpi_failure_rate_permits(&rate, &address, START_MS));
    }
    ck_assert_uint_eq(rate.table.count, 0);
}
END_TEST

START_TEST(the_oldest_gives_way)
{
    const struct ddpi_address first = host(0), second = host(1);
    charge(&first, BURST, START_MS);
    charge(&second, BURST, START_MS);
    for (uint32_t i = 2; i < DDPI_FAILURE_RATE_ADDRESSES; i++) {
        const struct ddpi_address address = host(i);
        charge(&address, 1, START_MS);
    }
    charge(&first, 1, START_MS); /* now it is the newest */
    ck_assert_uint_eq(rate.table.count, DDPI_FAILURE_RATE_ADDRESSES);
    ck_assert(!ddpi_failure_rate_permits(&rate, &second, START_MS));
    const struct ddpi_address one_more = host(DDPI_FAILURE_RATE_ADDRESSES);
    charge(&one_more, 1, START_MS);
    ck_assert_uint_eq(rate.table.count, DDPI_FAILURE_RATE_ADDRESSES);
    ck_assert(!ddpi_failure_rate_permits(&rate, &first, START_MS));
    ck_assert(ddpi_failure_rate_permits(&rate, &second, START_MS));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rate");
    TCase *tcase = tcase_create("buckets");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_burst_and_no_more, time_brings_tokens_back, a_bucket_does_not_run_over,
              looking_costs_nothing, the_oldest_gives_way);
    suite_add_tcase(suite, tcase);
    return suite;
}
