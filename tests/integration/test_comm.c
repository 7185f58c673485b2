/*
 * test_comm.c - communicators of real processes, through shared memory and through TCP: the same
 * bits everywhere, broadcasts and barriers, several communicators, what is refused.
 */
#include "check_main.h"
#include "ring.h"
#include "world.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

static uint64_t bytes_sent(ddp_comm *comm)
{
    struct ddp_comm_stats stats = {.size = sizeof stats};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_OK);
    return stats.bytes_sent;
}

/* @_i counts (world size, transport). */
static struct world world_of(int i)
{
    return (struct world){.nranks = (uint32_t)i / 2 + 1, .tcp = i % 2 != 0};
}

/* ---- sums that depend on their order ---- */

static void inexact_sums(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { COUNT = 40003 };
    float *values = malloc(COUNT * sizeof *values);
    CHECK(values != NULL);
    uint32_t state = rank * 2654435761U + 1;
    for (size_t i = 0; i < COUNT; i++) {
        state = state * 1664525 + 1013904223;
        values[i] = (float)(int32_t)state * 1e-7F;
    }
    CHECK_OK(ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err));
    uint64_t digest = 1469598103934665603U;
    for (size_t i = 0; i < COUNT * sizeof *values; i++)
        digest = (digest ^ ((const uint8_t *)values)[i]) * 1099511628211U;
    world->reports[rank].digest = digest;
    free(values);
}

START_TEST(all_ranks_get_the_same_bits_in_every_run)
{
    uint64_t digest = 0;
    for (int run = 0; run < 4; run++) {
        struct world world = {.nranks = 4, .tcp = run % 2 != 0, .algorithm = (ddp_algorithm)_i};
        world_open(&world);
        world_run(&world, inexact_sums);
        for (uint32_t rank = 0; rank < world.nranks; rank++) {
            if (digest == 0)
                digest = world.reports[rank].digest;
            ck_assert(world.reports[rank].digest == digest);
        }
        world_close(&world);
    }
}
END_TEST

/* ---- broadcast, barrier ---- */

static void broadcasts(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static const size_t sizes[] = {0, 1, 7, 4096, 300001};
    int32_t *values = malloc(sizes[4] * sizeof *values);
    CHECK(values != NULL);
    for (uint32_t root = 0; root < world->nranks; root++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            for (size_t i = 0; i < sizes[s]; i++)
                values[i] = (int32_t)(rank == root ? i * 3 + root : 0);
            uint64_t before = bytes_sent(comm);
            CHECK_OK(ddp_broadcast(comm, values, sizes[s], DDP_INT32, root, NULL, err));
            for (size_t i = 0; i < sizes[s]; i++)
                CHECK(values[i] == (int32_t)(i * 3 + root));
            bool is_last = ddpi_ring_next(rank, world->nranks) == root;
            CHECK(bytes_sent(comm) - before == (is_last ? 0 : sizes[s] * sizeof *values));
        }
    free(values);
}

START_TEST(broadcast_from_every_root)
{
    struct world world = world_of(_i);
    world.algorithm = DDP_ALGORITHM_RING;
    world_open(&world);
    world_run(&world, broadcasts);
    world_close(&world);
}
END_TEST

static void barriers(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)rank;
    for (uint32_t turn = 1; turn <= 50; turn++) {
        atomic_fetch_add(world->counter, 1);
        CHECK_OK(ddp_barrier(comm, NULL, err));
        CHECK(atomic_load(world->counter) == turn * world->nranks);
        CHECK_OK(ddp_barrier(comm, NULL, err));
    }
    CHECK(bytes_sent(comm) == 0);
}

START_TEST(barrier_holds_everybody)
{
    struct world world = world_of(_i);
    world_open(&world);
    world_run(&world, barriers);
    world_close(&world);
}
END_TEST

/* ---- several communicators, invalid arguments ---- */

static void second_communicator(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (int turn = 0; turn < 3; turn++) { /* the same name again and again */
        struct ddp_comm_options options = world_options(world, rank);
        options.name = "evaluation";
        ddp_comm *second;
        CHECK_OK(ddp_comm_init(&options, &second, err));
        int64_t one = 1;
        CHECK_OK(ddp_all_reduce(second, &one, &one, 1, DDP_INT64, DDP_SUM, NULL, err));
        CHECK(one == world->nranks);
        CHECK_OK(ddp_all_reduce(comm, &one, &one, 1, DDP_INT64, DDP_SUM, NULL, err));
        CHECK(one == world->nranks * world->nranks);
        CHECK(ddp_comm_rank(second) == rank && ddp_comm_world_size(second) == world->nranks);
        ddp_comm_destroy(second);
    }
}

START_TEST(communicators_are_independent)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, second_communicator);
    world_close(&world);
}
END_TEST

static void invalid_arguments(struct world *world, uint32_t rank, ddp_comm *comm)
{
    float values[8] = {0};
    struct ddp_error error;
    CHECK(ddp_all_reduce(comm, values, values, 8, (ddp_dtype)77, DDP_SUM, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(ddp_all_reduce(comm, values, values, 8, DDP_FLOAT32, (ddp_reduce_op)77, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(ddp_all_reduce(comm, NULL, values, 8, DDP_FLOAT32, DDP_SUM, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(ddp_all_reduce(comm, values, values + 1, 4, DDP_FLOAT32, DDP_SUM, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(ddp_all_reduce(comm, values, values, SIZE_MAX, DDP_FLOAT32, DDP_SUM, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(ddp_broadcast(comm, values, 8, DDP_FLOAT32, world->nranks, NULL, &error) ==
          DDP_E_INVALID);
    CHECK(strstr(error.msg, "root 2") != NULL);
    struct ddp_comm_stats stats = {.size = 1};
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_E_INVALID);
    values[0] = (float)rank; /* nothing of this has hurt it */
    CHECK_OK(ddp_all_reduce(comm, values, values, 8, DDP_FLOAT32, DDP_SUM, NULL, err));
    CHECK(values[0] == 1.0F);
    CHECK_OK(ddp_all_reduce(comm, NULL, NULL, 0, DDP_FLOAT32, DDP_SUM, NULL, err));
}

START_TEST(invalid_arguments_have_no_effect)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, invalid_arguments);
    world_close(&world);
}
END_TEST

/* Sockets of this process that no timer paces, whatever the system's default is. */
static unsigned count_unpaced_sockets(void)
{
    enum { FDS = 256 };
    unsigned count = 0;
    for (int fd = 0; fd < FDS; fd++) {
        char name[16] = "";
        socklen_t len = sizeof name;
        count += getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0 &&
                 strcmp(name, "reno") == 0;
    }
    return count;
}

static void look_at_sockets(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    (void)rank;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK(count_unpaced_sockets() >= 2); /* data to the next rank, and of the previous one */
}

START_TEST(tcp_on_one_machine_is_not_paced)
{
    struct world world = {.nranks = 3, .tcp = true};
    world_open(&world);
    world_run(&world, look_at_sockets);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm");
    TCase *tcase = tcase_create("collectives");
    tcase_add_loop_test(tcase, all_ranks_get_the_same_bits_in_every_run, DDP_ALGORITHM_RING,
                        DDP_ALGORITHM_DIRECT + 1);
    tcase_add_loop_test(tcase, broadcast_from_every_root, 0, 2 * 5);
    tcase_add_loop_test(tcase, barrier_holds_everybody, 0, 2 * 5);
    tcase_add_loop_test(tcase, communicators_are_independent, 0, 2);
    tcase_add_test(tcase, invalid_arguments_have_no_effect);
    tcase_add_test(tcase, tcp_on_one_machine_is_not_paced);
    suite_add_tcase(suite, tcase);
    return suite;
}
