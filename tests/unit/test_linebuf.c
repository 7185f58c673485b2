/*
 * test_linebuf.c - lines are the same however the stream is cut, at every size and without memory.
 */
#include "check_main.h"
#include "failmem.h"
#include "linebuf.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 32 };

/* The output: every byte, and the end of each line. */
struct sink {
    char text[256];
    size_t len;
    size_t ends[MAX_LINES];
    unsigned lines;
};

static void collect(void *ctx, const char *text, size_t len)
{
    struct sink *sink = ctx;
    ck_assert_uint_gt(len, 0);
    ck_assert_uint_le(sink->len + len, sizeof sink->text);
    ck_assert_uint_lt(sink->lines, MAX_LINES);
    memcpy(sink->text + sink->len, text, len);
    sink->len += len;
    sink->ends[sink->lines++] = sink->len;
}

/* Feed @text in pieces: bit i of @cuts is a cut after byte i. */
static struct sink feed_cut(const char *text, size_t len, unsigned cuts, bool split_at_cr)
{
    struct linebuf lines;
    struct sink sink = {.len = 0};
    linebuf_init(&lines, split_at_cr);
    size_t from = 0;
    for (size_t i = 0; i < len; i++)
        if (i + 1 == len || (cuts >> i & 1) != 0) {
            linebuf_feed(&lines, text + from, i + 1 - from, 0, collect, &sink);
            from = i + 1;
        }
    linebuf_flush(&lines, collect, &sink);
    linebuf_finish(&lines);
    return sink;
}

/* Every way to cut @text gives @expected: its lines with '|' between them. */
static void every_cut_gives(const char *text, bool split_at_cr, const char *expected)
{
    size_t len = strlen(text);
    ck_assert_uint_ge(len, 1);
    for (unsigned cuts = 0; cuts < 1u << (len - 1); cuts++) {
        struct sink sink = feed_cut(text, len, cuts, split_at_cr);
        char shown[512];
        size_t used = 0, from = 0;
        for (unsigned i = 0; i < sink.lines; i++) {
            if (i > 0)
                shown[used++] = '|';
            memcpy(shown + used, sink.text + from, sink.ends[i] - from);
            used += sink.ends[i] - from;
            from = sink.ends[i];
        }
        shown[used] = '\0';
        ck_assert_str_eq(shown, expected);
    }
}

START_TEST(any_cut_gives_the_same_lines)
{
    every_cut_gives("one\ntwo\n\nlast", false, "one\n|two\n|\n|last");
    every_cut_gives("a\n", false, "a\n");
    every_cut_gives("\n\n\n", false, "\n|\n|\n");
    every_cut_gives("no end", false, "no end");
}
END_TEST

START_TEST(carriage_returns_are_text_in_a_file)
{
    every_cut_gives("1%\r2%\r\nx\r", false, "1%\r2%\r\n|x\r");
}
END_TEST

START_TEST(carriage_returns_end_lines_on_a_terminal)
{
    every_cut_gives("1%\r2%\r\nx\ry", true, "1%\r|2%\r\n|x\r|y");
    every_cut_gives("a\r\r\nb\r", true, "a\r|\r\n|b\r");
    every_cut_gives("\r\r\r\n\n\r", true, "\r|\r|\r\n|\n|\r");
}
END_TEST

START_TEST(nul_bytes_are_bytes)
{
    static const char text[] = "a\0b\n\0\nc\0";
    for (unsigned cuts = 0; cuts < 1u << (sizeof text - 2); cuts++) {
        struct sink sink = feed_cut(text, sizeof text - 1, cuts, false);
        ck_assert_uint_eq(sink.lines, 3);
        ck_assert_uint_eq(sink.ends[0], 4);
        ck_assert_uint_eq(sink.ends[1], 6);
        ck_assert_mem_eq(sink.text, text, sizeof text - 1);
    }
}
END_TEST

START_TEST(an_empty_piece_changes_nothing)
{
    struct linebuf lines;
    struct sink sink = {.len = 0};
    linebuf_init(&lines, true);
    linebuf_feed(&lines, "", 0, 0, collect, &sink);
    linebuf_feed(&lines, "x\r", 2, 0, collect, &sink);
    linebuf_feed(&lines, "", 0, 0, collect, &sink);
    ck_assert_uint_eq(sink.lines, 0);
    linebuf_feed(&lines, "\n", 1, 0, collect, &sink);
    ck_assert_uint_eq(sink.lines, 1);
    linebuf_flush(&lines, collect, &sink);
    ck_assert_uint_eq(sink.lines, 1);
    linebuf_finish(&lines);
}
END_TEST

struct totals {
    size_t bytes;
    size_t largest;
    unsigned pieces;
    char last;
};

static void count(void *ctx, const char *text, size_t len)
{
    struct totals *totals = ctx;
    totals->bytes += len;
    totals->pieces++;
    totals->largest = len > totals->largest ? len : totals->largest;
    totals->last = text[len - 1];
}

START_TEST(a_line_beyond_the_limit_comes_in_pieces)
{
    enum { CHUNK = 1024 * 1024 };
    struct linebuf lines;
    struct totals totals = {0};
    char *chunk = calloc(1, CHUNK);
    ck_assert_ptr_nonnull(chunk);
    memset(chunk, 'x', CHUNK);
    linebuf_init(&lines, false);
    for (size_t fed = 0; fed < LINEBUF_LINE_MAX; fed += CHUNK)
        linebuf_feed(&lines, chunk, CHUNK, 0, count, &totals);
    ck_assert_uint_eq(totals.pieces, 0); /* exactly the limit is still kept whole */
    linebuf_feed(&lines, "y\n", 2, 0, count, &totals);
    ck_assert_uint_eq(totals.pieces, 2);
    ck_assert_uint_eq(totals.bytes, (size_t)LINEBUF_LINE_MAX + 2);
    ck_assert_uint_eq(totals.largest, LINEBUF_LINE_MAX);
    ck_assert_int_eq(totals.last, '\n');
    linebuf_finish(&lines);
    free(chunk);
}
END_TEST

START_TEST(without_memory_lines_are_torn_but_not_lost)
{
    static const char text[] = "first half, second half\nnext\nend";
    for (unsigned successes = 0;; successes++) {
        struct linebuf lines;
        struct sink sink = {.len = 0};
        linebuf_init(&lines, false);
        failmem_start(successes);
        for (size_t i = 0; i < sizeof text - 1; i += 3) {
            size_t left = sizeof text - 1 - i;
            linebuf_feed(&lines, text + i, left < 3 ? left : 3, 0, collect, &sink);
        }
        linebuf_flush(&lines, collect, &sink);
        bool failed = failmem_stop();
        linebuf_finish(&lines);
        ck_assert_uint_eq(sink.len, sizeof text - 1);
        ck_assert_mem_eq(sink.text, text, sizeof text - 1);
        if (!failed)
            break;
    }
}
END_TEST

/* The line grows until there is no memory for more of it: the first part is not lost. */
START_TEST(a_growing_line_survives_a_refused_allocation)
{
    struct linebuf lines;
    struct totals totals = {0};
    char chunk[200];
    memset(chunk, 'x', sizeof chunk);
    linebuf_init(&lines, false);
    linebuf_feed(&lines, chunk, sizeof chunk, 0, count, &totals);
    failmem_start(0);
    linebuf_feed(&lines, chunk, sizeof chunk, 0, count, &totals);
    ck_assert(failmem_stop());
    linebuf_flush(&lines, count, &totals);
    ck_assert_uint_eq(totals.bytes, 2 * sizeof chunk);
    linebuf_finish(&lines);
}
END_TEST

/* The time of a partial line is that of its first byte, whatever arrived later. */
START_TEST(what_is_kept_has_an_age)
{
    struct linebuf lines;
    struct sink sink = {.len = 0};
    uint64_t since;
    linebuf_init(&lines, false);
    ck_assert(!linebuf_holds(&lines, &since));
    linebuf_feed(&lines, "whole\n", 6, 5, collect, &sink);
    ck_assert(!linebuf_holds(&lines, &since));
    linebuf_feed(&lines, "na", 2, 10, collect, &sink);
    linebuf_feed(&lines, "me", 2, 20, collect, &sink);
    linebuf_feed(&lines, "", 0, 25, collect, &sink);
    ck_assert(linebuf_holds(&lines, &since));
    ck_assert_uint_eq(since, 10);
    linebuf_feed(&lines, "\nnext", 5, 30, collect, &sink);
    ck_assert(linebuf_holds(&lines, &since));
    ck_assert_uint_eq(since, 30);
    linebuf_flush(&lines, collect, &sink);
    ck_assert(!linebuf_holds(&lines, &since));
    linebuf_feed(&lines, "?", 1, 40, collect, &sink);
    ck_assert(linebuf_holds(&lines, &since));
    ck_assert_uint_eq(since, 40);
    linebuf_finish(&lines);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("linebuf");
    TCase *tcase = tcase_create("linebuf");
    ADD_TESTS(tcase, any_cut_gives_the_same_lines, carriage_returns_are_text_in_a_file,
              carriage_returns_end_lines_on_a_terminal, nul_bytes_are_bytes,
              an_empty_piece_changes_nothing, what_is_kept_has_an_age,
              a_line_beyond_the_limit_comes_in_pieces, without_memory_lines_are_torn_but_not_lost,
              a_growing_line_survives_a_refused_allocation);
    suite_add_tcase(suite, tcase);
    return suite;
}
