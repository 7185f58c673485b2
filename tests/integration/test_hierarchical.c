/*
 * test_hierarchical.c - all_reduce between pretended nodes, some of them uneven: every type with
 * every reduction that goes with it, in place and out of place, against a reference that reduces
 * the elements of all ranks itself.
 */
#include "check_main.h"
#include "reduce.h"
#include "reduce_any.h"
#include "reduce_check.h"
#include "world.h"

#include <string.h>

/* The letters of struct world; LARGE elements take several slices on every one. */
static const char *const layouts[] = {"aabb", "aaabbb", "aabbcc",  "aaab",
                                      "abbb", "aabccc", "aabbaabb"};
enum {
    LAYOUTS = sizeof layouts / sizeof *layouts,
    COUNT_MAX = 1031,
    LARGE = 5 * 128 * 1024 * 3 + 7,
    ROOM = COUNT_MAX * DDPI_DTYPE_SIZE_MOST,
};

struct problem {
    uint32_t nranks;
    const char *hosts;
    ddp_dtype dtype;
    ddp_reduce_op op;
    size_t count;
};

/* Any bytes without the bits that make a float infinite, or large. */
static void put_inputs(const struct problem *of, uint32_t rank, uint8_t *bytes)
{
    uint64_t random = (of->count + 1) * 0x9e3779b97f4a7c15U + rank;
    for (size_t i = 0; i < of->count * ddp_dtype_size(of->dtype); i++) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        bytes[i] = (uint8_t)(random >> 33 & (of->dtype == DDP_BOOL ? 1 : 0x3f));
    }
}

static void fold(const struct problem *of, uint8_t (*in)[ROOM], uint32_t ranks, bool last,
                 uint8_t *out)
{
    bool divides = last && of->op == DDP_AVERAGE;
    ddpi_fold(&(struct ddpi_fold){.in = in[0],
                                  .stride = ROOM,
                                  .nin = ranks,
                                  .out = out,
                                  .count = of->count,
                                  .dtype = of->dtype,
                                  .op = of->op,
                                  .divisor = divides ? of->nranks : 1});
}

/* The ranks of each node in their order, then the nodes in theirs. */
static void put_expected(const struct problem *of, uint8_t *expected)
{
    static uint8_t inputs[WORLD_MAX][ROOM], nodes[WORLD_MAX][ROOM];
    uint32_t node = 0;
    for (uint32_t i = 0; i < of->nranks; i++) {
        put_inputs(of, i, inputs[i]);
        if (of->op == DDP_AVERAGE_BEFORE)
            ddpi_scale(inputs[i], inputs[i], of->count, of->dtype, 1.0 / of->nranks);
    }
    for (uint32_t first = 0, next = 0; first < of->nranks; first = next) {
        while (next < of->nranks && of->hosts[next] == of->hosts[first])
            next++;
        fold(of, &inputs[first], next - first, false, nodes[node++]);
    }
    fold(of, nodes, node, true, expected);
}

static void check_call(ddp_comm *comm, const struct problem *of, bool in_place)
{
    static uint8_t send[ROOM], recv[ROOM], expected[ROOM];
    size_t len = of->count * ddp_dtype_size(of->dtype);
    uint8_t *result = in_place ? send : recv;
    uint32_t rank = ddp_comm_rank(comm);
    put_inputs(of, rank, send);
    CHECK_OK(ddp_all_reduce(comm, send, result, of->count, of->dtype, of->op, NULL, err));
    put_expected(of, expected);
    CHECK(memcmp(result, expected, len) == 0);
    put_inputs(of, rank, expected);
    CHECK(in_place || memcmp(send, expected, len) == 0);
}

static void call_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t sizes[] = {1, 3, 0, 17, COUNT_MAX};
    struct problem of = {.nranks = world->nranks, .hosts = world->hosts};
    (void)rank;
    for (unsigned turn = world->stage; turn < DDPI_DTYPES * DDPI_REDUCE_OPS;
         turn += (unsigned)sample_stride()) {
        of.dtype = (ddp_dtype)(turn % DDPI_DTYPES);
        of.op = (ddp_reduce_op)(turn / DDPI_DTYPES % DDPI_REDUCE_OPS);
        of.count = sizes[turn % (sizeof sizes / sizeof *sizes)];
        if (of.op == DDP_PREMUL_SUM || ddpi_reduce_check(of.dtype, of.op, NULL) != DDP_OK)
            continue;
        check_call(comm, &of, false);
        check_call(comm, &of, true);
    }
}

static void run_layout(int i, ddp_algorithm algorithm, rank_body *body)
{
    struct world world = {.nranks = (uint32_t)strlen(layouts[i]),
                          .hosts = layouts[i],
                          .algorithm = algorithm,
                          .stage = (uint32_t)i};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(calls_agree_with_the_reference)
{
    run_layout(_i, DDP_ALGORITHM_HIERARCHICAL, call_all);
}
END_TEST

static uint64_t bytes_sent(ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats.bytes_sent;
}

/* What auto does with it, too. */
static void call_large(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t *send = malloc(LARGE * sizeof *send), *recv = malloc(LARGE * sizeof *recv);
    int32_t sum = (int32_t)(world->nranks * (world->nranks - 1) / 2);
    CHECK(send != NULL && recv != NULL);
    for (size_t i = 0; i < LARGE; i++)
        send[i] = (int32_t)(i + rank);
    for (int turn = 0; turn < 3; turn++)
        CHECK_OK(ddp_all_reduce(comm, send, turn < 2 ? recv : send, LARGE, DDP_INT32, DDP_SUM, NULL,
                                err));
    for (size_t i = 0; i < LARGE; i++) {
        CHECK(send[i] == (int32_t)(world->nranks * i) + sum);
        CHECK(recv[i] == send[i]);
    }
    if (strcmp(world->hosts, "aabb") == 0) { /* K and K/2 in memory, and twice K/4 to a peer */
        int64_t sent = (int64_t)(bytes_sent(comm) / 3 / sizeof *send);
        CHECK(llabs(sent - 2 * LARGE) < 10);
    }
    free(send);
    free(recv);
}

START_TEST(large_calls_agree)
{
    run_layout(_i / 2, _i % 2 == 0 ? DDP_ALGORITHM_HIERARCHICAL : DDP_ALGORITHM_AUTO, call_large);
}
END_TEST

/* What it cannot do has another algorithm, and a premultiplied sum has factors. */
static void call_others(struct world *world, uint32_t rank, ddp_comm *comm)
{
    int32_t one = 1, all[WORLD_MAX] = {0};
    float value = 1;
    uint64_t nodes = 1;
    struct ddp_comm_stats stats = {.size = sizeof stats};
    for (uint32_t i = 1; i < world->nranks; i++)
        nodes += world->hosts[i] != world->hosts[i - 1];
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK && stats.nodes == nodes);
    CHECK_OK(ddp_reduce(comm, &one, &one, 1, DDP_INT32, DDP_SUM, 1, NULL, err));
    CHECK(one == (rank == 1 ? (int32_t)world->nranks : 1));
    CHECK_OK(ddp_all_gather(comm, &rank, all, 1, DDP_INT32, NULL, err));
    CHECK(all[world->nranks - 1] == (int32_t)world->nranks - 1);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = &value,
                                            .recv = &value,
                                            .count = 1,
                                            .dtype = DDP_FLOAT32,
                                            .op = DDP_PREMUL_SUM,
                                            .factor = rank + 1};
    CHECK_OK(ddp_run(comm, &operation, err));
    CHECK(value == (float)(world->nranks * (world->nranks + 1) / 2));
}

START_TEST(other_calls_go_their_way)
{
    run_layout(_i, DDP_ALGORITHM_HIERARCHICAL, call_others);
}
END_TEST

/* A group of some ranks has nodes of its own. */
static void call_in_a_group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_comm *group;
    int32_t value = (int32_t)rank;
    int32_t sum = (int32_t)(world->nranks * (world->nranks - 1) / 2);
    CHECK_OK(ddp_comm_split(comm, rank == 0 ? DDP_NO_COLOR : 1, 0, &group, err));
    if (rank == 0)
        return;
    CHECK_OK(ddp_all_reduce(group, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(value == sum);
    ddp_comm_destroy(group);
}

START_TEST(groups_have_nodes)
{
    run_layout(_i, DDP_ALGORITHM_HIERARCHICAL, call_in_a_group);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("hierarchical");
    TCase *tcase = tcase_create("hierarchical");
    add_sample(tcase, calls_agree_with_the_reference, 0, LAYOUTS);
    add_sample(tcase, large_calls_agree, 0, 2 * LAYOUTS);
    add_sample(tcase, other_calls_go_their_way, 0, LAYOUTS);
    add_sample(tcase, groups_have_nodes, 0, LAYOUTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
