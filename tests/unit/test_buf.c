/*
 * test_buf.c - the byte buffer: limits, growth, consuming, moving down; little-endian integers;
 * readers of frames that are too short; the heap refusing.
 */
#include "buf.h"
#include "check_main.h"
#include "failmem.h"

#include <string.h>

/* The unread bytes of @buf are @count numbers that count up from @first. */
static void assert_counts_up(const struct ddpi_buf *buf, unsigned first, size_t count)
{
    ck_assert_uint_eq(ddpi_buf_len(buf), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(ddpi_buf_head(buf)[i], (uint8_t)(first + i));
}

static void append_counting(struct ddpi_buf *buf, unsigned first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ck_assert(ddpi_buf_put_u8(buf, (uint8_t)(first + i)));
}

START_TEST(bytes_come_out_as_they_went_in)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1000);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 0);
    ck_assert(ddpi_buf_append(&buf, "hello ", 6) && ddpi_buf_append(&buf, "world", 5));
    ck_assert(ddpi_buf_append(&buf, NULL, 0));
    ck_assert_uint_eq(ddpi_buf_len(&buf), 11);
    ddpi_buf_consume(&buf, 6);
    ck_assert_mem_eq(ddpi_buf_head(&buf), "world", 5);
    ddpi_buf_consume(&buf, 5);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 0);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(the_limit_holds_to_the_byte)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 10);
    ck_assert(ddpi_buf_append(&buf, "0123456789", 10));
    ck_assert(!ddpi_buf_put_u8(&buf, 0));
    ck_assert_ptr_null(ddpi_buf_reserve(&buf, 1));
    ck_assert_ptr_nonnull(ddpi_buf_reserve(&buf, 0));
    ck_assert_ptr_null(ddpi_buf_reserve(&buf, SIZE_MAX));
    ck_assert_uint_eq(ddpi_buf_len(&buf), 10);
    ck_assert_mem_eq(ddpi_buf_head(&buf), "0123456789", 10);
    ddpi_buf_consume(&buf, 2);
    ck_assert(!ddpi_buf_append(&buf, "abc", 3));
    ck_assert(ddpi_buf_append(&buf, "ab", 2));
    ck_assert_mem_eq(ddpi_buf_head(&buf), "23456789ab", 10);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(a_limit_of_zero_and_one_without_end)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 0);
    ck_assert(!ddpi_buf_put_u8(&buf, 1));
    ck_assert_ptr_nonnull(ddpi_buf_reserve(&buf, 0));
    ddpi_buf_finish(&buf);
    ddpi_buf_init(&buf, SIZE_MAX);
    ck_assert_ptr_null(ddpi_buf_reserve(&buf, SIZE_MAX));
    ck_assert(ddpi_buf_put_u8(&buf, 1));
    ck_assert_ptr_null(ddpi_buf_reserve(&buf, SIZE_MAX - 1));
    assert_counts_up(&buf, 1, 1);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(growth_keeps_the_bytes)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 100000);
    append_counting(&buf, 0, 5000);
    assert_counts_up(&buf, 0, 5000);
    ddpi_buf_consume(&buf, 1000);
    append_counting(&buf, 5000, 20000);
    assert_counts_up(&buf, 1000, 24000);
    ddpi_buf_finish(&buf);
}
END_TEST

/* As a connection uses it: a little in, a little out, for long. It must not grow without end. */
START_TEST(room_in_front_is_used_again)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 200);
    unsigned in = 0, out = 0;
    append_counting(&buf, in, 150);
    in += 150;
    for (int round = 0; round < 100; round++) {
        append_counting(&buf, in, 37);
        in += 37;
        ddpi_buf_consume(&buf, 37);
        out += 37;
        assert_counts_up(&buf, out, 150);
    }
    ck_assert_uint_le(buf.size, 512);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(what_was_appended_can_be_taken_back)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 100);
    append_counting(&buf, 0, 50);
    ddpi_buf_consume(&buf, 10);
    ddpi_buf_truncate(&buf, 30);
    assert_counts_up(&buf, 10, 30);
    append_counting(&buf, 40, 20);
    assert_counts_up(&buf, 10, 50);
    ddpi_buf_truncate(&buf, 0);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 0);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(reserved_bytes_count_once_added)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1000);
    uint8_t *room = ddpi_buf_reserve(&buf, 600);
    ck_assert_ptr_nonnull(room);
    memset(room, 7, 600);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 0);
    ddpi_buf_added(&buf, 3);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 3);
    ck_assert_uint_eq(ddpi_buf_head(&buf)[2], 7);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(a_large_buffer_is_given_back_when_empty)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1 << 20);
    ck_assert_ptr_nonnull(ddpi_buf_reserve(&buf, 1 << 20));
    ddpi_buf_added(&buf, 1 << 20);
    ddpi_buf_consume(&buf, (1 << 20) - 1);
    ck_assert_ptr_nonnull(buf.data);
    ddpi_buf_consume(&buf, 1);
    ck_assert_ptr_null(buf.data);
    ck_assert(ddpi_buf_append(&buf, "again", 5));
    ck_assert_mem_eq(ddpi_buf_head(&buf), "again", 5);
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(finish_leaves_an_empty_buffer)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 5);
    ck_assert(ddpi_buf_put_u8(&buf, 1));
    ddpi_buf_finish(&buf);
    ddpi_buf_finish(&buf);
    ck_assert_uint_eq(ddpi_buf_len(&buf), 0);
    ck_assert(!ddpi_buf_append(&buf, "123456", 6) && ddpi_buf_append(&buf, "12345", 5));
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(integers_are_little_endian)
{
    static const uint8_t wire[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                   0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 100);
    ck_assert(ddpi_buf_put_u8(&buf, 0x01) && ddpi_buf_put_u16(&buf, 0x0203) &&
              ddpi_buf_put_u32(&buf, 0x04050607) && ddpi_buf_put_u64(&buf, 0x08090a0b0c0d0e0f));
    ck_assert_uint_eq(ddpi_buf_len(&buf), sizeof wire);
    ck_assert_mem_eq(ddpi_buf_head(&buf), wire, sizeof wire);

    struct ddpi_rd rd = ddpi_rd_of(wire, sizeof wire);
    ck_assert_uint_eq(ddpi_rd_u8(&rd), 0x01);
    ck_assert_uint_eq(ddpi_rd_u16(&rd), 0x0203);
    ck_assert_uint_eq(ddpi_rd_u32(&rd), 0x04050607);
    ck_assert(!ddpi_rd_done(&rd));
    ck_assert(ddpi_rd_u64(&rd) == 0x08090a0b0c0d0e0f);
    ck_assert(ddpi_rd_done(&rd));
    ddpi_buf_finish(&buf);
}
END_TEST

START_TEST(extreme_values_survive)
{
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63};
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1000);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        ck_assert(ddpi_buf_put_u64(&buf, values[i]) &&
                  ddpi_buf_put_u32(&buf, (uint32_t)values[i]) &&
                  ddpi_buf_put_u16(&buf, (uint16_t)values[i]));
    struct ddpi_rd rd = ddpi_rd_of(ddpi_buf_head(&buf), ddpi_buf_len(&buf));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        ck_assert(ddpi_rd_u64(&rd) == values[i]);
        ck_assert_uint_eq(ddpi_rd_u32(&rd), (uint32_t)values[i]);
        ck_assert_uint_eq(ddpi_rd_u16(&rd), (uint16_t)values[i]);
    }
    ck_assert(ddpi_rd_done(&rd));
    ddpi_buf_finish(&buf);
}
END_TEST

/* A frame of 1 + 2 + 4 + 8 + 5 bytes, cut after _i of them: nothing is read beyond its end, which
 * the address sanitizer watches, and only the whole frame is done. */
START_TEST(a_cut_frame_is_never_done)
{
    size_t len = (size_t)_i;
    struct ddpi_buf frame;
    ddpi_buf_init(&frame, 64);
    append_counting(&frame, 1, len);
    struct ddpi_rd rd = ddpi_rd_of(ddpi_buf_head(&frame), len);
    ddpi_rd_u8(&rd);
    ddpi_rd_u16(&rd);
    ddpi_rd_u32(&rd);
    ddpi_rd_u64(&rd);
    const uint8_t *bytes = ddpi_rd_bytes(&rd, 5);
    ck_assert(ddpi_rd_done(&rd) == (len == 20));
    ck_assert(rd.failed == (len < 20));
    ck_assert((bytes != NULL) == (len >= 20));
    ddpi_buf_finish(&frame);
}
END_TEST

START_TEST(a_failed_reader_stays_failed)
{
    static const uint8_t wire[] = {1, 2, 3};
    struct ddpi_rd rd = ddpi_rd_of(wire, sizeof wire);
    ck_assert_uint_eq(ddpi_rd_u32(&rd), 0);
    ck_assert(rd.failed);
    ck_assert_uint_eq(ddpi_rd_u8(&rd), 0);
    ck_assert_ptr_null(ddpi_rd_bytes(&rd, 0));
    ck_assert(!ddpi_rd_done(&rd));
    rd = ddpi_rd_of(wire, sizeof wire);
    ck_assert_ptr_null(ddpi_rd_bytes(&rd, SIZE_MAX));
    rd = ddpi_rd_of(wire, sizeof wire);
    ck_assert_ptr_eq(ddpi_rd_bytes(&rd, 3), wire);
    ck_assert_ptr_nonnull(ddpi_rd_bytes(&rd, 0));
    ck_assert(ddpi_rd_done(&rd));
}
END_TEST

START_TEST(a_refusing_heap_changes_nothing)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 100000);
    failmem_start(0);
    ck_assert(!ddpi_buf_append(&buf, "x", 1));
    ck_assert(failmem_stop());
    append_counting(&buf, 0, 200);
    ddpi_buf_consume(&buf, 100);
    append_counting(&buf, 200, 100);
    failmem_start(0);
    ck_assert_ptr_null(ddpi_buf_reserve(&buf, 5000));
    ck_assert(failmem_stop());
    assert_counts_up(&buf, 100, 200);
    append_counting(&buf, 300, 5000);
    assert_counts_up(&buf, 100, 5200);
    ddpi_buf_finish(&buf);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("buf");
    TCase *bytes = tcase_create("bytes");
    ADD_TESTS(bytes, bytes_come_out_as_they_went_in, the_limit_holds_to_the_byte,
              a_limit_of_zero_and_one_without_end, growth_keeps_the_bytes,
              room_in_front_is_used_again, what_was_appended_can_be_taken_back,
              reserved_bytes_count_once_added, a_large_buffer_is_given_back_when_empty,
              finish_leaves_an_empty_buffer, a_refusing_heap_changes_nothing);
    suite_add_tcase(suite, bytes);
    TCase *wire = tcase_create("wire");
    tcase_add_test(wire, integers_are_little_endian);
    tcase_add_test(wire, extreme_values_survive);
    tcase_add_loop_test(wire, a_cut_frame_is_never_done, 0, 22);
    tcase_add_test(wire, a_failed_reader_stays_failed);
    suite_add_tcase(suite, wire);
    return suite;
}
