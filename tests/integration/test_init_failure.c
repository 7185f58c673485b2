/*
 * test_init_failure.c - ranks that die while they join: every survivor is told which one, at once,
 * and meets the others by calling again; and nothing of it all is left in the store.
 *
 * The victim dies before one of its system calls on sockets, from the first one to the last: these
 * pass through functions of this file, which count. When the victim is dead another process takes
 * its place. A survivor that fails must name the victim; it calls again until all have met. Whether
 * a victim was seen by the others at all depends on how far it came: where it was not, nobody
 * fails. Time decides nothing: a survivor that waited for its deadline would outlast the test.
 */
#include "check_main.h"
#include "parse.h"
#include "world.h"

#include <ddprun/store.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LONG_MS = 60 * 1000, SHORT_MS = 700, ATTEMPTS_MAX = 3, CALLS_MAX = 2000 };

/* ---- to die before a call ---- */

static bool counting;
static uint32_t calls, dies_before;

static void count_call(void)
{
    if (counting && ++calls == dies_before)
        kill(getpid(), SIGKILL);
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
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = world->endpoint, .prefix = "test/"};
    ddp_store *store;
    char **keys;
    size_t count;
    ck_assert_int_eq(ddp_store_connect(&options, &store, NULL), DDP_OK);
    ck_assert_int_eq(ddp_store_list(store, "comm/", 10000, &keys, &count, NULL), DDP_OK);
    ck_assert_msg(count == 0, "%zu keys are left, the first is %s", count, keys[0]);
    ddp_store_free(keys);
    ddp_store_close(store);
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
    int64_t stride = 5 * WORLD_STRIDE;
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

Suite *test_suite(void)
{
    Suite *suite = suite_create("init");
    TCase *tcase = tcase_create("deaths");
    tcase_set_timeout(tcase, 50);
    tcase_add_loop_test(tcase, a_rank_that_dies_while_it_joins_is_named, 0, MATRIX);
    suite_add_tcase(suite, tcase);
    return suite;
}
