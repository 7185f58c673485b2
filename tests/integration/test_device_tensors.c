/*
 * test_device_tensors.c - named tensors in memory of a GPU, in any order: each kind, type and
 * factor gives the bits of host memory, by as many operations; joins, uneven all-gathers, mistakes,
 * deaths.
 *
 * Inputs are uploaded on the stream that tensors name, so what is read too early is seen.
 */
#include "check_main.h"
#include "rig.h"

#include <ddprun/ddp_tensors.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 3, COUNT = 3001, NAME = 32 };

/* ---- the same tensors on both sides ---- */

static const struct tensor {
    ddp_kind kind;
    size_t count;
    ddp_dtype dtype;
    ddp_reduce_op op;
    double prescale, postscale;
    bool in_place;
} tensors_of_a_step[] = {
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT32, DDP_SUM, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, 1, DDP_FLOAT32, DDP_SUM, 0, 0, false},
    {DDP_KIND_ALL_REDUCE, 70001, DDP_FLOAT32, DDP_SUM, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT32, DDP_AVERAGE, 1.0 / 3, 3, false},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT32, DDP_AVERAGE, 1.0 / 3, 3, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_BFLOAT16, DDP_AVERAGE, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT64, DDP_SUM, 0.1, 0, false},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT8_E4M3, DDP_AVERAGE, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_COMPLEX64, DDP_AVERAGE, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_INT32, DDP_AVERAGE, 0, 0, true},
    {DDP_KIND_ALL_REDUCE, COUNT, DDP_INT64, DDP_MAX, 0, 0, false},
    {DDP_KIND_ALL_REDUCE, 0, DDP_FLOAT32, DDP_SUM, 0, 0, true},
    {DDP_KIND_ALL_GATHER, COUNT, DDP_INT16, DDP_SUM, 0, 0, false},
    {DDP_KIND_BROADCAST, COUNT, DDP_BYTE, DDP_SUM, 0, 0, true},
    {DDP_KIND_ALL_TO_ALL, 100, DDP_FLOAT32, DDP_SUM, 0, 0, false},
};

enum { TENSORS = sizeof tensors_of_a_step / sizeof *tensors_of_a_step };

static ddp_tensors *create(ddp_comm *comm, struct ddp_tensors_options options)
{
    ddp_tensors *tensors;
    options.size = sizeof options;
    CHECK_OK(ddp_tensors_create(comm, &options, &tensors, err));
    return tensors;
}

static struct ddp_tensor_op op_of(const struct tensor *tensor, const char *name, const void *send,
                                  void *recv, void *stream)
{
    return (struct ddp_tensor_op){.size = sizeof(struct ddp_tensor_op),
                                  .name = name,
                                  .kind = tensor->kind,
                                  .send = send,
                                  .recv = recv,
                                  .count = tensor->count,
                                  .dtype = tensor->dtype,
                                  .op = tensor->op,
                                  .prescale = tensor->prescale,
                                  .postscale = tensor->postscale,
                                  .stream = stream};
}

static ddp_tensor *enqueue(ddp_tensors *tensors, struct ddp_tensor_op op)
{
    ddp_tensor *handle;
    CHECK_OK(ddp_tensors_enqueue(tensors, &op, &handle, err));
    return handle;
}

static void finish(ddp_tensor *handle)
{
    CHECK_OK(ddp_tensors_wait(handle, 0, NULL, err));
    ddp_tensors_release(handle);
}

static void finish_with(ddp_tensor *handle, ddp_status status, const char *text)
{
    struct ddp_error error = {0};
    world_expect(ddp_tensors_wait(handle, 0, NULL, &error), &error, status, text);
    ddp_tensors_release(handle);
}

static uint64_t operations(ddp_tensors *tensors)
{
    struct ddp_tensors_stats stats = {.size = sizeof stats};
    CHECK(ddp_tensors_get_stats(tensors, &stats) == DDP_OK);
    return stats.operations;
}

struct side {
    ddp_tensors *tensors;
    ddp_tensor *handles[TENSORS];
};

/* All-reduces of a step are one group, so that both sides fuse what can be. */
static void enqueue_step(struct side *side, struct twin *sends, struct twin *recvs, void *stream)
{
    static char names[TENSORS][NAME];
    struct ddp_tensor_op ops[TENSORS];
    uint32_t grouped = 0;
    for (size_t i = 0; i < TENSORS; i++) {
        const struct tensor *tensor = &tensors_of_a_step[i];
        struct twin *to = tensor->in_place ? &sends[i] : &recvs[i];
        snprintf(names[i], NAME, "layer%zu.weight", i);
        ops[i] = op_of(tensor, names[i], stream != NULL ? twin_device(&sends[i]) : sends[i].host,
                       stream != NULL ? twin_device(to) : to->host, stream);
        grouped += tensor->kind == DDP_KIND_ALL_REDUCE;
    }
    CHECK_OK(ddp_tensors_enqueue_group(side->tensors, ops, grouped, side->handles, err));
    for (size_t i = TENSORS; i-- > grouped;)
        side->handles[i] = enqueue(side->tensors, ops[i]);
}

static void compare_step(struct rig *rig, int step, struct side *device, struct side *host)
{
    struct twin sends[TENSORS], recvs[TENSORS];
    for (size_t i = 0; i < TENSORS; i++) {
        const struct tensor *tensor = &tensors_of_a_step[i];
        bool parts = tensor->kind == DDP_KIND_ALL_TO_ALL || tensor->kind == DDP_KIND_ALL_GATHER;
        size_t count = tensor->count * (parts ? rig->nranks : 1);
        sends[i] = rig_input(rig, count, tensor->dtype);
        recvs[i] = rig_output(rig, tensor->in_place ? 0 : count * ddp_dtype_size(tensor->dtype));
    }
    enqueue_step(device, sends, recvs, rig->stream);
    enqueue_step(host, sends, recvs, NULL);
    for (size_t i = 0; i < TENSORS; i++) {
        finish(device->handles[i]);
        finish(host->handles[i]);
    }
    /* A tensor without elements is nowhere: it is not fused with those on a GPU. */
    CHECK(operations(device->tensors) - operations(host->tensors) == (uint64_t)step + 1);
    for (size_t i = 0; i < TENSORS; i++) {
        rig_compare(rig, &sends[i], tensors_of_a_step[i].dtype);
        rig_compare(rig, &recvs[i], tensors_of_a_step[i].dtype);
    }
}

static void both_sides(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    struct side device = {create(comm, (struct ddp_tensors_options){0}), {NULL}};
    struct side host = {create(rig.host, (struct ddp_tensors_options){0}), {NULL}};
    size_t free_bytes = 0;
    for (int step = 0; step < STEPS; step++) {
        compare_step(&rig, step, &device, &host);
        /* A GPU's driver counts what other programs have, too. */
        CHECK(step < 2 || world->nranks > 1 || !rig_driver_is_host() ||
              rig_free_memory(&rig) == free_bytes);
        free_bytes = rig_free_memory(&rig);
    }
    ddp_tensors_destroy(device.tensors);
    ddp_tensors_destroy(host.tensors);
    rig_close(&rig);
}

/* _i: the number of ranks; three are on three machines. */
START_TEST(tensors_on_the_device_have_the_bits_of_the_host)
{
    struct world world = {.nranks = (uint32_t)_i,
                          .tcp = _i == 3,
                          .algorithm = _i == 3 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO,
                          .name = "device-tensors"};
    world_open(&world);
    world_run(&world, both_sides);
    world_close(&world);
}
END_TEST

/* ---- joins ---- */

static void fill(struct rig *rig, void *device, size_t count, float value)
{
    float *host = malloc(count * sizeof *host);
    CHECK(host != NULL);
    for (size_t i = 0; i < count; i++)
        host[i] = value;
    CU(rig->cuda.memcpy_htod_async((uintptr_t)device, host, count * sizeof *host, rig->stream));
    CU(rig->cuda.stream_synchronize(rig->stream));
    free(host);
}

static float value_at(struct rig *rig, const void *device, size_t i)
{
    float value;
    CU(rig->cuda.memcpy_dtoh_async(&value, (uintptr_t)device + i * sizeof value, sizeof value,
                                   rig->stream));
    CU(rig->cuda.stream_synchronize(rig->stream));
    return value;
}

static const struct tensor sum = {DDP_KIND_ALL_REDUCE, COUNT, DDP_FLOAT32, DDP_SUM, 0, 0, true};

static void sum_ones(struct rig *rig, ddp_tensors *tensors, const char *name, void *device,
                     float expected)
{
    fill(rig, device, COUNT, 1);
    finish(enqueue(tensors, op_of(&sum, name, device, device, rig->stream)));
    CHECK(value_at(rig, device, 0) == expected && value_at(rig, device, COUNT - 1) == expected);
}

/* A rank that knows no GPU yet has nowhere to take zeros from. */
static void join(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    uint32_t last;
    rig_open(&rig, world, rank, comm);
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    void *device = rig_alloc(&rig, COUNT * sizeof(float));
    float nranks = (float)world->nranks;
    if (rank > 0)
        finish_with(enqueue(tensors, op_of(&sum, "x", device, device, rig.stream)), DDP_E_MISMATCH,
                    "rank 0 has joined before it had a tensor on a GPU");
    CHECK_OK(ddp_tensors_join(tensors, &last, err));
    for (int step = 0; step < 2; step++) /* negotiated, then remembered */
        sum_ones(&rig, tensors, "x", device, nranks);
    for (int step = 0; step < 2 && rank > 0; step++) {
        sum_ones(&rig, tensors, "x", device, nranks - 1);
        sum_ones(&rig, tensors, "y", device, nranks - 1);
    }
    CHECK_OK(ddp_tensors_join(tensors, &last, err));
    CHECK(last > 0);
    sum_ones(&rig, tensors, "y", device, nranks);
    ddp_tensors_destroy(tensors);
    rig_free(&rig, device);
    rig_close(&rig);
}

START_TEST(joined_ranks_give_zeros_on_their_gpu)
{
    struct world world = {.nranks = 3, .name = "device-join"};
    world_open(&world);
    world_run(&world, join);
    world_close(&world);
}
END_TEST

/* ---- uneven all-gathers ---- */

static size_t given_by(uint32_t rank, int step)
{
    return rank == 1 && step == 1 ? 0 : (size_t)rank * 1000 + 5;
}

static struct ddp_tensor_op gather_of(const char *name, const void *send, size_t count,
                                      void *stream)
{
    const struct tensor gather = {DDP_KIND_ALL_GATHER, count, DDP_FLOAT32, DDP_SUM, 0, 0, false};
    struct ddp_tensor_op op = op_of(&gather, name, send, NULL, stream);
    op.uneven = 1;
    return op;
}

static void check_gathered(struct rig *rig, ddp_tensor *handle, int step, bool on_device)
{
    const void *elements;
    const size_t *counts;
    size_t at = 0;
    CHECK_OK(ddp_tensors_wait(handle, 0, NULL, err));
    CHECK_OK(ddp_tensors_gathered(handle, &elements, &counts, err));
    for (uint32_t rank = 0; rank < rig->nranks; rank++) {
        CHECK(counts[rank] == given_by(rank, step));
        for (size_t i = 0; i < counts[rank]; i += counts[rank] - 1, at += counts[rank] - 1) {
            const float *element = (const float *)elements + at;
            CHECK((on_device ? value_at(rig, element, 0) : *element) == (float)rank + 1);
        }
        at += counts[rank] > 0 ? 2 - counts[rank] : 0;
    }
    ddp_tensors_release(handle);
}

/* "mixed" is on the host of odd ranks; rank 1 gives nothing in one step, from nowhere. */
static void gather(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    size_t most = given_by(WORLD_MAX, 0);
    void *device = rig_alloc(&rig, most * sizeof(float));
    float *host = malloc(most * sizeof *host);
    CHECK(host != NULL);
    for (size_t i = 0; i < most; i++)
        host[i] = (float)rank + 1;
    fill(&rig, device, most, (float)rank + 1);
    for (int step = 0; step < STEPS; step++) {
        size_t count = given_by(rank, step);
        struct ddp_tensor_op ops[] = {
            gather_of("device", device, count, rig.stream),
            gather_of("mixed", rank % 2 == 1 ? (void *)host : device, count, rig.stream),
            gather_of("host", count > 0 ? host : NULL, count, NULL)};
        ddp_tensor *handles[3];
        CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, 3, handles, err));
        check_gathered(&rig, handles[0], step, true);
        check_gathered(&rig, handles[1], step, rank % 2 == 0);
        check_gathered(&rig, handles[2], step, false);
    }
    ddp_tensors_destroy(tensors);
    free(host);
    rig_free(&rig, device);
    rig_close(&rig);
}

START_TEST(uneven_parts_are_gathered_where_they_are)
{
    struct world world = {.nranks = 3, .name = "device-uneven"};
    world_open(&world);
    world_run(&world, gather);
    world_close(&world);
}
END_TEST

/* ---- mistakes ---- */

static void refuse(ddp_tensors *tensors, const void *send, void *recv, void *stream,
                   const char *text)
{
    struct ddp_tensor_op op = op_of(&sum, "fc.weight", send, recv, stream);
    struct ddp_error error = {0};
    ddp_tensor *handle;
    world_expect(ddp_tensors_enqueue(tensors, &op, &handle, &error), &error, DDP_E_INVALID, text);
}

static void pass_another_gpu(struct rig *rig, ddp_tensors *tensors)
{
    struct rig other;
    if (rig_has_one_gpu(rig))
        return;
    rig_use(&other, rig->ordinal + 1, NULL, NULL);
    void *device = rig_alloc(&other, COUNT * sizeof(float));
    refuse(tensors, device, device, other.stream, "use an object for each");
    rig_free(&other, device);
    rig_close(&other);
}

static void misuse(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    char text[DDP_ERROR_TEXT];
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0}); /* before the driver */
    rig_open(&rig, world, rank, comm);
    uint8_t *device = rig_alloc(&rig, COUNT * sizeof(float) + 16);
    float *host = calloc(COUNT, sizeof *host);
    CHECK(host != NULL);
    snprintf(text, sizeof text,
             "tensor \"fc.weight\": the send buffer at %p is memory of a GPU, and the receive "
             "buffer at %p host memory",
             (void *)device, (void *)host);
    refuse(tensors, device, host, rig.stream, text);
    refuse(tensors, host, device, rig.stream, "is host memory, and the receive buffer at");
    refuse(tensors, device + 2, device + 2, rig.stream, "not aligned to its elements of 4 bytes");
    pass_another_gpu(&rig, tensors);
    finish_with(enqueue(tensors, op_of(&sum, "mixed", rank == 0 ? (void *)host : device,
                                       rank == 0 ? (void *)host : device, rig.stream)),
                DDP_E_MISMATCH, "tensor \"mixed\": the memory is ");
    sum_ones(&rig, tensors, "works", device, 2);
    sum_ones(&rig, tensors, "works", device, 2);
    finish_with(enqueue(tensors, op_of(&sum, "works", rank == 1 ? (void *)host : device,
                                       rank == 1 ? (void *)host : device, rig.stream)),
                DDP_E_MISMATCH, "tensor \"works\": the memory is "); /* although it is remembered */
    sum_ones(&rig, tensors, "works", device, 2);
    ddp_tensors_destroy(tensors);
    free(host);
    rig_free(&rig, device);
    rig_close(&rig);
}

START_TEST(mistakes_have_sentences)
{
    struct world world = {.nranks = 2, .name = "device-tensor-misuse"};
    setenv("DDP_HOST_CUDA_DEVICES", "2", 1);
    world_open(&world);
    world_run(&world, misuse);
    world_close(&world);
}
END_TEST

/* ---- deaths ---- */

enum { VICTIM = 1 };

static void die(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    void *device = rig_alloc(&rig, COUNT * sizeof(float));
    sum_ones(&rig, tensors, "x", device, (float)world->nranks);
    world_step(world, rank);
    if (rank == VICTIM)
        for (;;)
            pause();
    finish_with(enqueue(tensors, op_of(&sum, "x", device, device, rig.stream)), DDP_E_PEER_DEAD,
                "rank 1");
    ddp_tensors_destroy(tensors);
    rig_free(&rig, device);
    rig_close(&rig);
}

START_TEST(a_death_is_named)
{
    struct world world = {.nranks = 3, .name = "device-tensor-death"};
    world_open(&world);
    world_start(&world, die);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        world_await_steps(&world, rank, 1);
    world_kill_rank(&world, VICTIM);
    world_join(&world);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    (void)rig_driver_is_host(); /* tests and their ranks inherit the answer */
    Suite *suite = suite_create("device tensors");
    TCase *all = tcase_create("tensors");
    tcase_add_loop_test(all, tensors_on_the_device_have_the_bits_of_the_host, 1, 4);
    tcase_add_test(all, joined_ranks_give_zeros_on_their_gpu);
    tcase_add_test(all, uneven_parts_are_gathered_where_they_are);
    tcase_add_test(all, mistakes_have_sentences);
    tcase_add_test(all, a_death_is_named);
    suite_add_tcase(suite, all);
    return suite;
}
