/*
 * test_doubling_worlds.c - all_reduce by recursive doubling in worlds of 1 to 16 ranks, threads of
 * one process: every type with every reduction that goes with it, sizes that do not come out even,
 * in place and out of place, against a reference that reduces the elements of all ranks itself.
 */
#include "check_main.h"
#include "reduce.h"
#include "reduce_check.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

enum { RANKS_MAX = 16, COUNT_MAX = 1031, ROOM = COUNT_MAX * DDPI_DTYPE_SIZE_MOST };

struct problem {
    uint32_t nranks;
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

/* *@left = *@left op *@right. */
static void reduce_two(const struct problem *of, uint8_t *left, const uint8_t *right, bool last)
{
    bool divides = last && of->op == DDP_AVERAGE;
    ddpi_reduce_many(&(struct ddpi_reduction){.in = {left, right},
                                              .out = {left},
                                              .nin = 2,
                                              .nout = 1,
                                              .count = of->count,
                                              .dtype = of->dtype,
                                              .op = of->op,
                                              .divisor = divides ? of->nranks : 1});
}

/* Reduce to inputs[0]: pairs of neighbours as long as there are more ranks than a power of two has,
 * then what is left in a tree. */
static void put_expected(const struct problem *of, uint8_t (*inputs)[ROOM])
{
    uint32_t left = 1, firsts[RANKS_MAX], rank = 0;
    while (2 * left <= of->nranks)
        left *= 2;
    for (uint32_t i = 0; i < of->nranks; i++) {
        put_inputs(of, i, inputs[i]);
        if (of->op == DDP_AVERAGE_BEFORE && of->nranks > 1)
            ddpi_scale(inputs[i], inputs[i], of->count, of->dtype, 1.0 / of->nranks);
    }
    for (uint32_t i = 0; i < left; i++) {
        firsts[i] = rank++;
        if (i < of->nranks - left)
            reduce_two(of, inputs[firsts[i]], inputs[rank++], false);
    }
    for (uint32_t apart = 1; apart < left; apart *= 2)
        for (uint32_t i = 0; i < left; i += 2 * apart)
            reduce_two(of, inputs[firsts[i]], inputs[firsts[i + apart]], 2 * apart == left);
}

static void check_call(ddp_comm *comm, const struct problem *of, bool in_place)
{
    static _Thread_local uint8_t inputs[RANKS_MAX][ROOM], send[ROOM], recv[ROOM];
    size_t len = of->count * ddp_dtype_size(of->dtype);
    uint8_t *result = in_place ? send : recv;
    uint32_t rank = ddp_comm_rank(comm);
    put_inputs(of, rank, send);
    CHECK_OK(ddp_all_reduce(comm, send, result, of->count, of->dtype, of->op, NULL, err));
    put_expected(of, inputs);
    CHECK(memcmp(result, inputs[0], len) == 0);
    put_inputs(of, rank, inputs[0]);
    CHECK(in_place || memcmp(send, inputs[0], len) == 0);
}

static uint64_t bytes_sent(ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats.bytes_sent;
}

static void *call_all(void *arg)
{
    static const size_t sizes[] = {1, 3, 0, 17, COUNT_MAX};
    ddp_comm *comm = arg;
    struct problem of = {.nranks = ddp_comm_world_size(comm)};
    unsigned turn = of.nranks;
    for (; turn < DDPI_DTYPES * DDPI_REDUCE_OPS + of.nranks; turn += (unsigned)sample_stride()) {
        of.dtype = (ddp_dtype)(turn % DDPI_DTYPES);
        of.op = (ddp_reduce_op)(turn / DDPI_DTYPES % DDPI_REDUCE_OPS);
        of.count = sizes[turn % (sizeof sizes / sizeof *sizes)];
        if (of.op == DDP_PREMUL_SUM || ddpi_reduce_check(of.dtype, of.op, NULL) != DDP_OK)
            continue;
        check_call(comm, &of, false);
        check_call(comm, &of, true);
    }
    return NULL;
}

static void run_world(uint32_t nranks, void *(*body)(void *comm))
{
    ddp_comm *comms[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    setenv("DDP_ALGORITHM", "doubling", 1);
    CHECK_OK(ddp_comm_init_local(nranks, NULL, comms, err));
    for (uint32_t rank = 0; rank < nranks; rank++)
        ck_assert_int_eq(pthread_create(&threads[rank], NULL, body, comms[rank]), 0);
    for (uint32_t rank = 0; rank < nranks; rank++)
        pthread_join(threads[rank], NULL);
    for (uint32_t rank = 0; rank < nranks; rank++)
        ddp_comm_destroy(comms[rank]);
}

START_TEST(calls_agree_with_the_reference)
{
    run_world((uint32_t)_i, call_all);
}
END_TEST

/* The most that it takes; one element more goes round the ring. */
static void *call_large(void *comm)
{
    enum { MOST = 512 * 1024 / sizeof(int32_t) };
    uint32_t nranks = ddp_comm_world_size(comm);
    int32_t *values = malloc((MOST + 1) * sizeof *values);
    CHECK(values != NULL);
    for (size_t more = 0; more < 2; more++) {
        uint64_t before = bytes_sent(comm);
        for (size_t i = 0; i < MOST + more; i++)
            values[i] = (int32_t)(i + ddp_comm_rank(comm));
        CHECK_OK(ddp_all_reduce(comm, values, values, MOST + more, DDP_INT32, DDP_MAX, NULL, err));
        for (size_t i = 0; i < MOST + more; i++)
            CHECK(values[i] == (int32_t)(i + nranks - 1));
        CHECK(more == 1 || bytes_sent(comm) - before == 2 * MOST * sizeof *values);
    }
    free(values);
    return NULL;
}

START_TEST(large_calls_agree)
{
    run_world(4, call_large);
}
END_TEST

/* What recursive doubling cannot do has another algorithm. */
static void *call_others(void *comm)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    int32_t one = 1, all[RANKS_MAX] = {0};
    CHECK_OK(ddp_reduce(comm, &one, &one, 1, DDP_INT32, DDP_SUM, 1, NULL, err));
    CHECK(one == (rank == 1 ? (int32_t)nranks : 1));
    CHECK_OK(ddp_all_gather(comm, &rank, all, 1, DDP_INT32, NULL, err));
    CHECK(all[nranks - 1] == (int32_t)nranks - 1);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    return NULL;
}

START_TEST(other_calls_go_their_way)
{
    run_world(3, call_others);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("doubling in worlds");
    TCase *tcase = tcase_create("doubling in worlds");
    add_sample(tcase, calls_agree_with_the_reference, 1, RANKS_MAX + 1);
    tcase_add_test(tcase, large_calls_agree);
    tcase_add_test(tcase, other_calls_go_their_way);
    suite_add_tcase(suite, tcase);
    return suite;
}
