/*
 * test_device_staged.c - operations on device memory for which the GPU has no kernel: they go
 * through pinned memory, and give what the reference of elements.h says. Every type, uneven parts,
 * more than one slice, receives from any rank, messages to oneself; and calls that do not fit.
 */
#include "check_main.h"
#include "elements.h"
#include "rig.h"
#include "sweep.h"

#include <string.h>

enum { COUNT = 77, MANY = 700001, KINDS = 3 };

/* ---- buffers that every rank can make up ---- */

static uint64_t seed_of(uint32_t from, uint32_t to, unsigned turn)
{
    return (uint64_t)turn << 32 | from << 16 | to;
}

/* Any bits; or 0 and 1, whose sums and products every type holds in any order. */
static void make_up(void *at, size_t count, ddp_dtype dtype, bool small, uint64_t seed)
{
    size_t size = ddp_dtype_size(dtype);
    uint64_t state = seed;
    if (!small)
        elements_fill(at, count, dtype, &state);
    for (size_t i = 0; small && i < count; i++) {
        element_bits bits = elements_of_double(dtype, (double)(elements_scramble(&state) % 2));
        memcpy((uint8_t *)at + i * size, &bits, size);
    }
}

static struct twin twin_of(struct rig *rig, const void *bytes, size_t len)
{
    struct twin twin = rig_output(rig, len);
    if (len > 0)
        memcpy(twin.host, bytes, len);
    rig_upload(rig, &twin);
    return twin;
}

static void *allocate(size_t len)
{
    void *space = calloc(1, len + 1);
    CHECK(space != NULL);
    return space;
}

/* ---- reductions without a kernel ---- */

struct reduction {
    struct ddp_operation operation;
    uint32_t nranks;
    unsigned turn;
    bool small;
    double factors[WORLD_MAX];
};

static size_t sent_count(const struct reduction *of)
{
    return of->operation.count * (of->operation.kind == DDP_KIND_REDUCE_SCATTER ? of->nranks : 1);
}

/* Of all ranks, in their order, @count elements from @first on to @out. */
static void reduce_all(const struct reduction *of, size_t first, size_t count, uint8_t *out)
{
    const struct ddp_operation *operation = &of->operation;
    size_t size = ddp_dtype_size(operation->dtype), all = sent_count(of);
    struct ddpi_reduction work = {.nin = of->nranks,
                                  .dtype = operation->dtype,
                                  .op = operation->op,
                                  .divisor = operation->op == DDP_AVERAGE ? of->nranks : 1,
                                  .factor = of->factors};
    uint8_t *in = allocate(of->nranks * all * size);
    for (uint32_t rank = 0; rank < of->nranks; rank++)
        make_up(in + rank * all * size, all, operation->dtype, of->small,
                seed_of(rank, 0, of->turn));
    for (size_t i = 0; i < count; i++) {
        element_bits bits[WORLD_MAX];
        for (uint32_t rank = 0; rank < of->nranks; rank++)
            bits[rank] = elements_get(in + rank * all * size, first + i, operation->dtype);
        bits[0] = elements_folded(&work, bits);
        memcpy(out + i * size, &bits[0], size);
    }
    free(in);
}

static void check_reduction(struct rig *rig, struct reduction *of, bool in_place)
{
    struct ddp_operation *operation = &of->operation;
    size_t size = ddp_dtype_size(operation->dtype), count = operation->count;
    bool scatters = operation->kind == DDP_KIND_REDUCE_SCATTER;
    size_t first = scatters ? rig->rank * count : 0;
    uint8_t *bytes = allocate(sent_count(of) * size);
    make_up(bytes, sent_count(of), operation->dtype, of->small, seed_of(rig->rank, 0, of->turn));
    struct twin send = twin_of(rig, bytes, sent_count(of) * size);
    struct twin recv = rig_output(rig, count * size);
    uint8_t *result = in_place ? send.host + first * size : recv.host;
    operation->send = twin_device(&send);
    operation->recv =
        in_place ? (uint8_t *)twin_device(&send) + first * size : (uint8_t *)twin_device(&recv);
    operation->stream = rig->stream;
    operation->factor = of->factors[rig->rank];
    CHECK_OK(ddp_run(rig->device, operation, err));
    if (operation->kind != DDP_KIND_REDUCE || rig->rank == operation->peer)
        reduce_all(of, first, count, result);
    rig_compare(rig, &send, operation->dtype);
    rig_compare(rig, &recv, operation->dtype);
    free(bytes);
}

/* Where ranks add in different orders, only small numbers have one sum. */
static void set_numbers(struct reduction *of, const struct world *world)
{
    bool ordered = world->algorithm != DDP_ALGORITHM_RING && !world->tcp;
    of->small = !ordered || of->operation.op == DDP_PREMUL_SUM;
    for (uint32_t rank = 0; rank < of->nranks; rank++)
        of->factors[rank] = of->operation.op != DDP_PREMUL_SUM ? 1 : rank == 0 ? 2 : 1;
    if (of->operation.op == DDP_AVERAGE_BEFORE)
        for (uint32_t rank = 0; rank < of->nranks; rank++)
            of->factors[rank] = 1.0 / of->nranks;
}

static void every_reduction(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const ddp_kind kinds[KINDS] = {DDP_KIND_ALL_REDUCE, DDP_KIND_REDUCE,
                                          DDP_KIND_REDUCE_SCATTER};
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    struct sweep sweep = {.world = world->stage, .premul = true};
    while (sweep_next(&sweep))
        for (unsigned kind = 0; kind < KINDS; kind++) {
            unsigned turn = sweep.turn * KINDS + kind;
            bool chosen = sample_is_whole() || (sweep.turn + world->stage) % KINDS == kind;
            struct reduction of = {.nranks = world->nranks, .turn = turn};
            of.operation = (struct ddp_operation){.size = sizeof of.operation,
                                                  .kind = kinds[kind],
                                                  .count = turn % 5 == 0 ? 1 : COUNT,
                                                  .dtype = sweep.dtype,
                                                  .op = sweep.op,
                                                  .peer = turn % world->nranks};
            bool third = of.operation.op == DDP_AVERAGE_BEFORE && world->nranks == 3;
            set_numbers(&of, world);
            if (chosen && !(third && of.small))
                check_reduction(&rig, &of, turn % 2 == 0);
        }
    rig_close(&rig);
}

START_TEST(every_type_is_reduced)
{
    struct world world = {.nranks = (uint32_t)_i / 3 + 1,
                          .algorithm = _i % 3 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO,
                          .tcp = _i % 3 == 2,
                          .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, every_reduction);
    world_close(&world);
}
END_TEST

/* ---- parts ---- */

/* How many elements @from has for @to; and where in a buffer a rank's part begins. */
struct division {
    ddp_kind kind;
    ddp_dtype dtype;
    uint32_t root, nranks;
    unsigned turn;
    bool uneven;
    size_t scale;
};

static size_t part_count(const struct division *of, uint32_t from, uint32_t to)
{
    bool one_sided = of->kind != DDP_KIND_ALL_TO_ALL;
    if (!of->uneven)
        return of->scale;
    if (one_sided && of->kind != DDP_KIND_SCATTER)
        to = 0;
    else if (one_sided)
        from = 0;
    return (from * 3 + to * 5 + of->turn) % 4 * of->scale;
}

static void make_part(const struct division *of, uint32_t from, uint32_t to, uint8_t *at)
{
    bool same_for_all = of->kind == DDP_KIND_ALL_GATHER || of->kind == DDP_KIND_GATHER;
    make_up(at, part_count(of, from, to), of->dtype, false,
            seed_of(from, same_for_all ? 0 : to, of->turn));
}

/* One after the other in reverse order, with gaps, if they are uneven; returns the length. */
static size_t spread(const struct division *of, const size_t *counts, size_t *offsets)
{
    size_t at = 0;
    for (uint32_t i = 0; i < of->nranks; i++) {
        uint32_t rank = of->uneven ? of->nranks - 1 - i : i;
        offsets[rank] = at;
        at += counts[rank] + (of->uneven ? 3 : 0);
    }
    return at;
}

/* A buffer of one rank: one part, or one for each rank; it sends them, or receives them. */
struct side {
    size_t counts[WORLD_MAX], offsets[WORLD_MAX];
    bool each;
    struct twin twin;
};

static void side_open(struct rig *rig, const struct division *of, struct side *side, bool sends)
{
    size_t size = ddp_dtype_size(of->dtype), len = 0;
    for (uint32_t peer = 0; peer < of->nranks; peer++)
        side->counts[peer] =
            sends ? part_count(of, rig->rank, peer) : part_count(of, peer, rig->rank);
    if (side->each)
        len = spread(of, side->counts, side->offsets);
    else
        len = side->counts[of->root];
    side->twin = rig_output(rig, len * size);
}

static void side_fill(const struct rig *rig, const struct division *of, struct side *side,
                      bool sends)
{
    size_t size = ddp_dtype_size(of->dtype);
    for (uint32_t peer = 0; peer < of->nranks; peer++) {
        uint8_t *at = side->twin.host + (side->each ? side->offsets[peer] * size : 0);
        if (side->each || peer == of->root)
            make_part(of, sends ? rig->rank : peer, sends ? peer : rig->rank, at);
    }
}

static void *device_or_null(const struct twin *twin)
{
    return twin->len > 0 ? twin_device(twin) : NULL;
}

static void check_parts(struct rig *rig, const struct division *of)
{
    bool is_root = rig->rank == of->root, to_all = of->kind == DDP_KIND_ALL_TO_ALL;
    bool gathers = of->kind == DDP_KIND_GATHER || of->kind == DDP_KIND_ALL_GATHER;
    struct side send = {.each = !gathers}, recv = {.each = gathers || to_all};
    bool sends = of->kind != DDP_KIND_SCATTER || is_root;
    bool receives = of->kind != DDP_KIND_GATHER || is_root;
    side_open(rig, of, &send, true);
    side_open(rig, of, &recv, false);
    side_fill(rig, of, &send, true);
    rig_upload(rig, &send.twin);
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = of->kind,
                                      .send = sends ? device_or_null(&send.twin) : NULL,
                                      .recv = receives ? device_or_null(&recv.twin) : NULL,
                                      .count =
                                          gathers ? send.counts[of->root] : recv.counts[of->root],
                                      .dtype = of->dtype,
                                      .peer = of->root,
                                      .uneven = of->uneven,
                                      .stream = rig->stream};
    if (of->uneven && send.each && sends) {
        operation.send_counts = send.counts;
        operation.send_offsets = send.offsets;
    }
    if (of->uneven && recv.each && receives) {
        operation.recv_counts = recv.counts;
        operation.recv_offsets = recv.offsets;
    }
    CHECK_OK(ddp_run(rig->device, &operation, err));
    if (receives)
        side_fill(rig, of, &recv, false);
    rig_compare(rig, &send.twin, of->dtype);
    rig_compare(rig, &recv.twin, of->dtype);
}

static const ddp_kind with_parts[] = {DDP_KIND_GATHER, DDP_KIND_SCATTER, DDP_KIND_ALL_TO_ALL,
                                      DDP_KIND_ALL_GATHER};
enum { WITH_PARTS = sizeof with_parts / sizeof *with_parts };

static void every_part(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    unsigned turns = 2 * DDPI_DTYPES * WITH_PARTS, stride = sample_is_whole() ? 1 : 3;
    for (unsigned turn = world->stage % stride; turn < turns; turn += stride) {
        const struct division of = {.kind = with_parts[turn % WITH_PARTS],
                                    .dtype = (ddp_dtype)(turn / WITH_PARTS % DDPI_DTYPES),
                                    .uneven = turn / WITH_PARTS / DDPI_DTYPES == 1,
                                    .scale = turn % 7 == 0 ? 1 : COUNT,
                                    .root = turn % world->nranks,
                                    .nranks = world->nranks,
                                    .turn = turn};
        check_parts(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(every_type_has_parts)
{
    struct world world = {
        .nranks = (uint32_t)_i / 2 + 1, .tcp = _i % 2 != 0, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, every_part);
    world_close(&world);
}
END_TEST

/* Those of all ranks, or of @one. */
static void make_up_parts(struct twin *twin, uint32_t nranks, bool all, uint32_t one)
{
    size_t len = twin->len / nranks;
    for (uint32_t rank = 0; rank < nranks; rank++)
        if (all || rank == one)
            make_up(twin->host + rank * len, COUNT, DDP_INT32, false, seed_of(rank, 0, 0));
}

/* The root's part lies where it belongs already. */
static void in_place(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    size_t len = COUNT * sizeof(int32_t);
    for (uint32_t root = 0; root < world->nranks; root++)
        for (unsigned scatters = 0; scatters < 2; scatters++) {
            struct twin all = rig_output(&rig, world->nranks * len);
            uint8_t *own = (uint8_t *)twin_device(&all) + rank * len;
            bool has_all = rank == root;
            make_up_parts(&all, world->nranks, scatters && has_all,
                          scatters ? world->nranks : rank);
            rig_upload(&rig, &all);
            CHECK_OK(scatters ? ddp_scatter(comm, twin_device(&all), own, COUNT, DDP_INT32, root,
                                            rig.stream, err)
                              : ddp_gather(comm, own, twin_device(&all), COUNT, DDP_INT32, root,
                                           rig.stream, err));
            make_up_parts(&all, world->nranks, has_all, rank);
            rig_compare(&rig, &all, DDP_INT32);
        }
    rig_close(&rig);
}

START_TEST(the_root_uses_one_buffer)
{
    struct world world = {.nranks = (uint32_t)_i};
    world_open(&world);
    world_run(&world, in_place);
    world_close(&world);
}
END_TEST

/* ---- more than one slice ---- */

static void many_slices(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    for (unsigned i = 0; i < WITH_PARTS; i++)
        for (unsigned uneven = 0; uneven < 2; uneven++) {
            const struct division of = {.kind = with_parts[i],
                                        .dtype = DDP_INT32,
                                        .uneven = uneven != 0,
                                        .scale = MANY / 2,
                                        .root = i % world->nranks,
                                        .nranks = world->nranks,
                                        .turn = i};
            check_parts(&rig, &of);
        }
    rig_close(&rig);
}

START_TEST(parts_come_in_slices)
{
    struct world world = {.nranks = 3, .tcp = _i == 1};
    world_open(&world);
    world_run(&world, many_slices);
    world_close(&world);
}
END_TEST

/* The bits depend on which rank begins, and so on the position of an element among all. */
static void reduce_many(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (unsigned i = 0; i < 4; i++) {
        if ((i % 2 + i / 2 + world->stage) % 2 != 0 && !sample_is_whole())
            continue; /* two worlds of a kind have all four */
        struct problem of = {.dtype = i % 2 == 0 ? DDP_COMPLEX64 : DDP_UINT8,
                             .op = DDP_PRODUCT,
                             .count = MANY + i,
                             .root = i % world->nranks,
                             .in_place = i / 2 == 0};
        rig_all_reduce(&rig, &of);
        rig_reduce(&rig, &of);
        rig_reduce_scatter(&rig, &of);
    }
    rig_close(&rig);
}

START_TEST(slices_keep_the_order_of_ranks)
{
    struct world world = {.nranks = 3,
                          .stage = (uint32_t)(_i % 2 + _i / 2),
                          .algorithm = _i % 2 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_DIRECT,
                          .tcp = _i / 2 != 0};
    world_open(&world);
    world_run(&world, reduce_many);
    world_close(&world);
}
END_TEST

/* ---- messages ---- */

static void send_one(struct rig *rig, size_t count, uint32_t to, uint32_t tag)
{
    uint8_t *bytes = allocate(count * 4);
    make_up(bytes, count, DDP_INT32, false, seed_of(rig->rank, to, tag));
    struct twin twin = twin_of(rig, bytes, count * 4);
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_SEND,
                                            .send = twin_device(&twin),
                                            .count = count,
                                            .dtype = DDP_INT32,
                                            .peer = to,
                                            .tag = tag,
                                            .stream = rig->stream};
    CHECK_OK(ddp_run(rig->device, &operation, err));
    rig_compare(rig, &twin, DDP_INT32);
    free(bytes);
}

/* From @from, which may be any rank; returns which one it was. */
static uint32_t receive_one(struct rig *rig, size_t count, uint32_t from, uint32_t tag)
{
    struct twin twin = rig_output(rig, count * 4);
    uint32_t source = UINT32_MAX;
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_RECV,
                                            .recv = twin_device(&twin),
                                            .count = count,
                                            .dtype = DDP_INT32,
                                            .peer = from,
                                            .tag = tag,
                                            .stream = rig->stream,
                                            .source = &source};
    CHECK_OK(ddp_run(rig->device, &operation, err));
    rig_synchronize(rig);
    CHECK(source < rig->nranks && (from == DDP_ANY_RANK || source == from));
    make_up(twin.host, count, DDP_INT32, false, seed_of(source, rig->rank, tag));
    rig_compare(rig, &twin, DDP_INT32);
    return source;
}

static void receive_from_any(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t sizes[] = {1, COUNT, 3 * MANY};
    struct rig rig;
    rig_use(&rig, (int)rank, comm, NULL);
    uint32_t root = 1 % world->nranks;
    for (unsigned i = 0; i < 3; i++) {
        bool seen[WORLD_MAX] = {false};
        send_one(&rig, sizes[i], root, 7); /* one of them is the root's own */
        for (uint32_t k = 0; rank == root && k < world->nranks; k++) {
            uint32_t source = receive_one(&rig, sizes[i], DDP_ANY_RANK, 7);
            CHECK(!seen[source]);
            seen[source] = true;
        }
        CHECK_OK(ddp_barrier(comm, rig.stream, err));
        rig_synchronize(&rig);
    }
    rig_close(&rig);
}

/* The root's own message is kept until it has come round to receive. */
START_TEST(any_rank_sends)
{
    struct world world = {.nranks = (uint32_t)_i / 2 + 1, .tcp = _i % 2 != 0};
    setenv("DDP_HOST_CUDA_DEVICES", world.tcp ? "3" : "1", 1);
    world_open(&world);
    world_run(&world, receive_from_any);
    world_close(&world);
}
END_TEST

static void talk_to_self(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    (void)world;
    rig_use(&rig, (int)rank, comm, NULL);
    send_one(&rig, 3 * MANY, rank, 1);
    send_one(&rig, COUNT, rank, 2);
    send_one(&rig, 2 * COUNT, rank, 1);
    (void)receive_one(&rig, COUNT, rank, 2); /* tags overtake */
    (void)receive_one(&rig, 3 * MANY, rank, 1);
    (void)receive_one(&rig, 2 * COUNT, DDP_ANY_RANK, 1);
    rig_close(&rig);
}

START_TEST(a_rank_sends_to_itself)
{
    struct world world = {.nranks = (uint32_t)_i + 1};
    world_open(&world);
    world_run(&world, talk_to_self);
    world_close(&world);
}
END_TEST

/* ---- what does not fit ---- */

static void report_end(struct world *world, struct rig *rig, ddp_status status,
                       struct ddp_error *error)
{
    CU(rig->cuda.stream_synchronize(rig->stream)); /* it goes on */
    if (status == DDP_OK)
        status = ddp_comm_check(rig->device, error);
    if (status == DDP_OK) /* a rank that has all it needs hears of it later */
        status = ddp_barrier(rig->device, NULL, error);
    world_report(world, rig->rank, status, error);
}

/* By stage: another operation; another reduction, that has a kernel; a count that is not expected;
 * host memory. */
static void disagree(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct ddp_error error = {0};
    rig_use(&rig, (int)rank, comm, NULL);
    size_t counts[] = {COUNT, COUNT, COUNT};
    counts[2] += rank == 1 && world->stage == 2 ? 1 : 0;
    bool on_host = world->stage == 3 && rank == 1;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_TO_ALL,
                                      .send = rig_alloc(&rig, 4 * COUNT * sizeof(int32_t)),
                                      .recv = rig_alloc(&rig, 4 * COUNT * sizeof(int32_t)),
                                      .dtype = DDP_INT32,
                                      .stream = rig.stream,
                                      .uneven = 1,
                                      .send_counts = counts,
                                      .recv_counts = counts};
    if (world->stage != 2) {
        operation.uneven = 0;
        operation.send_counts = operation.recv_counts = NULL;
        operation.count = COUNT;
    }
    if (world->stage == 0 && rank == 1)
        operation.kind = DDP_KIND_GATHER;
    if (world->stage == 1) {
        operation.kind = DDP_KIND_ALL_REDUCE;
        operation.op = rank == 1 ? DDP_SUM : DDP_BIT_XOR;
    }
    if (on_host) {
        operation.send = allocate(4 * COUNT * sizeof(int32_t));
        operation.recv = allocate(4 * COUNT * sizeof(int32_t));
        operation.stream = NULL;
    }
    ddp_status status = ddp_run(comm, &operation, &error);
    report_end(world, &rig, status, &error);
    rig_close(&rig);
}

START_TEST(calls_that_differ_are_named)
{
    static const char *const texts[][2] = {
        {"all_to_all #1", "gather #1"},
        {"bit_xor of 77 int32", "sum of 77 int32"},
        {"all_to_all #1", "rank 1"},
        {"all_to_all #1", "on a GPU"},
    };
    struct world world = {.nranks = 3, .stage = (uint32_t)_i / 2, .tcp = _i % 2 != 0};
    world_open(&world);
    world_run(&world, disagree);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_MISMATCH, "rank %u: %s", rank, report->error.msg);
        for (unsigned i = 0; i < 2; i++)
            ck_assert_msg(strstr(report->error.msg, texts[world.stage][i]) != NULL, "rank %u: %s",
                          rank, report->error.msg);
    }
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device staged");
    TCase *tcase = tcase_create("staged");
    add_worlds(tcase, every_type_is_reduced, 0, 12);
    add_worlds(tcase, every_type_has_parts, 0, 8);
    add_worlds(tcase, the_root_uses_one_buffer, 1, 5);
    tcase_add_loop_test(tcase, parts_come_in_slices, 0, 2);
    tcase_add_loop_test(tcase, slices_keep_the_order_of_ranks, 0, 4);
    add_worlds(tcase, any_rank_sends, 0, 6);
    tcase_add_loop_test(tcase, a_rank_sends_to_itself, 0, 2);
    add_sample(tcase, calls_that_differ_are_named, 0, 8);
    suite_add_tcase(suite, tcase);
    return suite;
}
