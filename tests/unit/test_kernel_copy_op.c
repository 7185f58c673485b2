/*
 * test_kernel_copy_op.c - operations whose ranks read each other's buffers through the kernel:
 * parts of any size from anywhere; what is shown and not true, and a kernel that refuses, after
 * which all copy through the slots; and that all ranks choose the same path from the times that
 * they tell.
 */
#include "arena_method.h"
#include "arena_world.h"
#include "check_main.h"
#include "elements.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    RANKS = 3,
    ROOM = 4 * 1024 * 1024,
    PART = 100 * 1000, /* about the bytes of a part */
    MANY = 3 * 1024 * 1024,
};

/* ---- the kernel ---- */

static unsigned reads,
    refused_from; /* read number @refused_from fails, and those after it; 0: none */
static size_t most_at_once = SIZE_MAX;

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                         const struct iovec *remote, unsigned long nremote, unsigned long flags)
{
    reads++;
    ck_assert(pid == getpid() && nlocal == 1 && nremote == 1 && flags == 0);
    ck_assert_uint_eq(local->iov_len, remote->iov_len);
    if (refused_from != 0 && reads >= refused_from) {
        errno = EPERM;
        return -1;
    }
    if ((uintptr_t)remote->iov_base < 4096) {
        errno = EFAULT;
        return -1;
    }
    size_t len = local->iov_len < most_at_once ? local->iov_len : most_at_once;
    memcpy(local->iov_base, remote->iov_base, len);
    return (ssize_t)len;
}

static void setup(void)
{
    reads = refused_from = 0;
    most_at_once = SIZE_MAX;
}

/* ---- calls with a count for each pair ---- */

/* Bytes from rank @from to rank @to: of any size, also none. */
static size_t bytes_between(uint32_t from, uint32_t to)
{
    return (from + 2 * to) % 4 == 0 ? 0 : PART + from * 1001 + to * 77;
}

static uint8_t byte_of(uint32_t from, uint32_t to, size_t at)
{
    return (uint8_t)(from * 91 + to * 37 + at * 7 + at / 251);
}

/* The parts of one rank, with gaps between them, the last one first. */
struct layout {
    size_t counts[RANKS], offsets[RANKS];
};

static void lay_out(struct layout *layout, uint32_t me, bool sends)
{
    size_t at = 5;
    for (uint32_t i = RANKS; i-- > 0;) {
        layout->counts[i] = sends ? bytes_between(me, i) : bytes_between(i, me);
        layout->offsets[i] = at;
        at += layout->counts[i] + 3;
    }
}

static struct layout sent[RANKS], received[RANKS];

static void begin_uneven(uint32_t me)
{
    struct arena_rank *rank = &world.ranks[me];
    lay_out(&sent[me], me, true);
    lay_out(&received[me], me, false);
    for (uint32_t to = 0; to < RANKS; to++)
        for (size_t i = 0; i < sent[me].counts[to]; i++)
            rank->plain[sent[me].offsets[to] + i] = byte_of(me, to, i);
    memset(rank->result, 0xa5, ROOM);
    arena_world_begin_task(
        me, &(struct ddpi_task){.call = {.operation = DDPI_ALL_TO_ALL, .dtype = DDP_UINT8},
                                .send = rank->plain,
                                .recv = rank->result,
                                .factor = 1,
                                .uneven = true,
                                .send_parts = {sent[me].counts, sent[me].offsets},
                                .recv_parts = {received[me].counts, received[me].offsets}});
}

static void expect_uneven(uint32_t me)
{
    const uint8_t *result = world.ranks[me].result;
    size_t end = 0, sum = 0;
    for (uint32_t from = 0; from < RANKS; from++) {
        size_t at = received[me].offsets[from], len = received[me].counts[from];
        size_t same = 0;
        while (same < len && result[at + same] == byte_of(from, me, same))
            same++;
        ck_assert_msg(same == len, "rank %u, from %u, byte %zu", me, from, same);
        ck_assert(result[at - 1] == 0xa5 && result[at + len] == 0xa5);
        end = at + len > end ? at + len : end;
        sum += from == me ? 0 : len;
    }
    ck_assert(result[end] == 0xa5);
    ck_assert_uint_eq(world.ranks[me].task.bytes_received, sum);
}

static void run_uneven(uint64_t seed)
{
    for (uint32_t i = 0; i < RANKS; i++)
        begin_uneven(i);
    arena_world_run_all(seed);
    for (uint32_t i = 0; i < RANKS; i++)
        expect_uneven(i);
}

static bool is_by_kernel(void)
{
    bool by_kernel = world.ranks[0].op.copies.way.path == DDPI_COPY_KERNEL;
    for (uint32_t i = 1; i < world.count; i++)
        ck_assert_int_eq(world.ranks[i].op.copies.way.path == DDPI_COPY_KERNEL, by_kernel);
    return by_kernel;
}

static bool all_have_refused(void)
{
    bool refused = ddpi_arena_identity(world.ranks[0].arena)->refused;
    for (uint32_t i = 1; i < world.count; i++)
        ck_assert_int_eq(ddpi_arena_identity(world.ranks[i].arena)->refused, refused);
    return refused;
}

/* Whether @rank has read all, and waits for the others, or has seen them. */
static bool has_read(uint32_t rank)
{
    const struct ddpi_arena_op *op = &world.ranks[rank].op;
    return op->method == &ddpi_kernel_copy_method && op->step == 2;
}

START_TEST(parts_of_any_size_are_read)
{
    arena_world_open(RANKS, ROOM);
    arena_world_set_path(DDPI_COPY_KERNEL);
    for (uint64_t seed = 1; seed <= 50; seed++) {
        run_uneven(seed);
        ck_assert(is_by_kernel() && !all_have_refused());
        if (seed == 25)
            most_at_once = 4096; /* the kernel may stop anywhere */
    }
    arena_world_close();
}
END_TEST

/* A long part is read in stretches, between which the driver has a turn. */
START_TEST(a_long_part_takes_several_turns)
{
    arena_world_open(2, ROOM);
    arena_world_set_path(DDPI_COPY_KERNEL);
    const struct ddpi_call call = {.operation = DDPI_BROADCAST, .dtype = DDP_UINT8, .count = MANY};
    for (size_t i = 0; i < MANY; i++)
        world.ranks[0].plain[i] = byte_of(0, 1, i);
    for (uint32_t i = 0; i < 2; i++)
        arena_world_begin(i, &call, world.ranks[i].plain, world.ranks[i].plain);
    ck_assert(!arena_world_advance(0) && !arena_world_advance(1));
    ck_assert(!arena_world_advance(0) && has_read(0)); /* it has nothing to read */
    ck_assert(ddpi_arena_misses(&world.ranks[0].op, 1) && !ddpi_arena_is_ready(&world.ranks[0].op));
    unsigned turns = 0;
    for (; !has_read(1); turns++)
        ck_assert(!arena_world_advance(1));
    ck_assert_uint_eq(turns, 2);
    ck_assert(arena_world_advance(1));
    ck_assert(arena_world_advance(0));
    ck_assert_int_eq(memcmp(world.ranks[0].plain, world.ranks[1].plain, MANY), 0);
    arena_world_close();
}
END_TEST

/* ---- what does not work ---- */

/* Whichever read fails, of whichever rank: the result is the same, and nobody tries it again. */
START_TEST(a_refusal_ends_it_for_all)
{
    for (unsigned from = 1; from <= 12; from++) {
        setup();
        arena_world_open(RANKS, ROOM);
        arena_world_set_path(DDPI_COPY_KERNEL);
        most_at_once = 40 * 1000;
        refused_from = from;
        run_uneven(from);
        ck_assert(all_have_refused() && !is_by_kernel());
        bool one_says_why = false;
        for (uint32_t i = 0; i < RANKS; i++)
            one_says_why = one_says_why || (world.ranks[i].op.refusal.sys_errno == EPERM &&
                                            world.ranks[i].op.refusal.rank != i);
        ck_assert(one_says_why);
        unsigned before = reads;
        arena_world_set_path(DDPI_COPY_KERNEL);
        run_uneven(from);
        ck_assert_uint_eq(reads, before);
        arena_world_close();
    }
}
END_TEST

/* A number that belongs to another process here, which has something else where the token was. */
START_TEST(another_process_is_not_read)
{
    uint64_t elsewhere[2] = {1, 2};
    static const unsigned nothing_shown = 3;
    for (unsigned lie = 0; lie <= nothing_shown; lie++) {
        setup();
        arena_world_open(RANKS, ROOM);
        arena_world_set_path(DDPI_COPY_KERNEL);
        struct ddpi_arena_identity *of_1 = ddpi_arena_identity(world.ranks[1].arena);
        for (uint32_t i = 0; i < RANKS; i++)
            begin_uneven(i);
        for (int turn = 0; turn < 2; turn++) /* the counts, and then where the buffers are */
            for (uint32_t i = 0; i < RANKS; i++)
                (void)arena_world_advance(i);
        while (world.ranks[1].op.stage != DDPI_ARENA_STAGE_ARRIVE)
            (void)arena_world_advance(1);
        uint64_t *shown = (uint64_t *)(void *)ddpi_arena_slot(
            world.ranks[1].arena, world.ranks[1].op.round, 1, DDPI_SLOT_SMALL);
        ck_assert(shown[0] == (uint64_t)of_1->pid && shown[1] == of_1->token);
        if (lie == 0)
            shown[1]++;
        else if (lie == 1)
            shown[2] = (uintptr_t)elsewhere;
        else if (lie == 2)
            shown[1] = 0;
        else
            memset(shown, 0, 6 * sizeof *shown);
        if (lie == nothing_shown)
            shown[0] = (uint64_t)of_1->pid;
        arena_world_run_all(lie);
        for (uint32_t i = 0; i < RANKS; i++)
            expect_uneven(i);
        ck_assert(all_have_refused());
        arena_world_close();
    }
}
END_TEST

/* A rank whose call fails may use its buffer again while another one reads that: it must not take
 * what it has read for the result. */
START_TEST(what_is_read_of_a_failed_rank_is_not_taken)
{
    static const char why[] = "why";
    char note[sizeof why];
    for (int late = 0; late < 2; late++) {
        setup();
        arena_world_open(2, ROOM);
        arena_world_set_path(DDPI_COPY_KERNEL);
        const struct ddpi_call call = {
            .operation = DDPI_BROADCAST, .dtype = DDP_UINT8, .count = MANY};
        for (uint32_t i = 0; i < 2; i++)
            arena_world_begin(i, &call, world.ranks[i].plain, world.ranks[i].plain);
        for (int turn = 0; turn < 2; turn++)
            ck_assert(!arena_world_advance(0) && !arena_world_advance(1));
        ck_assert(!arena_world_advance(0) && has_read(0));
        if (late == 0)
            ddpi_arena_fail(world.ranks[0].arena, why, sizeof why);
        while (!has_read(1))
            ck_assert(!arena_world_advance(1));
        if (late == 1)
            ddpi_arena_fail(world.ranks[0].arena, why, sizeof why);
        enum ddpi_arena_result result = DDPI_ARENA_RESULT_WAITS;
        while (result == DDPI_ARENA_RESULT_WAITS)
            result = ddpi_arena_advance(&world.ranks[1].op, NULL);
        ck_assert_int_eq(result, DDPI_ARENA_RESULT_FAILED);
        ddpi_arena_get_note(world.ranks[1].arena, note, sizeof note);
        ck_assert_str_eq(note, why);
        ck_assert(ddpi_arena_misses(&world.ranks[1].op, 0));
        ck_assert(!ddpi_arena_misses(&world.ranks[1].op, 1));
        arena_world_close();
    }
}
END_TEST

/* An uneven operation of which a rank sends and receives nothing, and so has no buffers. */
START_TEST(a_rank_may_have_no_part)
{
    static const size_t nothing[2] = {0, 0}, offsets[2] = {7, 9}, all[2] = {PART, 0};
    arena_world_open(2, ROOM);
    arena_world_set_path(DDPI_COPY_KERNEL);
    const struct ddpi_call call = {.operation = DDPI_ALL_TO_ALL, .dtype = DDP_UINT8};
    arena_world_begin_task(0, &(struct ddpi_task){.call = call,
                                                  .send = world.ranks[0].plain,
                                                  .recv = world.ranks[0].result,
                                                  .factor = 1,
                                                  .uneven = true,
                                                  .send_parts = {.counts = all},
                                                  .recv_parts = {.counts = all}});
    arena_world_begin_task(1, &(struct ddpi_task){.call = call,
                                                  .factor = 1,
                                                  .uneven = true,
                                                  .send_parts = {nothing, offsets},
                                                  .recv_parts = {nothing, offsets}});
    arena_world_run_all(3);
    ck_assert(is_by_kernel() && !all_have_refused());
    ck_assert_int_eq(memcmp(world.ranks[0].plain, world.ranks[0].result, PART), 0);
    arena_world_close();
}
END_TEST

/* ---- all choose the same ---- */

/* Operations of several kinds and sizes in any order: times differ from rank to rank and from run
 * to run, but what all choose does not. */
START_TEST(all_ranks_choose_the_same_path)
{
    static const enum ddpi_operation kinds[] = {DDPI_BROADCAST, DDPI_ALL_REDUCE, DDPI_ALL_GATHER,
                                                DDPI_GATHER,    DDPI_SCATTER,    DDPI_BARRIER};
    uint64_t state = 17;
    unsigned paths[DDPI_COPY_PATHS] = {0};
    arena_world_open(RANKS, ROOM);
    for (int n = 0; n < 4000; n++) {
        struct ddpi_call call = {.operation = kinds[elements_scramble(&state) % 6],
                                 .dtype = DDP_UINT8};
        if (call.operation != DDPI_BARRIER)
            call.count = (size_t)DDPI_COPY_LEAST << elements_scramble(&state) % 5;
        if (ddpi_call_shape(&call)->rooted)
            call.root = (uint32_t)(elements_scramble(&state) % RANKS);
        for (uint32_t i = 0; i < RANKS; i++) {
            struct ddpi_extents extents = ddpi_call_extents(&call, i, RANKS);
            arena_world_begin(i, &call, extents.send > 0 ? world.ranks[i].plain : NULL,
                              call.operation == DDPI_BROADCAST ? world.ranks[i].plain
                              : extents.recv > 0               ? world.ranks[i].result
                                                               : NULL);
        }
        for (uint32_t i = 1; i < RANKS; i++)
            ck_assert_int_eq(world.ranks[i].op.copies.way.path, world.ranks[0].op.copies.way.path);
        paths[world.ranks[0].op.copies.way.path]++;
        arena_world_run_all(state);
        for (uint32_t i = 1; i < RANKS; i++)
            ck_assert_int_eq(memcmp(ddpi_arena_copy_choice(world.ranks[i].arena, call.operation),
                                    ddpi_arena_copy_choice(world.ranks[0].arena, call.operation),
                                    sizeof(struct ddpi_copy_choice)),
                             0);
    }
    ck_assert_uint_gt(paths[DDPI_COPY_KERNEL], 0);
    ck_assert_uint_gt(reads, 0);
    arena_world_close();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kernel_copy_op");
    TCase *tests = tcase_create("kernel_copy_op");
    tcase_add_checked_fixture(tests, setup, NULL);
    ADD_TESTS(tests, parts_of_any_size_are_read, a_long_part_takes_several_turns,
              a_refusal_ends_it_for_all, another_process_is_not_read,
              what_is_read_of_a_failed_rank_is_not_taken, a_rank_may_have_no_part,
              all_ranks_choose_the_same_path);
    suite_add_tcase(suite, tests);
    return suite;
}
