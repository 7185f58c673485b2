/*
 * test_state_choice.c - which commit is the newest, for a table of ranks and for all small ones
 * against the rule in other words; what is said of blobs that differ.
 */
#include "check_main.h"
#include "state_choice.h"

#include <ddprun/ddp.h>
#include <string.h>

enum { MOST = 4 };

static struct ddpi_state_record commit_of(uint64_t term, uint64_t number)
{
    return (struct ddpi_state_record){.digest = 5, .blobs = 2, .term = term, .number = number};
}

static const struct {
    struct {
        uint64_t term, number;
    } ranks[MOST];
    uint32_t count, root;
    bool missing;
} cases[] = {
    {{{0, 0}}, 1, 0, true},                          /* alone, at the begin */
    {{{0, 0}, {0, 0}, {0, 0}}, 3, 0, true},          /* rank 0 makes the first commit */
    {{{1, 4}, {1, 4}, {1, 4}}, 3, 0, false},         /* nothing is to be sent */
    {{{1, 4}, {1, 5}, {1, 4}}, 3, 1, true},          /* survivors one commit apart */
    {{{1, 4}, {1, 5}, {1, 5}, {0, 0}}, 4, 1, true},  /* and a new one; the lowest sends */
    {{{0, 0}, {0, 3}, {2, 2}}, 3, 2, true},          /* a later sync counts for more */
    {{{9, 0}, {1, 1}}, 2, 1, true},                  /* a term without a commit is none */
    {{{2, 3}, {1, 3}}, 2, 0, true},                  /* a sync that rank 1 did not end */
    {{{UINT64_MAX, 1}, {1, UINT64_MAX}}, 2, 0, true} /* the ends of the range */
};

START_TEST(the_newest_commit_is_chosen)
{
    struct ddpi_state_record records[MOST];
    for (uint32_t i = 0; i < cases[_i].count; i++)
        records[i] = commit_of(cases[_i].ranks[i].term, cases[_i].ranks[i].number);
    struct ddpi_state_choice choice = ddpi_state_choose(records, cases[_i].count);
    ck_assert_uint_eq(choice.root, cases[_i].root);
    ck_assert(choice.missing == cases[_i].missing);
    ck_assert(choice.number == records[choice.root].number);
    ck_assert(choice.number == 0 || choice.term == records[choice.root].term);
    ck_assert_uint_eq(choice.odd, 0);
}
END_TEST

/* A commit as one number, which is 0 without a commit: with terms and numbers below 3. */
static uint32_t age_of(const struct ddpi_state_record *record)
{
    return record->number == 0 ? 0 : (uint32_t)(1 + record->term * 3 + record->number);
}

START_TEST(no_rank_has_a_newer_commit_than_the_root)
{
    enum { STATES = 9 };
    for (uint32_t code = 0; code < STATES * STATES * STATES; code++) {
        struct ddpi_state_record records[3];
        uint32_t newest = 0, root = 0, same = 0;
        for (uint32_t i = 0, rest = code; i < 3; i++, rest /= STATES)
            records[i] = commit_of(rest % STATES / 3, rest % 3);
        for (uint32_t i = 0; i < 3; i++)
            newest = age_of(&records[i]) > newest ? age_of(&records[i]) : newest;
        while (age_of(&records[root]) != newest)
            root++;
        for (uint32_t i = 0; i < 3; i++)
            same += age_of(&records[i]) == newest;
        struct ddpi_state_choice choice = ddpi_state_choose(records, 3);
        ck_assert_uint_eq(choice.root, root);
        ck_assert(choice.missing == (newest == 0 || same < 3));
    }
}
END_TEST

/* They have counted to the same, but apart from each other. */
START_TEST(other_bytes_of_the_same_commit_are_missing)
{
    struct ddpi_state_record records[] = {commit_of(1, 4), commit_of(2, 4), commit_of(2, 4)};
    records[1].sum = 77;
    struct ddpi_state_choice choice = ddpi_state_choose(records, 3);
    ck_assert(choice.root == 1 && choice.missing);
    ck_assert(ddpi_state_choose(&records[1], 2).missing);
    records[2].sum = 77;
    ck_assert(!ddpi_state_choose(&records[1], 2).missing);
}
END_TEST

START_TEST(the_first_rank_with_other_blobs_is_found)
{
    struct ddpi_state_record records[MOST];
    for (uint32_t i = 0; i < MOST; i++)
        records[i] = commit_of(1, 1);
    records[3].blobs = 3;
    ck_assert_uint_eq(ddpi_state_choose(records, MOST).odd, 3);
    records[2].digest++;
    ck_assert_uint_eq(ddpi_state_choose(records, MOST).odd, 2);
    records[0].digest--;
    ck_assert_uint_eq(ddpi_state_choose(records, MOST).odd, 1);
}
END_TEST

START_TEST(the_digest_is_of_names_and_sizes)
{
    uint64_t word = 0;
    const struct ddp_checkpoint_blob lists[][2] = {
        {{"ab", &word, 4}, {"c", &word, 8}}, {{"a", &word, 4}, {"bc", &word, 8}},
        {{"ab", &word, 8}, {"c", &word, 4}}, {{"c", &word, 8}, {"ab", &word, 4}},
        {{"ab", &word, 4}, {"c", &word, 0}},
    };
    enum { LISTS = sizeof lists / sizeof *lists };
    for (size_t i = 0; i < LISTS; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(ddpi_state_digest(lists[i], 2), ddpi_state_digest(lists[j], 2));
    ck_assert_uint_ne(ddpi_state_digest(lists[0], 2), ddpi_state_digest(lists[0], 1));
    uint64_t before = ddpi_state_digest(lists[0], 2);
    word = 1; /* content is not looked at */
    ck_assert_uint_eq(ddpi_state_digest(lists[0], 2), before);
}
END_TEST

/* What another rank sends need not have an end. */
START_TEST(names_without_an_end_are_cut)
{
    struct ddpi_blob_shape first = {.bytes = 1}, other = {.bytes = 1};
    struct ddp_error err = {.msg = ""};
    memset(first.name, 'x', sizeof first.name);
    memset(other.name, 'x', sizeof other.name);
    ck_assert_int_eq(ddpi_blob_compare(0, &first, &other, 1, &err), DDP_OK);
    other.bytes = 2;
    ck_assert_int_eq(ddpi_blob_compare(0, &first, &other, 1, &err), DDP_E_MISMATCH);
    ck_assert_int_eq(ddpi_blob_missing(7, &first, 2, 0, &err), DDP_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(err.msg, "blob 7 of the state, 'xxx"));
    ck_assert_int_eq(ddpi_blob_compare(0, &first, &other, 1, NULL), DDP_E_MISMATCH);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("state_choice");
    TCase *tests = tcase_create("choice");
    tcase_add_loop_test(tests, the_newest_commit_is_chosen, 0, sizeof cases / sizeof *cases);
    ADD_TESTS(tests, no_rank_has_a_newer_commit_than_the_root,
              other_bytes_of_the_same_commit_are_missing, the_first_rank_with_other_blobs_is_found,
              the_digest_is_of_names_and_sizes, names_without_an_end_are_cut);
    suite_add_tcase(suite, tests);
    return suite;
}
