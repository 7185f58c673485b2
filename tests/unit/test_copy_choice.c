/*
 * test_copy_choice.c - which way copies take: both are tried, the faster one is kept, and tried
 * again when its time has come or when it has become slow.
 */
#include "check_main.h"
#include "copy_choice.h"

#include <string.h>

enum { TRIED = 2 * DDPI_COPY_TRIES, SIZE = 1024 * 1024 };

static struct ddpi_copy_choice choice;
static uint64_t cached_ns, streamed_ns; /* what an operation takes now */

static void setup(void)
{
    memset(&choice, 0, sizeof choice);
    cached_ns = 1000;
    streamed_ns = 500;
}

/* One operation; returns whether it streams. */
static bool carry_out(size_t bytes)
{
    struct ddpi_copy_way way = ddpi_copy_next(&choice, bytes);
    if (way.is_timed)
        ddpi_copy_note(&choice, bytes, way.streams, way.streams ? streamed_ns : cached_ns);
    return way.streams;
}

/* Of the next @count operations, how many stream. */
static unsigned streams_of(size_t bytes, unsigned count)
{
    unsigned streams = 0;
    for (unsigned i = 0; i < count; i++)
        streams += carry_out(bytes);
    return streams;
}

/* The tries: first all of one way, then all of the other. */
static void expect_tries(size_t bytes)
{
    ck_assert_uint_eq(streams_of(bytes, DDPI_COPY_TRIES), 0);
    ck_assert_uint_eq(streams_of(bytes, DDPI_COPY_TRIES), DDPI_COPY_TRIES);
}

START_TEST(the_faster_way_is_kept)
{
    static const size_t sizes[] = {DDPI_COPY_LEAST, DDPI_COPY_TIMED, SIZE, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_tries(sizes[i]);
        ck_assert_uint_eq(streams_of(sizes[i], 100), 100);
    }
}
END_TEST

START_TEST(past_the_caches_must_save_a_quarter)
{
    static const struct {
        uint64_t ns;
        bool streams;
    } cases[] = {{740, true}, {750, false}, {999, false}, {2000, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup();
        streamed_ns = cases[i].ns;
        expect_tries(SIZE);
        ck_assert_int_eq(carry_out(SIZE), cases[i].streams);
    }
}
END_TEST

START_TEST(small_operations_go_through_the_caches)
{
    for (int i = 0; i < 2 * DDPI_COPY_PERIOD; i++) {
        struct ddpi_copy_way way = ddpi_copy_next(&choice, DDPI_COPY_LEAST - 1);
        ck_assert(!way.streams && !way.is_timed);
    }
}
END_TEST

START_TEST(both_are_tried_again_in_time)
{
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_PERIOD - TRIED), DDPI_COPY_PERIOD - TRIED);
    cached_ns = 100;
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_PERIOD - TRIED), 0);
}
END_TEST

START_TEST(what_becomes_slow_is_tried_again_at_once)
{
    streamed_ns = 2000;
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, 10), 0);
    cached_ns = 5000;
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_TRIES), 0);
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, 10), 10);
}
END_TEST

/* A rank that is kept from running now and then proves nothing. */
START_TEST(some_slow_ones_change_nothing)
{
    expect_tries(SIZE);
    for (int i = 0; i < 50; i++) {
        streamed_ns = 50000;
        ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_TRIES - 1), DDPI_COPY_TRIES - 1);
        streamed_ns = 500;
        ck_assert(carry_out(SIZE));
    }
}
END_TEST

/* Small ones are not timed, but for the tries. */
START_TEST(only_large_ones_are_timed)
{
    for (int i = 0; i < DDPI_COPY_PERIOD; i++)
        ck_assert_int_eq(ddpi_copy_next(&choice, DDPI_COPY_TIMED - 1).is_timed, i < TRIED);
    for (int i = 0; i < DDPI_COPY_PERIOD; i++)
        ck_assert(ddpi_copy_next(&choice, DDPI_COPY_TIMED).is_timed);
}
END_TEST

START_TEST(sizes_are_apart)
{
    expect_tries(SIZE);
    streamed_ns = 2000;
    expect_tries(2 * SIZE);
    ck_assert(carry_out(SIZE) && carry_out(SIZE + SIZE / 2) && !carry_out(2 * SIZE));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("copy_choice");
    TCase *tests = tcase_create("copy_choice");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, the_faster_way_is_kept);
    tcase_add_test(tests, past_the_caches_must_save_a_quarter);
    tcase_add_test(tests, small_operations_go_through_the_caches);
    tcase_add_test(tests, both_are_tried_again_in_time);
    tcase_add_test(tests, what_becomes_slow_is_tried_again_at_once);
    tcase_add_test(tests, some_slow_ones_change_nothing);
    tcase_add_test(tests, only_large_ones_are_timed);
    tcase_add_test(tests, sizes_are_apart);
    suite_add_tcase(suite, tests);
    return suite;
}
