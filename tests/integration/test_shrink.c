/*
 * test_shrink.c - survivors go on in the same processes: after a death or several, also while they
 * shrink; without ranks that they exclude; and what they hear when a rank does not come.
 */
#include "check_main.h"
#include "descriptors.h"
#include "life_slot.h"
#include "world.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 4, SHRINK_MS = 60000, MISSING_MS = 5000 /* so late the others may be */ };

/* The ranks of @comm are those of the old world that are in @alive, a bit for each. */
static void check_survivors(ddp_comm *comm, uint32_t old_rank, uint32_t alive)
{
    uint32_t expected[WORLD_MAX], all[WORLD_MAX], count = 0, place = 0, sum = 0;
    for (uint32_t rank = 0; rank < WORLD_MAX; rank++)
        if ((alive >> rank & 1) != 0) {
            place = rank == old_rank ? count : place;
            expected[count++] = rank;
            sum += rank;
        }
    CHECK(ddp_comm_world_size(comm) == count && ddp_comm_rank(comm) == place);
    CHECK_OK(ddp_all_gather(comm, &old_rank, all, 1, DDP_UINT32, NULL, err));
    CHECK(memcmp(all, expected, count * sizeof *all) == 0);
    CHECK_OK(ddp_all_reduce(comm, &old_rank, all, 1, DDP_UINT32, DDP_SUM, NULL, err));
    CHECK(all[0] == sum);
}

static void die_if(bool dies)
{
    if (dies)
        kill(getpid(), SIGKILL);
}

/* All @count ranks have left the barrier when this returns, so that a death is not seen in it. Once
 * a world; the steps of rank @place count them. */
static void meet(struct world *world, ddp_comm *comm, uint32_t place, uint32_t count)
{
    CHECK_OK(ddp_barrier(comm, NULL, err));
    world_step(world, place);
    world_await_steps(world, place, count);
}

/* ---- deaths ---- */

/* The ranks in the bits of world->stage die; the others notice it and go on. */
static void lose_some(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t alive = (1U << world->nranks) - 1 - world->stage;
    ddp_comm *rest = NULL;
    meet(world, comm, WORLD_MAX - 1, RANKS);
    die_if((world->stage >> rank & 1) != 0);
    while (ddp_barrier(comm, NULL, NULL) == DDP_OK)
        continue;
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, SHRINK_MS, &rest, err));
    check_survivors(rest, rank, alive);
    CHECK(ddp_comm_check(comm, NULL) != DDP_OK);
    ddp_comm_destroy(rest);
    world_report(world, rank, DDP_OK, &(struct ddp_error){0});
}

static void run_losing(uint32_t lost, bool tcp)
{
    struct world world = {.nranks = RANKS, .stage = lost, .tcp = tcp};
    world_open(&world);
    world_start(&world, lose_some);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if ((lost >> rank & 1) == 0)
            world_join_rank(&world, rank);
    world_close(&world);
}

/* Every set of ranks but the whole. */
START_TEST(survivors_go_on)
{
    run_losing((uint32_t)_i, false);
}
END_TEST

START_TEST(survivors_go_on_over_tcp)
{
    run_losing((uint32_t)_i, true);
}
END_TEST

/* One after the other, from the communicator before. */
static void lose_one_by_one(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t alive = (1U << world->nranks) - 1;
    for (uint32_t victim = 0; victim < world->nranks - 1; victim++) {
        ddp_comm *rest = NULL;
        meet(world, comm, victim, world->nranks - victim);
        die_if(rank == victim);
        while (ddp_barrier(comm, NULL, NULL) == DDP_OK)
            continue;
        CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, 0, &rest, err));
        if (victim > 0)
            ddp_comm_destroy(comm);
        comm = rest;
        alive &= ~(1U << victim);
        check_survivors(comm, rank, alive);
    }
    ddp_comm_destroy(comm);
}

START_TEST(a_shrunk_communicator_shrinks_again)
{
    struct world world = {.nranks = 5};
    world_open(&world);
    world_start(&world, lose_one_by_one);
    world_join_rank(&world, 4);
    world_close(&world);
}
END_TEST

/* Rank 0 is dead; rank 1, who leads then, dies while it waits for rank 3. */
static void lose_the_leader(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_comm *rest = NULL;
    meet(world, comm, WORLD_MAX - 1, RANKS);
    die_if(rank == 0);
    while (ddp_barrier(comm, NULL, NULL) == DDP_OK)
        continue;
    world_step(world, rank);
    while (rank == 3 && atomic_load(world->counter) == 0)
        poll(NULL, 0, 10);
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, SHRINK_MS, &rest, err));
    check_survivors(rest, rank, 1U << 2 | 1U << 3);
    ddp_comm_destroy(rest);
}

START_TEST(the_next_rank_leads_if_the_leader_dies)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_start(&world, lose_the_leader);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        world_await_steps(&world, rank, 1);
    world_kill_rank(&world, 1);
    atomic_store(world.counter, 1);
    world_join_rank(&world, 2);
    world_join_rank(&world, 3);
    world_close(&world);
}
END_TEST

/* ---- without a failure ---- */

static void exclude_one(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t out[] = {1}, nobody[] = {7}, self[] = {rank};
    struct ddp_error error;
    ddp_comm *rest = NULL;
    CHECK(ddp_comm_shrink(comm, nobody, 1, 0, 0, &rest, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "rank 7, which is to be excluded, does not exist") != NULL);
    CHECK(ddp_comm_shrink(comm, self, 1, 0, 0, &rest, &error) == DDP_E_INVALID);
    CHECK(ddp_comm_shrink(comm, NULL, 0, 6, 0, &rest, &error) == DDP_E_INVALID);
    if (rank != 1) {
        CHECK_OK(ddp_comm_shrink(comm, out, 1, 0, SHRINK_MS, &rest, err));
        check_survivors(rest, rank, 1U << 0 | 1U << 2 | 1U << 3);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err)); /* the old one works */
    ddp_comm_destroy(rest);
    world_step(world, 0);
    world_await_steps(world, 0, RANKS);
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, DDP_SHRINK_ABORT, SHRINK_MS, &rest, err));
    check_survivors(rest, rank, (1U << RANKS) - 1);
    CHECK(ddp_comm_check(comm, NULL) == DDP_E_ABORTED);
    ddp_comm_destroy(rest);
}

START_TEST(ranks_can_be_excluded)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, exclude_one);
    world_close(&world);
}
END_TEST

static void disagree(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t out[] = {2};
    struct ddp_error error;
    ddp_comm *rest = NULL;
    (void)world;
    if (rank != 2) {
        CHECK(ddp_comm_shrink(comm, out, rank == 3, 0, MISSING_MS, &rest, &error) != DDP_OK);
        CHECK(rest == NULL);
        CHECK(strstr(error.msg, "rank 2 (pid") != NULL ||
              strstr(error.msg, "exclude different ranks") != NULL);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

/* Stage 0: rank 0 does not come, who would lead; 1: the last one. */
static void stay_away(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_comm *rest = NULL;
    uint32_t late = world->stage == 0 ? 0 : world->nranks - 1;
    if (rank != late) {
        ddp_status status = ddp_comm_shrink(comm, NULL, 0, 0, MISSING_MS, &rest, &error);
        CHECK(status == DDP_E_TIMEOUT && rest == NULL);
        CHECK(strstr(error.msg, late == 0 ? "rank 0 (pid" : "rank 3 (pid") != NULL);
        CHECK(strstr(error.msg, "ddp_comm_shrink()") != NULL);
        world_step(world, late);
    }
    while (rank == late && atomic_load(&world->reports[late].steps) < RANKS - 1)
        poll(NULL, 0, 10);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, SHRINK_MS, &rest, err)); /* once more */
    check_survivors(rest, rank, (1U << RANKS) - 1);
    CHECK_OK(ddp_barrier(rest, NULL, err));
    ddp_comm_destroy(rest);
}

START_TEST(who_does_not_come_is_named)
{
    struct world world = {.nranks = RANKS, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, stay_away);
    world_close(&world);
}
END_TEST

START_TEST(lists_that_differ_are_refused)
{
    struct world world = {.nranks = RANKS};
    world_open(&world);
    world_run(&world, disagree);
    world_close(&world);
}
END_TEST

/* ---- ranks of one process ---- */

static void *local_rank(void *arg)
{
    ddp_comm *comm = arg, *rest = NULL;
    uint32_t rank = ddp_comm_rank(comm);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    if (rank == 1) {
        ddp_comm_destroy(comm);
        return NULL;
    }
    while (ddp_barrier(comm, NULL, NULL) == DDP_OK)
        continue;
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, SHRINK_MS, &rest, err));
    check_survivors(rest, rank, 1U << 0 | 1U << 2);
    CHECK_OK(ddp_barrier(rest, NULL, err));
    ddp_comm_destroy(comm);
    ddp_comm_destroy(rest);
    return NULL;
}

START_TEST(threads_go_on_without_one_that_left)
{
    unsigned before = open_descriptors();
    ddp_comm *comms[3], *alone = NULL;
    pthread_t threads[3];
    CHECK_OK(ddp_comm_init_local(3, NULL, comms, err));
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, local_rank, comms[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(ddp_comm_init_local(1, NULL, comms, err));
    CHECK_OK(ddp_comm_shrink(comms[0], NULL, 0, 0, 0, &alone, err));
    check_survivors(alone, 0, 1);
    ddp_comm_destroy(comms[0]);
    ddp_comm_destroy(alone);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* Rank 0 would lead, rank 1 would follow; the other one does not call. */
START_TEST(a_failure_needs_no_error_object)
{
    ddp_comm *comms[2], *rest = NULL;
    CHECK_OK(ddp_comm_init_local(2, NULL, comms, err));
    ck_assert_int_eq(ddp_comm_shrink(comms[_i], NULL, 0, 0, 50, &rest, NULL), DDP_E_TIMEOUT);
    ck_assert_ptr_null(rest);
    for (unsigned i = 0; i < 2; i++)
        ddp_comm_destroy(comms[i]);
}
END_TEST

/* The old communicator may be destroyed: the process goes on, and its agent watches it. */
START_TEST(the_agent_still_sees_the_process)
{
    char text[16];
    struct ddp_comm_options options = {.size = sizeof options, .world_size = 1};
    ddp_comm *comm = NULL, *rest = NULL;
    int fd = memfd_create("page", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(fd, sizeof(struct ddpi_life_slot)), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, DDPI_LIFE_SEALS), 0);
    struct ddpi_life_slot *slot = mmap(NULL, sizeof *slot, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert(slot != MAP_FAILED);
    snprintf(text, sizeof text, "%d", fd);
    setenv(DDPI_LIFE_FD_ENV, text, 1);
    setenv(DDPI_LIFE_SLOT_ENV, "0", 1);
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    CHECK_OK(ddp_comm_shrink(comm, NULL, 0, 0, 0, &rest, err));
    while (atomic_load(&slot->word) == 0)
        poll(NULL, 0, 1);
    ddp_comm_destroy(comm);
    ck_assert_uint_ne(atomic_load(&slot->word), 0);
    ddp_comm_destroy(rest);
    ck_assert_uint_eq(atomic_load(&slot->word), 0);
    munmap(slot, sizeof *slot);
    close(fd);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("shrink");
    TCase *tcase = tcase_create("shrink");
    tcase_add_loop_test(tcase, survivors_go_on, 1, (1 << RANKS) - 1);
    tcase_add_loop_test(tcase, survivors_go_on_over_tcp, 1, (1 << RANKS) - 1);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("again");
    tcase_add_test(tcase, a_shrunk_communicator_shrinks_again);
    tcase_add_loop_test(tcase, the_next_rank_leads_if_the_leader_dies, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("names");
    tcase_add_loop_test(tcase, ranks_can_be_excluded, 0, 2);
    tcase_add_loop_test(tcase, who_does_not_come_is_named, 0, 2);
    tcase_add_test(tcase, lists_that_differ_are_refused);
    tcase_add_test(tcase, threads_go_on_without_one_that_left);
    tcase_add_loop_test(tcase, a_failure_needs_no_error_object, 0, 2);
    tcase_add_test(tcase, the_agent_still_sees_the_process);
    suite_add_tcase(suite, tcase);
    return suite;
}
