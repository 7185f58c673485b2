/*
 * test_leaving.c - how ranks find out that all have come, and how one leaves in peace:
 * ddp_monitored_barrier() and ddp_comm_finalize(), in shared memory and over TCP.
 */
#include "check_main.h"
#include "world.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    MESSAGES = 5,
    COUNT = 1000,      /* all messages together fit into an edge */
    MISSING_MS = 5000, /* so late the others may be */
    LONG_MS = 60 * 1000,
};

static int32_t values[COUNT];

/* ---- the barrier ---- */

static void meet_again_and_again(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (uint32_t round = 1; round <= 5; round++) {
        world_step(world, rank);
        CHECK_OK(ddp_monitored_barrier(comm, 0, err));
        for (uint32_t i = 0; i < world->nranks; i++)
            CHECK(atomic_load(&world->reports[i].steps) >= round);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(all_have_come)
{
    uint32_t nranks = (uint32_t)_i / 3 + 1;
    struct world world = {.nranks = nranks,
                          .tcp = _i % 3 == 1,
                          .algorithm = _i % 3 == 2 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO};
    world_open(&world);
    world_run(&world, meet_again_and_again);
    world_close(&world);
}
END_TEST

/* The ranks whose bits are set in world->stage do not come; they wait until others have failed. */
static bool is_absent(const struct world *world, uint32_t rank)
{
    return (world->stage >> rank & 1) != 0;
}

static void miss_some(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    uint32_t coming = world->nranks - (uint32_t)__builtin_popcount(world->stage);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    if (is_absent(world, rank)) {
        while (atomic_load(world->counter) < coming)
            poll(NULL, 0, 10);
        return;
    }
    ddp_status status = ddp_monitored_barrier(comm, MISSING_MS, &error);
    world_report(world, rank, status, &error);
    atomic_fetch_add(world->counter, 1);
    while (atomic_load(world->counter) < coming)
        poll(NULL, 0, 10);
}

static const struct {
    uint32_t absent;
    const char *names;
} absences[] = {
    {1U << 2 | 1U << 5, "ranks 2 and 5, which have not"},
    {1U << 3, "rank 3 (pid "},
    {1U << 1 | 1U << 3 | 1U << 4 | 1U << 5, "ranks 1, 3, 4 and 5, which have not"},
};
enum { ABSENCES = sizeof absences / sizeof *absences };

START_TEST(all_that_are_missing_are_named)
{
    struct world world = {
        .nranks = 6, .tcp = _i % 2 == 1, .stage = absences[_i / 2].absent, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, miss_some);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *seen = &world.reports[rank];
        if (is_absent(&world, rank))
            continue;
        ck_assert_msg(seen->status == DDP_E_TIMEOUT, "rank %u: %d, %s", rank, (int)seen->status,
                      seen->error.msg);
        ck_assert_msg(strstr(seen->error.msg, absences[_i / 2].names) != NULL, "rank %u: %s", rank,
                      seen->error.msg);
        ck_assert_msg(strstr(seen->error.msg, "monitored_barrier #") != NULL, "%s",
                      seen->error.msg);
    }
    world_close(&world);
}
END_TEST

/* The ranks whose bits are set in world->stage do, when all have joined. */
static void call_another_barrier(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    world_step(world, rank);
    for (uint32_t other = 0; other < world->nranks; other++)
        world_await_steps(world, other, 1);
    ddp_status status = is_absent(world, rank) ? ddp_barrier(comm, NULL, &error)
                                               : ddp_monitored_barrier(comm, 0, &error);
    world_report(world, rank, status, &error);
}

static const struct {
    uint32_t nranks, others;
} mixtures[] = {{2, 1U << 0}, {2, 1U << 1}, {4, 1U << 0}, {4, 1U << 2}, {4, 7U << 1}, {5, 5U << 1}};
enum { MIXTURES = sizeof mixtures / sizeof *mixtures };

START_TEST(another_barrier_is_named)
{
    struct world world = {.nranks = mixtures[_i / 3].nranks,
                          .tcp = _i % 3 == 1,
                          .algorithm = _i % 3 == 2 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO,
                          .stage = mixtures[_i / 3].others,
                          .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, call_another_barrier);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *seen = &world.reports[rank];
        ck_assert_msg(seen->status == DDP_E_MISMATCH &&
                          strstr(seen->error.msg, "called monitored_barrier #1") != NULL &&
                          strstr(seen->error.msg, "called barrier #1") != NULL,
                      "rank %u: %d, %s", rank, (int)seen->status, seen->error.msg);
    }
    world_close(&world);
}
END_TEST

/* ---- to leave ---- */

static void fill(int32_t number)
{
    for (int32_t i = 0; i < COUNT; i++)
        values[i] = number * 1000 + i;
}

/* Rank 0 sends and leaves; rank 1 begins to receive when rank 0 is about to leave, and goes on with
 * rank 2 afterwards. */
static void leave_after_sending(struct world *world, uint32_t rank, ddp_comm *comm)
{
    CHECK_OK(ddp_barrier(comm, NULL, err));
    for (int32_t i = 0; i < MESSAGES && rank == 0; i++) {
        fill(i);
        CHECK_OK(ddp_send(comm, values, COUNT, DDP_INT32, 1, NULL, err));
    }
    if (rank == 0) {
        atomic_fetch_add(world->counter, 1);
        CHECK_OK(ddp_comm_finalize(comm, 0, err));
        return; /* the communicator is destroyed */
    }
    while (atomic_load(world->counter) == 0)
        CHECK_OK(ddp_comm_check(comm, err));
    for (int32_t i = 0; i < MESSAGES && rank == 1; i++) {
        CHECK_OK(ddp_recv(comm, values, COUNT, DDP_INT32, 0, NULL, err));
        CHECK(values[0] == i * 1000 && values[COUNT - 1] == i * 1000 + COUNT - 1);
    }
    for (int round = 0; round < 10; round++) {
        CHECK_OK((rank == 1 ? ddp_send(comm, values, COUNT, DDP_INT32, 2, NULL, err)
                            : ddp_recv(comm, values, COUNT, DDP_INT32, 1, NULL, err)));
        CHECK_OK((rank == 2 ? ddp_send(comm, values, COUNT, DDP_INT32, 1, NULL, err)
                            : ddp_recv(comm, values, COUNT, DDP_INT32, 2, NULL, err)));
    }
}

/* The connection must be there: rank 0 cannot send to a rank that is in no operation. */
static void leave_in_peace(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t first = 1;
    if (rank == 0)
        CHECK_OK(ddp_send(comm, &first, 1, DDP_INT32, 1, NULL, err));
    if (rank == 1)
        CHECK_OK(ddp_recv(comm, &first, 1, DDP_INT32, 0, NULL, err));
    leave_after_sending(world, rank, comm);
}

START_TEST(what_was_sent_arrives)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, leave_in_peace);
    world_close(&world);
}
END_TEST

static void finalize_requests(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { LARGE = 3 * 1000 * 1000 };
    int32_t *large = calloc(LARGE, sizeof *large);
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_REDUCE,
                                      .send = large,
                                      .recv = large,
                                      .count = LARGE,
                                      .dtype = DDP_INT32};
    struct ddp_error error;
    ddp_request *request, *refused;
    int done;
    CHECK(large != NULL);
    for (size_t i = 0; i < LARGE; i++)
        large[i] = (int32_t)i;
    CHECK_OK(ddp_start(comm, &operation, &request, err));
    CHECK_OK(ddp_comm_finalize(comm, 0, err));
    CHECK_OK(ddp_request_test(request, &done, err));
    CHECK(done == 1);
    for (size_t i = 0; i < LARGE; i++)
        CHECK(large[i] == (int32_t)(i * world->nranks));
    CHECK_OK(ddp_comm_finalize(comm, 0, err));
    CHECK(ddp_barrier(comm, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "has called ddp_comm_finalize(): only ddp_comm_destroy()") != NULL);
    CHECK(ddp_start(comm, &operation, &refused, &error) == DDP_E_INVALID && refused == NULL);
    CHECK_OK(ddp_comm_check(comm, err));
    ddp_request_free(request);
    free(large);
    (void)rank;
}

START_TEST(requests_are_waited_for)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, finalize_requests);
    world_close(&world);
}
END_TEST

/* Each rank receives from itself and, twice, from the next one, and sends to itself only. The
 * connections must be there: the next one may be gone already. */
static void finalize_receives(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { RECEIVES = 3 };
    const uint32_t next = (rank + 1) % world->nranks;
    const uint32_t peers[RECEIVES] = {rank, next, next};
    int32_t sent = 7, received[RECEIVES] = {0};
    ddp_request *requests[RECEIVES];
    CHECK_OK(ddp_send_recv(comm, &sent, 1, (rank + 2) % world->nranks, received, 1, next, DDP_INT32,
                           NULL, err));
    received[0] = 0;
    for (uint32_t i = 0; i < RECEIVES; i++) {
        struct ddp_operation operation = {.size = sizeof operation,
                                          .kind = DDP_KIND_RECV,
                                          .recv = &received[i],
                                          .count = 1,
                                          .dtype = DDP_INT32,
                                          .peer = peers[i],
                                          .tag = i};
        CHECK_OK(ddp_start(comm, &operation, &requests[i], err));
    }
    CHECK_OK(ddp_send(comm, &sent, 1, DDP_INT32, rank, NULL, err)); /* has tag 0 */
    CHECK_OK(ddp_comm_finalize(comm, 0, err));
    for (uint32_t i = 0; i < RECEIVES; i++) {
        struct ddp_error error = {0};
        int done = 0;
        ddp_status status = ddp_request_test(requests[i], &done, &error);
        CHECK(done == 1 && status == (i == 0 ? DDP_OK : DDP_E_CANCELED));
        CHECK(i == 0 || strstr(error.msg, "the message has not come") != NULL);
        ddp_request_free(requests[i]);
    }
    CHECK(received[0] == sent);
    CHECK_OK(ddp_comm_check(comm, err));
}

START_TEST(receives_without_a_message_are_canceled)
{
    struct world world = {.nranks = 3, .tcp = _i == 1, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, finalize_receives);
    world_close(&world);
}
END_TEST

/* Rank 1 does not receive, or dies. */
static void leave_too_much(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    int32_t first = 1;
    if (rank == 1) {
        CHECK_OK(ddp_recv(comm, &first, 1, DDP_INT32, 0, NULL, err));
        world_step(world, rank);
        while (atomic_load(world->counter) == 0)
            poll(NULL, 0, 10);
        return;
    }
    CHECK_OK(ddp_send(comm, &first, 1, DDP_INT32, 1, NULL, err));
    CHECK_OK(ddp_send(comm, values, COUNT, DDP_INT32, 1, NULL, err));
    world_step(world, rank);
    ddp_status status = ddp_comm_finalize(comm, world->stage, &error);
    world_report(world, rank, status, &error);
    atomic_fetch_add(world->counter, 1);
}

START_TEST(a_rank_that_takes_nothing_is_named)
{
    struct world world = {.nranks = 2, .stage = 500, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, leave_too_much);
    ck_assert_int_eq(world.reports[0].status, DDP_E_TIMEOUT);
    ck_assert_msg(strstr(world.reports[0].error.msg, "for rank 1 (pid") != NULL &&
                      strstr(world.reports[0].error.msg, "finalize") != NULL,
                  "%s", world.reports[0].error.msg);
    world_close(&world);
}
END_TEST

START_TEST(a_rank_that_dies_is_named)
{
    struct world world = {.nranks = 2, .stage = LONG_MS, .timeout_ms = LONG_MS};
    world_open(&world);
    world_start(&world, leave_too_much);
    world_await_steps(&world, 1, 1);
    world_await_steps(&world, 0, 1);
    world_kill_rank(&world, 1);
    world_await_failures(&world, 1);
    world_join_rank(&world, 0);
    ck_assert_int_eq(world.reports[0].status, DDP_E_PEER_DEAD);
    ck_assert_msg(strstr(world.reports[0].error.msg, "rank 1 (pid") != NULL, "%s",
                  world.reports[0].error.msg);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("leaving");
    TCase *tcase = tcase_create("leaving");
    add_sample(tcase, all_have_come, 0, 3 * 6);
    tcase_add_loop_test(tcase, all_that_are_missing_are_named, 0, 2 * ABSENCES);
    add_sample(tcase, another_barrier_is_named, 0, 3 * MIXTURES);
    tcase_add_loop_test(tcase, what_was_sent_arrives, 0, 2);
    tcase_add_loop_test(tcase, requests_are_waited_for, 0, 2);
    tcase_add_loop_test(tcase, receives_without_a_message_are_canceled, 0, 2);
    tcase_add_test(tcase, a_rank_that_takes_nothing_is_named);
    tcase_add_test(tcase, a_rank_that_dies_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
