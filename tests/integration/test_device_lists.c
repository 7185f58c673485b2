/*
 * test_device_lists.c - lists of buffers in device memory: all_reduce and broadcast give what the
 * same lists in host memory get, on one GPU or several, also when the caller's list is gone before
 * the stream has reached the operation.
 */
#include "check_main.h"
#include "rig.h"

#include <string.h>

enum { BUFFERS = 60, MANY = 300001, TURNS = 6 };

/* The same list in both memories. */
struct lists {
    struct ddp_buffer device[BUFFERS], host[BUFFERS];
    struct twin send[BUFFERS], recv[BUFFERS];
    size_t count;
    ddp_dtype dtype;
};

/* Some are empty, two are longer than a slice has room for. */
static size_t count_of(size_t index, unsigned turn)
{
    return index % 7 == 3 ? 0 : index == 5 || index == 40 ? MANY + turn : 1 + index * turn % 700;
}

/* Every third buffer is in place. */
static void make_lists(struct rig *rig, struct lists *lists, unsigned turn)
{
    for (size_t i = 0; i < lists->count; i++) {
        size_t count = count_of(i, turn), size = ddp_dtype_size(lists->dtype);
        bool in_place = i % 3 == 0;
        lists->send[i] = rig_input(rig, count, lists->dtype);
        lists->recv[i] = rig_output(rig, in_place ? 0 : count * size);
        const struct twin *recv = in_place ? &lists->send[i] : &lists->recv[i];
        lists->device[i] = (struct ddp_buffer){
            .send = twin_device(&lists->send[i]), .recv = twin_device(recv), .count = count};
        lists->host[i] =
            (struct ddp_buffer){.send = lists->send[i].host, .recv = recv->host, .count = count};
    }
}

static void compare_lists(struct rig *rig, struct lists *lists)
{
    for (size_t i = 0; i < lists->count; i++) {
        rig_compare(rig, &lists->send[i], lists->dtype);
        rig_compare(rig, &lists->recv[i], lists->dtype);
    }
}

static struct ddp_operation operation_on(const struct lists *lists, const struct ddp_buffer *list,
                                         void *stream)
{
    return (struct ddp_operation){.size = sizeof(struct ddp_operation),
                                  .kind = DDP_KIND_ALL_REDUCE,
                                  .dtype = lists->dtype,
                                  .buffers = list,
                                  .nbuffers = lists->count,
                                  .stream = stream};
}

/* By a function, as an operation with a factor, as a broadcast. */
static void call_lists(struct rig *rig, struct lists *lists, unsigned turn)
{
    struct ddp_operation device = operation_on(lists, lists->device, rig->stream);
    struct ddp_operation host = operation_on(lists, lists->host, NULL);
    if (turn % 3 == 0) {
        CHECK_OK(ddp_all_reduce_many(rig->device, lists->device, lists->count, lists->dtype,
                                     DDP_MAX, rig->stream, err));
        memset(lists->device, 0xff, sizeof lists->device);
        CHECK_OK(ddp_all_reduce_many(rig->host, lists->host, lists->count, lists->dtype, DDP_MAX,
                                     NULL, err));
        return;
    }
    if (turn % 3 == 1) {
        device.op = host.op = DDP_PREMUL_SUM;
        device.factor = host.factor = rig->rank + 0.5;
    } else {
        device.kind = host.kind = DDP_KIND_BROADCAST;
        device.peer = host.peer = turn % rig->nranks;
    }
    CHECK_OK(ddp_run(rig->device, &device, err));
    memset(lists->device, 0xff, sizeof lists->device);
    CHECK_OK(ddp_run(rig->host, &host, err));
}

static void call_all(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const ddp_dtype dtypes[] = {DDP_FLOAT32, DDP_BFLOAT16, DDP_FLOAT64};
    static const size_t lengths[] = {1, 2, BUFFERS};
    static struct lists lists;
    const unsigned stride = sample_is_whole() ? 1 : TURNS;
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (unsigned turn = world->stage % stride; turn < TURNS; turn += stride)
        for (unsigned k = 0; k < 3; k++) {
            lists.dtype = dtypes[(turn + k) % 3];
            lists.count = lengths[k];
            make_lists(&rig, &lists, turn);
            call_lists(&rig, &lists, turn);
            compare_lists(&rig, &lists);
        }
    CHECK_OK(ddp_all_reduce_many(comm, NULL, 0, DDP_INT32, DDP_SUM, NULL, err)); /* nothing */
    rig_close(&rig);
}

START_TEST(lists_in_both_memories_agree)
{
    struct world world = {.nranks = (uint32_t)_i / 3 + 1,
                          .algorithm = _i % 3 == 0 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO,
                          .tcp = _i % 3 == 2,
                          .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, call_all);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device lists");
    TCase *tcase = tcase_create("lists");
    add_sample(tcase, lists_in_both_memories_agree, 0, 12);
    suite_add_tcase(suite, tcase);
    return suite;
}
