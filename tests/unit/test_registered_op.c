/*
 * test_registered_op.c - operations on buffers that all ranks see: the same bits as through the
 * slots of an arena, for every type, reduction and number of ranks. Ranks may show what is not
 * true. An operation can say which ranks it waits for. All ranks are in one thread, since no
 * function here blocks.
 */
#include "arena_method.h"
#include "arena_world.h"
#include "check_main.h"
#include "elements.h"
#include "stream_copy.h"
#include "sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    MOST = ARENA_WORLD_MOST,
    ROOM = 600 * 1024, /* bytes of a buffer with room for all parts */
    MORE = 40 * 1024,  /* bytes that a slot of the arena has no room for */
    PART = 40 * 1024,  /* about the bytes of a part: more than a share and than a small slot */
    SHIFT = 7,         /* how far buffers are from the start of a window, in elements */
    NONE = MOST,
    EVERY = MOST + 1,
};

static uint32_t parts_of(const struct ddpi_call *call, uint32_t rank, bool recv)
{
    struct ddpi_extents extents = ddpi_call_extents(call, rank, world.count);
    return recv ? extents.recv : extents.send;
}

/* A call, in windows or not. */
struct problem {
    struct ddpi_call call;
    bool in_place;
    uint32_t foreign; /* a rank whose buffers are in no window; or NONE, or EVERY */
};

/* Bytes of the buffers, and where the input and the output begin. */
static size_t part_bytes(const struct problem *of)
{
    return of->call.count * ddp_dtype_size(of->call.dtype);
}

static bool is_foreign(const struct problem *of, uint32_t rank)
{
    return of->foreign == rank || of->foreign == EVERY;
}

static void fill_input(const struct problem *of, uint32_t rank, uint8_t *input)
{
    uint64_t state = rank + 1;
    size_t size = ddp_dtype_size(of->call.dtype);
    elements_fill(input, parts_of(&of->call, rank, false) * part_bytes(of) / size, of->call.dtype,
                  &state);
}

/* Begin on @rank, with inputs that depend on nothing but the rank; returns where the output is. */
static uint8_t *begin_rank(const struct problem *of, uint32_t rank)
{
    struct arena_rank *own = &world.ranks[rank];
    size_t shift = SHIFT * ddp_dtype_size(of->call.dtype), part = rank * part_bytes(of);
    uint8_t *send = (is_foreign(of, rank) ? own->plain : own->send) + shift;
    uint8_t *recv = (is_foreign(of, rank) ? own->result : own->recv) + shift;
    bool has_send = parts_of(&of->call, rank, false) > 0;
    memset(own->recv, 0x5a, world.room);
    memset(own->result, 0x5a, world.room);
    if (of->in_place) {
        bool many = parts_of(&of->call, rank, true) > parts_of(&of->call, rank, false);
        bool fewer = parts_of(&of->call, rank, true) < parts_of(&of->call, rank, false);
        send = many ? recv + part : recv;
        recv = fewer ? send + part : recv;
    }
    if (has_send)
        fill_input(of, rank, send);
    arena_world_begin(rank, &of->call, has_send ? send : NULL,
                      parts_of(&of->call, rank, true) > 0 ? recv : NULL);
    return recv;
}

static void run_problem(const struct problem *of, bool registered, uint8_t *const *to)
{
    uint8_t *outputs[MOST];
    for (uint32_t i = 0; i < world.count; i++)
        outputs[i] = begin_rank(of, i);
    arena_world_run_all(of->call.count);
    for (uint32_t i = 0; i < world.count; i++) {
        size_t len = parts_of(&of->call, i, true) * part_bytes(of);
        ck_assert_int_eq(world.ranks[i].op.method == &ddpi_registered_method, registered);
        if (len > 0)
            memcpy(to[i], outputs[i], len);
        ck_assert(outputs[i][len] == 0x5a || of->in_place);
    }
}

static void compare_usual(const struct problem *of, enum ddpi_copy_path path,
                          uint8_t *const *registered, const uint64_t *sent,
                          const uint64_t *received)
{
    uint8_t *usual[MOST];
    arena_world_set_path(path);
    for (uint32_t i = 0; i < world.count; i++)
        usual[i] = world.ranks[i].want;
    run_problem(of, false, usual);
    for (uint32_t i = 0; i < world.count; i++) {
        ck_assert_int_eq(world.ranks[i].op.copies.way.path, path);
        size_t elements = parts_of(&of->call, i, true) * of->call.count;
        size_t differ = elements_differ(of->call.dtype, registered[i], usual[i], elements);
        ck_assert_msg(differ == elements,
                      "operation %d, type %d, reduction %d, path %d, rank %u of %u: "
                      "element %zu differs",
                      (int)of->call.operation, (int)of->call.dtype, (int)of->call.op, (int)path, i,
                      world.count, differ);
        ck_assert_uint_eq(sent[i], world.ranks[i].task.bytes_sent);
        ck_assert_uint_eq(received[i], world.ranks[i].task.bytes_received);
    }
}

/* Whether an operation through slots can take @path. */
static bool is_possible(const struct problem *of, enum ddpi_copy_path path)
{
    bool crowded = ddpi_arena_is_crowded(world.ranks[0].arena);
    return path == DDPI_COPY_CACHED ||
           (!crowded && path == DDPI_COPY_STREAMED && DDPI_CAN_STREAM) ||
           (!crowded && path == DDPI_COPY_KERNEL && !ddpi_call_shape(&of->call)->reduces);
}

/* All ways give the same, and count the same bytes. */
static void compare(struct problem *of)
{
    uint8_t *registered[MOST];
    uint64_t sent[MOST], received[MOST];
    for (uint32_t i = 0; i < world.count; i++)
        ck_assert_ptr_nonnull(registered[i] = malloc(world.room));
    of->foreign = NONE;
    run_problem(of, true, registered);
    for (uint32_t i = 0; i < world.count; i++) {
        sent[i] = world.ranks[i].task.bytes_sent;
        received[i] = world.ranks[i].task.bytes_received;
    }
    of->foreign = EVERY;
    for (unsigned path = 0; path < DDPI_COPY_PATHS; path++)
        if (is_possible(of, (enum ddpi_copy_path)path))
            compare_usual(of, (enum ddpi_copy_path)path, registered, sent, received);
    for (uint32_t i = 0; i < world.count; i++)
        free(registered[i]);
}

static struct problem problem_of(enum ddpi_operation operation, ddp_dtype dtype, ddp_reduce_op op)
{
    bool reduces = ddpi_call_shape(&(struct ddpi_call){.operation = operation})->reduces;
    struct problem of = {.call = {.operation = operation,
                                  .dtype = dtype,
                                  .op = reduces ? op : 0,
                                  .count = PART / ddp_dtype_size(dtype) + 13}};
    if (ddpi_call_shape(&of.call)->rooted)
        of.call.root = world.count - 1;
    return of;
}

static const enum ddpi_operation operations[] = {
    DDPI_BROADCAST, DDPI_ALL_REDUCE, DDPI_REDUCE,         DDPI_ALL_GATHER,
    DDPI_GATHER,    DDPI_SCATTER,    DDPI_REDUCE_SCATTER, DDPI_ALL_TO_ALL,
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static bool has_in_place(enum ddpi_operation operation)
{
    return operation != DDPI_ALL_TO_ALL && operation != DDPI_BROADCAST;
}

/* A broadcast has one buffer. */
static void prepare_broadcast(struct problem *of)
{
    of->in_place = of->in_place || of->call.operation == DDPI_BROADCAST;
}

static void compare_places(struct problem of)
{
    prepare_broadcast(&of);
    compare(&of);
    of.in_place = true;
    if (has_in_place(of.call.operation))
        compare(&of);
}

/* ---- the same bits ---- */

START_TEST(every_operation_gives_the_same)
{
    arena_world_open((uint32_t)_i, ROOM);
    for (size_t k = 0; k < OPERATIONS; k++)
        compare_places(problem_of(operations[k], DDP_BFLOAT16, DDP_SUM));
    arena_world_close();
}
END_TEST

/* The whole sweep in four worlds, or a sample of it in eight. */
START_TEST(every_reduction_gives_the_same)
{
    static const uint32_t sizes[] = {2, 3, 5, 8};
    bool whole = sample_is_whole();
    arena_world_open(whole ? sizes[_i % 4] : (uint32_t)_i + 2, ROOM);
    struct sweep sweep = {.world = (unsigned)_i, .premul = true};
    while (sweep_next(&sweep)) {
        enum ddpi_operation kind = _i / 4 == 0 ? DDPI_ALL_REDUCE : DDPI_REDUCE_SCATTER;
        struct problem of = problem_of(kind, sweep.dtype, sweep.op);
        of.in_place = sweep.turn % 2 == 0;
        if (whole)
            compare_places(of);
        else
            compare(&of);
    }
    arena_world_close();
}
END_TEST

START_TEST(every_type_is_moved)
{
    arena_world_open(3, ROOM);
    for (int dtype = 0; dtype < DDPI_DTYPES; dtype++)
        for (size_t k = 0; k < OPERATIONS; k++)
            if (!ddpi_call_shape(&(struct ddpi_call){.operation = operations[k]})->reduces)
                compare_places(problem_of(operations[k], (ddp_dtype)dtype, DDP_SUM));
    arena_world_close();
}
END_TEST

/* More bytes than a slot has, and chunks of many tiles. */
START_TEST(several_rounds_give_the_same)
{
    static const enum ddpi_operation whole[] = {DDPI_BROADCAST, DDPI_ALL_REDUCE, DDPI_REDUCE};
    arena_world_open((uint32_t)_i, 1024 * 1024 + 2 * MORE);
    size_t slot = ddpi_arena_slot_size(world.ranks[0].arena, DDPI_SLOT_LARGE);
    for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) {
        struct problem of = problem_of(whole[k], DDP_FLOAT32, DDP_SUM);
        of.call.count = (slot + MORE) / sizeof(float) + 5;
        ck_assert_uint_lt(part_bytes(&of) + SHIFT * sizeof(float), world.room);
        compare_places(of);
    }
    arena_world_close();
}
END_TEST

/* One rank has a buffer of its own: all take the usual way. */
START_TEST(one_foreign_buffer_is_enough)
{
    arena_world_open(3, ROOM);
    for (size_t k = 0; k < OPERATIONS; k++)
        for (uint32_t foreign = 0; foreign < world.count; foreign++) {
            struct problem of = problem_of(operations[k], DDP_FLOAT32, DDP_SUM);
            prepare_broadcast(&of);
            compare(&of);
            of.foreign = foreign;
            uint8_t *got[MOST];
            for (uint32_t i = 0; i < world.count; i++)
                ck_assert_ptr_nonnull(got[i] = malloc(world.room));
            run_problem(&of, false, got);
            for (uint32_t i = 0; i < world.count; i++) {
                size_t elements = parts_of(&of.call, i, true) * of.call.count;
                ck_assert_uint_eq(
                    elements_differ(of.call.dtype, got[i], world.ranks[i].want, elements),
                    elements);
                free(got[i]);
            }
        }
    arena_world_close();
}
END_TEST

/* Small operations, uneven ones, and reductions of more ranks than one loop takes. */
START_TEST(others_take_the_usual_way)
{
    uint8_t *to[MOST];
    arena_world_open(MOST, ROOM);
    for (uint32_t i = 0; i < world.count; i++)
        to[i] = world.ranks[i].want;
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    of.foreign = NONE;
    run_problem(&of, false, to);
    of = problem_of(DDPI_ALL_GATHER, DDP_UINT8, DDP_SUM);
    of.call.count = 33000;
    of.foreign = NONE;
    run_problem(&of, true, to);
    of.call.count = 100;
    run_problem(&of, false, to);
    arena_world_close();
}
END_TEST

/* ---- what is shown, and is not true ---- */

/* Rank 1 arrives and then shows something else. */
static void run_with_lie(const struct ddpi_arena_buffers *lie, const struct problem *of)
{
    uint8_t *outputs[MOST];
    for (uint32_t i = 0; i < world.count; i++)
        outputs[i] = begin_rank(of, i);
    ck_assert(!arena_world_advance(1));
    ddpi_arena_set_buffers(world.ranks[1].arena, world.ranks[1].op.round, lie);
    arena_world_run_all(1);
    for (uint32_t i = 0; i < world.count; i++) {
        size_t elements = parts_of(&of->call, i, true) * of->call.count;
        ck_assert(world.ranks[i].op.method != &ddpi_registered_method);
        ck_assert_uint_eq(
            elements_differ(of->call.dtype, outputs[i], world.ranks[i].want, elements), elements);
    }
}

START_TEST(what_is_outside_is_not_used)
{
    arena_world_open(3, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    compare(&of);
    of.foreign = NONE;
    struct ddpi_window_spot good, other;
    ck_assert(ddpi_windows_spot(&world.ranks[1].windows, world.ranks[1].send, 1, &good));
    ck_assert(ddpi_windows_spot(&world.ranks[1].windows, world.ranks[1].recv, 1, &other));
    const uint64_t last = good.room - part_bytes(&of);
    const struct ddpi_window_spot bad[] = {
        {.at = good.at, .room = good.room, .offset = last + 1},
        {.at = good.at, .room = good.room, .offset = UINT64_MAX},
        {.at = good.at, .room = good.room, .offset = UINT64_MAX - part_bytes(&of) + 1},
        {.at = good.at, .room = 2 * good.room, .offset = last + 1},
        {.at = good.at, .room = UINT64_MAX},
        {.at = other.at, .room = other.room, .offset = (uint64_t)1 << 63},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        run_with_lie(&(struct ddpi_arena_buffers){.send = bad[i], .recv = good}, &of);
        run_with_lie(&(struct ddpi_arena_buffers){.send = good, .recv = bad[i]}, &of);
    }
    arena_world_close();
}
END_TEST

/* Places where no window is, or none that is in the file: all take the usual way, and so from then
 * on. */
static void show_what_cannot_be_mapped(const struct ddpi_window_spot *bad, bool in_send)
{
    arena_world_open(3, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    compare(&of);
    of.foreign = NONE;
    struct ddpi_window_spot good, wrong;
    ck_assert(ddpi_windows_spot(&world.ranks[1].windows, world.ranks[1].send, 1, &good));
    wrong = (struct ddpi_window_spot){.at = bad->offset == 0 ? bad->at : good.at + bad->at,
                                      .room = bad->room};
    run_with_lie(&(struct ddpi_arena_buffers){.send = in_send ? wrong : good,
                                              .recv = in_send ? good : wrong},
                 &of);
    uint8_t *to[MOST];
    for (uint32_t i = 0; i < world.count; i++)
        to[i] = world.ranks[i].want;
    run_problem(&of, false, to);
    arena_world_close();
}

START_TEST(windows_that_cannot_be_mapped_are_not_used)
{
    enum { SIZE = 1 << 20, FROM_GOOD = 1 };
    static const struct ddpi_window_spot bad[] = {
        {.at = 0, .room = SIZE},
        {.at = 64 * 1024, .room = SIZE}, /* in the arena */
        {.at = 1, .room = SIZE, .offset = FROM_GOOD},
        {.at = 1 << 30, .room = SIZE, .offset = FROM_GOOD},
        {.at = 1U << 31, .room = SIZE + 1, .offset = FROM_GOOD},
        {.at = UINT64_MAX - 64 * 1024 + 1, .room = SIZE},
        {.at = (uint64_t)1 << 62, .room = (uint64_t)1 << 62},
    };
    show_what_cannot_be_mapped(&bad[_i / 2], _i % 2 == 0);
}
END_TEST

/* Keeping memory from children fails, as where a filter of system calls refuses the advice. */
static bool refuses_advice;

__attribute__((visibility("default"))) int madvise(void *address, size_t len, int advice)
{
    if (refuses_advice && advice == MADV_DONTFORK) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, len, advice);
}

START_TEST(a_window_that_children_would_have_is_not_mapped)
{
    arena_world_open(2, ROOM);
    struct ddpi_windows *windows = &world.ranks[0].windows;
    struct ddpi_window_spot spot;
    ck_assert(ddpi_windows_spot(&world.ranks[1].windows, world.ranks[1].send, 1, &spot));
    refuses_advice = true;
    ck_assert(!ddpi_windows_map(windows, &spot, 1));
    ck_assert_ptr_null(ddpi_windows_at(windows, &spot));
    ck_assert(!ddpi_windows_map(windows, &spot, 1));
    refuses_advice = false;
    ck_assert(ddpi_windows_map(windows, &spot, 1));
    ck_assert_ptr_nonnull(ddpi_windows_at(windows, &spot));
    arena_world_close();
}
END_TEST

/* ---- windows come and go ---- */

static void run_in_windows(struct problem *of, bool registered)
{
    uint8_t *to[MOST];
    for (uint32_t i = 0; i < world.count; i++)
        to[i] = world.ranks[i].want;
    of->foreign = NONE;
    run_problem(of, registered, to);
}

static uint64_t place_of(uint32_t rank, const void *buffer)
{
    struct ddpi_window_spot spot;
    ck_assert(ddpi_windows_spot(&world.ranks[rank].windows, buffer, 1, &spot));
    return spot.at;
}

START_TEST(a_freed_window_is_not_used)
{
    struct ddpi_window_spot spot;
    arena_world_open(2, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    compare(&of);
    for (uint32_t i = 0; i < world.count; i++) {
        struct ddpi_windows *windows = &world.ranks[i].windows;
        uint8_t *second = world.ranks[i].recv;
        ck_assert(!ddpi_windows_free(windows, second + 1));
        ck_assert(ddpi_windows_free(windows, second));
        ck_assert(!ddpi_windows_free(windows, second));
        ck_assert(!ddpi_windows_spot(windows, second, 1, &spot));
        world.ranks[i].recv = world.ranks[i].send;
    }
    of.in_place = true;
    run_in_windows(&of, true);
    arena_world_close();
}
END_TEST

/* What has the same size comes to the same place, which the others know; another one does not. */
START_TEST(a_place_is_used_again)
{
    arena_world_open(2, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    run_in_windows(&of, true);
    ck_assert_uint_eq(world.ranks[0].op.round, 2); /* in the second one all told that they see */
    run_in_windows(&of, true);
    ck_assert_uint_eq(world.ranks[0].op.round, 3);
    for (uint32_t i = 0; i < world.count; i++) {
        struct arena_rank *rank = &world.ranks[i];
        struct ddp_error err;
        uint64_t place = place_of(i, rank->recv);
        void *more, *again;
        ck_assert(ddpi_windows_free(&rank->windows, rank->recv));
        ck_assert_int_eq(ddpi_windows_make(&rank->windows, 2 * ROOM, &more, &err), DDP_OK);
        ck_assert_int_eq(ddpi_windows_make(&rank->windows, ROOM - 1, &again, &err), DDP_OK);
        ck_assert_uint_ne(place_of(i, more), place);
        ck_assert_uint_eq(place_of(i, again), place);
        for (size_t k = 0; k < ROOM - 1; k++)
            ck_assert_uint_eq(((uint8_t *)again)[k], 0);
        rank->recv = again;
    }
    world.room--;
    run_in_windows(&of, true);
    ck_assert_uint_eq(world.ranks[0].op.round, 4);
    compare(&of);
    arena_world_close();
}
END_TEST

/* Each rank makes its own, when it likes. */
START_TEST(ranks_may_have_different_windows)
{
    arena_world_open(3, ROOM);
    struct problem of = problem_of(DDPI_REDUCE_SCATTER, DDP_FLOAT32, DDP_SUM);
    run_in_windows(&of, true);
    for (uint32_t i = 0; i < 2; i++) {
        struct ddp_error err;
        void *other;
        ck_assert_int_eq(ddpi_windows_make(&world.ranks[i].windows, ROOM << (3 * i), &other, &err),
                         DDP_OK);
        world.ranks[i].recv = other;
        compare(&of);
    }
    arena_world_close();
}
END_TEST

START_TEST(sizes_beyond_any_file_are_refused)
{
    static const size_t sizes[] = {SIZE_MAX, PTRDIFF_MAX, PTRDIFF_MAX / 2, PTRDIFF_MAX / 4 + 1};
    struct ddp_error err;
    void *window;
    arena_world_open(2, ROOM);
    struct ddpi_windows *windows = &world.ranks[0].windows;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ck_assert_int_eq(ddpi_windows_make(windows, sizes[i], &window, &err), DDP_E_NOMEM);
    ck_assert_int_eq(ddpi_windows_make(windows, PTRDIFF_MAX / 4, &window, &err), DDP_E_SYSTEM);
    atomic_store(windows->file.taken, UINT64_MAX); /* as a rank may */
    ck_assert_int_eq(ddpi_windows_make(windows, 1, &window, &err), DDP_E_NOMEM);
    arena_world_close();
}
END_TEST

/* ---- who is missing ---- */

START_TEST(ranks_that_do_not_come_are_known)
{
    arena_world_open(3, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    of.foreign = NONE;
    for (uint32_t i = 0; i < world.count; i++)
        (void)begin_rank(&of, i);
    ck_assert(!arena_world_advance(0) && !arena_world_advance(1));
    ck_assert(ddpi_arena_misses(&world.ranks[0].op, 2) &&
              !ddpi_arena_misses(&world.ranks[0].op, 1));
    arena_world_close();
}
END_TEST

/* A rank takes a share of the work and stops: the others do all the rest, and wait for it. */
START_TEST(a_rank_that_stops_at_work_is_known)
{
    uint32_t share;
    arena_world_open(3, ROOM);
    struct problem of = problem_of(DDPI_ALL_REDUCE, DDP_FLOAT32, DDP_SUM);
    run_in_windows(&of, true);
    uint64_t round = world.ranks[0].op.round + 1;
    for (uint32_t i = 0; i < world.count; i++)
        (void)begin_rank(&of, i);
    ck_assert(!arena_world_advance(1) && !arena_world_advance(2));
    ck_assert_uint_eq(world.ranks[1].op.round, round);

    /* Rank 0 arrives, and begins its work by hand. */
    ck_assert_uint_eq(ddpi_arena_next_round(world.ranks[0].arena), round);
    ddpi_arena_set_call(world.ranks[0].arena, round, &world.ranks[0].task.call);
    world.ranks[0].op.round = round;
    ddpi_arena_set_buffers(world.ranks[0].arena, round, &world.ranks[0].op.registered.own);
    ddpi_arena_arrive(world.ranks[0].arena, round);
    ddpi_arena_set_busy(world.ranks[0].arena, round);
    uint64_t work = ddpi_arena_next_work(world.ranks[0].arena, round);
    ck_assert(ddpi_arena_claim(world.ranks[0].arena, round, work, 2, &share));

    for (uint32_t i = 1; i < world.count; i++) {
        ck_assert(!arena_world_advance(i));
        ck_assert(!ddpi_arena_is_ready(&world.ranks[i].op));
        ck_assert(ddpi_arena_misses(&world.ranks[i].op, 0));
        ck_assert(!ddpi_arena_misses(&world.ranks[i].op, 3 - i));
    }
    ddpi_arena_finish(world.ranks[0].arena, round, work, 2, share);
    ck_assert(arena_world_advance(1) && arena_world_advance(2));
    arena_world_close();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("registered_op");
    TCase *tcase = tcase_create("registered_op");
    add_worlds(tcase, every_operation_gives_the_same, 2, 9);
    add_worlds(tcase, every_reduction_gives_the_same, 0, 8);
    tcase_add_test(tcase, every_type_is_moved);
    add_worlds(tcase, several_rounds_give_the_same, 2, 6);
    tcase_add_test(tcase, one_foreign_buffer_is_enough);
    tcase_add_test(tcase, others_take_the_usual_way);
    tcase_add_test(tcase, what_is_outside_is_not_used);
    tcase_add_test(tcase, a_freed_window_is_not_used);
    add_worlds(tcase, windows_that_cannot_be_mapped_are_not_used, 0, 14);
    tcase_add_test(tcase, a_window_that_children_would_have_is_not_mapped);
    tcase_add_test(tcase, a_place_is_used_again);
    tcase_add_test(tcase, ranks_may_have_different_windows);
    tcase_add_test(tcase, sizes_beyond_any_file_are_refused);
    tcase_add_test(tcase, ranks_that_do_not_come_are_known);
    tcase_add_test(tcase, a_rank_that_stops_at_work_is_known);
    suite_add_tcase(suite, tcase);
    return suite;
}
