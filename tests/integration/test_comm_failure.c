/*
 * test_comm_failure.c - what survivors see when a rank is killed, stopped, leaves, aborts, calls
 * something else or never comes: always an error that names the right rank.
 *
 * Who must not be named may be kept from running for a while, by the machine: where a deadline
 * decides, it is long enough for that, and where none does, it is a minute.
 */
#include "check_main.h"
#include "communicator.h"
#include "peer_card.h"
#include "sockets.h"
#include "world.h"

#include <ddprun/store.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    COUNT = 200000,
    LONG_MS = 60 * 1000,
    HOUR_MS = 60 * LONG_MS,
    STOP_TIMEOUT_MS = 8000,
    MISSING_TIMEOUT_MS = 6000,
};

/* Every call, and by `direct` those that differ there; world->stage says which. COUNT elements take
 * more than one part. */
enum { RANKS = 4 };

static float values[COUNT], gathered[COUNT];

static ddp_status call_all_reduce(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_half(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, values, COUNT / 2, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_few(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, values, 5, DDP_FLOAT32, DDP_SUM, NULL, err);
}

/* Most buffers are short, some are empty; the last one has half of the elements. */
static ddp_status call_list(ddp_comm *comm, struct ddp_error *err)
{
    enum { BUFFERS = 101, SHORT = COUNT / 2 / (BUFFERS - 1) };
    struct ddp_buffer list[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        float *at = values + i * SHORT;
        size_t count = i == BUFFERS - 1 ? COUNT / 2 : i % 10 == 3 ? 0 : SHORT;
        list[i] = (struct ddp_buffer){.send = at, .recv = at, .count = count};
    }
    return ddp_all_reduce_many(comm, list, BUFFERS, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_reduce(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_reduce(comm, values, gathered, COUNT, DDP_FLOAT32, DDP_SUM, 1, NULL, err);
}

static ddp_status call_broadcast(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_broadcast(comm, values, COUNT, DDP_FLOAT32, 1, NULL, err);
}

static ddp_status call_all_gather(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_all_gather(comm, values, gathered, COUNT / RANKS, DDP_FLOAT32, NULL, err);
}

static ddp_status call_reduce_scatter(ddp_comm *comm, struct ddp_error *err)
{
    return ddp_reduce_scatter(comm, values, gathered, COUNT / RANKS, DDP_FLOAT32, DDP_SUM, NULL,
                              err);
}

static const struct {
    const char *name; /* as in a sentence */
    ddp_status (*run)(ddp_comm *comm, struct ddp_error *err);
    ddp_algorithm algorithm;
    const char *hosts; /* see struct world */
} calls[] = {
    {"all_reduce #", call_all_reduce, DDP_ALGORITHM_RING, NULL},
    {"reduce #", call_reduce, DDP_ALGORITHM_RING, NULL},
    {"broadcast #", call_broadcast, DDP_ALGORITHM_RING, NULL},
    {"all_gather #", call_all_gather, DDP_ALGORITHM_RING, NULL},
    {"reduce_scatter #", call_reduce_scatter, DDP_ALGORITHM_RING, NULL},
    {"all_reduce #", call_all_reduce, DDP_ALGORITHM_DIRECT, NULL},
    {"reduce #", call_reduce, DDP_ALGORITHM_DIRECT, NULL},
    {"reduce_scatter #", call_reduce_scatter, DDP_ALGORITHM_DIRECT, NULL},
    {"all_reduce #", call_half, DDP_ALGORITHM_DOUBLING, NULL},
    {"all_reduce #", call_few, DDP_ALGORITHM_DOUBLING, NULL},
    {"all_reduce #", call_all_reduce, DDP_ALGORITHM_HIERARCHICAL, "aabb"},
    {"all_reduce #", call_all_reduce, DDP_ALGORITHM_HIERARCHICAL, "aaab"},
    {"all_reduce #", call_list, DDP_ALGORITHM_RING, NULL},
    {"all_reduce #", call_list, DDP_ALGORITHM_DIRECT, NULL},
    {"all_reduce #", call_list, DDP_ALGORITHM_DOUBLING, NULL},
    {"all_reduce #", call_list, DDP_ALGORITHM_HIERARCHICAL, "aabb"},
};
enum { CALLS = sizeof calls / sizeof *calls, STOPS = 2 * RANKS, STOP_BATCHES = CALLS / 2 };

/* The test's number counts (call, victim). */
static struct world world_of(int i)
{
    uint32_t stage = (uint32_t)i / RANKS;
    return (struct world){.nranks = RANKS,
                          .stage = stage,
                          .timeout_ms = LONG_MS,
                          .algorithm = calls[stage].algorithm,
                          .hosts = calls[stage].hosts};
}

/* Call again and again until it fails; afterwards every call must fail in the same way. */
static void call_until_failure(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status;
    do {
        status = calls[world->stage].run(comm, &error);
        atomic_fetch_add(&world->reports[rank].steps, 1);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
    struct ddp_error again;
    CHECK(ddp_barrier(comm, NULL, &again) == status);
    CHECK(strcmp(again.msg, error.msg) == 0);
    CHECK(ddp_comm_check(comm, &again) == status);
    CHECK(strcmp(again.msg, error.msg) == 0);
    CHECK(ddp_broadcast(comm, values, 1, DDP_FLOAT32, 0, NULL, NULL) == status);
}

/* The same with a short timeout once they have connected. */
static void call_briefly_until_failure(struct world *world, uint32_t rank, ddp_comm *comm)
{
    CHECK_OK(calls[world->stage].run(comm, err));
    CHECK_OK(ddp_comm_set_timeout(comm, STOP_TIMEOUT_MS, err));
    call_until_failure(world, rank, comm);
}

static void expect_report(const struct world *world, uint32_t rank, ddp_status status,
                          const char *text)
{
    const struct report *seen = &world->reports[rank];
    ck_assert_msg(seen->status == status, "rank %u: %s: %s", rank, ddp_status_name(seen->status),
                  seen->error.msg);
    ck_assert_int_eq(seen->error.status, status);
    ck_assert_msg(strstr(seen->error.msg, text) != NULL, "rank %u: %s", rank, seen->error.msg);
}

/* All but @victim saw @status with "rank VICTIM" in it. */
static void expect_blame(const struct world *world, uint32_t victim, ddp_status status)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u (", victim);
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        if (rank != victim)
            expect_report(world, rank, status, name);
}

START_TEST(a_killed_rank_is_named_by_all)
{
    struct world world = world_of(_i / 2);
    uint32_t victim = (uint32_t)_i / 2 % RANKS;
    world.tcp = _i % 2 != 0;
    world_open(&world);
    world_start(&world, call_until_failure);
    world_await_steps(&world, victim, 5);
    world_kill_rank(&world, victim);
    world_join(&world);
    expect_blame(&world, victim, DDP_E_PEER_DEAD);
    ck_assert_ptr_nonnull(strstr(world.reports[(victim + 1) % RANKS].error.msg, "has died"));
    world_close(&world);
}
END_TEST

static void stop_one(struct world *world, int i)
{
    uint32_t victim = (uint32_t)i % RANKS;
    *world = world_of(i);
    world->tcp = (world->stage + victim) % 2 != 0;
    world_open(world);
    world_start(world, call_briefly_until_failure);
    world_await_steps(world, victim, 5);
    kill(world->pids[victim], SIGSTOP);
}

static void expect_stop_is_noticed(struct world *world, uint32_t victim)
{
    world_await_failures(world, victim);
    world_kill_rank(world, victim);
    world_join(world);
    expect_blame(world, victim, DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(
        strstr(world->reports[(victim + 1) % RANKS].error.msg, calls[world->stage].name));
    world_close(world);
}

/* Each rank of two calls at a time, as all that they do is to wait for their deadlines. */
START_TEST(a_stopped_rank_is_named_by_all)
{
    struct world worlds[STOPS];
    for (int i = 0; i < STOPS; i++)
        stop_one(&worlds[i], _i * STOPS + i);
    for (int i = 0; i < STOPS; i++)
        expect_stop_is_noticed(&worlds[i], (uint32_t)i % RANKS);
}
END_TEST

/* Rank 1 is slow, but comes; nobody may be blamed before the timeout. */
static void one_is_slow(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)world;
    int32_t value = 1;
    if (rank == 1)
        poll(NULL, 0, 700);
    CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
}

START_TEST(a_slow_rank_is_waited_for)
{
    struct world world = {.nranks = 3, .tcp = _i != 0, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, one_is_slow);
    world_close(&world);
}
END_TEST

static void leave_in_the_middle(struct world *world, uint32_t rank, ddp_comm *comm)
{
    if (rank != 1) {
        call_until_failure(world, rank, comm);
        return;
    }
    for (int i = 0; i < 5; i++)
        CHECK_OK(ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, err));
}

START_TEST(a_rank_that_leaves_is_named)
{
    struct world world = {.nranks = 3, .tcp = _i != 0, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, leave_in_the_middle);
    expect_blame(&world, 1, DDP_E_PEER_DEAD);
    expect_report(&world, 2, DDP_E_PEER_DEAD, "has left the communicator");
    world_close(&world);
}
END_TEST

/* A last operation, after which some leave at once, must succeed everywhere. */
static void finish_and_leave(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)rank;
    CHECK_OK(ddp_broadcast(comm, values, COUNT, DDP_FLOAT32, 1, NULL, err));
    CHECK_OK(calls[world->stage].run(comm, err));
}

START_TEST(leaving_after_the_last_operation_hurts_nobody)
{
    for (int turn = 0; turn < 5; turn++) {
        struct world world = world_of(_i / 2 * RANKS);
        world.tcp = _i % 2 != 0;
        world_open(&world);
        world_run(&world, finish_and_leave);
        world_close(&world);
    }
}
END_TEST

/* ---- mismatch ---- */

static ddp_status deviate(ddp_comm *comm, uint32_t how, struct ddp_error *err)
{
    static double doubles[200];
    switch (how) {
    case 1:
        return ddp_all_reduce(comm, doubles, doubles, 99, DDP_FLOAT32, DDP_SUM, NULL, err);
    case 2:
        return ddp_all_reduce(comm, doubles, doubles, 100, DDP_FLOAT64, DDP_SUM, NULL, err);
    case 3:
        return ddp_all_reduce(comm, doubles, doubles, 100, DDP_FLOAT32, DDP_MAX, NULL, err);
    case 4:
        return ddp_broadcast(comm, doubles, 100, DDP_FLOAT32, 1, NULL, err);
    case 5:
        return ddp_barrier(comm, NULL, err);
    case 6:
        return ddp_reduce(comm, doubles, doubles, 100, DDP_FLOAT32, DDP_SUM, 2, NULL, err);
    case 7:
        return ddp_all_gather(comm, doubles, gathered, 100, DDP_FLOAT32, NULL, err);
    case 8:
        return ddp_reduce_scatter(comm, values, gathered, 100, DDP_FLOAT32, DDP_SUM, NULL, err);
    default:
        return ddp_all_reduce(comm, doubles, doubles, 100, DDP_FLOAT32, DDP_SUM, NULL, err);
    }
}

static const char *const deviations[] = {"sum of 100 float32",
                                         "sum of 99 float32",
                                         "sum of 100 float64",
                                         "max of 100 float32",
                                         "100 float32 from rank 1",
                                         "barrier",
                                         "sum of 100 float32 to rank 2, ring",
                                         "all_gather #1 (100 float32)",
                                         "reduce_scatter #1 (sum of 100 float32, ring)",
                                         "sum of 100 float32, direct",
                                         "sum of 100 float32, doubling"};
enum { DEVIATIONS = sizeof deviations / sizeof *deviations };

static void call_something_else(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    ddp_status status = deviate(comm, world->stage, &error);
    world_report(world, rank, status, &error);
}

static void call_as_agreed(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    ddp_status status = deviate(comm, 0, &error);
    world_report(world, rank, status, &error);
}

START_TEST(a_mismatch_names_both_calls)
{
    struct world world = {.nranks = 3, .tcp = _i % 2 != 0, .stage = (uint32_t)_i / 2 + 1};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        world.algorithm = rank != 1                       ? DDP_ALGORITHM_RING
                          : world.stage == DEVIATIONS - 1 ? DDP_ALGORITHM_DOUBLING
                          : world.stage == DEVIATIONS - 2 ? DDP_ALGORITHM_DIRECT
                                                          : DDP_ALGORITHM_RING;
        world_start_rank(&world, rank, rank == 1 ? call_something_else : call_as_agreed);
    }
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        expect_report(&world, rank, DDP_E_MISMATCH, deviations[0]);
        expect_report(&world, rank, DDP_E_MISMATCH, deviations[world.stage]);
        expect_report(&world, rank, DDP_E_MISMATCH, "rank 1");
    }
    world_close(&world);
}
END_TEST

/* All ranks but one reduce through the memory of each node. */
START_TEST(a_mismatch_between_nodes_names_both_calls)
{
    uint32_t different = (uint32_t)_i % 3;
    struct world world = {.nranks = 3, .stage = (uint32_t)_i / 3};
    world.hosts = world.stage % 2 == 0 ? "aab" : "abb";
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        bool by_ring = world.stage == 0 && rank == different;
        world.algorithm = by_ring ? DDP_ALGORITHM_RING : DDP_ALGORITHM_HIERARCHICAL;
        world_start_rank(&world, rank, rank == different ? call_something_else : call_as_agreed);
    }
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        expect_report(&world, rank, DDP_E_MISMATCH, "sum of 100 float32, hierarchical");
        expect_report(&world, rank, DDP_E_MISMATCH,
                      world.stage == 0 ? "sum of 100 float32, ring" : deviations[world.stage]);
    }
    world_close(&world);
}
END_TEST

static const struct difference {
    const char *hosts; /* see struct world */
    bool tcp;
    uint32_t nodes;
    const char *usual, *different; /* algorithms in the tables of most ranks, and of rank 1 */
} tables[] = {
    {NULL, false, 1, "direct", "ring"},          {NULL, false, 1, "doubling", "direct"},
    {NULL, true, 3, "doubling", "ring"},         {NULL, true, 3, "ring", "direct"},
    {"aab", false, 2, "hierarchical", "ring"},   {"aab", false, 2, "doubling", "hierarchical"},
    {"abb", false, 2, "hierarchical", "direct"},
};

enum { TABLES = sizeof tables / sizeof *tables };

static void write_table(char path[], uint32_t nodes, const char *algorithm)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(dprintf(fd, "all_reduce 3 %u 1000 %s\n", nodes, algorithm), 0);
    close(fd);
}

/* A rank that did not hear of it would wait for an hour. It depends on who comes first. */
START_TEST(tables_that_differ_are_a_mismatch)
{
    char paths[2][32] = {"/tmp/test-table-XXXXXX", "/tmp/test-table-XXXXXX"}, words[64];
    const struct difference *at = &tables[_i % TABLES];
    const char *const algorithms[] = {at->usual, at->different};
    struct world world = {.nranks = 3, .tcp = at->tcp, .hosts = at->hosts, .timeout_ms = HOUR_MS};
    for (int i = 0; i < 2; i++)
        write_table(paths[i], at->nodes, algorithms[i]);
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        setenv("DDP_ALGORITHM_TABLE", paths[rank == 1], 1);
        world_start_rank(&world, rank, call_as_agreed);
    }
    unsetenv("DDP_ALGORITHM_TABLE");
    world_join(&world);
    for (int i = 0; i < 2; i++) {
        unlink(paths[i]);
        snprintf(words, sizeof words, "sum of 100 float32, %s", algorithms[i]);
        for (uint32_t rank = 0; rank < world.nranks; rank++)
            expect_report(&world, rank, DDP_E_MISMATCH, words);
    }
    world_close(&world);
}
END_TEST

/* ---- abort ---- */

static void *abort_soon(void *comm)
{
    poll(NULL, 0, 50);
    ddp_comm_abort(comm);
    return NULL;
}

static ddp_comm *comm_of_handler;

static void abort_in_handler(int signal_number)
{
    (void)signal_number;
    ddp_comm_abort(comm_of_handler);
}

/* Between ranks of two nodes it is an all_reduce that waits. */
static ddp_status call_what_waits(const struct world *world, ddp_comm *comm, struct ddp_error *err)
{
    return world->hosts != NULL ? call_few(comm, err) : ddp_barrier(comm, NULL, err);
}

/* Rank 2 does not come until the others have failed, so that they wait when the abort comes. */
static void abort_from_aside(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    pthread_t thread;
    bool by_thread = rank == 1 && world->stage == 0;
    if (by_thread)
        CHECK(pthread_create(&thread, NULL, abort_soon, comm) == 0);
    if (rank == 1 && world->stage == 1) {
        comm_of_handler = comm;
        signal(SIGALRM, abort_in_handler);
        const struct itimerval soon = {.it_value = {.tv_usec = 50000}};
        setitimer(ITIMER_REAL, &soon, NULL);
    }
    if (rank == 2)
        while (atomic_load(world->counter) < 2)
            poll(NULL, 0, 10);
    ddp_status status;
    do { /* the first one may have all that rank 2 needs */
        status = call_what_waits(world, comm, &error);
    } while (status == DDP_OK);
    atomic_fetch_add(world->counter, 1);
    world_report(world, rank, status, &error);
    if (by_thread)
        pthread_join(thread, NULL);
}

START_TEST(abort_reaches_all_ranks)
{
    struct world world = {.nranks = 3, .tcp = _i % 3 == 1, .stage = (uint32_t)_i / 3};
    if (_i % 3 == 2)
        world.hosts = "aab";
    world.algorithm = _i % 3 == 2 ? DDP_ALGORITHM_HIERARCHICAL : DDP_ALGORITHM_AUTO;
    world_open(&world);
    world_run(&world, abort_from_aside);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        expect_report(&world, rank, DDP_E_ABORTED, "rank 1 called ddp_comm_abort()");
    world_close(&world);
}
END_TEST

/* ---- init ---- */

START_TEST(missing_ranks_are_named)
{
    struct world world = {.nranks = 5, .init_timeout_ms = MISSING_TIMEOUT_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < 5; rank += 2) {
        if (!world_fork(&world, rank))
            continue;
        struct ddp_comm_options options = world_options(&world, rank);
        ddp_comm *comm;
        struct ddp_error error;
        ddp_status status = ddp_comm_init(&options, &comm, &error);
        world_report(&world, rank, status, &error);
        _exit(0);
    }
    world_join(&world);
    for (uint32_t rank = 0; rank < 5; rank += 2) {
        expect_report(&world, rank, DDP_E_TIMEOUT, "3 of 5 ranks");
        expect_report(&world, rank, DDP_E_TIMEOUT, "missing: rank 1 and 3");
    }
    world_close(&world);
}
END_TEST

START_TEST(worlds_of_different_size_do_not_join)
{
    struct world world = {.nranks = 2, .init_timeout_ms = MISSING_TIMEOUT_MS};
    world_open(&world);
    for (uint32_t rank = 0; rank < 3; rank++) {
        if (!world_fork(&world, rank))
            continue;
        struct ddp_comm_options options = world_options(&world, rank);
        options.world_size = rank == 0 ? 2 : 3;
        ddp_comm *comm;
        struct ddp_error error;
        ddp_status status = ddp_comm_init(&options, &comm, &error);
        world_report(&world, rank, status, &error);
        _exit(0);
    }
    world_join(&world);
    /* One of the two may come when the others have gone. */
    unsigned told = 0;
    for (uint32_t rank = 0; rank < 3; rank++) {
        bool late = rank != 0 && world.reports[rank].status == DDP_E_TIMEOUT;
        expect_report(&world, rank, late ? DDP_E_TIMEOUT : DDP_E_MISMATCH,
                      late ? "rank 0" : "joins a world of 3 ranks, rank 0 one of 2");
        told += !late;
    }
    ck_assert_uint_ge(told, 2);
    world_close(&world);
}
END_TEST

START_TEST(a_store_that_is_not_there)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* has the port, but does not listen */
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", ntohs(address.sin_port));
    const struct ddp_comm_options options = {.size = sizeof options,
                                             .store_endpoint = endpoint,
                                             .world_size = 2,
                                             .init_timeout_ms = 1000};
    ddp_comm *comm;
    struct ddp_error error;
    ck_assert_int_eq(ddp_comm_init(&options, &comm, &error), DDP_E_UNREACHABLE);
    ck_assert_msg(strstr(error.msg, endpoint) != NULL, "%s", error.msg);
    close(fd);
}
END_TEST

/* The card of rank 0, as a stranger would read it. */
static void read_card(const struct world *world, struct ddpi_card *card)
{
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = world->endpoint, .prefix = "test/"};
    ddp_store *store;
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_connect(&options, &store, NULL), DDP_OK);
    ck_assert_int_eq(ddp_store_get(store, "comm/world/host", LONG_MS, &value, &len, NULL, NULL),
                     DDP_OK);
    ck_assert(ddpi_card_decode(value, len, card));
    ddp_store_free(value);
    ddp_store_close(store);
}

START_TEST(strangers_are_turned_away)
{
    enum { STRANGERS = 6 };
    struct world world = {.nranks = 2, .tcp = _i != 0};
    world_open(&world);
    world_start_rank(&world, 0, finish_and_leave);
    struct ddpi_card card;
    read_card(&world, &card);
    int fds[STRANGERS];
    for (int i = 0; i < STRANGERS; i++) {
        if (world.tcp)
            ck_assert_int_eq(ddpi_begin_tcp(&card.tcp, &fds[i]), EINPROGRESS);
        else
            ck_assert_int_eq(ddpi_begin_local(card.local, &fds[i]), 0);
        ck_assert_int_eq(poll(&(struct pollfd){.fd = fds[i], .events = POLLOUT}, 1, -1), 1);
        char noise[100] = "GET / HTTP/1.1";
        if (i % 3 != 0) /* silence, a piece of a greeting, a whole one without the token */
            ck_assert_int_gt(write(fds[i], noise, i % 3 == 1 ? 10 : sizeof noise), 0);
    }
    close(fds[0]);
    world_start_rank(&world, 1, finish_and_leave);
    world_join(&world);
    for (int i = 1; i < STRANGERS; i++)
        close(fds[i]);
    world_close(&world);
}
END_TEST

/* ---- a peer that reports what cannot be ---- */

static const struct {
    int32_t sent;
    ddp_status status; /* that comes of it */
} reports[] = {
    {DDP_E_MISMATCH, DDP_E_MISMATCH}, {DDP_E_CUDA, DDP_E_CUDA}, {DDP_OK, DDP_E_PROTOCOL},
    {DDP_E_INVALID, DDP_E_PROTOCOL},  {4711, DDP_E_PROTOCOL},   {-4711, DDP_E_PROTOCOL},
    {INT32_MIN, DDP_E_PROTOCOL},
};
enum { REPORTS = sizeof reports / sizeof *reports };

static void report_anything(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    if (rank == 1) {
        struct ddpi_memo memo;
        ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, (ddp_status)reports[world->stage].sent, "what");
        ddpi_memo_tag(&memo, (uint32_t)comm->unfinished); /* rank 0 may still join */
        ddpi_control_send(&comm->edges.ring[DDPI_NEXT]->control, &memo);
        world_await_steps(world, 0, 1);
        return;
    }
    ddp_status status = ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
    atomic_fetch_add(&world->reports[rank].steps, 1);
}

START_TEST(what_a_peer_reports_is_a_failure)
{
    struct world world = {.nranks = 2, .timeout_ms = LONG_MS, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, report_anything);
    ck_assert_int_eq(world.reports[0].status, reports[_i].status);
    ck_assert_str_eq(world.reports[0].error.msg, "what");
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("comm failure");
    TCase *tcase = tcase_create("failure");
    add_sample(tcase, a_killed_rank_is_named_by_all, 0, 2 * RANKS * CALLS);
    add_sample(tcase, a_stopped_rank_is_named_by_all, 0, STOP_BATCHES);
    tcase_add_loop_test(tcase, a_slow_rank_is_waited_for, 0, 2);
    tcase_add_loop_test(tcase, a_rank_that_leaves_is_named, 0, 2);
    add_sample(tcase, leaving_after_the_last_operation_hurts_nobody, 0, 2 * CALLS);
    add_worlds(tcase, a_mismatch_names_both_calls, 0, 2 * (DEVIATIONS - 1));
    add_worlds(tcase, a_mismatch_between_nodes_names_both_calls, 0, 3 * (DEVIATIONS - 2));
    tcase_add_loop_test(tcase, tables_that_differ_are_a_mismatch, 0, 20 * TABLES);
    tcase_add_loop_test(tcase, abort_reaches_all_ranks, 0, 6);
    tcase_add_loop_test(tcase, what_a_peer_reports_is_a_failure, 0, REPORTS);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("init");
    tcase_add_test(tcase, missing_ranks_are_named);
    tcase_add_test(tcase, worlds_of_different_size_do_not_join);
    tcase_add_test(tcase, a_store_that_is_not_there);
    tcase_add_loop_test(tcase, strangers_are_turned_away, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
