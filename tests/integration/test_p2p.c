/*
 * test_p2p.c - messages between any two ranks, through shared memory and through TCP: all pairs,
 * meetings in which both connect, collectives in between, and nothing left behind.
 */
#include "check_main.h"
#include "descriptors.h"
#include "world.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>

enum { LARGE = 3 * 1000 * 1000 + 1 };

static uint8_t letter(uint32_t from, uint32_t to, size_t i)
{
    return (uint8_t)(from * 31 + to * 7 + i * 131 + i / 251);
}

static void send_one(ddp_comm *comm, uint32_t to, size_t count)
{
    uint32_t rank = ddp_comm_rank(comm);
    float *values = malloc(count * sizeof *values + 1);
    CHECK(values != NULL);
    uint8_t *bytes = (uint8_t *)values;
    for (size_t i = 0; i < count * sizeof *values; i++)
        bytes[i] = letter(rank, to, i);
    CHECK_OK(ddp_send(comm, values, count, DDP_FLOAT32, to, NULL, err));
    memset(bytes, 0, count * sizeof *values); /* it is ours again */
    free(values);
}

static void recv_one(ddp_comm *comm, uint32_t from, size_t count)
{
    uint32_t rank = ddp_comm_rank(comm);
    size_t len = count * sizeof(float);
    uint8_t *bytes = malloc(len + 2); /* received at an address that is no multiple of anything */
    CHECK(bytes != NULL);
    bytes[len + 1] = 0x5a;
    CHECK_OK(ddp_recv(comm, bytes + 1, count, DDP_FLOAT32, from, NULL, err));
    size_t wrong = 0;
    for (size_t i = 0; i < len; i++)
        wrong += bytes[i + 1] != letter(from, rank, i);
    CHECK(wrong == 0 && bytes[len + 1] == 0x5a);
    free(bytes);
}

static struct ddp_comm_stats stats_of(const ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats;
}

static void every_pair(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t sizes[] = {1, 0, 1001, 200 * 1000};
    uint64_t bytes = 0, messages = 0;
    for (uint32_t from = 0; from < world->nranks; from++)
        for (uint32_t to = 0; to < world->nranks; to++)
            for (size_t i = 0; from != to && i < sizeof sizes / sizeof *sizes; i++) {
                if (rank == from)
                    send_one(comm, to, sizes[i]);
                if (rank == to)
                    recv_one(comm, from, sizes[i]);
                bytes += rank == from ? sizes[i] * sizeof(float) : 0;
                messages += rank == from || rank == to;
            }
    struct ddp_comm_stats stats = stats_of(comm);
    CHECK(stats.operations == messages);
    CHECK(stats.bytes_sent == bytes && stats.bytes_received == bytes);
}

/* All meet all at once: everybody sends to everybody, which fits what may be under way. */
static void all_at_once(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (uint32_t turn = 0; turn < 3; turn++) {
        for (uint32_t i = 1; i < world->nranks; i++)
            send_one(comm, (rank + i) % world->nranks, 100);
        for (uint32_t i = 1; i < world->nranks; i++)
            recv_one(comm, (rank + world->nranks - i) % world->nranks, 100);
    }
}

static void shift(ddp_comm *comm, uint32_t distance, size_t count)
{
    uint32_t rank = ddp_comm_rank(comm), nranks = ddp_comm_world_size(comm);
    uint32_t to = (rank + distance) % nranks, from = (rank + nranks - distance) % nranks;
    bool first = rank / distance % 2 == 0; /* even ranks send first, odd ones receive first */
    if (first)
        send_one(comm, to, count);
    recv_one(comm, from, count);
    if (!first)
        send_one(comm, to, count);
}

static void among_collectives(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (uint32_t turn = 0; turn < 20; turn++) {
        int64_t sum = rank;
        shift(comm, 1, turn == 5 ? LARGE : turn * 100);
        CHECK_OK(ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT64, DDP_SUM, NULL, err));
        CHECK(sum == (int64_t)world->nranks * (world->nranks - 1) / 2);
        if (turn % 3 == 0) /* only two take part; the others are in the barrier already */
            rank == 0                   ? send_one(comm, world->nranks - 1, turn)
            : rank + 1 == world->nranks ? recv_one(comm, 0, turn)
                                        : (void)0;
        CHECK_OK(ddp_barrier(comm, NULL, err));
    }
}

static rank_body *const bodies[] = {every_pair, all_at_once, among_collectives};

START_TEST(messages_arrive)
{
    static const uint32_t sizes[] = {5, 2, 3, 4, 6, 8};
    unsigned stride = (unsigned)sample_stride();
    for (unsigned i = (unsigned)_i % stride; i < sizeof sizes / sizeof *sizes; i += stride) {
        struct world world = {.nranks = sizes[i], .tcp = _i % 2 != 0};
        world_open(&world);
        world_run(&world, bodies[_i / 2]);
        world_close(&world);
    }
}
END_TEST

/* What is sent before a rank leaves arrives. */
static void send_and_leave(struct world *world, uint32_t rank, ddp_comm *comm)
{
    if (rank == 0) {
        send_one(comm, 2, 1); /* the first one waits until the other rank is in an operation */
        send_one(comm, 2, 10 * 1000);
    }
    if (rank != 2)
        return;
    recv_one(comm, 0, 1);
    while (atomic_load(world->counter) == 0)
        poll(NULL, 0, 10);
    recv_one(comm, 0, 10 * 1000);
}

static void await_exit(pid_t *pid)
{
    int status;
    ck_assert_int_eq(waitpid(*pid, &status, 0), *pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    *pid = 0;
}

START_TEST(leaving_loses_nothing)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    world_start(&world, send_and_leave);
    await_exit(&world.pids[0]);
    await_exit(&world.pids[1]);
    atomic_store(world.counter, 1);
    world_join(&world);
    world_close(&world);
}
END_TEST

START_TEST(no_descriptor_is_left)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (!world_fork(&world, rank))
            continue;
        struct ddp_comm_options options = world_options(&world, rank);
        unsigned before = open_descriptors();
        for (int turn = 0; turn < 3; turn++) {
            ddp_comm *comm;
            CHECK_OK(ddp_comm_init(&options, &comm, err));
            all_at_once(&world, rank, comm);
            CHECK_OK(ddp_barrier(comm, NULL, err));
            ddp_comm_destroy(comm);
            CHECK(open_descriptors() == before);
        }
        exit(0); /* with a look at what has leaked, where a sanitizer has one */
    }
    world_join(&world);
    world_close(&world);
}
END_TEST

static void invalid_calls(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float value = 0;
    uint32_t other = (rank + 1) % world->nranks;
    CHECK(ddp_send(comm, &value, 1, DDP_FLOAT32, world->nranks, NULL, NULL) == DDP_E_INVALID);
    CHECK(ddp_recv(comm, &value, 1, DDP_FLOAT32, world->nranks, NULL, NULL) == DDP_E_INVALID);
    CHECK(ddp_send(comm, NULL, 1, DDP_FLOAT32, other, NULL, NULL) == DDP_E_INVALID);
    CHECK(ddp_recv(comm, &value, 1, (ddp_dtype)99, other, NULL, NULL) == DDP_E_INVALID);
    CHECK(ddp_send(comm, &value, SIZE_MAX / 2, DDP_FLOAT32, other, NULL, NULL) == DDP_E_INVALID);
    CHECK(ddp_send(comm, &value, 1, DDP_FLOAT32, other, &value, NULL) == DDP_E_INVALID);
    CHECK(stats_of(comm).operations == 0);
    all_at_once(world, rank, comm); /* nothing has happened */
}

START_TEST(invalid_calls_have_no_effect)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, invalid_calls);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("p2p");
    TCase *tcase = tcase_create("messages");
    tcase_add_loop_test(tcase, messages_arrive, 0, 6);
    tcase_add_loop_test(tcase, leaving_loses_nothing, 0, 2);
    tcase_add_loop_test(tcase, no_descriptor_is_left, 0, 2);
    tcase_add_test(tcase, invalid_calls_have_no_effect);
    suite_add_tcase(suite, tcase);
    return suite;
}
