/*
 * test_neighbours_failure.c - two ranks die at once, and one between them lives: whoever survives
 * names one of the two, and never another survivor, who may have left before on their account.
 */
#include "check_main.h"
#include "world.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { COUNT = 30000, LONG_MS = 60 * 1000, SMALLEST = 3, SIZES = WORLD_MAX - SMALLEST + 1 };

/* world->stage is the rank between the two. */
static uint32_t before(const struct world *world)
{
    return (world->stage + world->nranks - 1) % world->nranks;
}

static uint32_t behind(const struct world *world)
{
    return (world->stage + 1) % world->nranks;
}

static bool dies(const struct world *world, uint32_t rank)
{
    return rank == before(world) || rank == behind(world);
}

static void kill_both(struct world *world)
{
    kill(world->pids[before(world)], SIGKILL);
    kill(world->pids[behind(world)], SIGKILL);
    world_kill_rank(world, before(world));
    world_kill_rank(world, behind(world));
}

static void expect_one_of_both(const struct world *world)
{
    char one[32], other[32];
    snprintf(one, sizeof one, "rank %u (", before(world));
    snprintf(other, sizeof other, "rank %u (", behind(world));
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        const struct report *seen = &world->reports[rank];
        if (dies(world, rank))
            continue;
        ck_assert_msg(seen->status == DDP_E_PEER_DEAD &&
                          (strncmp(seen->error.msg, one, strlen(one)) == 0 ||
                           strncmp(seen->error.msg, other, strlen(other)) == 0) &&
                          strstr(seen->error.msg, "has died") != NULL,
                      "%u and %u of %u die, rank %u: %s: %s", before(world), behind(world),
                      world->nranks, rank, ddp_status_name(seen->status), seen->error.msg);
    }
}

/* Shifts over two places and collectives in turn, so that all kinds of edges are at work. */
static void go_on(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT], in[COUNT];
    struct ddp_error error = {0};
    ddp_status status;
    do {
        uint32_t to = (rank + 2) % world->nranks, from = (rank + world->nranks - 2) % world->nranks;
        status = ddp_send(comm, values, 100, DDP_FLOAT32, to, NULL, &error);
        if (status == DDP_OK)
            status = ddp_recv(comm, in, 100, DDP_FLOAT32, from, NULL, &error);
        if (status == DDP_OK)
            status = ddp_all_reduce(comm, values, in, COUNT, DDP_FLOAT32, DDP_MAX, NULL, &error);
        atomic_fetch_add(&world->reports[rank].steps, 1);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
}

/* Worlds of 3 to 8, over both transports, each rank between the two in turn. */
START_TEST(two_that_die_at_once_are_named)
{
    uint32_t nranks = SMALLEST + (uint32_t)_i % SIZES, stride = (uint32_t)sample_stride();
    for (uint32_t turn = (uint32_t)_i % stride % nranks; turn < nranks; turn += stride) {
        struct world world = {
            .nranks = nranks, .tcp = _i >= SIZES, .timeout_ms = LONG_MS, .stage = turn};
        world_open(&world);
        world_start(&world, go_on);
        world_await_steps(&world, turn, 1 + turn % 3);
        kill_both(&world);
        world_join(&world);
        expect_one_of_both(&world);
        world_close(&world);
    }
}
END_TEST

/* The one between them asks a rank for a message that has failed and left by then. */
static void ask_who_has_left(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    float value;
    atomic_fetch_add(&world->reports[rank].steps, 1);
    if (rank != world->stage) {
        ddp_status status = ddp_barrier(comm, NULL, &error);
        world_report(world, rank, status, &error);
        return;
    }
    while (atomic_load(world->counter) == 0)
        poll(NULL, 0, 10);
    uint32_t other = (rank + 2) % world->nranks;
    ddp_status status = ddp_recv(comm, &value, 1, DDP_FLOAT32, other, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(who_has_left_on_their_account_is_not_named)
{
    uint32_t nranks = SMALLEST + 1 + (uint32_t)_i % (SIZES - 1);
    struct world world = {.nranks = nranks,
                          .tcp = _i >= SIZES - 1,
                          .timeout_ms = LONG_MS,
                          .stage = (uint32_t)_i % nranks};
    world_open(&world);
    world_start(&world, ask_who_has_left);
    for (uint32_t rank = 0; rank < nranks; rank++)
        world_await_steps(&world, rank, 1);
    kill_both(&world);
    for (uint32_t rank = 0; rank < nranks; rank++)
        if (rank != world.stage && !dies(&world, rank))
            world_join_rank(&world, rank);
    atomic_store(world.counter, 1);
    world_join(&world);
    expect_one_of_both(&world);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("neighbours");
    TCase *tcase = tcase_create("neighbours");
    tcase_add_loop_test(tcase, two_that_die_at_once_are_named, 0, 2 * SIZES);
    tcase_add_loop_test(tcase, who_has_left_on_their_account_is_not_named, 0, 2 * (SIZES - 1));
    suite_add_tcase(suite, tcase);
    return suite;
}
