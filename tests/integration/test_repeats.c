/*
 * test_repeats.c - brief calls that are made again and again, of which the second one is carried
 * out with what was prepared for the first: with other buffers, mixed with calls that differ in one
 * argument, from several threads, and after failures.
 */
#include "check_main.h"
#include "world.h"

#include <poll.h>
#include <pthread.h>

enum { ROUNDS = 100, MOST = 2048, THREADS = 8 };

static void run_ranks(uint32_t nranks, uint32_t stage, rank_body *body)
{
    struct world world = {.nranks = nranks, .stage = stage};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

/* Element @i of @rank in call @call. */
static int32_t value_of(uint32_t rank, int call, size_t i)
{
    return (int32_t)(rank * 1000 + (uint32_t)call * 7 + (uint32_t)i);
}

static void fill(int32_t *values, size_t count, uint32_t rank, int call)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value_of(rank, call, i);
}

/* ---- each operation, in buffers of many places and sizes ---- */

static int32_t sum_of(uint32_t nranks, int call, size_t i)
{
    int32_t sum = 0;
    for (uint32_t rank = 0; rank < nranks; rank++)
        sum += value_of(rank, call, i);
    return sum;
}

static void sum_once(ddp_comm *comm, const int32_t *send, int32_t *recv, size_t count, int call)
{
    uint32_t nranks = ddp_comm_world_size(comm);
    CHECK_OK(ddp_all_reduce(comm, send, recv, count, DDP_INT32, DDP_SUM, NULL, err));
    for (size_t i = 0; i < count; i++)
        CHECK(recv[i] == sum_of(nranks, call, i));
}

/* The send buffer stays as it is, and nothing behind the result is written. */
static void sums_in_many_places(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t room[4 * MOST];
    (void)world;
    for (int call = 0; call < ROUNDS; call++) {
        size_t count = call % 3 == 2 ? 1 + (size_t)call : 2;
        int32_t *send = room + call % 5, *recv = call % 4 == 3 ? send : send + 2 * MOST;
        fill(send, count, rank, call);
        recv[count] = -5;
        sum_once(comm, send, recv, count, call);
        CHECK(recv[count] == -5);
        for (size_t i = 0; i < count && recv != send; i++)
            CHECK(send[i] == value_of(rank, call, i));
    }
}

static void each_root(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t room[MOST + 3];
    for (int call = 0; call < ROUNDS; call++) {
        int32_t *values = room + call % 4;
        uint32_t root = (uint32_t)call / 3 % world->nranks;
        size_t count = 1 + (size_t)(call / 6) * 60 % MOST;
        fill(values, count, rank, call);
        CHECK_OK(ddp_broadcast(comm, values, count, DDP_INT32, root, NULL, err));
        for (size_t i = 0; i < count; i++)
            CHECK(values[i] == value_of(root, call, i));
        fill(values, count, rank, call);
        CHECK_OK(ddp_reduce(comm, values, values, count, DDP_INT32, DDP_SUM, root, NULL, err));
        for (size_t i = 0; i < count; i++)
            CHECK(values[i] ==
                  (rank == root ? sum_of(world->nranks, call, i) : value_of(rank, call, i)));
    }
}

/* What one rank alone takes part with is long for it, and not for the others. */
static void parts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks;
    static int32_t all[WORLD_MAX * MOST], more[WORLD_MAX * MOST], own[MOST];
    for (int call = 0; call < ROUNDS; call++) {
        uint32_t root = (uint32_t)call % 2 % n;
        size_t count = call % 10 < 5 ? MOST : 3;
        fill(own, count, rank, call);
        CHECK_OK(ddp_all_gather(comm, own, all, count, DDP_INT32, NULL, err));
        CHECK_OK(ddp_all_to_all(comm, all, more, count, DDP_INT32, NULL, err));
        for (size_t i = 0; i < n * count; i++) {
            CHECK(all[i] == value_of((uint32_t)(i / count), call, i % count));
            CHECK(more[i] == value_of(rank, call, i % count));
        }
        CHECK_OK(ddp_gather(comm, own, more, count, DDP_INT32, root, NULL, err));
        for (size_t i = 0; i < n * count && rank == root; i++)
            CHECK(more[i] == all[i]);
        CHECK_OK(ddp_scatter(comm, all, own, count, DDP_INT32, root, NULL, err));
        for (size_t i = 0; i < count; i++)
            CHECK(own[i] == value_of(rank, call, i));
        CHECK_OK(ddp_reduce_scatter(comm, all, own, count, DDP_INT32, DDP_MAX, NULL, err));
        for (size_t i = 0; i < count; i++)
            CHECK(own[i] == value_of(rank, call, i));
        CHECK_OK(ddp_barrier(comm, NULL, err));
    }
}

static rank_body *const bodies[] = {sums_in_many_places, each_root, parts};

START_TEST(results_are_those_of_the_call)
{
    static const uint32_t worlds[] = {1, 2, 4, 8};
    run_ranks(worlds[_i % 4], 0, bodies[_i / 4]);
}
END_TEST

/* ---- calls that differ in one argument ---- */

static void other_arguments(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    float values[2];
    uint32_t non_finite;
    for (int call = 0; call < ROUNDS; call++) {
        values[0] = (float)rank, values[1] = 1;
        CHECK_OK(ddp_all_reduce(comm, values, values, 2, DDP_FLOAT32, DDP_SUM, NULL, err));
        CHECK(values[1] == (float)world->nranks);
        values[0] = (float)rank, values[1] = 1;
        CHECK_OK(ddp_all_reduce(comm, values, values, 2, DDP_FLOAT32, DDP_MAX, NULL, err));
        CHECK(values[0] == (float)world->nranks - 1 && values[1] == 1);
        int32_t whole[2] = {(int32_t)rank, 3};
        CHECK_OK(ddp_all_reduce(comm, whole, whole, 2, DDP_INT32, DDP_MAX, NULL, err));
        CHECK(whole[0] == (int32_t)world->nranks - 1 && whole[1] == 3);

        struct ddp_operation operation = {.size = sizeof operation,
                                          .kind = DDP_KIND_ALL_REDUCE,
                                          .send = values,
                                          .recv = values,
                                          .count = 2,
                                          .dtype = DDP_FLOAT32,
                                          .op = DDP_PREMUL_SUM,
                                          .factor = 2};
        values[0] = values[1] = 1;
        CHECK_OK(ddp_run(comm, &operation, err));
        CHECK(values[0] == 2 * (float)world->nranks);
        world_expect(
            ddp_all_reduce(comm, values, values, 2, DDP_FLOAT32, DDP_PREMUL_SUM, NULL, &error),
            &error, DDP_E_INVALID, "multiplies by a factor");

        operation.op = DDP_MAX;
        operation.non_finite = &non_finite;
        values[0] = rank == 0 ? 1e38f * 10 : 0;
        CHECK_OK(ddp_run(comm, &operation, err));
        CHECK(non_finite == 1);
        operation.non_finite = NULL;
        CHECK_OK(ddp_run(comm, &operation, err));
    }
}

static void refusals(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t values[4] = {1, 1, 1, 1};
    (void)rank;
    for (int call = 0; call < 3; call++)
        CHECK_OK(ddp_all_reduce(comm, values, values + 2, 2, DDP_INT32, DDP_MAX, NULL, err));
    world_expect(ddp_all_reduce(comm, values, values + 1, 2, DDP_INT32, DDP_MAX, NULL, &error),
                 &error, DDP_E_INVALID, "overlap");
    world_expect(ddp_all_reduce(comm, NULL, values, 2, DDP_INT32, DDP_MAX, NULL, &error), &error,
                 DDP_E_INVALID, "is NULL");
    world_expect(ddp_all_reduce(comm, values, NULL, 2, DDP_INT32, DDP_MAX, NULL, &error), &error,
                 DDP_E_INVALID, "is NULL");
    world_expect(ddp_all_reduce(comm, values, values + 2, 2, DDP_INT32, DDP_MAX, values, &error),
                 &error, DDP_E_INVALID, "pass NULL");
    for (int call = 0; call < 3; call++)
        CHECK_OK(ddp_broadcast(comm, values, 2, DDP_INT32, 0, NULL, err));
    world_expect(ddp_broadcast(comm, values, 2, DDP_INT32, world->nranks, NULL, &error), &error,
                 DDP_E_INVALID, "does not exist");
    CHECK_OK(ddp_all_reduce(comm, values, values + 2, 2, DDP_INT32, DDP_MAX, NULL, err));
}

/* A call in a group only begins when the group ends. */
static void in_a_group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t value, other;
    (void)rank;
    for (int call = 0; call < ROUNDS; call++) {
        value = other = 1;
        CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
        CHECK_OK(ddp_group_start(comm, err));
        CHECK_OK(ddp_all_reduce(comm, &other, &other, 1, DDP_INT32, DDP_SUM, NULL, err));
        CHECK(other == 1);
        CHECK_OK(ddp_group_end(comm, err));
        CHECK(value == (int32_t)world->nranks && other == value);
    }
}

/* Requests of the same call are under way when it is made. */
static void behind_requests(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)rank;
    for (int call = 0; call < ROUNDS; call++) {
        int32_t values[3] = {1, 1, 1};
        ddp_request *requests[2];
        for (int i = 0; i < 2; i++) {
            struct ddp_operation operation = {.size = sizeof operation,
                                              .kind = DDP_KIND_ALL_REDUCE,
                                              .send = values + i,
                                              .recv = values + i,
                                              .count = 1,
                                              .dtype = DDP_INT32,
                                              .op = DDP_SUM};
            CHECK_OK(ddp_start(comm, &operation, &requests[i], err));
        }
        CHECK_OK(ddp_all_reduce(comm, values + 2, values + 2, 1, DDP_INT32, DDP_SUM, NULL, err));
        for (int i = 0; i < 2; i++) {
            CHECK_OK(ddp_request_wait(requests[i], 0, NULL, err));
            ddp_request_free(requests[i]);
        }
        for (int i = 0; i < 3; i++)
            CHECK(values[i] == (int32_t)world->nranks);
    }
}

static rank_body *const mixtures[] = {other_arguments, refusals, in_a_group, behind_requests};

START_TEST(only_a_like_call_is_repeated)
{
    static const uint32_t worlds[] = {2, 4};
    run_ranks(worlds[_i % 2], 0, mixtures[_i / 2]);
}
END_TEST

/* ---- threads ---- */

static void *sum_again(void *arg)
{
    ddp_comm *comm = arg;
    for (int call = 0; call < 10 * ROUNDS; call++) {
        int32_t value = 1;
        CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
        CHECK(value == (int32_t)ddp_comm_world_size(comm));
    }
    return NULL;
}

static void from_threads(struct world *world, uint32_t rank, ddp_comm *comm)
{
    pthread_t threads[THREADS];
    (void)rank;
    if (world->stage == 1)
        CHECK_OK(ddp_comm_start_progress(comm, err));
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, sum_again, comm) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

START_TEST(threads_make_the_same_call)
{
    static const uint32_t worlds[] = {2, 3};
    run_ranks(worlds[_i % 2], (uint32_t)_i / 2, from_threads);
}
END_TEST

/* ---- failures ---- */

static void make_calls(ddp_comm *comm)
{
    int32_t value = 1;
    for (int call = 0; call < 5; call++)
        CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_MAX, NULL, err));
}

static void after_a_mismatch(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 1;
    (void)world;
    make_calls(comm);
    ddp_reduce_op op = rank == 1 ? DDP_MIN : DDP_MAX;
    for (int call = 0; call < 2; call++) {
        ddp_status status = ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, op, NULL, &error);
        world_expect(status, &error, DDP_E_MISMATCH, "max of 1 int32");
        world_expect(status, &error, DDP_E_MISMATCH, "min of 1 int32");
    }
}

static void after_an_abort(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 1;
    (void)world;
    make_calls(comm);
    if (rank == 0)
        ddp_comm_abort(comm);
    for (int call = 0; call < 2; call++)
        world_expect(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_MAX, NULL, &error),
                     &error, DDP_E_ABORTED, "rank 0");
}

static void after_finalize(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 1;
    (void)world;
    (void)rank;
    make_calls(comm);
    CHECK_OK(ddp_comm_finalize(comm, 0, err));
    world_expect(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_MAX, NULL, &error), &error,
                 DDP_E_INVALID, "ddp_comm_finalize()");
}

/* A rank that does not call lets the others run into the timeout of their own call. */
static void after_the_time(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 1;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_REDUCE,
                                      .send = &value,
                                      .recv = &value,
                                      .count = 1,
                                      .dtype = DDP_INT32,
                                      .op = DDP_MAX,
                                      .timeout_ms = 300};
    make_calls(comm);
    if (rank != 0) {
        world_expect(ddp_run(comm, &operation, &error), &error, DDP_E_TIMEOUT, "has waited");
        atomic_fetch_add(world->counter, 1);
        return;
    }
    while (atomic_load(world->counter) + 1 < world->nranks)
        poll(NULL, 0, 20);
    ddp_status status = ddp_run(comm, &operation, &error);
    CHECK(status == DDP_OK || status == DDP_E_TIMEOUT); /* what it needs from the others is there */
    world_expect(ddp_run(comm, &operation, &error), &error, DDP_E_TIMEOUT, "has waited");
}

static rank_body *const failures[] = {after_a_mismatch, after_an_abort, after_finalize,
                                      after_the_time};

START_TEST(failures_are_those_of_the_call)
{
    static const uint32_t worlds[] = {2, 4};
    run_ranks(worlds[_i % 2], 0, failures[_i / 2]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("repeats");
    TCase *tcase = tcase_create("all");
    add_worlds(tcase, results_are_those_of_the_call, 0, 12);
    add_sample(tcase, only_a_like_call_is_repeated, 0, 8);
    tcase_add_loop_test(tcase, threads_make_the_same_call, 0, 4);
    add_sample(tcase, failures_are_those_of_the_call, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
