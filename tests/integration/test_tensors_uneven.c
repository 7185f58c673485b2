/*
 * test_tensors_uneven.c - all-gathers of named tensors to which each rank gives a number of
 * elements of its own: results, what is fused and remembered, joins, sets, and what is refused.
 */
#include "check_main.h"
#include "named_tensors.h"

#include <inttypes.h>
#include <string.h>

enum { TENSORS = 12, STEPS = 6, COUNT_MOST = 64, NAME = 16 };

static struct ddp_tensor_op gather_of(const char *name, const void *send, size_t count,
                                      ddp_dtype dtype)
{
    return (struct ddp_tensor_op){.size = sizeof(struct ddp_tensor_op),
                                  .name = name,
                                  .kind = DDP_KIND_ALL_GATHER,
                                  .send = send,
                                  .count = count,
                                  .dtype = dtype,
                                  .uneven = 1};
}

static const void *result_of(ddp_tensor *handle, const size_t **ret_counts)
{
    const void *elements;
    CHECK_OK(ddp_tensors_wait(handle, 0, NULL, err));
    CHECK_OK(ddp_tensors_gathered(handle, &elements, ret_counts, err));
    CHECK(elements != NULL);
    return elements;
}

/* @other, if not NULL, is as good as @text. */
static void fail_with_either(ddp_tensor *handle, ddp_status status, const char *text,
                             const char *other)
{
    const void *elements = handle;
    const size_t *counts = NULL;
    struct ddp_error first = {0}, second = {0};
    CHECK(ddp_tensors_wait(handle, 0, NULL, &first) == status);
    CHECK(ddp_tensors_gathered(handle, &elements, &counts, &second) == status);
    CHECK(strcmp(first.msg, second.msg) == 0 && elements == handle && counts == NULL);
    bool expected =
        strstr(first.msg, text) != NULL || (other != NULL && strstr(first.msg, other) != NULL);
    if (!expected)
        fprintf(stderr, "%s, expected \"%s\"\n", first.msg, text);
    CHECK(expected);
    ddp_tensors_release(handle);
}

static void fail_with(ddp_tensor *handle, ddp_status status, const char *text)
{
    fail_with_either(handle, status, text, NULL);
}

/* ---- results ---- */

/* How many elements @rank gives; tensor 3 has none of any rank, and counts change with the step. */
static size_t count_of(uint32_t rank, uint32_t step, uint32_t tensor)
{
    return tensor == 3 ? 0 : (rank * 7 + tensor * 5 + step) * (tensor + rank) % COUNT_MOST;
}

static uint8_t value_of(uint32_t rank, uint32_t step, uint32_t tensor, size_t byte)
{
    return (uint8_t)(rank * 61 + step * 17 + tensor * 5 + byte);
}

static ddp_dtype dtype_of(uint32_t tensor)
{
    static const ddp_dtype dtypes[] = {DDP_FLOAT32, DDP_FLOAT32, DDP_UINT8, DDP_FLOAT64};
    return dtypes[tensor % 4];
}

static void check_result(const struct world *world, ddp_tensor *handle, uint32_t step,
                         uint32_t tensor)
{
    const size_t *counts;
    const uint8_t *bytes = result_of(handle, &counts);
    size_t size = ddp_dtype_size(dtype_of(tensor));
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        CHECK(counts[rank] == count_of(rank, step, tensor));
        for (size_t i = 0; i < counts[rank] * size; i++)
            CHECK(*bytes++ == value_of(rank, step, tensor, i));
    }
    ddp_tensors_release(handle);
}

/* Stages: all fused, some, none, not remembered. */
static void gather(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_tensors_options options = {.fusion_bytes = world->stage == 1 ? 700 : 0,
                                          .no_fusion = world->stage == 2,
                                          .no_cache = world->stage == 3};
    static uint8_t send[TENSORS][COUNT_MOST * 8];
    char names[TENSORS][NAME];
    ddp_tensors *tensors = create(comm, options);
    uint64_t negotiations = 0;
    for (uint32_t step = 0; step < STEPS; step++) {
        ddp_tensor *handles[TENSORS];
        for (uint32_t k = 0; k < TENSORS; k++) {
            uint32_t i = (k * 5 + rank) % TENSORS; /* ranks have different orders */
            for (size_t byte = 0; byte < sizeof send[i]; byte++)
                send[i][byte] = value_of(rank, step, i, byte);
            snprintf(names[i], NAME, "gather%" PRIu32, i);
            size_t count = count_of(rank, step, i);
            handles[i] = enqueue(
                tensors, gather_of(names[i], count > 0 ? send[i] : NULL, count, dtype_of(i)));
        }
        for (uint32_t i = 0; i < TENSORS; i++)
            check_result(world, handles[i], step, i);
        struct ddp_tensors_stats stats = stats_of(tensors);
        if (step == 0 || step == STEPS - 1) /* another rank may have told that it ends */
            negotiations = stats.negotiations;
        CHECK(stats.tensors == (step + 1) * TENSORS);
        CHECK(stats.remembered == (world->stage == 3 ? 0 : step * TENSORS));
        CHECK(world->stage == 3 || stats.negotiations == negotiations);
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(each_rank_gives_what_it_has)
{
    struct world world = {
        .nranks = (uint32_t)_i / 4 + 1, .stage = (uint32_t)_i % 4, .name = "give"};
    world.tcp = _i % 4 == 1;
    world_open(&world);
    world_run(&world, gather);
    world_close(&world);
}
END_TEST

/* ---- fusion ---- */

enum { GROUP = 4 };

/* Groups are ready together, so what is one operation does not depend on cycles. */
static void fuse(struct world *world, uint32_t rank, ddp_comm *comm)
{
    /* 20 bytes of each tensor of all ranks */
    ddp_tensors *tensors =
        create(comm, (struct ddp_tensors_options){.fusion_bytes = world->stage == 0 ? 80 : 40});
    static const char *const names[GROUP] = {"a", "b", "c", "d"};
    uint8_t send[20];
    memset(send, (int)rank + 1, sizeof send);
    for (uint64_t step = 1; step <= 4; step++) {
        struct ddp_tensor_op ops[GROUP];
        ddp_tensor *handles[GROUP];
        for (size_t i = 0; i < GROUP; i++)
            ops[i] = gather_of(names[i], send, rank == 0 ? 15 : 5, DDP_UINT8);
        CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, GROUP, handles, err));
        for (size_t i = 0; i < GROUP; i++) {
            const size_t *counts;
            const uint8_t *bytes = result_of(handles[i], &counts);
            CHECK(counts[0] == 15 && counts[1] == 5 && bytes[14] == 1 && bytes[15] == 2);
            ddp_tensors_release(handles[i]);
        }
        CHECK(stats_of(tensors).operations == step * (world->stage == 0 ? 1 : 2));
    }
    CHECK(world->nranks == 2);
    ddp_tensors_destroy(tensors);
}

START_TEST(what_fits_is_one_operation)
{
    struct world world = {.nranks = 2, .stage = (uint32_t)_i, .name = "fuse"};
    world_open(&world);
    world_run(&world, fuse);
    world_close(&world);
}
END_TEST

/* ---- joins and sets ---- */

/* Rank r has r + 1 batches; what has joined gives nothing, both to what is new and remembered. */
static void join(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    uint32_t last;
    for (int round = 0; round < 3; round++) {
        for (uint32_t batch = 0; batch <= rank; batch++) {
            uint32_t value = rank * 10 + batch;
            const size_t *counts;
            char name[NAME];
            snprintf(name, NAME, "batch%" PRIu32, batch);
            ddp_tensor *handle = enqueue(tensors, gather_of(name, &value, 1, DDP_UINT32));
            const uint32_t *values = result_of(handle, &counts);
            for (uint32_t r = 0; r < world->nranks; r++) {
                CHECK(counts[r] == (r >= batch));
                CHECK(r < batch || *values++ == r * 10 + batch);
            }
            ddp_tensors_release(handle);
        }
        CHECK_OK(ddp_tensors_join(tensors, &last, err));
        CHECK(last == world->nranks - 1);
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(joined_ranks_give_nothing)
{
    struct world world = {.nranks = _i == 0 ? 2 : 4, .name = "join"};
    world_open(&world);
    world_run(&world, join);
    world_close(&world);
}
END_TEST

static void use_set(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    uint32_t set, ranks[] = {2, 0}, values[] = {rank, rank, rank};
    CHECK_OK(ddp_tensors_add_set(tensors, ranks, 2, &set, err));
    for (uint32_t step = 0; rank != 1 && step < 3; step++) {
        struct ddp_tensor_op op = gather_of("x", values, rank + step % 2, DDP_UINT32);
        const size_t *counts;
        op.set = set;
        ddp_tensor *handle = enqueue(tensors, op);
        const uint32_t *all = result_of(handle, &counts);
        CHECK(counts[0] == step % 2 && counts[1] == 2 + step % 2);
        CHECK(all[counts[0]] == 2 && (counts[0] == 0 || all[0] == 0));
        ddp_tensors_release(handle);
    }
    CHECK_OK(ddp_tensors_join(tensors, &set, err)); /* rank 1 stays until then */
    ddp_tensors_destroy(tensors);
    CHECK(world->nranks == 3);
}

START_TEST(counts_are_those_of_the_set)
{
    struct world world = {.nranks = 3, .name = "set"};
    world_open(&world);
    world_run(&world, use_set);
    world_close(&world);
}
END_TEST

/* ---- mistakes ---- */

static void refuse_op(ddp_tensors *tensors, struct ddp_tensor_op op, const char *text)
{
    struct ddp_error err = {0};
    ddp_tensor *handle;
    CHECK(ddp_tensors_enqueue(tensors, &op, &handle, &err) == DDP_E_INVALID);
    if (strcmp(err.msg, text) != 0)
        fprintf(stderr, "%s, expected \"%s\"\n", err.msg, text);
    CHECK(strcmp(err.msg, text) == 0);
}

static void mistake(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    float values[] = {1, 2}, all[WORLD_MAX];
    const void *elements;
    const size_t *counts;
    struct ddp_error error = {0};
    struct ddp_tensor_op op = gather_of("x", values, 1, DDP_FLOAT32);
    op.recv = all;
    refuse_op(tensors, op,
              "tensor \"x\": with uneven counts the object has the memory of the result: pass NULL "
              "as recv, and call ddp_tensors_gathered()");
    op = gather_of("x", NULL, 1, DDP_FLOAT32);
    refuse_op(tensors, op, "tensor \"x\": a buffer is NULL");
    op = gather_of("x", values, 1, DDP_FLOAT32);
    op.kind = DDP_KIND_ALL_TO_ALL;
    refuse_op(tensors, op, "tensor \"x\": only all_gather takes uneven counts");
    fail_with(enqueue(tensors, gather_of("x", values, 1, rank == 1 ? DDP_FLOAT64 : DDP_FLOAT32)),
              DDP_E_MISMATCH, "tensor \"x\": the type is float");
    op = gather_of("x", values, 1, DDP_FLOAT32);
    if (rank == 1) {
        op.uneven = 0;
        op.recv = all;
    }
    ddp_tensor *handle = enqueue(tensors, op);
    CHECK(ddp_tensors_wait(handle, 0, NULL, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "all_gather of uneven counts on rank ") != NULL);
    ddp_tensors_release(handle);
    op.uneven = 0;
    op.recv = all;
    handle = enqueue(tensors, op);
    CHECK_OK(ddp_tensors_wait(handle, 0, NULL, err));
    CHECK(ddp_tensors_gathered(handle, &elements, &counts, &error) == DDP_E_INVALID);
    CHECK(strcmp(error.msg, "tensor \"x\" is not an all_gather of uneven counts: its result is in "
                            "recv") == 0);
    ddp_tensors_release(handle);
    CHECK(world->nranks == 2);
    ddp_tensors_destroy(tensors);
}

START_TEST(mistakes_have_sentences)
{
    struct world world = {.nranks = 2, .name = "mistakes"};
    world_open(&world);
    world_run(&world, mistake);
    world_close(&world);
}
END_TEST

/* A result is not there before the tensor is done, and never if another rank does not come. All
 * ranks are told of the tensor that has waited too long first: one of two. It ends the object, so
 * that the other rank must have enqueued its own by then. */
static void wait_in_vain(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(
        comm, (struct ddp_tensors_options){.stall_warning_ms = 20, .stall_shutdown_ms = 5000});
    static const char wait_of_rank_0[] = "ms for other ranks to enqueue it; missing: 1";
    static const char wait_of_rank_1[] = "ms for other ranks to enqueue it; missing: 0";
    const void *elements;
    const size_t *counts;
    struct ddp_error error = {0};
    uint32_t last;
    if (rank == 0) {
        ddp_tensor *handle = enqueue(tensors, gather_of("alone", &rank, 1, DDP_UINT32));
        int done = 1;
        ddp_status status = ddp_tensors_wait(handle, 1, &done, &error);
        CHECK(status == DDP_E_TIMEOUT);
        status = ddp_tensors_gathered(handle, &elements, &counts, &error);
        CHECK(done || status == DDP_E_TIMEOUT ||
              strcmp(error.msg, "tensor \"alone\" is not done: call ddp_tensors_wait() first") ==
                  0);
        fail_with_either(handle, DDP_E_TIMEOUT, wait_of_rank_0, wait_of_rank_1);
    } else {
        ddp_tensor *other = enqueue(tensors, gather_of("other", &rank, 1, DDP_UINT32));
        fail_with_either(other, DDP_E_TIMEOUT, wait_of_rank_0, wait_of_rank_1);
    }
    CHECK(ddp_tensors_join(tensors, &last, &error) == DDP_E_TIMEOUT && world->nranks == 2);
    ddp_tensors_destroy(tensors);
}

START_TEST(a_rank_that_does_not_come_is_named)
{
    struct world world = {.nranks = 2, .name = "vain"};
    world_open(&world);
    world_run(&world, wait_in_vain);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("uneven tensors");
    TCase *tests = tcase_create("uneven");
    tcase_add_loop_test(tests, each_rank_gives_what_it_has, 0, 16);
    tcase_add_loop_test(tests, what_fits_is_one_operation, 0, 2);
    tcase_add_loop_test(tests, joined_ranks_give_nothing, 0, 2);
    tcase_add_test(tests, counts_are_those_of_the_set);
    tcase_add_test(tests, mistakes_have_sentences);
    tcase_add_test(tests, a_rank_that_does_not_come_is_named);
    suite_add_tcase(suite, tests);
    return suite;
}
