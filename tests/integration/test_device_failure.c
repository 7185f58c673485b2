/*
 * test_device_failure.c - what becomes of operations on device memory when a rank is killed,
 * stopped or leaves at any moment, and when a stream hangs: an error for everybody, streams that
 * drain, and a GPU that can be used again.
 *
 * DDP_TEST_KILLS says how many ranks to kill (default: a few of them).
 *
 * A deadline of operations that decides a test is long enough for a rank that the machine keeps
 * from running for a while; the others are longer still, and would end in another status.
 */
#include "check_main.h"
#include "rig_gear.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STOP_TIMEOUT_MS = 5000 };

/* The others start again, on the same GPUs, and it is as if nothing had happened. */
static void start_again(struct world *world, uint32_t rank, uint32_t victim, struct gear *gear)
{
    struct world smaller = *world;
    smaller.nranks--;
    smaller.name = "after";
    uint32_t own = rank - (rank > victim);
    struct ddp_comm_options options = world_options(&smaller, own);
    options.timeout_ms = LONG_MS;
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    int32_t *values = malloc(COUNT * sizeof *values);
    CHECK(values != NULL);
    for (int32_t i = 0; i < COUNT; i++)
        values[i] = i + (int32_t)own;
    size_t len = COUNT * sizeof *values;
    CU(gear->cuda.memcpy_htod_async(gear->send, values, len, gear->stream));
    CHECK_OK(ddp_all_reduce(comm, gear_at(gear->send), gear_at(gear->recv), COUNT, DDP_INT32,
                            DDP_SUM, gear->stream, err));
    CU(gear->cuda.memcpy_dtoh_async(values, gear->recv, len, gear->stream));
    CU(gear->cuda.stream_synchronize(gear->stream));
    CHECK_OK(ddp_comm_check(comm, err));
    int32_t n = (int32_t)smaller.nranks;
    for (int32_t i = 0; i < COUNT; i++)
        CHECK(values[i] == n * i + n * (n - 1) / 2);
    free(values);
    ddp_comm_destroy(comm);
    gear_expect_nothing_left(gear);
}

/* world->stage is the victim. */
static void survive(struct world *world, uint32_t rank)
{
    struct gear gear;
    gear_open(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    atomic_fetch_add(&world->reports[rank].steps, 1);
    struct ddp_error error = {0}, again = {0};
    ddp_status status = gear_work(world, rank, &gear, comm, UINT32_MAX, &error);
    gear_report(world, rank, status, &error);
    CHECK(ddp_comm_check(comm, &again) == status && strcmp(again.msg, error.msg) == 0);
    CHECK(gear_call(&gear, comm, 0, &again) == status && strcmp(again.msg, error.msg) == 0);
    ddp_comm_destroy(comm);
    gear_expect_nothing_left(&gear);
    start_again(world, rank, world->stage, &gear);
    _exit(0);
}

/* ---- death ---- */

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

/* What the host driver is told. A GPU does as it likes. */
static void choose_devices(uint64_t *random, struct world *world)
{
    static const char *const devices[] = {"1", "4", "2"};
    setenv("DDP_HOST_CUDA_DEVICES", devices[draw(random) % 3], 1);
    setenv("DDP_HOST_CUDA_DELAY_US", draw(random) % 2 == 0 ? "0" : "2000", 1);
    world->algorithm = draw(random) % 2 == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING;
    world->tcp = draw(random) % 4 == 0;
}

static void start_all(struct world *world, const char *victim_fault)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        if (!world_fork(world, rank))
            continue;
        if (victim_fault != NULL && rank == world->stage)
            setenv("DDP_HOST_CUDA_FAIL", victim_fault, 1);
        survive(world, rank);
    }
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        if (victim_fault == NULL || rank != world->stage)
            world_await_steps(world, rank, 1);
}

static uint64_t longest_us; /* until a survivor knew */

static void expect_survival(struct world *world, uint64_t since_us, ddp_status status,
                            const char *how)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u", world->stage);
    world_join(world);
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        const struct report *report = &world->reports[rank];
        if (rank == world->stage)
            continue;
        ck_assert_msg(report->status == status, "%s; rank %u: %s", how, rank, report->error.msg);
        ck_assert_msg(strstr(report->error.msg, name) != NULL, "%s; rank %u: %s", how, rank,
                      report->error.msg);
        if (report->at_us > since_us + longest_us)
            longest_us = report->at_us - since_us;
    }
}

static void kill_one(uint64_t seed)
{
    uint64_t random = seed;
    struct world world = {.nranks = 2 + (uint32_t)(draw(&random) % 3), .timeout_ms = LONG_MS};
    choose_devices(&random, &world);
    world.stage = (uint32_t)(draw(&random) % world.nranks);
    world_open(&world);
    start_all(&world, NULL);
    poll(NULL, 0, (int)(draw(&random) % 60));
    uint64_t since = now_us();
    world_kill_rank(&world, world.stage);
    char how[64];
    snprintf(how, sizeof how, "seed %llu", (unsigned long long)seed);
    expect_survival(&world, since, DDP_E_PEER_DEAD, how);
    world_close(&world);
}

START_TEST(a_rank_is_killed_at_any_moment)
{
    unsigned kills = gear_from_environment("DDP_TEST_KILLS", 16);
    uint64_t seed = now_us();
    for (unsigned i = 0; i < kills; i++)
        kill_one(seed + i);
    printf("%u ranks were killed; all others knew within %.1f ms\n", kills,
           (double)longest_us / 1000);
}
END_TEST

/* The others notice it later. */
static void stop_one(uint64_t seed, struct world *world)
{
    uint64_t random = seed;
    *world =
        (struct world){.nranks = 2 + (uint32_t)(draw(&random) % 3), .timeout_ms = STOP_TIMEOUT_MS};
    choose_devices(&random, world);
    world->stage = (uint32_t)(draw(&random) % world->nranks);
    world_open(world);
    start_all(world, NULL);
    poll(NULL, 0, (int)(draw(&random) % 60));
    kill(world->pids[world->stage], SIGSTOP);
}

static void expect_stop_is_noticed(uint64_t seed, struct world *world, uint64_t since)
{
    world_await_failures(world, world->stage);
    world_kill_rank(world, world->stage);
    char how[64];
    snprintf(how, sizeof how, "seed %llu", (unsigned long long)seed);
    expect_survival(world, since, DDP_E_TIMEOUT, how);
    world_close(world);
}

/* A few worlds at a time, as all that they do is to wait for their deadlines. */
START_TEST(a_rank_is_stopped_at_any_moment)
{
    enum { WORLDS = 4 };
    unsigned stops = gear_from_environment("DDP_TEST_KILLS", 16) / 4;
    uint64_t seed = now_us();
    for (unsigned done = 0; done < stops; done += WORLDS) {
        struct world worlds[WORLDS];
        unsigned count = stops - done < WORLDS ? stops - done : WORLDS;
        uint64_t since = now_us();
        for (unsigned i = 0; i < count; i++)
            stop_one(seed + done + i, &worlds[i]);
        for (unsigned i = 0; i < count; i++)
            expect_stop_is_noticed(seed + done + i, &worlds[i], since);
    }
}
END_TEST

/* In the middle of a call of the driver, which a clock hardly hits. */
static void kill_in(const char *function, unsigned nth, uint64_t seed)
{
    uint64_t random = seed;
    struct world world = {.nranks = 2 + (uint32_t)(draw(&random) % 3), .timeout_ms = LONG_MS};
    choose_devices(&random, &world);
    world.stage = (uint32_t)(draw(&random) % world.nranks);
    char fault[64], how[128];
    snprintf(fault, sizeof fault, "%s:%u:kill", function, nth);
    snprintf(how, sizeof how, "%s, seed %llu", fault, (unsigned long long)seed);
    world_open(&world);
    start_all(&world, fault);
    for (uint64_t end = now_us() + 300 * 1000; now_us() < end;) {
        if (waitpid(world.pids[world.stage], NULL, WNOHANG) == world.pids[world.stage]) {
            world.pids[world.stage] = 0;
            break;
        }
        poll(NULL, 0, 1);
    }
    uint64_t since = now_us();
    world_kill_rank(&world, world.stage); /* there may be no such call */
    expect_survival(&world, since, DDP_E_PEER_DEAD, how);
    world_close(&world);
}

/* The first ones happen before the communicator is made. */
START_TEST(a_rank_is_killed_in_the_driver)
{
    static const char *const killing[] = {"cuLaunchKernel",       "cuStreamWaitValue32",
                                          "cuStreamWriteValue32", "cuModuleGetFunction",
                                          "cuMemcpyDtoHAsync",    "cuMemcpyHtoDAsync"};
    enum { KILLING = sizeof killing / sizeof *killing };
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    unsigned kills = gear_from_environment("DDP_TEST_KILLS", 16) / 2;
    uint64_t random = now_us();
    for (unsigned i = 0; i < kills; i++)
        kill_in(killing[i % KILLING], 1 + (unsigned)(draw(&random) % 20), random);
}
END_TEST

/* ---- a stream that hangs ---- */

static void *abort_soon(void *comm)
{
    poll(NULL, 0, 100);
    ddp_comm_abort(comm);
    return NULL;
}

/* A kernel before the operation does not end on rank 1, whose deadline is the first. */
static void hang(struct world *world, uint32_t rank)
{
    struct gear gear;
    gear_open(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(gear_call(&gear, comm, 0, err));
    CHECK_OK(gear_call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    CHECK_OK(ddp_comm_check(comm, err));
    if (rank == 1 && world->stage == 0)
        CHECK_OK(ddp_comm_set_timeout(comm, STOP_TIMEOUT_MS, err));
    _Atomic uint32_t *gate;
    void *page;
    ddpi_cu_deviceptr address;
    CU(gear.cuda.mem_host_alloc(&page, sizeof *gate, DDPI_CU_MEMHOSTALLOC_DEVICEMAP));
    CU(gear.cuda.mem_host_get_device_pointer(&address, page, 0));
    gate = page;
    atomic_store(gate, 0);
    if (rank == 1)
        CU(gear.cuda.stream_wait_value32(gear.stream, address, 1, DDPI_CU_STREAM_WAIT_VALUE_GEQ));
    pthread_t thread;
    bool aborts = rank == 1 && world->stage == 1;
    if (aborts)
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
    for (int i = 0; i < 5; i++)
        CHECK_OK(gear_call(&gear, comm, 0, err));
    struct ddp_error error = {0};
    ddp_status status;
    while ((status = ddp_comm_check(comm, &error)) == DDP_OK)
        poll(NULL, 0, 10);
    gear_report(world, rank, status, &error);
    CHECK(rank != 1 || gear.cuda.stream_query(gear.stream) == DDPI_CU_ERROR_NOT_READY);
    atomic_store(gate, 1);
    CU(gear.cuda.stream_synchronize(gear.stream));
    if (aborts)
        CHECK(pthread_join(thread, NULL) == 0);
    ddp_comm_destroy(comm);
    CU(gear.cuda.mem_free_host(page));
    gear_expect_nothing_left(&gear);
    _exit(0);
}

START_TEST(a_stream_hangs)
{
    bool aborts = _i == 1;
    struct world world = {.nranks = 3, .stage = (uint32_t)_i, .timeout_ms = LONG_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            hang(&world, rank);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == (aborts ? DDP_E_ABORTED : DDP_E_TIMEOUT), "rank %u: %s",
                      rank, report->error.msg);
        ck_assert_msg(strstr(report->error.msg, aborts ? "rank 1 called ddp_comm_abort()"
                                                       : "all_reduce #3: rank 1 has waited ") !=
                              NULL &&
                          (aborts || strstr(report->error.msg,
                                            " s for its own GPU; the stream has not reached the "
                                            "operation: an earlier kernel in it may hang") != NULL),
                      "rank %u: %s", rank, report->error.msg);
    }
    world_close(&world);
}
END_TEST

/* ---- a GPU that is slow ---- */

enum { SLOW_TIMEOUT_MS = 60 * 1000, SLOW_COUNT = 16 * 1024 * 1024, SLOW_DELAY_US = 40 * 1000 };

/* 64 copies of a megabyte each, which take their time: together seconds, in which ranks ask each
 * other whether they are there. */
static void take_long(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct gear gear;
    gear_open(&gear, world, rank);
    ddpi_cu_deviceptr large;
    CU(gear.cuda.mem_alloc(&large, SLOW_COUNT * sizeof(float)));
    CHECK_OK(gear_call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    CHECK_OK(ddp_all_reduce(comm, gear_at(large), gear_at(large), SLOW_COUNT, DDP_FLOAT32, DDP_SUM,
                            gear.stream, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    CHECK_OK(ddp_comm_check(comm, err));
    CU(gear.cuda.mem_free(large));
}

START_TEST(a_slow_gpu_is_waited_for)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    char delay[16];
    snprintf(delay, sizeof delay, "%d", SLOW_DELAY_US);
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    setenv("DDP_HOST_CUDA_DELAY_US", delay, 1);
    struct world world = {.nranks = 2, .timeout_ms = SLOW_TIMEOUT_MS};
    world_open(&world);
    world_run(&world, take_long);
    world_close(&world);
}
END_TEST

/* Who leaves with operations enqueued ends them. */
static void leave(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct gear gear;
    gear_open(&gear, world, rank);
    CHECK_OK(gear_call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    if (rank == 1) { /* destroys its communicator */
        CHECK_OK(ddp_comm_check(comm, err));
        return;
    }
    struct ddp_error error = {0}; /* another rank may have failed in the next call by now */
    ddp_status status = gear_work(world, rank, &gear, comm, UINT32_MAX, &error);
    gear_report(world, rank, status, &error);
}

START_TEST(a_rank_leaves)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, leave);
    for (uint32_t rank = 0; rank < world.nranks; rank += 2) {
        ck_assert_int_eq(world.reports[rank].status, DDP_E_PEER_DEAD);
        ck_assert_ptr_nonnull(strstr(world.reports[rank].error.msg, "rank 1"));
        ck_assert_ptr_nonnull(strstr(world.reports[rank].error.msg, "has left the communicator"));
    }
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device failure");
    TCase *failures = tcase_create("failures");
    tcase_add_test(failures, a_rank_is_killed_at_any_moment);
    tcase_add_test(failures, a_rank_is_stopped_at_any_moment);
    tcase_add_test(failures, a_rank_is_killed_in_the_driver);
    tcase_add_loop_test(failures, a_stream_hangs, 0, 2);
    tcase_add_test(failures, a_slow_gpu_is_waited_for);
    tcase_add_test(failures, a_rank_leaves);
    suite_add_tcase(suite, failures);
    return suite;
}
