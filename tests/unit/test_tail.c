/*
 * test_tail.c - the ring keeps exactly the last bytes, for any sizes of writes.
 */
#include "check_main.h"
#include "failmem.h"
#include "tail.h"

#include <string.h>

/* Byte number @i of the stream that all tests feed. */
static char byte_at(size_t i)
{
    return (char)('a' + i % 23);
}

static void add_bytes(struct tail *tail, size_t from, size_t len)
{
    static char bytes[3 * TAIL_SIZE];
    ck_assert_uint_le(len, sizeof bytes);
    for (size_t i = 0; i < len; i++)
        bytes[i] = byte_at(from + i);
    tail_add(tail, bytes, len);
}

static void holds_the_end_of(const struct tail *tail, size_t total)
{
    static char out[TAIL_SIZE];
    size_t expected = total < TAIL_SIZE ? total : TAIL_SIZE;
    ck_assert_uint_eq(tail_copy(tail, out), expected);
    for (size_t i = 0; i < expected; i++)
        if (out[i] != byte_at(total - expected + i))
            ck_abort_msg("byte %zu of the tail of %zu is wrong", i, total);
}

START_TEST(pieces_of_every_size_leave_the_last_bytes)
{
    static const size_t sizes[] = {
        1, 7, 1000, TAIL_SIZE - 1, TAIL_SIZE, TAIL_SIZE + 1, 3 * TAIL_SIZE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct tail tail = {0};
        size_t total = 0;
        size_t rounds = sizes[i] < 100 ? 2 * TAIL_SIZE / sizes[i] : 40;
        for (size_t r = 0; r < rounds; r++) {
            add_bytes(&tail, total, sizes[i]);
            total += sizes[i];
            if (sizes[i] >= 1000 || r % 512 == 0)
                holds_the_end_of(&tail, total);
        }
        holds_the_end_of(&tail, total);
        tail_clear(&tail);
    }
}
END_TEST

START_TEST(pieces_of_mixed_sizes_around_the_edge)
{
    for (size_t first = TAIL_SIZE - 3; first <= TAIL_SIZE + 3; first++)
        for (size_t second = 0; second <= 5; second++) {
            struct tail tail = {0};
            add_bytes(&tail, 0, first);
            add_bytes(&tail, first, second);
            holds_the_end_of(&tail, first + second);
            tail_clear(&tail);
        }
}
END_TEST

START_TEST(empty_and_cleared_tails_hold_nothing)
{
    char out[TAIL_SIZE];
    struct tail tail = {0};
    ck_assert_uint_eq(tail_copy(&tail, out), 0);
    tail_add(&tail, "", 0);
    ck_assert_uint_eq(tail_copy(&tail, out), 0);
    add_bytes(&tail, 0, 10);
    tail_clear(&tail);
    ck_assert_uint_eq(tail_copy(&tail, out), 0);
    add_bytes(&tail, 0, 3);
    holds_the_end_of(&tail, 3);
    tail_clear(&tail);
    tail_clear(&tail);
}
END_TEST

START_TEST(without_memory_the_tail_is_empty)
{
    char out[TAIL_SIZE];
    struct tail tail = {0};
    failmem_start(0);
    tail_add(&tail, "lost", 4);
    ck_assert(failmem_stop());
    ck_assert_uint_eq(tail_copy(&tail, out), 0);
    tail_add(&tail, "kept", 4);
    ck_assert_uint_eq(tail_copy(&tail, out), 4);
    ck_assert_mem_eq(out, "kept", 4);
    tail_clear(&tail);
}
END_TEST

static size_t last(const char *text, unsigned lines)
{
    return tail_last_lines(text, strlen(text), lines);
}

START_TEST(last_lines_begin_behind_a_newline)
{
    ck_assert_uint_eq(last("", 3), 0);
    ck_assert_uint_eq(last("\n", 1), 0);
    ck_assert_uint_eq(last("one", 1), 0);
    ck_assert_uint_eq(last("one\n", 1), 0);
    ck_assert_uint_eq(last("one\ntwo\n", 1), 4);
    ck_assert_uint_eq(last("one\ntwo", 1), 4);
    ck_assert_uint_eq(last("one\ntwo\n", 2), 0);
    ck_assert_uint_eq(last("one\ntwo\nthree", 2), 4);
    ck_assert_uint_eq(last("one\n\n", 1), 4);
    ck_assert_uint_eq(last("one\ntwo\n", 100), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tail");
    TCase *tcase = tcase_create("tail");
    ADD_TESTS(tcase, pieces_of_every_size_leave_the_last_bytes,
              pieces_of_mixed_sizes_around_the_edge, empty_and_cleared_tails_hold_nothing,
              without_memory_the_tail_is_empty, last_lines_begin_behind_a_newline);
    suite_add_tcase(suite, tcase);
    return suite;
}
