/*
 * test_ring.c - every schedule for every world up to 16 ranks, run with symbols instead of bytes.
 */
#include "check_main.h"
#include "ring.h"

enum { MAX_RANKS = 16 };

/* Which ranks' contributions each chunk of each rank holds, as a bit set. */
struct world {
    uint32_t nranks;
    uint32_t held[MAX_RANKS][MAX_RANKS];
};

static struct ddpi_ring ring_of(enum ddpi_ring_kind kind, uint32_t rank, uint32_t nranks,
                                uint32_t root)
{
    return (struct ddpi_ring){.kind = kind, .rank = rank, .nranks = nranks, .root = root};
}

/* Everybody does step @step at once. Neighbours must agree on what is under way. */
static void run_step(struct world *world, enum ddpi_ring_kind kind, uint32_t root, uint32_t step)
{
    struct world before = *world;
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        struct ddpi_ring ring = ring_of(kind, rank, world->nranks, root);
        struct ddpi_ring back =
            ring_of(kind, ddpi_ring_prev(rank, world->nranks), world->nranks, root);
        struct ddpi_ring_step mine = ddpi_ring_step(&ring, step);
        if (!mine.receives)
            continue;
        /* In a broadcast the sender may be one step ahead in its own count, never elsewhere. */
        uint32_t sender_step = step;
        if (kind == DDPI_RING_BROADCAST && back.rank != root)
            sender_step = 1;
        struct ddpi_ring_step theirs = ddpi_ring_step(&back, sender_step);
        ck_assert(theirs.sends);
        ck_assert_uint_eq(theirs.send_chunk, mine.recv_chunk);
        uint32_t in = before.held[back.rank][mine.recv_chunk];
        uint32_t *place = &world->held[rank][mine.recv_chunk];
        if (mine.reduces) {
            ck_assert_uint_eq(*place & in, 0); /* nobody is added twice */
            *place |= in;
            ck_assert_int_eq(mine.finishes, *place == (1U << world->nranks) - 1);
        } else {
            *place = in;
        }
    }
}

START_TEST(all_reduce_adds_each_rank_once)
{
    uint32_t n = (uint32_t)_i;
    struct world world = {.nranks = n};
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t chunk = 0; chunk < n; chunk++)
            world.held[rank][chunk] = 1U << rank;
    struct ddpi_ring ring = ring_of(DDPI_RING_ALL_REDUCE, 0, n, 0);
    ck_assert_uint_eq(ddpi_ring_steps(&ring), 2 * (n - 1));
    ck_assert_uint_eq(ddpi_ring_chunks(&ring), n);
    for (uint32_t step = 0; step < n - 1; step++)
        run_step(&world, DDPI_RING_ALL_REDUCE, 0, step);
    uint32_t all = (1U << n) - 1;
    for (uint32_t rank = 0; rank < n; rank++)
        ck_assert_uint_eq(world.held[rank][ddpi_ring_next(rank, n)], all);
    for (uint32_t step = n - 1; step < 2 * (n - 1); step++)
        run_step(&world, DDPI_RING_ALL_REDUCE, 0, step);
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t chunk = 0; chunk < n; chunk++)
            ck_assert_uint_eq(world.held[rank][chunk], all);
}
END_TEST

START_TEST(all_gather_reaches_everybody)
{
    uint32_t n = (uint32_t)_i;
    struct world world = {.nranks = n};
    for (uint32_t rank = 0; rank < n; rank++)
        world.held[rank][rank] = 1U << rank;
    for (uint32_t step = 0; step < n - 1; step++)
        run_step(&world, DDPI_RING_ALL_GATHER, 0, step);
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t chunk = 0; chunk < n; chunk++)
            ck_assert_uint_eq(world.held[rank][chunk], 1U << chunk);
}
END_TEST

START_TEST(reduce_scatter_ends_with_the_own_chunk)
{
    uint32_t n = (uint32_t)_i;
    struct world world = {.nranks = n};
    for (uint32_t rank = 0; rank < n; rank++)
        for (uint32_t chunk = 0; chunk < n; chunk++)
            world.held[rank][chunk] = 1U << rank;
    struct ddpi_ring ring = ring_of(DDPI_RING_REDUCE_SCATTER, 0, n, 0);
    ck_assert_uint_eq(ddpi_ring_steps(&ring), n - 1);
    ck_assert_uint_eq(ddpi_ring_chunks(&ring), n);
    for (uint32_t step = 0; step < n - 1; step++)
        run_step(&world, DDPI_RING_REDUCE_SCATTER, 0, step);
    for (uint32_t rank = 0; rank < n; rank++) {
        ck_assert_uint_eq(world.held[rank][rank], (1U << n) - 1);
        ring = ring_of(DDPI_RING_REDUCE_SCATTER, rank, n, 0);
        for (uint32_t step = 0; step < n - 1; step++) /* it would be lost in scratch memory */
            ck_assert_uint_ne(ddpi_ring_step(&ring, step).send_chunk, rank);
    }
}
END_TEST

/* The rank behind the root begins; each one adds its own to what the one before has sent. */
START_TEST(reduce_collects_at_the_root)
{
    uint32_t n = (uint32_t)_i;
    for (uint32_t root = 0; root < n; root++) {
        uint32_t held = 0;
        for (uint32_t hop = 0; hop < n; hop++) {
            uint32_t rank = (root + 1 + hop) % n;
            struct ddpi_ring ring = ring_of(DDPI_RING_REDUCE, rank, n, root);
            ck_assert_uint_eq(ddpi_ring_chunks(&ring), 1);
            ck_assert_uint_eq(ddpi_ring_steps(&ring), 2);
            struct ddpi_ring_step first = ddpi_ring_step(&ring, 0);
            struct ddpi_ring_step second = ddpi_ring_step(&ring, 1);
            ck_assert_int_eq(first.receives, hop > 0);
            ck_assert_int_eq(first.reduces, hop > 0);
            ck_assert_int_eq(first.sends, hop == 0);
            ck_assert_int_eq(second.sends, hop > 0 && rank != root);
            ck_assert(!second.receives);
            held |= 1U << rank;
            ck_assert_int_eq(first.finishes, held == (1U << n) - 1);
        }
    }
}
END_TEST

START_TEST(broadcast_passes_every_rank)
{
    uint32_t n = (uint32_t)_i;
    for (uint32_t root = 0; root < n; root++) {
        uint32_t senders = 0, receivers = 0;
        for (uint32_t rank = 0; rank < n; rank++) {
            struct ddpi_ring ring = ring_of(DDPI_RING_BROADCAST, rank, n, root);
            struct ddpi_ring_step first = ddpi_ring_step(&ring, 0);
            struct ddpi_ring_step second = ddpi_ring_step(&ring, 1);
            ck_assert_int_eq(first.sends, rank == root);
            ck_assert_int_eq(first.receives, rank != root);
            ck_assert(!second.receives);
            senders += first.sends + second.sends;
            receivers += first.receives;
            /* Whoever receives has a sender behind it. */
            struct ddpi_ring back = ring_of(DDPI_RING_BROADCAST, ddpi_ring_prev(rank, n), n, root);
            bool back_sends = ddpi_ring_step(&back, 0).sends || ddpi_ring_step(&back, 1).sends;
            ck_assert_int_eq(first.receives, back_sends);
        }
        ck_assert_uint_eq(senders, n - 1);
        ck_assert_uint_eq(receivers, n - 1);
    }
}
END_TEST

START_TEST(what_is_sent_came_in_one_step_before)
{
    uint32_t n = (uint32_t)_i;
    static const enum ddpi_ring_kind kinds[] = {DDPI_RING_ALL_REDUCE, DDPI_RING_ALL_GATHER,
                                                DDPI_RING_REDUCE_SCATTER};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (uint32_t rank = 0; rank < n; rank++) {
            struct ddpi_ring ring = ring_of(kinds[kind], rank, n, 0);
            for (uint32_t step = 1; step < ddpi_ring_steps(&ring); step++)
                ck_assert_uint_eq(ddpi_ring_step(&ring, step).send_chunk,
                                  ddpi_ring_step(&ring, step - 1).recv_chunk);
        }
}
END_TEST

START_TEST(chunks_cover_everything_evenly)
{
    uint32_t n = (uint32_t)_i;
    static const size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 100, 1009, 1U << 20, SIZE_MAX};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t at = 0, shortest = SIZE_MAX, longest = 0;
        for (uint32_t index = 0; index < n; index++) {
            struct ddpi_chunk chunk = ddpi_ring_chunk(counts[c], n, index);
            ck_assert_uint_eq(chunk.first, at);
            at += chunk.count;
            shortest = chunk.count < shortest ? chunk.count : shortest;
            longest = chunk.count > longest ? chunk.count : longest;
        }
        ck_assert_uint_eq(at, counts[c]);
        ck_assert_uint_le(longest - shortest, 1);
    }
}
END_TEST

START_TEST(each_rank_sends_two_k_times_n_minus_one_over_n)
{
    uint32_t n = (uint32_t)_i;
    size_t count = 3 * (size_t)n;
    for (uint32_t rank = 0; rank < n; rank++) {
        struct ddpi_ring ring = ring_of(DDPI_RING_ALL_REDUCE, rank, n, 0);
        size_t sent = 0;
        for (uint32_t step = 0; step < ddpi_ring_steps(&ring); step++)
            sent += ddpi_ring_chunk(count, n, ddpi_ring_step(&ring, step).send_chunk).count;
        ck_assert_uint_eq(sent, 2 * count * (n - 1) / n);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("ring");
    TCase *tcase = tcase_create("schedules");
    tcase_add_loop_test(tcase, all_reduce_adds_each_rank_once, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, all_gather_reaches_everybody, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, reduce_scatter_ends_with_the_own_chunk, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, reduce_collects_at_the_root, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, broadcast_passes_every_rank, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, what_is_sent_came_in_one_step_before, 2, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, chunks_cover_everything_evenly, 1, MAX_RANKS + 1);
    tcase_add_loop_test(tcase, each_rank_sends_two_k_times_n_minus_one_over_n, 2, MAX_RANKS + 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
