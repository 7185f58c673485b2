/*
 * test_device_streams.c - what order means on device memory: an operation sees what was enqueued
 * before it on the caller's stream, and what is enqueued after it sees the result, without the
 * caller ever waiting.
 */
#include "check_main.h"
#include "device_state.h"
#include "rig.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { COUNT = 5000 };

/* A word of pinned memory that streams wait for. */
static _Atomic uint32_t *make_gate(struct rig *rig)
{
    void *word;
    CU(rig->cuda.mem_host_alloc(&word, sizeof(uint32_t),
                                DDPI_CU_MEMHOSTALLOC_PORTABLE | DDPI_CU_MEMHOSTALLOC_DEVICEMAP));
    memset(word, 0, sizeof(uint32_t));
    return word;
}

static void hold(struct rig *rig, ddpi_cu_stream stream, _Atomic uint32_t *gate, uint32_t value)
{
    ddpi_cu_deviceptr address;
    CU(rig->cuda.mem_host_get_device_pointer(&address, (void *)gate, 0));
    CU(rig->cuda.stream_wait_value32(stream, address, value, DDPI_CU_STREAM_WAIT_VALUE_GEQ));
}

/* The meeting, after which calls do not block. */
static void warm_up(struct rig *rig)
{
    struct problem of = {.dtype = DDP_INT32, .op = DDP_SUM, .count = COUNT};
    rig_all_reduce(rig, &of);
    rig_all_reduce(rig, &of);
}

static void put_value(struct rig *rig, ddpi_cu_stream stream, void *to, int32_t *pinned,
                      int32_t value)
{
    for (size_t i = 0; i < COUNT; i++)
        pinned[i] = value + (int32_t)i;
    CU(rig->cuda.memcpy_htod_async((uintptr_t)to, pinned, COUNT * sizeof value, stream));
}

static void check_sum(const struct rig *rig, const int32_t *seen, int32_t value)
{
    int32_t ranks = (int32_t)(rig->nranks * (rig->nranks - 1) / 2), n = (int32_t)rig->nranks;
    for (int32_t i = 0; i < COUNT; i++)
        CHECK(seen[i] == n * (value + i) + ranks);
}

static int32_t *pin(struct rig *rig)
{
    void *pinned;
    CU(rig->cuda.mem_host_alloc(&pinned, COUNT * sizeof(int32_t), 0));
    return pinned;
}

/* The data is written behind a gate that opens only after the call has returned; the result is
 * read by work that was enqueued before it opened. */
static void in_order(struct rig *rig, ddpi_cu_stream stream)
{
    _Atomic uint32_t *gate = make_gate(rig);
    void *buffer = rig_alloc(rig, COUNT * sizeof(int32_t));
    int32_t *in = pin(rig), *out = pin(rig);
    memset(out, 0, COUNT * sizeof *out);
    for (uint32_t turn = 1; turn <= 3; turn++) {
        if (rig->rank == turn % rig->nranks)
            hold(rig, stream, gate, turn);
        put_value(rig, stream, buffer, in, (int32_t)(rig->rank + 100 * turn));
        CHECK_OK(
            ddp_all_reduce(rig->device, buffer, buffer, COUNT, DDP_INT32, DDP_SUM, stream, err));
        CU(rig->cuda.memcpy_dtoh_async(out, (uintptr_t)buffer, COUNT * sizeof *out, stream));
        CU(rig->cuda.memset_d8_async((uintptr_t)buffer, 0x77, COUNT * sizeof *out, stream));
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        CHECK(rig->cuda.stream_query(stream) == DDPI_CU_ERROR_NOT_READY ||
              rig->rank != turn % rig->nranks);
        atomic_store(gate, turn);
        CU(rig->cuda.stream_synchronize(stream));
        CHECK_OK(ddp_comm_check(rig->device, err));
        check_sum(rig, out, (int32_t)(100 * turn));
    }
    CU(rig->cuda.mem_free((uintptr_t)buffer));
}

static void own_and_default_stream(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    warm_up(&rig);
    in_order(&rig, rig.stream);
    in_order(&rig, NULL); /* the legacy default stream */
    ddpi_cu_stream blocking;
    CU(rig.cuda.stream_create(&blocking, DDPI_CU_STREAM_DEFAULT));
    in_order(&rig, blocking);
    rig_close(&rig);
}

static const struct {
    const char *devices;
    ddp_algorithm algorithm;
} settings[] = {
    {"1", DDP_ALGORITHM_AUTO},
    {"1", DDP_ALGORITHM_RING},
    {"3", DDP_ALGORITHM_RING},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void run_with_delays(int setting, uint32_t nranks, rank_body *body)
{
    setenv("DDP_HOST_CUDA_DELAY_US", "1500", 1);
    setenv("DDP_HOST_CUDA_DEVICES", settings[setting].devices, 1);
    struct world world = {.nranks = nranks, .algorithm = settings[setting].algorithm};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(operations_keep_the_order_of_their_stream)
{
    run_with_delays(_i, 3, own_and_default_stream);
}
END_TEST

/* Streams of one rank: operations on them are carried out in the order of the calls, each after
 * what is before it on its own stream only. */
static void several_streams(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { STREAMS = 3, TURNS = 12 };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    warm_up(&rig);
    ddpi_cu_stream streams[STREAMS];
    void *buffers[STREAMS];
    int32_t *in[TURNS], *out[TURNS];
    for (int i = 0; i < STREAMS; i++) {
        CU(rig.cuda.stream_create(&streams[i], DDPI_CU_STREAM_NON_BLOCKING));
        buffers[i] = rig_alloc(&rig, COUNT * sizeof(int32_t));
    }
    for (int i = 0; i < TURNS; i++) {
        in[i] = pin(&rig);
        out[i] = pin(&rig);
    }
    for (int i = 0; i < TURNS; i++) {
        int s = i % STREAMS;
        put_value(&rig, streams[s], buffers[s], in[i], (int32_t)rank + i);
        CHECK_OK(ddp_all_reduce(comm, buffers[s], buffers[s], COUNT, DDP_INT32, DDP_SUM, streams[s],
                                err));
        CU(rig.cuda.memcpy_dtoh_async(out[i], (uintptr_t)buffers[s], COUNT * sizeof(int32_t),
                                      streams[s]));
    }
    for (int i = 0; i < STREAMS; i++)
        CU(rig.cuda.stream_synchronize(streams[i]));
    CHECK_OK(ddp_comm_check(comm, err));
    for (int i = 0; i < TURNS; i++)
        check_sum(&rig, out[i], i);
    rig_close(&rig);
}

START_TEST(streams_of_one_rank)
{
    run_with_delays(_i, 3, several_streams);
}
END_TEST

/* More than the queue holds, in chains: each operation works on the result of the one before. */
static void many_without_waiting(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MANY = 2 * DDPI_GATED_MAX + 50 };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    warm_up(&rig);
    struct twin value = rig_input(&rig, 7, DDP_INT32);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(ddp_all_reduce(comm, twin_device(&value), twin_device(&value), 7, DDP_INT32,
                                DDP_SUM, rig.stream, err));
    for (int i = 0; i < MANY; i++)
        CHECK_OK(
            ddp_all_reduce(rig.host, value.host, value.host, 7, DDP_INT32, DDP_SUM, NULL, err));
    rig_compare(&rig, &value, DDP_INT32);
    rig_close(&rig);
}

START_TEST(more_than_the_queue_holds)
{
    struct world world = {.nranks = 2, .algorithm = settings[_i].algorithm};
    world_open(&world);
    world_run(&world, many_without_waiting);
    world_close(&world);
}
END_TEST

struct opener {
    pthread_t thread;
    _Atomic uint32_t *gate;
    unsigned after_ms;
};

static void *open_later(void *arg)
{
    struct opener *opener = arg;
    nanosleep(&(struct timespec){.tv_nsec = opener->after_ms * 1000000L}, NULL);
    atomic_store(opener->gate, 1);
    return NULL;
}

/* The first operation cannot begin, so the queue is full and the caller waits for room. */
static void full_behind_a_gate(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MANY = DDPI_GATED_MAX + 20 };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    warm_up(&rig);
    struct twin value = rig_input(&rig, 3, DDP_INT64);
    rig_synchronize(&rig);
    struct opener opener = {.gate = make_gate(&rig), .after_ms = 100};
    hold(&rig, rig.stream, opener.gate, 1);
    CHECK(pthread_create(&opener.thread, NULL, open_later, &opener) == 0);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(ddp_all_reduce(comm, twin_device(&value), twin_device(&value), 3, DDP_INT64,
                                DDP_SUM, rig.stream, err));
    CHECK(atomic_load(opener.gate) == 1);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(
            ddp_all_reduce(rig.host, value.host, value.host, 3, DDP_INT64, DDP_SUM, NULL, err));
    rig_compare(&rig, &value, DDP_INT64);
    CHECK(pthread_join(opener.thread, NULL) == 0);
    rig_close(&rig);
}

START_TEST(a_full_queue_waits_for_room)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, full_behind_a_gate);
    world_close(&world);
}
END_TEST

/* One communicator for both kinds of memory. */
static void host_and_device(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (int i = 0; i < 10; i++) {
        struct twin value = rig_input(&rig, 100, DDP_INT32);
        CHECK_OK(ddp_all_reduce(comm, twin_device(&value), twin_device(&value), 100, DDP_INT32,
                                DDP_MAX, rig.stream, err));
        CHECK_OK(ddp_all_reduce(comm, value.host, value.host, 100, DDP_INT32, DDP_MAX, NULL, err));
        CHECK_OK(ddp_barrier(comm, i % 2 == 0 ? NULL : rig.stream, err));
        uint64_t word = rank;
        if (rank < 2) {
            CHECK_OK(rank == 0 ? ddp_send(comm, &word, 1, DDP_INT64, 1, NULL, err)
                               : ddp_recv(comm, &word, 1, DDP_INT64, 0, NULL, err));
            CHECK(word == 0);
        }
        rig_compare(&rig, &value, DDP_INT32);
    }
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    CHECK(stats.operations == 30 + (rank < 2 ? 10 : 0));
    rig_close(&rig);
}

START_TEST(host_and_device_memory_in_turn)
{
    run_with_delays(_i, 3, host_and_device);
}
END_TEST

/* Rank 0's stream comes last; what follows the barrier elsewhere runs after that. */
static void barrier_on_a_stream(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    CHECK_OK(ddp_barrier(comm, rig.stream, err)); /* the first operation of all */
    CU(rig.cuda.stream_synchronize(rig.stream));
    _Atomic uint32_t *gate = make_gate(&rig);
    for (uint32_t turn = 1; turn <= 5; turn++) {
        bool last = rank == turn % world->nranks;
        if (last)
            hold(&rig, rig.stream, gate, turn);
        CHECK_OK(ddp_barrier(comm, rig.stream, err));
        if (last) {
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
            atomic_fetch_add(world->counter, 1);
            atomic_store(gate, turn);
        }
        rig_synchronize(&rig);
        CHECK(atomic_load(world->counter) >= turn);
        CHECK_OK(ddp_barrier(rig.host, NULL, err));
    }
    rig_close(&rig);
}

START_TEST(a_barrier_on_a_stream)
{
    run_with_delays(0, 3, barrier_on_a_stream);
}
END_TEST

/* ---- several threads ---- */

enum { THREADS = 4, CALLS = 5 };

struct caller {
    struct rig *rig;
    ddpi_cu_stream stream;
    void *value;
    int32_t *pinned, *seen;
};

/* The same numbers in each thread, as another rank may have called them in another order. */
static void *sum_some(void *arg)
{
    struct caller *caller = arg;
    struct rig *rig = caller->rig;
    CU(rig->cuda.ctx_push_current(rig->context));
    for (unsigned i = 0; i < CALLS; i++) {
        put_value(rig, caller->stream, caller->value, caller->pinned, (int32_t)rig->rank);
        CHECK_OK(ddp_all_reduce(rig->device, caller->value, caller->value, COUNT, DDP_INT32,
                                DDP_SUM, caller->stream, err));
        CU(rig->cuda.memcpy_dtoh_async(caller->seen, (uintptr_t)caller->value,
                                       COUNT * sizeof *caller->seen, caller->stream));
        CU(rig->cuda.stream_synchronize(caller->stream));
        CHECK_OK(ddp_comm_check(rig->device, err));
        check_sum(rig, caller->seen, 0);
    }
    CU(rig->cuda.ctx_pop_current(NULL));
    return NULL;
}

/* The first call of a rank is one of several at once. */
static void share_communicator(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    (void)world;
    rig_use(&rig, (int)rank, comm, NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.rig = &rig,
                                     .value = rig_alloc(&rig, COUNT * sizeof(int32_t)),
                                     .pinned = pin(&rig),
                                     .seen = pin(&rig)};
        CU(rig.cuda.stream_create(&callers[i].stream, DDPI_CU_STREAM_NON_BLOCKING));
    }
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, sum_some, &callers[i]) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (unsigned i = 0; i < THREADS;
         i++) { /* freeing waits for all streams, and the others for it */
        CU(rig.cuda.stream_destroy(callers[i].stream));
        CU(rig.cuda.mem_free_host(callers[i].pinned));
        CU(rig.cuda.mem_free_host(callers[i].seen));
        rig_free(&rig, callers[i].value);
    }
    rig_close(&rig);
}

START_TEST(threads_share_a_communicator)
{
    struct world world = {.nranks = (uint32_t)_i};
    world_open(&world);
    world_run(&world, share_communicator);
    world_close(&world);
}
END_TEST

/* ---- what waits in the driver behind an operation ---- */

enum blocker { FREE, FREE_PINNED, LOAD_KERNELS, COPY_TO_PAGEABLE, BLOCKERS };
enum { TURNS = 20 };

static void prepare_blocker(struct rig *rig, enum blocker blocker, void **memory)
{
    if (blocker == FREE)
        *memory = rig_alloc(rig, 1000);
    else if (blocker == FREE_PINNED)
        *memory = pin(rig);
    else
        *memory = malloc(COUNT * sizeof(int32_t));
    CHECK(*memory != NULL);
}

/* While it waits for the stream, the driver lets no other thread of the process enqueue. */
static void call_blocker(struct rig *rig, enum blocker blocker, void *memory,
                         const void *device_memory)
{
    struct ddpi_kernels kernels;
    if (blocker == FREE) {
        rig_free(rig, memory);
        return;
    }
    if (blocker == FREE_PINNED) {
        CU(rig->cuda.mem_free_host(memory));
        return;
    }
    if (blocker == COPY_TO_PAGEABLE) {
        CU(rig->cuda.memcpy_dtoh_async(memory, (uintptr_t)device_memory, COUNT * sizeof(int32_t),
                                       rig->stream));
    } else {
        ddpi_kernels_init(&kernels, &rig->cuda);
        CHECK_OK(ddpi_kernels_load(&kernels, err));
        ddpi_kernels_finish(&kernels);
    }
    free(memory);
}

static void block_behind_sums(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    int32_t *pinned = pin(&rig);
    void *value = rig_alloc(&rig, COUNT * sizeof *pinned);
    for (int32_t turn = 0; turn < TURNS; turn++) {
        void *memory;
        prepare_blocker(&rig, (enum blocker)world->stage, &memory);
        put_value(&rig, rig.stream, value, pinned, turn + (int32_t)rank);
        CHECK_OK(ddp_all_reduce(comm, value, value, COUNT, DDP_INT32, DDP_SUM, rig.stream, err));
        call_blocker(&rig, (enum blocker)world->stage, memory, value);
        CU(rig.cuda.memcpy_dtoh_async(pinned, (uintptr_t)value, COUNT * sizeof *pinned,
                                      rig.stream));
        rig_synchronize(&rig);
        check_sum(&rig, pinned, turn);
    }
    CU(rig.cuda.mem_free_host(pinned));
    rig_free(&rig, value);
    rig_close(&rig);
}

static void block_behind_messages(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    int32_t *pinned = pin(&rig), next = (int32_t)(rank + 1) % 2;
    void *out = rig_alloc(&rig, COUNT * sizeof *pinned), *in = rig_alloc(&rig, COUNT * sizeof next);
    for (int32_t turn = 0; turn < TURNS; turn++) {
        void *memory;
        prepare_blocker(&rig, (enum blocker)world->stage, &memory);
        put_value(&rig, rig.stream, out, pinned, turn + (int32_t)rank);
        CHECK_OK(ddp_send_recv(comm, out, COUNT, (uint32_t)next, in, COUNT, (uint32_t)next,
                               DDP_INT32, rig.stream, err));
        call_blocker(&rig, (enum blocker)world->stage, memory, in);
        CU(rig.cuda.memcpy_dtoh_async(pinned, (uintptr_t)in, COUNT * sizeof *pinned, rig.stream));
        rig_synchronize(&rig);
        for (int32_t i = 0; i < COUNT; i++)
            CHECK(pinned[i] == turn + next + i);
    }
    CU(rig.cuda.mem_free_host(pinned));
    rig_free(&rig, out);
    rig_free(&rig, in);
    rig_close(&rig);
}

/* Collectives of ranks that share a GPU or have one each, and messages. */
START_TEST(a_call_may_wait_in_the_driver_behind_an_operation)
{
    bool messages = _i / BLOCKERS == 2;
    struct world world = {.nranks = _i / BLOCKERS == 1 ? 3 : 2, .stage = (uint32_t)_i % BLOCKERS};
    setenv("DDP_HOST_CUDA_DEVICES", _i / BLOCKERS >= 2 ? "2" : "1", 1);
    world_open(&world);
    world_run(&world, messages ? block_behind_messages : block_behind_sums);
    world_close(&world);
}
END_TEST

/* Rank 0 waits in the driver for its stream, which waits for an operation. The driver lets nobody
 * launch anything meanwhile. Rank 1 comes when that is so, most likely. */
static void wait_in_the_driver(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    void *memory;
    rig_open(&rig, world, rank, comm);
    warm_up(&rig);
    int32_t *pinned = pin(&rig);
    void *value = rig_alloc(&rig, COUNT * sizeof *pinned);
    prepare_blocker(&rig, LOAD_KERNELS, &memory);
    put_value(&rig, rig.stream, value, pinned, 1);
    while (rank == 1 && atomic_load(&world->reports[0].steps) == 0)
        poll(NULL, 0, 100);
    CHECK_OK(ddp_all_reduce(comm, value, value, COUNT, DDP_INT32, DDP_SUM, rig.stream, err));
    world_step(world, rank);
    if (rank == 0)
        call_blocker(&rig, LOAD_KERNELS, memory, value);
    else
        free(memory);
    CU(rig.cuda.stream_synchronize(rig.stream));
    CHECK_OK(ddp_comm_check(comm, err));
    CU(rig.cuda.mem_free_host(pinned));
    rig_free(&rig, value);
    rig_close(&rig);
}

START_TEST(a_gpu_for_each_rank_lets_a_program_load_kernels)
{
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    struct world world = {.nranks = 2, .algorithm = DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, wait_in_the_driver);
    world_close(&world);
}
END_TEST

/* Whatever is current with the caller stays so; nothing need be. */
static void another_context(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    struct twin value = rig_input(&rig, 100, DDP_INT32);
    rig_synchronize(&rig);
    ddpi_cu_context current = NULL;
    CU(rig.cuda.ctx_pop_current(&current));
    CHECK(current == rig.context);
    CU(rig.cuda.ctx_get_current(&current));
    CHECK(current == NULL);
    CHECK_OK(ddp_all_reduce(comm, twin_device(&value), twin_device(&value), 100, DDP_INT32, DDP_SUM,
                            rig.stream, err));
    CU(rig.cuda.ctx_get_current(&current));
    CHECK(current == NULL);
    CU(rig.cuda.ctx_push_current(rig.context));
    CHECK_OK(ddp_all_reduce(rig.host, value.host, value.host, 100, DDP_INT32, DDP_SUM, NULL, err));
    rig_compare(&rig, &value, DDP_INT32);
    rig_close(&rig);
}

START_TEST(the_context_of_the_caller_stays)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, another_context);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device streams");
    TCase *order = tcase_create("order");
    tcase_add_loop_test(order, operations_keep_the_order_of_their_stream, 0, SETTINGS);
    tcase_add_loop_test(order, streams_of_one_rank, 0, SETTINGS);
    tcase_add_loop_test(order, more_than_the_queue_holds, 0, 2);
    tcase_add_test(order, a_full_queue_waits_for_room);
    tcase_add_loop_test(order, host_and_device_memory_in_turn, 0, SETTINGS);
    tcase_add_test(order, a_barrier_on_a_stream);
    tcase_add_loop_test(order, threads_share_a_communicator, 1, 4);
    tcase_add_loop_test(order, a_call_may_wait_in_the_driver_behind_an_operation, 0, 4 * BLOCKERS);
    tcase_add_test(order, a_gpu_for_each_rank_lets_a_program_load_kernels);
    tcase_add_test(order, the_context_of_the_caller_stays);
    suite_add_tcase(suite, order);
    return suite;
}
