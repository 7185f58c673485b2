/*
 * test_comm_nomem.c - the Nth allocation of a rank fails, for every N until none does: the rank and
 * its peers get errors that say so, and nothing of the communicator is left behind.
 */
#include "check_main.h"
#include "descriptors.h"
#include "failmem.h"
#include "rig.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 1000, N_MAX = 1000, SENDER = 1 };

static uint32_t unlucky_rank; /* whose allocations fail */

/* What the unlucky rank has come to when its allocation fails. */
enum { JOINING, WORKING, LUCKY };

typedef ddp_status uses(struct rig *rig, ddp_comm *comm, struct ddp_error *err);

static ddp_status use_host(struct rig *rig, ddp_comm *comm, struct ddp_error *err)
{
    (void)rig;
    float values[COUNT] = {0}, other[COUNT] = {0};
    const struct ddp_buffer buffers[] = {{values, values, COUNT / 2}, {other, other, COUNT / 3}};
    ddp_status status =
        ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err);
    if (status == DDP_OK)
        status = ddp_all_reduce_many(comm, buffers, 2, DDP_FLOAT32, DDP_SUM, NULL, err);
    if (status != DDP_OK)
        return status;
    return ddp_comm_rank(comm) == SENDER
               ? ddp_send(comm, values, COUNT, DDP_FLOAT32, 0, NULL, err)
               : ddp_recv(comm, other, COUNT, DDP_FLOAT32, SENDER, NULL, err);
}

static struct ddp_operation message(ddp_kind kind, uint32_t peer, float *value, uint32_t tag)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = kind,
                                  .send = value,
                                  .recv = value,
                                  .count = 1,
                                  .dtype = DDP_FLOAT32,
                                  .peer = peer,
                                  .tag = tag};
}

/* The first message comes while nobody waits for it, but for others of that rank. */
static ddp_status use_messages(struct rig *rig, ddp_comm *comm, struct ddp_error *err)
{
    static float values[4];
    ddp_request *requests[4] = {NULL};
    bool sends = ddp_comm_rank(comm) == SENDER;
    ddp_kind kind = sends ? DDP_KIND_SEND : DDP_KIND_RECV;
    ddp_status status = DDP_OK;
    (void)rig;
    for (uint32_t i = 0; i < 4 && status == DDP_OK; i++) {
        struct ddp_operation operation =
            message(kind, sends ? 0 : SENDER, &values[i], sends ? 3 - i : i);
        if (!sends && i == 3) /* the others are under way */
            status = ddp_request_wait(requests[0], 0, NULL, err);
        if (status == DDP_OK)
            status = ddp_start(comm, &operation, &requests[i], err);
    }
    for (int i = 0; i < 4; i++) {
        if (status == DDP_OK)
            status = ddp_request_wait(requests[i], 0, NULL, err);
        ddp_request_free(requests[i]);
    }
    return status;
}

/* The ranks of two nodes. No rank gets through the barrier without all others. */
static ddp_status use_nodes(struct rig *rig, ddp_comm *comm, struct ddp_error *err)
{
    (void)rig;
    float values[COUNT] = {0}, other[COUNT] = {0};
    const struct ddp_buffer buffers[] = {{values, values, COUNT / 2}, {other, other, COUNT / 3}};
    ddp_status status =
        ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err);
    if (status == DDP_OK)
        status = ddp_all_reduce_many(comm, buffers, 2, DDP_FLOAT32, DDP_SUM, NULL, err);
    return status == DDP_OK ? ddp_barrier(comm, NULL, err) : status;
}

static ddp_status reduce_twin(struct rig *rig, ddp_comm *comm, const struct twin *twin,
                              struct ddp_error *err)
{
    void *buffer = twin_device(twin);
    ddp_status status =
        ddp_all_reduce(comm, buffer, buffer, COUNT, DDP_FLOAT32, DDP_SUM, rig->stream, err);
    CU(rig->cuda.stream_synchronize(rig->stream));
    return status == DDP_OK ? ddp_comm_check(comm, err) : status;
}

/* Plain memory, virtual memory, which is handed over, and a message over an edge of its own. */
static ddp_status use_device(struct rig *rig, ddp_comm *comm, struct ddp_error *err)
{
    struct twin plain = rig_output(rig, COUNT * sizeof(float));
    rig->virtual = true;
    struct twin mapped = rig_output(rig, plain.len);
    rig->virtual = false;
    ddp_status status = reduce_twin(rig, comm, &plain, err);
    if (status == DDP_OK)
        status = reduce_twin(rig, comm, &mapped, err);
    if (status == DDP_OK)
        status =
            ddp_comm_rank(comm) == SENDER
                ? ddp_send(comm, twin_device(&mapped), COUNT, DDP_FLOAT32, 0, rig->stream, err)
                : ddp_recv(comm, twin_device(&plain), COUNT, DDP_FLOAT32, SENDER, rig->stream, err);
    CU(rig->cuda.stream_synchronize(rig->stream));
    if (status == DDP_OK)
        status = ddp_comm_check(comm, err);
    twin_free(rig, &plain);
    twin_free(rig, &mapped);
    return status;
}

/* ---- one rank ---- */

static void live(struct world *world, uint32_t rank, uses *use, bool on_device)
{
    struct rig rig = {0};
    if (on_device)
        rig_use(&rig, (int)rank, NULL, NULL);
    size_t free_bytes = on_device ? rig_free_memory(&rig) : 0;
    unsigned descriptors = open_descriptors();
    struct report *report = &world->reports[rank];
    struct ddp_comm_options options = world_options(world, rank);
    if (rank == unlucky_rank)
        failmem_start_some(world->stage, 1);
    ddp_comm *comm = NULL;
    ddp_status status = ddp_comm_init(&options, &comm, &report->error);
    bool joined = status == DDP_OK;
    if (joined)
        status = use(&rig, comm, &report->error);
    ddp_comm_destroy(comm);
    bool unlucky = failmem_stop();
    report->status = status;
    atomic_store(&report->steps, joined ? WORKING : JOINING);
    if (rank == unlucky_rank && !unlucky)
        atomic_store(&report->steps, LUCKY);
    CHECK(open_descriptors() == descriptors);
    CHECK(!on_device || rig_free_memory(&rig) == free_bytes);
    if (on_device)
        rig_close(&rig);
    exit(0); /* through what looks for leaks */
}

/* ---- every allocation ---- */

static bool unlucky_has(const struct world *world, uint32_t step)
{
    return atomic_load(&world->reports[unlucky_rank].steps) == step;
}

/* What another rank has seen of the failure, or success, of the unlucky one. On a device the thread
 * that drives the operations may fail after the message, which the other one then has. */
static void expect_told(const struct world *world, const struct report *other, bool on_device)
{
    bool must_fail = unlucky_rank == SENDER && !on_device;
    ddp_status unlucky = world->reports[unlucky_rank].status;
    char name[32];
    snprintf(name, sizeof name, "rank %u", unlucky_rank);
    if (unlucky == DDP_OK) /* it has all, or does without, as without shared memory */
        ck_assert_msg(other->status == DDP_OK, "allocation %u: %s", world->stage, other->error.msg);
    else if (unlucky_has(world, WORKING) && (must_fail || other->status != DDP_OK))
        ck_assert_msg(strstr(other->error.msg, name) != NULL, "allocation %u: %s", world->stage,
                      other->error.msg);
}

/* false: all allocations have succeeded. */
static bool fail_one(struct world *world, uses *use, bool on_device, unsigned *failures)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        world->reports[rank] = (struct report){0};
        if (world_fork(world, rank))
            live(world, rank, use, on_device);
    }
    world_join_rank(world, unlucky_rank);
    const struct report *unlucky = &world->reports[unlucky_rank];
    for (uint32_t rank = 0; rank < world->nranks && unlucky_has(world, JOINING); rank++)
        if (rank != unlucky_rank) /* it waits for the unlucky one */
            world_kill_rank(world, rank);
    world_join(world);
    ck_assert_msg(unlucky->status == DDP_E_NOMEM || unlucky->status == DDP_OK,
                  "allocation %u: status %d: %s", world->stage, unlucky->status,
                  unlucky->error.msg);
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        if (rank != unlucky_rank)
            expect_told(world, &world->reports[rank], on_device);
    *failures += unlucky->status == DDP_E_NOMEM;
    return !unlucky_has(world, LUCKY);
}

static void fail_each(struct world *world, uses *use, bool on_device)
{
    unsigned failures = 0;
    world_open(world);
    world->nranks = world->hosts != NULL ? (uint32_t)strlen(world->hosts) : 2;
    char name[32];
    world->name = name;
    do {
        snprintf(name, sizeof name, "without %u", world->stage);
    } while (fail_one(world, use, on_device, &failures) && ++world->stage < N_MAX);
    ck_assert_uint_gt(failures, 10);
    ck_assert_uint_lt(world->stage, N_MAX);
    world_close(world);
}

START_TEST(on_the_host)
{
    struct world world = {.tcp = _i % 2 == 1};
    unlucky_rank = (uint32_t)_i / 2;
    fail_each(&world, use_host, false);
}
END_TEST

START_TEST(beside_other_messages)
{
    struct world world = {.tcp = _i == 1};
    unlucky_rank = 0;
    fail_each(&world, use_messages, false);
}
END_TEST

START_TEST(between_nodes)
{
    struct world world = {.hosts = "aab", .algorithm = DDP_ALGORITHM_HIERARCHICAL};
    unlucky_rank = (uint32_t)_i;
    fail_each(&world, use_nodes, false);
}
END_TEST

START_TEST(on_a_device)
{
    if (!rig_driver_is_host())
        SKIP("the driver of tests/cuda");
    unlucky_rank = SENDER;
    struct world world = {.algorithm = _i == 0 ? DDP_ALGORITHM_AUTO : DDP_ALGORITHM_RING};
    fail_each(&world, use_device, true);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("communicators without memory");
    TCase *tcase = tcase_create("each allocation");
    tcase_add_loop_test(tcase, on_the_host, 0, 4);
    tcase_add_loop_test(tcase, beside_other_messages, 0, 2);
    tcase_add_loop_test(tcase, between_nodes, 0, 3);
    tcase_add_loop_test(tcase, on_a_device, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
