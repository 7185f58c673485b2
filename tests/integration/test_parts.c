/*
 * test_parts.c - operations in which ranks have parts: gather, scatter, all_to_all, and parts of
 * different sizes, with gaps between them; and sums in which each rank has a factor; against a
 * reference that is computed element by element.
 */
#include "check_main.h"
#include "world.h"

#include <string.h>

enum { MOST = 200000 }; /* elements of a buffer: more than a piece of shared memory takes */

static int32_t send_space[MOST], recv_space[MOST];
static size_t send_counts[WORLD_MAX], send_offsets[WORLD_MAX];
static size_t recv_counts[WORLD_MAX], recv_offsets[WORLD_MAX];

/* Element @i of what rank @from has for rank @to. */
static int32_t value_of(uint32_t from, uint32_t to, size_t i)
{
    return (int32_t)(from * 1000003U + to * 10007U + (uint32_t)i * 7U + 1U);
}

/* How much rank @from has for rank @to; some pairs have nothing. */
static size_t count_of(uint32_t stage, uint32_t from, uint32_t to)
{
    static const size_t scales[] = {1, 37, 1009};
    return (from * 3 + to * 5) % 4 * scales[stage % 3] + (from + to) % 2;
}

/* One part after the other in reverse order, with a gap of three elements; returns the length. */
static size_t spread(const size_t *counts, uint32_t nranks, size_t *offsets)
{
    size_t at = 0;
    for (uint32_t i = nranks; i-- > 0; at += counts[i] + 3)
        offsets[i] = at;
    CHECK(at <= MOST);
    return at;
}

static void clear(void)
{
    memset(send_space, 0x5a, sizeof send_space);
    memset(recv_space, 0x5a, sizeof recv_space);
}

static void put(int32_t *at, uint32_t from, uint32_t to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        at[i] = value_of(from, to, i);
}

static void expect(const int32_t *at, uint32_t from, uint32_t to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(at[i] == value_of(from, to, i));
}

static struct ddp_operation operation_of(ddp_kind kind)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = kind,
                                  .send = send_space,
                                  .recv = recv_space,
                                  .dtype = DDP_INT32};
}

static void run_uneven(ddp_comm *comm, struct ddp_operation *operation)
{
    operation->uneven = 1;
    CHECK_OK(ddp_run(comm, operation, err));
}

/* ---- uneven parts ---- */

static void all_to_all_uneven(const struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks;
    clear();
    for (uint32_t peer = 0; peer < n; peer++) {
        send_counts[peer] = count_of(world->stage, rank, peer);
        recv_counts[peer] = count_of(world->stage, peer, rank);
    }
    spread(send_counts, n, send_offsets);
    spread(recv_counts, n, recv_offsets);
    for (uint32_t peer = 0; peer < n; peer++)
        put(send_space + send_offsets[peer], rank, peer, send_counts[peer]);
    struct ddp_operation operation = operation_of(DDP_KIND_ALL_TO_ALL);
    operation.send_counts = send_counts;
    operation.send_offsets = send_offsets;
    operation.recv_counts = recv_counts;
    operation.recv_offsets = recv_offsets;
    run_uneven(comm, &operation);
    for (uint32_t peer = 0; peer < n; peer++)
        expect(recv_space + recv_offsets[peer], peer, rank, recv_counts[peer]);
}

static void all_gather_uneven(const struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks;
    clear();
    for (uint32_t peer = 0; peer < n; peer++)
        recv_counts[peer] = count_of(world->stage, peer, 0);
    spread(recv_counts, n, recv_offsets);
    put(send_space, rank, 0, recv_counts[rank]);
    struct ddp_operation operation = operation_of(DDP_KIND_ALL_GATHER);
    operation.count = recv_counts[rank];
    operation.recv_counts = recv_counts;
    operation.recv_offsets = recv_offsets;
    run_uneven(comm, &operation);
    for (uint32_t peer = 0; peer < n; peer++)
        expect(recv_space + recv_offsets[peer], peer, 0, recv_counts[peer]);
}

static void reduce_scatter_uneven(const struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks;
    clear();
    for (uint32_t peer = 0; peer < n; peer++)
        send_counts[peer] = count_of(world->stage, 0, peer);
    for (uint32_t peer = 0, at = 0; peer < n; at += (uint32_t)send_counts[peer++])
        put(send_space + at, rank, peer, send_counts[peer]);
    struct ddp_operation operation = operation_of(DDP_KIND_REDUCE_SCATTER);
    operation.count = send_counts[rank];
    operation.send_counts = send_counts;
    run_uneven(comm, &operation);
    for (size_t i = 0; i < send_counts[rank]; i++) {
        uint32_t sum = 0;
        for (uint32_t peer = 0; peer < n; peer++)
            sum += (uint32_t)value_of(peer, rank, i);
        CHECK(recv_space[i] == (int32_t)sum);
    }
}

static void gather_and_scatter_uneven(const struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t n = world->nranks, root = world->stage % n;
    clear();
    for (uint32_t peer = 0; peer < n; peer++)
        recv_counts[peer] = send_counts[peer] = count_of(world->stage, peer, root);
    put(send_space, rank, root, send_counts[rank]);
    struct ddp_operation operation = operation_of(DDP_KIND_GATHER);
    operation.count = send_counts[rank];
    operation.peer = root;
    if (rank == root) {
        spread(recv_counts, n, recv_offsets);
        operation.recv_counts = recv_counts;
        operation.recv_offsets = recv_offsets;
    }
    run_uneven(comm, &operation);
    for (uint32_t peer = 0; peer < n && rank == root; peer++)
        expect(recv_space + recv_offsets[peer], peer, root, recv_counts[peer]);
    /* And back, from where the root has them. */
    operation = operation_of(DDP_KIND_SCATTER);
    operation.send = recv_space;
    operation.recv = send_space;
    operation.count = send_counts[rank];
    operation.peer = root;
    if (rank == root) {
        operation.send_counts = recv_counts;
        operation.send_offsets = recv_offsets;
    }
    memset(send_space, 0, sizeof send_space);
    run_uneven(comm, &operation);
    expect(send_space, rank, root, send_counts[rank]);
}

/* ---- equal parts ---- */

static void equal_parts(const struct world *world, uint32_t rank, ddp_comm *comm, size_t count)
{
    uint32_t n = world->nranks, root = (uint32_t)count % n;
    clear();
    for (uint32_t peer = 0; peer < n; peer++)
        put(send_space + peer * count, rank, peer, count);
    CHECK_OK(ddp_all_to_all(comm, send_space, recv_space, count, DDP_INT32, NULL, err));
    for (uint32_t peer = 0; peer < n; peer++)
        expect(recv_space + peer * count, peer, rank, count);
    put(send_space, rank, 0, count);
    CHECK_OK(ddp_gather(comm, send_space, rank == root ? recv_space : NULL, count, DDP_INT32, root,
                        NULL, err));
    for (uint32_t peer = 0; peer < n && rank == root; peer++)
        expect(recv_space + peer * count, peer, 0, count);
    memset(send_space, 0, sizeof send_space);
    CHECK_OK(ddp_scatter(comm, rank == root ? recv_space : NULL, send_space, count, DDP_INT32, root,
                         NULL, err));
    expect(send_space, rank, 0, count);
}

static void in_place(const struct world *world, uint32_t rank, ddp_comm *comm, size_t count)
{
    uint32_t n = world->nranks, root = n - 1;
    clear();
    int32_t *own = rank == root ? recv_space + rank * count : send_space;
    put(own, rank, 0, count);
    CHECK_OK(
        ddp_gather(comm, own, rank == root ? recv_space : NULL, count, DDP_INT32, root, NULL, err));
    for (uint32_t peer = 0; peer < n && rank == root; peer++)
        expect(recv_space + peer * count, peer, 0, count);
    CHECK_OK(ddp_scatter(comm, rank == root ? recv_space : NULL, own, count, DDP_INT32, root, NULL,
                         err));
    expect(own, rank, 0, count);
}

/* ---- factors ---- */

/* Powers of two: every product and sum is exact. */
static void multiplied(ddp_comm *comm, uint32_t rank, uint32_t nranks, size_t count)
{
    float *send = (float *)send_space, *recv = (float *)recv_space;
    size_t all = count * nranks;
    struct ddp_operation operation = operation_of(DDP_KIND_ALL_REDUCE);
    operation.dtype = DDP_FLOAT32;
    operation.op = DDP_PREMUL_SUM;
    operation.factor = rank % 2 == 0 ? 0.5 : -2;
    float expected = 0;
    for (uint32_t peer = 0; peer < nranks; peer++)
        expected += (peer % 2 == 0 ? 0.5F : -2) * (float)(peer + 1);
    for (size_t i = 0; i < all; i++)
        send[i] = (float)(rank + 1) * (float)(i % 8 + 1);
    operation.count = all;
    CHECK_OK(ddp_run(comm, &operation, err));
    for (size_t i = 0; i < all; i++)
        CHECK(recv[i] == expected * (float)(i % 8 + 1));
    operation.kind = DDP_KIND_REDUCE_SCATTER;
    operation.count = count;
    CHECK_OK(ddp_run(comm, &operation, err));
    for (size_t i = 0; i < count; i++)
        CHECK(recv[i] == expected * (float)((rank * count + i) % 8 + 1));
    operation.kind = DDP_KIND_REDUCE;
    operation.count = all;
    operation.peer = nranks - 1;
    CHECK_OK(ddp_run(comm, &operation, err));
    for (size_t i = 0; i < all && rank == nranks - 1; i++)
        CHECK(recv[i] == expected * (float)(i % 8 + 1));
    for (size_t i = 0; i < all; i++)
        CHECK(send[i] == (float)(rank + 1) * (float)(i % 8 + 1));
}

static void average_before(ddp_comm *comm, uint32_t rank, uint32_t nranks)
{
    float values[3], expected = 0, share = (float)(1.0 / nranks);
    for (int i = 0; i < 3; i++)
        values[i] = (float)(rank + 1);
    for (uint32_t peer = 0; peer < nranks; peer++)
        expected += (float)(peer + 1) * share;
    CHECK_OK(ddp_all_reduce(comm, values, values, 3, DDP_FLOAT32, DDP_AVERAGE_BEFORE, NULL, err));
    for (int i = 0; i < 3; i++)
        CHECK(values[i] - expected < 1e-5F && expected - values[i] < 1e-5F);
}

/* ---- worlds ---- */

static void uneven_and_multiplied(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (world->stage = 0; world->stage < 3; world->stage++) {
        all_gather_uneven(world, rank, comm);
        reduce_scatter_uneven(world, rank, comm);
    }
    multiplied(comm, rank, world->nranks, 3);
    multiplied(comm, rank, world->nranks, 24001);
    average_before(comm, rank, world->nranks);
}

static void all_parts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t counts[] = {0, 1, 5, 1000, 24001};
    uneven_and_multiplied(world, rank, comm);
    for (world->stage = 0; world->stage < 3; world->stage++) {
        all_to_all_uneven(world, rank, comm);
        gather_and_scatter_uneven(world, rank, comm);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        equal_parts(world, rank, comm, counts[i]);
        in_place(world, rank, comm, counts[i]);
    }
}

START_TEST(parts_over_edges)
{
    struct world world = {.nranks = (uint32_t)_i / 3 + 1,
                          .tcp = _i % 3 == 0,
                          .algorithm = _i % 3 == 2 ? DDP_ALGORITHM_DIRECT : DDP_ALGORITHM_RING};
    world_open(&world);
    world_run(&world, all_parts);
    world_close(&world);
}
END_TEST

START_TEST(parts_in_shared_memory)
{
    struct world world = {.nranks = (uint32_t)_i};
    world_open(&world);
    world_run(&world, all_parts);
    world_close(&world);
}
END_TEST

/* ---- disagreement ---- */

/* Rank 0 expects an element more of rank 1 than that rank has. */
static void expect_more(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    for (uint32_t peer = 0; peer < world->nranks; peer++)
        send_counts[peer] = recv_counts[peer] = 4;
    recv_counts[1] += rank == 0;
    struct ddp_operation operation = operation_of(DDP_KIND_ALL_TO_ALL);
    operation.uneven = 1;
    operation.send_counts = send_counts;
    operation.recv_counts = recv_counts;
    ddp_status status = ddp_run(comm, &operation, &error);
    world_report(world, rank, status, &error);
}

START_TEST(counts_that_disagree_are_named)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, expect_more);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const struct report *seen = &world.reports[rank];
        if (rank != 0 && world.tcp && seen->status == DDP_OK)
            continue; /* it has its parts, and hears of the failure later */
        ck_assert_int_eq(seen->status, DDP_E_MISMATCH);
        ck_assert_msg(strstr(seen->error.msg, "expect") != NULL &&
                          strstr(seen->error.msg, "rank 0") != NULL &&
                          strstr(seen->error.msg, "rank 1") != NULL,
                      "%s", seen->error.msg);
    }
    world_close(&world);
}
END_TEST

/* Pieces do not pass between ranks that call different things: the ring tells them. */
static void call_different_things(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    ddp_status status =
        rank == 1
            ? ddp_all_reduce(comm, send_space, recv_space, 8, DDP_INT32, DDP_SUM, NULL, &error)
            : ddp_all_to_all(comm, send_space, recv_space, 8, DDP_INT32, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(different_calls_are_named)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, call_different_things);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const struct report *seen = &world.reports[rank];
        ck_assert_int_eq(seen->status, DDP_E_MISMATCH);
        ck_assert_msg(strstr(seen->error.msg, "called all_reduce") != NULL &&
                          strstr(seen->error.msg, "called all_to_all") != NULL,
                      "%s", seen->error.msg);
    }
    world_close(&world);
}
END_TEST

START_TEST(parts_that_cannot_be_are_refused)
{
    ddp_comm *comm;
    struct ddp_error error;
    size_t counts[] = {4}, too_many[] = {(size_t)1 << 62}, five[] = {5};
    ck_assert_int_eq(ddp_comm_init_local(1, NULL, &comm, NULL), DDP_OK);
    struct ddp_operation operation = operation_of(DDP_KIND_ALL_TO_ALL);
    operation.uneven = 1;
    operation.send_counts = counts;
    operation.recv_counts = five;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_str_eq(error.msg, "rank 0 sends itself 4 elements, but receives 5 from itself");
    operation.send_counts = operation.recv_counts = too_many;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_str_eq(error.msg, "the part of rank 0, 4611686018427387904 elements of 4 bytes from "
                                "element 0 on, reaches farther than a buffer can");
    operation.send_counts = operation.recv_counts = counts;
    operation.send_offsets = operation.recv_offsets = too_many;
    ck_assert_int_eq(ddp_run(comm, &operation, &error), DDP_E_INVALID);
    ck_assert_str_eq(error.msg, "the part of rank 0, 4 elements of 4 bytes from element "
                                "4611686018427387904 on, reaches farther than a buffer can");
    operation.send_offsets = operation.recv_offsets = NULL;
    ck_assert_int_eq(ddp_all_to_all(comm, send_space, send_space, 1, DDP_INT32, NULL, &error),
                     DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.msg, "has no in-place form"));
    ck_assert_int_eq(
        ddp_all_reduce(comm, send_space, send_space, 1, DDP_FLOAT32, DDP_PREMUL_SUM, NULL, &error),
        DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(error.msg, "set the factor"));
    ddp_comm_destroy(comm);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("parts");
    TCase *tcase = tcase_create("parts");
    tcase_add_loop_test(tcase, parts_over_edges, 0, 15);
    tcase_add_loop_test(tcase, parts_in_shared_memory, 1, WORLD_MAX + 1);
    tcase_add_loop_test(tcase, counts_that_disagree_are_named, 0, 2);
    tcase_add_loop_test(tcase, different_calls_are_named, 0, 2);
    tcase_add_test(tcase, parts_that_cannot_be_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
