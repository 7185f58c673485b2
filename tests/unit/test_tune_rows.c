/*
 * test_tune_rows.c - from times to a table of algorithms: which one is chosen, where rows end, and
 * for random times that the table chooses for every size what was chosen for it.
 */
#include "arena.h"
#include "check_main.h"
#include "tune_rows.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)TUNE_RANKS <= (int)DDPI_ARENA_RANKS, "ranks of one machine meet in one arena");

static const struct tune_place shared = {4, 1}, nodes = {4, 2}, apart = {4, 4};
static const struct tune_place places[] = {{2, 1}, {4, 1}, {256, 1}, {2, 2},   {4, 2},
                                           {5, 2}, {4, 4}, {8, 3},   {256, 7}, {256, 256}};
enum { PLACES = sizeof places / sizeof *places };

/* Times of ring, direct, doubling, hierarchical. */
static struct tune_size size_of(uint64_t bytes, double ring, double direct, double doubling,
                                double hierarchical)
{
    return (struct tune_size){.bytes = bytes,
                              .us = {[DDP_ALGORITHM_RING] = ring,
                                     [DDP_ALGORITHM_DIRECT] = direct,
                                     [DDP_ALGORITHM_DOUBLING] = doubling,
                                     [DDP_ALGORITHM_HIERARCHICAL] = hierarchical}};
}

/* The lines of the table of @count sizes. */
static const char *lines_of(const struct tune_place *place, const struct tune_size *sizes,
                            unsigned count, char text[DDPI_SELECTION_ROWS * TUNE_ROW_TEXT])
{
    struct ddpi_selection_table table;
    text[0] = '\0';
    tune_make_table(place, sizes, count, &table);
    for (uint32_t i = 0; i < table.count; i++)
        tune_print_row(&table.rows[i], text + strlen(text));
    return text;
}

START_TEST(only_what_is_possible_is_measured)
{
    static const struct {
        const struct tune_place *place;
        uint64_t bytes;
        bool possible[TUNE_ALGORITHMS]; /* auto, ring, direct, doubling, hierarchical */
    } cases[] = {
        {&shared, 8, {false, true, true, true, false}},
        {&shared, 512 << 10, {false, true, true, true, false}},
        {&shared, (512 << 10) + 4, {false, true, true, false, false}},
        {&nodes, 8, {false, true, true, true, true}},
        {&nodes, 1 << 30, {false, true, true, false, true}},
        {&apart, 8, {false, true, true, true, false}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned k = 0; k < TUNE_ALGORITHMS; k++)
            ck_assert_msg(tune_possible(cases[i].place, cases[i].bytes, (ddp_algorithm)k) ==
                              cases[i].possible[k],
                          "case %zu, %s", i, tune_algorithm_name((ddp_algorithm)k));
}
END_TEST

START_TEST(what_is_built_in_stays_unless_another_is_clearly_faster)
{
    static const struct {
        double direct, ring;
        ddp_algorithm fastest, chosen;
    } cases[] = {
        {1.0, 2.0, DDP_ALGORITHM_DIRECT, DDP_ALGORITHM_DIRECT},
        {1.0, 1.0, DDP_ALGORITHM_RING, DDP_ALGORITHM_DIRECT},
        {1.04, 1.0, DDP_ALGORITHM_RING, DDP_ALGORITHM_DIRECT},
        {1.05, 1.0, DDP_ALGORITHM_RING, DDP_ALGORITHM_DIRECT},
        {1.06, 1.0, DDP_ALGORITHM_RING, DDP_ALGORITHM_RING},
        {1e9, 1e-3, DDP_ALGORITHM_RING, DDP_ALGORITHM_RING},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tune_size size = size_of(64, cases[i].ring, cases[i].direct, 0, 0);
        ck_assert_int_eq(tune_fastest(&size), cases[i].fastest);
        ck_assert_int_eq(tune_choose(&shared, &size), cases[i].chosen);
    }
}
END_TEST

static const struct {
    const struct tune_place *place;
    struct tune_size sizes[4];
    const char *lines;
} tables[] = {
    /* what is built in is best everywhere: the rows are those that are built in */
    {&shared,
     {{8, {0, 2, 1, 2, 0}}, {64, {0, 2, 1, 2, 0}}},
     "all_reduce 4 1 9223372036854775807 direct\n"},
    {&nodes,
     {{8, {0, 2, 2, 1, 2}}, {1 << 20, {0, 2, 2, 0, 1}}},
     "all_reduce 4 2 65536 doubling\nall_reduce 4 2 9223372036854775807 hierarchical\n"},
    {&nodes,
     {{8, {0, 2, 2, 1, 2}}},
     "all_reduce 4 2 65536 doubling\nall_reduce 4 2 9223372036854775807 hierarchical\n"},
    {&apart,
     {{8, {0, 2, 2, 1, 0}}, {4096, {0, 2, 2, 1, 0}}},
     "all_reduce 4 4 131072 doubling\nall_reduce 4 4 9223372036854775807 ring\n"},
    /* another one is best at the least, at the most, in the middle, and everywhere */
    {&shared,
     {{8, {0, 1, 9, 2, 0}}, {64, {0, 2, 1, 2, 0}}, {512, {0, 2, 1, 2, 0}}},
     "all_reduce 4 1 8 ring\nall_reduce 4 1 9223372036854775807 direct\n"},
    {&shared,
     {{8, {0, 2, 1, 2, 0}}, {64, {0, 2, 1, 2, 0}}, {512, {0, 1, 2, 2, 0}}},
     "all_reduce 4 1 64 direct\nall_reduce 4 1 9223372036854775807 ring\n"},
    {&shared,
     {{8, {0, 2, 1, 2, 0}}, {64, {0, 2, 3, 1, 0}}, {512, {0, 3, 4, 2, 0}}, {4096, {0, 2, 1, 2, 0}}},
     "all_reduce 4 1 8 direct\nall_reduce 4 1 512 doubling\n"
     "all_reduce 4 1 9223372036854775807 direct\n"},
    {&shared, {{8, {0, 1, 9, 2, 0}}}, "all_reduce 4 1 9223372036854775807 ring\n"},
    /* the same one by choice and then as it is built in: one row */
    {&nodes,
     {{8, {0, 2, 2, 1, 2}}, {65536, {0, 5, 5, 5, 1}}, {1 << 20, {0, 2, 2, 0, 1}}},
     "all_reduce 4 2 8 doubling\nall_reduce 4 2 9223372036854775807 hierarchical\n"},
    {&nodes,
     {{8, {0, 2, 2, 1, 2}}, {256 << 10, {0, 5, 5, 1, 5}}, {1 << 20, {0, 2, 2, 0, 1}}},
     "all_reduce 4 2 262144 doubling\nall_reduce 4 2 9223372036854775807 hierarchical\n"},
};

START_TEST(rows_end_at_the_last_size_of_a_winner)
{
    char text[DDPI_SELECTION_ROWS * TUNE_ROW_TEXT];
    unsigned count = 0;
    while (count < 4 && tables[_i].sizes[count].bytes > 0)
        count++;
    ck_assert_str_eq(lines_of(tables[_i].place, tables[_i].sizes, count, text), tables[_i].lines);
}
END_TEST

static uint32_t draw(uint32_t *random)
{
    return *random = *random * 1664525U + 1013904223U;
}

/* As many sizes as may be, with random times of what is possible. */
static unsigned draw_sizes(const struct tune_place *place, uint32_t *random,
                           struct tune_size sizes[TUNE_SIZES])
{
    unsigned count = 1 + (draw(random) >> 16) % TUNE_SIZES;
    uint64_t bytes = 4 + (draw(random) >> 16) % 64;
    for (unsigned i = 0; i < count; i++) {
        sizes[i] = (struct tune_size){.bytes = bytes};
        for (unsigned k = DDP_ALGORITHM_AUTO + 1; k < TUNE_ALGORITHMS; k++)
            if (tune_possible(place, bytes, (ddp_algorithm)k))
                sizes[i].us[k] = 1 + (draw(random) >> 16) % 100;
        bytes += 1 + bytes * ((draw(random) >> 16) % 4);
    }
    return count;
}

static ddp_algorithm taken(const struct ddpi_selection_table *table, const struct tune_place *place,
                           uint64_t bytes)
{
    const struct ddpi_selection_case of = {.operation = DDPI_ALL_REDUCE,
                                           .reduces = true,
                                           .count = bytes,
                                           .element_size = 1,
                                           .ranks = place->ranks,
                                           .nodes = place->nodes,
                                           .node_ranks =
                                               (place->ranks + place->nodes - 1) / place->nodes,
                                           .arena_ranks = DDPI_ARENA_RANKS};
    struct ddpi_selection selection = ddpi_select(table, &of);
    ck_assert_msg(selection.row != NULL || !tune_possible(place, bytes, DDP_ALGORITHM_DOUBLING),
                  "%llu bytes have no row", (unsigned long long)bytes);
    return selection.algorithm;
}

/* At @bytes, which belong to @size. */
static void check_bytes(const struct ddpi_selection_table *table, const struct tune_place *place,
                        const struct tune_size *size, uint64_t bytes)
{
    ddp_algorithm chosen = tune_choose(place, size);
    if (chosen == tune_built_in(place, size->bytes) || !tune_possible(place, bytes, chosen))
        chosen = tune_built_in(place, bytes);
    ck_assert_msg(taken(table, place, bytes) == chosen, "%llu bytes: %s, not %s",
                  (unsigned long long)bytes, tune_algorithm_name(taken(table, place, bytes)),
                  tune_algorithm_name(chosen));
}

START_TEST(the_table_chooses_what_was_chosen)
{
    char text[DDPI_SELECTION_ROWS * TUNE_ROW_TEXT];
    struct tune_size sizes[TUNE_SIZES];
    struct ddpi_selection_table table;
    struct ddp_error err;
    uint32_t random = 1;
    for (int run = 0; run < 500; run++) {
        const struct tune_place *place = &places[_i];
        unsigned count = draw_sizes(place, &random, sizes);
        lines_of(place, sizes, count, text);
        ck_assert_msg(ddpi_selection_parse("t", text, strlen(text), &table, &err) == DDP_OK, "%s",
                      err.msg);
        check_bytes(&table, place, &sizes[0], 0);
        for (unsigned i = 0; i < count; i++) {
            uint64_t before = i == 0 ? 0 : sizes[i - 1].bytes;
            check_bytes(&table, place, &sizes[i], sizes[i].bytes);
            check_bytes(&table, place, &sizes[i], before + 1);
            check_bytes(&table, place, &sizes[i], before + 1 + (sizes[i].bytes - before - 1) / 2);
        }
        check_bytes(&table, place, &sizes[count - 1], sizes[count - 1].bytes * 2);
        check_bytes(&table, place, &sizes[count - 1], INT64_MAX);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tune rows");
    TCase *tcase = tcase_create("tune rows");
    tcase_add_test(tcase, only_what_is_possible_is_measured);
    tcase_add_test(tcase, what_is_built_in_stays_unless_another_is_clearly_faster);
    tcase_add_loop_test(tcase, rows_end_at_the_last_size_of_a_winner, 0,
                        sizeof tables / sizeof *tables);
    tcase_add_loop_test(tcase, the_table_chooses_what_was_chosen, 0, PLACES);
    suite_add_tcase(suite, tcase);
    return suite;
}
