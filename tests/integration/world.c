/*
 * world.c - a store and ranks as processes. Owns them: whoever opens a world closes it, and each
 * child asks the kernel to be killed with its parent.
 */
#include "world.h"

#include "check_main.h"
#include "clock.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AWAIT_US = 60 * 1000 * 1000 };

uint64_t now_us(void)
{
    return ddpi_now_us(&ddpi_clock_monotonic);
}

static pid_t fork_child(void)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

static void start_store(struct world *world)
{
    int pipe_fds[2];
    ck_assert_int_eq(pipe(pipe_fds), 0);
    world->store = fork_child();
    if (world->store == 0) {
        close(pipe_fds[0]);
        world_serve(pipe_fds[1]);
    }
    close(pipe_fds[1]);
    ssize_t len = read(pipe_fds[0], world->endpoint, sizeof world->endpoint - 1);
    close(pipe_fds[0]);
    ck_assert_int_gt(len, 0);
    world->endpoint[len] = '\0';
}

void world_open(struct world *world)
{
    const char *way = getenv("DDPRUN_TEST_WAY");
    if (way != NULL && strcmp(way, "kv") == 0) {
        world->table = world_kv_open();
        world->kv = world_kv_functions(world->table, true);
    } else {
        start_store(world);
    }
    size_t size = sizeof *world->reports * WORLD_MAX + sizeof *world->counter;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    world->reports = shared;
    world->counter = (void *)(world->reports + WORLD_MAX);
}

static void end_process(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

void world_report(struct world *world, uint32_t rank, ddp_status status,
                  const struct ddp_error *error)
{
    struct report *place = &world->reports[rank];
    place->status = status;
    place->error = *error;
    atomic_store(&place->at_us, now_us());
}

void world_step(struct world *world, uint32_t rank)
{
    atomic_fetch_add(&world->reports[rank].steps, 1);
}

void world_kill_rank(struct world *world, uint32_t rank)
{
    end_process(&world->pids[rank]);
}

void world_close(struct world *world)
{
    for (uint32_t rank = 0; rank < WORLD_MAX; rank++)
        end_process(&world->pids[rank]);
    end_process(&world->store);
    world_kv_close(world->table);
    munmap(world->reports, sizeof *world->reports * WORLD_MAX + sizeof *world->counter);
}

struct ddp_comm_options world_options(const struct world *world, uint32_t rank)
{
    return (struct ddp_comm_options){
        .size = sizeof(struct ddp_comm_options),
        .store_endpoint = world->table == NULL ? world->endpoint : NULL,
        .store_prefix = "test/",
        .kv = world->table != NULL ? &world->kv : NULL,
        .name = world->name,
        .world_size = world->nranks,
        .rank = rank,
        .init_timeout_ms = world->init_timeout_ms != 0 ? world->init_timeout_ms : 20000,
        .timeout_ms = world->timeout_ms != 0 ? world->timeout_ms : 20000,
        .force_tcp = world->tcp,
        .algorithm = world->algorithm,
    };
}

bool world_fork(struct world *world, uint32_t rank)
{
    world->pids[rank] = fork_child();
    return world->pids[rank] == 0;
}

void world_start_rank(struct world *world, uint32_t rank, rank_body *body)
{
    if (!world_fork(world, rank))
        return;
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm = NULL;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    body(world, rank, comm);
    ddp_comm_destroy(comm);
    _exit(0);
}

void world_start(struct world *world, rank_body *body)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        world_start_rank(world, rank, body);
}

/* false: it ended otherwise than by exit status 0. */
static bool join_rank(struct world *world, uint32_t rank)
{
    int status = 0;
    if (world->pids[rank] == 0)
        return true;
    waitpid(world->pids[rank], &status, 0);
    world->pids[rank] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void world_join_rank(struct world *world, uint32_t rank)
{
    ck_assert_msg(join_rank(world, rank), "rank %u failed; see above", rank);
}

void world_join(struct world *world)
{
    bool good = true;
    for (uint32_t rank = 0; rank < WORLD_MAX; rank++)
        good &= join_rank(world, rank);
    ck_assert_msg(good, "a rank failed; see above");
}

void world_run(struct world *world, rank_body *body)
{
    world_start(world, body);
    world_join(world);
}

void world_await_steps(struct world *world, uint32_t rank, uint32_t steps)
{
    uint64_t deadline = now_us() + AWAIT_US;
    while (atomic_load(&world->reports[rank].steps) < steps) {
        ck_assert_msg(now_us() < deadline, "rank %u does not get on", rank);
        poll(NULL, 0, 1);
    }
}

void world_await_failures(struct world *world, uint32_t victim)
{
    uint64_t deadline = now_us() + AWAIT_US;
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        while (rank != victim && atomic_load(&world->reports[rank].at_us) == 0) {
            ck_assert_msg(now_us() < deadline, "rank %u has not failed", rank);
            poll(NULL, 0, 1);
        }
}
