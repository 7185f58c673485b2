/*
 * test_flight_compare.c - comparing what ranks have recorded: seeded random schedules in which one
 * rank is behind, calls something else, has no records, or nothing is wrong; and the sentences.
 */
#include "check_main.h"
#include "failmem.h"
#include "flight_compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 12, RECORDS = 64, RUNS = 400 };

enum { OP_INIT, OP_BARRIER, OP_ALL_REDUCE, OP_BROADCAST, OP_ALL_GATHER, OP_SEND, OP_RECV, OPS };

static const char *const op_names[OPS] = {"init",       "barrier", "all_reduce", "broadcast",
                                          "all_gather", "send",    "recv"};

/* The memory of a rank, as its agent has made it. */
struct rank {
    struct ddpi_flight_header *memory;
    struct ddpi_flight_group group;
    uint64_t seq, last;
};

static struct rank ranks[RANKS_MAX];
static struct ddpi_flight_log *logs[RANKS_MAX];
static struct ddpi_flight_report *report;

static void rank_make(struct rank *rank, const char *name, uint32_t at, uint32_t size)
{
    *rank = (struct rank){.memory = calloc(1, ddpi_flight_size(RECORDS))};
    ddpi_flight_format(rank->memory, RECORDS);
    for (int i = 0; i < OPS; i++)
        snprintf(rank->memory->names.operations[i], DDPI_FLIGHT_NAME_SIZE, "%s", op_names[i]);
    snprintf(rank->memory->names.dtypes[0], DDPI_FLIGHT_NAME_SIZE, "float32");
    snprintf(rank->memory->names.reductions[0], DDPI_FLIGHT_NAME_SIZE, "sum");
    rank->group.rank = at;
    rank->group.size = size;
    snprintf(rank->group.name, sizeof rank->group.name, "%s", name);
    ddpi_flight_add_group(rank->memory, &rank->group);
}

static struct ddpi_flight_op call_of(unsigned operation, uint64_t count)
{
    bool elements = operation != OP_BARRIER && operation != OP_INIT;
    return (struct ddpi_flight_op){.operation = (uint8_t)operation,
                                   .count = elements ? count : 0,
                                   .has_elements = elements,
                                   .reduces = operation == OP_ALL_REDUCE,
                                   .has_root = operation == OP_BROADCAST,
                                   .state = DDPI_FLIGHT_STARTED,
                                   .created_ns = 1,
                                   .started_ns = 1};
}

static void rank_call(struct rank *rank, struct ddpi_flight_op op)
{
    op.group = (uint32_t)rank->group.serial;
    op.seq = rank->seq++;
    ddpi_flight_begin(rank->memory, RECORDS, &op);
    rank->last = op.number;
}

static void rank_end(struct rank *rank)
{
    ddpi_flight_move(rank->memory, RECORDS, rank->last, DDPI_FLIGHT_COMPLETED, 0, 2);
}

static struct ddpi_flight_log *read_rank(struct rank *rank, uint32_t at, uint32_t world)
{
    const struct ddpi_flight_place place = {.rank = at, .world_size = world};
    struct ddpi_flight_header *copy = calloc(1, ddpi_flight_size(RECORDS));
    struct ddpi_flight_log *log;
    size_t len = ddpi_flight_copy(rank->memory, RECORDS, RECORDS, &place, copy);
    ck_assert_int_eq(ddpi_flight_log_read(copy, len, &log, NULL), DDP_OK);
    free(copy);
    return log;
}

/* Compare the first @count ranks, without @lost (RANKS_MAX: none). */
static const struct ddpi_flight_team *compare(uint32_t count, uint32_t lost)
{
    size_t known = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i != lost)
            logs[known++] = read_rank(&ranks[i], i, count);
    ck_assert_int_eq(
        ddpi_flight_compare((const struct ddpi_flight_log *const *)logs, known, &report, NULL),
        DDP_OK);
    ck_assert_uint_eq(report->count, 1);
    return &report->teams[0];
}

static void forget_all(void)
{
    ddpi_flight_report_destroy(report);
    report = NULL;
    for (int i = 0; i < RANKS_MAX; i++) {
        ddpi_flight_log_destroy(logs[i]);
        logs[i] = NULL;
        free(ranks[i].memory);
        ranks[i].memory = NULL;
    }
}

static void make_world(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rank_make(&ranks[i], "world", i, count);
}

/* All ranks call the same @calls, and leave them. */
static void call_together(uint32_t count, unsigned calls)
{
    for (unsigned k = 0; k < calls; k++) {
        struct ddpi_flight_op op = call_of(k % 2 ? OP_ALL_REDUCE : OP_BROADCAST, k + 1);
        for (uint32_t i = 0; i < count; i++) {
            rank_call(&ranks[i], op);
            rank_end(&ranks[i]);
        }
    }
}

static void ck_sentence(const struct ddpi_flight_team *team, const char *expected)
{
    char text[DDPI_FLIGHT_SENTENCE];
    ddpi_flight_sentence(team, text);
    ck_assert_str_eq(text, expected);
}

/* ---- sentences ---- */

START_TEST(one_rank_has_not_called)
{
    make_world(4);
    call_together(4, 2);
    for (uint32_t i = 0; i < 3; i++)
        rank_call(&ranks[i], call_of(OP_ALL_REDUCE, 100));
    const struct ddpi_flight_team *team = compare(4, RANKS_MAX);
    ck_assert_int_eq(team->verdict, DDPI_FLIGHT_BEHIND);
    ck_assert_uint_eq(team->seq, 2);
    ck_assert(team->members[3].odd && !team->members[0].odd);
    ck_assert_uint_eq(team->members[3].done->seq, 1);
    ck_sentence(team, "rank 3 has not called all_reduce #2, in which ranks 0 to 2 wait");
}
END_TEST

START_TEST(one_rank_called_something_else)
{
    make_world(4);
    call_together(4, 1);
    for (uint32_t i = 0; i < 4; i++)
        rank_call(&ranks[i], call_of(i == 1 ? OP_BROADCAST : OP_ALL_REDUCE, 8));
    const struct ddpi_flight_team *team = compare(4, RANKS_MAX);
    ck_assert_int_eq(team->verdict, DDPI_FLIGHT_DIFFER);
    ck_sentence(team, "rank 1 called broadcast #1 (8 float32, root 0), but ranks 0, 2 and 3 called "
                      "all_reduce #1 (sum of 8 float32)");
}
END_TEST

START_TEST(one_rank_has_other_counts)
{
    make_world(4);
    call_together(4, 1);
    for (uint32_t i = 0; i < 4; i++) {
        struct ddpi_flight_op op = call_of(OP_ALL_GATHER, 8);
        op.is_uneven = true;
        op.parts = i == 2 ? 0xbeef : 0xabc;
        rank_call(&ranks[i], op);
    }
    const struct ddpi_flight_team *team = compare(4, RANKS_MAX);
    ck_assert_int_eq(team->verdict, DDPI_FLIGHT_DIFFER);
    ck_assert(team->members[2].odd && !team->members[1].odd);
    ck_sentence(team,
                "rank 2 called all_gather #1 (8 float32, digest of counts beef), but ranks 0, "
                "1 and 3 called all_gather #1 (8 float32, digest of counts 0abc)");
}
END_TEST

/* The parts of each rank with the others add up to @sum. */
static void call_in_pairs(uint32_t count, uint16_t sum)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ddpi_flight_op op = call_of(OP_ALL_GATHER, 0);
        op.is_uneven = op.in_pairs = true;
        op.parts = i == 0 ? (uint16_t)(sum - 0x9000 * (count - 1)) : 0x9000;
        rank_call(&ranks[i], op);
    }
}

START_TEST(two_ranks_have_other_counts_of_each_other)
{
    make_world(3);
    call_together(3, 1);
    call_in_pairs(3, 0);
    call_in_pairs(3, 1);
    const struct ddpi_flight_team *team = compare(3, RANKS_MAX);
    ck_assert_int_eq(team->verdict, DDPI_FLIGHT_COUNTS);
    ck_assert_uint_eq(team->seq, 2);
    ck_sentence(team, "ranks 0 to 2 called all_gather #2 (float32 in uneven parts), but disagree "
                      "about its counts");
}
END_TEST

START_TEST(counts_of_some_ranks_show_nothing)
{
    make_world(3);
    call_in_pairs(3, 1);
    ck_assert_int_eq(compare(3, 1)->verdict, DDPI_FLIGHT_UNFINISHED);
}
END_TEST

START_TEST(some_ranks_are_still_inside)
{
    make_world(3);
    for (uint32_t i = 0; i < 3; i++)
        rank_call(&ranks[i], call_of(OP_BROADCAST, 5));
    rank_end(&ranks[0]);
    ck_sentence(compare(3, RANKS_MAX), "ranks 1 and 2 are in broadcast #0, which rank 0 has "
                                       "completed");
}
END_TEST

START_TEST(nothing_is_wrong)
{
    make_world(2);
    call_together(2, 3);
    ck_sentence(compare(2, RANKS_MAX),
                "ranks 0 and 1 have completed broadcast #2, and are in no later one");
}
END_TEST

START_TEST(a_rank_has_not_joined)
{
    make_world(3);
    free(ranks[1].memory);
    ranks[1] = (struct rank){.memory = calloc(1, ddpi_flight_size(RECORDS))};
    ddpi_flight_format(ranks[1].memory, RECORDS);
    rank_call(&ranks[0], call_of(OP_INIT, 0));
    rank_call(&ranks[2], call_of(OP_INIT, 0));
    ck_sentence(compare(3, RANKS_MAX), "rank 1 has not called init #0, in which ranks 0 and 2 "
                                       "wait");
}
END_TEST

START_TEST(a_refused_call_does_not_count)
{
    make_world(2);
    rank_call(&ranks[0], call_of(OP_BROADCAST, 5));
    ddpi_flight_move(ranks[0].memory, RECORDS, ranks[0].last, DDPI_FLIGHT_FAILED, DDP_E_INVALID, 2);
    ranks[0].seq--;
    call_together(2, 1);
    ck_assert_int_eq(compare(2, RANKS_MAX)->verdict, DDPI_FLIGHT_TOGETHER);
}
END_TEST

START_TEST(messages_are_noted)
{
    make_world(2);
    call_together(2, 1);
    struct ddpi_flight_op recv = call_of(OP_RECV, 7);
    recv.is_message = true;
    recv.peer = 1;
    rank_call(&ranks[0], recv);
    const struct ddpi_flight_team *team = compare(2, RANKS_MAX);
    char text[DDPI_FLIGHT_TEXT];
    ck_assert_int_eq(team->verdict, DDPI_FLIGHT_TOGETHER);
    ck_assert_ptr_nonnull(team->members[0].message);
    ck_assert_ptr_null(team->members[1].message);
    ddpi_flight_describe(team->members[0].log, team->members[0].message, text);
    ck_assert_str_eq(text, "recv #1 from rank 1 (7 float32)");
}
END_TEST

/* ---- random schedules ---- */

/* @total calls of everybody; @odd stops before the last @missed of them. */
static void play_behind(uint32_t count, uint32_t odd, unsigned total, unsigned missed)
{
    call_together(count, total);
    for (uint32_t i = 0; i < count; i++)
        for (unsigned k = 0; k < missed && i != odd; k++) {
            rank_call(&ranks[i], call_of(OP_ALL_REDUCE, 64));
            if (k + 1 < missed || rand() % 4 == 0)
                rank_end(&ranks[i]);
        }
}

START_TEST(the_rank_behind_is_found)
{
    for (int run = 0; run < RUNS; run++) {
        srand((unsigned)run);
        uint32_t count = 2 + (uint32_t)rand() % (RANKS_MAX - 1), odd = (uint32_t)rand() % count;
        unsigned total = (unsigned)rand() % 90, missed = 1 + (unsigned)rand() % 3;
        make_world(count);
        play_behind(count, odd, total, missed);
        const struct ddpi_flight_team *team = compare(count, RANKS_MAX);
        ck_assert_int_eq(team->verdict, DDPI_FLIGHT_BEHIND);
        ck_assert_uint_eq(team->seq, total + missed - 1);
        for (uint32_t i = 0; i < count; i++)
            ck_assert_int_eq(team->members[i].odd, i == odd);
        forget_all();
    }
}
END_TEST

START_TEST(the_rank_that_differs_is_found)
{
    for (int run = 0; run < RUNS; run++) {
        srand((unsigned)run);
        uint32_t count = 3 + (uint32_t)rand() % (RANKS_MAX - 2), odd = (uint32_t)rand() % count;
        unsigned total = (unsigned)rand() % 90;
        struct ddpi_flight_op all = call_of(OP_ALL_REDUCE, 64), other = all;
        switch (rand() % 4) {
        case 0:
            other.operation = OP_BARRIER;
            break;
        case 1:
            other.count++;
            break;
        case 2:
            other.dtype = 1;
            break;
        default:
            other.reduction = 1;
        }
        make_world(count);
        call_together(count, total);
        for (uint32_t i = 0; i < count; i++)
            rank_call(&ranks[i], i == odd ? other : all);
        const struct ddpi_flight_team *team = compare(count, RANKS_MAX);
        ck_assert_int_eq(team->verdict, DDPI_FLIGHT_DIFFER);
        ck_assert_uint_eq(team->seq, total);
        for (uint32_t i = 0; i < count; i++)
            ck_assert_int_eq(team->members[i].odd, i == odd);
        forget_all();
    }
}
END_TEST

START_TEST(a_rank_without_records_is_counted)
{
    for (int run = 0; run < RUNS; run++) {
        srand((unsigned)run);
        uint32_t count = 2 + (uint32_t)rand() % (RANKS_MAX - 1), lost = (uint32_t)rand() % count;
        make_world(count);
        call_together(count, 1 + (unsigned)rand() % 90);
        const struct ddpi_flight_team *team = compare(count, lost);
        ck_assert_int_eq(team->verdict, DDPI_FLIGHT_TOGETHER);
        ck_assert_uint_eq(team->missing, 1);
        ck_assert_uint_eq(team->count, count - 1);
        forget_all();
    }
}
END_TEST

START_TEST(communicators_are_told_apart)
{
    make_world(2);
    call_together(2, 2);
    struct ddpi_flight_group again = {.rank = 1, .size = 2, .name = "world"};
    ddpi_flight_add_group(ranks[1].memory, &again);
    ck_assert_uint_eq(again.instance, 2);
    const struct ddpi_flight_log *both[2];
    for (uint32_t i = 0; i < 2; i++)
        both[i] = logs[i] = read_rank(&ranks[i], i, 2);
    ck_assert_int_eq(ddpi_flight_compare(both, 2, &report, NULL), DDP_OK);
    ck_assert_uint_eq(report->count, 2);
    ck_assert_int_eq(report->teams[0].verdict, DDPI_FLIGHT_TOGETHER);
    ck_assert_uint_eq(report->teams[0].seq, 1);
    ck_assert_uint_eq(report->teams[1].instance, 2);
}
END_TEST

START_TEST(memory_runs_out)
{
    make_world(2);
    call_together(2, 2);
    const struct ddpi_flight_log *both[2];
    for (uint32_t i = 0; i < 2; i++)
        both[i] = logs[i] = read_rank(&ranks[i], i, 2);
    bool failed = true;
    for (unsigned successes = 0; failed; successes++) {
        failmem_start(successes);
        ddp_status status = ddpi_flight_compare(both, 2, &report, NULL);
        failed = failmem_stop();
        ck_assert_int_eq(status, failed ? DDP_E_NOMEM : DDP_OK);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("flight_compare");
    TCase *tcase = tcase_create("flight_compare");
    tcase_add_checked_fixture(tcase, NULL, forget_all);
    ADD_TESTS(tcase, one_rank_has_not_called, one_rank_called_something_else,
              one_rank_has_other_counts, two_ranks_have_other_counts_of_each_other,
              counts_of_some_ranks_show_nothing, some_ranks_are_still_inside, nothing_is_wrong,
              a_rank_has_not_joined, a_refused_call_does_not_count, messages_are_noted,
              the_rank_behind_is_found, the_rank_that_differs_is_found,
              a_rank_without_records_is_counted, communicators_are_told_apart, memory_runs_out);
    suite_add_tcase(suite, tcase);
    return suite;
}
