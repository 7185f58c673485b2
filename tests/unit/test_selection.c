/*
 * test_selection.c - which algorithm is chosen, and tables that were measured, some of them bad.
 */
#include "check_main.h"
#include "selection.h"

#include <stdio.h>
#include <string.h>

static struct ddpi_selection_table none;

/* An all_reduce of float32 between @ranks, @per of them on each node. */
static struct ddpi_selection_case case_of(uint32_t ranks, uint32_t per, size_t bytes)
{
    return (struct ddpi_selection_case){.operation = DDPI_ALL_REDUCE,
                                        .reduces = true,
                                        .count = bytes / 4,
                                        .element_size = 4,
                                        .ranks = ranks,
                                        .nodes = (ranks + per - 1) / per,
                                        .node_ranks = per,
                                        .arena_ranks = 256};
}

static void expect(const struct ddpi_selection_table *table, const struct ddpi_selection_case *of,
                   ddp_algorithm algorithm, const char *words)
{
    char text[DDPI_SELECTION_TEXT];
    struct ddpi_selection selection = ddpi_select(table, of);
    ddpi_selection_explain(&selection, of, text);
    ck_assert_msg(selection.algorithm == algorithm, "%s", text);
    ck_assert_msg(strstr(text, words) != NULL, "%s", text);
}

START_TEST(auto_chooses_by_place_and_size)
{
    static const struct {
        uint32_t ranks, per;
        size_t bytes;
        ddp_algorithm algorithm;
        const char *words;
    } cases[] = {
        {4, 4, 8, DDP_ALGORITHM_DIRECT, "direct, as all ranks share memory"},
        {4, 4, 1 << 30, DDP_ALGORITHM_DIRECT, "share memory"},
        {4, 1, 8, DDP_ALGORITHM_DOUBLING, "fewest steps"},
        {4, 1, 128 << 10, DDP_ALGORITHM_DOUBLING, "fewest steps"},
        {4, 1, (128 << 10) + 4, DDP_ALGORITHM_RING, "fewest bytes"},
        {4, 2, 64 << 10, DDP_ALGORITHM_DOUBLING, "fewest steps"},
        {4, 2, (64 << 10) + 4, DDP_ALGORITHM_HIERARCHICAL, "between nodes"},
        {5, 4, 1 << 30, DDP_ALGORITHM_HIERARCHICAL, "between nodes"},
        {257, 257, 4, DDP_ALGORITHM_DOUBLING, "fewest steps"},
        {257, 257, 1 << 30, DDP_ALGORITHM_RING, "fewest bytes"},
        {1, 1, 4, DDP_ALGORITHM_RING, "fewest bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ddpi_selection_case of = case_of(cases[i].ranks, cases[i].per, cases[i].bytes);
        expect(&none, &of, cases[i].algorithm, cases[i].words);
    }
}
END_TEST

START_TEST(what_is_asked_for_counts_where_it_is_possible)
{
    struct ddpi_selection_case of = case_of(4, 2, 8);
    for (int asked = DDP_ALGORITHM_RING; asked <= DDP_ALGORITHM_HIERARCHICAL; asked++) {
        of.asked = (ddp_algorithm)asked;
        expect(&none, &of, of.asked, "asked for");
    }
    of = case_of(4, 4, 8);
    of.asked = DDP_ALGORITHM_HIERARCHICAL;
    expect(&none, &of, DDP_ALGORITHM_DIRECT, "hierarchical cannot do it; direct, as all");
    of = case_of(4, 2, 1 << 20);
    of.asked = DDP_ALGORITHM_DOUBLING;
    expect(&none, &of, DDP_ALGORITHM_HIERARCHICAL, "doubling cannot do it");
    of.operation = DDPI_BROADCAST;
    of.reduces = false;
    expect(&none, &of, DDP_ALGORITHM_RING, "doubling cannot do it");
    of = case_of(4, 4, 8);
    of.operation = DDPI_BROADCAST;
    of.asked = DDP_ALGORITHM_RING;
    expect(&none, &of, DDP_ALGORITHM_RING, "asked for");
    of.count = SIZE_MAX;
    ck_assert_uint_eq(ddpi_selection_bytes(&of), UINT64_MAX);
}
END_TEST

START_TEST(a_table_counts_before_what_is_built_in)
{
    struct ddpi_selection_table table;
    struct ddp_error err;
    const char *text = "# measured\n\n"
                       "all_reduce 4 2 1024 ring\n"
                       "\tall_reduce  4 2 1048576 doubling # for more it is impossible\r\n"
                       "all_reduce 8 1 4096 ring\n"
                       "all_reduce 4 2 9223372036854775807 direct";
    ck_assert_msg(ddpi_selection_parse("t", text, strlen(text), &table, &err) == DDP_OK, "%s",
                  err.msg);
    ck_assert_uint_eq(table.count, 4);
    struct ddpi_selection_case of = case_of(4, 2, 1024);
    expect(&table, &of, DDP_ALGORITHM_RING, "for 4 ranks on 2 nodes up to 1024 bytes");
    of = case_of(4, 2, 1028);
    expect(&table, &of, DDP_ALGORITHM_DOUBLING, "1048576");
    of = case_of(4, 2, 1 << 20);
    expect(&table, &of, DDP_ALGORITHM_DIRECT, "9223372036854775807");
    of.asked = DDP_ALGORITHM_HIERARCHICAL;
    expect(&table, &of, DDP_ALGORITHM_HIERARCHICAL, "asked for");
    of = case_of(8, 8, 4096);
    expect(&table, &of, DDP_ALGORITHM_RING, "8 ranks on 1 nodes");
    of = case_of(8, 8, 5000);
    expect(&table, &of, DDP_ALGORITHM_DIRECT, "share memory");
    of = case_of(4, 2, 1024);
    of.operation = DDPI_REDUCE;
    expect(&table, &of, DDP_ALGORITHM_RING, "fewest bytes");
}
END_TEST

static const struct {
    const char *text, *words;
} bad[] = {
    {"x\n", "t:1: this is not 'all_reduce RANKS NODES BYTES ALGORITHM'"},
    {"\n# x\nbroadcast 4 2 8 ring\n", "t:3: this is not"},
    {"all_reduce 4 2 8 ring more\n", "t:1: this is not"},
    {"all_reduce 4 2 8\n", "t:1: this is not"},
    {"all_reduce 0 1 8 ring\n", "t:1: ranks: '0'"},
    {"all_reduce 4 5 8 ring\n", "t:1: nodes: '5'"},
    {"all_reduce 4 -1 8 ring\n", "t:1: nodes: '-1'"},
    {"all_reduce 4 2 8K ring\n", "t:1: bytes: '8K'"},
    {"all_reduce 4 2 99999999999999999999 ring\n", "t:1: bytes: "},
    {"all_reduce 4 2 8 auto\n", "t:1: 'auto' is not an algorithm"},
    {"all_reduce 4 2 8 \033[2J\n", "t:1: '?[2J' is not an algorithm"},
    {"all_reduce 4 2 8 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n", "t:1: this is not"},
    {"all_reduce 4 2 8 ring\nall_reduce 2 2 8 ring\nall_reduce 4 2 8 ring\n",
     "t:3: a row before has the same ranks and nodes and 8 bytes"},
    {"all_reduce 4 2 8 ring\n\xff\xfe\n", "t:2: this is not"},
};

START_TEST(a_bad_line_is_named)
{
    struct ddpi_selection_table table;
    struct ddp_error err;
    ck_assert_int_eq(ddpi_selection_parse("t", bad[_i].text, strlen(bad[_i].text), &table, &err),
                     DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, bad[_i].words) != NULL, "%s", err.msg);
}
END_TEST

START_TEST(too_many_rows_are_refused)
{
    struct ddpi_selection_table table;
    struct ddp_error err;
    char text[64 * (DDPI_SELECTION_ROWS + 1)] = "";
    size_t used = 0;
    for (int i = 0; i <= DDPI_SELECTION_ROWS; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "all_reduce 4 2 %d ring\n", i);
    ck_assert_int_eq(ddpi_selection_parse("t", text, strlen(text), &table, &err), DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, "t:33: more than 32 rows") != NULL, "%s", err.msg);
}
END_TEST

START_TEST(a_nul_byte_hides_nothing)
{
    static const char text[] = "all_reduce 4 2 8 ring\nall_reduce 4 2 16 ring # 16\nx";
    struct ddpi_selection_table table;
    struct ddp_error err;
    unsigned line = 1;
    for (size_t at = 0; at < sizeof text - 1; at++) {
        char bytes[sizeof text], words[32];
        memcpy(bytes, text, sizeof text);
        bytes[at] = '\0';
        snprintf(words, sizeof words, "t:%u: this line has a NUL byte", line);
        ck_assert_int_eq(ddpi_selection_parse("t", bytes, sizeof text - 1, &table, &err),
                         DDP_E_INVALID);
        ck_assert_msg(strstr(err.msg, words) != NULL, "%zu: %s", at, err.msg);
        line += text[at] == '\n';
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("selection");
    TCase *tcase = tcase_create("selection");
    tcase_add_test(tcase, auto_chooses_by_place_and_size);
    tcase_add_test(tcase, what_is_asked_for_counts_where_it_is_possible);
    tcase_add_test(tcase, a_table_counts_before_what_is_built_in);
    tcase_add_loop_test(tcase, a_bad_line_is_named, 0, sizeof bad / sizeof *bad);
    tcase_add_test(tcase, a_nul_byte_hides_nothing);
    tcase_add_test(tcase, too_many_rows_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
