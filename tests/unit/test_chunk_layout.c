/*
 * test_chunk_layout.c - addresses of chunks for every operation, world size and algorithm: parts
 * cover each chunk once, scratch is never left, results lie where the caller wants them, and what
 * is passed on was not overwritten.
 */
#include "check_main.h"
#include "chunk_layout.h"
#include "sample.h"

enum { MAX_RANKS = 16, SIZE = 4 };

/* For their addresses only; nothing is read or written there. */
static uint8_t send_space[1 << 26], recv_space[1 << 26], scratch_space[DDPI_SCRATCH_SIZE];

struct job {
    struct ddpi_call call;
    struct ddpi_ring ring;
    struct ddpi_layout layout;
};

static void fill(struct job *job, enum ddpi_operation operation, enum ddpi_ring_kind kind,
                 uint32_t rank, uint32_t nranks, size_t count)
{
    bool all = operation == DDPI_ALL_GATHER || operation == DDPI_REDUCE_SCATTER;
    *job = (struct job){.call = {.operation = operation, .count = count},
                        .ring = {.kind = kind, .rank = rank, .nranks = nranks, .root = nranks - 1}};
    job->layout = (struct ddpi_layout){.call = &job->call,
                                       .ring = &job->ring,
                                       .send = send_space,
                                       .recv = recv_space,
                                       .scratch = scratch_space,
                                       .scratch_size = sizeof scratch_space,
                                       .count = all ? nranks * count : count,
                                       .element_size = SIZE};
}

static size_t at(const uint8_t *place, const uint8_t *space)
{
    return (size_t)((uintptr_t)place - (uintptr_t)space);
}

static const size_t counts[] = {0, 1, 5, 1009, DDPI_SCRATCH_SIZE / SIZE, 1000003};
enum { COUNTS = sizeof counts / sizeof *counts };

START_TEST(whole_chunks_lie_in_the_result)
{
    uint32_t n = (uint32_t)_i;
    for (size_t c = 0; c < COUNTS; c++)
        for (uint32_t chunk = 0; chunk < n; chunk++) {
            struct ddpi_chunk of = ddpi_ring_chunk(counts[c], n, chunk);
            struct job job;
            fill(&job, DDPI_ALL_REDUCE, DDPI_RING_ALL_REDUCE, 0, n, counts[c]);
            ck_assert_uint_eq(ddpi_layout_parts(&job.layout), 1);
            struct ddpi_place place = ddpi_layout_place(&job.layout, 0, chunk);
            ck_assert_uint_eq(place.len, of.count * SIZE);
            ck_assert_uint_eq(ddpi_layout_len(&job.layout, chunk), place.len);
            if (of.count == 0)
                continue;
            ck_assert_uint_eq(at(place.own, send_space), of.first * SIZE);
            ck_assert_uint_eq(at(place.held, recv_space), of.first * SIZE);
            fill(&job, DDPI_ALL_GATHER, DDPI_RING_ALL_GATHER, chunk, n, counts[c]);
            place = ddpi_layout_place(&job.layout, 0, chunk);
            ck_assert_uint_eq(place.len, counts[c] * SIZE);
            ck_assert_uint_eq(at(place.own, send_space), 0);
            ck_assert_uint_eq(at(place.held, recv_space), chunk * counts[c] * SIZE);
        }
}
END_TEST

/* The slices of one chunk that is @count elements long, one behind the other. */
static void check_slices(const struct job *job, uint32_t chunk, size_t count, size_t own_first,
                         bool is_result)
{
    size_t done = 0, parts = ddpi_layout_parts(&job->layout);
    ck_assert_uint_ge(parts, 1);
    for (size_t part = 0; part < parts; part++) {
        struct ddpi_place place = ddpi_layout_place(&job->layout, part, chunk);
        if (count == 0) {
            ck_assert_uint_eq(place.len, 0);
            continue;
        }
        ck_assert_uint_gt(place.len, 0);
        ck_assert_uint_eq(at(place.own, send_space), own_first * SIZE + done);
        if (is_result)
            ck_assert_uint_eq(at(place.held, recv_space), done);
        else
            ck_assert_uint_le(at(place.held, scratch_space) + place.len, DDPI_SCRATCH_SIZE);
        done += place.len;
    }
    ck_assert_uint_eq(done, count * SIZE);
    ck_assert_uint_eq(ddpi_layout_len(&job->layout, chunk), done);
}

START_TEST(partial_results_lie_in_scratch)
{
    uint32_t n = (uint32_t)_i;
    for (size_t c = 0; c < COUNTS; c++)
        for (uint32_t rank = 0; rank < n; rank++) {
            struct job job;
            fill(&job, DDPI_REDUCE, DDPI_RING_REDUCE, rank, n, counts[c]);
            check_slices(&job, 0, counts[c], 0, rank == n - 1);
            fill(&job, DDPI_REDUCE_SCATTER, DDPI_RING_REDUCE_SCATTER, rank, n, counts[c]);
            for (uint32_t chunk = 0; chunk < n; chunk++)
                check_slices(&job, chunk, counts[c], chunk * counts[c], chunk == rank);
        }
}
END_TEST

/* Chunks of one part do not overlap in scratch. */
START_TEST(chunks_lie_apart_in_scratch)
{
    uint32_t n = (uint32_t)_i;
    struct job job;
    fill(&job, DDPI_REDUCE_SCATTER, DDPI_RING_REDUCE_SCATTER, 0, n, 1000003);
    size_t end = 0;
    for (uint32_t chunk = 1; chunk < n; chunk++) {
        struct ddpi_place place = ddpi_layout_place(&job.layout, 0, chunk);
        ck_assert_uint_ge(at(place.held, scratch_space), end);
        end = at(place.held, scratch_space) + place.len;
    }
}
END_TEST

/* By direct: what a rank wants is covered once, part by part, and read where it was put. */
static void check_gathered(enum ddpi_operation operation, uint32_t rank, uint32_t n, size_t count)
{
    struct job job;
    fill(&job, operation, DDPI_RING_ALL_GATHER, rank, n, count);
    job.layout.gathered = true;
    bool scatter = operation == DDPI_REDUCE_SCATTER;
    size_t done = 0, moved = 0, parts = ddpi_layout_parts(&job.layout);
    for (size_t part = 0; part < parts; part++) {
        struct ddpi_place ours = ddpi_layout_place(&job.layout, part, rank);
        struct ddpi_gathered gathered;
        if (ours.len > 0)
            ck_assert_uint_eq(at(ours.own, send_space), moved);
        if (ddpi_layout_gathered(&job.layout, part, &gathered)) {
            size_t first = done + (scatter ? rank * count * SIZE : 0); /* of all elements */
            ck_assert_uint_eq(at(gathered.out, recv_space), done);
            ck_assert_uint_ge(first, moved);
            for (uint32_t k = 0; k < n; k++) {
                struct ddpi_place place = ddpi_layout_place(&job.layout, part, k);
                ck_assert_ptr_eq(gathered.in + k * gathered.stride, place.held + (first - moved));
                ck_assert_uint_le(first - moved + gathered.count * SIZE, place.len);
                ck_assert_uint_le(at(place.held, scratch_space) + place.len, DDPI_SCRATCH_SIZE);
            }
            done += gathered.count * SIZE;
        }
        moved += ours.len;
    }
    bool nothing = operation == DDPI_REDUCE && rank != n - 1;
    ck_assert_uint_eq(moved, (scatter ? n * count : count) * SIZE);
    ck_assert_uint_eq(done, nothing ? 0 : count * SIZE);
}

START_TEST(contributions_are_gathered_in_scratch)
{
    uint32_t n = (uint32_t)_i;
    for (size_t c = 0; c < COUNTS; c++)
        for (uint32_t rank = 0; rank<n; rank += n> 4 ? 3 : 1) {
            check_gathered(DDPI_ALL_REDUCE, rank, n, counts[c]);
            check_gathered(DDPI_REDUCE, rank, n, counts[c]);
            check_gathered(DDPI_REDUCE_SCATTER, rank, n, counts[c] / n);
        }
}
END_TEST

START_TEST(the_largest_world_has_room)
{
    struct job job;
    fill(&job, DDPI_REDUCE_SCATTER, DDPI_RING_REDUCE_SCATTER, 0, 65536, 3);
    job.layout.element_size = 8;
    ck_assert_uint_eq(ddpi_layout_parts(&job.layout), 3);
    struct ddpi_place place = ddpi_layout_place(&job.layout, 2, 65535);
    ck_assert_uint_eq(at(place.held, scratch_space), DDPI_SCRATCH_SIZE - 8);
    ck_assert_uint_eq(place.len, 8);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("chunk_layout");
    TCase *tcase = tcase_create("layout");
    add_sample(tcase, whole_chunks_lie_in_the_result, 2, MAX_RANKS + 1);
    add_sample(tcase, partial_results_lie_in_scratch, 2, MAX_RANKS + 1);
    add_sample(tcase, chunks_lie_apart_in_scratch, 2, MAX_RANKS + 1);
    add_sample(tcase, contributions_are_gathered_in_scratch, 2, MAX_RANKS + 1);
    tcase_add_test(tcase, the_largest_world_has_room);
    suite_add_tcase(suite, tcase);
    return suite;
}
