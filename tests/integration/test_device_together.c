/*
 * test_device_together.c - groups of calls, and a message in each direction, on memory of a GPU:
 * ranks that send first would wait for each other until the timeout, one by one.
 */
#include "check_main.h"
#include "rig.h"

#include <string.h>

static struct problem problem_of(unsigned turn)
{
    static const size_t sizes[] = {1, 100003, 7, 512 * 1024 + 1};
    return (struct problem){.dtype = DDP_INT32, .count = sizes[turn % 4]};
}

/* Each rank sends to all, itself included, then receives. */
static void trade(struct rig *rig, ddp_comm *comm, struct twin *out, struct twin *in, size_t count,
                  bool on_device)
{
    void *stream = on_device ? rig->stream : NULL;
    CHECK_OK(ddp_group_start(comm, err));
    for (uint32_t i = 0; i < rig->nranks; i++)
        CHECK_OK(ddp_send(comm, on_device ? twin_device(out) : out->host, count, DDP_INT32,
                          (rig->rank + i) % rig->nranks, stream, err));
    CHECK_OK(ddp_all_reduce(comm, on_device ? twin_device(out) : out->host,
                            on_device ? twin_device(&in[rig->nranks]) : in[rig->nranks].host, count,
                            DDP_INT32, DDP_SUM, stream, err));
    for (uint32_t i = 0; i < rig->nranks; i++) {
        uint32_t from = (rig->rank + i) % rig->nranks;
        CHECK_OK(ddp_recv(comm, on_device ? twin_device(&in[from]) : in[from].host, count,
                          DDP_INT32, from, stream, err));
    }
    CHECK_OK(ddp_group_end(comm, err));
}

static void all_pairs(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    for (unsigned turn = 0; turn < 4; turn++) {
        struct problem of = problem_of(turn);
        struct twin out = rig_input(&rig, of.count, of.dtype), in[WORLD_MAX + 1];
        for (uint32_t i = 0; i <= rig.nranks; i++)
            in[i] = rig_output(&rig, out.len);
        trade(&rig, rig.device, &out, in, of.count, true);
        trade(&rig, rig.host, &out, in, of.count, false);
        for (uint32_t i = 0; i <= rig.nranks; i++)
            rig_compare(&rig, &in[i], of.dtype);
        rig_compare(&rig, &out, of.dtype);
    }
    rig_close(&rig);
}

static void refusal(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    struct ddp_error error;
    rig_open(&rig, world, rank, comm);
    struct twin in = rig_output(&rig, 4);
    CHECK_OK(ddp_group_start(comm, err));
    CHECK(ddp_recv_any(comm, twin_device(&in), 1, DDP_INT32, 0, NULL, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "does not receive from any rank") != NULL);
    CHECK_OK(ddp_group_end(comm, err));
    rig_compare(&rig, &in, DDP_INT32);
    rig_close(&rig);
}

static void shift(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rig rig;
    rig_open(&rig, world, rank, comm);
    uint32_t next = (rank + 1) % rig.nranks, previous = (rank + rig.nranks - 1) % rig.nranks;
    for (unsigned turn = 0; turn < 4; turn++) {
        struct problem of = problem_of(turn);
        struct twin out = rig_input(&rig, of.count, of.dtype), in = rig_output(&rig, out.len);
        CHECK_OK(ddp_send_recv(rig.device, twin_device(&out), of.count, next, twin_device(&in),
                               of.count, previous, of.dtype, rig.stream, err));
        CHECK_OK(ddp_send_recv(rig.host, out.host, of.count, next, in.host, of.count, previous,
                               of.dtype, NULL, err));
        rig_compare(&rig, &out, of.dtype);
        rig_compare(&rig, &in, of.dtype);
    }
    rig_close(&rig);
}

static void run_ranks(int i, rank_body *body)
{
    struct world world = {.nranks = i / 2 == 0 ? 2 : 4, .tcp = i % 2 != 0};
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(every_rank_sends_to_all_first)
{
    run_ranks(_i, all_pairs);
}
END_TEST

START_TEST(a_sender_must_be_named)
{
    run_ranks(_i, refusal);
}
END_TEST

START_TEST(send_recv_shifts_a_ring)
{
    run_ranks(_i, shift);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("device together");
    TCase *tcase = tcase_create("arrive");
    tcase_add_loop_test(tcase, every_rank_sends_to_all_first, 0, 4);
    tcase_add_loop_test(tcase, send_recv_shifts_a_ring, 0, 4);
    tcase_add_loop_test(tcase, a_sender_must_be_named, 0, 1);
    suite_add_tcase(suite, tcase);
    return suite;
}
