/*
 * test_finite_check.c - all_reduce and reduce_scatter that tell whether their result has an inf or
 * a NaN: every type by every algorithm in worlds of 1 to 8 ranks, with one element that is not
 * finite on one rank, at the ends and the borders of buffers; overflow of finite elements; nothing
 * to find; the same bits and the same answer on all ranks; and what is refused.
 */
#include "check_main.h"
#include "elements.h"
#include "sweep.h"
#include "world.h"

#include <float.h>
#include <math.h>
#include <poll.h>
#include <string.h>

enum {
    SMALL = 61,
    LARGE = 150 * 1024 + 11, /* of float32 more than a round of an arena, or a slice, or a part */
    LISTED = 3,              /* buffers of a list */
};

/* The ways of a world: its algorithm, and whether ranks share memory. */
static const struct way {
    ddp_algorithm algorithm;
    bool tcp;
    const char *hosts;
    bool windows; /* buffers of ddp_alloc() */
} ways[] = {
    {.algorithm = DDP_ALGORITHM_AUTO},
    {.algorithm = DDP_ALGORITHM_AUTO, .windows = true},
    {.algorithm = DDP_ALGORITHM_RING},
    {.algorithm = DDP_ALGORITHM_RING, .tcp = true},
    {.algorithm = DDP_ALGORITHM_DIRECT, .tcp = true},
    {.algorithm = DDP_ALGORITHM_DOUBLING, .tcp = true},
    {.algorithm = DDP_ALGORITHM_HIERARCHICAL, .hosts = "aabbccdd"},
    {.algorithm = DDP_ALGORITHM_HIERARCHICAL, .hosts = "abbbcccc"},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* A rank's buffers: what it contributes, and two results. */
struct buffers {
    size_t room;
    uint8_t *send, *plain, *checked;
};

static void *allocate(ddp_comm *comm, size_t room, bool windows)
{
    void *memory = NULL;
    if (windows)
        CHECK_OK(ddp_alloc(comm, room, &memory, err));
    else
        memory = malloc(room);
    CHECK(memory != NULL);
    return memory;
}

static void make_buffers(ddp_comm *comm, size_t room, bool windows, struct buffers *ret)
{
    *ret = (struct buffers){.room = room,
                            .send = allocate(comm, room, windows),
                            .plain = allocate(comm, room, windows),
                            .checked = allocate(comm, room, windows)};
}

static void put(uint8_t *buffer, size_t i, ddp_dtype dtype, element_bits bits)
{
    memcpy(buffer + i * ddp_dtype_size(dtype), &bits, ddp_dtype_size(dtype));
}

/* Small numbers that differ from rank to rank. */
static void fill(uint8_t *buffer, size_t count, ddp_dtype dtype, uint32_t rank)
{
    static const double values[] = {0.5, -1, 2, 0.25, -0.5, 1, 0};
    for (size_t i = 0; i < count; i++)
        put(buffer, i, dtype, elements_of_double(dtype, values[(i + rank) % 7]));
}

static double largest(ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_FLOAT16:
        return 65504;
    case DDP_BFLOAT16:
        return 0x1.fep127;
    case DDP_FLOAT8_E4M3:
        return 448;
    case DDP_FLOAT8_E5M2:
        return 57344;
    case DDP_FLOAT64:
    case DDP_COMPLEX128:
        return DBL_MAX;
    default:
        return (double)FLT_MAX;
    }
}

/* An element of 77 is written by a rank that leaves it. */
enum { UNSET = 77 };

static struct ddp_operation operation_of(ddp_kind kind, const void *send, void *recv, size_t count,
                                         ddp_dtype dtype, ddp_reduce_op op)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = kind,
                                  .send = send,
                                  .recv = recv,
                                  .count = count,
                                  .dtype = dtype,
                                  .op = op};
}

/* The operation without and with a check: the same bits. Returns the answer. */
static uint32_t run_twice(ddp_comm *comm, const struct buffers *buffers,
                          struct ddp_operation operation, size_t recv_count)
{
    uint32_t non_finite = UNSET;
    size_t len = recv_count * ddp_dtype_size(operation.dtype);
    operation.send = buffers->send;
    operation.recv = buffers->plain;
    CHECK_OK(ddp_run(comm, &operation, err));
    operation.recv = buffers->checked;
    operation.non_finite = &non_finite;
    CHECK_OK(ddp_run(comm, &operation, err));
    CHECK(memcmp(buffers->plain, buffers->checked, len) == 0);
    CHECK(non_finite == !elements_are_finite(buffers->checked, recv_count, operation.dtype));
    return non_finite;
}

/* ---- all_reduce ---- */

/* All ranks have the same answer, and it is @expected. */
static void check_answer(ddp_comm *comm, uint32_t answer, uint32_t expected)
{
    uint32_t least, most;
    CHECK(answer == expected);
    CHECK_OK(ddp_all_reduce(comm, &answer, &least, 1, DDP_UINT32, DDP_MIN, NULL, err));
    CHECK_OK(ddp_all_reduce(comm, &answer, &most, 1, DDP_UINT32, DDP_MAX, NULL, err));
    CHECK(least == expected && most == expected);
}

/* @value in element @at of rank @guilty alone; in place, too. */
static void reduce_with(ddp_comm *comm, const struct buffers *buffers, size_t count,
                        ddp_dtype dtype, ddp_reduce_op op, uint32_t guilty, size_t at, double value)
{
    uint32_t rank = ddp_comm_rank(comm), in_place = UNSET;
    struct ddp_operation operation =
        operation_of(DDP_KIND_ALL_REDUCE, NULL, NULL, count, dtype, op);
    element_bits before = elements_get(buffers->send, at, dtype);
    if (rank == guilty)
        put(buffers->send, at, dtype, elements_of_double(dtype, value));
    check_answer(comm, run_twice(comm, buffers, operation, count), 1);
    memcpy(buffers->plain, buffers->send, count * ddp_dtype_size(dtype));
    operation.send = operation.recv = buffers->plain;
    operation.non_finite = &in_place;
    CHECK_OK(ddp_run(comm, &operation, err));
    CHECK(in_place == 1);
    CHECK(memcmp(buffers->plain, buffers->checked, count * ddp_dtype_size(dtype)) == 0);
    put(buffers->send, at, dtype, before);
}

static void reduce_finite(ddp_comm *comm, const struct buffers *buffers, size_t count,
                          ddp_dtype dtype, ddp_reduce_op op)
{
    struct ddp_operation operation =
        operation_of(DDP_KIND_ALL_REDUCE, NULL, NULL, count, dtype, op);
    check_answer(comm, run_twice(comm, buffers, operation, count), 0);
}

/* The largest number on two ranks, the rest 0: each is finite, their sum is not. */
static void reduce_overflow(ddp_comm *comm, const struct buffers *buffers, ddp_dtype dtype)
{
    uint32_t rank = ddp_comm_rank(comm), ranks = ddp_comm_world_size(comm);
    struct ddp_operation operation =
        operation_of(DDP_KIND_ALL_REDUCE, NULL, NULL, SMALL, dtype, DDP_SUM);
    memset(buffers->send, 0, SMALL * ddp_dtype_size(dtype));
    if (rank + 2 >= ranks)
        put(buffers->send, SMALL / 2, dtype, elements_of_double(dtype, largest(dtype)));
    CHECK(elements_are_finite(buffers->send, SMALL, dtype));
    check_answer(comm, run_twice(comm, buffers, operation, SMALL), ranks > 1);
}

static void every_type(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const double values[] = {INFINITY, -INFINITY, NAN};
    const size_t apart = world->nranks <= 3 && sample_is_whole() ? 4 : 15;
    struct buffers buffers;
    uint32_t turn = 0;
    make_buffers(comm, SMALL * DDPI_DTYPE_SIZE_MOST, ways[world->stage].windows, &buffers);
    struct sweep sweep = {.world = world->nranks * WAYS + world->stage};
    while (sweep_next(&sweep)) {
        ddp_dtype dtype = sweep.dtype;
        if (!elements_reduce(dtype, DDP_PREMUL_SUM))
            continue;
        fill(buffers.send, SMALL, dtype, rank);
        reduce_finite(comm, &buffers, SMALL, dtype, sweep.op);
        for (size_t at = 0; at < SMALL && sweep.op <= DDP_AVERAGE; at += apart, turn++)
            reduce_with(comm, &buffers, SMALL, dtype, sweep.op, turn % world->nranks, at,
                        values[turn % 3]);
        reduce_with(comm, &buffers, SMALL, dtype, sweep.op, turn++ % world->nranks, SMALL - 1, NAN);
        reduce_overflow(comm, &buffers, dtype);
    }
}

/* Around each border of the pieces that a buffer is divided into, whatever they are. */
static void large_buffers(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t borders[] = {0, 1024, 8192, 16384, LARGE / 8, 65536, 131072, LARGE - 1};
    struct buffers buffers;
    make_buffers(comm, LARGE * sizeof(float), ways[world->stage].windows, &buffers);
    fill(buffers.send, LARGE, DDP_FLOAT32, rank);
    reduce_finite(comm, &buffers, LARGE, DDP_FLOAT32, DDP_SUM);
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        uint32_t guilty = (uint32_t)i % world->nranks;
        reduce_with(comm, &buffers, LARGE, DDP_FLOAT32, DDP_SUM, guilty, borders[i], NAN);
        if (borders[i] > 0)
            reduce_with(comm, &buffers, LARGE, DDP_FLOAT32, DDP_AVERAGE, guilty, borders[i] - 1,
                        INFINITY);
    }
    reduce_finite(comm, &buffers, LARGE, DDP_FLOAT32, DDP_AVERAGE);
}

/* ---- reduce_scatter ---- */

/* Only the rank that gets the element is told of it. */
static void parts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t sizes[] = {1, SMALL, LARGE / 8};
    struct buffers buffers;
    make_buffers(comm, (size_t)LARGE * world->nranks * sizeof(float), ways[world->stage].windows,
                 &buffers);
    for (ddp_dtype dtype = 0; (int)dtype < DDPI_DTYPES; dtype++) {
        if (!elements_reduce(dtype, DDP_PREMUL_SUM))
            continue;
        size_t count = sizes[dtype == DDP_FLOAT32 ? 2 : dtype % 2], all = count * world->nranks;
        struct ddp_operation operation =
            operation_of(DDP_KIND_REDUCE_SCATTER, NULL, NULL, count, dtype, DDP_SUM);
        fill(buffers.send, all, dtype, rank);
        CHECK(run_twice(comm, &buffers, operation, count) == 0);
        for (uint32_t target = 0; target < world->nranks; target++) {
            size_t at = target * count + count / 2;
            element_bits before = elements_get(buffers.send, at, dtype);
            if (rank == (target + 1) % world->nranks)
                put(buffers.send, at, dtype, elements_of_double(dtype, NAN));
            CHECK(run_twice(comm, &buffers, operation, count) == (rank == target));
            put(buffers.send, at, dtype, before);
        }
    }
}

static void uneven_parts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    size_t counts[WORLD_MAX], all = 0, own = rank == 1 ? 0 : 5 + rank;
    struct buffers buffers;
    for (uint32_t i = 0; i < world->nranks; i++)
        all += counts[i] = i == 1 ? 0 : 5 + i;
    make_buffers(comm, all * sizeof(float), false, &buffers);
    struct ddp_operation operation =
        operation_of(DDP_KIND_REDUCE_SCATTER, NULL, NULL, own, DDP_FLOAT32, DDP_SUM);
    operation.uneven = 1;
    operation.send_counts = counts;
    fill(buffers.send, all, DDP_FLOAT32, rank);
    CHECK(run_twice(comm, &buffers, operation, own) == 0);
    put(buffers.send, all - 1, DDP_FLOAT32, elements_of_double(DDP_FLOAT32, NAN)); /* on all */
    bool is_last = rank + 1 == world->nranks && own > 0;
    bool is_before = rank + 2 == world->nranks && counts[world->nranks - 1] == 0;
    CHECK(run_twice(comm, &buffers, operation, own) == (is_last || is_before));
}

/* ---- lists, requests, groups ---- */

static void lists(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t counts[LISTED] = {1, LARGE / 2, SMALL};
    struct ddp_buffer list[LISTED];
    for (size_t i = 0; i < LISTED; i++) {
        uint8_t *values = malloc(counts[i] * sizeof(float));
        CHECK(values != NULL);
        list[i] = (struct ddp_buffer){values, values, counts[i]};
    }
    for (size_t guilty = 0; guilty <= LISTED; guilty++) { /* LISTED: none is */
        uint32_t non_finite = UNSET;
        struct ddp_operation operation =
            operation_of(DDP_KIND_ALL_REDUCE, NULL, NULL, 0, DDP_FLOAT32, DDP_SUM);
        operation.buffers = list;
        operation.nbuffers = LISTED;
        operation.non_finite = &non_finite;
        for (size_t i = 0; i < LISTED; i++)
            fill(list[i].recv, counts[i], DDP_FLOAT32, rank);
        if (guilty < LISTED && rank == guilty % world->nranks)
            put(list[guilty].recv, counts[guilty] - 1, DDP_FLOAT32,
                elements_of_double(DDP_FLOAT32, INFINITY));
        CHECK_OK(ddp_run(comm, &operation, err));
        check_answer(comm, non_finite, guilty < LISTED);
    }
}

static void requests_and_groups(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MANY = 6 };
    float values[MANY][SMALL];
    uint32_t answers[2][MANY];
    ddp_request *requests[MANY];
    struct ddp_operation operation =
        operation_of(DDP_KIND_ALL_REDUCE, NULL, NULL, SMALL, DDP_FLOAT32, DDP_SUM);
    for (size_t turn = 0; turn < 2; turn++) {
        if (turn == 1)
            CHECK_OK(ddp_group_start(comm, err));
        for (size_t i = 0; i < MANY; i++) {
            answers[turn][i] = UNSET;
            fill((uint8_t *)values[i], SMALL, DDP_FLOAT32, rank);
            if (i % 2 == 1 && rank == i % world->nranks)
                values[i][i] = NAN;
            operation.send = operation.recv = values[i];
            operation.non_finite = i == 4 ? NULL : &answers[turn][i];
            if (turn == 0)
                CHECK_OK(ddp_start(comm, &operation, &requests[i], err));
            else
                CHECK_OK(ddp_run(comm, &operation, err));
        }
        for (size_t i = 0; i < MANY && turn == 0; i++) {
            CHECK_OK(ddp_request_wait(requests[i], 0, NULL, err));
            ddp_request_free(requests[i]);
        }
        if (turn == 1)
            CHECK_OK(ddp_group_end(comm, err));
        for (size_t i = 0; i < MANY; i++)
            CHECK(answers[turn][i] == (i == 4 ? UNSET : i % 2));
    }
}

/* ---- what is refused ---- */

static void refuse(ddp_comm *comm, const struct ddp_operation *operation, const char *sentence)
{
    struct ddp_error error;
    CHECK(ddp_run(comm, operation, &error) == DDP_E_INVALID);
    if (strcmp(error.msg, sentence) != 0)
        fprintf(stderr, "%s\n", error.msg);
    CHECK(strcmp(error.msg, sentence) == 0);
}

static void refused(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float value = (float)rank;
    uint32_t non_finite = UNSET;
    struct ddp_operation operation =
        operation_of(DDP_KIND_BROADCAST, NULL, &value, 1, DDP_FLOAT32, DDP_SUM);
    operation.non_finite = &non_finite;
    refuse(comm, &operation,
           "broadcast has no finite check, only all_reduce and reduce_scatter: set non_finite to "
           "NULL");
    operation.kind = DDP_KIND_ALL_REDUCE;
    operation.send = &value;
    operation.dtype = DDP_INT32;
    refuse(comm, &operation, "int32 has neither inf nor NaN to check for: set non_finite to NULL");
    operation.dtype = DDP_FLOAT32;
    operation.size = offsetof(struct ddp_operation, non_finite); /* a program that is older */
    CHECK_OK(ddp_run(comm, &operation, err));
    CHECK(value == (float)(world->nranks * (world->nranks - 1) / 2));
    CHECK(non_finite == UNSET);
}

/* The last rank does not ask for a check. */
static void not_asked_by_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float value = 1;
    uint32_t non_finite = UNSET;
    struct ddp_error error;
    struct ddp_operation operation =
        operation_of(DDP_KIND_ALL_REDUCE, &value, &value, 1, DDP_FLOAT32, DDP_SUM);
    operation.non_finite = rank + 1 < world->nranks ? &non_finite : NULL;
    atomic_fetch_add(world->counter, 1); /* the failure would reach ranks that still join */
    while (atomic_load(world->counter) < world->nranks)
        poll(NULL, 0, 20);
    CHECK(ddp_run(comm, &operation, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, " with a finite check") != NULL);
    CHECK(non_finite == UNSET);
}

/* ---- worlds ---- */

/* _i: the way, and the number of ranks. */
static void run_world(int i, rank_body *body)
{
    const struct way *way = &ways[i % WAYS];
    char hosts[WORLD_MAX + 1] = "";
    struct world world = {.nranks = (uint32_t)(i / WAYS) + 1,
                          .tcp = way->tcp,
                          .algorithm = way->algorithm,
                          .stage = (uint32_t)(i % WAYS)};
    bool has_two_hosts =
        way->hosts != NULL && world.nranks > 2 && way->hosts[world.nranks - 1] != way->hosts[0];
    if (way->hosts != NULL && !has_two_hosts)
        return;
    if (way->hosts != NULL)
        world.hosts = strncpy(hosts, way->hosts, world.nranks);
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

#define WORLD_TEST(name, body) \
    START_TEST(name)           \
    {                          \
        run_world(_i, body);   \
    }                          \
    END_TEST

WORLD_TEST(every_type_is_checked, every_type)
WORLD_TEST(large_buffers_are_checked, large_buffers)
WORLD_TEST(parts_are_checked, parts)
WORLD_TEST(uneven_parts_are_checked, uneven_parts)
WORLD_TEST(lists_are_checked, lists)
WORLD_TEST(requests_and_groups_are_checked, requests_and_groups)
WORLD_TEST(other_operations_are_refused, refused)
WORLD_TEST(all_ranks_must_ask, not_asked_by_all)

Suite *test_suite(void)
{
    enum { ALL = WORLD_MAX * WAYS, TWO = WAYS, FOUR = 3 * WAYS };
    bool whole = sample_is_whole();
    Suite *suite = suite_create("finite_check");
    TCase *tcase = tcase_create("finite_check");
    add_worlds(tcase, every_type_is_checked, 0, whole ? ALL : FOUR + WAYS);
    add_worlds(tcase, large_buffers_are_checked, whole ? 0 : FOUR, whole ? ALL : FOUR + WAYS);
    add_worlds(tcase, parts_are_checked, whole ? 0 : FOUR, whole ? ALL : FOUR + WAYS);
    add_worlds(tcase, uneven_parts_are_checked, TWO, FOUR + WAYS);
    add_worlds(tcase, lists_are_checked, whole ? 0 : FOUR, FOUR + WAYS);
    add_worlds(tcase, requests_and_groups_are_checked, whole ? 0 : FOUR, FOUR + WAYS);
    tcase_add_loop_test(tcase, other_operations_are_refused, TWO, TWO + WAYS);
    add_worlds(tcase, all_ranks_must_ask, TWO, FOUR + WAYS);
    suite_add_tcase(suite, tcase);
    return suite;
}
