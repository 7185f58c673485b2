/*
 * test_device_misuse.c - calls on device memory that cannot be: each is refused with a sentence
 * that says what is wrong with what, nothing is enqueued, and all ranks go on.
 */
#include "check_main.h"
#include "image.h"
#include "rig.h"

#include <ddprun/ddp_hooks.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { COUNT = 1000 };

struct places {
    void *device, *host, *other, *freed;
};

static void expect_refusal(ddp_status status, const struct ddp_error *error, const char *text)
{
    if (status == DDP_E_INVALID && strcmp(error->msg, text) == 0)
        return;
    fprintf(stderr, "%s: '%s' instead of '%s'\n", ddp_status_name(status), error->msg, text);
    _Exit(1);
}

static void check_all_is_well(struct rig *rig)
{
    struct problem of = {.dtype = DDP_INT32, .op = DDP_SUM, .count = COUNT};
    rig_all_reduce(rig, &of);
}

static ddp_status reduce_floats(struct rig *rig, const void *send, void *recv, void *stream,
                                struct ddp_error *error)
{
    return ddp_all_reduce(rig->device, send, recv, COUNT, DDP_FLOAT32, DDP_SUM, stream, error);
}

static void mix_kinds(struct rig *rig, struct ddp_error *error)
{
    void *device = rig_alloc(rig, COUNT * 4), *host = malloc(COUNT * 4);
    expect_refusal(reduce_floats(rig, device, host, rig->stream, error), error,
                   "the send buffer is memory of the GPU, the receive buffer of the host; both "
                   "must be of one kind");
    expect_refusal(reduce_floats(rig, host, device, rig->stream, error), error,
                   "the send buffer is memory of the host, the receive buffer of the GPU; both "
                   "must be of one kind");
    expect_refusal(reduce_floats(rig, host, host, rig->stream, error), error,
                   "host memory takes no stream: pass NULL");
    expect_refusal(ddp_broadcast(rig->device, host, 1, DDP_INT32, 0, rig->stream, error), error,
                   "host memory takes no stream: pass NULL");
    const struct ddp_buffer list[] = {{NULL, NULL, 0}, {host, device, COUNT}};
    expect_refusal(ddp_all_reduce_many(rig->device, list + 1, 1, DDP_FLOAT32, DDP_SUM, NULL, error),
                   error,
                   "the send buffer is memory of the host, the receive buffer of the GPU; both "
                   "must be of one kind");
    const struct ddp_buffer reversed[] = {{host, device, COUNT}, {NULL, NULL, 0}};
    expect_refusal(ddp_all_reduce_many(rig->device, reversed, 2, DDP_FLOAT32, DDP_SUM, NULL, error),
                   error,
                   "buffer 0 of the list is memory of the GPU (device 0), and the first one of the "
                   "host (device 0) or of another context: the buffers of a list must be of one "
                   "kind");
    expect_refusal(
        ddp_all_reduce_many(rig->device, list, 2, DDP_FLOAT32, DDP_SUM, rig->stream, error), error,
        "buffer 1 of the list is memory of the GPU (device 0), and the first one of the host "
        "(device 0) or of another context: the buffers of a list must be of one kind");
    free(host);
    rig_free(rig, device);
}

/* Only the host driver gives no address twice. */
static void pass_freed_memory(struct rig *rig, struct ddp_error *error)
{
    void *freed = rig_alloc(rig, COUNT * 4), *device = rig_alloc(rig, COUNT * 4);
    rig_free(rig, freed);
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text,
             "the send buffer at %p is neither memory of this process nor of its GPU; it may have "
             "been freed",
             freed);
    expect_refusal(reduce_floats(rig, freed, device, rig->stream, error), error, text);
    snprintf(text, sizeof text,
             "the receive buffer at %p is neither memory of this process nor of its GPU; it may "
             "have been freed",
             freed);
    expect_refusal(reduce_floats(rig, device, freed, rig->stream, error), error, text);
    rig_free(rig, device);
}

static void pass_unaligned_memory(struct rig *rig, struct ddp_error *error)
{
    uint8_t *device = rig_alloc(rig, COUNT * 8 + 8);
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text,
             "the send buffer at %p is on a GPU, but not aligned to its elements of 4 bytes "
             "(float32)",
             (void *)(device + 2));
    expect_refusal(reduce_floats(rig, device + 2, device + 2, rig->stream, error), error, text);
    expect_refusal(
        ddp_all_to_all(rig->device, device + 2, device + 400, 4, DDP_FLOAT32, rig->stream, error),
        error, text);
    snprintf(text, sizeof text,
             "the receive buffer at %p is on a GPU, but not aligned to its elements of 8 bytes "
             "(int64)",
             (void *)(device + 4));
    expect_refusal(ddp_all_reduce(rig->device, device + 400, device + 4, 4, DDP_INT64, DDP_SUM,
                                  rig->stream, error),
                   error, text);
    rig_free(rig, device);
}

/* Functions that the library has no use for. */
static void *driver_function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    void *function = dlsym(library, name);
    CHECK(function != NULL);
    dlclose(library);
    return function;
}

static void pass_managed_memory(struct rig *rig, struct ddp_error *error)
{
    enum { ATTACH_GLOBAL = 1 };
    ddpi_cu_result (*allocate)(ddpi_cu_deviceptr *, size_t, unsigned);
    void *function = driver_function("cuMemAllocManaged");
    memcpy(&allocate, &function, sizeof function);
    ddpi_cu_deviceptr managed;
    CU(allocate(&managed, COUNT * 4, ATTACH_GLOBAL));
    void *buffer = (void *)(uintptr_t)managed;
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text,
             "the send buffer at %p is managed memory, which cannot be shared with other "
             "processes; use cudaMalloc",
             buffer);
    expect_refusal(reduce_floats(rig, buffer, buffer, rig->stream, error), error, text);
    CU(rig->cuda.mem_free(managed));
}

static void pass_a_capturing_stream(struct rig *rig, struct ddp_error *error)
{
    enum { RELAXED = 2 };
    ddpi_cu_result (*begin)(ddpi_cu_stream, unsigned);
    ddpi_cu_result (*end)(ddpi_cu_stream, void **);
    void *function = driver_function("cuStreamBeginCapture_v2");
    memcpy(&begin, &function, sizeof function);
    function = driver_function("cuStreamEndCapture");
    memcpy(&end, &function, sizeof function);
    static const char text[] = "the stream is being captured into a graph; a collective talks to "
                               "other ranks each time and cannot be part of one";
    void *device = rig_alloc(rig, COUNT * 4), *graph;
    CU(begin(rig->stream, RELAXED));
    expect_refusal(reduce_floats(rig, device, device, rig->stream, error), error, text);
    expect_refusal(ddp_barrier(rig->device, rig->stream, error), error, text);
    CU(end(rig->stream, &graph));
    rig_free(rig, device);
}

/* Each rank is refused before the first operation, or between two. */
static void misuse(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static void (*const errors[])(struct rig *, struct ddp_error *) = {
        mix_kinds, pass_unaligned_memory, pass_managed_memory, pass_a_capturing_stream,
        pass_freed_memory};
    bool on_host = world->stage / 2 % 2 != 0;
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    if (world->stage % 2 != 0)
        check_all_is_well(&rig);
    for (size_t i = 0; i < sizeof errors / sizeof *errors - !on_host; i++) {
        struct ddp_error error = {0};
        if (rank != i % 3)
            errors[i](&rig, &error);
        check_all_is_well(&rig);
    }
    rig_close(&rig);
}

START_TEST(refused_calls_change_nothing)
{
    struct world world = {.nranks = 3, .stage = (uint32_t)_i};
    world.stage += rig_driver_is_host() ? 2 : 0;
    world_open(&world);
    world_run(&world, misuse);
    world_close(&world);
}
END_TEST

/* ---- a capture in another thread ---- */

struct capture {
    pthread_t thread;
    ddpi_cu_context context;
    const struct ddpi_cuda *cuda;
    _Atomic int turn; /* 1: it has begun; 2: it may end */
};

static void await_turn(struct capture *capture, int turn)
{
    while (atomic_load(&capture->turn) < turn)
        poll(NULL, 0, 10);
}

static void *capture_globally(void *arg)
{
    enum { GLOBAL = 0 };
    struct capture *capture = arg;
    ddpi_cu_result (*begin)(ddpi_cu_stream, unsigned);
    ddpi_cu_result (*end)(ddpi_cu_stream, void **);
    void *function = driver_function("cuStreamBeginCapture_v2"), *graph;
    memcpy(&begin, &function, sizeof function);
    function = driver_function("cuStreamEndCapture");
    memcpy(&end, &function, sizeof function);
    ddpi_cu_stream stream;
    CU(capture->cuda->ctx_push_current(capture->context));
    CU(capture->cuda->stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING));
    CU(begin(stream, GLOBAL));
    atomic_store(&capture->turn, 1);
    await_turn(capture, 2);
    CU(end(stream, &graph));
    CU(capture->cuda->stream_destroy(stream));
    CU(capture->cuda->ctx_pop_current(NULL));
    return NULL;
}

static void begin_capture(struct capture *capture, const struct rig *rig)
{
    *capture = (struct capture){.context = rig->context, .cuda = &rig->cuda};
    CHECK(pthread_create(&capture->thread, NULL, capture_globally, capture) == 0);
    await_turn(capture, 1);
}

static void end_capture(struct capture *capture)
{
    atomic_store(&capture->turn, 2);
    CHECK(pthread_join(capture->thread, NULL) == 0);
}

/* The first operation and the end of the communicator, in which it does most. */
static void work_beside_a_capture(struct world *world, uint32_t rank)
{
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    struct rig rig;
    struct capture capture;
    rig_use(&rig, 0, comm, NULL);
    void *buffer = rig_alloc(&rig, COUNT * 4);
    size_t free_bytes = rig_free_memory(&rig);
    begin_capture(&capture, &rig);
    CHECK_OK(reduce_floats(&rig, buffer, buffer, rig.stream, err));
    end_capture(&capture);
    rig_synchronize(&rig);
    begin_capture(&capture, &rig);
    ddp_comm_destroy(comm);
    end_capture(&capture);
    CHECK(rig_free_memory(&rig) == free_bytes);
    rig_free(&rig, buffer);
    rig_close(&rig);
    _exit(0);
}

START_TEST(others_may_capture)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    struct world world = {.nranks = 2};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            work_beside_a_capture(&world, rank);
    world_join(&world);
    world_close(&world);
}
END_TEST

/* A context that is not that of the first operation. */
static void change_devices(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    ddpi_cu_context other;
    ddpi_cu_stream stream;
    CU(rig.cuda.device_primary_ctx_retain(&other, 1 - rig.ordinal));
    void *here = rig_alloc(&rig, COUNT * 4);
    CU(rig.cuda.ctx_push_current(other));
    CU(rig.cuda.stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING));
    void *there = rig_alloc(&rig, COUNT * 4);
    struct ddp_error error = {0};
    char text[DDP_ERROR_TEXT];
    snprintf(text, sizeof text,
             "the receive buffer is on GPU %d, but this communicator has begun to work on GPU %d; "
             "one communicator uses one GPU in one context",
             rig.ordinal, 1 - rig.ordinal);
    expect_refusal(reduce_floats(&rig, there, here, stream, &error), &error, text);
    CU(rig.cuda.ctx_pop_current(NULL));
    check_all_is_well(&rig); /* the refused call has not bound the communicator to the other one */
    snprintf(text, sizeof text,
             "the send buffer is on GPU %d, but this communicator has begun to work on GPU %d; one "
             "communicator uses one GPU in one context",
             1 - rig.ordinal, rig.ordinal);
    expect_refusal(reduce_floats(&rig, there, there, rig.stream, &error), &error, text);
    expect_refusal(ddp_barrier(comm, stream, &error), &error,
                   "the stream belongs to another context than this communicator");
    check_all_is_well(&rig);
    rig_close(&rig);
}

START_TEST(one_communicator_one_device)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, change_devices);
    world_close(&world);
}
END_TEST

/* With a hook that casts on the GPU. */
static void step_once(struct rig *rig, ddp_comm *comm, void *gradient)
{
    struct ddp_compression compression = {.dtype = DDP_BFLOAT16};
    const struct ddp_comm_hook hook = ddp_compression_hook(&compression);
    const struct ddp_parameter parameter = {
        .gradient = gradient, .count = COUNT, .dtype = DDP_FLOAT32};
    const struct ddp_reducer_options options = {.size = sizeof options,
                                                .parameters = &parameter,
                                                .nparameters = 1,
                                                .hook = &hook,
                                                .on_device = true};
    ddp_reducer *reducer;
    CHECK_OK(ddp_reducer_create(comm, &options, &reducer, err));
    CHECK_OK(ddp_reducer_begin(reducer, err));
    CHECK_OK(ddp_reducer_ready(reducer, 0, rig->stream, err));
    CHECK_OK(ddp_reducer_finish(reducer, err));
    ddp_reducer_destroy(reducer);
}

/* Virtual memory has no context, and the current one is of another device. */
static void look_elsewhere(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    ddpi_cu_context other;
    rig_open(&rig, world, rank, comm);
    CU(rig.cuda.device_primary_ctx_retain(&other, 1 - rig.ordinal));
    rig.virtual = true;
    struct twin twin = rig_output(&rig, COUNT * 4);
    void *buffer = twin_device(&twin);
    rig_upload(&rig, &twin);
    rig_synchronize(&rig);
    CU(rig.cuda.ctx_push_current(other));
    if (world->stage == 0)
        CHECK_OK(reduce_floats(&rig, buffer, buffer, rig.stream, err));
    else
        step_once(&rig, comm, buffer);
    CU(rig.cuda.ctx_pop_current(NULL));
    rig_synchronize(&rig);
    CHECK_OK(ddp_comm_check(comm, err));
    twin_free(&rig, &twin);
    rig.virtual = false;
    check_all_is_well(&rig);
    rig_close(&rig);
}

/* _i: in a collective, or in a reducer. */
START_TEST(virtual_memory_tells_its_device)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    struct world world = {.nranks = 2, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, look_elsewhere);
    world_close(&world);
}
END_TEST

/* In a process of its own, as the parent of ranks must not use the driver. */
static void begin_elsewhere(void)
{
    const int device = 1;
    ddp_comm *comm;
    struct rig rig;
    struct ddp_error error = {0};
    CHECK_OK(ddp_comm_init_local(1, &device, &comm, err));
    rig_use(&rig, 0, comm, NULL);
    expect_refusal(ddp_barrier(comm, rig.stream, &error), &error,
                   "the stream is on GPU 0, but the communicator of rank 0 was made for GPU 1");
    void *buffer = rig_alloc(&rig, COUNT * 4);
    expect_refusal(reduce_floats(&rig, buffer, buffer, rig.stream, &error), &error,
                   "the buffers are on GPU 0, but the communicator of rank 0 was made for GPU 1");
    rig_free(&rig, buffer);
    rig_close(&rig);
    rig_use(&rig, 1, comm, NULL);
    CHECK_OK(ddp_barrier(comm, rig.stream, err));
    rig_synchronize(&rig);
    rig_close(&rig);
    ddp_comm_destroy(comm);
    _exit(0);
}

START_TEST(the_device_was_chosen_before)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    struct world world = {.nranks = 1};
    world_open(&world);
    if (world_fork(&world, 0))
        begin_elsewhere();
    world_join(&world);
    world_close(&world);
}
END_TEST

/* ---- what only shows when others are asked ---- */

static void expect_all(const struct world *world, ddp_status status, const char *text)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        const struct report *seen = &world->reports[rank];
        ck_assert_msg(seen->status == status && strstr(seen->error.msg, text) != NULL,
                      "rank %u: %s", rank, seen->error.msg);
    }
}

/* An operation that fails, here or behind the stream. */
static void reduce_and_report(struct world *world, struct rig *rig, void *buffer, void *stream)
{
    struct ddp_error error = {0};
    ddp_status status = reduce_floats(rig, buffer, buffer, stream, &error);
    CU(rig->cuda.stream_synchronize(rig->stream));
    if (status == DDP_OK)
        status = ddp_comm_check(rig->device, &error);
    world_report(world, rig->rank, status, &error);
}

static void use_both_kinds(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    if (world->stage == 1)
        check_all_is_well(&rig);
    bool on_host = rank == 1;
    void *buffer = on_host ? malloc(COUNT * 4) : rig_alloc(&rig, COUNT * 4);
    reduce_and_report(world, &rig, buffer, on_host ? NULL : rig.stream);
    rig_close(&rig);
}

START_TEST(ranks_must_agree_where_memory_is)
{
    /* Those whose buffer is on the device notice only when their time is over. */
    struct world world = {.nranks = 3, .stage = (uint32_t)_i, .timeout_ms = 20 * 1000};
    world_open(&world);
    world_run(&world, use_both_kinds);
    char text[128];
    unsigned seq = 1 + world.stage;
    snprintf(text, sizeof text, "all_reduce #%u (sum of %d float32, direct)", seq, COUNT);
    expect_all(&world, DDP_E_MISMATCH, text);
    expect_all(&world, DDP_E_MISMATCH, ") on a GPU");
    expect_all(&world, DDP_E_MISMATCH, "rank 1");
    world_close(&world);
}
END_TEST

/* The driver does not take the kernels; there may be none. */
static void reduce_without_kernels(struct world *world, uint32_t rank)
{
    if (rank == 0)
        setenv("DDP_HOST_CUDA_FAIL", "cuModuleLoadData:1:209", 1);
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    reduce_and_report(world, &rig, rig_alloc(&rig, COUNT * 4), rig.stream);
    rig_close(&rig);
    ddp_comm_destroy(comm);
    _exit(0);
}

START_TEST(kernels_are_needed)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    struct world world = {.nranks = 2};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            reduce_without_kernels(&world, rank);
    world_join(&world);
    bool none = ddpi_cuda_image_len == 0;
    expect_all(&world, none ? DDP_E_UNSUPPORTED : DDP_E_CUDA,
               none
                   ? "rank 0: this libddpcomm was built without nvcc and has no kernels for a GPU; "
                     "build it again where there is nvcc"
                   : "rank 0: cannot load the kernels (built for sm_");
    world_close(&world);
}
END_TEST

/* It gives out memory that the host cannot touch, and cannot be asked which that is. */
static void use_an_old_driver(struct world *world, uint32_t rank)
{
    struct ddp_comm_options options = world_options(world, rank);
    float numbers[COUNT] = {0};
    ddp_comm *comm;
    struct ddp_error error = {0};
    CHECK(dlopen(getenv("DDP_TEST_OLD_DRIVER"), RTLD_NOW) != NULL);
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(ddp_all_reduce(comm, numbers, numbers, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err));
    void *elsewhere =
        mmap(NULL, sizeof numbers, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(elsewhere != MAP_FAILED);
    void *buffer = rank == 0 ? elsewhere : numbers;
    ddp_status status =
        ddp_all_reduce(comm, buffer, buffer, COUNT, DDP_FLOAT32, DDP_SUM, NULL, &error);
    world_report(world, rank, status, &error);
    ddp_comm_destroy(comm);
    _exit(0);
}

START_TEST(drivers_can_be_too_old)
{
    if (getenv("DDP_TEST_OLD_DRIVER") == NULL)
        SKIP("the old driver of tests/cuda");
    struct world world = {.nranks = 2};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            use_an_old_driver(&world, rank);
    world_join(&world);
    expect_all(&world, DDP_E_UNSUPPORTED,
               " is not memory of the host: the CUDA driver (libcuda.so.1, of CUDA 11.8) has no "
               "function cuGetProcAddress of CUDA 12.0; a driver for CUDA 12.0 or later is needed");
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device misuse");
    TCase *misuses = tcase_create("misuse");
    tcase_add_loop_test(misuses, refused_calls_change_nothing, 0, 2);
    tcase_add_test(misuses, others_may_capture);
    tcase_add_test(misuses, one_communicator_one_device);
    tcase_add_loop_test(misuses, virtual_memory_tells_its_device, 0, 2);
    tcase_add_test(misuses, the_device_was_chosen_before);
    tcase_add_loop_test(misuses, ranks_must_agree_where_memory_is, 0, 2);
    tcase_add_test(misuses, kernels_are_needed);
    tcase_add_test(misuses, drivers_can_be_too_old);
    suite_add_tcase(suite, misuses);
    return suite;
}
