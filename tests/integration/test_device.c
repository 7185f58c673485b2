/*
 * test_device.c - the collectives on memory of a GPU, between real processes: every call gives the
 * same bits as the same call on host memory by the same algorithm, for every type and operation.
 */
#include "check_main.h"
#include "rig.h"
#include "sweep.h"

enum { DTYPES = DDP_INT64 + 1 };

static void every_type_and_reduction(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    size_t n = world->nranks;
    const size_t sizes[] = {1, n - 1, n, n + 1, 0, 101};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    struct sweep sweep = {.world = world->stage};
    for (unsigned turn = 0; sweep_next(&sweep); turn++) {
        struct problem of = {.dtype = sweep.dtype,
                             .op = sweep.op,
                             .count = sizes[turn % SIZES],
                             .root = turn % world->nranks,
                             .in_place = (turn + world->nranks) % 2 == 0};
        if (of.dtype <= DDP_INT64 && of.op <= DDP_PRODUCT)
            rig_all_calls(&rig, &of);
    }
    rig_close(&rig);
}

/* Worlds of every size with every algorithm; the sample has each size and each algorithm. */
START_TEST(device_and_host_agree)
{
    static const ddp_algorithm algorithms[] = {DDP_ALGORITHM_AUTO, DDP_ALGORITHM_RING,
                                               DDP_ALGORITHM_DIRECT};
    int size = _i % WORLD_MAX, turn = _i / WORLD_MAX;
    struct world world = {.nranks = (uint32_t)size + 1,
                          .algorithm = algorithms[(size + turn) % 3],
                          .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, every_type_and_reduction);
    world_close(&world);
}
END_TEST

/* Types that have no kernels of their own are copied; complex numbers are summed as reals. */
static void other_types(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (unsigned i = DTYPES; i <= DDP_BYTE; i++) {
        struct problem of = {
            .dtype = (ddp_dtype)i, .count = i * 100 + 1, .root = i % world->nranks};
        bool is_complex = of.dtype == DDP_COMPLEX64 || of.dtype == DDP_COMPLEX128;
        rig_broadcast(&rig, &of);
        rig_all_gather(&rig, &of);
        rig_shift(&rig, &of);
        if (is_complex)
            rig_all_reduce(&rig, &of);
        of.op = DDP_AVERAGE;
        if (is_complex)
            rig_reduce_scatter(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(other_types_are_moved)
{
    struct world world = {.nranks = 3,
                          .algorithm = _i == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, other_types);
    world_close(&world);
}
END_TEST

static void virtual_memory(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    rig.virtual = true;
    const size_t sizes[] = {1, 10007, 512 * 1024 + 1};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct problem of = {
            .dtype = (ddp_dtype)i, .count = sizes[i], .root = i, .in_place = i % 2 == 0};
        rig_all_calls(&rig, &of);
        rig_shift(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(virtual_memory_is_taken)
{
    struct world world = {.nranks = 4,
                          .algorithm = _i == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, virtual_memory);
    world_close(&world);
}
END_TEST

/* Before any collective, and between them. */
static void messages(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    const size_t sizes[] = {1, 1000, 0, 512 * 1024 + 1};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct problem of = {.dtype = (ddp_dtype)i, .count = sizes[i]};
        rig_shift(&rig, &of);
        rig_shift(&rig, &of);
        if (i > 0)
            rig_all_reduce(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(messages_arrive)
{
    struct world world = {.nranks = 2 * ((uint32_t)_i / 2 + 1), .tcp = _i % 2 != 0};
    world_open(&world);
    world_run(&world, messages);
    world_close(&world);
}
END_TEST

static void two_talk(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    struct problem of = {.dtype = DDP_FLOAT32, .count = 5000};
    struct twin ours = rig_input(&rig, of.count, of.dtype);
    struct twin theirs = rig_output(&rig, ours.len);
    if (rank == 0) {
        CHECK_OK(ddp_send(comm, twin_device(&ours), of.count, of.dtype, 2, rig.stream, err));
        CHECK_OK(ddp_send(rig.host, ours.host, of.count, of.dtype, 2, NULL, err));
    }
    if (rank == 2) {
        CHECK_OK(ddp_recv(comm, twin_device(&theirs), of.count, of.dtype, 0, rig.stream, err));
        CHECK_OK(ddp_recv(rig.host, theirs.host, of.count, of.dtype, 0, NULL, err));
    }
    rig_compare(&rig, &ours, of.dtype);
    rig_compare(&rig, &theirs, of.dtype);
    CHECK_OK(ddp_barrier(rig.host, NULL, err));
    rig_close(&rig);
}

START_TEST(ranks_that_take_no_part_are_not_waited_for)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, two_talk);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device");
    TCase *agree = tcase_create("agree");
    add_worlds(agree, device_and_host_agree, 0, sample_is_whole() ? 3 * WORLD_MAX : WORLD_MAX);
    tcase_add_loop_test(agree, virtual_memory_is_taken, 0, 2);
    tcase_add_loop_test(agree, messages_arrive, 0, 4);
    tcase_add_test(agree, ranks_that_take_no_part_are_not_waited_for);
    tcase_add_loop_test(agree, other_types_are_moved, 0, 2);
    suite_add_tcase(suite, agree);
    return suite;
}
