/*
 * test_state.c - training goes on from the last commit, in real processes: a rank is killed at each
 * point of a run, two are, one in the middle of a sync; new ranks join; ranks with other blobs are
 * named. What is trained is exact whatever the number of ranks, so each run must end with the bits
 * of a run in which nothing happened.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/ddp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS = 4,
    WEIGHTS = 64,
    EXAMPLES = 30,
    STEPS = 6,
    COMMIT_STEPS = 2,
    EVENTS = 26,           /* a rank has at most as many in a run without a death */
    FIRST_SYNC_EVENTS = 5, /* until another rank is known to have its weights */
    NEVER = 1000,
    BALLAST_BYTES = 8 << 20,
    RECOVER_MS = 60000,
    MISSING_MS = 5000 /* where one rank does not come: so late the others may be */
};

/* ---- what is trained ---- */

struct trainer {
    uint64_t step, seed; /* one blob */
    uint64_t weights[WEIGHTS];
    uint8_t *ballast; /* a blob that takes a while to send; of BALLAST_BYTES or none */
    uint32_t events;  /* points of the run at which the rank could be killed, so far */
    uint32_t fatal;   /* that at which it is */
    ddp_state *state;
    ddp_comm *comm;
};

/* A point of the run at which this rank may be killed. */
static void pass_event(struct trainer *trainer)
{
    if (trainer->events++ == trainer->fatal)
        kill(getpid(), SIGKILL);
}

static int copy_and_pass(void *to, const void *from, size_t bytes, void *arg)
{
    memcpy(to, from, bytes);
    pass_event(arg);
    return 0;
}

static void trainer_open(struct trainer *trainer, bool ballast)
{
    const struct ddp_checkpoint_blob blobs[] = {
        {.name = "step", .data = &trainer->step, .bytes = 2 * sizeof trainer->step},
        {.name = "weights", .data = trainer->weights, .bytes = sizeof trainer->weights},
        {.name = "ballast", .data = trainer->ballast, .bytes = BALLAST_BYTES},
    };
    const struct ddp_state_options options = {.size = sizeof options,
                                              .blobs = blobs,
                                              .count = ballast ? 3 : 2,
                                              .copy = copy_and_pass,
                                              .copy_arg = trainer};
    CHECK_OK(ddp_state_create(&options, &trainer->state, err));
    CHECK(ddp_state_commit_number(trainer->state) == 0);
}

/* What example @i adds to weight @k. Sums of integers are the same for any division of examples. */
static uint64_t gradient_of(uint64_t weight, uint32_t i, uint32_t k)
{
    return (weight ^ (i * 2654435761U)) * 3 + k;
}

static void add_gradients(const uint64_t *weights, uint64_t *sums, uint32_t first, uint32_t by)
{
    memset(sums, 0, WEIGHTS * sizeof *sums);
    for (uint32_t i = first; i < EXAMPLES; i += by)
        for (uint32_t k = 0; k < WEIGHTS; k++)
            sums[k] += gradient_of(weights[k], i, k);
}

static void start_weights(struct trainer *trainer, uint64_t seed)
{
    trainer->seed = seed;
    for (uint32_t k = 0; k < WEIGHTS; k++)
        trainer->weights[k] = seed + k;
}

static ddp_status train_step(struct trainer *trainer, struct ddp_error *err)
{
    uint64_t sums[WEIGHTS];
    add_gradients(trainer->weights, sums, ddp_comm_rank(trainer->comm),
                  ddp_comm_world_size(trainer->comm));
    ddp_status status =
        ddp_all_reduce(trainer->comm, sums, sums, WEIGHTS, DDP_UINT64, DDP_SUM, NULL, err);
    if (status != DDP_OK)
        return status;
    memcpy(trainer->weights, sums, sizeof sums);
    trainer->step++;
    return DDP_OK;
}

static void check_trained(const struct trainer *trainer, uint64_t steps)
{
    struct trainer plain = {.step = 0};
    uint64_t sums[WEIGHTS];
    start_weights(&plain, trainer->seed);
    for (; plain.step < steps; plain.step++) {
        add_gradients(plain.weights, sums, 0, 1);
        memcpy(plain.weights, sums, sizeof sums);
    }
    CHECK(trainer->step == steps);
    CHECK(memcmp(trainer->weights, plain.weights, sizeof plain.weights) == 0);
}

static bool tells_of_death(ddp_status status)
{
    return status == DDP_E_PEER_DEAD || status == DDP_E_CLOSED;
}

static void recover(struct trainer *trainer)
{
    CHECK_OK(ddp_state_recover(trainer->state, &trainer->comm, RECOVER_MS, err));
    CHECK(trainer->step % COMMIT_STEPS == 0);
}

static ddp_status train_or_commit(struct trainer *trainer, struct ddp_error *err)
{
    pass_event(trainer);
    ddp_status status = train_step(trainer, err);
    pass_event(trainer);
    if (status == DDP_OK && trainer->step % COMMIT_STEPS == 0) {
        status = ddp_state_commit(trainer->state, err);
        pass_event(trainer);
    }
    return status;
}

/* Returns when all ranks that live have made all steps. The barrier tells a rank that has made them
 * of the death of another one that has not. */
static void train(struct trainer *trainer, uint64_t steps)
{
    struct ddp_error error;
    ddp_status status = ddp_state_sync(trainer->state, trainer->comm, &error);
    while (status != DDP_OK || trainer->step < steps) {
        if (tells_of_death(status)) {
            recover(trainer);
            status = DDP_OK;
        } else {
            CHECK(status == DDP_OK);
            status = train_or_commit(trainer, &error);
        }
        if (status == DDP_OK && trainer->step == steps)
            status = ddp_barrier(trainer->comm, NULL, &error);
    }
    check_trained(trainer, steps);
}

static void trainer_close(struct trainer *trainer)
{
    ddp_state_destroy(trainer->state);
    CHECK_OK(ddp_comm_finalize(trainer->comm, 0, err));
    ddp_comm_destroy(trainer->comm);
}

/* A process that has no communicator yet. */
static ddp_comm *join(const struct world *world, const char *name, uint32_t world_size,
                      uint32_t rank)
{
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm = NULL;
    options.name = name;
    options.world_size = world_size;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    return comm;
}

/* It was killed, or has lived to the end. */
static void reap(struct world *world, uint32_t rank)
{
    int status = 0;
    ck_assert_int_eq(waitpid(world->pids[rank], &status, 0), world->pids[rank]);
    world->pids[rank] = 0;
    ck_assert(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
}

/* ---- deaths at each point ---- */

/* Each rank has weights of its own at first. If rank 0 dies before it has given its weights to
 * anybody, those of another one are what all begin with. */
static void be_mortal(struct world *world, uint32_t rank, const uint32_t fatal[RANKS])
{
    struct trainer trainer = {.fatal = fatal[rank]};
    start_weights(&trainer, rank + 1);
    trainer_open(&trainer, false);
    trainer.comm = join(world, "deaths", RANKS, rank);
    world_step(world, 0); /* nobody dies while others join */
    world_await_steps(world, 0, RANKS);
    train(&trainer, STEPS);
    CHECK(fatal[0] < FIRST_SYNC_EVENTS || trainer.seed == 1);
    trainer_close(&trainer);
    _exit(0);
}

static void run_deaths(const uint32_t fatal[RANKS], bool tcp)
{
    struct world world = {.nranks = RANKS, .tcp = tcp};
    world_open(&world);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (world_fork(&world, rank))
            be_mortal(&world, rank, fatal);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (fatal[rank] == NEVER)
            world_join_rank(&world, rank);
        else
            reap(&world, rank);
    world_close(&world);
}

static void run_one_death(uint32_t i, bool tcp)
{
    uint32_t fatal[RANKS] = {NEVER, NEVER, NEVER, NEVER};
    fatal[i % RANKS] = i / RANKS;
    run_deaths(fatal, tcp);
}

START_TEST(survivors_end_as_if_none_had_died)
{
    run_one_death((uint32_t)_i, false);
}
END_TEST

START_TEST(survivors_end_as_if_none_had_died_over_tcp)
{
    run_one_death((uint32_t)_i, true);
}
END_TEST

/* Rank 1 dies in the middle; rank 0 or 3 before, later, or while they recover from that. */
START_TEST(two_die_in_a_row)
{
    uint32_t i = (uint32_t)_i;
    uint32_t fatal[RANKS] = {NEVER, 11, NEVER, NEVER};
    fatal[i % 2 == 0 ? 0 : 3] = i / 2;
    run_deaths(fatal, false);
}
END_TEST

START_TEST(the_last_one_goes_on_alone)
{
    const uint32_t fatal[RANKS] = {5, 9, 14, NEVER};
    run_deaths(fatal, _i != 0);
}
END_TEST

/* ---- death while a commit is sent ---- */

enum { OLD = 3, NEW = 2 };

static uint8_t *ballast_of(uint8_t fill)
{
    uint8_t *ballast = malloc(BALLAST_BYTES);
    CHECK(ballast != NULL);
    memset(ballast, fill, BALLAST_BYTES);
    return ballast;
}

/* Ranks 0 and 1 are new: rank 0 has no commit, rank 1 has made one by itself. The old ones have
 * trained two commits. */
static void begin_old_or_new(struct world *world, uint32_t rank, struct trainer *trainer)
{
    trainer->fatal = NEVER;
    trainer->ballast = ballast_of((uint8_t)rank);
    start_weights(trainer, rank + 1);
    trainer_open(trainer, true);
    if (rank >= NEW) {
        trainer->comm = join(world, "old", OLD, rank - NEW);
        train(trainer, 2 * COMMIT_STEPS);
        CHECK_OK(ddp_comm_finalize(trainer->comm, 0, err));
        ddp_comm_destroy(trainer->comm);
    } else if (rank == 1) {
        CHECK_OK(ddp_state_commit(trainer->state, err));
    }
    trainer->comm = join(world, "grown", OLD + NEW, rank);
}

/* They go on from where the old ones were, whoever of them dies. */
static void finish_old_or_new(struct trainer *trainer)
{
    train(trainer, STEPS);
    CHECK(trainer->seed == NEW + 1);
    for (size_t i = 0; i < BALLAST_BYTES; i += 997)
        CHECK(trainer->ballast[i] == NEW);
    free(trainer->ballast);
    trainer_close(trainer);
    _exit(0);
}

static void join_old_and_new(struct world *world, uint32_t rank)
{
    struct trainer trainer = {.step = 0};
    begin_old_or_new(world, rank, &trainer);
    world_step(world, rank);
    finish_old_or_new(&trainer);
}

/* Killed when it is about to send or to receive: where exactly does not matter. */
static void run_growth(uint32_t victim, bool tcp)
{
    struct world world = {.nranks = OLD + NEW, .tcp = tcp};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        if (world_fork(&world, rank))
            join_old_and_new(&world, rank);
    if (victim < world.nranks) {
        for (uint32_t rank = 0; rank < world.nranks; rank++)
            world_await_steps(&world, rank, 1);
        world_kill_rank(&world, victim);
    }
    world_join(&world);
    world_close(&world);
}

START_TEST(new_ranks_receive_what_the_old_have)
{
    run_growth(NEVER, _i != 0);
}
END_TEST

/* The rank with the newest commit that sends it is rank 2. */
START_TEST(one_dies_while_new_ranks_come)
{
    uint32_t i = (uint32_t)_i;
    run_growth(i % 5 % 2 == 0 ? NEW : i % 5, i % 2 != 0);
}
END_TEST

/* ---- a rank that does not come, and one that leaves ---- */

/* Those who wait for rank 3 keep what they have, and can do without it. */
static void stay_away(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t late = RANKS - 1;
    struct trainer trainer = {.fatal = NEVER};
    struct ddp_error error = {.msg = ""};
    ddp_comm *rest = NULL;
    trainer_open(&trainer, false);
    start_weights(&trainer, rank);
    CHECK_OK(ddp_state_sync(trainer.state, comm, err));
    if (rank == late) {
        world_await_steps(world, late, RANKS - 1);
        ddp_state_destroy(trainer.state);
        return;
    }
    CHECK_OK(ddp_comm_set_timeout(comm, MISSING_MS, err));
    start_weights(&trainer, 8);
    CHECK(ddp_state_sync(trainer.state, comm, &error) == DDP_E_TIMEOUT);
    CHECK(strstr(error.msg, "rank 3") != NULL);
    CHECK(trainer.seed == 8 && ddp_state_commit_number(trainer.state) == 1);
    CHECK_OK(ddp_comm_shrink(comm, &late, 1, 0, RECOVER_MS, &rest, err));
    CHECK_OK(ddp_state_sync(trainer.state, rest, err));
    CHECK(trainer.seed == 0 && ddp_state_commit_number(trainer.state) == 1);
    world_step(world, late);
    ddp_comm_destroy(rest);
    ddp_state_destroy(trainer.state);
}

START_TEST(a_rank_that_does_not_come_is_named)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, stay_away);
    world_close(&world);
}
END_TEST

/* Rank 2 lives, but recovers only when the others have told it that they gave up once. */
static void recover_twice(struct world *world, uint32_t rank)
{
    struct trainer trainer = {.fatal = NEVER};
    trainer_open(&trainer, false);
    start_weights(&trainer, rank);
    trainer.comm = join(world, "late", RANKS, rank);
    CHECK_OK(ddp_state_sync(trainer.state, trainer.comm, err));
    if (rank == 2) {
        world_await_steps(world, rank, RANKS - 1);
    } else {
        struct ddp_error error = {.msg = ""};
        ddp_comm *before = trainer.comm;
        CHECK(ddp_state_recover(trainer.state, &trainer.comm, MISSING_MS, &error) == DDP_E_TIMEOUT);
        CHECK(strstr(error.msg, "rank 2 (pid") != NULL && trainer.comm == before);
        world_step(world, 2);
    }
    CHECK_OK(ddp_state_recover(trainer.state, &trainer.comm, RECOVER_MS, err));
    CHECK(ddp_comm_world_size(trainer.comm) == RANKS);
    train(&trainer, STEPS);
    trainer_close(&trainer);
    _exit(0);
}

START_TEST(recovery_can_be_repeated)
{
    struct world world = {.nranks = RANKS};
    world_open(&world);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (world_fork(&world, rank))
            recover_twice(&world, rank);
    world_join(&world);
    world_close(&world);
}
END_TEST

static void *be_thread(void *arg)
{
    struct trainer trainer = {.fatal = NEVER, .comm = arg};
    trainer_open(&trainer, false);
    start_weights(&trainer, ddp_comm_rank(arg) + 1);
    CHECK_OK(ddp_state_sync(trainer.state, trainer.comm, err));
    if (ddp_comm_rank(arg) == 1) {
        ddp_state_destroy(trainer.state);
        ddp_comm_destroy(trainer.comm);
        return NULL;
    }
    train(&trainer, STEPS);
    CHECK(trainer.seed == 1 && ddp_comm_world_size(trainer.comm) == 2);
    trainer_close(&trainer);
    return NULL;
}

START_TEST(threads_go_on_without_one_that_leaves)
{
    ddp_comm *comms[3];
    pthread_t threads[3];
    CHECK_OK(ddp_comm_init_local(3, NULL, comms, err));
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, be_thread, comms[i]), 0);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}
END_TEST

/* ---- which commit ---- */

static void commit_weights(struct trainer *trainer, uint64_t seed)
{
    start_weights(trainer, seed);
    CHECK_OK(ddp_state_commit(trainer->state, err));
}

static void sync_to(struct trainer *trainer, ddp_comm *comm, uint64_t seed, uint64_t number)
{
    start_weights(trainer, 99);
    CHECK_OK(ddp_state_sync(trainer->state, comm, err));
    CHECK(trainer->seed == seed && trainer->weights[WEIGHTS - 1] == seed + WEIGHTS - 1);
    CHECK(ddp_state_commit_number(trainer->state) == number);
}

/* Rank 2 is three commits ahead. */
static void be_apart(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct trainer trainer = {.fatal = NEVER};
    (void)world;
    trainer_open(&trainer, false);
    start_weights(&trainer, rank);
    CHECK_OK(ddp_state_sync(trainer.state, comm, err));
    CHECK(trainer.seed == 0 && ddp_state_commit_number(trainer.state) == 1);
    for (uint32_t i = 1; i < (rank == 2 ? 5 : rank == 1 ? 3 : 2); i++)
        commit_weights(&trainer, 10 * i + rank);
    sync_to(&trainer, comm, 42, 5);
    commit_weights(&trainer, 50);
    sync_to(&trainer, comm, 50, 6); /* all have it */
    ddp_state_destroy(trainer.state);
}

START_TEST(ranks_may_be_any_number_of_commits_apart)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, be_apart);
    world_close(&world);
}
END_TEST

/* Rank 1 counts on alone, but what the others do together counts. */
static void leave_one_out(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t out[] = {1};
    struct trainer trainer = {.fatal = NEVER};
    ddp_comm *rest = NULL;
    (void)world;
    trainer_open(&trainer, false);
    start_weights(&trainer, 1);
    CHECK_OK(ddp_state_sync(trainer.state, comm, err));
    if (rank != 1) {
        CHECK_OK(ddp_comm_shrink(comm, out, 1, 0, RECOVER_MS, &rest, err));
        sync_to(&trainer, rest, 1, 1);
        commit_weights(&trainer, 7);
    } else {
        for (uint64_t i = 0; i < 9; i++)
            commit_weights(&trainer, 20 + i);
    }
    sync_to(&trainer, comm, 7, 2);
    ddp_comm_destroy(rest);
    ddp_state_destroy(trainer.state);
}

START_TEST(a_rank_that_comes_back_receives_what_was_done_without_it)
{
    struct world world = {.nranks = RANKS};
    world_open(&world);
    world_run(&world, leave_one_out);
    world_close(&world);
}
END_TEST

/* Two worlds go on without each other, as after a cable is cut, and count to the same. */
static void go_apart(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const uint32_t out[2][2] = {{2, 3}, {0, 1}};
    struct trainer trainer = {.fatal = NEVER};
    ddp_comm *half = NULL;
    (void)world;
    trainer_open(&trainer, false);
    start_weights(&trainer, 1);
    CHECK_OK(ddp_state_sync(trainer.state, comm, err));
    CHECK_OK(ddp_comm_shrink(comm, out[rank / 2], 2, 0, RECOVER_MS, &half, err));
    sync_to(&trainer, half, 1, 1);
    commit_weights(&trainer, rank / 2 == 0 ? 5 : 6);
    sync_to(&trainer, comm, 5, 2);
    ddp_comm_destroy(half);
    ddp_state_destroy(trainer.state);
}

START_TEST(worlds_that_went_apart_go_on_with_one_state)
{
    struct world world = {.nranks = RANKS};
    world_open(&world);
    world_run(&world, go_apart);
    world_close(&world);
}
END_TEST

/* ---- other blobs ---- */

static const struct {
    uint32_t odd; /* the rank with other blobs */
    struct ddp_checkpoint_blob other[3];
    size_t count;
    const char *sentence;
} misfits[] = {
    {2,
     {{.name = "a", .bytes = 4}, {.name = "c", .bytes = 8}},
     2,
     "blob 1 of the state is 'b' with 8 bytes on rank 0, but 'c' with 8 bytes on rank 2"},
    {3,
     {{.name = "a", .bytes = 5}, {.name = "b", .bytes = 8}},
     2,
     "blob 0 of the state is 'a' with 4 bytes on rank 0, but 'a' with 5 bytes on rank 3"},
    {1,
     {{.name = "a", .bytes = 4}},
     1,
     "blob 1 of the state, 'b', is on rank 0, but not on rank 1"},
    {2,
     {{.name = "a", .bytes = 4}, {.name = "b", .bytes = 8}, {.name = "d", .bytes = 1}},
     3,
     "blob 2 of the state, 'd', is on rank 2, but not on rank 0"},
    {0,
     {{.name = "z", .bytes = 4}, {.name = "b", .bytes = 8}},
     2,
     "blob 0 of the state is 'z' with 4 bytes on rank 0, but 'a' with 4 bytes on rank 1"},
};

static void register_others(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t data[8] = {(uint8_t)rank};
    struct ddp_checkpoint_blob blobs[3] = {{.name = "a", .bytes = 4}, {.name = "b", .bytes = 8}};
    size_t count = 2;
    if (rank == misfits[world->stage].odd) {
        memcpy(blobs, misfits[world->stage].other, sizeof blobs);
        count = misfits[world->stage].count;
    }
    for (size_t i = 0; i < count; i++)
        blobs[i].data = data;
    const struct ddp_state_options options = {
        .size = sizeof options, .blobs = blobs, .count = count};
    struct ddp_error error;
    ddp_state *state = NULL;
    CHECK_OK(ddp_state_create(&options, &state, err));
    CHECK(ddp_state_sync(state, comm, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, misfits[world->stage].sentence) != NULL);
    CHECK(data[0] == rank && ddp_state_commit_number(state) == 0);
    CHECK_OK(ddp_barrier(comm, NULL, err)); /* it is still usable */
    ddp_state_destroy(state);
}

START_TEST(other_blobs_are_named)
{
    struct world world = {.nranks = RANKS, .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, register_others);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("state");
    TCase *tcase = tcase_create("deaths");
    add_sample(tcase, survivors_end_as_if_none_had_died, 0, EVENTS * RANKS);
    add_sample(tcase, survivors_end_as_if_none_had_died_over_tcp, 1, EVENTS * RANKS);
    add_sample(tcase, two_die_in_a_row, 0, 2 * EVENTS);
    tcase_add_loop_test(tcase, the_last_one_goes_on_alone, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("newcomers");
    tcase_add_loop_test(tcase, new_ranks_receive_what_the_old_have, 0, 2);
    add_sample(tcase, one_dies_while_new_ranks_come, 0, 30);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("living");
    tcase_add_loop_test(tcase, a_rank_that_does_not_come_is_named, 0, 2);
    tcase_add_test(tcase, recovery_can_be_repeated);
    tcase_add_test(tcase, threads_go_on_without_one_that_leaves);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("commits");
    tcase_add_loop_test(tcase, ranks_may_be_any_number_of_commits_apart, 0, 2);
    tcase_add_test(tcase, a_rank_that_comes_back_receives_what_was_done_without_it);
    tcase_add_test(tcase, worlds_that_went_apart_go_on_with_one_state);
    tcase_add_loop_test(tcase, other_blobs_are_named, 0, sizeof misfits / sizeof *misfits);
    suite_add_tcase(suite, tcase);
    return suite;
}
