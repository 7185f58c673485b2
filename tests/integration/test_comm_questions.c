/*
 * test_comm_questions.c - what a program may ask a communicator, and which of it any thread may ask
 * while another one is in an operation: the failure, the timeout, the number of the latest
 * collective, the version.
 */
#include "check_main.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

enum { RANKS = 2, CALLS = 200 };

/* A thread that is in a barrier, alone. */
struct waiting {
    ddp_comm *comm;
    ddp_status status;
    struct ddp_error error;
};

static void *wait_alone(void *arg)
{
    struct waiting *waiting = arg;
    waiting->status = ddp_barrier(waiting->comm, NULL, &waiting->error);
    return NULL;
}

/* The thread that runs the operation and the one that asks see the same first cause. */
START_TEST(another_thread_sees_the_failure)
{
    ddp_comm *comms[RANKS];
    struct waiting waiting;
    struct ddp_error error;
    pthread_t thread;
    bool aborts = _i != 0;
    CHECK_OK(ddp_comm_init_local(RANKS, NULL, comms, err));
    waiting = (struct waiting){.comm = comms[0]};
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_alone, &waiting), 0);
    CHECK_OK(ddp_comm_check(comms[0], err));
    if (aborts)
        ddp_comm_abort(comms[0]);
    else
        ddp_comm_destroy(comms[1]);
    ddp_status status = ddp_comm_check(comms[0], &error);
    while (status == DDP_OK)
        status = ddp_comm_check(comms[0], &error);
    pthread_join(thread, NULL);
    ck_assert_int_eq(status, aborts ? DDP_E_ABORTED : DDP_E_PEER_DEAD);
    ck_assert_int_eq(waiting.status, status);
    ck_assert_str_eq(waiting.error.msg, error.msg);
    ck_assert_int_eq(ddp_comm_check(comms[0], &error), status);
    ck_assert_str_eq(waiting.error.msg, error.msg);
    if (aborts)
        ddp_comm_destroy(comms[1]);
    ddp_comm_destroy(comms[0]);
}
END_TEST

static void *ask_until_failure(void *arg)
{
    struct waiting *waiting = arg;
    while ((waiting->status = ddp_comm_check(waiting->comm, &waiting->error)) == DDP_OK)
        CHECK_OK(ddp_comm_set_timeout(waiting->comm, 30000, err));
    return NULL;
}

/* An abort and another failure at the same time: whatever is told first stays. */
START_TEST(the_first_cause_stays)
{
    for (int i = 0; i < CALLS / sample_stride(); i++) {
        ddp_comm *comms[RANKS];
        struct ddp_error error;
        pthread_t threads[2];
        CHECK_OK(ddp_comm_init_local(RANKS, NULL, comms, err));
        struct waiting asking = {.comm = comms[0]}, waiting = asking;
        ck_assert_int_eq(pthread_create(&threads[0], NULL, ask_until_failure, &asking), 0);
        ck_assert_int_eq(pthread_create(&threads[1], NULL, wait_alone, &waiting), 0);
        ddp_comm_destroy(comms[1]);
        ddp_comm_abort(comms[0]);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        ck_assert_int_eq(asking.status, waiting.status);
        ck_assert_str_eq(asking.error.msg, waiting.error.msg);
        ck_assert_int_eq(ddp_comm_check(comms[0], &error), asking.status);
        ck_assert_str_eq(error.msg, asking.error.msg);
        ddp_comm_destroy(comms[0]);
    }
}
END_TEST

static uint64_t latest(const ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats.seq;
}

static void count_collectives(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t value = rank, peer = 1 - rank;
    CHECK(latest(comm) == 0);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK(latest(comm) == 1);
    if (rank == 0)
        CHECK_OK(ddp_send(comm, &value, 1, DDP_INT32, peer, NULL, err));
    else
        CHECK_OK(ddp_recv(comm, &value, 1, DDP_INT32, peer, NULL, err));
    CHECK(latest(comm) == 1);
    CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(latest(comm) == 2);
    if (rank != 0)
        return;
    /* The sentence of a failure has the number. */
    struct ddp_error error;
    CHECK_OK(ddp_comm_set_timeout(comm, 200, err));
    CHECK(ddp_barrier(comm, NULL, &error) != DDP_OK);
    CHECK(latest(comm) == 3 && strstr(error.msg, "barrier") != NULL);
    (void)world;
}

START_TEST(collectives_are_counted)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, count_collectives);
    world_close(&world);
    ddp_comm *alone;
    const struct ddp_comm_options options = {.size = sizeof options, .world_size = 1};
    CHECK_OK(ddp_comm_init(&options, &alone, err));
    ck_assert_uint_eq(latest(alone), 0);
    CHECK_OK(ddp_barrier(alone, NULL, err));
    ck_assert_uint_eq(latest(alone), 1);
    ddp_comm_destroy(alone);
}
END_TEST

START_TEST(a_timeout_can_be_changed)
{
    ddp_comm *comms[RANKS];
    struct ddp_error error;
    CHECK_OK(ddp_comm_init_local(RANKS, NULL, comms, err));
    ck_assert_uint_eq(ddp_comm_get_timeout(comms[0]), 600000);
    ck_assert_int_eq(ddp_comm_set_timeout(comms[0], 0, &error), DDP_E_INVALID);
    ck_assert_uint_eq(ddp_comm_get_timeout(comms[0]), 600000);
    CHECK_OK(ddp_comm_set_timeout(comms[0], 250, err));
    ck_assert_uint_eq(ddp_comm_get_timeout(comms[0]), 250);
    ck_assert_int_eq(ddp_barrier(comms[0], NULL, &error), DDP_E_TIMEOUT); /* rank 1 never comes */
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ddp_comm_destroy(comms[rank]);
}
END_TEST

START_TEST(the_library_tells_its_version)
{
    unsigned major, minor, patch;
    char text[32];
    uint32_t number = ddp_version_number();
    major = number / 10000, minor = number / 100 % 100, patch = number % 100;
    snprintf(text, sizeof text, "%u.%u.%u", major, minor, patch);
    ck_assert_str_eq(ddp_version(), text);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm questions");
    TCase *tcase = tcase_create("questions");
    tcase_add_loop_test(tcase, another_thread_sees_the_failure, 0, 2);
    ADD_TESTS(tcase, the_first_cause_stays, collectives_are_counted, a_timeout_can_be_changed,
              the_library_tells_its_version);
    suite_add_tcase(suite, tcase);
    return suite;
}
