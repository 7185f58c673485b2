/*
 * test_device_refusals.c - what becomes of operations on device memory when the driver refuses any
 * call, and when a kernel fails: an error for everybody, streams that drain, and nothing that
 * counts as done without its result.
 *
 * DDP_TEST_FAULTS says up to which call of each function of the driver one is to fail.
 */
#include "check_main.h"
#include "kernel_launch.h"
#include "rig_gear.h"
#include "sample.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

/* What the engine asks of the driver. */
static const char *const functions[] = {
    "cuPointerGetAttributes", "cuCtxPushCurrent",     "cuStreamIsCapturing",
    "cuMemHostAlloc",         "cuStreamCreate",       "cuMemHostGetDevicePointer",
    "cuModuleLoadData",       "cuModuleGetFunction",  "cuCtxGetDevice",
    "cuMemcpyHtoDAsync",      "cuMemcpyDtoHAsync",    "cuMemcpyAsync",
    "cuStreamSynchronize",    "cuStreamWriteValue32", "cuStreamWaitValue32",
    "cuLaunchKernel",         "cuStreamQuery",        "cuDeviceGetAttribute",
    "cuStreamGetCtx",
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* ---- refusals of the driver ---- */

enum { FAULT_TURNS = 11 };

/* Everybody is done, or everybody has failed; nothing is left in any case. */
static void bear_a_fault(struct world *world, uint32_t rank)
{
    struct gear gear;
    gear_open(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    struct ddp_error error = {0};
    ddp_status status = gear_work(world, rank, &gear, comm, FAULT_TURNS, &error);
    if (status == DDP_OK) /* those who have failed are heard here */
        status = ddp_barrier(comm, NULL, &error);
    gear_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    gear_expect_nothing_left(&gear);
    _exit(0);
}

static void inject(const char *function, unsigned nth, uint32_t where)
{
    struct world world = {.nranks = 2, .timeout_ms = LONG_MS};
    world.algorithm = nth % 2 == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING;
    setenv("DDP_HOST_CUDA_DEVICES", nth % 3 == 0 ? "2" : "1", 1);
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
    unsigned most = gear_from_environment("DDP_TEST_FAULTS", 0);
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

static ddp_status reduce_small(struct world *world, const struct gear *gear, ddp_comm *comm,
                               struct ddp_error *error)
{
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = gear_at(gear->send),
                                            .recv = gear_at(gear->recv),
                                            .count = SMALL,
                                            .dtype = DDP_INT32,
                                            .op = DDP_SUM,
                                            .stream = gear->stream};
    ddp_request *request;
    int done;
    if (world->stage == 0)
        return ddp_run(comm, &operation, error);
    ddp_status status = ddp_start(comm, &operation, &request, error);
    if (status != DDP_OK)
        return status;
    atomic_fetch_add(&world->reports[ddp_comm_rank(comm)].steps, 1); /* the other rank comes now */
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
    gear_open(&gear, world, rank);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(gear_call(&gear, comm, 0, err)); /* in one slice: COUNT floats are less than 4 MiB */
    CU(gear.cuda.stream_synchronize(gear.stream));
    for (int32_t i = 0; i < SMALL; i++)
        seen[i] = i + (int32_t)rank;
    CU(gear.cuda.memcpy_htod_async(gear.send, seen, sizeof seen, gear.stream));
    CU(gear.cuda.memset_d8_async(gear.recv, 0x77, sizeof seen, gear.stream));
    CU(gear.cuda.stream_synchronize(gear.stream));
    if (rank == 1)
        await_first_rank(world);
    ddp_status status = reduce_small(world, &gear, comm, &error);
    atomic_fetch_add(&world->reports[rank].steps, 1);
    TRY(gear.cuda.stream_synchronize(gear.stream));
    if (status == DDP_OK)
        status = ddp_comm_check(comm, &error);
    CU(gear.cuda.memcpy_dtoh_async(seen, gear.recv, sizeof seen, gear.stream));
    CU(gear.cuda.stream_synchronize(gear.stream));
    for (int32_t i = 0; i < SMALL; i++)
        CHECK(status != DDP_OK || seen[i] == 2 * i + 1);
    gear_report(world, rank, status, &error);
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

/* ---- a kernel that fails ---- */

/* Enqueue one that reads where nothing is, behind a wait for @address. */
static void enqueue_a_fault(const struct gear *gear, struct ddpi_kernels *kernels,
                            ddpi_cu_deviceptr address)
{
    const struct ddpi_reduction work = {.in = {gear_at(16)},
                                        .out = {gear_at(gear->recv)},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = 1,
                                        .dtype = DDP_INT32,
                                        .divisor = 1};
    CU(gear->cuda.stream_wait_value32(gear->stream, address, 1, DDPI_CU_STREAM_WAIT_VALUE_GEQ));
    CHECK_OK(ddpi_kernels_launch(kernels, &work, gear->stream, err));
}

/* A rank that has used its GPU, and a word for which a kernel waits that fails. */
struct doomed {
    struct gear gear;
    ddp_comm *comm;
    struct ddpi_kernels kernels;
    _Atomic uint32_t *gate;
    ddpi_cu_deviceptr address;
};

static void open_doomed(struct doomed *doomed, struct world *world, uint32_t rank)
{
    struct ddp_comm_options options = world_options(world, rank);
    void *page;
    gear_open(&doomed->gear, world, rank);
    const struct ddpi_cuda *cuda = &doomed->gear.cuda;
    CHECK_OK(ddp_comm_init(&options, &doomed->comm, err));
    CHECK_OK(gear_call(&doomed->gear, doomed->comm, 0, err));
    CU(cuda->stream_synchronize(doomed->gear.stream));
    ddpi_kernels_init(&doomed->kernels, cuda);
    CHECK_OK(ddpi_kernels_load(&doomed->kernels, err));
    CHECK_OK(ddpi_cuda_alloc_mapped(cuda, sizeof(uint32_t), &page, &doomed->address, err));
    doomed->gate = page;
    atomic_store(doomed->gate, 0);
}

/* It stands before the operation on rank 1, and does not run before that is enqueued. Another rank
 * may enter the operation after rank 1 has failed in it. */
static void fault(struct world *world, uint32_t rank)
{
    struct doomed doomed;
    struct ddp_error error = {0};
    ddp_status status;
    open_doomed(&doomed, world, rank);
    if (rank == 1)
        enqueue_a_fault(&doomed.gear, &doomed.kernels, doomed.address);
    status = gear_call(&doomed.gear, doomed.comm, 0, &error);
    CHECK(rank != 1 || status == DDP_OK);
    atomic_store(doomed.gate, 1);
    while (status == DDP_OK && (status = ddp_comm_check(doomed.comm, &error)) == DDP_OK)
        poll(NULL, 0, 10);
    gear_report(world, rank, status, &error);
    ddp_comm_destroy(doomed.comm);
    _exit(0);
}

/* No operation is under way. */
static void fault_alone(struct world *world, uint32_t rank)
{
    struct doomed doomed;
    struct ddp_error error = {0}, again = {0};
    open_doomed(&doomed, world, rank);
    atomic_store(doomed.gate, 1);
    enqueue_a_fault(&doomed.gear, &doomed.kernels, doomed.address);
    CHECK(doomed.gear.cuda.stream_synchronize(doomed.gear.stream) != DDPI_CU_SUCCESS);
    ddp_status status = ddp_comm_check(doomed.comm, &error);
    CHECK(ddp_comm_check(doomed.comm, &again) == status && strcmp(again.msg, error.msg) == 0);
    CHECK(gear_call(&doomed.gear, doomed.comm, 0, &again) != DDP_OK);
    gear_report(world, rank, status, &error);
    ddp_comm_destroy(doomed.comm);
    _exit(0);
}

/* All ranks hear @text. */
static void run_faults(uint32_t nranks, void (*run)(struct world *world, uint32_t rank),
                       const char *text)
{
    struct world world = {.nranks = nranks, .timeout_ms = LONG_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            run(&world, rank);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_CUDA && strstr(report->error.msg, text) != NULL &&
                          strstr(report->error.msg, "CUDA_ERROR_ILLEGAL_ADDRESS") != NULL,
                      "rank %u: %s", rank, report->error.msg);
    }
    world_close(&world);
}

START_TEST(a_kernel_fails_beside_operations)
{
    run_faults(2, fault_alone, "the GPU failed");
}
END_TEST

START_TEST(a_kernel_fails)
{
    run_faults(3, fault, "rank 1: the GPU failed");
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device refusals");
    TCase *refusals = tcase_create("refusals");
    add_worlds(refusals, the_driver_refuses_a_call, 0, FUNCTIONS);
    tcase_add_loop_test(refusals, what_is_refused_late_is_no_success, 0, 6);
    tcase_add_test(refusals, a_kernel_fails);
    tcase_add_test(refusals, a_kernel_fails_beside_operations);
    suite_add_tcase(suite, refusals);
    return suite;
}
