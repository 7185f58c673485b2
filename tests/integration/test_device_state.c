/*
 * test_device_state.c - a state with blobs in memory of a GPU and of the host: all ranks get rank
 * 0's, and after a death the survivors get back what they have committed.
 */
#include "check_main.h"
#include "rig.h"

#include <ddprun/ddp_state.h>
#include <signal.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 1, COUNT = 70001, SHRINK_MS = 60000 };

/* As cudaMemcpy() with cudaMemcpyDefault: the driver tells from the addresses. */
static int copy_either_way(void *to, const void *from, size_t bytes, void *arg)
{
    const struct rig *rig = arg;
    ddpi_cu_result result = rig->cuda.memcpy_async(
        (ddpi_cu_deviceptr)(uintptr_t)to, (ddpi_cu_deviceptr)(uintptr_t)from, bytes, rig->stream);
    if (result == DDPI_CU_SUCCESS)
        result = rig->cuda.stream_synchronize(rig->stream);
    return (int)result;
}

static ddp_comm *lose_one(uint32_t rank, ddp_comm *comm)
{
    ddp_comm *rest = NULL;
    if (rank == VICTIM)
        kill(getpid(), SIGKILL);
    while (ddp_barrier(comm, NULL, NULL) == DDP_OK)
        continue;
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, SHRINK_MS, &rest, err));
    return rest;
}

static void commit_and_lose(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    uint64_t step = rank;
    struct twin weights = rig_input(&rig, COUNT, DDP_INT32);
    const struct ddp_checkpoint_blob blobs[] = {
        {.name = "step", .data = &step, .bytes = sizeof step},
        {.name = "weights", .data = twin_device(&weights), .bytes = weights.len}};
    const struct ddp_state_options options = {.size = sizeof options,
                                              .blobs = blobs,
                                              .count = 2,
                                              .copy = copy_either_way,
                                              .copy_arg = &rig};
    ddp_state *state;
    CU(rig.cuda.stream_synchronize(rig.stream)); /* the inputs are there */
    CHECK_OK(ddp_state_create(&options, &state, err));
    CHECK_OK(ddp_state_sync(state, comm, err));
    CHECK_OK(ddp_broadcast(rig.host, weights.host, weights.len, DDP_UINT8, 0, NULL, err));
    CHECK(step == 0);
    step = 1;
    CHECK_OK(ddp_state_commit(state, err));
    CHECK_OK(ddp_barrier(comm, NULL, err));
    world_step(world, WORLD_MAX - 1);
    world_await_steps(world, WORLD_MAX - 1, RANKS); /* all have left it, so that none dies in it */
    step = 9;
    CU(rig.cuda.memset_d8_async((ddpi_cu_deviceptr)(uintptr_t)twin_device(&weights), 0xee,
                                weights.len, rig.stream));
    CU(rig.cuda.stream_synchronize(rig.stream));
    ddp_comm *rest = lose_one(rank, comm);
    CHECK_OK(ddp_state_sync(state, rest, err));
    CHECK(step == 1 && ddp_state_commit_number(state) == 2);
    rig.device = rest;
    rig_compare(&rig, &weights, DDP_INT32);
    ddp_state_destroy(state);
    ddp_comm_destroy(rest);
    rig_close(&rig);
}

START_TEST(blobs_on_the_device_come_back)
{
    struct world world = {.nranks = RANKS, .name = "device-state"};
    world_open(&world);
    world_start(&world, commit_and_lose);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != VICTIM)
            world_join_rank(&world, rank);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device_state");
    TCase *tests = tcase_create("device_state");
    tcase_add_test(tests, blobs_on_the_device_come_back);
    suite_add_tcase(suite, tests);
    return suite;
}
