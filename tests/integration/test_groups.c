/*
 * test_groups.c - communicators that are made from another one: by colour, by a list and along
 * axes, over both transports and within a process; what they cost, and what happens when ranks do
 * not come, die, abort, or do not agree.
 */
#include "check_main.h"
#include "communicator.h"
#include "descriptors.h"
#include "world.h"

#include <ddprun/comm_requests.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

enum {
    MANY = 20,
    COUNT = 3001,
    MISSING_MS = 5000 /* where one rank does not come: so late the others may be */
};

/* Collectives and a message round work in @comm, whose ranks are the parent's at @members. */
static void check_group(ddp_comm *comm, const uint32_t *members, uint32_t count)
{
    uint32_t rank = ddp_comm_rank(comm), all[WORLD_MAX], sum = 0;
    int32_t values[COUNT];
    CHECK(ddp_comm_world_size(comm) == count);
    CHECK_OK(ddp_all_gather(comm, &members[rank], all, 1, DDP_UINT32, NULL, err));
    CHECK(memcmp(all, members, count * sizeof *all) == 0);
    for (uint32_t i = 0; i < count; i++)
        sum += members[i];
    for (int i = 0; i < COUNT; i++)
        values[i] = (int32_t)members[rank];
    CHECK_OK(ddp_all_reduce(comm, values, values, COUNT, DDP_INT32, DDP_SUM, NULL, err));
    for (int i = 0; i < COUNT; i++)
        CHECK(values[i] == (int32_t)sum);
    uint32_t last = count - 1, token = 0;
    if (count > 2 && rank == last)
        CHECK_OK(ddp_send(comm, &members[last], 1, DDP_UINT32, 0, NULL, err));
    if (count > 2 && rank == 0)
        CHECK_OK(ddp_recv(comm, &token, 1, DDP_UINT32, last, NULL, err));
    CHECK(count <= 2 || rank != 0 || token == members[last]);
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

/* ---- by colour ---- */

static void split_backwards(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint32_t members[WORLD_MAX], count = 0;
    ddp_comm *half = NULL, *none = comm;
    CHECK_OK(ddp_comm_split(comm, (int32_t)(rank % 2), -(int32_t)rank, &half, err));
    for (uint32_t i = world->nranks; i-- > 0;)
        if (i % 2 == rank % 2)
            members[count++] = i;
    check_group(half, members, count);
    CHECK_OK(ddp_comm_split(comm, DDP_NO_COLOR, 0, &none, err));
    CHECK(none == NULL);
    ddp_comm *rest = NULL; /* without rank 0 */
    CHECK_OK(ddp_comm_split(comm, rank == 0 ? DDP_NO_COLOR : 3, 0, &rest, err));
    for (uint32_t i = 1; i < world->nranks; i++)
        members[i - 1] = i;
    CHECK((rest == NULL) == (rank == 0));
    if (rest != NULL)
        check_group(rest, members, world->nranks - 1);
    ddp_comm_destroy(half);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    ddp_comm_destroy(rest);
}

START_TEST(ranks_of_one_colour_are_a_group)
{
    struct world world = {.nranks = (uint32_t)_i / 2 + 1, .tcp = _i % 2 != 0};
    world_open(&world);
    world_run(&world, split_backwards);
    world_close(&world);
}
END_TEST

static void split_cube(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const struct ddp_grid cube = {3, {2, 2, 2}}, wrong = {2, {2, 2}};
    (void)world;
    for (uint32_t set = 0; set < 8; set++) {
        uint32_t members[WORLD_MAX], axes[3], naxes = 0;
        struct ddp_grid_group group;
        for (uint32_t axis = 0; axis < 3; axis++)
            if ((set >> axis & 1) != 0)
                axes[naxes++] = axis;
        CHECK_OK(ddp_grid_find_group(&cube, rank, axes, naxes, &group, err));
        for (uint32_t i = 0; i < group.size; i++)
            CHECK_OK(ddp_grid_member(&cube, axes, naxes, group.index, i, &members[i], err));
        ddp_comm *part = NULL;
        CHECK_OK(ddp_comm_split_grid(comm, &cube, axes, naxes, &part, err));
        check_group(part, members, group.size);
        ddp_comm_destroy(part);
    }
    struct ddp_error error;
    ddp_comm *part = NULL;
    CHECK(ddp_comm_split_grid(comm, &wrong, (const uint32_t[]){1}, 1, &part, &error) ==
          DDP_E_INVALID);
    CHECK(strstr(error.msg, "has 4 ranks, but the communicator has 8") != NULL);
    CHECK(ddp_comm_split(comm, -7, 1, &part, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "-7 is not a colour") != NULL);
}

START_TEST(a_cube_has_rows_planes_and_itself)
{
    struct world world = {.nranks = 8};
    world_open(&world);
    world_run(&world, split_cube);
    world_close(&world);
}
END_TEST

/* ---- by a list ---- */

static void group_of_some(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t lists[][3] = {{3, 0, 2}, {1, 3}, {2}};
    const uint32_t counts[] = {3, 2, 1};
    (void)world;
    for (unsigned list = 0; list < 3; list++)
        for (uint32_t place = 0; place < counts[list]; place++) {
            if (lists[list][place] != rank)
                continue;
            ddp_comm *group = NULL, *inner = NULL;
            CHECK_OK(ddp_comm_create_group(comm, lists[list], counts[list], &group, err));
            CHECK(ddp_comm_rank(group) == place);
            check_group(group, lists[list], counts[list]);
            CHECK_OK(ddp_comm_split(group, 0, -(int32_t)place, &inner, err));
            CHECK(ddp_comm_rank(inner) == counts[list] - 1 - place);
            ddp_comm_destroy(group);
            CHECK_OK(ddp_barrier(inner, NULL, err));
            ddp_comm_destroy(inner);
        }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(only_members_make_a_group)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, group_of_some);
    world_close(&world);
}
END_TEST

static void disagree(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t list[] = {0, 1, 2}, other[] = {0, 2};
    struct ddp_error error = {0};
    ddp_comm *group = NULL;
    (void)world;
    ddp_status status = rank == 2 ? ddp_comm_create_group(comm, other, 2, &group, &error)
                                  : ddp_comm_create_group(comm, list, 3, &group, &error);
    CHECK(status == DDP_E_MISMATCH && group == NULL);
    CHECK(strstr(error.msg, "rank 0 makes a group of 0, 1, 2, but rank 2 of 0, 2") != NULL);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    const uint32_t turned[] = {1, 0, 2}; /* the same ranks */
    status = ddp_comm_create_group(comm, rank == 1 ? turned : list, 3, &group, &error);
    CHECK(status == DDP_E_MISMATCH && group == NULL);
    CHECK(strstr(error.msg, "rank 0 makes a group of 0, 1, 2, but rank 1 of 1, 0, 2") != NULL);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    const struct {
        uint32_t ranks[2], count;
        const char *text;
    } wrong[] = {{{rank, 9}, 2, "rank 9 of the list does not exist among 3 ranks"},
                 {{rank, (uint32_t)-1}, 2, "rank -1 of the list does not exist among 3 ranks"},
                 {{rank, rank}, 2, "is in the list of ranks twice"},
                 {{(rank + 1) % 3, (rank + 2) % 3}, 2, "is not in the list of ranks"},
                 {{0, 0}, 0, "is not in the list of ranks"}};
    for (unsigned i = 0; i < 5; i++) {
        status = ddp_comm_create_group(comm, wrong[i].ranks, wrong[i].count, &group, &error);
        CHECK(status == DDP_E_INVALID && strstr(error.msg, wrong[i].text) != NULL);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(members_that_disagree_hear_both_lists)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, disagree);
    world_close(&world);
}
END_TEST

/* Rank 0 waits for a message of any rank before the group is made, and the message comes after. */
static void message_beside_a_group(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t list[] = {0, 1};
    uint32_t word = 7, source = 0;
    ddp_comm *group = NULL;
    ddp_request *receive = NULL;
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_RECV,
                                            .recv = &word,
                                            .count = 1,
                                            .dtype = DDP_UINT32,
                                            .peer = DDP_ANY_RANK,
                                            .source = &source};
    (void)world;
    if (rank == 0)
        CHECK_OK(ddp_start(comm, &operation, &receive, err));
    CHECK_OK(ddp_comm_create_group(comm, list, 2, &group, err));
    if (rank == 0) {
        CHECK_OK(ddp_request_wait(receive, 0, NULL, err));
        CHECK(word == 8 && source == 1);
        ddp_request_free(receive);
    } else {
        word = 8;
        CHECK_OK(ddp_send(comm, &word, 1, DDP_UINT32, 0, NULL, err));
    }
    check_group(group, list, 2);
    ddp_comm_destroy(group);
}

START_TEST(a_receive_of_the_program_takes_no_message_of_a_group)
{
    struct world world = {.nranks = 2, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, message_beside_a_group);
    world_close(&world);
}
END_TEST

/* ---- ranks that do not come ---- */

static void leave_out_the_last(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t all[] = {0, 1, 2};
    struct ddp_error error = {0};
    ddp_comm *group = NULL;
    world_step(world, rank);
    if (rank == 2)
        for (;;)
            pause();
    ddp_status status = world->stage % 2 == 0 ? ddp_comm_split(comm, 0, 0, &group, &error)
                                              : ddp_comm_create_group(comm, all, 3, &group, &error);
    CHECK(group == NULL && ddp_comm_check(comm, NULL) == status);
    world_report(world, rank, status, &error);
}

/* Stage 0, 1: rank 2 does not call; 2, 3: it dies. */
START_TEST(a_rank_that_does_not_come_is_named)
{
    bool dies = _i >= 2;
    struct world world = {.nranks = 3, .timeout_ms = dies ? 0 : MISSING_MS, .stage = (uint32_t)_i};
    world_open(&world);
    world_start(&world, leave_out_the_last);
    for (uint32_t rank = 0; rank < 3; rank++)
        world_await_steps(&world, rank, 1);
    if (dies)
        world_kill_rank(&world, 2);
    world_await_failures(&world, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_int_eq(report->status, dies ? DDP_E_PEER_DEAD : DDP_E_TIMEOUT);
        ck_assert_msg(strstr(report->error.msg, "rank 2 (pid") != NULL, "%s", report->error.msg);
    }
    world_close(&world);
}
END_TEST

/* ---- parents and children ---- */

static void abort_one(struct world *world, uint32_t rank, ddp_comm *comm)
{
    ddp_comm *child = NULL;
    struct ddp_error error;
    CHECK_OK(ddp_comm_split(comm, 0, 0, &child, err));
    ddp_comm *victim = world->stage == 0 ? child : comm, *other = world->stage == 0 ? comm : child;
    CHECK_OK(ddp_barrier(victim, NULL, err));
    CHECK_OK(ddp_barrier(other, NULL, err)); /* no rank is in the first any more */
    if (rank == 1)
        ddp_comm_abort(victim);
    CHECK(ddp_barrier(victim, NULL, &error) == DDP_E_ABORTED);
    CHECK(strstr(error.msg, "rank 1 called ddp_comm_abort()") != NULL);
    CHECK_OK(ddp_barrier(other, NULL, err));
    CHECK_OK(ddp_comm_check(other, err));
    ddp_comm *another = NULL;
    CHECK_OK(ddp_comm_split(other, 0, 0, &another, err));
    CHECK_OK(ddp_barrier(another, NULL, err));
    ddp_comm_destroy(another);
    CHECK_OK(ddp_barrier(other, NULL, err));
    ddp_comm_destroy(child);
}

START_TEST(an_abort_stays_in_its_communicator)
{
    struct world world = {.nranks = 3, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, abort_one);
    world_close(&world);
}
END_TEST

START_TEST(a_child_outlives_its_parent)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    for (uint32_t rank = 0; rank < 3; rank++)
        if (world_fork(&world, rank)) {
            const uint32_t all[] = {0, 1, 2};
            struct ddp_comm_options options = world_options(&world, rank);
            ddp_comm *comm, *child;
            unsigned before = open_descriptors();
            CHECK_OK(ddp_comm_init(&options, &comm, err));
            CHECK_OK(ddp_comm_split(comm, 0, 0, &child, err));
            ddp_comm_destroy(comm);
            check_group(child, all, 3);
            ddp_comm_destroy(child);
            CHECK(open_descriptors() == before);
            _exit(0);
        }
    world_join(&world);
    world_close(&world);
}
END_TEST

static void wait_as_their_parent(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t all[] = {0, 1, 2};
    ddp_comm *child = NULL;
    (void)world, (void)rank;
    CHECK(comm->crowded);
    CHECK_OK(ddp_comm_split(comm, 0, 0, &child, err));
    check_group(child, all, 3);
    CHECK(ddpi_arena_is_crowded(child->arena));
    CHECK(child->spin_limit == comm->spin_limit && child->yield_limit == comm->yield_limit);
    ddp_comm_destroy(child);
}

/* A group's ranks share their processors with each other, and with the rest of the machine's. */
START_TEST(a_group_knows_that_processors_are_few)
{
    cpu_set_t allowed, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    unsigned first = 0;
    while (!CPU_ISSET(first, &allowed))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, wait_as_their_parent);
    world_close(&world);
    ck_assert_int_eq(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}
END_TEST

/* Each pays for what it uses: listeners, then the edges of a ring, and neither for one rank. */
static void make_many(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { LISTENING = 6, RING = 12 };
    ddp_comm *many[MANY], *alone[MANY];
    (void)world;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    unsigned before = open_descriptors();
    for (int i = 0; i < MANY; i++)
        CHECK_OK(ddp_comm_split(comm, (int32_t)rank, 0, &alone[i], err));
    unsigned singles = open_descriptors();
    CHECK(singles - before <= MANY);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(
            ddp_comm_split(comm, 0, i % 2 == 0 ? (int32_t)rank : -(int32_t)rank, &many[i], err));
    unsigned listening = open_descriptors();
    CHECK(listening - singles <= MANY * LISTENING);
    for (int i = 0; i < MANY; i++)
        CHECK_OK(ddp_barrier(many[i], NULL, err));
    CHECK(open_descriptors() - listening <= MANY * RING);
    for (int i = 0; i < MANY; i++) {
        ddp_comm_destroy(many[i]);
        ddp_comm_destroy(alone[i]);
    }
    CHECK(open_descriptors() == before);
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(a_hundred_communicators_cost_what_they_use)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, make_many);
    world_close(&world);
}
END_TEST

/* ---- threads ---- */

struct worker {
    ddp_comm *comm;
    pthread_t thread;
    uint32_t members[WORLD_MAX], count;
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < 20; i++)
        check_group(worker->comm, worker->members, worker->count);
    return NULL;
}

/* Two threads of each rank use two communicators, while a third one uses their parent. */
static void use_threads(ddp_comm *comm, uint32_t nranks)
{
    uint32_t rank = ddp_comm_rank(comm), all[WORLD_MAX];
    struct worker workers[2] = {0};
    for (uint32_t i = 0; i < nranks; i++) {
        all[i] = i;
        workers[0].members[i] = nranks - 1 - i;
        if (i % 2 == rank % 2)
            workers[1].members[workers[1].count++] = i;
    }
    workers[0].count = nranks;
    CHECK_OK(ddp_comm_split(comm, 0, -(int32_t)rank, &workers[0].comm, err));
    CHECK_OK(ddp_comm_split(comm, (int32_t)(rank % 2), 0, &workers[1].comm, err));
    for (unsigned i = 0; i < 2; i++) /* in another order on each rank */
        CHECK(pthread_create(&workers[(i + rank) % 2].thread, NULL, work,
                             &workers[(i + rank) % 2]) == 0);
    for (int i = 0; i < 20; i++)
        check_group(comm, all, nranks);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(workers[i].thread, NULL);
    ddp_comm_destroy(workers[0].comm);
    ddp_comm_destroy(workers[1].comm);
}

static void threads_of_a_process(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)rank;
    use_threads(comm, world->nranks);
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(threads_use_communicators_at_once)
{
    struct world world = {.nranks = 4, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, threads_of_a_process);
    world_close(&world);
}
END_TEST

static void *local_rank(void *comm)
{
    const uint32_t pair[] = {3, 1};
    use_threads(comm, 4);
    if (ddp_comm_rank(comm) % 2 == 1) {
        ddp_comm *group = NULL;
        CHECK_OK(ddp_comm_create_group(comm, pair, 2, &group, err));
        check_group(group, pair, 2);
        ddp_comm_destroy(group);
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
    return NULL;
}

START_TEST(ranks_of_one_process_make_groups)
{
    unsigned before = open_descriptors();
    ddp_comm *comms[4];
    pthread_t threads[4];
    CHECK_OK(ddp_comm_init_local(4, NULL, comms, err));
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, local_rank, comms[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 4; i++)
        ddp_comm_destroy(comms[i]);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("groups");
    TCase *tcase = tcase_create("groups");
    tcase_add_loop_test(tcase, ranks_of_one_colour_are_a_group, 0, 10);
    tcase_add_test(tcase, a_cube_has_rows_planes_and_itself);
    tcase_add_loop_test(tcase, only_members_make_a_group, 0, 2);
    tcase_add_test(tcase, members_that_disagree_hear_both_lists);
    tcase_add_loop_test(tcase, a_receive_of_the_program_takes_no_message_of_a_group, 0, 2);
    tcase_add_loop_test(tcase, a_rank_that_does_not_come_is_named, 0, 4);
    tcase_add_loop_test(tcase, an_abort_stays_in_its_communicator, 0, 2);
    tcase_add_loop_test(tcase, a_child_outlives_its_parent, 0, 2);
    tcase_add_test(tcase, a_group_knows_that_processors_are_few);
    tcase_add_test(tcase, a_hundred_communicators_cost_what_they_use);
    tcase_add_loop_test(tcase, threads_use_communicators_at_once, 0, 2);
    tcase_add_test(tcase, ranks_of_one_process_make_groups);
    suite_add_tcase(suite, tcase);
    return suite;
}
