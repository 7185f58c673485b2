/*
 * test_groups_threads.c - communicators of the same ranks are independent of each other: threads
 * use them at once, ranks in different orders, and what befalls one leaves the others alone.
 */
#include "check_main.h"
#include "world.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, PAIR = 2, ROUNDS = 60, COUNT = 3001 };

/* A thread of a rank with a communicator of its own. */
struct lane {
    ddp_comm *comm;
    uint32_t seed;
    uint32_t rounds; /* to do, or done when it failed */
    ddp_status status;
    struct ddp_error error;
    pthread_t thread;
};

/* A copy of @parent. */
static ddp_comm *copy_comm(ddp_comm *parent)
{
    ddp_comm *comm = NULL;
    CHECK_OK(ddp_comm_split(parent, 0, 0, &comm, err));
    CHECK(ddp_comm_rank(comm) == ddp_comm_rank(parent));
    CHECK(ddp_comm_world_size(comm) == ddp_comm_world_size(parent));
    return comm;
}

static int32_t value_of(uint32_t seed, uint32_t round, uint32_t rank, size_t i)
{
    return (int32_t)((seed * 31 + round * 7 + rank * 3 + i) % 1000);
}

static void fill(int32_t *values, uint32_t seed, uint32_t round, uint32_t rank)
{
    for (size_t i = 0; i < COUNT; i++)
        values[i] = value_of(seed, round, rank, i);
}

static void check_sums(const int32_t *values, uint32_t seed, uint32_t round, uint32_t nranks)
{
    size_t wrong = 0;
    for (size_t i = 0; i < COUNT; i++) {
        int32_t sum = 0;
        for (uint32_t rank = 0; rank < nranks; rank++)
            sum += value_of(seed, round, rank, i);
        wrong += values[i] != sum;
    }
    CHECK(wrong == 0);
}

/* A sum, and a message to the next rank. */
static ddp_status run_round(struct lane *lane)
{
    uint32_t rank = ddp_comm_rank(lane->comm), nranks = ddp_comm_world_size(lane->comm);
    uint32_t next = (rank + 1) % nranks, prev = (rank + nranks - 1) % nranks;
    int32_t values[COUNT], own = value_of(lane->seed, lane->rounds, rank, 0), from_prev = -1;
    fill(values, lane->seed, lane->rounds, rank);
    ddp_status status =
        ddp_all_reduce(lane->comm, values, values, COUNT, DDP_INT32, DDP_SUM, NULL, &lane->error);
    if (status != DDP_OK)
        return status;
    check_sums(values, lane->seed, lane->rounds, nranks);
    status = ddp_send(lane->comm, &own, 1, DDP_INT32, next, NULL, &lane->error);
    if (status == DDP_OK)
        status = ddp_recv(lane->comm, &from_prev, 1, DDP_INT32, prev, NULL, &lane->error);
    CHECK(status != DDP_OK || from_prev == value_of(lane->seed, lane->rounds, prev, 0));
    return status;
}

/* Rounds until all are done or one fails. */
static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    uint32_t wanted = lane->rounds;
    for (lane->rounds = 0; lane->rounds < wanted && lane->status == DDP_OK;) {
        lane->status = run_round(lane);
        lane->rounds += lane->status == DDP_OK;
    }
    return NULL;
}

static void start_lane(struct lane *lane)
{
    CHECK(pthread_create(&lane->thread, NULL, run_lane, lane) == 0);
}

/* All rounds are done. */
static void check_lane(const struct lane *lane)
{
    if (lane->status != DDP_OK)
        fprintf(stderr, "lane %u, round %u: %s\n", lane->seed, lane->rounds, lane->error.msg);
    CHECK(lane->status == DDP_OK && lane->rounds == ROUNDS);
}

/* The parent and two copies at once, a thread each; odd ranks start them the other way round. */
static void threads_body(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { LANES = 3 };
    struct lane lanes[LANES] = {
        {.comm = comm}, {.comm = copy_comm(comm)}, {.comm = copy_comm(comm)}};
    (void)world;
    for (uint32_t i = 0; i < LANES; i++) {
        struct lane *lane = &lanes[rank % 2 == 0 ? i : LANES - 1 - i];
        lane->seed = (uint32_t)(lane - lanes);
        lane->rounds = ROUNDS;
        start_lane(lane);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        pthread_join(lanes[i].thread, NULL);
        check_lane(&lanes[i]);
    }
    ddp_comm_destroy(lanes[1].comm);
    ddp_comm_destroy(lanes[2].comm);
}

START_TEST(threads_use_communicators_at_once)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, threads_body);
    world_close(&world);
}
END_TEST

/* Each rank starts a sum on either communicator and waits for them: even ranks for the first one
 * first, odd ranks for the second one. Threads of the communicators move the bytes. */
static void orders_body(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_comm *comms[PAIR] = {copy_comm(comm), copy_comm(comm)};
    static int32_t values[PAIR][COUNT];
    (void)world;
    for (unsigned i = 0; i < PAIR; i++)
        CHECK_OK(ddp_comm_start_progress(comms[i], err));
    for (uint32_t round = 0; round < ROUNDS; round++) {
        ddp_request *requests[PAIR];
        for (unsigned i = 0; i < PAIR; i++) {
            unsigned which = (i + rank) % PAIR;
            fill(values[which], which, round, rank);
            const struct ddp_operation sum = {.size = sizeof sum,
                                              .kind = DDP_KIND_ALL_REDUCE,
                                              .send = values[which],
                                              .recv = values[which],
                                              .count = COUNT,
                                              .dtype = DDP_INT32,
                                              .op = DDP_SUM};
            CHECK_OK(ddp_start(comms[which], &sum, &requests[which], err));
        }
        for (unsigned i = 0; i < PAIR; i++) {
            unsigned which = (i + rank) % PAIR;
            CHECK_OK(ddp_request_wait(requests[which], 0, NULL, err));
            ddp_request_free(requests[which]);
            check_sums(values[which], which, round, RANKS);
        }
    }
    for (unsigned i = 0; i < PAIR; i++)
        ddp_comm_destroy(comms[i]);
}

START_TEST(ranks_use_communicators_in_different_orders)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, orders_body);
    world_close(&world);
}
END_TEST

/* Rank 1 aborts one copy while a thread of every rank uses the other one. */
static void abort_body(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct lane kept = {.comm = copy_comm(comm), .rounds = ROUNDS, .seed = 1};
    struct lane lost = {.comm = copy_comm(comm), .rounds = UINT32_MAX, .seed = 2};
    int32_t one = 1;
    (void)world;
    CHECK_OK(ddp_all_reduce(lost.comm, &one, &one, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK_OK(ddp_barrier(comm, NULL, err)); /* no rank is in the sum any more when rank 1 aborts */
    start_lane(&kept);
    start_lane(&lost);
    if (rank == 1)
        ddp_comm_abort(lost.comm);
    pthread_join(lost.thread, NULL);
    CHECK(lost.status == DDP_E_ABORTED);
    CHECK(strcmp(lost.error.msg, "rank 1 called ddp_comm_abort()") == 0);
    pthread_join(kept.thread, NULL);
    check_lane(&kept);
    ddp_comm_destroy(lost.comm);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    ddp_comm_destroy(kept.comm);
}

START_TEST(abort_of_one_leaves_the_others_alone)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, abort_body);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("groups_threads");
    TCase *tcase = tcase_create("independence");
    tcase_add_loop_test(tcase, threads_use_communicators_at_once, 0, 2);
    tcase_add_loop_test(tcase, ranks_use_communicators_in_different_orders, 0, 2);
    tcase_add_loop_test(tcase, abort_of_one_leaves_the_others_alone, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
