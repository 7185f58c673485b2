/*
 * test_collectives.c - the collectives between real processes against a reference that does the
 * same element by element: every type with every reduction, by each algorithm, in worlds of 1 to 8
 * ranks, with sizes that do not come out even, at odd addresses, in place and out of place. Outputs
 * are poisoned before and have guards around them; bytes are counted.
 */
#include "check_main.h"
#include "elements.h"
#include "ring.h"
#include "sweep.h"
#include "world.h"

#include <string.h>

enum { GUARD = 64, POISON = 0xa5 };

/* ---- the reference ---- */

struct problem {
    uint32_t rank, nranks, root;
    ddp_algorithm algorithm;
    bool shared; /* all ranks meet in shared memory */
    ddp_dtype dtype;
    ddp_reduce_op op;
    size_t count; /* as the caller passes it */
    bool in_place;
};

/* Element @i of rank @rank: any bits. */
static void put_input(ddp_dtype dtype, uint8_t *at, uint32_t rank, size_t i)
{
    uint64_t state = (uint64_t)rank << 40 | i;
    elements_fill(at, 1, dtype, &state);
}

/* The same as a rank contributes it. */
static element_bits contribution(const struct problem *of, uint32_t rank, size_t i)
{
    uint8_t element[DDPI_DTYPE_SIZE_MOST];
    put_input(of->dtype, element, rank, i);
    element_bits bits = elements_get(element, 0, of->dtype);
    bool scaled = of->op == DDP_AVERAGE_BEFORE && of->nranks > 1;
    return scaled ? elements_scaled(of->dtype, bits, 1.0 / of->nranks) : bits;
}

/* Element @i, over all ranks: from rank @start round the ring, rounded at each hop, or all at once
 * from rank 0 on. */
static void put_reduced(const struct problem *of, uint8_t *at, size_t i, uint32_t start)
{
    bool direct = of->algorithm == DDP_ALGORITHM_DIRECT;
    struct ddpi_reduction work = {.nin = direct ? of->nranks : 2, .dtype = of->dtype, .op = of->op};
    element_bits in[WORLD_MAX];
    for (uint32_t k = 0; k < of->nranks; k++)
        in[k] = contribution(of, direct ? k : (start + k) % of->nranks, i);
    for (uint32_t k = direct ? of->nranks - 1 : 1; k < of->nranks; k++) {
        bool last = k + 1 == of->nranks;
        work.divisor = last && of->op == DDP_AVERAGE ? of->nranks : 1;
        in[0] = elements_folded(&work, direct ? in : (element_bits[]){in[0], in[k]});
    }
    memcpy(at, &in[0], ddp_dtype_size(of->dtype));
}

/* ---- buffers ---- */

struct buffer {
    uint8_t *space;
    uint8_t *bytes; /* at an odd address */
    size_t len;
};

static struct buffer buffer_of(size_t len)
{
    struct buffer buffer = {.space = malloc(len + 2 * GUARD), .len = len};
    CHECK(buffer.space != NULL);
    memset(buffer.space, POISON, len + 2 * GUARD);
    buffer.bytes = buffer.space + GUARD - 1;
    return buffer;
}

static struct buffer input_of(const struct problem *of, size_t count)
{
    size_t size = ddp_dtype_size(of->dtype);
    struct buffer buffer = buffer_of(count * size);
    for (size_t i = 0; i < count; i++)
        put_input(of->dtype, buffer.bytes + i * size, of->rank, i);
    return buffer;
}

static bool is_poison(const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != POISON)
            return false;
    return true;
}

static void free_buffer(struct buffer *buffer)
{
    CHECK(is_poison(buffer->space, GUARD - 1));
    CHECK(is_poison(buffer->bytes + buffer->len, GUARD + 1));
    free(buffer->space);
}

static void same_inputs(const struct problem *of, const struct buffer *buffer, size_t first,
                        size_t count)
{
    size_t size = ddp_dtype_size(of->dtype);
    uint8_t element[DDPI_DTYPE_SIZE_MOST];
    for (size_t i = first; i < first + count; i++) {
        put_input(of->dtype, element, of->rank, i);
        CHECK(memcmp(buffer->bytes + i * size, element, size) == 0);
    }
}

/* ---- one call each: expected bytes, expected counters ---- */

static struct ddp_comm_stats stats_of(ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats;
}

static void check_counters(ddp_comm *comm, const struct problem *of,
                           const struct ddp_comm_stats *before, uint64_t sent, uint64_t received)
{
    struct ddp_comm_stats after = stats_of(comm);
    size_t size = ddp_dtype_size(of->dtype);
    CHECK(after.bytes_sent - before->bytes_sent == (of->nranks > 1 ? sent * size : 0));
    CHECK(after.bytes_received - before->bytes_received == (of->nranks > 1 ? received * size : 0));
    CHECK(after.operations == before->operations + 1);
}

static size_t chunk_len(const struct problem *of, uint32_t index)
{
    return ddpi_ring_chunk(of->count, of->nranks, index % of->nranks).count;
}

static void all_reduce(ddp_comm *comm, const struct problem *of)
{
    size_t size = ddp_dtype_size(of->dtype), bytes = of->count * size;
    struct buffer send = input_of(of, of->count), recv = buffer_of(bytes);
    struct buffer *result = of->in_place ? &send : &recv;
    struct ddp_comm_stats before = stats_of(comm);
    CHECK_OK(
        ddp_all_reduce(comm, send.bytes, result->bytes, of->count, of->dtype, of->op, NULL, err));
    if (of->shared) {
        check_counters(comm, of, &before, of->count, of->count);
    } else if (of->algorithm == DDP_ALGORITHM_DIRECT) {
        uint64_t passed = of->count * (of->nranks - 1);
        check_counters(comm, of, &before, passed, passed);
    } else { /* twice all chunks but one */
        uint64_t sent = 2 * of->count - chunk_len(of, of->rank + 1) - chunk_len(of, of->rank + 2);
        uint64_t received = 2 * of->count - chunk_len(of, of->rank) - chunk_len(of, of->rank + 1);
        check_counters(comm, of, &before, sent, received);
    }
    struct buffer expected = buffer_of(bytes);
    for (uint32_t index = 0; index < of->nranks; index++) {
        struct ddpi_chunk chunk = ddpi_ring_chunk(of->count, of->nranks, index);
        for (size_t i = chunk.first; i < chunk.first + chunk.count; i++)
            put_reduced(of, expected.bytes + i * size, i, index);
    }
    CHECK(elements_differ(of->dtype, result->bytes, expected.bytes, of->count) == of->count);
    if (!of->in_place)
        same_inputs(of, &send, 0, of->count);
    free_buffer(&send);
    free_buffer(&recv);
    free_buffer(&expected);
}

static void reduce(ddp_comm *comm, const struct problem *of)
{
    size_t size = ddp_dtype_size(of->dtype), bytes = of->count * size;
    bool is_root = of->rank == of->root;
    struct buffer send = input_of(of, of->count), recv = buffer_of(bytes);
    struct buffer *result = of->in_place ? &send : &recv;
    struct ddp_comm_stats before = stats_of(comm);
    CHECK_OK(ddp_reduce(comm, send.bytes, result->bytes, of->count, of->dtype, of->op, of->root,
                        NULL, err));
    if (of->shared) {
        check_counters(comm, of, &before, of->count, is_root ? of->count : 0);
    } else if (of->algorithm == DDP_ALGORITHM_DIRECT) {
        uint64_t passed = of->count * (of->nranks - 1);
        check_counters(comm, of, &before, passed, passed);
    } else {
        bool is_first = of->rank == ddpi_ring_next(of->root, of->nranks);
        check_counters(comm, of, &before, is_root ? 0 : of->count, is_first ? 0 : of->count);
    }
    if (is_root) {
        struct buffer expected = buffer_of(bytes);
        for (size_t i = 0; i < of->count; i++)
            put_reduced(of, expected.bytes + i * size, i, of->root + 1);
        CHECK(elements_differ(of->dtype, result->bytes, expected.bytes, of->count) == of->count);
        free_buffer(&expected);
    } else {
        CHECK(is_poison(recv.bytes, bytes));
    }
    if (!of->in_place || !is_root)
        same_inputs(of, &send, 0, of->count);
    free_buffer(&send);
    free_buffer(&recv);
}

static void reduce_scatter(ddp_comm *comm, const struct problem *of)
{
    size_t size = ddp_dtype_size(of->dtype), bytes = of->count * size;
    size_t all = of->count * of->nranks, ours = of->rank * of->count;
    struct buffer send = input_of(of, all), recv = buffer_of(bytes);
    uint8_t *result = of->in_place ? send.bytes + of->rank * bytes : recv.bytes;
    struct ddp_comm_stats before = stats_of(comm);
    CHECK_OK(ddp_reduce_scatter(comm, send.bytes, result, of->count, of->dtype, of->op, NULL, err));
    uint64_t passed = (of->algorithm == DDP_ALGORITHM_DIRECT ? all : of->count) * (of->nranks - 1);
    check_counters(comm, of, &before, of->shared ? all : passed, of->shared ? of->count : passed);
    struct buffer expected = buffer_of(bytes);
    for (size_t i = 0; i < of->count; i++)
        put_reduced(of, expected.bytes + i * size, ours + i, of->rank + 1);
    CHECK(elements_differ(of->dtype, result, expected.bytes, of->count) == of->count);
    same_inputs(of, &send, 0, ours);
    if (!of->in_place)
        same_inputs(of, &send, ours, of->count);
    same_inputs(of, &send, ours + of->count, all - ours - of->count);
    free_buffer(&send);
    free_buffer(&recv);
    free_buffer(&expected);
}

static void all_gather(ddp_comm *comm, const struct problem *of)
{
    size_t size = ddp_dtype_size(of->dtype), bytes = of->count * size;
    struct buffer send = input_of(of, of->count), recv = buffer_of(bytes * of->nranks);
    uint8_t *own = send.bytes;
    if (of->in_place) {
        own = recv.bytes + of->rank * bytes;
        memcpy(own, send.bytes, bytes);
    }
    struct ddp_comm_stats before = stats_of(comm);
    CHECK_OK(ddp_all_gather(comm, own, recv.bytes, of->count, of->dtype, NULL, err));
    uint64_t passed = of->count * (of->nranks - 1);
    check_counters(comm, of, &before, of->shared ? of->count : passed, passed);
    for (uint32_t rank = 0; rank < of->nranks; rank++)
        for (size_t i = 0; i < of->count; i++) {
            uint8_t element[DDPI_DTYPE_SIZE_MOST];
            put_input(of->dtype, element, rank, i);
            CHECK(memcmp(recv.bytes + rank * bytes + i * size, element, size) == 0);
        }
    same_inputs(of, &send, 0, of->count);
    free_buffer(&send);
    free_buffer(&recv);
}

static void all_calls(ddp_comm *comm, struct problem *of)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        of->in_place = in_place != 0;
        all_reduce(comm, of);
        reduce(comm, of);
        reduce_scatter(comm, of);
        if (of->op == DDP_SUM)
            all_gather(comm, of);
    }
}

/* ---- worlds ---- */

static struct problem problem_of(const struct world *world, uint32_t rank)
{
    return (struct problem){.rank = rank,
                            .nranks = world->nranks,
                            .algorithm = world->algorithm,
                            .shared = world->algorithm == DDP_ALGORITHM_DIRECT && !world->tcp};
}

static void every_type_and_reduction(struct world *world, uint32_t rank, ddp_comm *comm)
{
    size_t n = world->nranks;
    const size_t sizes[] = {1, n - 1, n, n + 1, 0, 101};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    struct problem of = problem_of(world, rank);
    struct sweep sweep = {.world = world->stage};
    for (unsigned i = 0; sweep_next(&sweep); i++) {
        of.dtype = sweep.dtype;
        of.op = sweep.op;
        of.root = sweep.turn % world->nranks;
        for (unsigned some = 0; some < 2; some++) {
            of.count = sizes[(i + some) % SIZES]; /* each type meets them all */
            all_calls(comm, &of);
        }
    }
}

/* Worlds of every size with every algorithm and every transport; in the sample every two of these
 * meet. */
enum { SAMPLE_WORLDS = 2 * WORLD_MAX, ALL_WORLDS = 2 * SAMPLE_WORLDS };

static struct world world_of(int i)
{
    int size = i % WORLD_MAX, turn = i / WORLD_MAX; /* turns 0 and 1 are the sample */
    return (struct world){.nranks = (uint32_t)size + 1,
                          .algorithm = turn % 2 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_DIRECT,
                          .tcp = (size + turn + turn / 2) % 2 != 0,
                          .stage = (uint32_t)i};
}

START_TEST(calls_agree_with_the_reference)
{
    struct world world = world_of(_i);
    world_open(&world);
    world_run(&world, every_type_and_reduction);
    world_close(&world);
}
END_TEST

/* More than scratch memory takes at a time, by far and by one element. */
static void large_counts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    size_t room = 512 * 1024 / sizeof(uint16_t);
    const size_t sizes[] = {room / world->nranks + 1, room + 1, 2 * room / world->nranks};
    struct problem of = problem_of(world, rank);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        of.dtype = i == 1 ? DDP_FLOAT16 : DDP_BFLOAT16;
        of.op = i == 1 ? DDP_SUM : DDP_AVERAGE;
        of.count = sizes[i];
        of.root = (uint32_t)i % world->nranks;
        all_calls(comm, &of);
    }
}

/* @_i counts (algorithm, transport, size). */
START_TEST(parts_fit_together)
{
    static const uint32_t sizes[] = {3, 2, 5};
    struct world world = {.nranks = sizes[_i / 4],
                          .algorithm = _i % 2 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_DIRECT,
                          .tcp = _i / 2 % 2 != 0};
    world_open(&world);
    world_run(&world, large_counts);
    world_close(&world);
}
END_TEST

/* The same elements in calls of different sizes: by `direct` the bits are the same. */
static void split_sums(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { COUNT = 100003 };
    struct problem of = problem_of(world, rank);
    of.dtype = DDP_BFLOAT16;
    of.op = DDP_AVERAGE;
    struct buffer whole = input_of(&of, COUNT), split = input_of(&of, COUNT);
    CHECK_OK(ddp_all_reduce(comm, whole.bytes, whole.bytes, COUNT, of.dtype, of.op, NULL, err));
    for (size_t first = 0, count = 1; first < COUNT; first += count, count = count * 3 + 1) {
        uint8_t *at = split.bytes + first * sizeof(uint16_t);
        if (count > COUNT - first)
            count = COUNT - first;
        CHECK_OK(ddp_all_reduce(comm, at, at, count, of.dtype, of.op, NULL, err));
    }
    CHECK(memcmp(whole.bytes, split.bytes, whole.len) == 0);
    free_buffer(&whole);
    free_buffer(&split);
}

START_TEST(direct_bits_do_not_depend_on_sizes)
{
    struct world world = {.nranks = 5, .algorithm = DDP_ALGORITHM_DIRECT};
    world_open(&world);
    world_run(&world, split_sums);
    world_close(&world);
}
END_TEST

/* ---- arguments ---- */

static void expect_invalid(ddp_status status, const struct ddp_error *error, const char *text)
{
    if (status != DDP_E_INVALID || strstr(error->msg, text) == NULL) {
        fprintf(stderr, "'%s' expected: %s\n", text, error->msg);
        _Exit(1);
    }
}

static void invalid_arguments(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    float v[8] = {0};
    struct ddp_error e;
    int stream;
    size_t half = SIZE_MAX / 8 + 1; /* times 2 ranks times 4 bytes is 0 */
    expect_invalid(ddp_all_reduce(comm, v, v, 8, DDP_FLOAT32, DDP_SUM, &stream, &e), &e,
                   "host memory takes no stream: pass NULL");
    expect_invalid(ddp_barrier(comm, &stream, &e), &e, "pass NULL");
    expect_invalid(ddp_reduce(comm, v, v + 1, 4, DDP_FLOAT32, DDP_SUM, rank, NULL, &e), &e,
                   "must be equal");
    expect_invalid(ddp_reduce(comm, v, NULL, 4, DDP_FLOAT32, DDP_SUM, rank, NULL, &e), &e, "NULL");
    expect_invalid(ddp_reduce(comm, v, v, 4, DDP_FLOAT32, DDP_SUM, 2, NULL, &e), &e, "root 2");
    expect_invalid(ddp_broadcast(comm, v, 4, DDP_FLOAT32, (uint32_t)-1, NULL, &e), &e, "root -1 ");
    expect_invalid(ddp_all_gather(comm, v, v, half, DDP_FLOAT32, NULL, &e), &e, "too many");
    expect_invalid(ddp_all_gather(comm, v + 4 * (1 - rank), v, 4, DDP_FLOAT32, NULL, &e), &e,
                   "this rank's part of recv");
    expect_invalid(ddp_all_gather(comm, v + 7, v, 4, DDP_FLOAT32, NULL, &e), &e, "overlap");
    expect_invalid(ddp_all_gather(comm, v, v, 4, (ddp_dtype)99, NULL, &e), &e,
                   "not an element type");
    expect_invalid(
        ddp_reduce_scatter(comm, v, v + 4 * (1 - rank), 4, DDP_FLOAT32, DDP_SUM, NULL, &e), &e,
        "this rank's part of send");
    expect_invalid(ddp_reduce_scatter(comm, NULL, v, 4, DDP_FLOAT32, DDP_SUM, NULL, &e), &e,
                   "NULL");
    expect_invalid(ddp_reduce_scatter(comm, v, v + 4, 2, DDP_FLOAT32, (ddp_reduce_op)99, NULL, &e),
                   &e, "not a reduction");
    CHECK_OK(ddp_comm_check(comm, err)); /* nothing of this has hurt it */
    CHECK_OK(ddp_reduce(comm, v, rank == 1 ? v : NULL, 8, DDP_FLOAT32, DDP_SUM, 1, NULL, err));
    CHECK_OK(ddp_all_gather(comm, NULL, NULL, 0, DDP_FLOAT32, NULL, err));
    CHECK_OK(ddp_reduce_scatter(comm, NULL, NULL, 0, DDP_FLOAT32, DDP_SUM, NULL, err));
    CHECK_OK(ddp_reduce(comm, NULL, NULL, 0, DDP_FLOAT32, DDP_SUM, 0, NULL, err));
}

START_TEST(invalid_arguments_have_no_effect)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, invalid_arguments);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("collectives");
    TCase *tcase = tcase_create("collectives");
    bool whole = sample_is_whole();
    add_worlds(tcase, calls_agree_with_the_reference, 0, whole ? ALL_WORLDS : SAMPLE_WORLDS);
    add_worlds(tcase, parts_fit_together, 0, whole ? 12 : 4);
    tcase_add_test(tcase, direct_bits_do_not_depend_on_sizes);
    tcase_add_test(tcase, invalid_arguments_have_no_effect);
    suite_add_tcase(suite, tcase);
    return suite;
}
