/*
 * test_requests.c - operations that return at once: order, waiting, callbacks, descriptors, the
 * thread of a communicator, failure, and two communicators at once.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/comm_requests.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 5003, MANY = 40 };

static struct ddp_operation sum_of(float *values, size_t count)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = DDP_KIND_ALL_REDUCE,
                                  .send = values,
                                  .recv = values,
                                  .count = count,
                                  .dtype = DDP_FLOAT32,
                                  .op = DDP_SUM};
}

static ddp_request *start(ddp_comm *comm, const struct ddp_operation *operation)
{
    struct ddp_error error;
    ddp_request *request;
    ddp_status status = ddp_start(comm, operation, &request, &error);
    if (status != DDP_OK)
        fprintf(stderr, "%s\n", error.msg);
    CHECK(status == DDP_OK);
    return request;
}

static void fill(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        values[i] = value;
}

static void check_all(const float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        CHECK(values[i] == value);
}

/* ---- order ---- */

/* Even ranks wait for the last one first, odd ranks for the first one. */
static void many_at_once(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[MANY][COUNT];
    ddp_request *requests[MANY];
    for (int i = 0; i < MANY; i++) {
        fill(values[i], COUNT, (float)(rank + (uint32_t)i));
        struct ddp_operation operation = sum_of(values[i], COUNT);
        requests[i] = start(comm, &operation);
    }
    float ranks = (float)(world->nranks * (world->nranks - 1)) / 2;
    for (int i = 0; i < MANY; i++) {
        int turn = rank % 2 == 0 ? MANY - 1 - i : i;
        CHECK_OK(ddp_request_wait(requests[turn], 0, NULL, err));
        check_all(values[turn], COUNT, ranks + (float)turn * (float)world->nranks);
        CHECK_OK(ddp_request_wait(requests[turn], 0, NULL, err)); /* again */
    }
    for (int i = 0; i < MANY; i++)
        ddp_request_free(requests[i]);
}

static struct world world_of(int i)
{
    return (struct world){.nranks = (uint32_t)i / 3 % 4 + 1,
                          .tcp = i % 3 == 1,
                          .algorithm = i % 3 == 2 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO};
}
enum { WORLDS = 12 };

static void run_in_worlds(int i, rank_body *body)
{
    struct world world = world_of(i);
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(requests_run_in_the_order_of_the_calls)
{
    run_in_worlds(_i, many_at_once);
}
END_TEST

/* A blocking call takes its place behind what was started. */
static void blocking_between(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float first[COUNT], second[COUNT];
    fill(first, COUNT, 1);
    fill(second, COUNT, (float)rank);
    struct ddp_operation operation = sum_of(first, COUNT);
    ddp_request *request = start(comm, &operation);
    CHECK_OK(ddp_all_reduce(comm, second, second, COUNT, DDP_FLOAT32, DDP_MAX, NULL, err));
    check_all(second, COUNT, (float)(world->nranks - 1));
    int done;
    CHECK_OK(ddp_request_test(request, &done, err));
    CHECK(done == 1);
    check_all(first, COUNT, (float)world->nranks);
    ddp_request_free(request);
}

START_TEST(a_blocking_call_waits_for_its_turn)
{
    run_in_worlds(_i, blocking_between);
}
END_TEST

/* Both send before they receive, more than any buffer takes, and all ranks are in a collective. */
static void messages_beside(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { LARGE = 3 * 1024 * 1024 };
    static float out[LARGE], in[LARGE], sum[COUNT];
    uint32_t next = (rank + 1) % world->nranks, prev = (rank + world->nranks - 1) % world->nranks;
    if (world->nranks == 1)
        return;
    fill(out, LARGE, (float)rank);
    fill(sum, COUNT, 1);
    struct ddp_operation send = {.size = sizeof send,
                                 .kind = DDP_KIND_SEND,
                                 .send = out,
                                 .count = LARGE,
                                 .dtype = DDP_FLOAT32,
                                 .peer = next};
    struct ddp_operation recv = {.size = sizeof recv,
                                 .kind = DDP_KIND_RECV,
                                 .recv = in,
                                 .count = LARGE,
                                 .dtype = DDP_FLOAT32,
                                 .peer = prev};
    ddp_request *sending = start(comm, &send), *receiving = start(comm, &recv);
    CHECK_OK(ddp_all_reduce(comm, sum, sum, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err));
    CHECK_OK(ddp_request_wait(sending, 0, NULL, err));
    CHECK_OK(ddp_request_wait(receiving, 0, NULL, err));
    check_all(in, LARGE, (float)prev);
    check_all(sum, COUNT, (float)world->nranks);
    ddp_request_free(sending);
    ddp_request_free(receiving);
}

START_TEST(messages_are_under_way_beside_a_collective)
{
    run_in_worlds(_i, messages_beside);
}
END_TEST

/* ---- who is told ---- */

struct told {
    _Atomic int times;
    _Atomic ddp_status status;
};

static void tell(void *ctx, ddp_status status)
{
    struct told *told = ctx;
    told->status = status;
    told->times++;
}

/* Nobody calls: the thread does it all, and the descriptor says when. */
static void by_events(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[4][COUNT];
    struct told told = {.status = DDP_E_INTERNAL};
    ddp_request *requests[4];
    int fd, done = 0;
    (void)rank;
    CHECK_OK(ddp_comm_get_event_fd(comm, &fd, err));
    for (int i = 0; i < 4; i++) {
        fill(values[i], COUNT, (float)i);
        struct ddp_operation operation = sum_of(values[i], COUNT);
        operation.on_done = tell;
        operation.ctx = &told;
        requests[i] = start(comm, &operation);
    }
    for (uint64_t ended = 0, more; ended < 4; ended += more) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        CHECK(poll(&readable, 1, -1) == 1);
        CHECK(read(fd, &more, sizeof more) == sizeof more);
    }
    for (int i = 0; i < 4; i++) {
        CHECK_OK(ddp_request_test(requests[i], &done, err));
        CHECK(done == 1);
        check_all(values[i], COUNT, (float)i * (float)world->nranks);
        ddp_request_free(requests[i]);
    }
    while (told.times < 4) /* the descriptor may tell before the callback does */
        (void)sched_yield();
    CHECK(told.status == DDP_OK);
}

START_TEST(a_descriptor_and_callbacks_tell_of_the_end)
{
    run_in_worlds(_i, by_events);
}
END_TEST

/* ---- operations that follow one another ---- */

struct chain {
    ddp_comm *comm;
    float values[COUNT];
    struct ddp_operation operation;
    ddp_request *requests[MANY];
    _Atomic int started;
    _Atomic int ended;
};

/* Each one starts the next. */
static void go_on(void *ctx, ddp_status status)
{
    struct chain *chain = ctx;
    int next = chain->started++; /* before the next one can end */
    CHECK(status == DDP_OK);
    if (next < MANY)
        chain->requests[next] = start(chain->comm, &chain->operation);
    chain->ended++;
}

static void one_by_one(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static struct chain chain;
    bool has_thread = rank % 2 == 0;
    if (has_thread)
        CHECK_OK(ddp_comm_start_progress(comm, err));
    chain.comm = comm;
    fill(chain.values, COUNT, 1);
    chain.operation = sum_of(chain.values, COUNT);
    chain.operation.op = DDP_MAX;
    chain.operation.on_done = go_on;
    chain.operation.ctx = &chain;
    chain.started = 1;
    go_on(&chain, DDP_OK);
    while (chain.ended < MANY) {
        if (has_thread)
            (void)sched_yield();
        else
            CHECK_OK(ddp_request_wait(chain.requests[chain.ended], 0, NULL, err));
    }
    check_all(chain.values, COUNT, 1);
    for (int i = 1; i < MANY; i++) {
        CHECK_OK(ddp_request_wait(chain.requests[i], 0, NULL, err));
        ddp_request_free(chain.requests[i]);
    }
    (void)world;
}

START_TEST(a_callback_starts_the_next_operation)
{
    run_in_worlds(_i, one_by_one);
}
END_TEST

/* ---- waiting ---- */

/* Rank 0 comes only when all others have waited in vain. */
static void in_vain(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT];
    struct ddp_error error;
    int done = 7;
    fill(values, COUNT, 1);
    struct ddp_operation operation = sum_of(values, COUNT);
    if (rank == 0) {
        while (atomic_load(world->counter) < world->nranks - 1)
            poll(NULL, 0, 5);
        CHECK_OK(ddp_run(comm, &operation, err));
    } else {
        ddp_request *request = start(comm, &operation);
        CHECK(ddp_request_wait(request, 20, &done, &error) == DDP_E_TIMEOUT && done == 0);
        CHECK(strstr(error.msg, "has not ended in 20 ms") != NULL);
        CHECK_OK(ddp_request_test(request, &done, err));
        CHECK(done == 0);
        atomic_fetch_add(world->counter, 1);
        CHECK_OK(ddp_request_wait(request, 0, &done, err));
        CHECK(done == 1);
        ddp_request_free(request);
    }
    check_all(values, COUNT, (float)world->nranks);
}

START_TEST(a_wait_may_end_before_the_operation)
{
    run_in_worlds(_i, in_vain);
}
END_TEST

/* A request outlives its communicator; another one is freed while it runs. */
static void destroyed(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float kept[COUNT], freed[COUNT];
    struct ddp_error error;
    int done = 0;
    (void)comm;
    if (rank != 0 || world->nranks == 1)
        return;
    ddp_comm *locals[2];
    CHECK_OK(ddp_comm_init_local(2, NULL, locals, err));
    struct ddp_operation operation = sum_of(kept, COUNT), other = sum_of(freed, COUNT);
    ddp_request *request = start(locals[0], &operation);
    ddp_request_free(start(locals[0], &other));
    ddp_comm_destroy(locals[0]);
    CHECK(ddp_request_test(request, &done, &error) == DDP_E_PEER_DEAD && done == 1);
    CHECK(strstr(error.msg, "rank 0 has left the communicator") != NULL);
    CHECK(ddp_request_wait(request, 0, NULL, &error) == DDP_E_PEER_DEAD);
    ddp_request_free(request);
    CHECK(ddp_run(locals[1], &operation, &error) == DDP_E_PEER_DEAD);
    CHECK(strstr(error.msg, "rank 0 has left the communicator") != NULL);
    ddp_comm_destroy(locals[1]);
}

START_TEST(a_request_outlives_its_communicator)
{
    run_in_worlds(3, destroyed);
}
END_TEST

/* ---- failure ---- */

static void without_one(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[3][COUNT];
    ddp_request *requests[3];
    struct ddp_error error;
    /* When the last rank leaves it, all have joined; others may still be in it. */
    ddp_status status = ddp_barrier(comm, NULL, &error);
    bool last = rank == world->nranks - 1;
    CHECK(status == DDP_OK || (!last && status == DDP_E_PEER_DEAD));
    if (last)
        _exit(0);
    for (int i = 0; i < 3; i++) {
        struct ddp_operation operation = sum_of(values[i], COUNT);
        if (ddp_start(comm, &operation, &requests[i], &error) != DDP_OK)
            requests[i] = NULL; /* the death is known already */
    }
    for (int i = 0; i < 3; i++) {
        char name[32];
        if (requests[i] != NULL)
            CHECK(ddp_request_wait(requests[i], 0, NULL, &error) == DDP_E_PEER_DEAD);
        snprintf(name, sizeof name, "rank %u ", world->nranks - 1);
        CHECK(strstr(error.msg, name) != NULL);
        ddp_request_free(requests[i]);
    }
}

START_TEST(the_death_of_a_rank_ends_all_requests)
{
    if (world_of(_i).nranks > 1)
        run_in_worlds(_i, without_one);
}
END_TEST

/* ---- refusals ---- */

enum { NEVER_CALLS, HAS_LEFT };

static void await_count(struct world *world, uint32_t count)
{
    while (atomic_load(world->counter) < count)
        poll(NULL, 0, 1);
}

/* The ring of a group does not stand before its first operation, which rank 1 never calls. */
static void tested_only(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT];
    struct ddp_error error;
    ddp_comm *group;
    ddp_status status = DDP_OK;
    CHECK_OK(ddp_comm_split(comm, 0, 0, &group, err));
    if (rank == 1) {
        if (world->stage == HAS_LEFT)
            ddp_comm_destroy(group);
        atomic_fetch_add(world->counter, 1);
        await_count(world, 2);
        return;
    }
    await_count(world, 1);
    if (world->stage == NEVER_CALLS)
        CHECK_OK(ddp_comm_set_timeout(group, 100, err));
    struct ddp_operation operation = sum_of(values, COUNT);
    ddp_request *request = start(group, &operation);
    for (int done = 0; !done; poll(NULL, 0, 1))
        status = ddp_request_test(request, &done, &error);
    world_expect(status, &error, world->stage == HAS_LEFT ? DDP_E_PEER_DEAD : DDP_E_TIMEOUT,
                 "rank 1 ");
    ddp_request_free(request);
    ddp_comm_destroy(group);
    atomic_fetch_add(world->counter, 1);
}

START_TEST(a_request_that_is_only_tested_ends_before_it_has_begun)
{
    struct world world = {.nranks = 2, .tcp = _i % 2 == 1, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_run(&world, tested_only);
    world_close(&world);
}
END_TEST

START_TEST(what_is_no_operation_is_refused)
{
    ddp_comm *comm;
    struct ddp_error error;
    ddp_request *request;
    float value = 1;
    size_t one = 1;
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    struct ddp_operation operation = sum_of(&value, 1);
    operation.size = 8;
    ck_assert_int_eq(ddp_start(comm, &operation, &request, &error), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.msg, "sizeof(struct ddp_operation)"));
    operation = sum_of(&value, 1);
    operation.kind = (ddp_kind)99;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_str_eq(error.msg, "99 is not a kind of operation");
    operation = sum_of(&value, 1);
    operation.uneven = 1;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    operation.uneven = 0;
    operation.recv_counts = &one;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    operation.recv_counts = NULL;
    operation.send_offsets = &one;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    operation = sum_of(&value, 1);
    operation.on_done = tell;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    operation.on_done = NULL;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_OK);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(uneven_parts_have_counts)
{
    static const ddp_kind kinds[] = {DDP_KIND_ALL_GATHER, DDP_KIND_REDUCE_SCATTER, DDP_KIND_GATHER,
                                     DDP_KIND_SCATTER, DDP_KIND_ALL_TO_ALL};
    ddp_comm *comm;
    struct ddp_error error;
    float value = 1, result = 0;
    size_t one = 1;
    struct ddp_operation operation = sum_of(&value, 1);
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    operation.kind = kinds[_i];
    operation.recv = &result;
    operation.uneven = 1;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.msg, "_counts is NULL"));
    operation.send_counts = operation.recv_counts = &one;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_OK);
    ck_assert(result == 1);
    ddp_comm_destroy(comm);
}
END_TEST

/* A program may use one struct for several operations. What a kind does not use is not compared. */
static void leave_members(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float values[2] = {(float)rank + 1, 0};
    struct ddp_operation operation = sum_of(values, 1);
    operation.recv = values + 1;
    operation.peer = operation.tag = rank;
    CHECK_OK(ddp_run(comm, &operation, err));
    operation.op = rank == 0 ? (ddp_reduce_op)77 : DDP_MAX;
    operation.kind = rank == 0 ? DDP_KIND_SEND : DDP_KIND_RECV;
    operation.peer = 1 - rank;
    operation.tag = 0;
    CHECK_OK(ddp_run(comm, &operation, err));
    operation.count = rank;
    operation.dtype = rank == 0 ? (ddp_dtype)99 : DDP_INT8;
    operation.kind = DDP_KIND_BARRIER;
    CHECK_OK(ddp_run(comm, &operation, err));
    CHECK(world->nranks == 2 && values[1] == (rank == 0 ? 3.0F : 1.0F));
}

START_TEST(unused_members_are_not_compared)
{
    struct world world = {.nranks = 2, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, leave_members);
    world_close(&world);
}
END_TEST

/* ---- two communicators ---- */

struct side {
    ddp_comm *comm;
    float value;
    float result;
};

static void *reduce_often(void *arg)
{
    struct side *side = arg;
    for (int i = 0; i < 200; i++) {
        side->result = side->value;
        CHECK_OK(ddp_all_reduce(side->comm, &side->result, &side->result, 1, DDP_FLOAT32, DDP_SUM,
                                NULL, err));
    }
    return NULL;
}

/* Threads of different ranks use the two in different orders, and one rank by requests. */
static void two_at_once(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *other;
    options.name = "other";
    CHECK_OK(ddp_comm_init(&options, &other, err));
    struct side sides[2] = {{.comm = rank % 2 == 0 ? comm : other, .value = 1},
                            {.comm = rank % 2 == 0 ? other : comm, .value = 1}};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reduce_often, &sides[1]) == 0);
    (void)reduce_often(&sides[0]);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(sides[0].result == (float)world->nranks && sides[1].result == (float)world->nranks);
    ddp_comm_destroy(other);
}

START_TEST(two_communicators_are_independent)
{
    run_in_worlds(_i, two_at_once);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("requests");
    TCase *tcase = tcase_create("requests");
    add_sample(tcase, requests_run_in_the_order_of_the_calls, 0, WORLDS);
    add_sample(tcase, a_blocking_call_waits_for_its_turn, 0, WORLDS);
    add_sample(tcase, messages_are_under_way_beside_a_collective, 0, WORLDS);
    add_sample(tcase, a_descriptor_and_callbacks_tell_of_the_end, 0, WORLDS);
    add_sample(tcase, a_callback_starts_the_next_operation, 0, WORLDS);
    add_sample(tcase, a_wait_may_end_before_the_operation, 0, WORLDS);
    tcase_add_test(tcase, a_request_outlives_its_communicator);
    add_sample(tcase, the_death_of_a_rank_ends_all_requests, 0, WORLDS);
    tcase_add_loop_test(tcase, a_request_that_is_only_tested_ends_before_it_has_begun, 0, 4);
    tcase_add_test(tcase, what_is_no_operation_is_refused);
    tcase_add_loop_test(tcase, uneven_parts_have_counts, 0, 5);
    tcase_add_loop_test(tcase, unused_members_are_not_compared, 0, 2);
    tcase_add_loop_test(tcase, two_communicators_are_independent, 0, WORLDS);
    suite_add_tcase(suite, tcase);
    return suite;
}
