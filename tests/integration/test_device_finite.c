/*
 * test_device_finite.c - all_reduce and reduce_scatter on memory of a GPU that tell whether their
 * result has an inf or a NaN: by kernels of one rank, round the ring, through the host, as lists,
 * alone; with one element that is not finite on one rank, and with none. The result has the same
 * bits with and without the check.
 */
#include "check_main.h"
#include "elements.h"
#include "rig.h"

#include <math.h>
#include <string.h>

enum { SMALL = 67, LARGE = 300 * 1000 + 5, UNSET = 7, PARTS = 3 };

static const struct way {
    ddp_algorithm algorithm;
    bool tcp;
} ways[] = {
    {.algorithm = DDP_ALGORITHM_AUTO},
    {.algorithm = DDP_ALGORITHM_RING},
    {.algorithm = DDP_ALGORITHM_RING, .tcp = true},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* A buffer on the device, and what the host knows of it. */
struct mirror {
    uint8_t *host;
    void *device;
    size_t len;
};

static struct mirror make_mirror(struct rig *rig, size_t len)
{
    struct mirror mirror = {.host = calloc(1, len), .device = rig_alloc(rig, len), .len = len};
    CHECK(mirror.host != NULL);
    return mirror;
}

static void drop_mirror(struct rig *rig, struct mirror *mirror)
{
    free(mirror->host);
    rig_free(rig, mirror->device);
}

static void upload(struct rig *rig, const struct mirror *mirror)
{
    CU(rig->cuda.memcpy_htod_async((uintptr_t)mirror->device, mirror->host, mirror->len,
                                   rig->stream));
    CU(rig->cuda.stream_synchronize(rig->stream));
}

static void download(struct rig *rig, const struct mirror *mirror)
{
    CU(rig->cuda.memcpy_dtoh_async(mirror->host, (uintptr_t)mirror->device, mirror->len,
                                   rig->stream));
    CU(rig->cuda.stream_synchronize(rig->stream));
}

static void put(const struct mirror *mirror, size_t i, ddp_dtype dtype, double value)
{
    element_bits bits = elements_of_double(dtype, value);
    memcpy(mirror->host + i * ddp_dtype_size(dtype), &bits, ddp_dtype_size(dtype));
}

/* Small numbers that differ from rank to rank. */
static void fill(const struct mirror *mirror, size_t count, ddp_dtype dtype, uint32_t rank)
{
    static const double values[] = {0.5, -1, 2, 0.25, -0.5, 1, 0};
    for (size_t i = 0; i < count; i++)
        put(mirror, i, dtype, values[(i + rank) % 7]);
}

static void run_request(ddp_comm *comm, const struct ddp_operation *operation)
{
    ddp_request *request;
    CHECK_OK(ddp_start(comm, operation, &request, err));
    CHECK_OK(ddp_request_wait(request, 0, NULL, err));
    ddp_request_free(request);
}

/* ---- one buffer ---- */

struct buffers {
    struct mirror send, plain, checked;
};

/* Without and with a check. Returns the answer. */
static uint32_t run_twice(struct rig *rig, const struct buffers *buffers,
                          struct ddp_operation operation, size_t recv_count)
{
    uint32_t non_finite = UNSET;
    upload(rig, &buffers->send);
    operation.size = sizeof operation;
    operation.stream = rig->stream;
    operation.factor = 0.5;
    operation.send = buffers->send.device;
    operation.recv = buffers->plain.device;
    run_request(rig->device, &operation);
    operation.recv = buffers->checked.device;
    operation.non_finite = &non_finite;
    run_request(rig->device, &operation);
    download(rig, &buffers->plain);
    download(rig, &buffers->checked);
    CHECK(elements_differ(operation.dtype, buffers->plain.host, buffers->checked.host,
                          recv_count) == recv_count);
    CHECK(non_finite == !elements_are_finite(buffers->checked.host, recv_count, operation.dtype));
    return non_finite;
}

static void reduce_all(struct rig *rig, ddp_dtype dtype, ddp_reduce_op op, size_t count)
{
    static const double values[] = {INFINITY, -INFINITY, NAN};
    const struct ddp_operation operation = {
        .kind = DDP_KIND_ALL_REDUCE, .dtype = dtype, .op = op, .count = count};
    size_t len = count * ddp_dtype_size(dtype);
    struct buffers buffers = {make_mirror(rig, len), make_mirror(rig, len), make_mirror(rig, len)};
    fill(&buffers.send, count, dtype, rig->rank);
    CHECK(run_twice(rig, &buffers, operation, count) == 0);
    for (size_t turn = 0; turn < 3; turn++) {
        size_t at = turn * (count - 1) / 2;
        fill(&buffers.send, count, dtype, rig->rank);
        if (rig->rank == turn % rig->nranks)
            put(&buffers.send, at, dtype, op == DDP_MAX ? NAN : values[turn]);
        CHECK(run_twice(rig, &buffers, operation, count) == 1);
    }
    drop_mirror(rig, &buffers.send);
    drop_mirror(rig, &buffers.plain);
    drop_mirror(rig, &buffers.checked);
}

/* Only the rank that gets the element is told of it. */
static void reduce_parts(struct rig *rig, ddp_dtype dtype, ddp_reduce_op op, size_t count)
{
    const struct ddp_operation operation = {
        .kind = DDP_KIND_REDUCE_SCATTER, .dtype = dtype, .op = op, .count = count};
    size_t len = count * ddp_dtype_size(dtype), all = count * rig->nranks;
    struct buffers buffers = {make_mirror(rig, len * rig->nranks), make_mirror(rig, len),
                              make_mirror(rig, len)};
    fill(&buffers.send, all, dtype, rig->rank);
    CHECK(run_twice(rig, &buffers, operation, count) == 0);
    for (uint32_t target = 0; target < rig->nranks; target++) {
        fill(&buffers.send, all, dtype, rig->rank);
        if (rig->rank == (target + 1) % rig->nranks)
            put(&buffers.send, target * count + count / 3, dtype, NAN);
        CHECK(run_twice(rig, &buffers, operation, count) == (rig->rank == target));
    }
    drop_mirror(rig, &buffers.send);
    drop_mirror(rig, &buffers.plain);
    drop_mirror(rig, &buffers.checked);
}

/* The largest halves on two ranks: each is finite, their sum is not. */
static void overflow(struct rig *rig)
{
    const struct ddp_operation operation = {
        .kind = DDP_KIND_ALL_REDUCE, .dtype = DDP_FLOAT16, .op = DDP_SUM, .count = SMALL};
    struct buffers buffers = {make_mirror(rig, SMALL * 2UL), make_mirror(rig, SMALL * 2UL),
                              make_mirror(rig, SMALL * 2UL)};
    if (rig->rank + 2 >= rig->nranks)
        put(&buffers.send, SMALL / 2, DDP_FLOAT16, 65504);
    CHECK(run_twice(rig, &buffers, operation, SMALL) == (rig->nranks > 1));
    drop_mirror(rig, &buffers.send);
    drop_mirror(rig, &buffers.plain);
    drop_mirror(rig, &buffers.checked);
}

/* ---- lists ---- */

static void reduce_lists(struct rig *rig)
{
    static const size_t counts[PARTS] = {1, LARGE, SMALL};
    struct mirror parts[PARTS];
    struct ddp_buffer list[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = make_mirror(rig, counts[i] * sizeof(float));
        list[i] = (struct ddp_buffer){parts[i].device, parts[i].device, counts[i]};
    }
    for (size_t guilty = 0; guilty <= PARTS; guilty++) { /* PARTS: none is */
        uint32_t non_finite = UNSET;
        const struct ddp_operation operation = {.size = sizeof operation,
                                                .kind = DDP_KIND_ALL_REDUCE,
                                                .dtype = DDP_FLOAT32,
                                                .op = DDP_AVERAGE,
                                                .stream = rig->stream,
                                                .buffers = list,
                                                .nbuffers = PARTS,
                                                .non_finite = &non_finite};
        for (size_t i = 0; i < PARTS; i++) {
            fill(&parts[i], counts[i], DDP_FLOAT32, rig->rank);
            if (i == guilty && rig->rank == i % rig->nranks)
                put(&parts[i], counts[i] / 2, DDP_FLOAT32, NAN);
            upload(rig, &parts[i]);
        }
        run_request(rig->device, &operation);
        CHECK(non_finite == (guilty < PARTS));
    }
    for (size_t i = 0; i < PARTS; i++)
        drop_mirror(rig, &parts[i]);
}

/* ---- a world ---- */

static void check_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const ddp_reduce_op ops[] = {DDP_SUM, DDP_AVERAGE, DDP_MAX, DDP_PREMUL_SUM};
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    rig.keeps = true; /* until all ranks are done */
    for (ddp_dtype dtype = 0; (int)dtype < DDPI_DTYPES; dtype++)
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
            if (!elements_reduce(dtype, DDP_PREMUL_SUM) || !elements_reduce(dtype, ops[i]))
                continue;
            reduce_all(&rig, dtype, ops[i], SMALL);
            reduce_parts(&rig, dtype, ops[i], SMALL);
        }
    reduce_all(&rig, DDP_FLOAT32, DDP_SUM, LARGE);
    reduce_parts(&rig, DDP_BFLOAT16, DDP_AVERAGE, LARGE);
    overflow(&rig);
    reduce_lists(&rig);
    rig_synchronize(&rig);
    CHECK(world->nranks == rig.nranks);
}

START_TEST(results_on_the_device_are_checked)
{
    const struct way *way = &ways[_i % WAYS];
    struct world world = {.nranks = (uint32_t)(_i / WAYS) + 1,
                          .algorithm = way->algorithm,
                          .tcp = way->tcp,
                          .name = "device-finite"};
    world_open(&world);
    world_run(&world, check_all);
    world_close(&world);
}
END_TEST

/* The last rank does not ask for a check. */
static void not_asked_by_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct ddp_error error;
    ddp_request *request;
    uint32_t non_finite = UNSET;
    rig_use(&rig, (int)rank, comm, NULL);
    void *buffer = rig_alloc(&rig, SMALL * sizeof(float));
    CU(rig.cuda.memset_d8_async((uintptr_t)buffer, 0, SMALL * sizeof(float), rig.stream));
    CHECK_OK(ddp_all_reduce(comm, buffer, buffer, SMALL, DDP_FLOAT32, DDP_SUM, rig.stream, err));
    CU(rig.cuda.stream_synchronize(rig.stream));
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = buffer,
                                            .recv = buffer,
                                            .count = SMALL,
                                            .dtype = DDP_FLOAT32,
                                            .op = DDP_SUM,
                                            .stream = rig.stream,
                                            .non_finite =
                                                rank + 1 < world->nranks ? &non_finite : NULL};
    CHECK_OK(ddp_start(comm, &operation, &request, err));
    CHECK(ddp_request_wait(request, 0, NULL, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, " with a finite check") != NULL);
    CHECK(non_finite == UNSET);
    ddp_request_free(request);
}

START_TEST(all_ranks_must_ask)
{
    struct world world = {.nranks = 2, .algorithm = ways[_i].algorithm, .name = "device-unasked"};
    world_open(&world);
    world_run(&world, not_asked_by_all);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device_finite");
    TCase *tests = tcase_create("device_finite");
    add_sample(tests, results_on_the_device_are_checked, 0, 4 * WAYS);
    tcase_add_loop_test(tests, all_ranks_must_ask, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
