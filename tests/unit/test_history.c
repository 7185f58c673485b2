/*
 * test_history.c - the judge of histories: it lets good ones pass, and finds each kind of lie.
 */
#include "check_main.h"
#include "history.h"

#include <string.h>

#define ANY UINT64_MAX

static char why[HISTORY_WHY];

/* Key 0: set to 10, set to 20, deleted, set to 30; key 1 beside it. */
static const struct history_line lines[] = {{.version = 1, .key = 0, .value = 10},
                                            {.version = 2, .key = 1, .value = 11},
                                            {.version = 3, .key = 0, .value = 20},
                                            {.version = 4, .key = 0, .deleted = true},
                                            {.version = 5, .key = 0, .value = 30}};
enum { LINES = sizeof lines / sizeof *lines };

static struct history_call write_call(uint64_t begin, uint64_t end, unsigned key, uint64_t value,
                                      uint64_t version)
{
    return (struct history_call){.kind = HISTORY_SET,
                                 .key = key,
                                 .begin_ns = begin,
                                 .end_ns = end,
                                 .value = value,
                                 .version = version,
                                 .expected = ANY};
}

static struct history_call read_call(uint64_t begin, uint64_t end, unsigned key, uint64_t version)
{
    return (struct history_call){.kind = HISTORY_READ,
                                 .key = key,
                                 .begin_ns = begin,
                                 .end_ns = end,
                                 .version = version,
                                 .expected = ANY};
}

static bool good(struct history_call a, struct history_call b, struct history_call c)
{
    struct history_call calls[] = {a, b, c};
    return history_check(calls, 3, lines, LINES, why);
}

static void assert_wrong(struct history_call a, struct history_call b, struct history_call c,
                         const char *text)
{
    ck_assert(!good(a, b, c));
    ck_assert_msg(strstr(why, text) != NULL, "%s", why);
}

START_TEST(good_histories_pass)
{
    struct history_call delete = {
        .kind = HISTORY_DELETE, .key = 0, .begin_ns = 7, .end_ns = 8, .expected = ANY};
    ck_assert(good(write_call(1, 2, 0, 10, 1), write_call(3, 4, 1, 11, 2), read_call(5, 6, 0, 1)));
    ck_assert(good(write_call(5, 6, 0, 20, 3), delete, read_call(9, 10, 0, 0)));
    /* At the same time, anything goes that some order explains. */
    ck_assert(good(write_call(1, 10, 0, 20, 3), read_call(2, 3, 0, 1), read_call(4, 5, 0, 3)));
    ck_assert(good(write_call(1, 10, 0, 30, 5), read_call(2, 3, 0, 3), read_call(4, 5, 0, 0)));
    struct history_call swap = write_call(1, 2, 0, 20, 3);
    swap.expected = 1;
    ck_assert(good(swap, read_call(3, 4, 0, 3), read_call(5, 6, 1, 2)));
}
END_TEST

START_TEST(lies_are_found)
{
    struct history_call any = read_call(100, 101, 1, 2);
    /* a write that was acknowledged and is lost; another value; another version */
    assert_wrong(write_call(1, 2, 0, 99, 6), any, any, "not in the log");
    assert_wrong(write_call(1, 2, 0, 99, 1), any, any, "not in the log");
    assert_wrong(write_call(1, 2, 0, 10, 3), any, any, "not in the log");
    /* a read of what is not there yet, or not any more */
    assert_wrong(read_call(1, 2, 0, 3), read_call(3, 4, 0, 1), any, "never had");
    assert_wrong(read_call(1, 2, 0, 5), read_call(3, 4, 0, 0), any, "never had");
    assert_wrong(read_call(1, 2, 0, 0), read_call(3, 4, 0, 3), read_call(5, 6, 0, 1), "never had");
    /* what one key tells binds the others */
    assert_wrong(read_call(1, 2, 0, 3), read_call(3, 4, 1, 0), any, "never had");
    /* a write behind one that has a later version */
    assert_wrong(write_call(1, 2, 0, 20, 3), write_call(3, 4, 1, 11, 2), any, "had been seen");
    /* a write whose effect was seen before it was asked for */
    assert_wrong(read_call(1, 2, 0, 3), write_call(3, 4, 0, 20, 3), any, "had been seen");
    struct history_call swap = write_call(1, 2, 0, 30, 5);
    swap.expected = 3;
    assert_wrong(swap, any, any, "replaced 0, not 3");
}
END_TEST

START_TEST(what_nobody_answered_may_have_happened_or_not)
{
    struct history_call any = read_call(100, 101, 1, 2);
    struct history_call call = write_call(1, 2, 0, 77, 0);
    call.outcome = HISTORY_UNKNOWN;
    ck_assert(good(call, any, any));
    call.value = 20; /* it has, and may be late */
    ck_assert(good(read_call(3, 4, 0, 1), call, any));
    call.begin_ns = 5;
    call.end_ns = 6;
    assert_wrong(read_call(3, 4, 0, 3), call, any, "had been seen");
    call.outcome = HISTORY_NOTHING;
    assert_wrong(call, any, any, "which was not done");
}
END_TEST

START_TEST(counts_and_deletions)
{
    static const struct history_line counts[] = {{.version = 1, .key = 2, .value = 1},
                                                 {.version = 2, .key = 2, .value = 2},
                                                 {.version = 3, .key = 0, .value = 5},
                                                 {.version = 4, .key = 0, .deleted = true}};
    struct history_call calls[] = {
        {.kind = HISTORY_ADD, .key = 2, .begin_ns = 3, .end_ns = 4, .value = 2, .expected = ANY},
        {.kind = HISTORY_ADD, .key = 2, .begin_ns = 1, .end_ns = 2, .value = 1, .expected = ANY},
        {.kind = HISTORY_DELETE, .key = 0, .begin_ns = 5, .end_ns = 6, .expected = ANY}};
    ck_assert(history_check(calls, 3, counts, 4, why));
    calls[0].value = 3; /* sorted: the first add */
    ck_assert(!history_check(calls, 3, counts, 4, why));
    calls[0].value = 1;
    calls[1].kind = HISTORY_DELETE; /* two, and one in the log */
    calls[1].key = 0;
    ck_assert(!history_check(calls, 3, counts, 4, why));
    ck_assert_msg(strstr(why, "deletion") != NULL, "%s", why);
}
END_TEST

START_TEST(a_log_with_a_gap_is_found)
{
    struct history_line gap[LINES];
    memcpy(gap, lines, sizeof gap);
    gap[2].version = 4;
    ck_assert(!history_check(NULL, 0, gap, LINES, why));
    ck_assert_msg(strstr(why, "line 3") != NULL, "%s", why);
    memcpy(gap, lines, sizeof gap);
    gap[1] = gap[0];
    ck_assert(!history_check(NULL, 0, gap, LINES, why));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("history");
    TCase *tcase = tcase_create("judge");
    ADD_TESTS(tcase, good_histories_pass, lies_are_found,
              what_nobody_answered_may_have_happened_or_not, counts_and_deletions,
              a_log_with_a_gap_is_found);
    suite_add_tcase(suite, tcase);
    return suite;
}
