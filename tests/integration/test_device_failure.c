/*
 * test_device_failure.c - what becomes of operations on device memory when a rank is killed or
 * stopped at any moment, when the driver refuses any call, when a stream hangs: an error for
 * everybody, streams that drain, and a GPU that can be used again.
 *
 * DDP_TEST_KILLS says how many ranks to kill (default: a few of them), DDP_TEST_FAULTS up to which
 * call of each function of the driver one is to fail.
 *
 * A deadline of operations that decides a test is long enough for a rank that the machine keeps
 * from running for a while; the others are longer still, and would end in another status.
 */
#include "check_main.h"
#include "descriptors.h"
#include "kernel_launch.h"
#include "rig.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 400 * 1000, LONG_MS = 120 * 1000, STOP_TIMEOUT_MS = 5000 };

static unsigned from_environment(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* ---- a rank that uses its GPU until something goes wrong ---- */

/* What is there before the communicator, and must be again after it. */
struct gear {
    struct ddpi_cuda cuda;
    ddpi_cu_context context;
    ddpi_cu_stream stream;
    ddpi_cu_deviceptr send, recv, many;
    size_t free_bytes;
    unsigned descriptors;
    struct report *report;
};

/* A call of the test's own may be the one that is made to fail, which fails once. */
#define TRY(call) CHECK((call) == DDPI_CU_SUCCESS || (call) == DDPI_CU_SUCCESS)

static size_t free_memory(const struct gear *gear)
{
    size_t free_bytes, total;
    TRY(gear->cuda.mem_get_info(&free_bytes, &total));
    return free_bytes;
}

static void open_gear(struct gear *gear, const struct world *world, uint32_t rank)
{
    int count;
    if (ddpi_cuda_init(&gear->cuda, NULL) != DDP_OK)
        CHECK_OK(ddpi_cuda_init(&gear->cuda, err));
    TRY(gear->cuda.device_get_count(&count));
    TRY(gear->cuda.device_primary_ctx_retain(&gear->context, (int)rank % count));
    TRY(gear->cuda.ctx_push_current(gear->context));
    TRY(gear->cuda.stream_create(&gear->stream, DDPI_CU_STREAM_NON_BLOCKING));
    TRY(gear->cuda.mem_alloc(&gear->send, COUNT * sizeof(float)));
    TRY(gear->cuda.mem_alloc(&gear->recv, COUNT * sizeof(float)));
    TRY(gear->cuda.mem_alloc(&gear->many, world->nranks * COUNT * sizeof(float)));
    TRY(gear->cuda.memset_d8_async(gear->send, 0, COUNT * sizeof(float), gear->stream));
    TRY(gear->cuda.stream_synchronize(gear->stream));
    gear->free_bytes = free_memory(gear);
    gear->descriptors = open_descriptors();
}

static void *at(ddpi_cu_deviceptr address)
{
    return (void *)(uintptr_t)address;
}

/* Every rank has half of its elements for the next one, and nothing for others. */
static ddp_status exchange_uneven(const struct gear *gear, ddp_comm *comm, struct ddp_error *err)
{
    static size_t to[WORLD_MAX], from[WORLD_MAX];
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    to[(rank + 1) % nranks] = from[(rank + nranks - 1) % nranks] = COUNT / 2;
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_TO_ALL,
                                            .send = at(gear->send),
                                            .recv = at(gear->recv),
                                            .dtype = DDP_FLOAT32,
                                            .uneven = 1,
                                            .send_counts = to,
                                            .recv_counts = from,
                                            .stream = gear->stream};
    return ddp_run(comm, &operation, err);
}

static ddp_status call(const struct gear *gear, ddp_comm *comm, unsigned turn,
                       struct ddp_error *err)
{
    void *send = at(gear->send), *recv = at(gear->recv), *many = at(gear->many);
    uint32_t rank = ddp_comm_rank(comm), next = (rank + 1) % ddp_comm_world_size(comm);
    switch (turn % 10) {
    case 0:
        return ddp_all_reduce(comm, send, recv, COUNT, DDP_FLOAT32, DDP_SUM, gear->stream, err);
    case 1:
        return ddp_all_gather(comm, send, many, COUNT, DDP_FLOAT32, gear->stream, err);
    case 2:
        return ddp_reduce(comm, send, recv, COUNT, DDP_FLOAT32, DDP_MAX, 1, gear->stream, err);
    case 3:
        return ddp_broadcast(comm, recv, COUNT, DDP_FLOAT32, 0, gear->stream, err);
    case 4:
        return ddp_reduce_scatter(comm, many, recv, COUNT, DDP_FLOAT32, DDP_SUM, gear->stream, err);
    case 5:
        if (rank > 1)
            return DDP_OK;
        return rank == 0 ? ddp_send(comm, send, COUNT, DDP_FLOAT32, next, gear->stream, err)
                         : ddp_recv(comm, recv, COUNT, DDP_FLOAT32, 0, gear->stream, err);
    case 6:
        return ddp_gather(comm, send, many, COUNT, DDP_FLOAT32, 1, gear->stream, err);
    case 7:
        return ddp_all_reduce(comm, send, recv, COUNT, DDP_INT32, DDP_BIT_XOR, gear->stream, err);
    case 8:
        return exchange_uneven(gear, comm, err);
    default:
        return ddp_barrier(comm, gear->stream, err);
    }
}

/* Operations, of which up to three are enqueued at a time. */
static ddp_status work(struct world *world, uint32_t rank, const struct gear *gear, ddp_comm *comm,
                       unsigned turns, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (unsigned turn = 0; turn < turns && status == DDP_OK; turn++) {
        status = call(gear, comm, turn, err);
        if (status != DDP_OK || turn % 3 != 0)
            continue;
        TRY(gear->cuda.stream_synchronize(gear->stream));
        status = ddp_comm_check(comm, err);
        atomic_fetch_add(&world->reports[rank].steps, 1);
    }
    TRY(gear->cuda.stream_synchronize(gear->stream)); /* it drains, whatever happened */
    return status == DDP_OK ? ddp_comm_check(comm, err) : status;
}

static void put_report(struct world *world, uint32_t rank, ddp_status status,
                       const struct ddp_error *error)
{
    struct report *report = &world->reports[rank];
    report->status = status;
    report->error = *error;
    atomic_store(&report->at_us, now_us());
}

/* The communicator is gone, and with it all that it had. A GPU's driver says how much memory the
 * device has for all processes, which come and go meanwhile, and keeps descriptors of its own:
 * there, tests/gpu/run compares the memory before all tests and after them. */
static void expect_nothing_left(const struct gear *gear)
{
    if (!rig_driver_is_host())
        return;
    CHECK(free_memory(gear) == gear->free_bytes);
    CHECK(open_descriptors() == gear->descriptors);
}

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
    CHECK_OK(ddp_all_reduce(comm, at(gear->send), at(gear->recv), COUNT, DDP_INT32, DDP_SUM,
                            gear->stream, err));
    CU(gear->cuda.memcpy_dtoh_async(values, gear->recv, len, gear->stream));
    CU(gear->cuda.stream_synchronize(gear->stream));
    CHECK_OK(ddp_comm_check(comm, err));
    int32_t n = (int32_t)smaller.nranks;
    for (int32_t i = 0; i < COUNT; i++)
        CHECK(values[i] == n * i + n * (n - 1) / 2);
    free(values);
    ddp_comm_destroy(comm);
    expect_nothing_left(gear);
}

/* world->stage is the victim. */
static void survive(struct world *world, uint32_t rank)
{
    struct gear gear;
    open_gear(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    atomic_fetch_add(&world->reports[rank].steps, 1);
    struct ddp_error error = {0}, again = {0};
    ddp_status status = work(world, rank, &gear, comm, UINT32_MAX, &error);
    put_report(world, rank, status, &error);
    CHECK(ddp_comm_check(comm, &again) == status && strcmp(again.msg, error.msg) == 0);
    CHECK(call(&gear, comm, 0, &again) == status && strcmp(again.msg, error.msg) == 0);
    ddp_comm_destroy(comm);
    expect_nothing_left(&gear);
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
    static const char *const devices[] = {"1", "1", "4", "4", "2"};
    static const char *const peers[] = {"all", "all", "none", "all", "none"};
    uint64_t way = draw(random) % 5;
    setenv("DDP_HOST_CUDA_DEVICES", devices[way], 1);
    setenv("DDP_HOST_CUDA_PEERS", peers[way], 1);
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
    unsigned kills = from_environment("DDP_TEST_KILLS", 16);
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
    unsigned stops = from_environment("DDP_TEST_KILLS", 16) / 4;
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

/* What the engine asks of the driver. */
static const char *const functions[] = {
    "cuPointerGetAttributes",
    "cuCtxPushCurrent",
    "cuStreamIsCapturing",
    "cuMemHostAlloc",
    "cuStreamCreate",
    "cuMemHostGetDevicePointer",
    "cuMemAlloc",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuCtxGetDevice",
    "cuDeviceGetUuid",
    "cuDeviceGetName",
    "cuDeviceGetPCIBusId",
    "cuMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyAsync",
    "cuStreamSynchronize",
    "cuMemGetAddressRange",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle",
    "cuStreamWriteValue32",
    "cuStreamWaitValue32",
    "cuLaunchKernel",
    "cuStreamQuery",
    "cuDeviceGetAttribute",
    "cuStreamGetCtx",
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

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
    static const char *const killing[] = {
        "cuLaunchKernel",       "cuStreamWaitValue32", "cuIpcGetMemHandle", "cuMemGetAddressRange",
        "cuStreamWriteValue32", "cuModuleGetFunction", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"};
    enum { KILLING = sizeof killing / sizeof *killing };
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    unsigned kills = from_environment("DDP_TEST_KILLS", 16) / 2;
    uint64_t random = now_us();
    for (unsigned i = 0; i < kills; i++)
        kill_in(killing[i % KILLING], 1 + (unsigned)(draw(&random) % 20), random);
}
END_TEST

/* ---- refusals of the driver ---- */

enum { FAULT_TURNS = 11 };

/* Everybody is done, or everybody has failed; nothing is left in any case. */
static void bear_a_fault(struct world *world, uint32_t rank)
{
    struct gear gear;
    open_gear(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    struct ddp_error error = {0};
    ddp_status status = work(world, rank, &gear, comm, FAULT_TURNS, &error);
    if (status == DDP_OK) /* those who have failed are heard here */
        status = ddp_barrier(comm, NULL, &error);
    put_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    expect_nothing_left(&gear);
    _exit(0);
}

static void inject(const char *function, unsigned nth, uint32_t where)
{
    struct world world = {.nranks = 2, .timeout_ms = LONG_MS};
    world.algorithm = nth % 2 == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING;
    setenv("DDP_HOST_CUDA_DEVICES", nth % 3 == 0 ? "2" : "1", 1);
    setenv("DDP_HOST_CUDA_PEERS", nth % 3 == 0 ? "none" : "all", 1);
    char fault[64];
    snprintf(fault, sizeof fault, "%s:%u:801", function, nth);
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (!world_fork(&world, rank))
            continue;
        if (rank == where)
            setenv("DDP_HOST_CUDA_FAIL", fault, 1);
        bear_a_fault(&world, rank);
    }
    world_join(&world);
    const struct report *own = &world.reports[where], *other = &world.reports[1 - where];
    ck_assert_msg((own->status == DDP_OK) == (other->status == DDP_OK), "%s at rank %u: %s; %s",
                  fault, where, own->error.msg, other->error.msg);
    ck_assert_msg(own->status == DDP_OK ||
                      strstr(other->error.msg, "CUDA_ERROR_NOT_SUPPORTED") != NULL,
                  "%s at rank %u: %s; %s", fault, where, own->error.msg, other->error.msg);
    world_close(&world);
}

START_TEST(the_driver_refuses_a_call)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    unsigned most = from_environment("DDP_TEST_FAULTS", 0);
    for (unsigned nth = 1; nth <= most; nth++)
        inject(functions[_i], nth, nth % 2);
    if (most > 0)
        return;
    inject(functions[_i], 1, 0);
    inject(functions[_i], 2 + (unsigned)_i % 10, 1);
}
END_TEST

/* ---- refusals that come when the operation has begun ---- */

enum { SMALL = 1000, PATIENCE_TURNS = 60 * 1000 };

static ddp_status reduce_small(const struct gear *gear, ddp_comm *comm, bool is_request,
                               ddpi_cu_stream stream, struct ddp_error *error)
{
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = at(gear->send),
                                            .recv = at(gear->recv),
                                            .count = SMALL,
                                            .dtype = DDP_INT32,
                                            .op = DDP_SUM,
                                            .stream = stream};
    ddp_request *request;
    int done;
    if (!is_request)
        return ddp_run(comm, &operation, error);
    ddp_status status = ddp_start(comm, &operation, &request, error);
    if (status != DDP_OK)
        return status;
    atomic_fetch_add(&gear->report->steps, 1); /* the other rank comes now */
    status = ddp_request_wait(request, 0, &done, error);
    ddp_request_free(request);
    return status;
}

static void await_first_rank(struct world *world)
{
    for (unsigned turn = 0; atomic_load(&world->reports[0].steps) == 0; turn++) {
        CHECK(turn < PATIENCE_TURNS);
        poll(NULL, 0, 1);
    }
}

/* What counts as done has its result: rank 0's stamp is there before the driver refuses something,
 * and the other rank comes after that. world->stage: as a request. */
static void refuse_late(struct world *world, uint32_t rank)
{
    struct gear gear;
    int32_t seen[SMALL];
    struct ddp_error error = {0};
    open_gear(&gear, world, rank);
    gear.report = &world->reports[rank];
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(call(&gear, comm, 0, err)); /* in one slice: COUNT floats are less than 4 MiB */
    CU(gear.cuda.stream_synchronize(gear.stream));
    for (int32_t i = 0; i < SMALL; i++)
        seen[i] = i + (int32_t)rank;
    CU(gear.cuda.memcpy_htod_async(gear.send, seen, sizeof seen, gear.stream));
    CU(gear.cuda.memset_d8_async(gear.recv, 0x77, sizeof seen, gear.stream));
    CU(gear.cuda.stream_synchronize(gear.stream));
    if (rank == 1)
        await_first_rank(world);
    ddp_status status = reduce_small(&gear, comm, world->stage == 1, gear.stream, &error);
    atomic_fetch_add(&gear.report->steps, 1);
    TRY(gear.cuda.stream_synchronize(gear.stream));
    if (status == DDP_OK)
        status = ddp_comm_check(comm, &error);
    CU(gear.cuda.memcpy_dtoh_async(seen, gear.recv, sizeof seen, gear.stream));
    CU(gear.cuda.stream_synchronize(gear.stream));
    for (int32_t i = 0; i < SMALL; i++)
        CHECK(status != DDP_OK || seen[i] == 2 * i + 1);
    put_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    _exit(0);
}

START_TEST(what_is_refused_late_is_no_success)
{
    static const char *const faults[] = {"cuLaunchKernel:4:801", "cuStreamWaitValue32:4:801",
                                         "cuStreamWriteValue32:4:801"};
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    struct world world = {.nranks = 2, .timeout_ms = LONG_MS, .stage = (uint32_t)_i % 2};
    setenv("DDP_HOST_CUDA_DEVICES", "1", 1);
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (!world_fork(&world, rank))
            continue;
        if (rank == 0)
            setenv("DDP_HOST_CUDA_FAIL", faults[_i / 2], 1);
        refuse_late(&world, rank);
    }
    world_join(&world);
    const struct report *own = &world.reports[0];
    ck_assert_msg(own->status == DDP_E_CUDA &&
                      strstr(own->error.msg, "CUDA_ERROR_NOT_SUPPORTED") != NULL,
                  "%s: %s", faults[_i / 2], own->error.msg);
    world_close(&world);
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
    open_gear(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(call(&gear, comm, 0, err));
    CHECK_OK(call(&gear, comm, 0, err));
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
        CHECK_OK(call(&gear, comm, 0, err));
    struct ddp_error error = {0};
    ddp_status status;
    while ((status = ddp_comm_check(comm, &error)) == DDP_OK)
        poll(NULL, 0, 10);
    put_report(world, rank, status, &error);
    CHECK(rank != 1 || gear.cuda.stream_query(gear.stream) == DDPI_CU_ERROR_NOT_READY);
    atomic_store(gate, 1);
    CU(gear.cuda.stream_synchronize(gear.stream));
    if (aborts)
        CHECK(pthread_join(thread, NULL) == 0);
    ddp_comm_destroy(comm);
    CU(gear.cuda.mem_free_host(page));
    expect_nothing_left(&gear);
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

enum { SLOW_TIMEOUT_MS = 4000, SLOW_COUNT = 16 * 1024 * 1024, SLOW_DELAY_US = 70 * 1000 };

/* 64 copies of a megabyte each, which take their time: together longer than the deadline, but
 * not by so much that it is too slow. */
static void take_long(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct gear gear;
    open_gear(&gear, world, rank);
    ddpi_cu_deviceptr large;
    CU(gear.cuda.mem_alloc(&large, SLOW_COUNT * sizeof(float)));
    CHECK_OK(call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    CHECK_OK(ddp_all_reduce(comm, at(large), at(large), SLOW_COUNT, DDP_FLOAT32, DDP_SUM,
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
    setenv("DDP_HOST_CUDA_PEERS", "none", 1);
    setenv("DDP_HOST_CUDA_DELAY_US", delay, 1);
    struct world world = {.nranks = 2, .timeout_ms = SLOW_TIMEOUT_MS};
    world_open(&world);
    world_run(&world, take_long);
    world_close(&world);
}
END_TEST

/* ---- a kernel that fails ---- */

/* Enqueue one that reads where nothing is, behind a wait for @address. */
static void enqueue_a_fault(const struct gear *gear, struct ddpi_kernels *kernels,
                            ddpi_cu_deviceptr address)
{
    const struct ddpi_reduction work = {.in = {at(16)},
                                        .out = {at(gear->recv)},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = 1,
                                        .dtype = DDP_INT32,
                                        .divisor = 1};
    CU(gear->cuda.stream_wait_value32(gear->stream, address, 1, DDPI_CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_OK(ddpi_kernels_launch(kernels, &work, gear->stream, err));
}

/* It stands before the operation on rank 1, and does not run before that is enqueued. */
static void fault(struct world *world, uint32_t rank)
{
    struct gear gear;
    open_gear(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    struct ddpi_kernels kernels;
    ddpi_kernels_init(&kernels, &gear.cuda);
    CHECK_OK(ddpi_kernels_load(&kernels, err));
    void *page;
    ddpi_cu_deviceptr address;
    CU(gear.cuda.mem_host_alloc(&page, sizeof(uint32_t), DDPI_CU_MEMHOSTALLOC_DEVICEMAP));
    CU(gear.cuda.mem_host_get_device_pointer(&address, page, 0));
    _Atomic uint32_t *gate = page;
    atomic_store(gate, 0);
    if (rank == 1)
        enqueue_a_fault(&gear, &kernels, address);
    CHECK_OK(call(&gear, comm, 0, err));
    atomic_store(gate, 1);
    struct ddp_error error = {0};
    ddp_status status;
    while ((status = ddp_comm_check(comm, &error)) == DDP_OK)
        poll(NULL, 0, 10);
    put_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    _exit(0);
}

/* No operation is under way. */
static void fault_alone(struct world *world, uint32_t rank)
{
    struct gear gear;
    struct ddpi_kernels kernels;
    void *page;
    ddpi_cu_deviceptr address;
    struct ddp_error error = {0}, again = {0};
    open_gear(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    ddpi_kernels_init(&kernels, &gear.cuda);
    CHECK_OK(ddpi_kernels_load(&kernels, err));
    CU(gear.cuda.mem_host_alloc(&page, sizeof(uint32_t), DDPI_CU_MEMHOSTALLOC_DEVICEMAP));
    CU(gear.cuda.mem_host_get_device_pointer(&address, page, 0));
    *(uint32_t *)page = 1; /* the kernel need not wait */
    enqueue_a_fault(&gear, &kernels, address);
    CHECK(gear.cuda.stream_synchronize(gear.stream) != DDPI_CU_SUCCESS);
    ddp_status status = ddp_comm_check(comm, &error);
    CHECK(ddp_comm_check(comm, &again) == status && strcmp(again.msg, error.msg) == 0);
    CHECK(call(&gear, comm, 0, &again) != DDP_OK);
    put_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    _exit(0);
}

START_TEST(a_kernel_fails_beside_operations)
{
    struct world world = {.nranks = 2, .timeout_ms = LONG_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            fault_alone(&world, rank);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_CUDA &&
                          strstr(report->error.msg, "the GPU failed") != NULL,
                      "rank %u: %s", rank, report->error.msg);
    }
    world_close(&world);
}
END_TEST

START_TEST(a_kernel_fails)
{
    struct world world = {.nranks = 3, .timeout_ms = LONG_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            fault(&world, rank);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_CUDA &&
                          strstr(report->error.msg, "rank 1: the GPU failed") != NULL &&
                          strstr(report->error.msg, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL,
                      "rank %u: %s", rank, report->error.msg);
    }
    world_close(&world);
}
END_TEST

/* Who leaves with operations enqueued ends them. */
static void leave(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct gear gear;
    open_gear(&gear, world, rank);
    CHECK_OK(call(&gear, comm, 0, err));
    CU(gear.cuda.stream_synchronize(gear.stream));
    CHECK_OK(ddp_comm_check(comm, err));
    if (rank == 1) /* destroys its communicator */
        return;
    struct ddp_error error = {0};
    ddp_status status = work(world, rank, &gear, comm, UINT32_MAX, &error);
    put_report(world, rank, status, &error);
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
    tcase_add_test(failures, a_kernel_fails);
    tcase_add_test(failures, a_kernel_fails_beside_operations);
    tcase_add_test(failures, a_rank_leaves);
    suite_add_tcase(suite, failures);
    TCase *refusals = tcase_create("refusals");
    add_worlds(refusals, the_driver_refuses_a_call, 0, FUNCTIONS);
    tcase_add_loop_test(refusals, what_is_refused_late_is_no_success, 0, 6);
    suite_add_tcase(suite, refusals);
    return suite;
}
