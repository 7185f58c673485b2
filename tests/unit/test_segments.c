/*
 * test_segments.c - lists of buffers as one array: every way to cut that array has each byte once,
 * in order, and lists that cannot be are refused.
 */
#include "check_main.h"
#include "segments.h"

#include <string.h>

enum { BUFFERS = 6, SIZE = 2, TOTAL = 3 + 1 + 7 };

static uint16_t space[64], results[64];

/* With empty buffers at the start, inside and at the end, in no order of addresses. */
static const struct ddp_buffer list[BUFFERS] = {
    {NULL, NULL, 0},
    {space + 20, results + 20, 3},
    {space, results, 0},
    {space + 40, space + 40, 1},
    {space + 2, results + 2, 7},
    {NULL, NULL, 0},
};

static struct ddpi_segments segments_of(const struct ddp_buffer *buffers, size_t nbuffers)
{
    return (struct ddpi_segments){.buffers = buffers, .nbuffers = nbuffers, .element_size = SIZE};
}

static void fill(void)
{
    for (unsigned i = 0; i < 64; i++)
        space[i] = (uint16_t)(257 * i + 3);
    memset(results, 0, sizeof results);
}

/* The bytes that are sent, by the rule itself. */
static void put_expected(uint8_t *bytes)
{
    for (size_t i = 0; i < BUFFERS; bytes += list[i].count * SIZE, i++)
        if (list[i].count > 0)
            memcpy(bytes, list[i].send, list[i].count * SIZE);
}

START_TEST(stretches_have_each_byte_once)
{
    struct ddpi_segments segments = segments_of(list, BUFFERS);
    size_t most = (size_t)_i;
    uint8_t expected[TOTAL * SIZE], seen[TOTAL * SIZE];
    struct ddpi_spot spot = {0};
    struct ddpi_segment segment;
    size_t done = 0;
    fill();
    put_expected(expected);
    while (ddpi_segments_next(&segments, &spot, most, &segment)) {
        ck_assert_uint_gt(segment.len, 0);
        ck_assert_uint_le(segment.len, most);
        ck_assert_uint_le(done + segment.len, sizeof seen);
        memcpy(seen + done, segment.send, segment.len);
        done += segment.len;
    }
    ck_assert_uint_eq(done, sizeof seen);
    ck_assert_mem_eq(seen, expected, sizeof seen);
}
END_TEST

START_TEST(a_skip_comes_to_the_same_byte)
{
    struct ddpi_segments segments = segments_of(list, BUFFERS);
    uint8_t expected[TOTAL * SIZE];
    struct ddpi_segment segment;
    fill();
    put_expected(expected);
    for (size_t len = 0; len < sizeof expected; len++) {
        struct ddpi_spot spot = {0};
        ddpi_segments_skip(&segments, &spot, len);
        ck_assert(ddpi_segments_next(&segments, &spot, 1, &segment));
        ck_assert_uint_eq(*segment.send, expected[len]);
    }
    struct ddpi_spot spot = {0};
    ddpi_segments_skip(&segments, &spot, sizeof expected + 1);
    ck_assert(!ddpi_segments_next(&segments, &spot, 1, &segment));
}
END_TEST

START_TEST(what_is_packed_is_unpacked)
{
    struct ddpi_segments segments = segments_of(list, BUFFERS);
    uint8_t expected[TOTAL * SIZE], packed[TOTAL * SIZE];
    fill();
    put_expected(expected);
    ddpi_segments_pack(&segments, packed);
    ck_assert_mem_eq(packed, expected, sizeof packed);
    ddpi_segments_unpack(&segments, packed);
    ck_assert_mem_eq(results + 20, space + 20, 3 * SIZE);
    ck_assert_mem_eq(results + 2, space + 2, 7 * SIZE);
    ck_assert_uint_eq(results[1], 0);
    ck_assert_uint_eq(results[9], 0);
    segments.in_place = true;
    ddpi_segments_pack(&segments, packed);
    ck_assert_mem_eq(packed, expected, sizeof packed);
}
END_TEST

START_TEST(lengths_make_the_digest)
{
    const struct ddp_buffer a[] = {{space, results, 3}, {space + 9, results + 9, 5}};
    const struct ddp_buffer b[] = {{space, results, 5}, {space + 9, results + 9, 3}};
    const struct ddp_buffer c[] = {{space + 1, space + 1, 3}, {results, results, 5}};
    struct ddpi_segments one = segments_of(a, 2), other = segments_of(b, 2);
    struct ddpi_segments same = segments_of(c, 2), shorter = segments_of(a, 1);
    struct ddpi_segments none = segments_of(a, 0);
    ck_assert_uint_ne(ddpi_segments_digest(&one), ddpi_segments_digest(&other));
    ck_assert_uint_eq(ddpi_segments_digest(&one), ddpi_segments_digest(&same));
    ck_assert_uint_ne(ddpi_segments_digest(&one), ddpi_segments_digest(&shorter));
    ck_assert_uint_gt(ddpi_segments_digest(&none), 1);
}
END_TEST

static void expect_refused(const struct ddp_buffer *buffers, size_t nbuffers, const char *why)
{
    struct ddpi_segments segments = segments_of(buffers, nbuffers);
    struct ddp_error error;
    size_t count;
    ck_assert_int_eq(ddpi_segments_check(&segments, &count, &error), DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, why) != NULL, "%s", error.msg);
}

START_TEST(lists_are_checked)
{
    const struct ddp_buffer missing[] = {{space, results, 3}, {NULL, results + 9, 5}};
    const struct ddp_buffer many[] = {{space, results, SIZE_MAX / 4},
                                      {space, results, SIZE_MAX / 4}};
    const struct ddp_buffer shifted[] = {{space, space + 1, 3}};
    const struct ddp_buffer twice[] = {
        {space, results, 4}, {space + 30, results + 30, 1}, {space + 9, results + 3, 5}};
    struct ddpi_segments segments = segments_of(list, BUFFERS), none = segments_of(NULL, 0);
    struct ddp_error error;
    size_t count;
    expect_refused(missing, 2, "buffer 1 of 2 has 5 elements, but its send is NULL");
    expect_refused(many, 2, "too many");
    expect_refused(shifted, 1, "buffers 0 and 0 of 1 overlap");
    expect_refused(twice, 3, "buffers 0 and 2 of 3 overlap");
    ck_assert_int_eq(ddpi_segments_check(&segments, &count, &error), DDP_OK);
    ck_assert_uint_eq(count, TOTAL);
    ck_assert_int_eq(ddpi_segments_check(&none, &count, &error), DDP_OK);
    ck_assert_uint_eq(count, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("segments");
    TCase *tcase = tcase_create("segments");
    tcase_add_loop_test(tcase, stretches_have_each_byte_once, 1, TOTAL * SIZE + 2);
    ADD_TESTS(tcase, a_skip_comes_to_the_same_byte, what_is_packed_is_unpacked,
              lengths_make_the_digest, lists_are_checked);
    suite_add_tcase(suite, tcase);
    return suite;
}
