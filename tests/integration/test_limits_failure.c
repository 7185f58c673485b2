/*
 * test_limits_failure.c - ranks under limits: of descriptors, and of the size of files. What is
 * short is named, with whom it hits, and a rank that lives is not called dead; so, too, when its
 * connection is cut.
 */
#include "check_main.h"
#include "communicator.h"
#include "world.h"

#include <ddprun/comm_groups.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RANKS = 4, POOR = 1, LONG_MS = 60 * 1000, SHORT_MS = 4000, ROOMS = 6, INIT_ROOMS = 24 };

/* From now on this process may have @room more descriptors. */
static void leave_room(unsigned room)
{
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    int next[ROOMS + INIT_ROOMS];
    for (unsigned i = 0; i <= room; i++) { /* there may be holes among those that are open */
        next[i] = dup(STDERR_FILENO);
        CHECK(next[i] >= 0);
    }
    files.rlim_cur = (rlim_t)next[room];
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    for (unsigned i = 0; i <= room; i++)
        close(next[i]);
}

/* Rank 3 and the poor one need an edge; world->stage: how many descriptors there are for it, and
 * which of them connects. */
static void meet(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    float value = 1;
    bool sends = world->stage / ROOMS == 0;
    ddp_status status = ddp_barrier(comm, NULL, &error);
    if (rank == POOR)
        leave_room(world->stage % ROOMS);
    if (status == DDP_OK && rank == POOR && sends)
        status = ddp_send(comm, &value, 1, DDP_FLOAT32, 3, NULL, &error);
    if (status == DDP_OK && rank == 3 && !sends)
        status = ddp_send(comm, &value, 1, DDP_FLOAT32, POOR, NULL, &error);
    if (status == DDP_OK) /* who waits here lets others in */
        status = ddp_barrier(comm, NULL, &error);
    if (status == DDP_OK && rank == (sends ? 3 : POOR))
        status = ddp_recv(comm, &value, 1, DDP_FLOAT32, sends ? POOR : 3, NULL, &error);
    world_report(world, rank, status, &error);
}

static void expect_shortage(const struct world *world, uint32_t rank)
{
    const struct report *seen = &world->reports[rank];
    if (seen->status == DDP_OK)
        return;
    /* Who wants in is not known before it is in, and strangers must not be able to do harm: the
     * poor one goes on, and the other one finds out by the timeout. */
    if (seen->status == DDP_E_TIMEOUT && world->stage >= ROOMS) {
        ck_assert_msg(strstr(seen->error.msg, "rank 1 (") != NULL &&
                          strstr(seen->error.msg, "out of descriptors") != NULL,
                      "rank %u: %s", rank, seen->error.msg);
        return;
    }
    ck_assert_msg(seen->status == DDP_E_SYSTEM && strstr(seen->error.msg, "rank 1") != NULL &&
                      strstr(seen->error.msg, "Too many open files") != NULL &&
                      strstr(seen->error.msg, "ulimit -n") != NULL,
                  "rank %u: %s: %s", rank, ddp_status_name(seen->status), seen->error.msg);
}

START_TEST(too_few_descriptors_are_no_death)
{
    unsigned failed = 0;
    for (uint32_t stage = 0; stage < 2 * ROOMS; stage++) {
        struct world world = {.nranks = RANKS,
                              .tcp = _i != 0,
                              .timeout_ms = stage < ROOMS ? LONG_MS : SHORT_MS,
                              .stage = stage};
        world_open(&world);
        world_run(&world, meet);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            expect_shortage(&world, rank);
        failed += world.reports[POOR].status != DDP_OK;
        world_close(&world);
    }
    ck_assert_uint_ge(failed, 2);
    ck_assert_uint_lt(failed, 2 * ROOMS);
}
END_TEST

static void open_room(struct world *world, unsigned room)
{
    *world = (struct world){.nranks = 2, .init_timeout_ms = SHORT_MS};
    world_open(world);
    if (!world_fork(world, 0))
        return;
    struct ddp_comm_options options = world_options(world, 0);
    struct ddp_error error = {0};
    ddp_comm *comm;
    leave_room(room);
    ddp_status status = ddp_comm_init(&options, &comm, &error);
    world_report(world, 0, status, &error);
    _exit(0);
}

static ddp_status close_room(struct world *world, unsigned room)
{
    world_join(world);
    const struct report *seen = &world->reports[0];
    ddp_status status = seen->status;
    /* The store's client says so in its own words. */
    bool named = strstr(seen->error.msg, "Too many open files") != NULL &&
                 (status == DDP_E_UNREACHABLE || strstr(seen->error.msg, "ulimit -n") != NULL);
    ck_assert_msg(named || (room > 2 && status == DDP_E_TIMEOUT), "%u: %s: %s", room,
                  ddp_status_name(status), seen->error.msg);
    world_close(world);
    return status;
}

/* The other rank never comes. The worlds run at the same time, because most of them only wait for
 * it. */
START_TEST(too_few_descriptors_are_named_by_init)
{
    struct world worlds[INIT_ROOMS];
    ddp_status last = DDP_OK;
    for (unsigned room = 0; room < INIT_ROOMS; room += 1 + room / 8)
        open_room(&worlds[room], room);
    for (unsigned room = 0; room < INIT_ROOMS; room += 1 + room / 8)
        last = close_room(&worlds[room], room);
    ck_assert_int_eq(last, DDP_E_TIMEOUT);
}
END_TEST

/* ---- the size of files, beyond which the kernel sends SIGXFSZ ---- */

static void limit_files(void)
{
    struct rlimit size;
    CHECK(getrlimit(RLIMIT_FSIZE, &size) == 0);
    size.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_FSIZE, &size) == 0);
}

/* Ranks that may have no shared memory do without. */
START_TEST(a_limit_on_files_kills_nobody_in_init)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (!world_fork(&world, rank))
            continue;
        if (rank != 2)
            limit_files();
        struct ddp_comm_options options = world_options(&world, rank);
        ddp_comm *comm;
        CHECK_OK(ddp_comm_init(&options, &comm, err));
        int32_t value = 1;
        CHECK_OK(ddp_all_reduce(comm, &value, &value, 1, DDP_INT32, DDP_SUM, NULL, err));
        CHECK(value == 3);
        ddp_comm_destroy(comm);
        _exit(0);
    }
    world_join(&world);
    world_close(&world);
}
END_TEST

static void send_under_a_limit(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    float value = 1;
    ddp_status status = ddp_barrier(comm, NULL, &error);
    if (rank == POOR)
        limit_files();
    if (status == DDP_OK && rank == POOR)
        status = ddp_send(comm, &value, 1, DDP_FLOAT32, 3, NULL, &error);
    else if (status == DDP_OK)
        status = ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(a_limit_on_files_that_comes_later_is_named)
{
    struct world world = {.nranks = RANKS, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, send_under_a_limit);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        const struct report *seen = &world.reports[rank];
        ck_assert_msg(seen->status == DDP_E_SYSTEM && strstr(seen->error.msg, "rank 1") != NULL &&
                          strstr(seen->error.msg, "ulimit -f") != NULL,
                      "rank %u: %s: %s", rank, ddp_status_name(seen->status), seen->error.msg);
    }
    world_close(&world);
}
END_TEST

/* ---- new communicators ---- */

enum { GROUP_ROOMS = 24 };

static ddp_status make_split(ddp_comm *comm, ddp_comm **ret, struct ddp_error *err)
{
    return ddp_comm_split(comm, 0, 0, ret, err);
}

static ddp_status make_group(ddp_comm *comm, ddp_comm **ret, struct ddp_error *err)
{
    static const uint32_t all[] = {0, 1, 2};
    return ddp_comm_create_group(comm, all, 3, ret, err);
}

static ddp_status make_shrunk(ddp_comm *comm, ddp_comm **ret, struct ddp_error *err)
{
    return ddp_comm_shrink(comm, NULL, 0, 0, SHORT_MS, ret, err);
}

static ddp_status (*const makers[])(ddp_comm *comm, ddp_comm **ret,
                                    struct ddp_error *err) = {make_split, make_group, make_shrunk};
enum { MAKERS = sizeof makers / sizeof *makers };

static void make_another(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_comm *child = NULL;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    world_step(world, rank);
    for (uint32_t other = 0; other < world->nranks; other++)
        world_await_steps(world, other, 1);
    if (rank == POOR)
        leave_room(world->stage / MAKERS);
    ddp_status status = makers[world->stage % MAKERS](comm, &child, &error);
    world_report(world, rank, status, &error);
    atomic_fetch_add(world->counter, 1);
    while (atomic_load(world->counter) < world->nranks)
        poll(NULL, 0, 1);
    if (status == DDP_OK)
        ddp_comm_destroy(child);
}

/* All ranks have one, or none has. If the poor one cannot connect, the others only see that it does
 * not come. */
START_TEST(a_new_communicator_is_for_all_or_none)
{
    unsigned made = 0;
    for (uint32_t room = 0; room < GROUP_ROOMS; room += 2) {
        struct world world = {.nranks = 3,
                              .tcp = _i / MAKERS != 0,
                              .timeout_ms = SHORT_MS,
                              .stage = room * MAKERS + (uint32_t)_i % MAKERS};
        world_open(&world);
        world_run(&world, make_another);
        ddp_status poor = world.reports[POOR].status;
        made += poor == DDP_OK;
        for (uint32_t rank = 0; rank < world.nranks; rank++) {
            const struct report *seen = &world.reports[rank];
            bool same = (seen->status == DDP_OK) == (poor == DDP_OK);
            bool told = seen->status == DDP_OK || seen->status == DDP_E_TIMEOUT || rank == POOR ||
                        strstr(seen->error.msg, "rank 1") != NULL;
            ck_assert_msg(same && told, "%u left, rank %u: %s: %s", room, rank,
                          ddp_status_name(seen->status), seen->error.msg);
        }
        world_close(&world);
    }
    ck_assert_uint_gt(made, 0);
    ck_assert_uint_lt(made, GROUP_ROOMS);
}
END_TEST

/* ---- connections that end while their ranks live ---- */

/* The kernel sends RST for it. */
static void cut(int fd)
{
    const struct linger none = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    CHECK(nothing >= 0 && dup3(nothing, fd, O_CLOEXEC) == fd);
    close(nothing);
}

static void one_is_cut_off(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status = ddp_barrier(comm, NULL, &error);
    if (rank == POOR) {
        for (unsigned i = 0; i < DDPI_RING_EDGES; i++)
            cut(comm->edges.ring[i]->control.fd);
        while (atomic_load(world->counter) < world->nranks - 1)
            poll(NULL, 0, 10);
        return;
    }
    if (status == DDP_OK)
        status = ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
    atomic_fetch_add(world->counter, 1);
}

START_TEST(a_connection_that_is_cut_is_no_death)
{
    struct world world = {.nranks = 3, .tcp = _i != 0, .timeout_ms = LONG_MS};
    world_open(&world);
    world_run(&world, one_is_cut_off);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        const struct report *seen = &world.reports[rank];
        ck_assert_msg(rank == POOR || (seen->status == DDP_E_CLOSED &&
                                       strncmp(seen->error.msg, "rank 1 (", 8) == 0 &&
                                       strstr(seen->error.msg, "lives, but") != NULL),
                      "rank %u: %s: %s", rank, ddp_status_name(seen->status), seen->error.msg);
    }
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_add_loop_test(tcase, too_few_descriptors_are_no_death, 0, 2);
    tcase_add_test(tcase, too_few_descriptors_are_named_by_init);
    tcase_add_test(tcase, a_limit_on_files_kills_nobody_in_init);
    tcase_add_test(tcase, a_limit_on_files_that_comes_later_is_named);
    tcase_add_loop_test(tcase, a_new_communicator_is_for_all_or_none, 0, 2 * MAKERS);
    tcase_add_loop_test(tcase, a_connection_that_is_cut_is_no_death, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
