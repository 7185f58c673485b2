/*
 * test_death_steps.c - a rank that dies before any step of an operation: each algorithm on each
 * transport. Every survivor must be told who has died.
 *
 * A step is a call with which a rank moves bytes, waits, or takes or ends its share of the work:
 * those of libc are replaced here, those of the arena by the linker (--wrap). The victim dies
 * before the first one in a world, before the second one in the next world, until it comes to the
 * end. Victims take turns; with DDPRUN_EVERY_DEATH=1 each of them dies before each step, and the
 * number of worlds is printed.
 */
#include "always_reads.h"
#include "arena.h"
#include "check_main.h"
#include "world.h"

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RANKS = 4, FEW = 5, SOME = 5000, MANY_STEPS = 400, LONG_MS = 60 * 1000 };

/* ---- steps ---- */

static _Thread_local bool counting;
static uint32_t steps, dies_before;
static bool dies_in_first;

static void step(void)
{
    if (counting && ++steps == dies_before)
        kill(getpid(), SIGKILL);
}

#define NEXT(type, name) type next_##name = (type)(uintptr_t)dlsym(RTLD_NEXT, #name)

typedef ssize_t send_call(int, const void *, size_t, int);
typedef ssize_t recv_call(int, void *, size_t, int);
typedef int ppoll_call(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
    NEXT(send_call *, send);
    step();
    return next_send(fd, bytes, len, flags);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
    NEXT(recv_call *, recv);
    step();
    return next_recv(fd, bytes, len, flags);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    NEXT(ppoll_call *, ppoll);
    step();
    return next_ppoll(fds, count, time, mask);
}

typedef ssize_t read_call(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                          unsigned long, unsigned long);

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                         const struct iovec *remote, unsigned long nremote, unsigned long flags)
{
    NEXT(read_call *, process_vm_readv);
    step();
    return next_process_vm_readv(pid, local, nlocal, remote, nremote, flags);
}

/* The compiler must not make a call of itself of it. */
void *memcpy(void *restrict to, const void *restrict from, size_t len)
{
    volatile uint8_t *out = to;
    const volatile uint8_t *in = from;
    step();
    for (size_t i = 0; i < len; i++)
        out[i] = in[i];
    return to;
}

void __real_ddpi_arena_arrive(struct ddpi_arena *arena, uint64_t round);
void __wrap_ddpi_arena_arrive(struct ddpi_arena *arena, uint64_t round);

void __wrap_ddpi_arena_arrive(struct ddpi_arena *arena, uint64_t round)
{
    step();
    __real_ddpi_arena_arrive(arena, round);
    step();
}

bool __real_ddpi_arena_claim(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                             uint32_t count, uint32_t *ret_share);
bool __wrap_ddpi_arena_claim(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                             uint32_t count, uint32_t *ret_share);

bool __wrap_ddpi_arena_claim(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                             uint32_t count, uint32_t *ret_share)
{
    step();
    return __real_ddpi_arena_claim(arena, round, work, count, ret_share);
}

void __real_ddpi_arena_finish(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                              uint32_t count, uint32_t share);
void __wrap_ddpi_arena_finish(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                              uint32_t count, uint32_t share);

void __wrap_ddpi_arena_finish(struct ddpi_arena *arena, uint64_t round, uint64_t work,
                              uint32_t count, uint32_t share)
{
    step();
    __real_ddpi_arena_finish(arena, round, work, count, share);
}

/* ---- calls ---- */

static float values[SOME * RANKS], results[SOME * RANKS];

static ddp_status call_all_reduce(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_all_reduce(comm, values, results, count, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_reduce(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_reduce(comm, values, results, count, DDP_FLOAT32, DDP_SUM, 1, NULL, err);
}

static ddp_status call_reduce_scatter(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_reduce_scatter(comm, values, results, count, DDP_FLOAT32, DDP_SUM, NULL, err);
}

static ddp_status call_broadcast(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_broadcast(comm, values, count, DDP_FLOAT32, 1, NULL, err);
}

static ddp_status call_all_gather(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_all_gather(comm, values, results, count, DDP_FLOAT32, NULL, err);
}

static ddp_status call_gather(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_gather(comm, values, results, count, DDP_FLOAT32, 1, NULL, err);
}

static ddp_status call_scatter(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_scatter(comm, values, results, count, DDP_FLOAT32, 1, NULL, err);
}

static ddp_status call_all_to_all(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    return ddp_all_to_all(comm, values, results, count, DDP_FLOAT32, NULL, err);
}

static ddp_status call_barrier(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    (void)count;
    return ddp_barrier(comm, NULL, err);
}

/* Two buffers in one call. */
static ddp_status call_list(ddp_comm *comm, size_t count, struct ddp_error *err)
{
    const struct ddp_buffer buffers[] = {
        {.send = values, .recv = results, .count = count},
        {.send = values + count, .recv = results + count, .count = count}};
    return ddp_all_reduce_many(comm, buffers, 2, DDP_FLOAT32, DDP_SUM, NULL, err);
}

enum way { SHM, READS, TCP }; /* READS: ranks of one machine read each other's buffers */

/* world->stage says which. */
static const struct {
    ddp_status (*run)(ddp_comm *comm, size_t count, struct ddp_error *err);
    size_t count;
    ddp_algorithm algorithm;
    enum way way;
    const char *hosts; /* see struct world: one for each rank; NULL: RANKS on one */
} calls[] = {
    {call_all_reduce, FEW, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_DIRECT, SHM, "aa"}, /* each has a processor */
    {call_list, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_list, SOME, DDP_ALGORITHM_DIRECT, SHM, "aa"},
    {call_reduce, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_reduce_scatter, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_broadcast, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_all_gather, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_gather, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_scatter, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_all_to_all, SOME, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_broadcast, SOME, DDP_ALGORITHM_DIRECT, READS, "aa"}, /* each has a processor */
    {call_all_gather, SOME, DDP_ALGORITHM_DIRECT, READS, "aa"},
    {call_gather, SOME, DDP_ALGORITHM_DIRECT, READS, "aa"},
    {call_scatter, SOME, DDP_ALGORITHM_DIRECT, READS, "aa"},
    {call_all_to_all, SOME, DDP_ALGORITHM_DIRECT, READS, "aa"},
    {call_barrier, 0, DDP_ALGORITHM_DIRECT, SHM, NULL},
    {call_all_reduce, FEW, DDP_ALGORITHM_DIRECT, TCP, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_RING, SHM, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_list, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_reduce, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_reduce_scatter, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_broadcast, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_all_gather, SOME, DDP_ALGORITHM_RING, TCP, NULL},
    {call_gather, SOME, DDP_ALGORITHM_AUTO, TCP, NULL},
    {call_scatter, SOME, DDP_ALGORITHM_AUTO, TCP, NULL},
    {call_all_to_all, SOME, DDP_ALGORITHM_AUTO, TCP, NULL},
    {call_barrier, 0, DDP_ALGORITHM_AUTO, TCP, NULL},
    {call_all_reduce, FEW, DDP_ALGORITHM_DOUBLING, TCP, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_DOUBLING, TCP, NULL},
    {call_all_reduce, SOME, DDP_ALGORITHM_HIERARCHICAL, SHM, "aabb"},
    {call_all_reduce, SOME, DDP_ALGORITHM_HIERARCHICAL, SHM, "aaab"},
};
enum { CALLS = sizeof calls / sizeof *calls };

static uint32_t ranks_of(uint32_t stage)
{
    return calls[stage].hosts != NULL ? (uint32_t)strlen(calls[stage].hosts) : RANKS;
}

static ddp_status call(const struct world *world, ddp_comm *comm, struct ddp_error *err)
{
    return calls[world->stage].run(comm, calls[world->stage].count, err);
}

/* ---- ranks ---- */

static void call_until_failure(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status;
    world_step(world, rank); /* it has joined */
    do
        status = call(world, comm, &error);
    while (status == DDP_OK);
    world_report(world, rank, status, &error);
}

/* The first operation of a communicator also makes what ranks share: it dies in that one, or in the
 * one after it. At the end it says in @world->counter that it has come so far, and dies. */
static void be_the_victim(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (uint32_t other = 0; other < world->nranks; other++)
        if (other != rank)
            world_await_steps(world, other, 1);
    if (!dies_in_first)
        CHECK_OK(call(world, comm, err));
    counting = true;
    CHECK_OK(call(world, comm, err));
    counting = false;
    atomic_store(world->counter, 1);
    kill(getpid(), SIGKILL);
}

/* ---- the test ---- */

static void expect_blame(const struct world *world, uint32_t victim)
{
    char name[32];
    snprintf(name, sizeof name, "rank %u (", victim);
    for (uint32_t rank = 0; rank < world->nranks; rank++) {
        const struct report *report = &world->reports[rank];
        if (rank != victim)
            ck_assert_msg(
                report->status == DDP_E_PEER_DEAD && strstr(report->error.msg, name) != NULL,
                "call %u, victim %u before step %u, rank %u: %s: %s", world->stage, victim,
                dies_before, rank, ddp_status_name(report->status), report->error.msg);
    }
}

/* Let @victim die before step @dies_before; false: the operation has fewer. */
static bool die_in(uint32_t stage, uint32_t victim)
{
    struct world world = {.nranks = ranks_of(stage),
                          .tcp = calls[stage].way == TCP,
                          .timeout_ms = LONG_MS,
                          .algorithm = calls[stage].algorithm,
                          .hosts = calls[stage].hosts,
                          .stage = stage};
    always_reads = calls[stage].way == READS;
    world_open(&world);
    for (uint32_t rank = 0; rank < world.nranks; rank++)
        world_start_rank(&world, rank, rank == victim ? be_the_victim : call_until_failure);
    world_await_failures(&world, victim);
    world_kill_rank(&world, victim);
    world_join(&world);
    expect_blame(&world, victim);
    bool died = atomic_load(world.counter) == 0;
    world_close(&world);
    return died;
}

static bool is_exhaustive(void)
{
    const char *every = getenv("DDPRUN_EVERY_DEATH");
    return every != NULL && strcmp(every, "1") == 0;
}

/* Each victim has its own number of steps. */
static void let_all_die_before_all_steps(uint32_t stage)
{
    unsigned worlds = 0;
    for (uint32_t victim = 0; victim < ranks_of(stage); victim++) {
        dies_before = 0;
        do {
            ck_assert_uint_lt(++dies_before, MANY_STEPS);
            worlds++;
        } while (die_in(stage, victim));
    }
    fprintf(stderr, "call %u, in the %s operation: %u worlds\n", stage,
            dies_in_first ? "first" : "second", worlds);
}

START_TEST(survivors_name_a_rank_that_dies_before_any_step)
{
    uint32_t stage = (uint32_t)_i / 2;
    dies_in_first = _i % 2 == 0;
    if (is_exhaustive()) {
        let_all_die_before_all_steps(stage);
        return;
    }
    uint32_t stride = (dies_in_first ? 3 : 1) * (uint32_t)sample_stride();
    for (dies_before = 1; dies_before < MANY_STEPS; dies_before += stride)
        if (!die_in(stage, (stage + dies_before) % ranks_of(stage)))
            break;
    ck_assert_uint_gt(dies_before, 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("death steps");
    TCase *tcase = tcase_create("deaths");
    add_sample(tcase, survivors_name_a_rank_that_dies_before_any_step, 0, 2 * CALLS);
    suite_add_tcase(suite, tcase);
    return suite;
}
