/*
 * test_copy_choice.c - which way copies take: each is tried, the fastest one is kept, and tried
 * again when its time has come or when it has become slow.
 */
#include "check_main.h"
#include "copy_choice.h"

#include <string.h>

enum {
    TRIED = 2 * DDPI_COPY_TRIES,
    SIZE = 1024 * 1024,
    CACHED = 1 << DDPI_COPY_CACHED,
    TWO = CACHED | 1 << DDPI_COPY_STREAMED,
    ALL = TWO | 1 << DDPI_COPY_KERNEL,
};

static struct ddpi_copy_choice choice;
static struct ddpi_copy_timed last; /* the operation before, which is noted during the next one */
static uint64_t last_ns;
static uint64_t cached_ns, streamed_ns, single_ns; /* what an operation takes now */
static enum ddpi_copy_meeting more_ns;

static void setup(void)
{
    memset(&choice, 0, sizeof choice);
    memset(&last, 0, sizeof last);
    cached_ns = 1000000;
    streamed_ns = 400000;
    single_ns = 300000;
    more_ns = DDPI_COPY_MEETING_NS;
}

/* One operation; returns its path. */
static enum ddpi_copy_path carry_out_on(size_t bytes, unsigned paths)
{
    const uint64_t ns[] = {cached_ns, streamed_ns, single_ns};
    struct ddpi_copy_way way = ddpi_copy_next(&choice, bytes, paths, more_ns);
    if (last.choice != NULL)
        ddpi_copy_note(&last, last_ns);
    last = (struct ddpi_copy_timed){way.is_timed ? &choice : NULL, bytes, way};
    last_ns = ns[way.path];
    return way.path;
}

/* One that has two paths; returns whether it streams. */
static bool carry_out(size_t bytes)
{
    return carry_out_on(bytes, TWO) == DDPI_COPY_STREAMED;
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
    static const size_t sizes[] = {DDPI_COPY_LEAST, DDPI_COPY_TIMED, SIZE, (size_t)1 << 32};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_tries(sizes[i]);
        ck_assert_uint_eq(streams_of(sizes[i], 100), 100);
    }
}
END_TEST

START_TEST(past_the_caches_must_save_half)
{
    static const struct {
        uint64_t ns;
        bool streams;
    } cases[] = {{490000, true}, {500000, false}, {999000, false}, {2000000, false}};
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
        struct ddpi_copy_way way = ddpi_copy_next(&choice, DDPI_COPY_LEAST - 1, ALL, more_ns);
        ck_assert(way.path == DDPI_COPY_CACHED && !way.is_timed);
    }
}
END_TEST

START_TEST(both_are_tried_again_in_time)
{
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_PERIOD - TRIED), DDPI_COPY_PERIOD - TRIED);
    cached_ns = 100000;
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_PERIOD - TRIED), 0);
}
END_TEST

START_TEST(what_becomes_slow_is_tried_again_at_once)
{
    streamed_ns = 2000000;
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, 10), 0);
    cached_ns = 5000000;
    ck_assert_uint_eq(streams_of(SIZE, TRIED + 2), 0);
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, 10), 10);
}
END_TEST

/* Ranks that are kept from running now and then prove nothing. */
START_TEST(some_slow_ones_change_nothing)
{
    expect_tries(SIZE);
    for (int i = 0; i < DDPI_COPY_PERIOD / (TRIED + 1) - 2; i++) {
        streamed_ns = 50000000;
        ck_assert_uint_eq(streams_of(SIZE, TRIED), TRIED);
        streamed_ns = 400000;
        ck_assert(carry_out(SIZE));
    }
}
END_TEST

/* Tries out of turn begin a period. */
START_TEST(a_period_follows_the_tries)
{
    expect_tries(SIZE);
    streamed_ns = 5000000;
    ck_assert_uint_eq(streams_of(SIZE, TRIED + 2), TRIED + 2);
    expect_tries(SIZE);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_PERIOD - TRIED), 0);
    expect_tries(SIZE);
}
END_TEST

/* What counts is the time for a byte, and a class has sizes up to twice the smallest. */
START_TEST(times_are_for_each_byte)
{
    cached_ns = 1900000;
    streamed_ns = 500000;
    ck_assert_uint_eq(streams_of(2 * SIZE - 1, DDPI_COPY_TRIES), 0);
    ck_assert_uint_eq(streams_of(SIZE, DDPI_COPY_TRIES), DDPI_COPY_TRIES);
    ck_assert(!carry_out(SIZE));
}
END_TEST

/* Small ones are not timed, but for the tries. */
START_TEST(only_large_ones_are_timed)
{
    static const size_t sizes[] = {DDPI_COPY_TIMED - 1, DDPI_COPY_TIMED};
    for (size_t k = 0; k < 2; k++)
        for (int i = 0; i < DDPI_COPY_PERIOD; i++) {
            struct ddpi_copy_way way = ddpi_copy_next(&choice, sizes[k], TWO, more_ns);
            ck_assert_int_eq(way.is_timed, k == 1 || i < TRIED);
            ck_assert_int_eq(way.is_try, i < TRIED);
        }
}
END_TEST

START_TEST(sizes_are_apart)
{
    expect_tries(SIZE);
    streamed_ns = 2000000;
    expect_tries(2 * SIZE);
    ck_assert(carry_out(SIZE) && carry_out(SIZE + SIZE / 2) && !carry_out(2 * SIZE));
}
END_TEST

/* ---- through the kernel ---- */

static void expect_path(unsigned count, unsigned paths, enum ddpi_copy_path path)
{
    for (unsigned i = 0; i < count; i++)
        ck_assert_int_eq(carry_out_on(SIZE, paths), path);
}

START_TEST(every_path_is_tried)
{
    expect_path(DDPI_COPY_TRIES, ALL, DDPI_COPY_CACHED);
    expect_path(DDPI_COPY_TRIES, ALL, DDPI_COPY_STREAMED);
    expect_path(DDPI_COPY_TRIES, ALL, DDPI_COPY_KERNEL);
    expect_path(DDPI_COPY_PERIOD - 3 * DDPI_COPY_TRIES, ALL, DDPI_COPY_KERNEL);
    expect_path(DDPI_COPY_TRIES, ALL, DDPI_COPY_CACHED);
}
END_TEST

START_TEST(the_kernel_must_save_something)
{
    static const struct {
        size_t bytes;
        uint64_t cached, streamed, single;
        enum ddpi_copy_meeting more_ns;
        enum ddpi_copy_path path;
    } cases[] = {
        {SIZE, 1000000, 900000, 968000, DDPI_COPY_MEETING_NS, DDPI_COPY_KERNEL},
        {SIZE, 1000000, 900000, 970000, DDPI_COPY_MEETING_NS, DDPI_COPY_CACHED},
        {SIZE, 1000000, 900000, 968000, DDPI_COPY_MEETING_IS_LITTLE, DDPI_COPY_KERNEL},
        {SIZE, 1000000, 900000, 970000, DDPI_COPY_MEETING_IS_LITTLE, DDPI_COPY_CACHED},
        {SIZE, 1000000, 400000, 390000, DDPI_COPY_MEETING_NS, DDPI_COPY_STREAMED},
        {SIZE, 1000000, 400000, 386000, DDPI_COPY_MEETING_NS, DDPI_COPY_KERNEL},
        {SIZE, 1000000, 100000, 2000000, DDPI_COPY_MEETING_IS_LITTLE, DDPI_COPY_STREAMED},
        /* of few bytes, one meeting more is much */
        {DDPI_COPY_LEAST, 2000, 2000, 1450, DDPI_COPY_MEETING_NS, DDPI_COPY_CACHED},
        {DDPI_COPY_LEAST, 2000, 2000, 1430, DDPI_COPY_MEETING_NS, DDPI_COPY_KERNEL},
        {DDPI_COPY_LEAST, 2000, 2000, 1930, DDPI_COPY_MEETING_IS_LITTLE, DDPI_COPY_KERNEL},
        {DDPI_COPY_LEAST, 300, 300, 0, DDPI_COPY_MEETING_NS, DDPI_COPY_CACHED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup();
        cached_ns = cases[i].cached;
        streamed_ns = cases[i].streamed;
        single_ns = cases[i].single;
        more_ns = cases[i].more_ns;
        for (int k = 0; k < 3 * DDPI_COPY_TRIES + 1; k++)
            (void)carry_out_on(cases[i].bytes, ALL);
        ck_assert_int_eq(carry_out_on(cases[i].bytes, ALL), cases[i].path);
    }
}
END_TEST

/* A rank may tell anything. */
START_TEST(times_that_are_none_are_no_trouble)
{
    for (int k = 0; k < 2 * DDPI_COPY_PERIOD; k++) {
        cached_ns = k % 3 == 0 ? UINT64_MAX - 1 : k % 3 == 1 ? UINT64_MAX / 2 : 0;
        single_ns = UINT64_MAX / 3;
        (void)carry_out_on(k % 2 == 0 ? SIZE : DDPI_COPY_LEAST, ALL);
    }
}
END_TEST

/* An operation for which the best path is not possible takes the next best, and others keep it. */
START_TEST(a_path_that_is_not_possible_is_not_taken)
{
    for (int k = 0; k < 3 * DDPI_COPY_TRIES; k++)
        (void)carry_out_on(SIZE, ALL);
    for (int k = 0; k < 10; k++) {
        expect_path(1, ALL, DDPI_COPY_KERNEL);
        expect_path(1, TWO, DDPI_COPY_STREAMED);
    }
    expect_path(DDPI_COPY_PERIOD - 3 * DDPI_COPY_TRIES - 20, TWO, DDPI_COPY_STREAMED);
    expect_path(DDPI_COPY_TRIES, TWO, DDPI_COPY_CACHED);
    expect_path(DDPI_COPY_PERIOD - DDPI_COPY_TRIES, TWO, DDPI_COPY_STREAMED);
    expect_path(3 * DDPI_COPY_PERIOD, CACHED, DDPI_COPY_CACHED);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("copy_choice");
    TCase *tests = tcase_create("copy_choice");
    tcase_add_checked_fixture(tests, setup, NULL);
    ADD_TESTS(tests, the_faster_way_is_kept, past_the_caches_must_save_half,
              small_operations_go_through_the_caches, both_are_tried_again_in_time,
              what_becomes_slow_is_tried_again_at_once, some_slow_ones_change_nothing,
              a_period_follows_the_tries, times_are_for_each_byte, only_large_ones_are_timed,
              sizes_are_apart, every_path_is_tried, the_kernel_must_save_something,
              times_that_are_none_are_no_trouble, a_path_that_is_not_possible_is_not_taken);
    suite_add_tcase(suite, tests);
    return suite;
}
