/*
 * test_comm_local.c - a world within one process, a thread for each rank: all that ranks can do,
 * and what the others see when one of them leaves or aborts.
 */
#include "check_main.h"
#include "communicator.h"
#include "descriptors.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

enum { RANKS_MAX = 8, COUNT = 100 * 1000 + 7 };

struct seat {
    ddp_comm *comm;
    void (*body)(struct seat *);
    pthread_t thread;
    ddp_status status;
    struct ddp_error error;
};

static void *sit(void *arg)
{
    struct seat *seat = arg;
    seat->body(seat);
    return NULL;
}

/* Every rank runs @body in its thread; then all are destroyed, and nothing is left. */
static void run_world(uint32_t nranks, void (*body)(struct seat *), struct seat *seats)
{
    unsigned before = open_descriptors();
    ddp_comm *comms[RANKS_MAX];
    CHECK_OK(ddp_comm_init_local(nranks, NULL, comms, err));
    for (uint32_t rank = 0; rank < nranks; rank++) {
        seats[rank] = (struct seat){.comm = comms[rank], .body = body};
        ck_assert_int_eq(pthread_create(&seats[rank].thread, NULL, sit, &seats[rank]), 0);
    }
    for (uint32_t rank = 0; rank < nranks; rank++)
        pthread_join(seats[rank].thread, NULL);
    for (uint32_t rank = 0; rank < nranks; rank++)
        ddp_comm_destroy(seats[rank].comm);
    ck_assert_uint_eq(open_descriptors(), before);
}

static void check_all_reduce(ddp_comm *comm)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    int32_t *values = malloc(COUNT * sizeof *values);
    CHECK(values != NULL);
    for (int32_t i = 0; i < COUNT; i++)
        values[i] = i + (int32_t)rank;
    CHECK_OK(ddp_all_reduce(comm, values, values, COUNT, DDP_INT32, DDP_SUM, NULL, err));
    int32_t ranks = (int32_t)(nranks * (nranks - 1) / 2), wrong = 0;
    for (int32_t i = 0; i < COUNT; i++)
        wrong += values[i] != i * (int32_t)nranks + ranks;
    CHECK(wrong == 0);
    free(values);
}

static void check_broadcasts(ddp_comm *comm)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    static const size_t count = COUNT;
    uint32_t *values = malloc(count * sizeof *values);
    CHECK(values != NULL);
    for (uint32_t root = 0; root < nranks; root++) {
        for (size_t i = 0; i < count; i++)
            values[i] = rank == root ? (uint32_t)i + root : 0;
        CHECK_OK(ddp_broadcast(comm, values, count, DDP_INT32, root, NULL, err));
        size_t wrong = 0;
        for (size_t i = 0; i < count; i++)
            wrong += values[i] != i + root;
        CHECK(wrong == 0);
    }
    free(values);
}

static void check_parts(ddp_comm *comm)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    int32_t parts[RANKS_MAX], mine = (int32_t)rank, sum = -1;
    CHECK_OK(ddp_all_gather(comm, &mine, parts, 1, DDP_INT32, NULL, err));
    for (uint32_t i = 0; i < nranks; i++)
        CHECK(parts[i] == (int32_t)i);
    CHECK_OK(ddp_reduce_scatter(comm, parts, &sum, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(sum == (int32_t)(rank * nranks));
    for (uint32_t root = 0; root < nranks; root++) {
        CHECK_OK(ddp_reduce(comm, &mine, &sum, 1, DDP_INT32, DDP_MAX, root, NULL, err));
        CHECK(rank != root || sum == (int32_t)nranks - 1);
    }
}

static void check_messages(ddp_comm *comm)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    for (uint32_t i = 1; i < nranks; i++) {
        uint64_t value = rank;
        CHECK_OK(ddp_send(comm, &value, 1, DDP_INT64, (rank + i) % nranks, NULL, err));
    }
    for (uint32_t i = 1; i < nranks; i++) {
        uint64_t value = UINT64_MAX;
        CHECK_OK(ddp_recv(comm, &value, 1, DDP_INT64, (rank + i) % nranks, NULL, err));
        CHECK(value == (rank + i) % nranks);
    }
}

static void everything(struct seat *seat)
{
    for (int turn = 0; turn < 3; turn++) {
        check_all_reduce(seat->comm);
        check_messages(seat->comm);
        check_broadcasts(seat->comm);
        check_parts(seat->comm);
        CHECK_OK(ddp_barrier(seat->comm, NULL, err));
    }
    CHECK_OK(ddp_comm_check(seat->comm, err));
}

START_TEST(threads_do_all_that_processes_do)
{
    struct seat seats[RANKS_MAX];
    run_world(1U << _i, everything, seats);
}
END_TEST

START_TEST(devices_are_kept)
{
    static const int devices[] = {3, 0, 3};
    ddp_comm *comms[3];
    CHECK_OK(ddp_comm_init_local(3, devices, comms, err));
    for (uint32_t rank = 0; rank < 3; rank++) {
        ck_assert_uint_eq(ddp_comm_rank(comms[rank]), rank);
        ck_assert_uint_eq(ddp_comm_world_size(comms[rank]), 3);
        ck_assert_int_eq(comms[rank]->device, devices[rank]);
        ddp_comm_destroy(comms[rank]);
    }
}
END_TEST

START_TEST(invalid_worlds)
{
    ddp_comm *comms[1] = {NULL};
    struct ddp_error error;
    ck_assert_int_eq(ddp_comm_init_local(0, NULL, comms, &error), DDP_E_INVALID);
    ck_assert_int_eq(ddp_comm_init_local(257, NULL, comms, &error), DDP_E_INVALID);
    ck_assert_int_eq(ddp_comm_init_local(1, (const int[]){-2}, comms, &error), DDP_E_INVALID);
    ck_assert_str_eq(error.msg, "-2 is not a device");
    ck_assert_ptr_null(comms[0]);
}
END_TEST

static ddp_status reduce_until_failure(struct seat *seat)
{
    float value = 1;
    do {
        seat->status =
            ddp_all_reduce(seat->comm, &value, &value, 1, DDP_FLOAT32, DDP_MAX, NULL, &seat->error);
    } while (seat->status == DDP_OK);
    return seat->status;
}

static void leave_early(struct seat *seat)
{
    if (ddp_comm_rank(seat->comm) != 1) {
        reduce_until_failure(seat);
        return;
    }
    float value = 1;
    for (int i = 0; i < 10; i++)
        CHECK_OK(ddp_all_reduce(seat->comm, &value, &value, 1, DDP_FLOAT32, DDP_MAX, NULL, err));
    ddp_comm_destroy(seat->comm);
    seat->comm = NULL;
}

static void leave_unmet(struct seat *seat)
{
    uint32_t value = 0;
    if (ddp_comm_rank(seat->comm) == 3) { /* no neighbour of rank 1; it has not met it before */
        seat->status = ddp_recv(seat->comm, &value, 1, DDP_INT32, 1, NULL, &seat->error);
    } else if (ddp_comm_rank(seat->comm) == 1) {
        ddp_comm_destroy(seat->comm);
        seat->comm = NULL;
    } else {
        seat->status = ddp_barrier(seat->comm, NULL, &seat->error);
    }
}

START_TEST(who_leaves_is_named)
{
    struct seat seats[RANKS_MAX];
    run_world(4, _i == 0 ? leave_early : leave_unmet, seats);
    for (uint32_t rank = 0; rank < 4; rank++) {
        if (rank == 1)
            continue;
        ck_assert_int_eq(seats[rank].status, DDP_E_PEER_DEAD);
        ck_assert_msg(strstr(seats[rank].error.msg, "rank 1 (") != NULL &&
                          strstr(seats[rank].error.msg, "left the communicator") != NULL,
                      "rank %u: %s", rank, seats[rank].error.msg);
    }
}
END_TEST

static void one_aborts(struct seat *seat)
{
    uint32_t rank = ddp_comm_rank(seat->comm), value;
    if (rank == 2)
        ddp_comm_abort(seat->comm);
    if (rank == 0) /* waits for somebody who never calls */
        seat->status = ddp_recv(seat->comm, &value, 1, DDP_INT32, 2, NULL, &seat->error);
    else
        reduce_until_failure(seat);
}

START_TEST(abort_reaches_all_threads)
{
    struct seat seats[RANKS_MAX];
    run_world(4, one_aborts, seats);
    for (uint32_t rank = 0; rank < 4; rank++) {
        ck_assert_int_eq(seats[rank].status, DDP_E_ABORTED);
        ck_assert_str_eq(seats[rank].error.msg, "rank 2 called ddp_comm_abort()");
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm local");
    TCase *tcase = tcase_create("threads");
    tcase_add_loop_test(tcase, threads_do_all_that_processes_do, 0, 4);
    tcase_add_test(tcase, devices_are_kept);
    tcase_add_test(tcase, invalid_worlds);
    tcase_add_loop_test(tcase, who_leaves_is_named, 0, 2);
    tcase_add_test(tcase, abort_reaches_all_threads);
    suite_add_tcase(suite, tcase);
    return suite;
}
