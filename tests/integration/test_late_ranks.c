/*
 * test_late_ranks.c - a rank that comes late to an operation: it succeeds as all others do, if it
 * comes before their deadline; if another rank has failed in the operation, it fails, too.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/comm_requests.h>
#include <poll.h>
#include <string.h>

enum {
    RANKS = 4,
    LATE = 2,      /* this one is late */
    COUNT = 65536, /* more than fits into a socket, or into one piece of shared memory */
    FEW = 4,
    LONG_MS = 60 * 1000,
    SHORT_MS = 200,
};

static float values[RANKS * COUNT], results[RANKS * COUNT];

static ddp_status call_barrier(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_barrier(comm, NULL, err);
}

static ddp_status call_monitored(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_monitored_barrier(comm, 0, err);
}

static ddp_status call_all_reduce(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, results, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_few(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, results, FEW, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_list(ddp_comm *comm, struct ddp_error *err)
{
    const struct ddp_buffer list[] = {
        {.send = values, .recv = results, .count = FEW},
        {.send = values + FEW, .recv = results + FEW, .count = COUNT}};
    return ddp_all_reduce_many(comm, list, 2, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_reduce(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_reduce(comm, values, results, FEW, DDP_FLOAT32, DDP_SUM, 1, NULL, err);
}

static ddp_status call_broadcast(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_broadcast(comm, values, FEW, DDP_FLOAT32, LATE, NULL, err);
}

static ddp_status call_all_gather(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_gather(comm, values, results, FEW, DDP_FLOAT32, NULL, err);
}

static ddp_status call_reduce_scatter(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_reduce_scatter(comm, values, results, FEW, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_gather(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_gather(comm, values, results, FEW, DDP_FLOAT32, 1, NULL, err);
}

static ddp_status call_scatter(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_scatter(comm, values, results, FEW, DDP_FLOAT32, LATE, NULL, err);
}

static ddp_status call_all_to_all(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_to_all(comm, values, results, COUNT, DDP_FLOAT32, NULL, err);
}

static ddp_status (*const calls[])(ddp_comm *comm, struct ddp_error *err) = {
    call_barrier, call_monitored, call_few,        call_all_reduce,
    call_list,    call_reduce,    call_broadcast,  call_all_gather,
    call_gather,  call_scatter,   call_all_to_all, call_reduce_scatter,
};

static const struct {
    bool tcp;
    ddp_algorithm algorithm;
    const char *hosts;
} ways[] = {
    {false, DDP_ALGORITHM_AUTO, NULL},
    {false, DDP_ALGORITHM_RING, NULL},
    {true, DDP_ALGORITHM_AUTO, NULL},
    {true, DDP_ALGORITHM_RING, NULL},
    {true, DDP_ALGORITHM_DOUBLING, NULL},
    {true, DDP_ALGORITHM_DIRECT, NULL},
    {false, DDP_ALGORITHM_HIERARCHICAL, "aabb"},
    {false, DDP_ALGORITHM_AUTO, "aaab"},
};

enum { CALLS = sizeof calls / sizeof *calls, WAYS = sizeof ways / sizeof *ways };

/* The test's number counts (way, call). */
static struct world world_of(int i)
{
    uint32_t way = (uint32_t)i / CALLS;
    return (struct world){.nranks = RANKS,
                          .stage = (uint32_t)i % CALLS,
                          .timeout_ms = LONG_MS,
                          .tcp = ways[way].tcp,
                          .algorithm = ways[way].algorithm,
                          .hosts = ways[way].hosts};
}

static void run_late_world(int i, rank_body *body)
{
    struct world world = world_of(i);
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

/* ---- in time ---- */

static bool have_begun(const struct world *world)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != LATE && atomic_load(&world->reports[rank].steps) == 0)
            return false;
    return true;
}

static void come_in_time(struct world *world, uint32_t rank, ddp_comm *comm)
{
    world_step(world, rank);
    while (rank == LATE && !have_begun(world))
        poll(NULL, 0, 1);
    CHECK_OK(calls[world->stage](comm, err));
    CHECK_OK(calls[world->stage](comm, err));
}

START_TEST(who_comes_in_time_succeeds)
{
    run_late_world(_i, come_in_time);
}
END_TEST

/* ---- after a failure ---- */

/* The calls of all others have ended, so each has told its neighbours how. */
static bool have_ended(const struct world *world)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != LATE && atomic_load(&world->reports[rank].at_us) == 0)
            return false;
    return true;
}

static bool one_has_failed(const struct world *world)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != LATE && world->reports[rank].status != DDP_OK)
            return true;
    return false;
}

/* All have made the call before, so they are connected. A rank that needs nothing of the late one
 * may succeed; then the call after that fails. */
static void come_after_a_failure(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    CHECK_OK(calls[world->stage](comm, err));
    if (rank != LATE)
        CHECK_OK(ddp_comm_set_timeout(comm, SHORT_MS, err));
    while (rank == LATE && !have_ended(world))
        poll(NULL, 0, 1);
    CHECK(rank != LATE || one_has_failed(world));
    ddp_status status = calls[world->stage](comm, &error);
    if (rank == LATE)
        world_expect(status, &error, DDP_E_TIMEOUT, "has waited");
    world_report(world, rank, status, &error);
    CHECK(status == DDP_OK || status == DDP_E_TIMEOUT);
    CHECK(ddp_barrier(comm, NULL, &error) == DDP_E_TIMEOUT);
}

START_TEST(who_comes_after_a_failure_fails)
{
    run_late_world(_i, come_after_a_failure);
}
END_TEST

/* ---- at the deadline ---- */

/* Whether it succeeds is open, but each rank's call ends. */
static void come_at_the_deadline(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    CHECK_OK(calls[world->stage](comm, err));
    CHECK_OK(ddp_comm_set_timeout(comm, SHORT_MS, err));
    if (rank == LATE)
        poll(NULL, 0, SHORT_MS - 20 + (int)(now_us() % 40));
    ddp_status status = calls[world->stage](comm, &error);
    CHECK(status == DDP_OK || status == DDP_E_TIMEOUT);
    world_report(world, rank, status, &error);
}

/* In a monitored barrier nobody succeeds unless rank 0 has. */
START_TEST(who_comes_at_the_deadline_does_not_hang)
{
    struct world world = world_of(_i);
    world_open(&world);
    world_run(&world, come_at_the_deadline);
    for (uint32_t rank = 0; rank < RANKS && calls[world.stage] == call_monitored; rank++)
        ck_assert(world.reports[rank].status != DDP_OK || world.reports[0].status == DDP_OK);
    world_close(&world);
}
END_TEST

/* ---- who only polls ---- */

/* Each rank begins a request and only tests it; one rank never comes. */
static void poll_only(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = values,
                                            .recv = results,
                                            .count = FEW,
                                            .dtype = DDP_FLOAT32,
                                            .timeout_ms = SHORT_MS};
    struct ddp_error error = {0};
    ddp_request *request;
    int done = 0;
    CHECK_OK(call_few(comm, err));
    ddp_status status = DDP_OK;
    if (rank != LATE) {
        CHECK_OK(ddp_start(comm, &operation, &request, err));
        while (done == 0)
            status = ddp_request_test(request, &done, &error);
        world_expect(status, &error, DDP_E_TIMEOUT, "has waited");
        ddp_request_free(request);
    }
    world_report(world, rank, status, &error);
    while (rank == LATE && !have_ended(world))
        poll(NULL, 0, 1);
}

START_TEST(who_only_tests_a_request_sees_its_deadline)
{
    struct world world = world_of(_i * CALLS);
    world_open(&world);
    world_run(&world, poll_only);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("late ranks");
    TCase *tcase = tcase_create("late");
    add_sample(tcase, who_comes_in_time_succeeds, 0, WAYS * CALLS);
    add_sample(tcase, who_comes_after_a_failure_fails, 0, WAYS * CALLS);
    add_sample(tcase, who_comes_at_the_deadline_does_not_hang, 0, WAYS * CALLS);
    tcase_add_loop_test(tcase, who_only_tests_a_request_sees_its_deadline, 0, WAYS);
    suite_add_tcase(suite, tcase);
    return suite;
}
