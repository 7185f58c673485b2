/*
 * ranks.c - what a communicator costs as ranks are added: the time to make one and a copy of it,
 * memory and descriptors of a rank, and the time of an all-reduce. Beside some of them stands what
 * a model expects of the row before it.
 *
 * Ranks are processes that this one starts (ddprun/spawn.h). They leave what they have measured in
 * memory that all share; of a time the slowest rank counts.
 */
#include "error.h"
#include "parse.h"
#include "scale.h"

#include <ddprun/comm.h>
#include <ddprun/spawn.h>
#include <dirent.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FEWEST = 2, MOST = 64, MAX_RUNS = 5, LIMIT_MS = 120 * 1000, TURN_US = 40 * 1000 };

enum measure { INIT, COPY, MEMORY, FILES, SMALL, MEDIUM, LARGE, MEASURES };

/* The rows of the table. Where all ranks do the same, and processors take turns with it, twice the
 * ranks take twice the time: @doubles. */
static const struct {
    const char *name, *json;
    size_t bytes; /* of an all-reduce */
    bool doubles;
} measures[] = {
    [INIT] = {"start of a communicator, ms", "init_ms", .doubles = true},
    [COPY] = {"copy by ddp_comm_split(), ms", "split_ms", .doubles = true},
    [MEMORY] = {"memory of a rank, KiB", "rank_kib"},
    [FILES] = {"descriptors of a rank", "rank_fds"},
    [SMALL] = {"all-reduce of 8 B, us", "reduce_8_us", .bytes = 8, .doubles = true},
    [MEDIUM] = {"all-reduce of 64 KiB, us", "reduce_64k_us", .bytes = 64 << 10, .doubles = true},
    [LARGE] = {"all-reduce of 4 MiB, us", "reduce_4m_us", .bytes = 4 << 20, .doubles = true},
};

/* What the ranks share. */
struct board {
    _Atomic uint32_t here; /* ranks that are ready to begin */
    double figures[MOST][MEASURES];
};

struct crew {
    struct board *board;
    uint32_t nranks;
};

/* ---- a rank ---- */

/* No rank begins before all exist. */
static void wait_for_all(struct crew *crew)
{
    atomic_fetch_add(&crew->board->here, 1);
    while (atomic_load(&crew->board->here) < crew->nranks)
        sched_yield();
}

/* Its share of what several processes have in common counts. */
static double own_kib(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    int64_t kib = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *end = strstr(line, " kB");
        if (end == NULL || strncmp(line, "Pss:", 4) != 0)
            continue;
        *end = '\0';
        const char *number = line + 4 + strspn(line + 4, " ");
        (void)ddpi_parse_int(number, 0, INT64_MAX, &kib, NULL);
        break;
    }
    if (file != NULL)
        fclose(file);
    return (double)kib;
}

static double open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    double count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

static ddp_status reduce_often(ddp_comm *comm, float *buffer, size_t count, uint32_t calls,
                               double *ret_us, struct ddp_error *err)
{
    ddp_status status = ddp_barrier(comm, NULL, err);
    double began = perf_now_us();
    for (uint32_t i = 0; i < calls && status == DDP_OK; i++)
        status = ddp_all_reduce(comm, buffer, buffer, count, DDP_FLOAT32, DDP_SUM, NULL, err);
    *ret_us = (perf_now_us() - began) / calls;
    return status;
}

/* As many calls as take TURN_US; rank 0 says how many. */
static ddp_status time_reduction(ddp_comm *comm, size_t bytes, double *ret_us,
                                 struct ddp_error *err)
{
    enum { FIRST = 4, MOST_CALLS = 100 * 1000 };
    size_t count = bytes / sizeof(float);
    float *buffer = calloc(count, sizeof *buffer);
    int32_t calls = 0;
    if (buffer == NULL)
        return ddpi_error_nomem(err, bytes);
    ddp_status status = reduce_often(comm, buffer, count, FIRST, ret_us, err);
    if (status == DDP_OK) {
        double wanted = TURN_US / *ret_us;
        calls = wanted < FIRST ? FIRST : wanted > MOST_CALLS ? MOST_CALLS : (int32_t)wanted;
        status = ddp_broadcast(comm, &calls, 1, DDP_INT32, 0, NULL, err);
    }
    if (status == DDP_OK)
        status = reduce_often(comm, buffer, count, (uint32_t)calls, ret_us, err);
    free(buffer);
    return status;
}

static ddp_status time_copy(ddp_comm *comm, double *ret_ms, struct ddp_error *err)
{
    ddp_comm *copy;
    ddp_status status = ddp_barrier(comm, NULL, err);
    double began = perf_now_us();
    if (status == DDP_OK)
        status = ddp_comm_split(comm, 0, 0, &copy, err);
    if (status != DDP_OK)
        return status;
    status = ddp_barrier(copy, NULL, err);
    *ret_ms = (perf_now_us() - began) / 1000;
    ddp_comm_destroy(copy);
    return status;
}

static ddp_status measure_rank(uint32_t rank, uint32_t nranks, void *arg, struct ddp_error *err)
{
    struct crew *crew = arg;
    double *figures = crew->board->figures[rank];
    ddp_comm *comm;
    (void)nranks;
    wait_for_all(crew);
    double kib = own_kib(), files = open_files(), began = perf_now_us();
    ddp_status status = ddp_comm_init(NULL, &comm, err);
    if (status != DDP_OK)
        return status;
    status = ddp_barrier(comm, NULL, err);
    figures[INIT] = (perf_now_us() - began) / 1000;
    if (status == DDP_OK)
        status = time_copy(comm, &figures[COPY], err);
    for (int m = SMALL; m < MEASURES && status == DDP_OK; m++)
        status = time_reduction(comm, measures[m].bytes, &figures[m], err);
    figures[MEMORY] = own_kib() - kib;
    figures[FILES] = open_files() - files;
    if (status == DDP_OK)
        status = ddp_barrier(comm, NULL, err);
    ddp_comm_destroy(comm);
    return status;
}

/* ---- all of them ---- */

static bool run_ranks(struct crew *crew, struct ddp_error *err)
{
    ddp_spawned *ranks;
    memset(crew->board, 0, sizeof *crew->board);
    if (ddp_spawn(measure_rank, crew, crew->nranks, NULL, &ranks, err) != DDP_OK)
        return false;
    bool done = ddp_spawn_join(ranks, LIMIT_MS, NULL, err) == DDP_OK;
    ddp_spawn_destroy(ranks);
    return done;
}

static double slowest(const struct crew *crew, int measure)
{
    double most = 0;
    for (uint32_t rank = 0; rank < crew->nranks; rank++)
        if (crew->board->figures[rank][measure] > most)
            most = crew->board->figures[rank][measure];
    return most;
}

static void print_row(struct perf *perf, uint32_t nranks, int measure, double median, double before)
{
    printf("| %s | %u | %.1f | ", measures[measure].name, nranks, median);
    if (measures[measure].doubles && before > 0)
        printf("%.1f", 2 * before);
    printf(" |\n");
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"ranks\",\"contender\":\"ddprun\",\"ranks\":%u,\"%s\":%.3f}\n",
                nranks, measures[measure].json, median);
}

/* @before has the medians of half as many ranks, and gets these. */
static bool measure_ranks(struct perf *perf, struct crew *crew, double before[MEASURES],
                          struct ddp_error *err)
{
    struct perf_samples samples[MEASURES] = {0};
    uint32_t runs = perf->options.runs < MAX_RUNS ? perf->options.runs : MAX_RUNS;
    bool done = true;
    for (uint32_t i = 0; done && i < runs; i++) {
        done = run_ranks(crew, err);
        for (int m = 0; m < MEASURES && done; m++)
            done = perf_add(&samples[m], slowest(crew, m)) ||
                   ddpi_error_nomem(err, sizeof(double)) == DDP_OK;
    }
    for (int m = 0; m < MEASURES; m++) {
        double median = done ? perf_percentile(&samples[m], 50) : 0;
        if (done)
            print_row(perf, crew->nranks, m, median, before[m]);
        before[m] = median;
        perf_samples_finish(&samples[m]);
    }
    return done;
}

bool scale_ranks(struct perf *perf, struct ddp_error *err)
{
    struct crew crew;
    double before[MEASURES] = {0};
    bool done = true;
    crew.board =
        mmap(NULL, sizeof *crew.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (crew.board == MAP_FAILED) {
        (void)ddpi_error_nomem(err, sizeof *crew.board);
        return false;
    }
    printf("| measure | ranks | median | twice the row before |\n|---|---|---|---|\n");
    for (crew.nranks = FEWEST; done && crew.nranks <= MOST; crew.nranks *= 2)
        done = measure_ranks(perf, &crew, before, err);
    munmap(crew.board, sizeof *crew.board);
    return done;
}
