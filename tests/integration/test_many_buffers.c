/*
 * test_many_buffers.c - operations on lists of buffers, by every algorithm and every way to call
 * them: the result has the bits of the same operation on one array of all elements, nothing beside
 * the buffers is written, and lists that differ, or cannot be, end with a sentence.
 */
#include "check_main.h"
#include "world.h"

#include <stddef.h>
#include <string.h>

enum {
    BUFFERS_MAX = 100,
    COUNT_MAX = 100000,
    SPACE = 4 * 1024 * 1024, /* bytes of all buffers and the gaps between them */
    CANARY = 0x5a,
    LONG = 7, /* buffers of a list that takes several rounds */
};

/* None ends where a cache line does. */
static const size_t long_counts[LONG] = {0, 40001, 1, 0, 30007, 65533, 0};

static uint8_t send_space[SPACE], recv_space[SPACE], expected[SPACE];
static uint8_t array[SPACE], result[SPACE];

/* A list of which all ranks have the same lengths. */
struct list {
    struct ddp_buffer buffers[BUFFERS_MAX];
    size_t nbuffers, count;
    size_t size; /* of an element */
    ddp_dtype dtype;
    ddp_reduce_op op;
};

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return *state >> 33;
}

/* Most buffers of a long list are short, some are empty; two are long. */
static size_t draw_count(uint64_t *state, size_t nbuffers, size_t index)
{
    if (nbuffers == LONG)
        return long_counts[index];
    if (draw(state) % 5 == 0)
        return 0;
    bool is_long = nbuffers <= 2 || index == 3 || index == 77;
    return draw(state) % (is_long ? COUNT_MAX + 1 : 1500);
}

/* Buffers lie in the reverse order, with gaps, at any address; every third one is in place. */
static void make_list(struct list *list, size_t nbuffers, uint64_t seed, uint8_t *from, uint8_t *to)
{
    size_t at = 1;
    list->count = 0;
    list->nbuffers = nbuffers;
    for (size_t i = nbuffers; i-- > 0;) {
        size_t count = draw_count(&seed, nbuffers, i);
        list->count += count;
        CHECK(at + count * list->size + 7 <= SPACE);
        list->buffers[i] = (struct ddp_buffer){
            .send = i % 3 == 2 ? to + at : from + at, .recv = to + at, .count = count};
        at += count * list->size + 7;
    }
}

/* No bits that make a float infinite, or a bool something else. */
static void fill_list(const struct list *list, uint32_t rank)
{
    uint64_t random = (list->count + 1) * 0x9e3779b97f4a7c15U + rank;
    for (size_t i = 0; i < list->nbuffers; i++) {
        uint8_t *bytes = (uint8_t *)(uintptr_t)list->buffers[i].send;
        for (size_t k = 0; k < list->buffers[i].count * list->size; k++)
            bytes[k] = (uint8_t)(draw(&random) & (list->dtype == DDP_BOOL ? 1 : 0x3f));
    }
}

/* What the receive space should hold: of @operation on one array. */
static void put_expected(ddp_comm *comm, const struct list *list, struct ddp_operation operation,
                         const uint8_t *to)
{
    size_t at = 0;
    for (size_t i = 0; i < list->nbuffers; at += list->buffers[i++].count * list->size)
        if (list->buffers[i].count > 0)
            memcpy(array + at, list->buffers[i].send, list->buffers[i].count * list->size);
    operation.buffers = NULL;
    operation.nbuffers = 0;
    operation.count = list->count;
    operation.send = array;
    operation.recv = operation.kind == DDP_KIND_BROADCAST ? array : result;
    CHECK_OK(ddp_run(comm, &operation, err));
    memcpy(expected, to, SPACE);
    at = 0;
    for (size_t i = 0; i < list->nbuffers; at += list->buffers[i++].count * list->size)
        if (list->buffers[i].count > 0)
            memcpy(expected + ((uint8_t *)list->buffers[i].recv - to),
                   (uint8_t *)operation.recv + at, list->buffers[i].count * list->size);
}

static struct ddp_operation operation_of(const struct list *list, uint32_t rank)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = DDP_KIND_ALL_REDUCE,
                                  .dtype = list->dtype,
                                  .op = list->op,
                                  .factor = 1 + rank,
                                  .buffers = list->buffers,
                                  .nbuffers = list->nbuffers};
}

/* ---- ways to call ---- */

typedef void way(ddp_comm *comm, const struct list *list, const struct ddp_operation *operation);

static void call_function(ddp_comm *comm, const struct list *list,
                          const struct ddp_operation *operation)
{
    if (list->op == DDP_PREMUL_SUM)
        CHECK_OK(ddp_run(comm, operation, err));
    else
        CHECK_OK(ddp_all_reduce_many(comm, list->buffers, list->nbuffers, list->dtype, list->op,
                                     NULL, err));
}

static void call_request(ddp_comm *comm, const struct list *list,
                         const struct ddp_operation *operation)
{
    (void)list;
    ddp_request *request;
    CHECK_OK(ddp_start(comm, operation, &request, err));
    CHECK_OK(ddp_request_wait(request, 0, NULL, err));
    ddp_request_free(request);
}

/* Between two other calls. */
static void call_in_group(ddp_comm *comm, const struct list *list,
                          const struct ddp_operation *operation)
{
    int32_t before = 1, after = 2, ranks = (int32_t)ddp_comm_world_size(comm);
    (void)list;
    CHECK_OK(ddp_group_start(comm, err));
    CHECK_OK(ddp_all_reduce(comm, &before, &before, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK_OK(ddp_run(comm, operation, err));
    CHECK_OK(ddp_all_reduce(comm, &after, &after, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK_OK(ddp_group_end(comm, err));
    CHECK(before == ranks && after == 2 * ranks);
}

static way *const ways[] = {call_function, call_request, call_in_group};
static const unsigned operations_of[] = {1, 1, 3};
enum { WAYS = 3 };

/* ---- against one array ---- */

static uint64_t operations(const ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats.operations;
}

static void check_list(ddp_comm *comm, struct list *list, size_t nbuffers, uint64_t seed,
                       uint8_t *from, uint8_t *to)
{
    uint32_t rank = ddp_comm_rank(comm);
    list->size = ddp_dtype_size(list->dtype);
    memset(from, CANARY, SPACE);
    memset(to, CANARY, SPACE);
    make_list(list, nbuffers, seed, from, to);
    fill_list(list, rank);
    struct ddp_operation operation = operation_of(list, rank);
    put_expected(comm, list, operation, to);
    uint64_t earlier = operations(comm);
    ways[seed % WAYS](comm, list, &operation);
    CHECK(operations(comm) == earlier + operations_of[seed % WAYS]);
    CHECK(memcmp(to, expected, SPACE) == 0);
}

static const struct {
    ddp_dtype dtype;
    ddp_reduce_op op;
} types[] = {{DDP_FLOAT32, DDP_SUM},        {DDP_BFLOAT16, DDP_AVERAGE},
             {DDP_FLOAT64, DDP_PREMUL_SUM}, {DDP_FLOAT16, DDP_MAX},
             {DDP_INT8, DDP_SUM},           {DDP_FLOAT32, DDP_PREMUL_SUM},
             {DDP_BOOL, DDP_MIN},           {DDP_INT64, DDP_PRODUCT},
             {DDP_COMPLEX128, DDP_SUM},     {DDP_COMPLEX64, DDP_AVERAGE}};
static const size_t lengths[] = {0, 1, 2, LONG, BUFFERS_MAX};

static void check_lists(ddp_comm *comm, uint8_t *from, uint8_t *to)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            struct list list = {.dtype = types[i].dtype, .op = types[i].op};
            check_list(comm, &list, lengths[k], 5 * i + 7 * k, from, to);
        }
}

static void in_any_memory(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    (void)rank;
    check_lists(comm, send_space, recv_space);
}

/* A list of several is not worked on in place there, but it has the same bits. */
static void in_windows(struct world *world, uint32_t rank, ddp_comm *comm)
{
    void *from, *to;
    (void)world;
    (void)rank;
    CHECK_OK(ddp_alloc(comm, SPACE, &from, err));
    CHECK_OK(ddp_alloc(comm, SPACE, &to, err));
    check_lists(comm, from, to);
    CHECK_OK(ddp_free(comm, from, err));
    CHECK_OK(ddp_free(comm, to, err));
}

/* The buffers of a list are those of the root afterwards. */
static void broadcast_lists(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        struct list list = {.dtype = DDP_FLOAT32, .size = 4};
        memset(recv_space, CANARY, SPACE);
        make_list(&list, lengths[k], 11 * k, recv_space, recv_space);
        fill_list(&list, rank);
        struct ddp_operation operation = operation_of(&list, rank);
        operation.kind = DDP_KIND_BROADCAST;
        operation.peer = world->nranks - 1;
        put_expected(comm, &list, operation, recv_space);
        for (size_t i = 0; i < list.nbuffers; i++)
            list.buffers[i].send = NULL;
        CHECK_OK(ddp_run(comm, &operation, err));
        CHECK(memcmp(recv_space, expected, SPACE) == 0);
    }
}

static const uint32_t sizes[] = {1, 2, 3, 5};
static const struct {
    bool tcp;
    ddp_algorithm algorithm;
    const char *hosts;
} places[] = {{false, DDP_ALGORITHM_AUTO, NULL},    {false, DDP_ALGORITHM_RING, NULL},
              {true, DDP_ALGORITHM_AUTO, NULL},     {true, DDP_ALGORITHM_DIRECT, NULL},
              {true, DDP_ALGORITHM_DOUBLING, NULL}, {false, DDP_ALGORITHM_HIERARCHICAL, "aabbb"}};
enum { PLACES = sizeof places / sizeof *places, WORLDS = 4 * PLACES };

static void run_in_world(int i, rank_body *body)
{
    struct world world = {.nranks = sizes[i / PLACES],
                          .tcp = places[i % PLACES].tcp,
                          .algorithm = places[i % PLACES].algorithm,
                          .hosts = places[i % PLACES].hosts,
                          .timeout_ms = 60000};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(lists_are_reduced_as_one_array)
{
    run_in_world(_i, in_any_memory);
}
END_TEST

START_TEST(lists_in_windows_are_too)
{
    run_in_world(PLACES * _i, in_windows);
}
END_TEST

START_TEST(lists_are_broadcast)
{
    run_in_world(_i, broadcast_lists);
}
END_TEST

/* ---- lists that differ ---- */

enum { OTHER_ORDER, OTHER_NUMBER, NO_LIST, DIFFERENCES };

static void call_another_list(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[8];
    const struct ddp_buffer list[] = {{values, values, 5}, {values + 5, values + 5, 3}};
    const struct ddp_buffer reversed[] = {{values, values, 3}, {values + 3, values + 3, 5}};
    const struct ddp_buffer three[] = {
        {values, values, 5}, {values + 5, values + 5, 2}, {values + 7, values + 7, 1}};
    struct ddp_error error;
    ddp_status status;
    if (rank == 1 && world->stage == NO_LIST)
        status = ddp_all_reduce(comm, values, values, 8, DDP_FLOAT32, DDP_SUM, NULL, &error);
    else if (rank == 1 && world->stage == OTHER_NUMBER)
        status = ddp_all_reduce_many(comm, three, 3, DDP_FLOAT32, DDP_SUM, NULL, &error);
    else
        status = ddp_all_reduce_many(comm, rank == 1 ? reversed : list, 2, DDP_FLOAT32, DDP_SUM,
                                     NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(lists_that_differ_are_named)
{
    struct world world = {.nranks = 3, .tcp = _i % 2 == 1, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_run(&world, call_another_list);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *seen = &world.reports[rank];
        const char *list = strstr(seen->error.msg, "in 2 buffers (digest of lengths ");
        ck_assert_int_eq(seen->status, DDP_E_MISMATCH);
        ck_assert_msg(list != NULL && strstr(seen->error.msg, "rank 1") != NULL, "%s",
                      seen->error.msg);
        if (world.stage == OTHER_ORDER)
            ck_assert_msg(strstr(list + 1, "in 2 buffers") != NULL, "%s", seen->error.msg);
        if (world.stage == OTHER_NUMBER)
            ck_assert_msg(strstr(seen->error.msg, "in 3 buffers") != NULL, "%s", seen->error.msg);
    }
    world_close(&world);
}
END_TEST

/* ---- a list of one buffer ---- */

/* One rank has a list, the others have none: it is the same call, and may be like the last one. */
static void call_one_buffer(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[5000], results[5000];
    static const size_t counts[] = {3, 3, 5000, 0, 3};
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        size_t count = counts[n];
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(rank + n + i);
        const struct ddp_buffer one = {values, results, count};
        if ((rank + n) % 2 == 0)
            CHECK_OK(ddp_all_reduce_many(comm, &one, 1, DDP_FLOAT32, DDP_SUM, NULL, err));
        else
            CHECK_OK(ddp_all_reduce(comm, values, results, count, DDP_FLOAT32, DDP_SUM, NULL, err));
        uint32_t nranks = world->nranks;
        for (size_t i = 0; i < count; i++)
            CHECK(results[i] == (float)(nranks * (n + i) + nranks * (nranks - 1) / 2));
    }
}

START_TEST(a_list_of_one_buffer_is_the_call_without_a_list)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, call_one_buffer);
    world_close(&world);
}
END_TEST

/* ---- failure ---- */

/* When all have joined. */
static void abort_instead(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT_MAX];
    const struct ddp_buffer list[] = {{values, values, 5}, {values + 7, values + 7, 90000}};
    struct ddp_error error = {0};
    ddp_status status = DDP_E_ABORTED;
    world_step(world, rank);
    for (uint32_t other = 0; rank == 1 && other < world->nranks; other++)
        world_await_steps(world, other, 1);
    if (rank == 1)
        ddp_comm_abort(comm);
    else
        status = ddp_all_reduce_many(comm, list, 2, DDP_FLOAT32, DDP_SUM, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(an_abort_ends_a_list)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, abort_instead);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        ck_assert_int_eq(world.reports[rank].status, DDP_E_ABORTED);
    world_close(&world);
}
END_TEST

static void come_too_late(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT_MAX];
    const struct ddp_buffer list[] = {{values, values, 5}, {values + 7, values + 7, 90000}};
    struct ddp_error error = {0};
    ddp_status status = DDP_E_TIMEOUT;
    if (rank == 0)
        status = ddp_all_reduce_many(comm, list, 2, DDP_FLOAT32, DDP_SUM, NULL, &error);
    else
        world_await_failures(world, rank);
    world_report(world, rank, status, &error);
}

START_TEST(a_list_has_a_deadline)
{
    struct world world = {.nranks = 2, .tcp = _i == 1, .timeout_ms = 300};
    world_open(&world);
    world_run(&world, come_too_late);
    ck_assert_int_eq(world.reports[0].status, DDP_E_TIMEOUT);
    ck_assert_msg(strstr(world.reports[0].error.msg, "rank 1") != NULL, "%s",
                  world.reports[0].error.msg);
    world_close(&world);
}
END_TEST

/* ---- refusals ---- */

static void expect_refused(ddp_comm *comm, const struct ddp_buffer *buffers, size_t nbuffers,
                           void *stream, const char *why)
{
    struct ddp_error error;
    ck_assert_int_eq(
        ddp_all_reduce_many(comm, buffers, nbuffers, DDP_FLOAT32, DDP_SUM, stream, &error),
        DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, why) != NULL, "%s", error.msg);
}

START_TEST(lists_that_cannot_be_are_refused)
{
    static float values[16], others[16];
    const struct ddp_buffer good[] = {{values, values, 4}, {values + 4, others, 4}};
    const struct ddp_buffer empty[] = {{NULL, NULL, 0}, {values, values, 4}};
    const struct ddp_buffer missing[] = {{values, values, 4}, {values + 4, NULL, 4}};
    const struct ddp_buffer overlap[] = {{values, others, 4}, {values + 4, others + 3, 4}};
    const struct ddp_buffer shifted[] = {{values, values + 1, 4}};
    const struct ddp_buffer large[] = {{values, others, SIZE_MAX / 8},
                                       {values, others, SIZE_MAX / 8}};
    const struct ddp_buffer wraps[] = {{values, others, SIZE_MAX}, {values, others, 2}};
    struct ddp_error error;
    ddp_comm *comm;
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    expect_refused(comm, missing, 2, NULL, "buffer 1 of 2 has 4 elements, but its recv is NULL");
    expect_refused(comm, overlap, 2, NULL, "buffers 0 and 1 of 2 overlap");
    expect_refused(comm, shifted, 1, NULL, "buffers 0 and 0 of 1 overlap");
    expect_refused(comm, large, 2, NULL, "too many");
    expect_refused(comm, wraps, 2, NULL, "too many");
    expect_refused(comm, NULL, 3, NULL, "the list of 3 buffers is NULL");
    expect_refused(comm, good, (size_t)UINT32_MAX + 1, NULL, "4294967296 buffers are too many");
    expect_refused(comm, good, 2, values, "host memory takes no stream");
    ck_assert_int_eq(ddp_all_reduce_many(comm, NULL, 0, DDP_INT8, DDP_SUM, NULL, &error), DDP_OK);
    ck_assert_int_eq(ddp_all_reduce_many(comm, empty, 2, DDP_FLOAT32, DDP_SUM, NULL, &error),
                     DDP_OK);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(operations_have_a_list_or_none)
{
    static float values[16], others[16];
    const struct ddp_buffer list[] = {{values, others, 4}};
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_REDUCE,
                                      .send = values + 8,
                                      .recv = others + 8,
                                      .count = 2,
                                      .dtype = DDP_FLOAT32,
                                      .buffers = list,
                                      .nbuffers = 1};
    struct ddp_error error;
    ddp_comm *comm;
    values[0] = values[8] = 7;
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_msg(strstr(error.msg, "only all_reduce and broadcast") != NULL, "%s", error.msg);
    operation.kind = DDP_KIND_ALL_REDUCE;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_OK);
    ck_assert(others[0] == 7 && others[8] == 0);
    operation.size = offsetof(struct ddp_operation, buffers); /* of an older program */
    operation.recv = others + 4;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_OK);
    ck_assert(others[4] == 7);
    operation.size--;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ddp_comm_destroy(comm);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("many buffers");
    TCase *tcase = tcase_create("many buffers");
    add_sample(tcase, lists_are_reduced_as_one_array, 0, WORLDS);
    tcase_add_loop_test(tcase, lists_in_windows_are_too, 0, 4);
    add_sample(tcase, lists_are_broadcast, 0, WORLDS);
    add_worlds(tcase, lists_that_differ_are_named, 0, 2 * DIFFERENCES);
    tcase_add_loop_test(tcase, a_list_of_one_buffer_is_the_call_without_a_list, 0, 2);
    tcase_add_loop_test(tcase, an_abort_ends_a_list, 0, 2);
    tcase_add_loop_test(tcase, a_list_has_a_deadline, 0, 2);
    tcase_add_test(tcase, lists_that_cannot_be_are_refused);
    tcase_add_test(tcase, operations_have_a_list_or_none);
    suite_add_tcase(suite, tcase);
    return suite;
}
