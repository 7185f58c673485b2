/*
 * test_fork_failure.c - ranks that fork: one that dies is noticed while a child of it lives and has
 * copies of all its descriptors, and a child cannot disturb its parent's communicator.
 *
 * The children outlive the rank that has forked them and nothing else: the test kills them, or the
 * end of the test does.
 */
#include "check_main.h"
#include "communicator.h"
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 50000, LONG_MS = 60 * 1000, VICTIM = 1, DEEP = 4096 };

static ddp_status receive(ddp_comm *comm, uint32_t from, struct ddp_error *error)
{
    float value;
    return ddp_recv(comm, &value, 1, DDP_FLOAT32, from, NULL, error);
}

/* ---- a dead rank with a child that lives ---- */

/* The child of a rank lives as long as this process, which is the one that runs the test: an end of
 * file on this pipe tells of its end. */
static int test_ends[2];

static _Noreturn void outlive(void)
{
    char nothing;
    close(test_ends[1]);
    while (read(test_ends[0], &nothing, 1) < 0 && errno == EINTR)
        continue;
    _exit(0);
}

static void fork_child(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        outlive();
}

/* One in which no handler of ours runs. */
static void clone_child(void)
{
    long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    CHECK(pid >= 0);
    if (pid == 0)
        outlive();
}

static void (*const births[])(void) = {fork_child, clone_child};
enum { FORK, CLONE, BIRTHS };

/* The victim dies between operations; the others wait for it in the ring. */
static void in_the_ring(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT];
    struct ddp_error error = {0};
    ddp_status status;
    do {
        status = ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_MAX, NULL, &error);
        if (rank == VICTIM && atomic_load(&world->reports[rank].steps) == 2)
            births[world->stage]();
        world_step(world, rank);
    } while (status == DDP_OK);
    world_report(world, rank, status, &error);
}

/* The others have no edge of this kind to it yet, and it never lets them in. */
static void on_the_way_to_it(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    if (rank == VICTIM)
        births[world->stage]();
    world_step(world, rank);
    if (rank == VICTIM)
        for (;;)
            pause();
    ddp_status status = receive(comm, VICTIM, &error);
    world_report(world, rank, status, &error);
}

/* They have met, and wait for a second message. */
static void in_a_message(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    float value = 1;
    if (rank == VICTIM) {
        for (uint32_t peer = 0; peer < world->nranks; peer++)
            if (peer != VICTIM)
                CHECK_OK(ddp_send(comm, &value, 1, DDP_FLOAT32, peer, NULL, err));
        for (uint32_t peer = 0; peer < world->nranks; peer++)
            if (peer != VICTIM)
                world_await_steps(world, peer, 1);
        births[world->stage]();
        world_step(world, rank);
        for (;;)
            pause();
    }
    CHECK_OK(receive(comm, VICTIM, err));
    world_step(world, rank);
    ddp_status status = receive(comm, VICTIM, &error);
    world_report(world, rank, status, &error);
}

static const struct {
    rank_body *body;
    uint32_t steps;
} moments[] = {{in_the_ring, 4}, {on_the_way_to_it, 1}, {in_a_message, 1}};
enum { MOMENTS = sizeof moments / sizeof *moments };

static void expect_death(const struct world *world)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        const struct report *seen = &world->reports[rank];
        if (rank == VICTIM)
            continue;
        ck_assert_msg(seen->status == DDP_E_PEER_DEAD &&
                          strstr(seen->error.msg, "rank 1 (") != NULL,
                      "rank %u: %s: %s", rank, ddp_status_name(seen->status), seen->error.msg);
        ck_assert_msg(strstr(seen->error.msg, "has died") != NULL, "%s", seen->error.msg);
    }
}

static void kill_with_child(bool tcp, uint32_t birth, size_t moment)
{
    struct world world = {.nranks = 4, .tcp = tcp, .timeout_ms = LONG_MS, .stage = birth};
    ck_assert_int_eq(pipe2(test_ends, O_CLOEXEC), 0);
    world_open(&world);
    world_start(&world, moments[moment].body);
    for (uint32_t rank = 0; rank < world.nranks; rank++) /* all have joined */
        world_await_steps(&world, rank, rank == VICTIM ? moments[moment].steps : 1);
    world_kill_rank(&world, VICTIM);
    world_join(&world);
    expect_death(&world);
    world_close(&world);
    close(test_ends[0]);
    close(test_ends[1]);
}

/* Sockets between machines close when the last copy does, so that nothing of the child of a raw
 * clone can be seen there. */
START_TEST(a_death_is_noticed_while_a_child_lives)
{
    static const struct {
        bool tcp;
        uint32_t birth;
    } ways[] = {{false, FORK}, {true, FORK}, {false, CLONE}};
    kill_with_child(ways[_i / MOMENTS].tcp, ways[_i / MOMENTS].birth, (size_t)_i % MOMENTS);
}
END_TEST

/* ---- what a child can do with its parent's communicator ---- */

static void expect_refusal(ddp_status status, const struct ddp_error *error)
{
    char parent[32];
    snprintf(parent, sizeof parent, "(pid %d)", getppid());
    CHECK(status == DDP_E_INVALID);
    CHECK(strstr(error->msg, "was forked from rank 0") != NULL);
    CHECK(strstr(error->msg, parent) != NULL);
}

static void call_everything(ddp_comm *comm)
{
    float value = 0, many[8] = {0};
    struct ddp_error error;
    struct ddp_comm_stats stats = {.size = sizeof stats};
    expect_refusal(ddp_all_reduce(comm, &value, &value, 1, DDP_FLOAT32, DDP_SUM, NULL, &error),
                   &error);
    expect_refusal(ddp_reduce(comm, &value, &value, 1, DDP_FLOAT32, DDP_SUM, 0, NULL, &error),
                   &error);
    expect_refusal(ddp_broadcast(comm, &value, 1, DDP_FLOAT32, 0, NULL, &error), &error);
    expect_refusal(ddp_all_gather(comm, &value, many, 1, DDP_FLOAT32, NULL, &error), &error);
    expect_refusal(ddp_reduce_scatter(comm, many, &value, 1, DDP_FLOAT32, DDP_SUM, NULL, &error),
                   &error);
    expect_refusal(ddp_send(comm, &value, 1, DDP_FLOAT32, 1, NULL, &error), &error);
    expect_refusal(ddp_recv(comm, &value, 1, DDP_FLOAT32, 1, NULL, &error), &error);
    expect_refusal(ddp_barrier(comm, NULL, &error), &error);
    expect_refusal(ddp_comm_check(comm, &error), &error);
    CHECK(ddp_comm_get_stats(comm, &stats) == DDP_E_INVALID);
    CHECK(ddp_comm_rank(comm) == 0 && ddp_comm_world_size(comm) == 3);
    ddp_comm_abort(comm);
}

static void expect_end(pid_t pid)
{
    int status = 0;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void exchange(const struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float values[COUNT];
    float value = 1;
    CHECK_OK(ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_MAX, NULL, err));
    if (rank == 0)
        CHECK_OK(ddp_send(comm, &value, 1, DDP_FLOAT32, world->nranks - 1, NULL, err));
    if (rank == world->nranks - 1)
        CHECK_OK(receive(comm, 0, err));
}

/* Wait until the thread that ddp_comm_start_progress() has started has nothing to do. */
static void await_sleeper(ddp_comm *comm)
{
    for (unsigned sleepers = 0; sleepers == 0;) {
        pthread_mutex_lock(&comm->runs.lock);
        sleepers = comm->runs.sleepers;
        pthread_mutex_unlock(&comm->runs.lock);
        sched_yield();
    }
}

/* A child that calls everything, and then frees it, and one that is born without handlers. */
static void a_child_meddles(struct world *world, uint32_t rank, ddp_comm *comm)
{
    exchange(world, rank, comm);
    if (world->stage == 1) {
        CHECK_OK(ddp_comm_start_progress(comm, err));
        await_sleeper(comm);
    }
    for (int birth = 0; rank == 0 && birth < BIRTHS; birth++) {
        pid_t pid =
            birth == FORK ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
        if (pid == 0) {
            call_everything(comm);
            ddp_comm_destroy(comm);
            _exit(0);
        }
        expect_end(pid);
    }
    exchange(world, rank, comm);
}

START_TEST(a_child_is_refused_and_disturbs_nobody)
{
    struct world world = {.nranks = 3, .tcp = _i % 2 != 0, .stage = (uint32_t)_i / 2};
    world_open(&world);
    world_run(&world, a_child_meddles);
    world_close(&world);
}
END_TEST

static bool is_socket(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
}

static unsigned count_sockets(void)
{
    unsigned sockets = 0;
    for (int fd = 0; fd < DEEP; fd++)
        sockets += is_socket(fd);
    return sockets;
}

/* Descriptors of the program itself are no affair of the library, also where it has had the number
 * before; and a child of the child keeps what its parent has opened. */
static void descriptors_are_told_apart(struct world *world, uint32_t rank, ddp_comm *comm)
{
    (void)rank;
    struct ddp_comm_options options = world_options(world, 0);
    options.world_size = 1;
    CHECK(count_sockets() > 0);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(count_sockets() == 0);
        ddp_comm_destroy(comm);
        int own[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0);
        ddp_comm *alone, *pair[2];
        CHECK_OK(ddp_comm_init(&options, &alone, err));
        CHECK_OK(ddp_comm_init_local(2, NULL, pair, err));
        pid = fork();
        if (pid == 0) {
            CHECK(count_sockets() == 2 && is_socket(own[0]) && is_socket(own[1]));
            _exit(0);
        }
        expect_end(pid);
        CHECK_OK(ddp_barrier(alone, NULL, err));
        ddp_comm_destroy(pair[0]);
        ddp_comm_destroy(pair[1]);
        ddp_comm_destroy(alone);
        CHECK(count_sockets() == 2);
        _exit(0);
    }
    expect_end(pid);
    exchange(world, rank, comm);
}

START_TEST(a_child_gives_back_the_sockets_of_its_parent_and_no_others)
{
    struct world world = {.nranks = 2, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, descriptors_are_told_apart);
    world_close(&world);
}
END_TEST

/* ---- exec ---- */

static bool was_open[DEEP];

static void remember_open(void)
{
    for (int fd = 0; fd < DEEP; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
}

static void expect_close_on_exec(void)
{
    for (int fd = 0; fd < DEEP; fd++) {
        int flags = fcntl(fd, F_GETFD);
        CHECK(was_open[fd] || flags < 0 || (flags & FD_CLOEXEC) != 0);
    }
}

START_TEST(nothing_is_inherited_through_exec)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++) {
        if (!world_fork(&world, rank))
            continue;
        struct ddp_comm_options options = world_options(&world, rank);
        ddp_comm *comm;
        remember_open();
        CHECK_OK(ddp_comm_init(&options, &comm, err));
        exchange(&world, rank, comm);
        expect_close_on_exec();
        ddp_comm_destroy(comm);
        _exit(0);
    }
    world_join(&world);
    world_close(&world);
}
END_TEST

/* A rank that becomes another program lives on, and says good-bye to nobody. */
static void one_execs(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status = ddp_barrier(comm, NULL, &error);
    if (rank == VICTIM) {
        char descriptor[16];
        snprintf(descriptor, sizeof descriptor, "%d", test_ends[0]);
        fcntl(test_ends[0], F_SETFD, 0);
        close(test_ends[1]);
        execl("/bin/sh", "sh", "-c", "read nothing <&$0", descriptor, (char *)NULL);
        _exit(1);
    }
    while (status == DDP_OK)
        status = ddp_barrier(comm, NULL, &error);
    world_report(world, rank, status, &error);
}

START_TEST(a_rank_that_execs_is_not_called_dead)
{
    struct world world = {.nranks = 3, .tcp = _i != 0, .timeout_ms = LONG_MS};
    ck_assert_int_eq(pipe2(test_ends, O_CLOEXEC), 0);
    world_open(&world);
    world_start(&world, one_execs);
    close(test_ends[0]);
    world_await_failures(&world, VICTIM);
    world_kill_rank(&world, VICTIM);
    close(test_ends[1]);
    world_join(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank += 2) {
        const struct report *seen = &world.reports[rank];
        ck_assert_msg(strstr(seen->error.msg, "rank 1 (") != NULL, "%s", seen->error.msg);
        /* Between machines one that does not listen any more is as good as dead. */
        ck_assert_msg(seen->status == (world.tcp ? DDP_E_PEER_DEAD : DDP_E_CLOSED), "%s: %s",
                      ddp_status_name(seen->status), seen->error.msg);
        ck_assert(world.tcp || strstr(seen->error.msg, "lives, but") != NULL);
    }
    world_close(&world);
}
END_TEST

/* ---- forks at any moment ---- */

struct forker {
    pthread_t thread;
    atomic_bool over;
    uint32_t forks;
};

static void *fork_again_and_again(void *arg)
{
    struct forker *forker = arg;
    while (!atomic_load(&forker->over)) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        expect_end(pid);
        forker->forks++;
    }
    return NULL;
}

static void work_beside_forks(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct forker forker = {0};
    (void)rank;
    CHECK(pthread_create(&forker.thread, NULL, fork_again_and_again, &forker) == 0);
    struct ddp_comm_options options = world_options(world, rank);
    for (int turn = 0; turn < 10; turn++) {
        char name[32];
        snprintf(name, sizeof name, "turn-%d", turn);
        options.name = name;
        ddp_comm *other;
        CHECK_OK(ddp_comm_init(&options, &other, err));
        exchange(world, rank, other);
        exchange(world, rank, comm);
        ddp_comm_destroy(other);
    }
    atomic_store(&forker.over, true);
    pthread_join(forker.thread, NULL);
    CHECK(forker.forks > 0);
}

START_TEST(forks_in_another_thread_disturb_nobody)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, work_beside_forks);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("fork");
    TCase *tcase = tcase_create("fork");
    tcase_add_loop_test(tcase, a_death_is_noticed_while_a_child_lives, 0, 3 * MOMENTS);
    tcase_add_loop_test(tcase, a_child_is_refused_and_disturbs_nobody, 0, 4);
    tcase_add_loop_test(tcase, a_child_gives_back_the_sockets_of_its_parent_and_no_others, 0, 2);
    tcase_add_loop_test(tcase, nothing_is_inherited_through_exec, 0, 2);
    tcase_add_loop_test(tcase, a_rank_that_execs_is_not_called_dead, 0, 2);
    tcase_add_loop_test(tcase, forks_in_another_thread_disturb_nobody, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
