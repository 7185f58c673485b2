/*
 * test_init_master.c - ranks that meet at MASTER_ADDR without a store: rank 0 listens there for as
 * long as they join. That ranks die meanwhile is in test_init_failure_master.
 */
#include "check_main.h"
#include "descriptors.h"
#include "world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 3, NAMES = 3, LONG_MS = 60000 };

struct seat {
    const char *name;
    uint32_t rank;
    pthread_t thread;
    ddp_status status;
    struct ddp_error error;
};

static void *sit(void *arg)
{
    struct seat *seat = arg;
    const struct ddp_comm_options options = {.size = sizeof options,
                                             .name = seat->name,
                                             .world_size = RANKS,
                                             .rank = seat->rank,
                                             .init_timeout_ms = LONG_MS,
                                             .timeout_ms = LONG_MS};
    ddp_comm *comm;
    uint32_t sum = seat->rank;
    seat->status = ddp_comm_init(&options, &comm, &seat->error);
    if (seat->status != DDP_OK)
        return NULL;
    CHECK_OK(ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(sum == RANKS * (RANKS - 1) / 2);
    ddp_comm_destroy(comm);
    return NULL;
}

static void open_master(struct world *world)
{
    setenv("DDPRUN_TEST_WAY", "master", 1);
    world_open(world);
}

/* One after the other on one port; the others come before rank 0. */
START_TEST(a_port_is_free_again)
{
    static const char *const names[NAMES] = {"data", "tensor", "data"};
    struct world world = {.nranks = RANKS};
    open_master(&world);
    unsigned before = open_descriptors();
    for (int i = 0; i < NAMES; i++) {
        struct seat seats[RANKS];
        for (uint32_t rank = RANKS; rank-- > 0;) {
            seats[rank] = (struct seat){.name = names[i], .rank = rank};
            ck_assert_int_eq(pthread_create(&seats[rank].thread, NULL, sit, &seats[rank]), 0);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            pthread_join(seats[rank].thread, NULL);
            ck_assert_msg(seats[rank].status == DDP_OK, "%s", seats[rank].error.msg);
        }
        ck_assert(!world_has_host(&world));
    }
    ck_assert_uint_eq(open_descriptors(), before);
    world_close(&world);
}
END_TEST

/* A rank of another communicator connects first: it waits for its own rank 0. */
START_TEST(names_are_told_apart)
{
    struct world world = {.nranks = RANKS};
    struct seat data[RANKS], tensor[RANKS];
    open_master(&world);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        data[rank] = (struct seat){.name = "data", .rank = rank};
        tensor[rank] = (struct seat){.name = "tensor", .rank = rank};
    }
    ck_assert_int_eq(pthread_create(&tensor[1].thread, NULL, sit, &tensor[1]), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ck_assert_int_eq(pthread_create(&data[rank].thread, NULL, sit, &data[rank]), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        pthread_join(data[rank].thread, NULL);
        ck_assert_msg(data[rank].status == DDP_OK, "%s", data[rank].error.msg);
    }
    for (uint32_t rank = 0; rank < RANKS; rank += 2)
        ck_assert_int_eq(pthread_create(&tensor[rank].thread, NULL, sit, &tensor[rank]), 0);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        pthread_join(tensor[rank].thread, NULL);
        ck_assert_msg(tensor[rank].status == DDP_OK, "%s", tensor[rank].error.msg);
    }
    world_close(&world);
}
END_TEST

/* Another program listens there, such as a store of PyTorch. */
START_TEST(a_port_in_use_is_named)
{
    struct world world = {.nranks = RANKS};
    struct seat seat = {.rank = 0};
    open_master(&world);
    ck_assert_int_eq(listen(world.port, 1), 0);
    sit(&seat);
    ck_assert_int_eq(seat.status, DDP_E_SYSTEM);
    ck_assert_msg(strstr(seat.error.msg, getenv("MASTER_PORT")) != NULL &&
                      strstr(seat.error.msg, "TORCHELASTIC_USE_AGENT_STORE=True") != NULL,
                  "%s", seat.error.msg);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("init at MASTER_ADDR");
    TCase *tcase = tcase_create("master");
    ADD_TESTS(tcase, a_port_is_free_again, names_are_told_apart, a_port_in_use_is_named);
    suite_add_tcase(suite, tcase);
    return suite;
}
