/*
 * test_spawn_ranks.c - ddp_spawn(): ranks meet, the first failure is told with its sentence, those
 * that run on are ended, and nothing is left: neither processes nor descriptors.
 */
#include "check_main.h"
#include "descriptors.h"
#include "world.h"

#include <ddprun/spawn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, LONG_MS = 60000, GRACE_MS = 300 };

static const struct ddp_spawn_options brisk = {.size = sizeof brisk, .grace_ms = GRACE_MS};

/* What the ranks of a test do; @held is the writing end of a pipe that they alone have open. */
struct plan {
    int held;
    uint32_t culprit;
    int what;
    _Atomic uint32_t *ready; /* shared: how many ranks are */
};

static struct plan plan_of(uint32_t culprit, int what)
{
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    return (struct plan){.held = -1, .culprit = culprit, .what = what, .ready = shared};
}

static void await_ready(const struct plan *plan, uint32_t count)
{
    while (atomic_load(plan->ready) < count)
        poll(NULL, 0, 10);
}

static ddp_spawned *start(ddp_rank_function *function, struct plan *plan,
                          const struct ddp_spawn_options *options)
{
    ddp_spawned *ranks;
    CHECK_OK(ddp_spawn(function, plan, RANKS, options, &ranks, err));
    return ranks;
}

static void expect_gone(const int *pids)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ck_assert(kill(pids[rank], 0) == -1 && errno == ESRCH);
}

static void read_pids(const ddp_spawned *ranks, int *pids)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        pids[rank] = ddp_spawn_pid(ranks, rank);
}

/* ---- success ---- */

static ddp_status add_up(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    ddp_comm *comm;
    uint32_t sum = rank + 1;
    (void)arg;
    ddp_status status = ddp_comm_init(NULL, &comm, err);
    if (status != DDP_OK)
        return status;
    CHECK(ddp_comm_rank(comm) == rank && ddp_comm_world_size(comm) == world_size);
    char text[16];
    snprintf(text, sizeof text, "%u", rank);
    CHECK(strcmp(getenv("RANK"), text) == 0 && strcmp(getenv("LOCAL_RANK"), text) == 0);
    status = ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, err);
    CHECK(status != DDP_OK || sum == world_size * (world_size + 1) / 2);
    ddp_comm_destroy(comm);
    return status;
}

static const uint32_t sizes[] = {1, 2, 4, 7};

/* Two worlds at once; below a launcher, whose variables are not for them. */
START_TEST(ranks_meet)
{
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    ddp_spawned *ranks[2];
    setenv("DDPRUN_STORE", "127.0.0.1:1", 1);
    setenv("RANK", "77", 1);
    unsigned before = open_descriptors();
    for (int i = 0; i < 2; i++)
        CHECK_OK(ddp_spawn(add_up, NULL, sizes[_i], NULL, &ranks[i], err));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(ddp_spawn_join(ranks[i], LONG_MS, &failure, err));
        CHECK_OK(ddp_spawn_join(ranks[i], 0, NULL, err)); /* again */
        ddp_spawn_destroy(ranks[i]);
    }
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* What is in stdio's buffer is written once; what a rank prints is written, too. */
static ddp_status print_rank(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    (void)world_size, (void)err;
    fprintf(arg, "%u", rank);
    return DDP_OK;
}

START_TEST(stdio_is_flushed_once)
{
    char text[32] = "";
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    ddp_spawned *ranks;
    fprintf(file, "x");
    CHECK_OK(ddp_spawn(print_rank, file, 1, NULL, &ranks, err));
    CHECK_OK(ddp_spawn_join(ranks, LONG_MS, NULL, err));
    ddp_spawn_destroy(ranks);
    rewind(file);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, file));
    ck_assert_str_eq(text, "x0");
    fclose(file);
}
END_TEST

/* ---- failures ---- */

enum { SAYS, EXITS, KILLED, SIGNALLED, WAYS };

static ddp_status fail_by(int what, struct ddp_error *err)
{
    switch (what) {
    case EXITS:
        exit(3);
    case KILLED:
        raise(SIGKILL);
        break;
    case SIGNALLED:
        raise(SIGUSR2);
        break;
    default:
        break;
    }
    snprintf(err->msg, sizeof err->msg, "the data is corrupt");
    return DDP_E_TYPE;
}

/* The others are in a collective: theirs fail because of it. */
static ddp_status fail_in_training(uint32_t rank, uint32_t world_size, void *arg,
                                   struct ddp_error *err)
{
    const struct plan *plan = arg;
    ddp_comm *comm;
    (void)world_size;
    ddp_status status = ddp_comm_init(NULL, &comm, err);
    if (status != DDP_OK)
        return status;
    if (rank == plan->culprit)
        return fail_by(plan->what, err);
    status = ddp_barrier(comm, NULL, err);
    ddp_comm_destroy(comm);
    return status;
}

static void expect_way(int what, const struct ddp_spawn_failure *failure, const char *msg)
{
    static const struct {
        ddp_status status;
        int exit_code, signal;
        const char *text;
    } ways[WAYS] = {
        [SAYS] = {DDP_E_TYPE, 1, 0, "failed: the data is corrupt"},
        [EXITS] = {DDP_OK, 3, 0, "has exited with code 3"},
        [KILLED] = {DDP_OK, -1, SIGKILL, "was ended by signal 9"},
        [SIGNALLED] = {DDP_OK, -1, SIGUSR2, "was ended by signal 12"},
    };
    ck_assert_int_eq(failure->status, ways[what].status);
    ck_assert_int_eq(failure->exit_code, ways[what].exit_code);
    ck_assert_int_eq(failure->signal, ways[what].signal);
    ck_assert_msg(strstr(msg, ways[what].text) != NULL, "%s", msg);
}

START_TEST(the_rank_that_failed_first_is_named)
{
    struct plan plan = plan_of((uint32_t)_i / WAYS, _i % WAYS);
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    struct ddp_error first, again;
    char name[48];
    int pids[RANKS];
    unsigned before = open_descriptors();
    ddp_spawned *ranks = start(fail_in_training, &plan, NULL);
    read_pids(ranks, pids);
    ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, &failure, &first), DDP_E_PEER_DEAD);
    expect_gone(pids);
    snprintf(name, sizeof name, "rank %u (pid %d) ", plan.culprit, pids[plan.culprit]);
    ck_assert_msg(strncmp(first.msg, name, strlen(name)) == 0, "%s", first.msg);
    ck_assert(failure.rank == plan.culprit && failure.pid == pids[plan.culprit]);
    expect_way(plan.what, &failure, first.msg);
    ck_assert_int_eq(ddp_spawn_join(ranks, 0, NULL, &again), DDP_E_PEER_DEAD);
    ck_assert_str_eq(again.msg, first.msg);
    ddp_spawn_destroy(ranks);
    ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* Before the ranks have met: rank 0, at whose address the others meet, and another one. */
static ddp_status fail_before_init(uint32_t rank, uint32_t world_size, void *arg,
                                   struct ddp_error *err)
{
    const struct plan *plan = arg;
    return rank == plan->culprit ? fail_by(plan->what, err) : add_up(rank, world_size, NULL, err);
}

START_TEST(a_rank_that_never_joins_is_named)
{
    struct plan plan = plan_of(_i % 2 == 0 ? 0 : 2, _i / 2 == 0 ? SAYS : KILLED);
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    struct ddp_error error;
    ddp_spawned *ranks = start(fail_before_init, &plan, NULL);
    ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, &failure, &error), DDP_E_PEER_DEAD);
    ck_assert_uint_eq(failure.rank, plan.culprit);
    expect_way(plan.what, &failure, error.msg);
    ddp_spawn_destroy(ranks);
}
END_TEST

/* ---- ranks that do not end ---- */

enum { PAUSES, IGNORES, STOPS };

/* One fails when the others are ready, if there is a culprit. */
static ddp_status hang(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    const struct plan *plan = arg;
    if (rank == plan->culprit) {
        await_ready(plan, world_size - 1);
        return fail_by(SAYS, err);
    }
    if (plan->what == IGNORES)
        signal(SIGTERM, SIG_IGN);
    atomic_fetch_add(plan->ready, 1);
    if (plan->what == STOPS)
        raise(SIGSTOP);
    for (;;)
        pause();
}

static pid_t handled_by;

static void note_signal(int signal)
{
    (void)signal;
    if (getpid() != handled_by)
        kill(handled_by, SIGKILL);
}

static ddp_status fail_at_once(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    (void)world_size, (void)arg, (void)err;
    return rank == 0 ? DDP_E_TYPE : hang(rank, world_size, arg, err);
}

/* The program's handler of SIGTERM does not run in a rank, not even in one that has not begun. */
START_TEST(a_handler_stays_with_the_program)
{
    struct plan plan = plan_of(RANKS, PAUSES);
    handled_by = getpid();
    signal(SIGTERM, note_signal);
    for (int i = 0; i < 50 / sample_stride(); i++) {
        ddp_spawned *ranks = start(fail_at_once, &plan, NULL);
        if (i % 2 == 0)
            ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, NULL, NULL), DDP_E_PEER_DEAD);
        ddp_spawn_destroy(ranks);
    }
}
END_TEST

START_TEST(the_others_are_ended)
{
    struct plan plan = plan_of(1, _i);
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    struct ddp_error error;
    int pids[RANKS];
    ddp_spawned *ranks = start(hang, &plan, &brisk);
    read_pids(ranks, pids);
    ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, &failure, &error), DDP_E_PEER_DEAD);
    ck_assert_uint_eq(failure.rank, 1);
    expect_gone(pids);
    ddp_spawn_destroy(ranks);
}
END_TEST

START_TEST(a_join_has_a_deadline)
{
    struct plan plan = plan_of(RANKS, _i);
    struct ddp_error error;
    int pids[RANKS];
    char text[64];
    ddp_spawned *ranks = start(hang, &plan, &brisk);
    read_pids(ranks, pids);
    await_ready(&plan, RANKS);
    ck_assert_int_eq(ddp_spawn_join(ranks, 0, NULL, &error), DDP_E_TIMEOUT);
    ck_assert_int_eq(ddp_spawn_join(ranks, 20, NULL, &error), DDP_E_TIMEOUT);
    snprintf(text, sizeof text, "4 of 4 ranks run still; the first is rank 0 (pid %d)", pids[0]);
    ck_assert_msg(strstr(error.msg, text) != NULL, "%s", error.msg);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        ck_assert_int_eq(kill(pids[rank], 0), 0);
    ddp_spawn_destroy(ranks);
    expect_gone(pids);
}
END_TEST

/* The ranks alone have the pipe open: its end is theirs. */
static ddp_status hold(uint32_t rank, uint32_t world_size, void *arg, struct ddp_error *err)
{
    (void)rank, (void)world_size, (void)err;
    const struct plan *plan = arg;
    signal(SIGTERM, SIG_IGN);
    CHECK(write(plan->held, "x", 1) == 1);
    for (;;)
        pause();
}

START_TEST(nothing_outlives_the_parent)
{
    struct plan plan = plan_of(RANKS, 0);
    char byte;
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    plan.held = fds[1];
    pid_t pid = fork();
    if (pid == 0) {
        (void)start(hold, &plan, NULL);
        close(plan.held);
        for (;;)
            pause();
    }
    close(fds[1]);
    for (uint32_t i = 0; i < RANKS; i++)
        ck_assert_int_eq(read(fds[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(read(fds[0], &byte, 1), 0); /* or the test's time is over */
    close(fds[0]);
}
END_TEST

/* ---- bad input, and a system that refuses ---- */

START_TEST(bad_arguments_are_refused)
{
    const struct ddp_spawn_options small = {.size = sizeof small - 1};
    struct ddp_spawn_failure unset = {0};
    struct ddp_error error;
    ddp_spawned *ranks = NULL;
    ck_assert_int_eq(ddp_spawn(NULL, NULL, 1, NULL, &ranks, &error), DDP_E_INVALID);
    ck_assert_int_eq(ddp_spawn(add_up, NULL, 0, NULL, &ranks, &error), DDP_E_INVALID);
    ck_assert_int_eq(ddp_spawn(add_up, NULL, 65537, NULL, &ranks, &error), DDP_E_INVALID);
    ck_assert_int_eq(ddp_spawn(add_up, NULL, 1, &small, &ranks, &error), DDP_E_INVALID);
    ck_assert_ptr_null(ranks);
    CHECK_OK(ddp_spawn(add_up, NULL, 2, NULL, &ranks, err));
    ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, &unset, &error), DDP_E_INVALID);
    pid_t pid = fork();
    if (pid == 0) { /* the ranks are no children of this one */
        bool refused = ddp_spawn_join(ranks, LONG_MS, NULL, &error) == DDP_E_INVALID;
        ddp_spawn_destroy(ranks);
        _exit(refused ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    CHECK_OK(ddp_spawn_join(ranks, LONG_MS, NULL, err));
    ddp_spawn_destroy(ranks);
    ddp_spawn_destroy(NULL);
}
END_TEST

/* There are descriptors for some of the processes: none is left. */
START_TEST(what_cannot_start_leaves_nothing)
{
    struct plan plan = plan_of(RANKS, 0);
    struct rlimit files;
    struct ddp_error error;
    ddp_spawned *ranks = NULL;
    char byte;
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    plan.held = fds[1];
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    struct rlimit few = {.rlim_cur = (rlim_t)fds[1] + 2 + (rlim_t)_i, .rlim_max = files.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    ck_assert_int_eq(ddp_spawn(hold, &plan, RANKS, &brisk, &ranks, &error), DDP_E_SYSTEM);
    ck_assert_msg(strstr(error.msg, "ulimit -n") != NULL, "%s", error.msg);
    ck_assert_ptr_null(ranks);
    close(fds[1]);
    while (read(fds[0], &byte, 1) == 1)
        ;
    close(fds[0]);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no child */
}
END_TEST

/* The program has the kernel reap all children: what the function has said is still known. */
START_TEST(a_program_that_ignores_its_children)
{
    struct plan plan = plan_of(1, SAYS);
    struct ddp_spawn_failure failure = {.size = sizeof failure};
    struct ddp_error error;
    signal(SIGCHLD, SIG_IGN);
    ddp_spawned *ranks = start(add_up, NULL, NULL);
    CHECK_OK(ddp_spawn_join(ranks, LONG_MS, NULL, err));
    ddp_spawn_destroy(ranks);
    ranks = start(fail_in_training, &plan, NULL);
    ck_assert_int_eq(ddp_spawn_join(ranks, LONG_MS, &failure, &error), DDP_E_PEER_DEAD);
    ck_assert(failure.rank == 1 && failure.status == DDP_E_TYPE && failure.exit_code == -1);
    ck_assert_msg(strstr(error.msg, "the data is corrupt") != NULL, "%s", error.msg);
    ddp_spawn_destroy(ranks);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("spawn");
    TCase *tcase = tcase_create("ranks");
    tcase_add_loop_test(tcase, ranks_meet, 0, sizeof sizes / sizeof *sizes);
    tcase_add_test(tcase, stdio_is_flushed_once);
    tcase_add_loop_test(tcase, the_rank_that_failed_first_is_named, 0, RANKS * WAYS);
    tcase_add_loop_test(tcase, a_rank_that_never_joins_is_named, 0, 4);
    tcase_add_test(tcase, a_handler_stays_with_the_program);
    tcase_add_loop_test(tcase, the_others_are_ended, 0, 3);
    tcase_add_loop_test(tcase, a_join_has_a_deadline, 0, 3);
    tcase_add_test(tcase, nothing_outlives_the_parent);
    tcase_add_test(tcase, bad_arguments_are_refused);
    tcase_add_loop_test(tcase, what_cannot_start_leaves_nothing, 0, 3);
    tcase_add_test(tcase, a_program_that_ignores_its_children);
    suite_add_tcase(suite, tcase);
    return suite;
}
