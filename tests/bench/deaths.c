/*
 * deaths.c - how long the survivors of a communicator take to hear that a rank was killed: from the
 * kill to the error of the last one. With and without a GiB of memory, which the kernel frees
 * before the process has ended; on one machine, and on machines that are pretended (DDP_HOST_ID).
 *
 * Ranks are processes that this one starts (ddprun/spawn.h). They leave what they see in memory
 * that all share; the one that is to die kills itself.
 */
#include "error.h"
#include "scale.h"

#include <ddprun/comm.h>
#include <ddprun/spawn.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS = 4, VICTIM = 1, LIMIT_MS = 120 * 1000, LOOPS = 20, LARGE = 256 * 1024 };

static const struct {
    const char *name, *json;
    const char *hosts; /* a letter for the machine of each rank */
    size_t resident;   /* bytes of the victim */
} cases[] = {
    {"one machine", "one", "aaaa", 0},
    {"one machine, 1 GiB resident", "one_1g", "aaaa", (size_t)1 << 30},
    {"two machines", "two", "aabb", 0},
    {"two machines, 1 GiB resident", "two_1g", "aabb", (size_t)1 << 30},
    {"four machines", "four", "abcd", 0},
    {"four machines, 1 GiB resident", "four_1g", "abcd", (size_t)1 << 30},
};
enum { CASES = sizeof cases / sizeof *cases };

/* What the ranks share. */
struct board {
    double killed_us, noticed_us[RANKS];
};

struct crew {
    struct board *board;
    int which; /* of the cases */
};

/* ---- a rank ---- */

static _Noreturn void die(struct board *board)
{
    board->killed_us = perf_now_us();
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static ddp_status reduce_until_failure(struct crew *crew, uint32_t rank, ddp_comm *comm,
                                       struct ddp_error *err)
{
    static float gradients[LARGE]; /* the first one, as in training */
    float value = 1;
    ddp_status status =
        ddp_all_reduce(comm, gradients, gradients, LARGE, DDP_FLOAT32, DDP_MAX, NULL, err);
    for (int i = 0; status == DDP_OK && !(rank == VICTIM && i == LOOPS); i++)
        status = ddp_all_reduce(comm, &value, &value, 1, DDP_FLOAT32, DDP_MAX, NULL, err);
    if (status == DDP_OK)
        die(crew->board);
    crew->board->noticed_us[rank] = perf_now_us();
    return status;
}

static ddp_status watch_a_death(uint32_t rank, uint32_t nranks, void *arg, struct ddp_error *err)
{
    struct crew *crew = arg;
    size_t resident = rank == VICTIM ? cases[crew->which].resident : 0;
    const char host[] = {cases[crew->which].hosts[rank], '\0'};
    ddp_comm *comm;
    (void)nranks;
    signal(SIGTERM, SIG_IGN); /* the other ranks would be ended because of the first failure */
    uint8_t *memory = resident > 0 ? malloc(resident) : NULL;
    if (resident > 0 && memory == NULL)
        return ddpi_error_nomem(err, resident);
    if (memory != NULL)
        memset(memory, 1, resident);
    setenv("DDP_HOST_ID", host, 1);
    ddp_status status = ddp_comm_init(NULL, &comm, err);
    if (status != DDP_OK)
        return status;
    status = reduce_until_failure(crew, rank, comm, err);
    ddp_comm_destroy(comm);
    free(memory);
    return status == DDP_E_PEER_DEAD ? DDP_OK : status; /* as it should be */
}

/* ---- all of them ---- */

/* Milliseconds until the last survivor knew it. */
static bool time_a_death(struct crew *crew, double *ret_ms, struct ddp_error *err)
{
    ddp_spawned *ranks;
    *crew->board = (struct board){0};
    if (ddp_spawn(watch_a_death, crew, RANKS, NULL, &ranks, err) != DDP_OK)
        return false;
    (void)!ddp_spawn_join(ranks, LIMIT_MS, NULL, err); /* fails, as a rank was killed */
    ddp_spawn_destroy(ranks);
    *ret_ms = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        double ms = (crew->board->noticed_us[rank] - crew->board->killed_us) / 1000;
        if (rank != VICTIM && crew->board->noticed_us[rank] == 0) {
            (void)ddpi_error_set(err, DDP_E_TIMEOUT, "rank %u has not noticed the death", rank);
            return false;
        }
        if (rank != VICTIM && ms > *ret_ms)
            *ret_ms = ms;
    }
    return true;
}

static bool measure_case(struct perf *perf, struct crew *crew, struct ddp_error *err)
{
    struct perf_samples samples = {0};
    bool done = true;
    for (uint32_t i = 0; done && i < perf->options.runs; i++) {
        double ms;
        done = time_a_death(crew, &ms, err) &&
               (perf_add(&samples, ms) || ddpi_error_nomem(err, sizeof ms) == DDP_OK);
    }
    double p50 = done ? perf_percentile(&samples, 50) : 0;
    double p99 = done ? perf_percentile(&samples, 99) : 0;
    if (done)
        printf("| %s | %.2f | %.2f |\n", cases[crew->which].name, p50, p99);
    if (done && perf->json != NULL)
        fprintf(
            perf->json,
            "{\"benchmark\":\"deaths\",\"contender\":\"ddprun\",\"case\":\"%s\",\"p50_ms\":%.3f,"
            "\"p99_ms\":%.3f}\n",
            cases[crew->which].json, p50, p99);
    perf_samples_finish(&samples);
    return done;
}

bool scale_deaths(struct perf *perf, struct ddp_error *err)
{
    struct crew crew = {0};
    bool done = true;
    crew.board =
        mmap(NULL, sizeof *crew.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crew.board == MAP_FAILED) {
        (void)ddpi_error_nomem(err, sizeof *crew.board);
        return false;
    }
    printf("| %d ranks, one is killed | p50 (ms) | p99 (ms) |\n|---|---|---|\n", RANKS);
    for (; done && crew.which < CASES; crew.which++)
        done = measure_case(perf, &crew, err);
    munmap(crew.board, sizeof *crew.board);
    return done;
}
