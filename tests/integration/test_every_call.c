/*
 * test_every_call.c - every collective and message, with every type and every reduction that it
 * has, between 1 to 16 ranks, which are threads, against the reference of elements.h. Counts are
 * odd, so are addresses, and the bytes around a result must not change.
 */
#include "check_main.h"
#include "elements.h"
#include "world.h"

#include <pthread.h>
#include <string.h>

enum { RANKS = 16, COUNT = 129, ROOM = RANKS * COUNT * DDPI_DTYPE_SIZE_MOST, MARK = 0x5a };

/* What all ranks see: their inputs, and what the reduction of all of them is. */
struct scene {
    pthread_barrier_t meeting; /* of what is tested TSan cannot see that ranks wait in it */
    uint32_t nranks, root;
    size_t count; /* elements of a part; an input has one for each rank */
    ddp_dtype dtype;
    uint8_t in[RANKS][ROOM + 1];
    uint8_t folded[ROOM];
};

struct actor {
    struct scene *scene;
    ddp_comm *comm;
    uint32_t rank;
    uint8_t out[ROOM + 2];
    pthread_t thread;
};

static size_t part_size(const struct scene *scene)
{
    return scene->count * ddp_dtype_size(scene->dtype);
}

/* Part @part of the input of @rank. */
static const uint8_t *input(const struct scene *scene, uint32_t rank, uint32_t part)
{
    return scene->in[rank] + 1 + part * part_size(scene);
}

/* Where results go; nothing is left of the ones before. */
static uint8_t *fresh_output(struct actor *actor)
{
    memset(actor->out, MARK, sizeof actor->out);
    return actor->out + 1;
}

/* The output is @parts parts long. */
static void check_ends(const struct actor *actor, uint32_t parts)
{
    CHECK(actor->out[0] == MARK);
    CHECK(actor->out[1 + parts * part_size(actor->scene)] == MARK);
}

static void check_part(const struct actor *actor, uint32_t part, const uint8_t *expected)
{
    const struct scene *scene = actor->scene;
    size_t size = part_size(scene);
    CHECK(memcmp(actor->out + 1 + part * size, expected, size) == 0);
}

/* ---- calls that move ---- */

static void gather_and_scatter(struct actor *actor)
{
    const struct scene *scene = actor->scene;
    uint32_t me = actor->rank, root = scene->root;
    uint8_t *out = fresh_output(actor);
    CHECK_OK(ddp_gather(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, root,
                        NULL, err));
    for (uint32_t rank = 0; rank < scene->nranks && me == root; rank++)
        check_part(actor, rank, input(scene, rank, 0));
    check_ends(actor, me == root ? scene->nranks : 0);
    out = fresh_output(actor);
    CHECK_OK(ddp_scatter(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, root,
                         NULL, err));
    check_part(actor, 0, input(scene, root, me));
    check_ends(actor, 1);
}

static void exchange_parts(struct actor *actor)
{
    const struct scene *scene = actor->scene;
    uint32_t me = actor->rank;
    uint8_t *out = fresh_output(actor);
    CHECK_OK(ddp_all_gather(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, NULL,
                            err));
    for (uint32_t rank = 0; rank < scene->nranks; rank++)
        check_part(actor, rank, input(scene, rank, 0));
    check_ends(actor, scene->nranks);
    out = fresh_output(actor);
    CHECK_OK(ddp_all_to_all(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, NULL,
                            err));
    for (uint32_t rank = 0; rank < scene->nranks; rank++)
        check_part(actor, rank, input(scene, rank, me));
    check_ends(actor, scene->nranks);
}

static void broadcast_and_pass(struct actor *actor)
{
    const struct scene *scene = actor->scene;
    uint32_t me = actor->rank, nranks = scene->nranks, next = (me + 1) % nranks;
    uint32_t previous = (me + nranks - 1) % nranks;
    uint8_t *out = fresh_output(actor);
    if (me == scene->root)
        memcpy(out, input(scene, me, 0), part_size(scene));
    CHECK_OK(ddp_broadcast(actor->comm, out, scene->count, scene->dtype, scene->root, NULL, err));
    check_part(actor, 0, input(scene, scene->root, 0));
    check_ends(actor, 1);
    if (nranks == 1)
        return;
    out = fresh_output(actor);
    CHECK_OK(ddp_group_start(actor->comm, err));
    CHECK_OK(
        ddp_send(actor->comm, input(scene, me, 0), scene->count, scene->dtype, next, NULL, err));
    CHECK_OK(ddp_recv(actor->comm, out, scene->count, scene->dtype, previous, NULL, err));
    CHECK_OK(ddp_group_end(actor->comm, err));
    check_part(actor, 0, input(scene, previous, 0));
    check_ends(actor, 1);
}

/* ---- calls that reduce ---- */

/* Only one rank makes up what all see; the others wait for it. */
static void fold_inputs(const struct actor *actor, ddp_reduce_op op)
{
    struct scene *scene = actor->scene;
    size_t size = ddp_dtype_size(scene->dtype);
    struct ddpi_reduction work = {.nin = scene->nranks,
                                  .dtype = scene->dtype,
                                  .op = op,
                                  .divisor = op == DDP_AVERAGE ? scene->nranks : 1};
    pthread_barrier_wait(&scene->meeting);
    for (size_t i = 0; i < scene->nranks * scene->count && actor->rank == 0; i++) {
        element_bits in[RANKS];
        for (uint32_t rank = 0; rank < scene->nranks; rank++)
            in[rank] = elements_get(scene->in[rank] + 1, i, scene->dtype);
        element_bits folded = elements_folded(&work, in);
        memcpy(scene->folded + i * size, &folded, size);
    }
    pthread_barrier_wait(&scene->meeting);
}

/* The output is part @part of the folded inputs. */
static void check_folded(const struct actor *actor, uint32_t part)
{
    const struct scene *scene = actor->scene;
    for (size_t i = 0; i < scene->count; i++)
        CHECK(elements_agree(scene->dtype, elements_get(actor->out + 1, i, scene->dtype),
                             elements_get(scene->folded, part * scene->count + i, scene->dtype)));
    check_ends(actor, 1);
}

static void reduce_inputs(struct actor *actor, ddp_reduce_op op)
{
    const struct scene *scene = actor->scene;
    uint32_t me = actor->rank;
    fold_inputs(actor, op);
    uint8_t *out = fresh_output(actor);
    CHECK_OK(ddp_all_reduce(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, op,
                            NULL, err));
    check_folded(actor, 0);
    out = fresh_output(actor);
    CHECK_OK(ddp_reduce_scatter(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype,
                                op, NULL, err));
    check_folded(actor, me);
    out = fresh_output(actor);
    CHECK_OK(ddp_reduce(actor->comm, input(scene, me, 0), out, scene->count, scene->dtype, op,
                        scene->root, NULL, err));
    if (me == scene->root)
        check_folded(actor, 0);
    else
        check_ends(actor, 0);
}

/* ---- all of them ---- */

static void fill_inputs(const struct actor *actor, ddp_dtype dtype, size_t count, uint32_t root)
{
    struct scene *scene = actor->scene;
    pthread_barrier_wait(&scene->meeting);
    if (actor->rank == 0) {
        uint64_t state = (uint64_t)dtype * 1000 + count;
        scene->dtype = dtype;
        scene->count = count;
        scene->root = root;
        for (uint32_t rank = 0; rank < scene->nranks; rank++)
            elements_fill(scene->in[rank] + 1, scene->nranks * count, dtype, &state);
    }
    pthread_barrier_wait(&scene->meeting);
}

static void *call_everything(void *arg)
{
    static const size_t counts[] = {1, 3, 37, COUNT};
    enum { COUNTS = sizeof counts / sizeof *counts };
    struct actor *actor = arg;
    for (int i = 0; i < DDPI_DTYPES * COUNTS; i += sample_stride()) {
        ddp_dtype dtype = (ddp_dtype)(i / COUNTS);
        fill_inputs(actor, dtype, counts[i % COUNTS], (uint32_t)i % actor->scene->nranks);
        CHECK_OK(ddp_barrier(actor->comm, NULL, err));
        gather_and_scatter(actor);
        exchange_parts(actor);
        broadcast_and_pass(actor);
        for (ddp_reduce_op op = 0; op < DDP_PREMUL_SUM; op++)
            if (elements_reduce(dtype, op))
                reduce_inputs(actor, op);
    }
    return NULL;
}

START_TEST(calls_agree_with_the_reference)
{
    static struct scene scene;
    static struct actor actors[RANKS];
    ddp_comm *comms[RANKS];
    scene.nranks = (uint32_t)_i;
    setenv("DDP_TIMEOUT", "60s", 1);
    CHECK(pthread_barrier_init(&scene.meeting, NULL, scene.nranks) == 0);
    CHECK_OK(ddp_comm_init_local(scene.nranks, NULL, comms, err));
    for (uint32_t rank = 0; rank < scene.nranks; rank++) {
        actors[rank] = (struct actor){.scene = &scene, .comm = comms[rank], .rank = rank};
        CHECK(pthread_create(&actors[rank].thread, NULL, call_everything, &actors[rank]) == 0);
    }
    for (uint32_t rank = 0; rank < scene.nranks; rank++)
        CHECK(pthread_join(actors[rank].thread, NULL) == 0);
    for (uint32_t rank = 0; rank < scene.nranks; rank++)
        ddp_comm_destroy(comms[rank]);
    CHECK(pthread_barrier_destroy(&scene.meeting) == 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("every call");
    TCase *tcase = tcase_create("ranks");
    tcase_add_loop_test(tcase, calls_agree_with_the_reference, 1, RANKS + 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
