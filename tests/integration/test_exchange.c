/*
 * test_exchange.c - pieces between all ranks as one run (exchange.h): what arrives, next to
 * messages of the program with the same tag, and what differing ranks are told.
 */
#include "check_main.h"
#include "drive.h"
#include "exchange.h"
#include "runs.h"
#include "world.h"

#include <string.h>

enum { LONG = 300001 }; /* bytes; times the rank: more than an edge of shared memory holds */

struct swap {
    struct ddpi_exchange exchange;
    uint8_t *out, *in; /* LONG bytes for each rank; of rank r, r * LONG are used */
    bool is_longer;    /* rank 1 expects other lengths */
};

static struct swap *swap_of(struct ddpi_run *run)
{
    return run->ended_arg;
}

/* To all ranks as many bytes as the two ranks' numbers say. */
static ddp_status swap_begin(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct ddpi_exchange_piece pieces[2 * WORLD_MAX];
    struct swap *swap = swap_of(run);
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        size_t len = (size_t)LONG * rank * comm->rank / WORLD_MAX + swap->is_longer;
        uint8_t *out = swap->out + (size_t)rank * LONG * 2, *in = swap->in + (out - swap->out);
        memset(out, (int)(comm->rank * 16 + rank), len);
        pieces[2 * rank] = (struct ddpi_exchange_piece){rank, true, out, len};
        pieces[2 * rank + 1] = (struct ddpi_exchange_piece){rank, false, in, len};
    }
    return ddpi_exchange_begin(comm, &swap->exchange, &run->task.call, pieces,
                               2 * comm->world_size);
}

static ddp_status swap_advance(struct ddp_comm *comm, struct ddpi_run *run,
                               enum ddpi_movement *ret_movement)
{
    return ddpi_exchange_advance(comm, &swap_of(run)->exchange, run, ret_movement);
}

static unsigned swap_most_needs(const struct ddpi_run *run)
{
    (void)run;
    return 2 * WORLD_MAX;
}

static unsigned swap_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                           struct ddpi_need *needs)
{
    return ddpi_exchange_needs(comm, &swap_of(run)->exchange, needs);
}

static void swap_end(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status)
{
    (void)status;
    ddpi_exchange_end(comm, &swap_of(run)->exchange);
}

static const struct ddpi_algorithm swap_algorithm = {.name = "swap",
                                                     .begin = swap_begin,
                                                     .advance = swap_advance,
                                                     .most_needs = swap_most_needs,
                                                     .needs = swap_needs,
                                                     .end = swap_end};

static ddp_status swap_all(ddp_comm *comm, struct swap *swap, uint64_t seq)
{
    struct ddpi_run run = {.algorithm = &swap_algorithm, .ended_arg = swap};
    run.task.call =
        (struct ddpi_call){.operation = DDPI_ALL_TO_ALL, .seq = seq, .message_class = DDPI_PIECE};
    run.task.timeout_ms = comm->timeout_ms;
    ddpi_runs_claim(comm);
    ddp_status status = ddpi_drive_inner(comm, &run);
    ddpi_runs_release(comm);
    return status;
}

static struct swap swap_open(void)
{
    struct swap swap = {.out = calloc(WORLD_MAX, 2 * LONG), .in = calloc(WORLD_MAX, 2 * LONG)};
    CHECK(swap.out != NULL && swap.in != NULL);
    return swap;
}

static void swap_close(struct swap *swap)
{
    free(swap->out);
    free(swap->in);
}

static void check_swapped(const struct swap *swap, uint32_t own, uint32_t nranks)
{
    for (uint32_t rank = 0; rank < nranks; rank++) {
        size_t len = (size_t)LONG * rank * own / WORLD_MAX, wrong = 0;
        const uint8_t *in = swap->in + (size_t)rank * LONG * 2;
        for (size_t i = 0; i < len; i++)
            wrong += in[i] != (uint8_t)(rank * 16 + own);
        CHECK(wrong == 0 && in[len] == 0);
    }
}

/* A message of the program, sent before, stays where it is. */
static void swap_between_messages(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct swap swap = swap_open();
    int32_t value = (int32_t)rank, got = -1;
    uint32_t next = (rank + 1) % world->nranks, prev = (rank + world->nranks - 1) % world->nranks;
    CHECK_OK(ddp_send(comm, &value, 1, DDP_INT32, next, NULL, err));
    for (uint64_t seq = 1; seq <= 3; seq++) {
        memset(swap.in, 0, (size_t)WORLD_MAX * 2 * LONG);
        CHECK(swap_all(comm, &swap, seq << 40) == DDP_OK);
        check_swapped(&swap, rank, world->nranks);
    }
    CHECK_OK(ddp_recv(comm, &got, 1, DDP_INT32, prev, NULL, err));
    CHECK(got == (int32_t)prev);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    swap_close(&swap);
}

START_TEST(pieces_arrive)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, swap_between_messages);
    world_close(&world);
}
END_TEST

static void swap_other_lengths(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct swap swap = swap_open();
    struct ddp_error error;
    (void)world;
    swap.is_longer = rank == 1;
    CHECK(swap_all(comm, &swap, 1ULL << 40) == DDP_E_MISMATCH);
    CHECK(ddp_comm_check(comm, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "all_to_all #1099511627776: rank ") != NULL);
    CHECK(strstr(error.msg, ", which sends ") != NULL);
    swap_close(&swap);
}

START_TEST(lengths_must_agree)
{
    struct world world = {.nranks = 2, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, swap_other_lengths);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("exchange");
    TCase *tcase = tcase_create("pieces");
    tcase_add_loop_test(tcase, pieces_arrive, 0, 2);
    tcase_add_loop_test(tcase, lengths_must_agree, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
