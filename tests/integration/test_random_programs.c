/*
 * test_random_programs.c - random programs of collectives and messages, blocking, as requests and
 * in groups of calls, on several communicators and threads, against what each call must compute
 * (random_program.h).
 *
 * DDPRUN_TEST_PROGRAMS=N runs N programs; DDPRUN_TEST_SEED=S runs from seed S on, one program
 * without N. CK_RUN_CASE=threads or processes runs those alone. A failure names the seed and the
 * call.
 */
#include "check_main.h"
#include "random_program.h"
#include "world.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { LOCAL_PROGRAMS = 240, WORLD_PROGRAMS = 12, BATCHES = 8, CALLS = 2 * PROGRAM_STEPS };

/* A call that has been made; what it says of itself if it goes wrong. */
struct made {
    struct call call;
    ddp_request *request; /* NULL: it has ended, or is noted */
    bool noted;           /* it begins when the group of calls ends */
    uint32_t step;
};

/* One thread of one rank. */
struct lane {
    const struct program *program;
    uint32_t index, rank;
    ddp_comm *comms[2]; /* of all ranks, and of the rank's group */
    uint64_t state;     /* of choices that each rank makes for itself */
    ddp_comm *grouped;  /* on which a group of calls is open; NULL: none */
    uint32_t nmade;
    struct made made[CALLS];
};

static _Noreturn void report_wrong(const struct lane *lane, const struct made *made,
                                   const char *why)
{
    const struct step *step = &lane->program->steps[lane->index][made->step];
    const struct ddp_operation *operation = &made->call.operation;
    fprintf(stderr,
            "seed %llu, %u ranks: rank %u, thread %u, step %u (kind %d, count %zu, %s, %s, peer "
            "%u%s%s%s): %s\n",
            (unsigned long long)lane->program->seed, lane->program->nranks, lane->rank, lane->index,
            made->step, (int)operation->kind, operation->count, ddp_dtype_name(operation->dtype),
            ddp_reduce_op_name(operation->op), operation->peer, step->in_place ? ", in place" : "",
            step->uneven ? ", uneven" : "", step->child ? ", in a group" : "", why);
    _Exit(1);
}

static void check_made(const struct lane *lane, const struct made *made)
{
    const struct step *step = &lane->program->steps[lane->index][made->step];
    const struct call *call = &made->call;
    const char *buffer;
    char why[80];
    size_t at;
    struct place place = program_place(lane->program, lane->rank, step->child);
    if (!call_is_right(call, &buffer, &at)) {
        snprintf(why, sizeof why, "byte %zu of @%s is wrong", at, buffer);
        report_wrong(lane, made, why);
    }
    if (step->kind == DDP_KIND_SEND && call->source != step->root % place.nranks)
        report_wrong(lane, made, "the source is wrong");
}

static void wait_for(struct lane *lane, struct made *made)
{
    struct ddp_error error = {0};
    ddp_status status = DDP_OK;
    int done = 0;
    if (random_below(&lane->state, 4) == 0)
        while ((status = ddp_request_test(made->request, &done, &error)) == DDP_OK && !done)
            (void)sched_yield();
    else
        status = ddp_request_wait(made->request, 0, &done, &error);
    if (status != DDP_OK)
        report_wrong(lane, made, error.msg);
    ddp_request_free(made->request);
    made->request = NULL;
    check_made(lane, made);
}

/* Wait for one of the requests that have not ended, whichever; false: there is none. */
static bool wait_for_one(struct lane *lane)
{
    uint32_t start = (uint32_t)random_below(&lane->state, CALLS);
    for (uint32_t i = 0; i < lane->nmade; i++) {
        struct made *made = &lane->made[(start + i) % lane->nmade];
        if (made->request == NULL)
            continue;
        wait_for(lane, made);
        return true;
    }
    return false;
}

static void make_call(struct lane *lane, struct made *made, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status;
    bool waits = lane->grouped != NULL || random_below(&lane->state, 2) == 0;
    if (waits)
        status = ddp_run(comm, &made->call.operation, &error);
    else
        status = ddp_start(comm, &made->call.operation, &made->request, &error);
    if (status != DDP_OK)
        report_wrong(lane, made, error.msg);
    made->noted = lane->grouped != NULL;
    if (waits && !made->noted)
        check_made(lane, made);
}

/* Each rank groups calls as it likes: those of the others need not be grouped. */
static void open_group(struct lane *lane, ddp_comm *comm)
{
    CHECK_OK(ddp_group_start(comm, err));
    lane->grouped = comm;
}

static void close_group(struct lane *lane)
{
    struct ddp_error error = {0};
    ddp_status status = ddp_group_end(lane->grouped, &error);
    lane->grouped = NULL;
    for (uint32_t i = 0; i < lane->nmade; i++) {
        struct made *made = &lane->made[i];
        if (!made->noted)
            continue;
        if (status != DDP_OK)
            report_wrong(lane, made, error.msg);
        made->noted = false;
        check_made(lane, made);
    }
}

static void take_step(struct lane *lane, uint32_t index)
{
    const struct step *step = &lane->program->steps[lane->index][index];
    struct place place = program_place(lane->program, lane->rank, step->child);
    for (int receiving = 0; receiving < 2; receiving++) {
        struct made *made = &lane->made[lane->nmade];
        if (!call_prepare(&made->call, step, place, receiving != 0))
            continue;
        made->step = index;
        lane->nmade++;
        make_call(lane, made, lane->comms[step->child]);
    }
}

/* Requests move only while their own communicator is called, unless it has a thread: without one a
 * rank ends them before it goes on to another communicator. */
static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    const struct step *steps = lane->program->steps[lane->index];
    for (uint32_t i = 0; i < lane->program->nsteps[lane->index]; i++) {
        ddp_comm *comm = lane->comms[steps[i].child];
        if (lane->grouped != NULL && lane->grouped != comm)
            close_group(lane);
        if (!lane->program->progress && i > 0 && steps[i].child != steps[i - 1].child)
            while (wait_for_one(lane))
                ;
        if (lane->grouped == NULL && random_below(&lane->state, 4) == 0)
            open_group(lane, comm);
        take_step(lane, i);
        if (lane->grouped != NULL && random_below(&lane->state, 2) == 0)
            close_group(lane);
        if (random_below(&lane->state, 3) == 0)
            (void)wait_for_one(lane);
    }
    if (lane->grouped != NULL)
        close_group(lane);
    while (wait_for_one(lane))
        ;
    return NULL;
}

/* ---- a rank ---- */

static void open_lane(struct lane *lane, const struct program *program, uint32_t index,
                      uint32_t rank, ddp_comm *world)
{
    *lane = (struct lane){.program = program, .index = index, .rank = rank, .comms = {world}};
    lane->state = program->seed * 31 + rank * 2 + index;
    if (index > 0)
        CHECK_OK(ddp_comm_split(world, 0, 0, &lane->comms[0], err));
    CHECK_OK(
        ddp_comm_split(world, program->colors[rank], program->keys[rank], &lane->comms[1], err));
    struct place place = program_place(program, rank, true);
    CHECK(ddp_comm_rank(lane->comms[1]) == place.rank);
    CHECK(ddp_comm_world_size(lane->comms[1]) == place.nranks);
    for (int i = 0; i < 2 && program->progress; i++)
        CHECK_OK(ddp_comm_start_progress(lane->comms[i], err));
}

static void close_lane(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->nmade; i++)
        call_free(&lane->made[i].call);
    if (lane->index > 0)
        ddp_comm_destroy(lane->comms[0]);
    ddp_comm_destroy(lane->comms[1]);
}

/* No rank leaves a communicator before the others have what it sent them. */
static void run_program(const struct program *program, uint32_t rank, ddp_comm *world)
{
    struct lane *lanes = calloc(PROGRAM_LANES, sizeof *lanes);
    pthread_t thread;
    CHECK(lanes != NULL);
    for (uint32_t i = 0; i < program->nlanes; i++)
        open_lane(&lanes[i], program, i, rank, world);
    if (program->nlanes > 1)
        CHECK(pthread_create(&thread, NULL, run_lane, &lanes[1]) == 0);
    (void)run_lane(&lanes[0]);
    if (program->nlanes > 1)
        CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(ddp_barrier(world, NULL, err));
    for (uint32_t i = 0; i < program->nlanes; i++)
        close_lane(&lanes[i]);
    free(lanes);
}

/* ---- worlds ---- */

/* A number of the environment, or @usual. */
static uint64_t wished(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text == NULL ? usual : strtoull(text, NULL, 10);
}

/* Programs of one batch: every BATCHES-th seed from *@ret_seed on. */
static uint64_t batch_size(int batch, uint64_t usual, uint64_t *ret_seed)
{
    bool one = getenv("DDPRUN_TEST_SEED") != NULL;
    uint64_t programs = wished("DDPRUN_TEST_PROGRAMS", one ? 1 : usual / (uint64_t)sample_stride());
    *ret_seed = wished("DDPRUN_TEST_SEED", 1) + (uint64_t)batch;
    return (programs + BATCHES - 1 - (uint64_t)batch) / BATCHES;
}

struct local {
    const struct program *program;
    ddp_comm *comm;
    uint32_t rank;
};

static void *run_local_rank(void *arg)
{
    const struct local *local = arg;
    run_program(local->program, local->rank, local->comm);
    return NULL;
}

static void run_locally(uint64_t seed)
{
    struct program program;
    struct local locals[PROGRAM_RANKS];
    ddp_comm *comms[PROGRAM_RANKS];
    pthread_t threads[PROGRAM_RANKS];
    program_derive(&program, seed, 2 + (uint32_t)seed % 4);
    CHECK_OK(ddp_comm_init_local(program.nranks, NULL, comms, err));
    for (uint32_t rank = 0; rank < program.nranks; rank++) {
        locals[rank] = (struct local){&program, comms[rank], rank};
        CHECK(pthread_create(&threads[rank], NULL, run_local_rank, &locals[rank]) == 0);
    }
    for (uint32_t rank = 0; rank < program.nranks; rank++)
        CHECK(pthread_join(threads[rank], NULL) == 0);
    for (uint32_t rank = 0; rank < program.nranks; rank++)
        ddp_comm_destroy(comms[rank]);
}

START_TEST(threads_compute_what_programs_say)
{
    uint64_t seed, programs = batch_size(_i, LOCAL_PROGRAMS, &seed);
    setenv("DDP_TIMEOUT", "30s", 1);
    setenv("DDP_ALGORITHM", seed % 4 == 0 ? "ring" : "auto", 1);
    for (uint64_t i = 0; i < programs; i++)
        run_locally(seed + i * BATCHES);
}
END_TEST

static void run_batch(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint64_t seed,
        programs = batch_size((int)world->stage, (uint64_t)WORLD_PROGRAMS * BATCHES, &seed);
    for (uint64_t i = 0; i < programs; i++) {
        struct program program;
        program_derive(&program, seed + i * BATCHES, world->nranks);
        run_program(&program, rank, comm);
    }
}

/* Shared memory, TCP, and all algorithms over each: as the first seed says, so that a single one
 * runs as it did among others. */
START_TEST(processes_compute_what_programs_say)
{
    static const ddp_algorithm algorithms[] = {DDP_ALGORITHM_AUTO, DDP_ALGORITHM_RING,
                                               DDP_ALGORITHM_DIRECT};
    uint64_t seed;
    (void)batch_size(_i, 0, &seed);
    uint32_t turn = (uint32_t)((seed - 1) % BATCHES);
    struct world world = {.nranks = 2 + turn % 4,
                          .tcp = turn % 2 == 1,
                          .algorithm = algorithms[turn % 3],
                          .stage = (uint32_t)_i};
    world_open(&world);
    world_run(&world, run_batch);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("random_programs");
    TCase *threads = tcase_create("threads"), *processes = tcase_create("processes");
    tcase_add_loop_test(threads, threads_compute_what_programs_say, 0, BATCHES);
    tcase_add_loop_test(processes, processes_compute_what_programs_say, 0, BATCHES);
    suite_add_tcase(suite, threads);
    suite_add_tcase(suite, processes);
    return suite;
}
