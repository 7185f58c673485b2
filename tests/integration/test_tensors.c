/*
 * test_tensors.c - named tensors of real ranks, in any order: results of each kind, what steady
 * steps exchange, differences between ranks, joins, process sets and stalls.
 *
 * Elements are small whole numbers, so that sums are exact.
 */
#include "check_main.h"
#include "named_tensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 40, STEPS = 12, COUNT_MOST = 700, NAME = 32 };

struct tensor {
    char name[NAME];
    float send[COUNT_MOST];
    float recv[COUNT_MOST * WORLD_MAX];
};

/* All ranks have enqueued what they will, so a tensor that they decide on needs a few cycles. */
static void is_soon_done(ddp_tensors *tensors, ddp_tensor *handle)
{
    enum { FEW = 100 };
    uint64_t first = stats_of(tensors).cycles;
    for (int done = 0; !done;) {
        struct ddp_error err;
        uint64_t cycles = stats_of(tensors).cycles; /* before the look whether it is done */
        ddp_status status = ddp_tensors_wait(handle, 1, &done, &err);
        CHECK(done || (status == DDP_E_TIMEOUT && cycles < first + FEW));
    }
}

/* ---- any order ---- */

static ddp_kind kind_of(uint32_t tensor)
{
    static const ddp_kind kinds[] = {DDP_KIND_ALL_REDUCE, DDP_KIND_ALL_REDUCE, DDP_KIND_ALL_REDUCE,
                                     DDP_KIND_ALL_GATHER, DDP_KIND_BROADCAST,  DDP_KIND_ALL_TO_ALL};
    return kinds[tensor % 6];
}

static size_t count_of(uint32_t tensor, uint32_t nranks)
{
    size_t count = (tensor * 97 + 1) % (COUNT_MOST / WORLD_MAX);
    return kind_of(tensor) == DDP_KIND_ALL_REDUCE ? count * 5 : count * (nranks > 0);
}

static float value_of(uint32_t rank, uint32_t step, uint32_t tensor, size_t i)
{
    return (float)((rank + 1) * 3 + step + tensor * 5 + i % 7);
}

/* What element @i of @tensor is on @rank in the end. */
static float expected_at(uint32_t nranks, uint32_t rank, uint32_t step, uint32_t tensor, size_t i)
{
    size_t count = count_of(tensor, nranks);
    float sum = 0;
    switch (kind_of(tensor)) {
    case DDP_KIND_ALL_GATHER:
        return value_of((uint32_t)(i / count), step, tensor, i % count);
    case DDP_KIND_ALL_TO_ALL:
        return value_of((uint32_t)(i / count), step, tensor, rank * count + i % count);
    case DDP_KIND_BROADCAST:
        return value_of(tensor % nranks, step, tensor, i);
    default:
        for (uint32_t r = 0; r < nranks; r++)
            sum += value_of(r, step, tensor, i);
        return sum;
    }
}

static void shuffle(uint32_t order[TENSORS], unsigned *seed)
{
    for (uint32_t i = 0; i < TENSORS; i++)
        order[i] = i;
    for (uint32_t i = TENSORS; i > 1; i--) {
        uint32_t j = (uint32_t)rand_r(seed) % i, swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

static struct ddp_tensor_op op_of(struct tensor *tensor, uint32_t number, uint32_t nranks,
                                  uint32_t rank, uint32_t step)
{
    struct ddp_tensor_op op = sum_of(tensor->name, NULL, count_of(number, nranks));
    snprintf(tensor->name, NAME, "layer%u.weight", number);
    for (size_t i = 0; i < COUNT_MOST; i++) {
        tensor->send[i] = value_of(rank, step, number, i);
        tensor->recv[i] = kind_of(number) == DDP_KIND_BROADCAST ? tensor->send[i] : -1;
    }
    op.kind = kind_of(number);
    op.send = tensor->send;
    op.recv = tensor->recv;
    op.root = number % nranks;
    return op;
}

static void check_tensor(const struct tensor *tensor, uint32_t number, uint32_t nranks,
                         uint32_t rank, uint32_t step)
{
    ddp_kind kind = kind_of(number);
    size_t count = count_of(number, nranks);
    if (kind == DDP_KIND_ALL_GATHER || kind == DDP_KIND_ALL_TO_ALL)
        count *= nranks;
    for (size_t i = 0; i < count; i++)
        CHECK(tensor->recv[i] == expected_at(nranks, rank, step, number, i));
}

static void any_order(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_tensors_options options = {.fusion_bytes = world->stage == 1 ? 2000 : 0,
                                          .no_cache = world->stage == 2,
                                          .no_fusion = world->stage == 3,
                                          .cache_capacity = world->stage == 4 ? 7 : 0};
    ddp_tensors *tensors = create(comm, options);
    struct tensor *all = calloc(TENSORS, sizeof *all);
    unsigned seed = rank * 77 + world->nranks;
    uint64_t negotiations = 0;
    CHECK(all != NULL);
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t order[TENSORS];
        ddp_tensor *handles[TENSORS];
        shuffle(order, &seed);
        for (uint32_t i = 0; i < TENSORS; i++)
            handles[order[i]] =
                enqueue(tensors, op_of(&all[order[i]], order[i], world->nranks, rank, step));
        shuffle(order, &seed);
        for (uint32_t i = 0; i < TENSORS; i++)
            finish(handles[order[i]]);
        for (uint32_t i = 0; i < TENSORS; i++)
            check_tensor(&all[i], i, world->nranks, rank, step);
        struct ddp_tensors_stats stats = stats_of(tensors);
        CHECK(stats.tensors == (step + 1) * TENSORS);
        /* What was negotiated once is never again; after the last step another rank may have told
         * that it ends. */
        if (step == 0 || step == STEPS - 1)
            negotiations = stats.negotiations;
        if (world->stage <= 1 || world->stage == 3) {
            CHECK(stats.negotiations == negotiations && negotiations > 0);
            CHECK(stats.remembered == step * TENSORS);
        } else if (world->stage == 2) {
            CHECK(stats.negotiations > step && stats.remembered == 0);
        }
        CHECK(world->stage != 3 || stats.operations == stats.tensors);
    }
    free(all);
    ddp_tensors_destroy(tensors);
}

START_TEST(tensors_of_any_order_are_carried_out)
{
    struct world world = {.nranks = (uint32_t)_i % 8 + 1, .stage = (uint32_t)_i % 5, .name = "any"};
    world.tcp = _i >= 8;
    world_open(&world);
    world_run(&world, any_order);
    world_close(&world);
}
END_TEST

/* ---- scales and groups ---- */

static void scale(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    float n = (float)world->nranks, values[] = {(float)rank, 6}, outs[] = {0, 0};
    int32_t ints[] = {7, -7};
    struct ddp_tensor_op average = sum_of("average", values, 2), whole = sum_of("int", NULL, 2);
    average.recv = outs;
    average.op = DDP_AVERAGE;
    average.prescale = 0.5;
    average.postscale = 4;
    whole.send = whole.recv = ints;
    whole.dtype = DDP_INT32;
    whole.op = DDP_AVERAGE;
    whole.postscale = 0.5;
    ddp_tensor *handles[] = {enqueue(tensors, average), enqueue(tensors, whole)};
    finish(handles[0]);
    finish(handles[1]);
    float sum = 0;
    for (uint32_t r = 0; r < world->nranks; r++)
        sum += (float)r * 0.5f;
    CHECK(outs[0] == sum * (float)(4.0 / n) && outs[1] == 3 * n * (float)(4.0 / n));
    CHECK(values[0] == (float)rank && values[1] == 6);
    CHECK(ints[0] == (int32_t)(7 * n * (0.5 / n)) && ints[1] == -ints[0]);
    ddp_tensors_destroy(tensors);
}

START_TEST(averages_are_sums_that_are_scaled)
{
    struct world world = {.nranks = 3, .name = "scale"};
    world_open(&world);
    world_run(&world, scale);
    world_close(&world);
}
END_TEST

static void group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors =
        create(comm, (struct ddp_tensors_options){.fusion_bytes = 4, .cycle_ms = 1});
    for (uint32_t step = 0; step < 6; step++) {
        float a = 1, b = 2, c = 3;
        struct ddp_tensor_op ops[] = {sum_of("a", &a, 1), sum_of("b", &b, 1), sum_of("c", &c, 1)};
        ddp_tensor *handles[3];
        ops[1].count = step == 2 && rank == 1 ? 0 : 1; /* another count on one rank */
        CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, 3, handles, err));
        for (int i = 0; i < 3; i++)
            if (step == 2)
                finish_with(handles[i], DDP_E_MISMATCH, "tensor \"b\": the count is ");
            else
                finish(handles[i]);
        float n = step == 2 ? 1 : (float)world->nranks;
        CHECK(a == n && b == 2 * n && c == 3 * n);
        CHECK(stats_of(tensors).operations == step + (step < 2)); /* one for the whole group */
        CHECK(stats_of(tensors).remembered == (step == 0 ? 0 : step < 4 ? 3 : 3 * (step - 2)));
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(a_group_is_one_operation_or_none)
{
    struct world world = {.nranks = 2, .name = "group"};
    world_open(&world);
    world_run(&world, group);
    world_close(&world);
}
END_TEST

/* ---- differences ---- */

static void differ(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    float values[] = {1, 2}, other[] = {1, 2};
    for (int round = 0; round < 3; round++) { /* what is remembered differs, too */
        struct ddp_tensor_op op = sum_of("x", values, round > 0 && rank == 1 ? 1 : 2);
        ddp_tensor *good = enqueue(tensors, sum_of("y", other, 2)), *bad = enqueue(tensors, op);
        if (round == 0)
            finish(bad);
        else
            finish_with(bad, DDP_E_MISMATCH, "on rank 1");
        finish(good);
    }
    works(tensors, world->nranks);
    ddp_tensors_destroy(tensors);
}

START_TEST(a_difference_fails_its_tensor_only)
{
    struct world world = {.nranks = 3, .name = "differ"};
    world_open(&world);
    world_run(&world, differ);
    world_close(&world);
}
END_TEST

/* Groups of one size that begin with the same tensor: what is remembered differs in one member. */
static void change_group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const char *const members[] = {"abc", "abc", "abd", "abd", "abc"};
    static const uint64_t remembered[] = {0, 3, 3, 6, 6};
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    for (size_t step = 0; step < sizeof members / sizeof *members; step++) {
        struct ddp_tensor_op ops[3];
        ddp_tensor *handles[3];
        char names[3][2] = {0};
        float values[3];
        for (int i = 0; i < 3; i++) {
            names[i][0] = members[step][i];
            values[i] = (float)rank + (float)members[step][i];
            ops[i] = sum_of(names[i], &values[i], 1);
        }
        CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, 3, handles, err));
        CHECK_OK(ddp_barrier(comm, NULL, err));
        for (int i = 0; i < 3; i++) {
            is_soon_done(tensors, handles[i]);
            finish(handles[i]);
            CHECK(values[i] == (float)world->nranks * ((float)members[step][i] + 1));
        }
        CHECK(stats_of(tensors).remembered == remembered[step]);
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(a_group_may_have_other_members_than_before)
{
    struct world world = {.nranks = 3, .name = "members"};
    world_open(&world);
    world_run(&world, change_group);
    world_close(&world);
}
END_TEST

/* Rank 0 has two tensors in a group, rank 1 has them singly. */
static void group_on_one_rank(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    for (uint32_t first = 0; first < 2; first++) { /* the rank that comes first */
        float a = 1, b = 1;
        struct ddp_tensor_op ops[] = {sum_of("a", &a, 1), sum_of("b", &b, 1)};
        ddp_tensor *handles[2];
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (rank == 0 && turn == first)
                CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, 2, handles, err));
            if (rank == 1 && turn != first)
                handles[1] = enqueue(tensors, ops[1]);
            CHECK_OK(ddp_barrier(comm, NULL, err));
        }
        is_soon_done(tensors, handles[1]);
        finish_with(handles[1], DDP_E_MISMATCH, "tensor \"b\": the size of its group is ");
        if (rank == 1)
            handles[0] = enqueue(tensors, ops[0]);
        CHECK_OK(ddp_barrier(comm, NULL, err));
        is_soon_done(tensors, handles[0]);
        finish_with(handles[0], DDP_E_MISMATCH, "tensor \"b\": the size of its group is ");
        CHECK_OK(ddp_tensors_enqueue_group(tensors, ops, 2, handles, err));
        finish(handles[0]);
        finish(handles[1]);
        CHECK(a == (float)world->nranks && b == a);
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(a_group_on_one_rank_only_fails_with_each_of_its_tensors)
{
    struct world world = {.nranks = 2, .name = "one rank"};
    world_open(&world);
    world_run(&world, group_on_one_rank);
    world_close(&world);
}
END_TEST

static void refuse(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float values[4] = {0};
    struct ddp_error err = {0};
    ddp_tensors *tensors;
    struct ddp_tensors_options other = {.size = sizeof other, .fusion_bytes = 100 + rank};
    CHECK(ddp_tensors_create(comm, &other, &tensors, &err) == DDP_E_MISMATCH);
    CHECK(strcmp(err.msg, "fusion_bytes is 100 on rank 0, but 101 on rank 1: pass the same options "
                          "on all ranks") == 0);
    other = (struct ddp_tensors_options){
        .size = sizeof other, .stall_warning_ms = 10, .stall_shutdown_ms = 5};
    CHECK(ddp_tensors_create(comm, &other, &tensors, &err) == DDP_E_INVALID);
    other = (struct ddp_tensors_options){.size = sizeof other, .timeline = "/nowhere/trace.json"};
    CHECK(ddp_tensors_create(comm, &other, &tensors, &err) == DDP_E_INVALID);
    tensors = create(comm, (struct ddp_tensors_options){0});
    struct ddp_tensor_op good = sum_of("x", values, 2);
    struct ddp_tensor_op ops[] = {good, good, good, good, good, good,
                                  good, good, good, good, good, good};
    ops[0].name = "";
    ops[1].name = "a\nb";
    ops[2].kind = DDP_KIND_SEND;
    ops[3].dtype = (ddp_dtype)99;
    ops[4].op = DDP_BIT_AND;
    ops[5].set = 1;
    ops[6].count = SIZE_MAX / 2;
    ops[7].recv = values + 1;
    ops[8].prescale = INFINITY;
    ops[9].size = 1;
    ops[10].kind = DDP_KIND_ALL_TO_ALL; /* has no form in place */
    ops[11].kind = DDP_KIND_ALL_GATHER; /* from the part of the other rank */
    ops[11].send = values + (rank == 0 ? 2 : 0);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        ddp_tensor *handle;
        CHECK(ddp_tensors_enqueue(tensors, &ops[i], &handle, &err) == DDP_E_INVALID);
        struct ddp_tensor_op group[] = {good, ops[i]};
        ddp_tensor *handles[2];
        CHECK(ddp_tensors_enqueue_group(tensors, group, 2, handles, &err) == DDP_E_INVALID);
    }
    uint32_t set, twice[] = {0, 0}, beyond[] = {world->nranks};
    CHECK(ddp_tensors_add_set(tensors, twice, 2, &set, &err) == DDP_E_INVALID);
    CHECK(ddp_tensors_add_set(tensors, beyond, 1, &set, &err) == DDP_E_INVALID);
    CHECK(ddp_tensors_add_set(tensors, beyond, 0, &set, &err) == DDP_E_INVALID);
    works(tensors, world->nranks);
    ddp_tensors_destroy(tensors);
    ddp_tensors_destroy(NULL);
    ddp_tensors_release(NULL);
}

START_TEST(what_makes_no_sense_is_refused)
{
    struct world world = {.nranks = 2, .name = "refuse"};
    world_open(&world);
    world_run(&world, refuse);
    world_close(&world);
}
END_TEST

/* ---- join ---- */

/* Rank r has r + 1 batches; rank 0 joins first. */
static void join(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    uint32_t last;
    for (int round = 0; round < 3; round++) {
        for (uint32_t batch = 0; batch <= rank; batch++) {
            float values[] = {1, (float)rank};
            struct ddp_tensor_op op = sum_of("gradient", values, 2);
            op.op = DDP_AVERAGE;
            finish(enqueue(tensors, op));
            CHECK(values[0] == (float)(world->nranks - batch) * (float)(1.0 / world->nranks));
        }
        CHECK_OK(ddp_tensors_join(tensors, &last, err));
        CHECK(last == world->nranks - 1);
    }
    if (rank > 0) {
        float part = 1, parts[WORLD_MAX];
        struct ddp_tensor_op op = sum_of("gather", parts, 1);
        op.kind = DDP_KIND_ALL_GATHER;
        op.send = &part;
        finish_with(enqueue(tensors, op), DDP_E_MISMATCH, "rank 0 has joined");
    }
    CHECK_OK(ddp_tensors_join(tensors, &last, err));
    CHECK(last > 0);
    works(tensors, world->nranks);
    ddp_tensors_destroy(tensors);
}

START_TEST(joined_ranks_contribute_zeros)
{
    struct world world = {.nranks = _i == 0 ? 2 : 4, .name = "join"};
    world_open(&world);
    world_run(&world, join);
    world_close(&world);
}
END_TEST

/* Of each epoch a rank has some of these, and joins while they are under way. */
enum { EPOCH_TENSORS = 4, EPOCHS = 40 };

static void join_behind_tensors(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors =
        create(comm, (struct ddp_tensors_options){.cycle_ms = 5, /* ranks meet in one, mostly */
                                                  .no_cache = world->stage == 1,
                                                  .cache_capacity = world->stage == 2 ? 3 : 0});
    static const char *const names[EPOCH_TENSORS] = {"a", "b", "c", "d"};
    unsigned seed = 1; /* the same on all ranks */
    uint32_t last;
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        float values[EPOCH_TENSORS], expected[EPOCH_TENSORS] = {0};
        ddp_tensor *handles[EPOCH_TENSORS] = {NULL};
        for (uint32_t i = 0; i < EPOCH_TENSORS * world->nranks; i++) {
            uint32_t other = i % world->nranks, tensor = i / world->nranks;
            bool has = rand_r(&seed) % 2 == 0;
            expected[tensor] += has ? (float)(1 << other) : 0;
            if (other == 0)
                values[tensor] = (float)(1 << rank);
            if (has && other == rank)
                handles[tensor] = enqueue(tensors, sum_of(names[tensor], &values[tensor], 1));
        }
        CHECK_OK(ddp_tensors_join(tensors, &last, err));
        for (uint32_t tensor = 0; tensor < EPOCH_TENSORS; tensor++) {
            int done = 0;
            if (handles[tensor] == NULL)
                continue;
            CHECK_OK(ddp_tensors_test(handles[tensor], &done, err));
            CHECK(done && values[tensor] == expected[tensor]);
            ddp_tensors_release(handles[tensor]);
        }
    }
    ddp_tensors_destroy(tensors);
}

START_TEST(a_join_comes_after_what_is_under_way)
{
    struct world world = {
        .nranks = 2 + (uint32_t)_i % 2, .stage = (uint32_t)_i / 2, .name = "epochs"};
    world_open(&world);
    world_run(&world, join_behind_tensors);
    world_close(&world);
}
END_TEST

/* ---- process sets ---- */

static void use_sets(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors = create(comm, (struct ddp_tensors_options){0});
    uint32_t odd, pair, ranks_odd[] = {3, 1}, ranks_pair[] = {rank == 2 ? 3 : 0, 2}, low[] = {0, 2};
    struct ddp_error error = {0};
    float value = 1, all = 1;
    CHECK_OK(ddp_tensors_add_set(tensors, ranks_odd, 2, &odd, err));
    CHECK(odd == 1);
    CHECK(ddp_tensors_add_set(tensors, ranks_pair, 2, &pair, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "rank 2 passed other ranks than rank 0") != NULL);
    CHECK_OK(ddp_tensors_add_set(tensors, low, 2, &pair, err));
    CHECK(pair == 2);
    struct ddp_tensor_op foreign = sum_of("x", &value, 1);
    foreign.set = rank % 2 == 1 ? pair : odd;
    ddp_tensor *handle;
    CHECK(ddp_tensors_enqueue(tensors, &foreign, &handle, &error) == DDP_E_INVALID);
    for (int step = 0; step < 4; step++) {
        value = 1 + (float)rank;
        all = 1;
        struct ddp_tensor_op op = sum_of("x", &value, 1); /* the same name in all sets */
        op.set = rank % 2 == 1 ? odd : pair;
        handle = enqueue(tensors, op);
        finish(enqueue(tensors, sum_of("x", &all, 1)));
        finish(handle);
        CHECK(value == (rank % 2 == 1 ? 6 : 4) && all == (float)world->nranks);
        value = (float)rank;
        op = sum_of("root", &value, 1);
        op.kind = DDP_KIND_BROADCAST;
        op.set = rank % 2 == 1 ? odd : pair;
        op.root = rank % 2 == 1 ? 3 : 2;
        finish(enqueue(tensors, op));
        CHECK(value == (float)op.root);
    }
    works(tensors, world->nranks); /* the other set is done, too: destroy ends the object for all */
    ddp_tensors_destroy(tensors);
}

START_TEST(process_sets_are_independent)
{
    struct world world = {.nranks = 4, .name = "sets"};
    world_open(&world);
    world_run(&world, use_sets);
    world_close(&world);
}
END_TEST

/* ---- stalls ---- */

struct stall_watch {
    struct world *world;
    uint32_t rank;
};

static void on_stall(void *ctx, const struct ddp_stalled_tensor *stalled)
{
    struct stall_watch *watch = ctx;
    if (strcmp(stalled->name, "late") == 0 && strcmp(stalled->missing, "1, 2") == 0)
        world_step(watch->world, watch->rank);
}

/* What the library has printed since standard error became @heard. */
static bool was_said(FILE *heard, const char *text)
{
    char line[512];
    bool said = false;
    rewind(heard);
    while (fgets(line, sizeof line, heard) != NULL)
        said = said || (strstr(line, text) != NULL && strstr(line, "; missing: 1, 2\n") != NULL);
    return said;
}

/* Ranks 1 and 2 enqueue the tensor when rank 0 has reported it; it is new, then remembered. */
static void stall(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct stall_watch watch = {world, rank};
    int stderr_before = dup(STDERR_FILENO);
    FILE *heard = tmpfile();
    CHECK(heard != NULL && stderr_before >= 0);
    setenv("DDP_DEBUG", "INFO", 1);
    CHECK(dup2(fileno(heard), STDERR_FILENO) >= 0);
    ddp_tensors *tensors = create(
        comm, (struct ddp_tensors_options){
                  .stall_warning_ms = 30, .on_stall = rank == 0 ? on_stall : NULL, .ctx = &watch});
    for (uint32_t round = 1; round <= 2; round++) {
        float value = 1;
        works(tensors, world->nranks);
        if (rank > 0)
            world_await_steps(world, 0, round);
        finish(enqueue(tensors, sum_of("late", &value, 1)));
        CHECK(value == (float)world->nranks);
    }
    works(tensors, world->nranks);
    ddp_tensors_destroy(tensors);
    CHECK(dup2(stderr_before, STDERR_FILENO) >= 0);
    CHECK(rank > 0 || was_said(heard, "ddprun: rank 0: tensor \"late\" has waited for "));
    fclose(heard);
    close(stderr_before);
}

START_TEST(a_stall_is_reported_with_the_ranks_that_are_missing)
{
    struct world world = {.nranks = 3, .name = "stall"};
    world_open(&world);
    world_run(&world, stall);
    world_close(&world);
}
END_TEST

static void stall_for_good(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_tensors *tensors =
        create(comm, (struct ddp_tensors_options){.stall_warning_ms = 20, .stall_shutdown_ms = 60});
    float value = 1;
    struct ddp_error err = {0};
    uint32_t set, ranks[] = {0};
    ddp_tensor *handle;
    struct ddp_tensor_op op = sum_of("alone", &value, 1);
    if (rank == 0)
        finish_with(enqueue(tensors, op), DDP_E_TIMEOUT,
                    "ms for other ranks to enqueue it; missing: 1");
    else
        CHECK(ddp_tensors_add_set(tensors, ranks, 1, &set, &err) == DDP_E_TIMEOUT);
    CHECK(ddp_tensors_enqueue(tensors, &op, &handle, &err) == DDP_E_TIMEOUT);
    CHECK(strstr(err.msg, "tensor \"alone\" has waited for ") != NULL && world->nranks == 2);
    ddp_tensors_destroy(tensors);
}

START_TEST(a_stall_ends_the_object_if_it_should)
{
    struct world world = {.nranks = 2, .name = "shutdown"};
    world_open(&world);
    world_run(&world, stall_for_good);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("tensors");
    TCase *tests = tcase_create("tensors");
    tcase_add_loop_test(tests, tensors_of_any_order_are_carried_out, 0, 12);
    ADD_TESTS(tests, averages_are_sums_that_are_scaled, a_group_is_one_operation_or_none,
              a_group_may_have_other_members_than_before,
              a_group_on_one_rank_only_fails_with_each_of_its_tensors);
    ADD_TESTS(tests, a_difference_fails_its_tensor_only, what_makes_no_sense_is_refused);
    tcase_add_loop_test(tests, joined_ranks_contribute_zeros, 0, 2);
    tcase_add_loop_test(tests, a_join_comes_after_what_is_under_way, 0, 6);
    ADD_TESTS(tests, process_sets_are_independent,
              a_stall_is_reported_with_the_ranks_that_are_missing,
              a_stall_ends_the_object_if_it_should);
    suite_add_tcase(suite, tests);
    return suite;
}
