/*
 * test_types.c - every type whose elements are multiplied first, and every type as data that is
 * moved, between real processes, against the reference of elements.h. Counts are odd, so are
 * addresses. Other reductions are in test_collectives.c.
 */
#include "check_main.h"
#include "elements.h"
#include "world.h"

#include <string.h>

enum { COUNT = 77, ROOM = COUNT * DDPI_DTYPE_SIZE_MOST, RANKS = 3 };

/* Buffers of all ranks, which every rank can make up, and the result. */
struct buffers {
    uint8_t in[RANKS][ROOM + 1];
    uint8_t out[RANKS * ROOM + 1];
};

static void fill_all(struct buffers *buffers, ddp_dtype dtype)
{
    uint64_t state = (uint64_t)dtype;
    memset(buffers, 0x5a, sizeof *buffers);
    for (uint32_t k = 0; k < RANKS; k++)
        elements_fill(buffers->in[k] + 1, COUNT, dtype, &state);
}

static void check_elements(const struct buffers *buffers, const struct ddpi_reduction *work,
                           size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        element_bits in[RANKS];
        for (uint32_t k = 0; k < RANKS; k++)
            in[k] = elements_get(buffers->in[k] + 1, first + i, work->dtype);
        CHECK(elements_agree(work->dtype, elements_get(buffers->out + 1, i, work->dtype),
                             elements_folded(work, in)));
    }
    CHECK(buffers->out[0] == 0x5a && buffers->out[1 + count * ddp_dtype_size(work->dtype)] == 0x5a);
}

/* ---- elements that are multiplied first ---- */

/* Small numbers, whose products and sums every float type holds. */
static void fill_small(struct buffers *buffers, ddp_dtype dtype)
{
    memset(buffers, 0x5a, sizeof *buffers);
    for (uint32_t k = 0; k < RANKS; k++)
        for (size_t i = 0; i < COUNT; i++) {
            element_bits bits = elements_of_double(dtype, (double)((i + k) % 3) - 1);
            memcpy(buffers->in[k] + 1 + i * ddp_dtype_size(dtype), &bits, ddp_dtype_size(dtype));
        }
}

static void check_factors(struct world *world, uint32_t rank, ddp_comm *comm,
                          struct ddp_operation *operation)
{
    static const double factors[RANKS] = {2, 1, 0.5};
    static const double third[RANKS] = {1.0 / RANKS, 1.0 / RANKS, 1.0 / RANKS};
    static struct buffers buffers;
    bool premul = operation->op == DDP_PREMUL_SUM;
    struct ddpi_reduction work = {.nin = world->nranks,
                                  .dtype = operation->dtype,
                                  .op = operation->op,
                                  .divisor = 1,
                                  .factor = premul ? factors : third};
    size_t part = operation->kind == DDP_KIND_REDUCE_SCATTER ? operation->count : 0;
    if (premul)
        fill_small(&buffers, operation->dtype);
    else
        fill_all(&buffers, operation->dtype);
    operation->send = buffers.in[rank] + 1;
    operation->recv = buffers.out + 1;
    operation->factor = factors[rank];
    CHECK_OK(ddp_run(comm, operation, err));
    if (operation->kind != DDP_KIND_REDUCE || rank == operation->peer)
        check_elements(&buffers, &work, rank * part, operation->count);
    /* In place, the buffer that was sent is the one that has the result. */
    if (operation->kind != DDP_KIND_ALL_REDUCE)
        return;
    memcpy(buffers.out + 1, buffers.in[rank] + 1, COUNT * ddp_dtype_size(operation->dtype));
    operation->send = operation->recv;
    CHECK_OK(ddp_run(comm, operation, err));
    check_elements(&buffers, &work, 0, operation->count);
}

static void every_factor(struct world *world, uint32_t rank, ddp_comm *comm)
{
    bool ordered = world->algorithm == DDP_ALGORITHM_DIRECT && world->nranks == RANKS;
    for (int i = 0; i < DDPI_DTYPES; i++) {
        struct ddp_operation operation = {.size = sizeof operation, .dtype = (ddp_dtype)i};
        if (!elements_reduce(operation.dtype, DDP_PREMUL_SUM))
            continue;
        for (int average = 0; average < (ordered ? 2 : 1); average++) {
            operation.op = average ? DDP_AVERAGE_BEFORE : DDP_PREMUL_SUM;
            operation.count = COUNT;
            operation.kind = DDP_KIND_ALL_REDUCE;
            check_factors(world, rank, comm, &operation);
            operation.kind = DDP_KIND_REDUCE;
            operation.peer = (uint32_t)i % world->nranks;
            check_factors(world, rank, comm, &operation);
            operation.kind = DDP_KIND_REDUCE_SCATTER;
            operation.count = COUNT / world->nranks;
            check_factors(world, rank, comm, &operation);
        }
    }
}

/* The test's number counts (algorithm, transport, ranks). */
START_TEST(elements_are_multiplied_first)
{
    struct world world = {.nranks = _i / 4 != 0 ? 1 : RANKS,
                          .algorithm = _i % 2 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_DIRECT,
                          .tcp = _i / 2 % 2 != 0};
    world_open(&world);
    world_run(&world, every_factor);
    world_close(&world);
}
END_TEST

static void every_move(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static struct buffers buffers;
    uint32_t next = (rank + 1) % RANKS, prev = (rank + RANKS - 1) % RANKS;
    (void)world;
    for (int i = 0; i < DDPI_DTYPES; i++) {
        ddp_dtype dtype = (ddp_dtype)i;
        size_t len = COUNT * ddp_dtype_size(dtype);
        uint8_t *out = buffers.out + 1;
        fill_all(&buffers, dtype);
        CHECK_OK(ddp_all_gather(comm, buffers.in[rank] + 1, out, COUNT, dtype, NULL, err));
        for (uint32_t k = 0; k < RANKS; k++)
            CHECK(memcmp(out + k * len, buffers.in[k] + 1, len) == 0);
        CHECK_OK(
            ddp_broadcast(comm, rank == 1 ? buffers.in[1] + 1 : out, COUNT, dtype, 1, NULL, err));
        CHECK(memcmp(out, buffers.in[rank == 1 ? 0 : 1] + 1, len) == 0);
        CHECK_OK(ddp_send(comm, buffers.in[rank] + 1, COUNT, dtype, next, NULL, err));
        CHECK_OK(ddp_recv(comm, out, COUNT, dtype, prev, NULL, err));
        CHECK(memcmp(out, buffers.in[prev] + 1, len) == 0);
    }
}

START_TEST(every_type_is_moved)
{
    struct world world = {.nranks = RANKS};
    world_open(&world);
    world_run(&world, every_move);
    world_close(&world);
}
END_TEST

static void refused_pairs(struct world *world, uint32_t rank, ddp_comm *comm)
{
    char bytes[16] = {0};
    struct ddp_error error;
    (void)world, (void)rank;
    CHECK(ddp_all_reduce(comm, bytes, bytes, 1, DDP_COMPLEX64, DDP_MAX, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(strstr(error.msg, "max of complex64: complex numbers have no order") != NULL);
    CHECK(ddp_reduce(comm, bytes, bytes, 1, DDP_BYTE, DDP_SUM, 0, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "sum of byte: bytes have no value") != NULL);
    CHECK_OK(ddp_comm_check(comm, err)); /* a refusal has no effect */
}

START_TEST(pairs_that_are_not_allowed)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, refused_pairs);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("types");
    TCase *tcase = tcase_create("between processes");
    tcase_add_loop_test(tcase, elements_are_multiplied_first, 0, 5);
    tcase_add_test(tcase, every_type_is_moved);
    tcase_add_test(tcase, pairs_that_are_not_allowed);
    suite_add_tcase(suite, tcase);
    return suite;
}
