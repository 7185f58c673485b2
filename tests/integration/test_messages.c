/*
 * test_messages.c - messages between ranks: many under way at once, tags, any source, to oneself,
 * before their receive; and what a rank is told when one does not come, or does not fit. Each test
 * runs over shared memory and over TCP.
 */
#include "check_main.h"
#include "world.h"

#include <unistd.h>

enum {
    BIG = 2 * 1024 * 1024,   /* elements: 8 MB */
    VAST = 16 * 1024 * 1024, /* more than any edge holds */
};

static void run_ranks(int tcp, uint32_t nranks, uint32_t timeout_ms, rank_body *body)
{
    struct world world = {.nranks = nranks, .tcp = tcp != 0, .timeout_ms = timeout_ms};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

static struct ddp_operation message(ddp_kind kind, void *buffer, size_t count, uint32_t peer,
                                    uint32_t tag)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = kind,
                                  .send = kind == DDP_KIND_SEND ? buffer : NULL,
                                  .recv = kind == DDP_KIND_RECV ? buffer : NULL,
                                  .count = count,
                                  .dtype = DDP_INT32,
                                  .peer = peer,
                                  .tag = tag};
}

static ddp_request *start(ddp_comm *comm, ddp_kind kind, void *buffer, size_t count, uint32_t peer,
                          uint32_t tag)
{
    struct ddp_operation operation = message(kind, buffer, count, peer, tag);
    ddp_request *request;
    CHECK_OK(ddp_start(comm, &operation, &request, err));
    return request;
}

static void finish(ddp_request *request)
{
    CHECK_OK(ddp_request_wait(request, 0, NULL, err));
    ddp_request_free(request);
}

static ddp_status run_tagged(ddp_comm *comm, ddp_kind kind, int32_t *value, uint32_t peer,
                             uint32_t tag, struct ddp_error *err)
{
    struct ddp_operation operation = message(kind, value, 1, peer, tag);
    return ddp_run(comm, &operation, err);
}

/* ---- what arrives ---- */

static void both_send_first(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    int32_t *out = world_filled(BIG, (int32_t)rank), *in = world_filled(BIG, -7);
    ddp_request *send = start(comm, DDP_KIND_SEND, out, BIG, 1 - rank, 0);
    ddp_request *recv = start(comm, DDP_KIND_RECV, in, BIG, 1 - rank, 0);
    finish(send);
    finish(recv);
    world_check_filled(in, BIG, 1 - (int32_t)rank);
    free(out);
    free(in);
}

START_TEST(two_ranks_send_first)
{
    run_ranks(_i, 2, 0, both_send_first);
}
END_TEST

/* Tags in the opposite order, with messages that no edge holds: the first ones are kept. */
static void opposite_tags(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MESSAGES = 4 };
    (void)world;
    int32_t *values[MESSAGES];
    for (uint32_t tag = 0; tag < MESSAGES; tag++)
        values[tag] = world_filled(BIG, rank == 0 ? (int32_t)tag : -1);
    if (rank == 0) {
        ddp_request *requests[MESSAGES];
        for (uint32_t tag = 0; tag < MESSAGES; tag++)
            requests[tag] = start(comm, DDP_KIND_SEND, values[tag], BIG, 1, tag);
        for (uint32_t tag = 0; tag < MESSAGES; tag++)
            finish(requests[tag]);
    } else {
        for (uint32_t tag = MESSAGES; tag-- > 0;)
            finish(start(comm, DDP_KIND_RECV, values[tag], BIG, 0, tag));
        for (uint32_t tag = 0; tag < MESSAGES; tag++)
            world_check_filled(values[tag], BIG, (int32_t)tag);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
    for (uint32_t tag = 0; tag < MESSAGES; tag++)
        free(values[tag]);
}

START_TEST(tags_overtake)
{
    run_ranks(_i, 2, 0, opposite_tags);
}
END_TEST

/* With one tag, messages are taken in the order in which they were sent. */
static void many_in_order(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MESSAGES = 500 };
    (void)world;
    for (int32_t i = 0; i < MESSAGES; i++) {
        int32_t value = i;
        if (rank == 0)
            CHECK_OK(run_tagged(comm, DDP_KIND_SEND, &value, 1, (uint32_t)i % 3, err));
    }
    for (uint32_t tag = 3; rank == 1 && tag-- > 0;)
        for (int32_t i = (int32_t)tag; i < MESSAGES; i += 3) {
            int32_t value = -1;
            CHECK_OK(run_tagged(comm, DDP_KIND_RECV, &value, 0, tag, err));
            CHECK(value == i);
        }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(one_tag_keeps_the_order)
{
    run_ranks(_i, 2, 0, many_in_order);
}
END_TEST

static void from_any(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { MESSAGES = 20 };
    uint32_t received[WORLD_MAX] = {0};
    for (uint32_t i = 0; rank != 0 && i < MESSAGES; i++) {
        int32_t value = (int32_t)(rank * 1000 + i);
        CHECK_OK(run_tagged(comm, DDP_KIND_SEND, &value, 0, 9, err));
    }
    for (uint32_t i = 0; rank == 0 && i < MESSAGES * (world->nranks - 1); i++) {
        uint32_t source = UINT32_MAX;
        int32_t value;
        CHECK_OK(ddp_recv_any(comm, &value, 1, DDP_INT32, 9, &source, err));
        CHECK(source > 0 && source < world->nranks);
        CHECK(value == (int32_t)(source * 1000 + received[source]++));
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(from_any_rank)
{
    run_ranks(_i, 4, 0, from_any);
}
END_TEST

static void to_self(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    int32_t *out = world_filled(BIG, 5), *in = world_filled(BIG, -7), small = 3;
    uint32_t source = UINT32_MAX;
    CHECK_OK(ddp_send(comm, out, BIG, DDP_INT32, rank, NULL, err)); /* kept */
    CHECK_OK(ddp_recv(comm, in, BIG, DDP_INT32, rank, NULL, err));
    world_check_filled(in, BIG, 5);
    ddp_request *recv = start(comm, DDP_KIND_RECV, in, 1, DDP_ANY_RANK, 2);
    CHECK_OK(run_tagged(comm, DDP_KIND_SEND, &small, rank, 2, err));
    finish(recv);
    CHECK(in[0] == 3);
    CHECK_OK(ddp_send(comm, NULL, 0, DDP_INT32, rank, NULL, err));
    CHECK_OK(ddp_recv_any(comm, NULL, 0, DDP_INT32, 0, &source, err));
    CHECK(source == rank);
    CHECK_OK(ddp_send(comm, out, BIG, DDP_INT32, rank, NULL, err)); /* never received */
    free(out);
    free(in);
}

START_TEST(to_oneself)
{
    run_ranks(0, _i == 0 ? 1 : 2, 0, to_self);
}
END_TEST

/* Messages of both directions, of all sizes, between all pairs, next to collectives. */
static void all_at_once(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t counts[] = {0, 1, 14, 1000, 131072, 300001};
    enum { COUNTS = sizeof counts / sizeof *counts };
    ddp_request *requests[WORLD_MAX][COUNTS][2];
    int32_t *values[WORLD_MAX][COUNTS][2];
    for (uint32_t peer = 0; peer < world->nranks; peer++)
        for (uint32_t i = 0; i < COUNTS; i++) {
            int32_t **pair = values[peer][i];
            pair[0] = world_filled(counts[i], (int32_t)(rank * 100 + peer));
            pair[1] = world_filled(counts[i], -9);
            requests[peer][i][0] = start(comm, DDP_KIND_SEND, pair[0], counts[i], peer, i);
            requests[peer][i][1] = start(comm, DDP_KIND_RECV, pair[1], counts[i], peer, i);
        }
    int32_t sum = 1;
    CHECK_OK(ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(sum == (int32_t)world->nranks);
    for (uint32_t peer = world->nranks; peer-- > 0;)
        for (uint32_t i = COUNTS; i-- > 0;) {
            finish(requests[peer][i][0]);
            finish(requests[peer][i][1]);
            world_check_filled(values[peer][i][1], counts[i], (int32_t)(peer * 100 + rank));
            free(values[peer][i][0]);
            free(values[peer][i][1]);
        }
}

START_TEST(all_pairs_at_once)
{
    run_ranks(_i, 4, 0, all_at_once);
}
END_TEST

/* ---- what goes wrong ---- */

/* The message is on the edge, or kept already, when the receive with another count comes. */
static void different_counts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t values[8] = {0};
    if (rank == 0) {
        struct ddp_operation send = message(DDP_KIND_SEND, values, 5, 1, 4);
        CHECK_OK(ddp_run(comm, &send, err));
        if (world->stage == 1)
            CHECK_OK(run_tagged(comm, DDP_KIND_SEND, values, 1, 1, err));
        ddp_status status = ddp_barrier(comm, NULL, &error);
        world_expect(status, &error, DDP_E_MISMATCH, "send #0 (5 int32 to rank 1) with tag 4");
        return;
    }
    if (world->stage == 1)
        CHECK_OK(run_tagged(comm, DDP_KIND_RECV, values, 0, 1, err));
    struct ddp_operation recv = message(DDP_KIND_RECV, values, 6, 0, 4);
    ddp_status status = ddp_run(comm, &recv, &error);
    world_expect(status, &error, DDP_E_MISMATCH, " (6 int32 from rank 0) with tag 4, but rank 0 (");
}

START_TEST(counts_must_agree)
{
    struct world world = {.nranks = 2, .tcp = _i % 2 != 0, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_run(&world, different_counts);
    world_close(&world);
}
END_TEST

static void nothing_comes(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 0;
    uint32_t source = 77;
    (void)world;
    if (rank == 0)
        CHECK_OK(ddp_comm_set_timeout(comm, 300, err));
    ddp_status status = rank == 0 ? ddp_recv_any(comm, &value, 1, DDP_INT32, 6, &source, &error)
                                  : ddp_barrier(comm, NULL, &error);
    if (rank == 0) {
        world_expect(status, &error, DDP_E_TIMEOUT, "message with tag 6, and no rank has sent one");
        CHECK(source == 77);
    }
    CHECK(status != DDP_OK);
}

START_TEST(any_rank_has_a_deadline)
{
    run_ranks(_i, 3, 0, nothing_comes);
}
END_TEST

static void others_leave(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t value = 0;
    (void)world;
    if (rank != 0) {
        CHECK_OK(run_tagged(comm, DDP_KIND_SEND, &value, 0, 1, err));
        return;
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(ddp_recv_any(comm, &value, 1, DDP_INT32, 1, NULL, err));
    ddp_status status = ddp_recv_any(comm, &value, 1, DDP_INT32, 1, NULL, &error);
    world_expect(status, &error, DDP_E_PEER_DEAD, "has left the communicator");
}

START_TEST(any_rank_ends_with_the_last_one)
{
    run_ranks(_i, 3, 0, others_leave);
}
END_TEST

/* Rank 1 is killed while rank 0 is in the middle of a message to it, or from it. */
static void in_the_middle(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {.msg = ""};
    int32_t *values = world_filled(VAST, 0);
    bool victim_sends = world->stage == 1;
    if (rank == 1) {
        ddp_request *half =
            start(comm, victim_sends ? DDP_KIND_SEND : DDP_KIND_RECV, values, VAST, 0, 0);
        int done = 0;
        int32_t small;
        CHECK_OK(ddp_request_test(half, &done, err));
        CHECK_OK(run_tagged(comm, DDP_KIND_RECV, &small, 0, 8, err));
        world_step(world, rank);
        for (;;)
            pause();
    }
    int32_t small = 1;
    CHECK_OK(run_tagged(comm, DDP_KIND_SEND, &small, 1, 8, err));
    ddp_request *request = start(comm, victim_sends ? DDP_KIND_RECV : DDP_KIND_SEND, values, VAST,
                                 1, victim_sends ? 0 : 3);
    ddp_status status = ddp_request_wait(request, 0, NULL, &error);
    world_expect(status, &error, DDP_E_PEER_DEAD, "rank 1 (");
    ddp_request_free(request);
    world_report(world, rank, status, &error);
    free(values);
}

START_TEST(death_within_a_message)
{
    struct world world = {.nranks = 2, .tcp = _i % 2 != 0, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_start(&world, in_the_middle);
    world_await_steps(&world, 1, 1);
    world_kill_rank(&world, 1);
    world_join(&world);
    world_close(&world);
}
END_TEST

static void aborted(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    int32_t *values = world_filled(BIG, 0);
    ddp_request *request = start(comm, DDP_KIND_SEND, values, BIG, 1 - rank, 0);
    world_step(world, rank);
    if (rank == 0) {
        world_await_steps(world, 1, 1);
        ddp_comm_abort(comm);
    }
    ddp_status status = ddp_request_wait(request, 0, NULL, &error);
    world_expect(status, &error, DDP_E_ABORTED, "rank 0 called ddp_comm_abort()");
    ddp_request_free(request);
    free(values);
}

START_TEST(abort_ends_messages)
{
    run_ranks(_i, 2, 0, aborted);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("messages");
    TCase *tcase = tcase_create("arrive");
    tcase_add_loop_test(tcase, two_ranks_send_first, 0, 2);
    tcase_add_loop_test(tcase, tags_overtake, 0, 2);
    tcase_add_loop_test(tcase, one_tag_keeps_the_order, 0, 2);
    tcase_add_loop_test(tcase, from_any_rank, 0, 2);
    tcase_add_loop_test(tcase, to_oneself, 0, 2);
    tcase_add_loop_test(tcase, all_pairs_at_once, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("fail");
    tcase_add_loop_test(tcase, counts_must_agree, 0, 4);
    tcase_add_loop_test(tcase, any_rank_has_a_deadline, 0, 2);
    tcase_add_loop_test(tcase, any_rank_ends_with_the_last_one, 0, 2);
    tcase_add_loop_test(tcase, death_within_a_message, 0, 4);
    tcase_add_loop_test(tcase, abort_ends_messages, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
