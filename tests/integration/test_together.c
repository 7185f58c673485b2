/*
 * test_together.c - calls that begin together: groups, and a message in each direction. Ranks call
 * them in orders that would wait for each other one by one. Each test runs over shared memory and
 * over TCP.
 */
#include "check_main.h"
#include "world.h"

#include <pthread.h>
#include <unistd.h>

enum {
    BIG = 2 * 1024 * 1024,   /* elements: 8 MB */
    VAST = 16 * 1024 * 1024, /* more than any edge holds */
    SMALL = 1009,
    ORDERS = 4,
};

static void run_ranks(int tcp, uint32_t nranks, uint32_t stage, rank_body *body)
{
    struct world world = {.nranks = nranks, .tcp = tcp != 0, .stage = stage};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

static void send_to(ddp_comm *comm, const int32_t *values, size_t count, uint32_t peer)
{
    CHECK_OK(ddp_send(comm, values, count, DDP_INT32, peer, NULL, err));
}

static void receive_from(ddp_comm *comm, int32_t *values, size_t count, uint32_t peer)
{
    CHECK_OK(ddp_recv(comm, values, count, DDP_INT32, peer, NULL, err));
}

static void open_group(ddp_comm *comm)
{
    CHECK_OK(ddp_group_start(comm, err));
}

static void close_group(ddp_comm *comm)
{
    CHECK_OK(ddp_group_end(comm, err));
}

static void sum_all(ddp_comm *comm, int32_t *values, size_t count)
{
    CHECK_OK(ddp_all_reduce(comm, values, values, count, DDP_INT32, DDP_SUM, NULL, err));
}

/* ---- what arrives ---- */

/* Bit r of the stage: rank r receives first. */
static void big_messages(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t peer = 1 - rank;
    int32_t *out = world_filled(BIG, (int32_t)rank), *in = world_filled(BIG, -1);
    open_group(comm);
    if ((world->stage >> rank & 1) != 0)
        receive_from(comm, in, BIG, peer);
    send_to(comm, out, BIG, peer);
    if ((world->stage >> rank & 1) == 0)
        receive_from(comm, in, BIG, peer);
    CHECK(in[0] == -1);
    close_group(comm);
    world_check_filled(in, BIG, (int32_t)peer);
    free(out);
    free(in);
}

START_TEST(two_ranks_in_every_order)
{
    run_ranks(_i % 2, 2, (uint32_t)_i / 2, big_messages);
}
END_TEST

/* Each rank begins with another peer. */
static void all_pairs(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks;
    int32_t *out = world_filled(VAST / 16, (int32_t)rank), *in[WORLD_MAX];
    open_group(comm);
    for (uint32_t i = 1; i < n; i++)
        send_to(comm, out, VAST / 16, (rank + i) % n);
    for (uint32_t i = 1; i < n; i++) {
        in[i] = world_filled(VAST / 16, -1);
        receive_from(comm, in[i], VAST / 16, (rank + i) % n);
    }
    close_group(comm);
    for (uint32_t i = 1; i < n; i++) {
        world_check_filled(in[i], VAST / 16, (int32_t)((rank + i) % n));
        free(in[i]);
    }
    free(out);
}

START_TEST(every_rank_sends_to_all_first)
{
    run_ranks(_i % 2, 4, 0, all_pairs);
}
END_TEST

static void shift_ring(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks, next = (rank + 1) % n, previous = (rank + n - 1) % n;
    for (size_t count = 0; count <= BIG; count = count * 40 + 1) {
        int32_t *out = world_filled(count + 1, (int32_t)rank), *in = world_filled(count + 1, -1);
        CHECK_OK(ddp_send_recv(comm, out, count, next, in, count, previous, DDP_INT32, NULL, err));
        world_check_filled(in, count, (int32_t)previous);
        CHECK(in[count] == -1 + (int32_t)count);
        free(out);
        free(in);
    }
}

START_TEST(send_recv_shifts_a_ring)
{
    run_ranks(_i % 2, _i / 2 == 0 ? 4 : 2, 0, shift_ring);
}
END_TEST

/* Of different lengths in both directions, and to this rank itself. */
static void odd_pairs(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t peer = rank ^ 1;
    size_t ours = rank % 2 == 0 ? BIG : 3, theirs = rank % 2 == 0 ? 3 : BIG;
    (void)world;
    int32_t *out = world_filled(BIG, (int32_t)rank), *in = world_filled(BIG, -1);
    CHECK_OK(ddp_send_recv(comm, out, ours, peer, in, theirs, peer, DDP_INT32, NULL, err));
    world_check_filled(in, theirs, (int32_t)peer);
    CHECK_OK(ddp_send_recv(comm, out, BIG, rank, in, BIG, rank, DDP_INT32, NULL, err));
    world_check_filled(in, BIG, (int32_t)rank);
    free(out);
    free(in);
}

START_TEST(send_recv_of_two_lengths_and_to_oneself)
{
    run_ranks(_i, 2, 0, odd_pairs);
}
END_TEST

/* Collectives keep their order, messages may be anywhere between them, and groups nest. */
static void mixed(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks, next = (rank + 1) % n, previous = (rank + n - 1) % n;
    int32_t *out = world_filled(BIG, (int32_t)rank), *in = world_filled(BIG, -1), first = 1,
            second = 2;
    int32_t *sums = world_filled(SMALL, (int32_t)rank), gathered[WORLD_MAX], own = (int32_t)rank;
    open_group(comm);
    sum_all(comm, &first, 1);
    if (rank % 2 == 0)
        send_to(comm, out, BIG, next);
    open_group(comm);
    sum_all(comm, sums, SMALL);
    CHECK_OK(ddp_broadcast(comm, &first, 1, DDP_INT32, 0, NULL, err));
    CHECK_OK(ddp_all_gather(comm, &own, gathered, 1, DDP_INT32, NULL, err));
    close_group(comm);
    CHECK(first == 1);
    if (rank % 2 != 0)
        send_to(comm, out, BIG, next);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK_OK(ddp_monitored_barrier(comm, 0, err));
    sum_all(comm, &second, 1);
    receive_from(comm, in, BIG, previous);
    close_group(comm);
    CHECK(first == (int32_t)n && second == 2 * (int32_t)n);
    world_check_filled(in, BIG, (int32_t)previous);
    for (size_t i = 0; i < SMALL; i++)
        CHECK(sums[i] == (int32_t)(n * (n - 1) / 2 + n * i));
    for (uint32_t i = 0; i < n; i++)
        CHECK(gathered[i] == (int32_t)i);
    free(out);
    free(in);
    free(sums);
}

START_TEST(collectives_and_messages)
{
    run_ranks(_i % 2, 2 + (uint32_t)_i / 2, 0, mixed);
}
END_TEST

/* The operation of ddp_run() with its tag and its timeout, and a receive from any rank. */
static void tagged(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t values[2] = {10, 20}, got[2] = {0, 0};
    uint32_t source = 99;
    (void)world;
    open_group(comm);
    for (uint32_t i = 0; i < 2 && rank == 1; i++) {
        struct ddp_operation send = {.size = sizeof send,
                                     .kind = DDP_KIND_SEND,
                                     .send = &values[i],
                                     .count = 1,
                                     .dtype = DDP_INT32,
                                     .tag = i};
        CHECK_OK(ddp_run(comm, &send, err));
    }
    if (rank == 0) {
        CHECK_OK(ddp_recv_any(comm, &got[1], 1, DDP_INT32, 1, &source, err));
        receive_from(comm, &got[0], 1, 1);
    }
    CHECK(source == 99);
    close_group(comm);
    CHECK(rank == 1 || (got[0] == 10 && got[1] == 20 && source == 1));
}

START_TEST(tags_and_any_rank)
{
    run_ranks(_i, 2, 0, tagged);
}
END_TEST

/* ---- what is refused ---- */

static void refusals(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    ddp_comm *other;
    int32_t value = 1, sum = 1;
    (void)world;
    world_expect(ddp_group_end(comm, &error), &error, DDP_E_INVALID,
                 "call ddp_group_start() first");
    open_group(comm);
    sum_all(comm, &sum, 1);
    world_expect(ddp_send(comm, &value, 1, DDP_INT32, 7, NULL, &error), &error, DDP_E_INVALID,
                 "rank 7 does not exist");
    world_expect(ddp_send_recv(comm, &value, 1, 1 - rank, &value, 1, 7, DDP_INT32, NULL, &error),
                 &error, DDP_E_INVALID, "rank 7 does not exist");
    world_expect(ddp_comm_split(comm, 0, 0, &other, &error), &error, DDP_E_INVALID,
                 "calls ddp_comm_split() in a group of calls");
    world_expect(ddp_comm_create_group(comm, &rank, 1, &other, &error), &error, DDP_E_INVALID,
                 "calls ddp_comm_create_group() in a group of calls");
    world_expect(ddp_comm_shrink(comm, NULL, 0, 0, 0, &other, &error), &error, DDP_E_INVALID,
                 "calls ddp_comm_shrink() in a group of calls");
    world_expect(ddp_comm_finalize(comm, 0, &error), &error, DDP_E_INVALID,
                 "calls ddp_comm_finalize() in a group of calls");
    sum_all(comm, &value, 1);
    close_group(comm);
    CHECK(sum == 2 && value == 2);
    open_group(comm);
    sum_all(comm, &sum, 1);
    CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, &value, err));
    world_expect(ddp_group_end(comm, &error), &error, DDP_E_INVALID, "host memory takes no stream");
    CHECK(sum == 4 && value == 2);
    open_group(comm);
    sum_all(comm, &sum, 1); /* ddp_comm_destroy() forgets it */
}

START_TEST(refusals_leave_the_group)
{
    run_ranks(_i, 2, 0, refusals);
}
END_TEST

struct second_thread {
    ddp_comm *comm;
    int32_t sum;
};

static void *use_beside_a_group(void *arg)
{
    struct second_thread *second = arg;
    struct ddp_error error;
    world_expect(ddp_group_start(second->comm, &error), &error, DDP_E_INVALID,
                 "another thread of rank");
    world_expect(ddp_group_end(second->comm, &error), &error, DDP_E_INVALID,
                 "has no group of calls open");
    sum_all(second->comm, &second->sum, 1);
    CHECK(second->sum == 2);
    return NULL;
}

static void two_threads(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct second_thread second = {.comm = comm, .sum = 1};
    int32_t sum = 3;
    pthread_t thread;
    (void)world;
    (void)rank;
    open_group(comm);
    sum_all(comm, &sum, 1);
    CHECK(pthread_create(&thread, NULL, use_beside_a_group, &second) == 0);
    pthread_join(thread, NULL);
    CHECK(sum == 3);
    close_group(comm);
    CHECK(sum == 6);
}

START_TEST(a_group_belongs_to_its_thread)
{
    run_ranks(_i, 2, 0, two_threads);
}
END_TEST

/* ---- what fails ---- */

/* The last rank dies when the others are in the group, or before. */
static void death_in_group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks, victim = n - 1;
    int32_t *out = world_filled(VAST, 0), *in = world_filled(VAST, 0), sum = 1;
    struct ddp_error error;
    char words[32];
    snprintf(words, sizeof words, "rank %u ", victim);
    if (rank == victim && world->stage == 1)
        receive_from(comm, in, SMALL, 0);
    if (rank == victim) {
        world_await_joined(world);
        _exit(0);
    }
    open_group(comm);
    if (rank == 0)
        send_to(comm, out, SMALL, victim);
    send_to(comm, out, VAST, victim);
    sum_all(comm, &sum, 1);
    for (uint32_t peer = 0; peer < n - 1; peer++) {
        if (peer == rank)
            continue;
        send_to(comm, out, SMALL, peer);
        receive_from(comm, in, SMALL, peer);
    }
    world_expect(ddp_group_end(comm, &error), &error, DDP_E_PEER_DEAD, words);
    free(out);
    free(in);
}

START_TEST(death_of_a_peer)
{
    run_ranks(_i % 2, 3, (uint32_t)_i / 2, death_in_group);
}
END_TEST

static void mismatched(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t values[4] = {0}, more[4] = {0};
    (void)world;
    open_group(comm);
    send_to(comm, values, 4, 1 - rank);
    receive_from(comm, more, rank == 0 ? 4 : 3, 1 - rank);
    ddp_status status = ddp_group_end(comm, &error);
    if (status == DDP_OK) /* this rank had all it needed before it heard of the other one */
        status = ddp_barrier(comm, NULL, &error);
    CHECK(status == DDP_E_MISMATCH);
}

START_TEST(counts_disagree)
{
    run_ranks(_i, 2, 0, mismatched);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("together");
    TCase *tcase = tcase_create("arrive");
    tcase_add_loop_test(tcase, two_ranks_in_every_order, 0, 2 * ORDERS);
    tcase_add_loop_test(tcase, every_rank_sends_to_all_first, 0, 2);
    tcase_add_loop_test(tcase, send_recv_shifts_a_ring, 0, 4);
    tcase_add_loop_test(tcase, send_recv_of_two_lengths_and_to_oneself, 0, 2);
    tcase_add_loop_test(tcase, collectives_and_messages, 0, 6);
    tcase_add_loop_test(tcase, tags_and_any_rank, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("refuse and fail");
    tcase_add_loop_test(tcase, refusals_leave_the_group, 0, 2);
    tcase_add_loop_test(tcase, a_group_belongs_to_its_thread, 0, 2);
    tcase_add_loop_test(tcase, death_of_a_peer, 0, 4);
    tcase_add_loop_test(tcase, counts_disagree, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
