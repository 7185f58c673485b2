/*
 * copies.c - what the copies and additions of an all-reduce cost alone, where the ranks' buffers
 * are not in shared memory: the limit for every implementation that copies through shared memory,
 * and what is left to gain for this one.
 *
 * Each rank copies the parts of the others into shared memory, a piece at a time, adds up its own
 * part of what all have copied, which it leaves there too, and copies the other parts out. A rank
 * is a thread on a processor of its own, if there is one. It waits only for the pieces, and checks
 * nothing.
 */
#include "error.h"
#include "mem.h"
#include "reduce.h"
#include "scale.h"
#include "thread.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    RANKS_MOST = 8,
    HALVES = 2, /* of shared memory: while one is read, the next piece goes into the other */
    TILE = 2048,
    TURN_BYTES = 256 * 1024 * 1024, /* in all turns of a row, */
    FEWEST_TURNS = 7,
    MOST_TURNS = 400,
};

static const uint32_t crews[] = {2, 4, 8};
static const size_t sizes[] = {256 << 10, 2 << 20, 16 << 20, 128 << 20};
static const size_t pieces[] = {256 << 10, 1 << 20};
enum { CREWS = sizeof crews / sizeof *crews, SIZES = sizeof sizes / sizeof *sizes };
enum { PIECES = sizeof pieces / sizeof *pieces };

struct copier {
    struct copies *copies;
    pthread_t thread;
    uint32_t rank;
    unsigned meetings;
    float *own;                          /* its buffer */
    float *shown[HALVES], *sums[HALVES]; /* its pieces of shared memory */
};

struct copies {
    uint32_t ranks, processors;
    size_t count, piece; /* of elements */
    unsigned turns;
    _Atomic unsigned arrived;
    double *us; /* of each turn */
    struct copier copiers[RANKS_MOST];
};

/* ---- a rank ---- */

static void meet_all(struct copier *copier)
{
    struct copies *copies = copier->copies;
    copier->meetings += copies->ranks;
    atomic_fetch_add(&copies->arrived, 1);
    while (atomic_load(&copies->arrived) < copier->meetings)
        if (copies->ranks > copies->processors)
            sched_yield();
}

/* The mean, so that a buffer of ones stays one; by the loops of the library. */
static void add_up(struct copier *copier, int half, size_t first, float *own, size_t count)
{
    const struct copies *copies = copier->copies;
    struct ddpi_reduction work = {.nin = copies->ranks,
                                  .nout = 2,
                                  .dtype = DDP_FLOAT32,
                                  .op = DDP_AVERAGE,
                                  .divisor = copies->ranks};
    for (size_t done = 0; done < count; done += TILE) {
        work.count = count - done < TILE ? count - done : TILE;
        for (uint32_t rank = 0; rank < copies->ranks; rank++)
            work.in[rank] = (uint8_t *)(copies->copiers[rank].shown[half] + first + done);
        work.in[copier->rank] = work.out[0] = (uint8_t *)(own + done);
        work.out[1] = (uint8_t *)(copier->sums[half] + first + done);
        ddpi_reduce_many(&work);
    }
}

static void reduce_piece(struct copier *copier, int half, float *own, size_t count)
{
    const struct copies *copies = copier->copies;
    size_t part = count / copies->ranks, first = copier->rank * part;
    for (uint32_t rank = 0; rank < copies->ranks; rank++)
        if (rank != copier->rank)
            memcpy(copier->shown[half] + rank * part, own + rank * part, part * sizeof *own);
    meet_all(copier);
    add_up(copier, half, first, own + first, part);
    meet_all(copier);
    for (uint32_t rank = 0; rank < copies->ranks; rank++)
        if (rank != copier->rank)
            memcpy(own + rank * part, copies->copiers[rank].sums[half] + rank * part,
                   part * sizeof *own);
}

static void *copy_in_turns(void *arg)
{
    struct copier *copier = arg;
    struct copies *copies = copier->copies;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(copier->rank % copies->processors, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
    for (unsigned turn = 0; turn < copies->turns; turn++) {
        meet_all(copier);
        double started_us = perf_now_us();
        int half = 0;
        for (size_t at = 0; at < copies->count; at += copies->piece, half = !half) {
            size_t left = copies->count - at;
            reduce_piece(copier, half, copier->own + at,
                         left < copies->piece ? left : copies->piece);
        }
        meet_all(copier);
        if (copier->rank == 0)
            copies->us[turn] = perf_now_us() - started_us;
    }
    return NULL;
}

/* ---- all of them ---- */

static float *map_floats(size_t count, int kind)
{
    float *at = mmap(NULL, count * sizeof *at, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; at != MAP_FAILED && i < count; i++)
        at[i] = 1;
    return at != MAP_FAILED ? at : NULL;
}

static bool allocate(struct copies *copies)
{
    copies->us = ddpi_calloc(copies->turns, sizeof *copies->us);
    bool done = copies->us != NULL;
    for (uint32_t rank = 0; rank < copies->ranks; rank++) {
        struct copier *copier = &copies->copiers[rank];
        *copier = (struct copier){.copies = copies, .rank = rank};
        copier->own = map_floats(copies->count, MAP_PRIVATE);
        done = done && copier->own != NULL;
        for (int half = 0; half < HALVES; half++) {
            copier->shown[half] = map_floats(copies->piece, MAP_SHARED);
            copier->sums[half] = map_floats(copies->piece, MAP_SHARED);
            done = done && copier->shown[half] != NULL && copier->sums[half] != NULL;
        }
    }
    return done;
}

static void unmap_floats(float *at, size_t count)
{
    if (at != NULL)
        munmap(at, count * sizeof *at);
}

static void release(struct copies *copies)
{
    for (uint32_t rank = 0; rank < copies->ranks; rank++) {
        unmap_floats(copies->copiers[rank].own, copies->count);
        for (int half = 0; half < HALVES; half++) {
            unmap_floats(copies->copiers[rank].shown[half], copies->piece);
            unmap_floats(copies->copiers[rank].sums[half], copies->piece);
        }
    }
    ddpi_free(copies->us);
}

static bool is_right(const struct copies *copies)
{
    for (uint32_t rank = 0; rank < copies->ranks; rank++)
        for (size_t i = 0; i < copies->count; i++)
            if (copies->copiers[rank].own[i] != 1)
                return false;
    return true;
}

/* Threads that have started wait for those that have not, so a missing one ends the program. */
static void run_all(struct copies *copies)
{
    for (uint32_t rank = 0; rank < copies->ranks; rank++)
        if (ddpi_thread_start(&copies->copiers[rank].thread, 0, copy_in_turns,
                              &copies->copiers[rank]) != 0)
            abort();
    for (uint32_t rank = 0; rank < copies->ranks; rank++)
        pthread_join(copies->copiers[rank].thread, NULL);
}

/* The median of the turns. */
static bool time_copies(struct copies *copies, double *ret_us, struct ddp_error *err)
{
    struct perf_samples samples = {0};
    bool done = allocate(copies);
    if (done)
        run_all(copies);
    for (unsigned turn = 0; done && turn < copies->turns; turn++)
        done = perf_add(&samples, copies->us[turn]);
    if (!done)
        (void)ddpi_error_nomem(err, copies->count * sizeof(float));
    else if (!is_right(copies))
        done = ddpi_error_set(err, DDP_E_INTERNAL, "the copies have a wrong element") == DDP_OK;
    if (done)
        *ret_us = perf_percentile(&samples, 50);
    perf_samples_finish(&samples);
    release(copies);
    return done;
}

static unsigned turns_for(size_t size)
{
    size_t turns = TURN_BYTES / size;
    return turns < FEWEST_TURNS ? FEWEST_TURNS : turns > MOST_TURNS ? MOST_TURNS : (unsigned)turns;
}

/* With the pieces that are faster. */
static bool measure_copies(struct perf *perf, uint32_t ranks, size_t size, struct ddp_error *err)
{
    double best_us = 0;
    for (size_t i = 0; i < PIECES; i++) {
        double us;
        struct copies copies = {.ranks = ranks,
                                .processors = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN),
                                .count = size / sizeof(float),
                                .piece = pieces[i] / sizeof(float),
                                .turns = turns_for(size)};
        if (!time_copies(&copies, &us, err))
            return false;
        best_us = best_us == 0 || us < best_us ? us : best_us;
    }
    printf(" %.1f |", best_us);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"copies\",\"contender\":\"copies alone\",\"ranks\":%u,"
                "\"bytes\":%zu,\"us\":%.3f}\n",
                ranks, size, best_us);
    return true;
}

bool scale_copies(struct perf *perf, struct ddp_error *err)
{
    bool done = true;
    printf("| size (B) | 2 ranks (us) | 4 ranks (us) | 8 ranks (us) |\n|---|---|---|---|\n");
    for (size_t i = 0; done && i < SIZES; i++) {
        printf("| %zu |", sizes[i]);
        for (size_t k = 0; done && k < CREWS; k++)
            done = measure_copies(perf, crews[k], sizes[i], err);
        printf("\n");
    }
    return done;
}
