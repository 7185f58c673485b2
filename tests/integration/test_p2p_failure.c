/*
 * test_p2p_failure.c - what ranks see that wait for a message, or for the way to another rank, when
 * a rank is killed, stopped, leaves, aborts or calls something else.
 */
#include "check_main.h"
#include "communicator.h"
#include "sockets.h"
#include "world.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    LARGE = 4 * 1000 * 1000, /* float32: more than sockets and shared memory take */
    LONG_MS = 60 * 1000,     /* for what is not to be found by a deadline, */
    STOP_TIMEOUT_MS = 8000,  /* and for what is, though the machine keep a rank from running */
    VICTIM = 2
};

static float *large_buffer(void)
{
    float *buffer = calloc(LARGE, sizeof *buffer);
    CHECK(buffer != NULL);
    return buffer;
}

static ddp_status receive(ddp_comm *comm, uint32_t from, struct ddp_error *error)
{
    float value;
    return ddp_recv(comm, &value, 1, DDP_FLOAT32, from, NULL, error);
}

/* ---- what the ranks do until the victim, rank 2 of 5, is gone; it has steps to report ---- */

/* The victim has met nobody but its neighbours in the ring, and calls nothing. */
static void all_wait_for_it(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    world_step(world, rank);
    if (rank == VICTIM)
        for (;;)
            pause();
    ddp_status status = receive(comm, VICTIM, &error);
    world_report(world, rank, status, &error);
}

/* One waits for it, for whom it is no neighbour; the others wait for that one, or for all. */
static void one_waits_for_it(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    world_step(world, rank);
    if (rank == VICTIM)
        for (;;)
            pause();
    ddp_status status = rank == 0   ? receive(comm, VICTIM, &error)
                        : rank == 3 ? receive(comm, 0, &error)
                                    : ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
}

/* Each waits for the next one, and the last for the victim. */
static void a_chain_waits_for_it(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const uint32_t next[] = {3, 4, VICTIM, 1, VICTIM};
    struct ddp_error error = {0};
    world_step(world, rank);
    if (rank == VICTIM)
        for (;;)
            pause();
    ddp_status status = receive(comm, next[rank], &error);
    world_report(world, rank, status, &error);
}

/* In the middle of large messages. */
static void it_sends(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float *buffer = large_buffer();
    struct ddp_error error = {0};
    ddp_status status;
    do {
        status = rank == VICTIM ? ddp_send(comm, buffer, LARGE, DDP_FLOAT32, 0, NULL, &error)
                 : rank == 0    ? ddp_recv(comm, buffer, LARGE, DDP_FLOAT32, VICTIM, NULL, &error)
                                : ddp_barrier(comm, NULL, &error);
        world_step(world, rank);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
    free(buffer);
}

static void it_receives(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float *buffer = large_buffer();
    struct ddp_error error = {0};
    ddp_status status;
    do {
        status = rank == VICTIM ? ddp_recv(comm, buffer, LARGE, DDP_FLOAT32, 4, NULL, &error)
                 : rank == 4    ? ddp_send(comm, buffer, LARGE, DDP_FLOAT32, VICTIM, NULL, &error)
                                : receive(comm, 4, &error);
        world_step(world, rank);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
    free(buffer);
}

/* Shifts and collectives in turn. */
static void all_go_on(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float out[30000], in[30000];
    struct ddp_error error = {0};
    ddp_status status;
    do {
        uint32_t distance = atomic_load(&world->reports[rank].steps) % 2 + 1;
        uint32_t to = (rank + distance) % world->nranks;
        uint32_t from = (rank + world->nranks - distance) % world->nranks;
        status = ddp_send(comm, out, 30000, DDP_FLOAT32, to, NULL, &error);
        if (status == DDP_OK)
            status = ddp_recv(comm, in, 30000, DDP_FLOAT32, from, NULL, &error);
        if (status == DDP_OK)
            status = ddp_all_reduce(comm, in, in, 30000, DDP_FLOAT32, DDP_MAX, NULL, &error);
        world_step(world, rank);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
    struct ddp_error again;
    CHECK(ddp_send(comm, out, 1, DDP_FLOAT32, (rank + 1) % world->nranks, NULL, &again) == status);
    CHECK(strcmp(again.msg, error.msg) == 0);
}

static const struct {
    rank_body *body;
    uint32_t steps; /* of the victim before it happens */
} phases[] = {
    {all_wait_for_it, 1}, {one_waits_for_it, 1}, {a_chain_waits_for_it, 1},
    {it_sends, 2},        {it_receives, 2},      {all_go_on, 20},
};
enum { PHASES = sizeof phases / sizeof *phases };

static void expect_report(const struct world *world, uint32_t rank, ddp_status status,
                          const char *text)
{
    const struct report *seen = &world->reports[rank];
    ck_assert_msg(seen->status == status, "rank %u: %s: %s", rank, ddp_status_name(seen->status),
                  seen->error.msg);
    ck_assert_msg(strstr(seen->error.msg, text) != NULL, "rank %u: %s", rank, seen->error.msg);
}

static void expect_blame(const struct world *world, ddp_status status)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        if (rank != VICTIM)
            expect_report(world, rank, status, "rank 2 (");
}

START_TEST(a_killed_rank_is_named_by_all)
{
    struct world world = {.nranks = 5, .tcp = _i >= PHASES, .timeout_ms = LONG_MS};
    world_open(&world);
    world_start(&world, phases[_i % PHASES].body);
    world_await_joined(&world);
    world_await_steps(&world, VICTIM, phases[_i % PHASES].steps);
    world_kill_rank(&world, VICTIM);
    world_join(&world);
    expect_blame(&world, DDP_E_PEER_DEAD);
    world_close(&world);
}
END_TEST

/* All of one transport at a time, as all that they do is to wait for their deadlines. */
START_TEST(a_stopped_rank_is_named_by_all)
{
    struct world worlds[PHASES];
    for (int i = 0; i < PHASES; i++) {
        worlds[i] = (struct world){.nranks = 5, .tcp = _i != 0, .timeout_ms = STOP_TIMEOUT_MS};
        world_open(&worlds[i]);
        world_start(&worlds[i], phases[i].body);
        world_await_steps(&worlds[i], VICTIM, phases[i].steps);
        kill(worlds[i].pids[VICTIM], SIGSTOP);
    }
    for (int i = 0; i < PHASES; i++) {
        world_await_failures(&worlds[i], VICTIM);
        world_kill_rank(&worlds[i], VICTIM);
        world_join(&worlds[i]);
        expect_blame(&worlds[i], DDP_E_TIMEOUT);
        world_close(&worlds[i]);
    }
}
END_TEST

/* It is stopped first, so that the others have connected and wait for its answer when it dies. */
START_TEST(a_rank_that_dies_before_it_answers_is_named)
{
    struct world world = {.nranks = 5, .tcp = _i >= 3, .timeout_ms = LONG_MS};
    world_open(&world);
    world_start(&world, phases[_i % 3].body);
    world_await_steps(&world, VICTIM, 1);
    kill(world.pids[VICTIM], SIGSTOP);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        world_await_steps(&world, rank, 1);
    poll(NULL, 0, 100); /* most have connected; those that have not are refused */
    world_kill_rank(&world, VICTIM);
    world_join(&world);
    expect_blame(&world, DDP_E_PEER_DEAD);
    world_close(&world);
}
END_TEST

/* ---- mismatch ---- */

static void call_something_else(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static double values[200];
    struct ddp_error error = {0};
    ddp_status status = DDP_OK;
    if (rank == 0)
        status = ddp_send(comm, values, 100, DDP_FLOAT32, 2, NULL, &error);
    if (rank == 2)
        status = ddp_recv(comm, values, world->stage == 0 ? 99 : 100,
                          world->stage == 0 ? DDP_FLOAT32 : DDP_INT32, 0, NULL, &error);
    if (status == DDP_OK) /* who has sent hears of it later */
        status = ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(a_mismatch_names_both_calls)
{
    struct world world = {.nranks = 4, .tcp = _i % 2 != 0, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_run(&world, call_something_else);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        expect_report(&world, rank, DDP_E_MISMATCH, "send #0 (100 float32 to rank 2)");
        expect_report(&world, rank, DDP_E_MISMATCH,
                      world.stage == 0 ? "recv #0 (99 float32 from rank 0)"
                                       : "recv #0 (100 int32 from rank 0)");
    }
    world_close(&world);
}
END_TEST

/* ---- two that wait for each other ---- */

static void both_send(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float *buffer = large_buffer();
    struct ddp_error error = {0};
    ddp_status status = ddp_send(comm, buffer, LARGE, DDP_FLOAT32, 1 - rank, NULL, &error);
    world_report(world, rank, status, &error);
    free(buffer);
}

static void expect_both_named(const struct world *world)
{
    char text[64];
    snprintf(text, sizeof text, "of %zu bytes had been sent", LARGE * sizeof(float));
    for (uint32_t rank = 0; rank < 2; rank++) {
        expect_report(world, rank, DDP_E_TIMEOUT, "send #0: rank ");
        expect_report(world, rank, DDP_E_TIMEOUT, "waits for others itself");
        expect_report(world, rank, DDP_E_TIMEOUT, "rank 0");
        expect_report(world, rank, DDP_E_TIMEOUT, "rank 1");
        expect_report(world, rank, DDP_E_TIMEOUT, text);
    }
}

START_TEST(both_sending_ends_with_the_timeout)
{
    struct world worlds[2];
    for (int i = 0; i < 2; i++) {
        worlds[i] = (struct world){.nranks = 2, .tcp = i != 0, .timeout_ms = STOP_TIMEOUT_MS};
        world_open(&worlds[i]);
        world_start(&worlds[i], both_send);
    }
    for (int i = 0; i < 2; i++) {
        world_join(&worlds[i]);
        expect_both_named(&worlds[i]);
        world_close(&worlds[i]);
    }
}
END_TEST

/* ---- abort, and those who leave ---- */

static void abort_a_wait(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    float value = 1;
    for (uint32_t to = 0; to < 2 && rank == 3; to++) /* after that there are connections */
        CHECK_OK(ddp_send(comm, &value, 1, DDP_FLOAT32, to, NULL, err));
    if (rank < 2)
        CHECK_OK(ddp_recv(comm, &value, 1, DDP_FLOAT32, 3, NULL, err));
    if (rank == 3) {
        while (atomic_load(world->counter) < 2)
            poll(NULL, 0, 10);
        ddp_comm_abort(comm);
    }
    atomic_fetch_add(world->counter, rank < 2);
    ddp_status status = rank < 2 ? receive(comm, 3, &error) : ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(abort_reaches_who_waits_for_a_message)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, abort_a_wait);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        expect_report(&world, rank, DDP_E_ABORTED, "rank 3 called ddp_comm_abort()");
    world_close(&world);
}
END_TEST

static void send_to_one_that_has_left(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float value = 1;
    struct ddp_error error = {0};
    if (rank == VICTIM)
        CHECK_OK(ddp_recv(comm, &value, 1, DDP_FLOAT32, 0, NULL, err));
    if (rank != 0)
        return;
    CHECK_OK(ddp_send(comm, &value, 1, DDP_FLOAT32, VICTIM, NULL, err));
    ddp_status status;
    do { /* there is room for many, but nobody to take them */
        status = ddp_send(comm, &value, 1, DDP_FLOAT32, VICTIM, NULL, &error);
        poll(NULL, 0, 1);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
}

START_TEST(sending_to_one_that_has_left_fails)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, send_to_one_that_has_left);
    expect_report(&world, 0, DDP_E_PEER_DEAD, "has left the communicator");
    expect_report(&world, 0, DDP_E_PEER_DEAD, "rank 2 (");
    world_close(&world);
}
END_TEST

/* ---- strangers ---- */

/* Rank 0 shows its card, in place of a sentence. */
static void meet_late(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float value = 0;
    if (rank == 0)
        memcpy(world->reports[0].error.msg, ddpi_meeting_slot(&comm->edges.meeting, 0),
               DDPI_CARD_SLOT);
    world_step(world, rank);
    while (rank != 0 && atomic_load(world->counter) == 0)
        poll(NULL, 0, 10);
    for (uint32_t other = 1; other < world->nranks; other++) {
        if (rank == 0)
            CHECK_OK(ddp_recv(comm, &value, 1, DDP_FLOAT32, other, NULL, err));
        if (rank == other)
            CHECK_OK(ddp_send(comm, &value, 1, DDP_FLOAT32, 0, NULL, err));
    }
}

/* More than there are places for, and most of them say nothing. */
START_TEST(strangers_do_not_keep_anybody_out)
{
    enum { STRANGERS = 60 };
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_start(&world, meet_late);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        world_await_steps(&world, rank, 1);
    struct ddpi_card card;
    ck_assert(ddpi_card_get((const uint8_t *)world.reports[0].error.msg, &card));
    int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        int error =
            world.tcp ? ddpi_begin_tcp(&card.tcp, &fds[i]) : ddpi_begin_local(card.local, &fds[i]);
        ck_assert(error == 0 || error == EINPROGRESS);
        ck_assert_int_eq(poll(&(struct pollfd){.fd = fds[i], .events = POLLOUT}, 1, -1), 1);
        char noise[100] = "GET / HTTP/1.1";
        if (i % 10 == 1) /* a piece of a greeting, or a whole one without the token */
            ck_assert_int_gt(write(fds[i], noise, i % 20 == 1 ? 10 : sizeof noise), 0);
    }
    atomic_store(world.counter, 1);
    world_join(&world);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("p2p failure");
    TCase *tcase = tcase_create("victims");
    add_sample(tcase, a_killed_rank_is_named_by_all, 0, 2 * PHASES);
    tcase_add_loop_test(tcase, a_stopped_rank_is_named_by_all, 0, 2);
    tcase_add_loop_test(tcase, a_rank_that_dies_before_it_answers_is_named, 0, 6);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("others");
    tcase_add_loop_test(tcase, a_mismatch_names_both_calls, 0, 4);
    tcase_add_test(tcase, both_sending_ends_with_the_timeout);
    tcase_add_loop_test(tcase, abort_reaches_who_waits_for_a_message, 0, 2);
    tcase_add_loop_test(tcase, sending_to_one_that_has_left_fails, 0, 2);
    tcase_add_loop_test(tcase, strangers_do_not_keep_anybody_out, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
