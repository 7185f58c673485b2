/*
 * test_device_paths.c - data on GPUs gives the same bits as host memory and moves as many bytes,
 * wherever the ranks are: on one GPU or on several, in processes or in threads, in shared memory or
 * over TCP, in one slice or in many.
 */
#include "check_main.h"
#include "rig.h"

#include <pthread.h>

enum { TYPES = DDP_INT64 + 1, OPS = DDP_PRODUCT + 1, MIB = 1024 * 1024, SLICE = 4 * MIB };

static const struct place {
    const char *devices; /* what the host driver is told */
    uint32_t nranks;
    bool tcp;
    ddp_algorithm algorithm;
} places[] = {
    {"1", 3, false, DDP_ALGORITHM_AUTO},   {"1", 4, false, DDP_ALGORITHM_RING},
    {"1", 3, false, DDP_ALGORITHM_DIRECT}, {"1", 2, true, DDP_ALGORITHM_AUTO},
    {"2", 2, false, DDP_ALGORITHM_AUTO},   {"3", 3, false, DDP_ALGORITHM_RING},
    {"3", 3, true, DDP_ALGORITHM_AUTO},    {"4", 4, false, DDP_ALGORITHM_DIRECT},
    {"2", 5, false, DDP_ALGORITHM_AUTO},
};
enum { PLACES = sizeof places / sizeof *places };

static struct ddp_comm_stats stats_of(const ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats;
}

/* Both communicators did the same, and moved the same bytes. */
static void check_stats(const struct rig *rig)
{
    struct ddp_comm_stats device = stats_of(rig->device), host = stats_of(rig->host);
    CHECK(device.operations == host.operations);
    CHECK(device.bytes_sent == host.bytes_sent && device.bytes_received == host.bytes_received);
}

/* Any type, operation and root; sizes around a part of the ring. */
static void any_calls(struct rig *rig)
{
    const size_t sizes[] = {0, 1, rig->nranks - 1, 1000, 65537};
    for (unsigned turn = 0; turn < 5; turn++) {
        struct problem of = {.dtype = (ddp_dtype)((rig->nranks + turn) % TYPES),
                             .op = (ddp_reduce_op)(turn % OPS),
                             .count = sizes[turn],
                             .root = turn % rig->nranks};
        rig_all_calls(rig, &of);
        of.in_place = true;
        rig_all_calls(rig, &of);
    }
}

/* More than a slice, and no multiple of one. */
static void large_calls(struct rig *rig, bool in_place)
{
    struct problem of = {.dtype = DDP_FLOAT32, .op = DDP_SUM, .root = rig->nranks - 1};
    of.count = 2 * SLICE / sizeof(float) + 1;
    rig_all_reduce(rig, &of);
    of = (struct problem){.dtype = DDP_FLOAT64, .op = DDP_AVERAGE, .root = 1, .in_place = in_place};
    of.count = 2 * SLICE / sizeof(double) + 1;
    rig_reduce(rig, &of);
    of = (struct problem){.dtype = DDP_BFLOAT16, .op = DDP_SUM, .in_place = !in_place};
    of.count = 2 * SLICE / sizeof(uint16_t) / rig->nranks + 1;
    rig_reduce_scatter(rig, &of);
    of = (struct problem){.dtype = DDP_INT32, .count = SLICE / sizeof(int32_t) + 1};
    rig_broadcast(rig, &of);
    rig_all_gather(rig, &of);
}

static void call_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    any_calls(&rig);
    if (sample_is_whole() || world->stage % 4 == 0)
        large_calls(&rig, world->stage % 2 == 0);
    CHECK_OK(ddp_barrier(comm, rig.stream, err));
    CHECK_OK(ddp_barrier(rig.host, NULL, err));
    rig_synchronize(&rig);
    check_stats(&rig);
    rig_close(&rig);
}

START_TEST(every_place_gives_the_same_bits)
{
    const struct place *place = &places[_i];
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    setenv("DDP_HOST_CUDA_DEVICES", place->devices, 1);
    struct world world = {.nranks = place->nranks,
                          .tcp = place->tcp,
                          .algorithm = place->algorithm,
                          .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, call_all);
    world_close(&world);
}
END_TEST

/* On whatever devices there are. */
static void large_ones(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    large_calls(&rig, false);
    struct problem of = {.dtype = DDP_FLOAT16, .op = DDP_SUM};
    of.count = 4 * SLICE / sizeof(uint16_t) + 3;
    rig_all_reduce(&rig, &of);
    rig_close(&rig);
}

START_TEST(many_slices)
{
    struct world world = {.nranks = 2,
                          .algorithm = _i == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO};
    world_open(&world);
    world_run(&world, large_ones);
    world_close(&world);
}
END_TEST

/* ---- bytes ---- */

/* The ring moves what is known, any algorithm what host memory takes. */
static void count_bytes(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { COUNT = 840, BYTES = COUNT * 8 };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    uint64_t n = world->nranks, ring = world->algorithm == DDP_ALGORITHM_RING;
    struct problem of = {.dtype = DDP_INT64, .op = DDP_MAX, .count = COUNT, .root = 1};
    struct ddp_comm_stats before = stats_of(comm);
    rig_all_reduce(&rig, &of);
    struct ddp_comm_stats after = stats_of(comm);
    CHECK(after.operations == before.operations + 1);
    CHECK(!ring || after.bytes_sent - before.bytes_sent == 2 * BYTES * (n - 1) / n);
    CHECK(!ring || after.bytes_received - before.bytes_received == 2 * BYTES * (n - 1) / n);
    rig_all_gather(&rig, &of);
    before = after;
    after = stats_of(comm);
    CHECK(!ring || after.bytes_sent - before.bytes_sent == BYTES * (n - 1));
    rig_reduce(&rig, &of);
    before = after;
    after = stats_of(comm);
    CHECK(!ring || after.bytes_sent - before.bytes_sent == (rank == 1 ? 0 : BYTES));
    check_stats(&rig);
    rig_close(&rig);
}

START_TEST(bytes_are_counted)
{
    struct world world = {.nranks = (uint32_t)_i / 2 + 2,
                          .algorithm = _i % 2 == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, count_bytes);
    world_close(&world);
}
END_TEST

/* ---- what need not be there ---- */

static void odd_buffers(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (uint32_t root = 0; root < world->nranks; root++) {
        struct twin send = rig_input(&rig, 1000, DDP_INT32);
        struct twin recv = rig_output(&rig, send.len);
        void *elsewhere = root % 2 == 0 ? NULL : (void *)(uintptr_t)8; /* is not looked at */
        CHECK_OK(ddp_reduce(comm, twin_device(&send), rank == root ? twin_device(&recv) : elsewhere,
                            1000, DDP_INT32, DDP_PRODUCT, root, rig.stream, err));
        CHECK_OK(ddp_reduce(rig.host, send.host, recv.host, 1000, DDP_INT32, DDP_PRODUCT, root,
                            NULL, err));
        rig_compare(&rig, &send, DDP_INT32);
        rig_compare(&rig, &recv, DDP_INT32);
    }
    void *here = rank == 0 ? NULL : rig_alloc(&rig, 64);
    CHECK_OK(ddp_all_reduce(comm, here, here, 0, DDP_INT32, DDP_SUM, rig.stream, err));
    CHECK_OK(ddp_all_gather(comm, NULL, NULL, 0, DDP_INT32, rig.stream, err));
    CHECK_OK(ddp_broadcast(comm, here, 0, DDP_INT32, 1, rig.stream, err));
    rig_synchronize(&rig);
    rig_close(&rig);
}

START_TEST(buffers_that_are_not_there)
{
    struct world world = {.nranks = 3,
                          .algorithm = _i == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, odd_buffers);
    world_close(&world);
}
END_TEST

/* Buffers come and go, at the places of earlier ones too. */
static void fresh_buffers(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (size_t turn = 0; turn < 60; turn++) {
        struct problem of = {.dtype = DDP_INT32, .op = DDP_SUM, .count = 1 + turn * 997 % 5000};
        rig_all_reduce(&rig, &of);
        if (turn % 5 == 0)
            rig_shift(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(buffers_that_come_and_go)
{
    struct world world = {.nranks = 4,
                          .algorithm = _i % 2 == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    setenv("DDP_HOST_CUDA_REUSE", _i < 2 ? "0" : "1", 1);
    world_open(&world);
    world_run(&world, fresh_buffers);
    world_close(&world);
}
END_TEST

static ddpi_cu_mem_handle create_physical(struct rig *rig, size_t size)
{
    const struct ddpi_cu_mem_prop prop = {
        .type = DDPI_CU_MEM_ALLOCATION_TYPE_PINNED,
        .requested_handle_types = DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = DDPI_CU_MEM_LOCATION_TYPE_DEVICE, .id = rig->ordinal}};
    ddpi_cu_mem_handle handle;
    CU(rig->cuda.mem_create(&handle, size, &prop, 0));
    return handle;
}

/* Mapped at @address for one operation, whose result must be right. */
static void use_mapped(struct rig *rig, ddpi_cu_deviceptr address, size_t size,
                       ddpi_cu_mem_handle handle, int32_t value)
{
    const struct ddpi_cu_mem_access access = {
        .location = {.type = DDPI_CU_MEM_LOCATION_TYPE_DEVICE, .id = rig->ordinal},
        .flags = DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    void *buffer = (void *)(uintptr_t)address;
    value += (int32_t)rig->rank;
    CU(rig->cuda.mem_map(address, size, 0, handle, 0));
    CU(rig->cuda.mem_set_access(address, size, &access, 1));
    CU(rig->cuda.memcpy_htod_async(address, &value, sizeof value, rig->stream));
    CHECK_OK(ddp_all_reduce(rig->device, buffer, buffer, 1, DDP_INT32, DDP_SUM, rig->stream, err));
    int32_t sum;
    CU(rig->cuda.memcpy_dtoh_async(&sum, address, sizeof sum, rig->stream));
    rig_synchronize(rig);
    CHECK(sum == 2 * value - 2 * (int32_t)rig->rank + 1);
    CHECK_OK(ddp_barrier(rig->host, NULL, err));
    CU(rig->cuda.mem_unmap(address, size));
}

/* Two buffers in turn at one address, as an allocator with a cache of physical memory does it. */
static void swap_mappings(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { SIZE = 2 * MIB };
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    ddpi_cu_deviceptr address;
    CU(rig.cuda.mem_address_reserve(&address, SIZE, 0, 0, 0));
    ddpi_cu_mem_handle handles[] = {create_physical(&rig, SIZE), create_physical(&rig, SIZE)};
    for (int32_t turn = 0; turn < 5; turn++)
        use_mapped(&rig, address, SIZE, handles[turn % 2], turn);
    for (unsigned i = 0; i < 2; i++)
        CU(rig.cuda.mem_release(handles[i]));
    CU(rig.cuda.mem_address_free(address, SIZE));
    rig_close(&rig);
}

START_TEST(mappings_that_come_back)
{
    struct world world = {.nranks = 2,
                          .algorithm = _i == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, swap_mappings);
    world_close(&world);
}
END_TEST

/* ---- one process, a thread for each rank ---- */

struct seat {
    pthread_t thread;
    int ordinal;
    ddp_comm *device, *host;
};

/* They destroy their communicators each at its own time. */
static void *sit(void *arg)
{
    struct seat *seat = arg;
    struct rig rig;
    rig_use(&rig, seat->ordinal, seat->device, seat->host);
    rig.keeps = true;
    any_calls(&rig);
    struct problem of = {
        .dtype = DDP_FLOAT64, .op = DDP_SUM, .count = 3 * MIB / sizeof(double) + 1};
    rig_reduce_scatter(&rig, &of);
    rig_all_reduce(&rig, &of);
    CHECK_OK(ddp_barrier(rig.device, rig.stream, err));
    rig_synchronize(&rig);
    CHECK_OK(ddp_barrier(rig.host, NULL, err));
    ddp_comm_destroy(rig.device);
    rig_close(&rig);
    return NULL;
}

static void run_threads(uint32_t count, const int *devices, const char *device_way,
                        const char *host_way)
{
    enum { MOST = 4 };
    ddp_comm *on_device[MOST], *on_host[MOST];
    struct seat seats[MOST];
    setenv("DDP_ALGORITHM", host_way, 1);
    CHECK_OK(ddp_comm_init_local(count, NULL, on_host, err));
    setenv("DDP_ALGORITHM", device_way, 1);
    CHECK_OK(ddp_comm_init_local(count, devices, on_device, err));
    for (uint32_t i = 0; i < count; i++) {
        seats[i] = (struct seat){.ordinal = devices != NULL ? devices[i] : (int)i,
                                 .device = on_device[i],
                                 .host = on_host[i]};
        CHECK(pthread_create(&seats[i].thread, NULL, sit, &seats[i]) == 0);
    }
    for (uint32_t i = 0; i < count; i++)
        CHECK(pthread_join(seats[i].thread, NULL) == 0);
}

START_TEST(threads_on_one_device)
{
    static const int devices[] = {0, 0, 0};
    bool ring = _i == 1;
    run_threads(3, devices, ring ? "ring" : "auto", ring ? "ring" : "direct");
}
END_TEST

START_TEST(a_thread_for_each_device)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    setenv("DDP_HOST_CUDA_DEVICES", "4", 1);
    run_threads(4, NULL, _i == 0 ? "ring" : "auto", _i == 0 ? "ring" : "direct");
}
END_TEST

START_TEST(a_world_of_one)
{
    setenv("DDP_ALGORITHM", "auto", 1);
    run_threads(1, NULL, "auto", "ring");
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device paths");
    TCase *paths = tcase_create("paths");
    add_sample(paths, every_place_gives_the_same_bits, 0, PLACES);
    tcase_add_loop_test(paths, many_slices, 0, 2);
    add_worlds(paths, bytes_are_counted, 0, 6);
    tcase_add_loop_test(paths, buffers_that_are_not_there, 0, 2);
    add_worlds(paths, buffers_that_come_and_go, 0, 4);
    tcase_add_loop_test(paths, mappings_that_come_back, 0, 2);
    tcase_add_loop_test(paths, threads_on_one_device, 0, 2);
    tcase_add_loop_test(paths, a_thread_for_each_device, 0, 2);
    tcase_add_test(paths, a_world_of_one);
    suite_add_tcase(suite, paths);
    return suite;
}
