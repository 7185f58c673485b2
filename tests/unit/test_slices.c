/*
 * test_slices.c - slices of every operation, even and uneven: together they have each element of
 * each part once, none needs more room than there is, ranks agree about them, and an all-reduce
 * keeps each element in the chunk in which it is without slices.
 */
#include "check_main.h"
#include "sample.h"
#include "slices.h"

#include <string.h>

enum { MAX_RANKS = 9, MOST = 700, SIZE = 4, ROOM = 400 };

static const enum ddpi_operation operations[] = {DDPI_BROADCAST,      DDPI_ALL_REDUCE, DDPI_REDUCE,
                                                 DDPI_ALL_GATHER,     DDPI_GATHER,     DDPI_SCATTER,
                                                 DDPI_REDUCE_SCATTER, DDPI_ALL_TO_ALL};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* For their addresses only. */
static uint8_t send_space[1 << 20], recv_space[1 << 20];

struct arrays {
    size_t counts[MAX_RANKS], offsets[MAX_RANKS];
};

static size_t draw(uint64_t *state, size_t below)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (size_t)(*state >> 33) % below;
}

/* Every rank draws the same. */
static void draw_parts(struct arrays *arrays, uint32_t nranks, uint64_t seed)
{
    size_t at = 0;
    for (uint32_t rank = 0; rank < nranks; rank++) {
        arrays->counts[rank] = draw(&seed, 3) == 0 ? 0 : draw(&seed, MOST);
        arrays->offsets[rank] = at;
        at += arrays->counts[rank] + draw(&seed, 3);
    }
}

static bool has_uneven_form(enum ddpi_operation operation)
{
    return operation != DDPI_BROADCAST && operation != DDPI_ALL_REDUCE && operation != DDPI_REDUCE;
}

/* As the callers of @rank do; in all_to_all the parts are the same in both directions. */
static struct ddpi_task task_of(enum ddpi_operation operation, bool uneven, uint32_t rank,
                                uint32_t nranks, size_t count, const struct arrays *arrays)
{
    struct ddpi_task task = {
        .call = {.operation = operation, .count = count, .dtype = DDP_INT32, .root = nranks - 1},
        .send = send_space,
        .recv = operation == DDPI_BROADCAST ? send_space : recv_space,
        .uneven = uneven};
    bool is_root = rank == nranks - 1;
    if (uneven) {
        const struct ddpi_parts parts = {arrays->counts, arrays->offsets};
        task.call.count = arrays->counts[rank];
        if (operation == DDPI_ALL_TO_ALL || operation == DDPI_REDUCE_SCATTER ||
            (operation == DDPI_SCATTER && is_root))
            task.send_parts = parts;
        if (operation == DDPI_ALL_TO_ALL || operation == DDPI_ALL_GATHER ||
            (operation == DDPI_GATHER && is_root))
            task.recv_parts = parts;
    }
    struct ddp_error err;
    ck_assert_msg(ddpi_task_prepare(&task, rank, nranks, &err) == DDP_OK, "%s", err.msg);
    return task;
}

/* Mark the elements of @slice in one buffer; returns how many it has. */
static size_t mark_slice(const struct ddpi_slices *slices, uint64_t slice, bool receives,
                         uint8_t *marks)
{
    struct ddpi_slice_cursor cursor = {.index = slice, .receives = receives};
    struct ddpi_stretch stretch;
    size_t offset = 0;
    while (ddpi_slice_next(slices, &cursor, &stretch)) {
        ck_assert_uint_eq(stretch.offset, offset);
        ck_assert_uint_gt(stretch.len, 0);
        offset += stretch.len;
        for (size_t i = 0; i < stretch.len / SIZE; i++)
            marks[stretch.at / SIZE + i]++;
    }
    ck_assert_uint_le(offset, ROOM);
    return offset / SIZE;
}

static void expect_each_once(const struct ddpi_task *task, uint32_t rank, uint32_t nranks,
                             bool receives, const uint8_t *marks, size_t len)
{
    static uint8_t expected[MAX_RANKS * (MOST + 3)];
    struct ddpi_chunk part;
    memset(expected, 0, sizeof expected);
    for (uint32_t i = 0; i < nranks && ddpi_task_part(task, rank, receives, i, &part); i++)
        memset(expected + part.first, 1, part.count);
    ck_assert_mem_eq(marks, expected, len);
}

static void check_slices(const struct ddpi_task *task, uint32_t rank, uint32_t nranks)
{
    static uint8_t marks[2][MAX_RANKS * (MOST + 3)];
    size_t counts[2 * MAX_RANKS];
    struct ddpi_slices slices = ddpi_slices_of(task, rank, nranks, ROOM);
    memset(marks, 0, sizeof marks);
    for (uint64_t slice = 0; slice <= slices.count; slice++) { /* one more: it is empty */
        struct ddpi_task of = ddpi_slice_task(&slices, slice, send_space, recv_space, counts);
        ck_assert_uint_eq(of.send_count, mark_slice(&slices, slice, false, marks[0]));
        ck_assert_uint_eq(of.recv_count, mark_slice(&slices, slice, true, marks[1]));
        ck_assert(slice < slices.count || of.count == 0);
        for (uint32_t i = 0; i < nranks; i++) {
            struct ddpi_chunk part, whole;
            if (!ddpi_task_part(&of, rank, true, i, &part) ||
                !ddpi_task_part(task, rank, true, i, &whole) ||
                of.call.operation == DDPI_ALL_REDUCE)
                continue;
            size_t first = slice * slices.width,
                   left = whole.count > first ? whole.count - first : 0;
            ck_assert_uint_eq(part.count, left < slices.width ? left : slices.width);
        }
    }
    for (unsigned side = 0; side < 2; side++)
        expect_each_once(task, rank, nranks, side == 1, marks[side], sizeof marks[side]);
}

START_TEST(slices_have_each_element_once)
{
    uint32_t nranks = (uint32_t)_i;
    static const size_t counts[] = {1, 2, 99, 100, 101, MOST};
    for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++)
        for (unsigned i = 0; i < 2 * OPERATIONS; i++) {
            enum ddpi_operation operation = operations[i / 2];
            struct arrays arrays;
            draw_parts(&arrays, nranks, c * 100 + nranks);
            if (i % 2 == 1 && !has_uneven_form(operation))
                continue;
            for (uint32_t rank = 0; rank < nranks; rank++) {
                struct ddpi_task task =
                    task_of(operation, i % 2 == 1, rank, nranks, counts[c], &arrays);
                check_slices(&task, rank, nranks);
            }
        }
}
END_TEST

/* Where all ranks know all counts, they find the same number of slices. */
START_TEST(ranks_agree)
{
    uint32_t nranks = (uint32_t)_i;
    struct arrays arrays;
    draw_parts(&arrays, nranks, nranks);
    for (unsigned i = 0; i < 2 * OPERATIONS; i++) {
        enum ddpi_operation operation = operations[i / 2];
        uint64_t count = 0;
        for (uint32_t rank = 0; rank < nranks; rank++) {
            bool uneven = i % 2 == 1 && has_uneven_form(operation);
            struct ddpi_task task = task_of(operation, uneven, rank, nranks, 1001, &arrays);
            struct ddpi_slices slices = ddpi_slices_of(&task, rank, nranks, ROOM);
            if (task.call.parts == 1)
                continue;
            ck_assert(rank == 0 || slices.count == count);
            count = slices.count;
        }
    }
}
END_TEST

static uint32_t chunk_of(size_t element, size_t count, uint32_t nranks)
{
    for (uint32_t chunk = 0; chunk < nranks; chunk++) {
        struct ddpi_chunk at = ddpi_ring_chunk(count, nranks, chunk);
        if (element >= at.first && element < at.first + at.count)
            return chunk;
    }
    return nranks;
}

START_TEST(an_all_reduce_keeps_its_chunks)
{
    uint32_t nranks = (uint32_t)_i;
    for (size_t count = 1; count < 700; count += 23) {
        struct ddpi_task task = task_of(DDPI_ALL_REDUCE, false, 0, nranks, count, NULL);
        struct ddpi_slices slices = ddpi_slices_of(&task, 0, nranks, ROOM);
        for (uint64_t slice = 0; slice < slices.count; slice++) {
            struct ddpi_slice_cursor cursor = {.index = slice};
            struct ddpi_stretch stretch;
            size_t len = ddpi_slice_task(&slices, slice, send_space, recv_space, NULL).own;
            while (ddpi_slice_next(&slices, &cursor, &stretch))
                for (size_t i = 0; i < stretch.len / SIZE; i++)
                    ck_assert_uint_eq(chunk_of(stretch.offset / SIZE + i, len, nranks),
                                      chunk_of(stretch.at / SIZE + i, count, nranks));
        }
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("slices");
    TCase *tcase = tcase_create("slices");
    add_sample(tcase, slices_have_each_element_once, 1, MAX_RANKS + 1);
    add_sample(tcase, ranks_agree, 1, MAX_RANKS + 1);
    add_sample(tcase, an_all_reduce_keeps_its_chunks, 1, MAX_RANKS + 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
