/*
 * test_init_failure.c - ranks that die while they join: every survivor is told which one,
 * and meets the others by calling again; and nothing of it all is left in the store.
 *
 * The victim dies before one of its system calls on sockets, from the first one to the last: these
 * pass through functions of this file, which count. When the victim is dead another process takes
 * its place. A survivor that fails must name the victim; it calls again until all have met. Whether
 * a victim was seen by the others at all depends on how far it came: where it was not, nobody
 * fails. Time decides nothing: a survivor that waited for its deadline would be told of that.
 */
#include "check_main.h"
#include "parse.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60 * 1000, ATTEMPTS_MAX = 3, CALLS_MAX = 2000 };

/* ---- to die before a call ---- */

static bool counting, dies_waiting; /* dies_waiting: before it sleeps for long */
static uint32_t calls, dies_before, stops_before;

static void count_call(void)
{
    if (!counting)
        return;
    calls++;
    if (calls == dies_before)
        kill(getpid(), SIGKILL);
    if (calls == stops_before)
        raise(SIGSTOP);
}

#define NEXT(type, name) type next_##name = (type)(uintptr_t)dlsym(RTLD_NEXT, #name)

typedef int connect_call(int, const struct sockaddr *, socklen_t);
typedef int accept4_call(int, struct sockaddr *, socklen_t *, int);
typedef ssize_t sendmsg_call(int, const struct msghdr *, int);
typedef ssize_t send_call(int, const void *, size_t, int);
typedef ssize_t recv_call(int, void *, size_t, int);
typedef int epoll_wait_call(int, struct epoll_event *, int, int);

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    NEXT(connect_call *, connect);
    count_call();
    return next_connect(fd, address, len);
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    NEXT(accept4_call *, accept4);
    count_call();
    return next_accept4(fd, address, len, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    NEXT(sendmsg_call *, sendmsg);
    count_call();
    return next_sendmsg(fd, message, flags);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    NEXT(send_call *, send);
    count_call();
    return next_send(fd, bytes, len, flags);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    NEXT(recv_call *, recv);
    count_call();
    return next_recv(fd, bytes, len, flags);
}

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms)
{
    NEXT(epoll_wait_call *, epoll_wait);
    count_call();
    if (counting && dies_waiting && timeout_ms > LONG_MS / 2)
        kill(getpid(), SIGKILL);
    return next_epoll_wait(fd, events, count, timeout_ms);
}

/* ---- a rank ---- */

static ddp_status join_and_meet(const struct world *world, uint32_t rank, struct ddp_error *error)
{
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm;
    ddp_status status = ddp_comm_init(&options, &comm, error);
    counting = false;
    if (status != DDP_OK)
        return status;
    status = ddp_barrier(comm, NULL, error);
    ddp_comm_destroy(comm);
    return status;
}

/* world->stage is the victim. What it says itself, when its place is taken over, is the same. */
static void expect_victim(const struct world *world, uint32_t rank, ddp_status status,
                          const struct ddp_error *error)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u", world->stage);
    const char *cause = strstr(error->msg, "': ");
    cause = cause != NULL ? cause + 3 : error->msg; /* "rank 1 cannot join 'world': ..." */
    bool named = strncmp(cause, name, strlen(name)) == 0 && strstr(cause, "died") != NULL;
    if (status == DDP_E_PEER_DEAD && named)
        return;
    fprintf(stderr, "rank %u of %u (%s), victim %u: %s: %s\n", rank, world->nranks,
            world->tcp ? "tcp" : "shm", world->stage, ddp_status_name(status), error->msg);
    _exit(1);
}

/* Until all have met. */
static _Noreturn void survive(struct world *world, uint32_t rank)
{
    struct ddp_error error = {0};
    ddp_status status;
    while ((status = join_and_meet(world, rank, &error)) != DDP_OK) {
        expect_victim(world, rank, status, &error);
        CHECK(atomic_fetch_add(&world->reports[rank].steps, 1) < ATTEMPTS_MAX);
    }
    _exit(0);
}

static _Noreturn void be_the_victim(struct world *world, uint32_t rank, uint32_t call)
{
    struct ddp_error error = {0};
    dies_before = call;
    counting = true;
    ddp_status status = join_and_meet(world, rank, &error);
    world_report(world, rank, status, &error);
    _exit(status == DDP_OK ? 0 : 1);
}

/* ---- the matrix ---- */

static void expect_no_keys(const struct world *world)
{
    ck_assert_msg(!world_has_host(world), "rank 0 has left something");
}

/* Until rank 0 has come, or until its key is gone. At MASTER_ADDR there is none. */
static void await_key(const struct world *world, bool there)
{
    while (world_has_host(world) != there)
        poll(NULL, 0, 10);
}

/* true: it was killed; false: it came to the end. */
static bool reap_victim(struct world *world)
{
    int status = 0;
    uint32_t victim = world->stage;
    ck_assert_int_eq(waitpid(world->pids[victim], &status, 0), world->pids[victim]);
    world->pids[victim] = 0;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ck_assert_msg(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "the victim: %s",
                  world->reports[victim].error.msg);
    return killed;
}

/* false: the victim makes fewer calls than that. */
static bool die_before(struct world *world, uint32_t call, bool first)
{
    uint32_t victim = world->stage;
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        atomic_store(&world->reports[rank].steps, 0);
    for (uint32_t i = 0; i < world->nranks; i++) {
        uint32_t rank = first ? (victim + i) % world->nranks : (victim + 1 + i) % world->nranks;
        if (!world_fork(world, rank))
            continue;
        if (rank == victim)
            be_the_victim(world, rank, call);
        survive(world, rank);
    }
    bool killed = reap_victim(world);
    if (killed && world_fork(world, victim))
        survive(world, victim);
    world_join(world);
    expect_no_keys(world);
    return killed;
}

enum { SMALLEST = 2, SIZES = 4, VICTIMS = 3, MATRIX = 2 * SIZES * VICTIMS };

/* Worlds of 2 to 5, over both transports; rank 0, one in the middle and the last one; before each
 * call, or a few of them: DDPRUN_INIT_STRIDE. */
START_TEST(a_rank_that_dies_while_it_joins_is_named)
{
    const char *wish = getenv("DDPRUN_INIT_STRIDE");
    int64_t stride = 5 * sample_stride();
    if (wish != NULL)
        ck_assert_int_eq(ddpi_parse_int(wish, 1, CALLS_MAX, &stride, NULL), DDP_OK);
    uint32_t nranks = SMALLEST + (uint32_t)_i / VICTIMS % SIZES;
    const uint32_t victims[VICTIMS] = {0, nranks / 2, nranks - 1};
    struct world world = {.nranks = nranks,
                          .tcp = _i >= SIZES * VICTIMS,
                          .timeout_ms = LONG_MS,
                          .init_timeout_ms = LONG_MS,
                          .stage = victims[_i % VICTIMS]};
    world_open(&world);
    uint32_t call = 1 + (uint32_t)_i % (uint32_t)stride;
    while (die_before(&world, call, call % 2 == 0) && call < CALLS_MAX)
        call += (uint32_t)stride;
    ck_assert_uint_lt(call, CALLS_MAX);
    ck_assert_uint_gt(call, 10);
    world_close(&world);
}
END_TEST

/* ---- who does not come ---- */

static bool has_failed(const struct world *world, uint32_t rank, ddp_status status,
                       const char *text)
{
    const struct report *seen = &world->reports[rank];
    return seen->status == status && strstr(seen->error.msg, text) != NULL;
}

static void expect_failed(const struct world *world, uint32_t rank, ddp_status status,
                          const char *text)
{
    const struct report *seen = &world->reports[rank];
    ck_assert_msg(has_failed(world, rank, status, text), "rank %u: %s: %s", rank,
                  ddp_status_name(seen->status), seen->error.msg);
}

static void start_and_report(struct world *world, uint32_t place, uint32_t rank)
{
    if (!world_fork(world, place))
        return;
    struct ddp_error error = {0};
    ddp_status status = join_and_meet(world, rank, &error);
    world_report(world, place, status, &error);
    _exit(0);
}

enum { PLACES = 4, MISSING_MS = 5000 /* so late the others may be */ };

static void open_without(struct world *world, uint32_t missing)
{
    *world = (struct world){.nranks = PLACES, .init_timeout_ms = MISSING_MS, .stage = missing};
    world_open(world);
    for (uint32_t rank = 0; rank < PLACES; rank++)
        if (rank != missing)
            start_and_report(world, rank, rank);
}

static void expect_missing(struct world *world)
{
    char text[32];
    world_join(world);
    snprintf(text, sizeof text, "missing: rank %u", world->stage);
    for (uint32_t rank = 0; rank < PLACES; rank++) {
        if (rank == world->stage)
            continue;
        expect_failed(world, rank, DDP_E_TIMEOUT, text);
        expect_failed(world, rank, DDP_E_TIMEOUT, "after 5.0 s");
    }
    expect_no_keys(world);
    world_close(world);
}

/* The missing rank may be rank 0, which has the list of addresses that the others need. The four
 * worlds run at the same time, because each does nothing but wait for its deadline. */
START_TEST(a_rank_that_never_comes_is_missing)
{
    struct world worlds[PLACES];
    for (uint32_t missing = 0; missing < PLACES; missing++)
        open_without(&worlds[missing], missing);
    for (uint32_t missing = 0; missing < PLACES; missing++)
        expect_missing(&worlds[missing]);
}
END_TEST

/* Rank 0 is there, alone, when it is killed. The others find its key first, or the next rank 0. */
START_TEST(a_key_of_a_dead_rank_0_is_no_hindrance)
{
    struct world world = {
        .nranks = 3, .tcp = _i % 2 != 0, .init_timeout_ms = LONG_MS, .timeout_ms = LONG_MS};
    bool late = _i / 2 != 0;
    world_open(&world);
    if (world_fork(&world, 0))
        survive(&world, 0);
    await_key(&world, true);
    world_kill_rank(&world, 0);
    for (uint32_t i = 0; i < world.nranks; i++) {
        uint32_t rank = late ? world.nranks - 1 - i : i;
        if (world_fork(&world, rank))
            survive(&world, rank);
        if (late && rank == 1)
            await_key(&world, false); /* they remove it */
    }
    world_join(&world);
    expect_no_keys(&world);
    world_close(&world);
}
END_TEST

/* Rank 1 dies when it has come and waits for the last one, which is slow: rank 0 is told, and waits
 * for both a second time before that one calls for the first time. */
START_TEST(who_was_slow_meets_those_who_try_again)
{
    struct world world = {
        .nranks = 3, .tcp = _i != 0, .init_timeout_ms = LONG_MS, .timeout_ms = LONG_MS, .stage = 1};
    world_open(&world);
    if (world_fork(&world, 0))
        survive(&world, 0);
    if (world_fork(&world, 1)) {
        dies_waiting = counting = true;
        struct ddp_error error;
        (void)!join_and_meet(&world, 1, &error);
        _exit(1);
    }
    ck_assert(reap_victim(&world));
    world_await_steps(&world, 0, 1);
    for (uint32_t rank = 2; rank > 0; rank--)
        if (world_fork(&world, rank))
            survive(&world, rank);
    world_join(&world);
    expect_no_keys(&world);
    world_close(&world);
}
END_TEST

/* ---- who does not fit ---- */

START_TEST(two_that_come_as_one_rank_are_told_so)
{
    struct world world = {.nranks = 3, .tcp = _i != 0, .init_timeout_ms = LONG_MS};
    world_open(&world);
    start_and_report(&world, 0, 0);
    start_and_report(&world, 1, 1);
    start_and_report(&world, 2, 1);
    world_join(&world);
    for (uint32_t place = 0; place < 3; place++)
        expect_failed(&world, place, DDP_E_MISMATCH, "two processes join as rank 1");
    expect_no_keys(&world);
    world_close(&world);
}
END_TEST

/* ---- who gives up ---- */

enum { ROOMS = 24 };

/* From now on this process may have @room more descriptors. */
static void leave_room(unsigned room)
{
    struct rlimit files;
    int next[ROOMS + 1];
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    for (unsigned i = 0; i <= room; i++) {
        next[i] = dup(STDERR_FILENO);
        CHECK(next[i] >= 0);
    }
    files.rlim_cur = (rlim_t)next[room];
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    for (unsigned i = 0; i <= room; i++)
        close(next[i]);
}

/* Whoever is told names the poor one and what it lacks; who had not come to it yet goes on. */
static _Noreturn void expect_poverty(struct world *world, uint32_t rank)
{
    struct ddp_error error = {0};
    char name[32];
    snprintf(name, sizeof name, "rank %u", world->stage);
    while (join_and_meet(world, rank, &error) != DDP_OK) {
        bool told = strstr(error.msg, name) != NULL &&
                    strstr(error.msg, "Too many open files") != NULL &&
                    strstr(error.msg, "ulimit -n") != NULL;
        if (!told)
            fprintf(stderr, "rank %u: %s\n", rank, error.msg);
        CHECK(told && atomic_fetch_add(&world->reports[rank].steps, 1) < ATTEMPTS_MAX);
    }
    _exit(0);
}

static void join_with(struct world *world, unsigned room, unsigned *told)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        atomic_store(&world->reports[rank].steps, 0);
        if (!world_fork(world, rank))
            continue;
        if (rank != world->stage)
            expect_poverty(world, rank);
        leave_room(room);
        struct ddp_error error = {0};
        _exit(join_and_meet(world, rank, &error) == DDP_OK ? 0 : 3);
    }
    int status = 0;
    waitpid(world->pids[world->stage], &status, 0);
    world->pids[world->stage] = 0;
    ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3));
    if (WEXITSTATUS(status) == 3 && world_fork(world, world->stage))
        expect_poverty(world, world->stage);
    world_join(world);
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        *told += atomic_load(&world->reports[rank].steps) > 0;
    expect_no_keys(world);
}

/* Rank 0, which holds a connection to each, and another one. */
START_TEST(a_rank_without_descriptors_says_so_to_all)
{
    unsigned told = 0, step = sample_is_whole() ? 1 : 3;
    struct world world = {.nranks = 4,
                          .tcp = _i % 2 != 0,
                          .init_timeout_ms = LONG_MS,
                          .timeout_ms = LONG_MS,
                          .stage = (uint32_t)_i / 2};
    world_open(&world);
    for (unsigned room = 4; room < ROOMS; room += step) /* those before are for the store */
        join_with(&world, room, &told);
    ck_assert_uint_gt(told, 0);
    world_close(&world);
}
END_TEST

/* ---- who is stopped ---- */

enum { STOP_TIMEOUT_MS = 5000, STOPS = 8, STOP_STRIDE = 9 };

/* As many worlds at a time, as all that they do is to wait. */
START_TEST(a_rank_that_is_stopped_while_it_joins_is_named)
{
    struct world worlds[STOPS];
    for (uint32_t i = 0; i < STOPS; i++) {
        worlds[i] = (struct world){.nranks = 3,
                                   .tcp = _i % 2 != 0,
                                   .init_timeout_ms = STOP_TIMEOUT_MS,
                                   .timeout_ms = STOP_TIMEOUT_MS,
                                   .stage = (uint32_t)_i / 2};
        world_open(&worlds[i]);
        for (uint32_t rank = 0; rank < worlds[i].nranks; rank++) {
            stops_before = rank == worlds[i].stage ? 2 + i * STOP_STRIDE : 0;
            counting = stops_before != 0;
            start_and_report(&worlds[i], rank, rank);
        }
        counting = false;
    }
    for (uint32_t i = 0; i < STOPS; i++) {
        char name[32];
        snprintf(name, sizeof name, "rank %u", worlds[i].stage);
        world_await_failures(&worlds[i], worlds[i].stage);
        bool met = worlds[i].reports[worlds[i].stage == 0].status == DDP_OK;
        ck_assert(!met || i > 0); /* the later a call, the less likely that a rank makes it */
        world_kill_rank(&worlds[i], worlds[i].stage);
        world_join(&worlds[i]);
        for (uint32_t rank = 0; rank < worlds[i].nranks; rank++)
            if (rank != worlds[i].stage && !met)
                expect_failed(&worlds[i], rank, DDP_E_TIMEOUT, name);
        world_close(&worlds[i]);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("init");
    TCase *tcase = tcase_create("deaths");
    add_sample(tcase, a_rank_that_dies_while_it_joins_is_named, 0, MATRIX);
    tcase_add_loop_test(tcase, a_key_of_a_dead_rank_0_is_no_hindrance, 0, 4);
    tcase_add_loop_test(tcase, who_was_slow_meets_those_who_try_again, 0, 2);
    tcase_add_loop_test(tcase, two_that_come_as_one_rank_are_told_so, 0, 2);
    tcase_add_loop_test(tcase, a_rank_without_descriptors_says_so_to_all, 0, 4);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("deadlines");
    tcase_add_test(tcase, a_rank_that_never_comes_is_missing);
    tcase_add_loop_test(tcase, a_rank_that_is_stopped_while_it_joins_is_named, 0, 4);
    suite_add_tcase(suite, tcase);
    return suite;
}
