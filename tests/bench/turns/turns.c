/*
 * turns.c - lets contenders take turns, and prints their medians. Owns the contenders and the
 * folder of their FIFOs.
 */
#include "turns.h"

#include "error.h"
#include "exit_codes.h"
#include "perf.h"
#include "turn_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONTENDERS = 4 };

struct turns {
    const struct turns_options *options;
    struct contender contenders[CONTENDERS]; /* the first one is ours */
    unsigned count;
    char ddprun[CONTENDER_PATH];
    char nproc[32], ranks[16]; /* words of commands */
    char folder[64];
    FILE *json; /* NULL: none */
};

/* ---- who takes part ---- */

/* The command lines; NULL: what contender_of() fills in. */
static const struct peer {
    const char *name, *program, *launcher, *missing;
    const char *words[CONTENDER_WORDS];
} peers[] = {
    {"ddprun", "ddp-perf-ddprun", NULL, NULL, {NULL}},
    {"Open MPI",
     "ddp-bench-openmpi",
     "mpirun.openmpi",
     "mpicc.openmpi",
     {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"}},
    {"MPICH", "ddp-bench-mpich", "mpiexec.mpich", "mpicc.mpich", {"mpiexec.mpich", "-n"}},
    {"gloo", "ddp-bench-gloo", NULL, "a python3 that has PyTorch", {NULL}},
};

/* The words of the launcher, the number of ranks, and the player. */
static void fill_words(struct turns *turns, struct contender *contender, const struct peer *peer)
{
    unsigned count = 0;
    if (peer->launcher == NULL) {
        contender->words[count++] = turns->ddprun;
        contender->words[count++] = turns->nproc;
        contender->words[count++] = "--no-prefix";
    } else {
        for (; peer->words[count] != NULL; count++)
            contender->words[count] = peer->words[count];
        contender->words[count++] = turns->ranks;
    }
    contender->words[count++] = contender->program;
}

static void add_contender(struct turns *turns, const struct peer *peer)
{
    struct contender *contender = &turns->contenders[turns->count];
    *contender = (struct contender){.name = peer->name, .ranks = turns->options->nproc};
    perf_find_program(peer->program, NULL, contender->program, sizeof contender->program);
    if ((access(contender->program, X_OK) != 0 && !perf_in_path(peer->program)) ||
        (peer->launcher != NULL && !perf_in_path(peer->launcher))) {
        printf("# %s is left out: it needs %s when ddp-bench is built, and %s now\n", peer->name,
               peer->missing, peer->launcher != NULL ? peer->launcher : peer->program);
        return;
    }
    fill_words(turns, contender, peer);
    turns->count++;
}

static bool start_contenders(struct turns *turns, struct ddp_error *err)
{
    const struct turns_options *options = turns->options;
    const bool wanted[] = {true, options->mpi, options->mpi, options->gloo};
    if (options->alloc)
        setenv("DDP_PERF_ALLOC", "1", 1);
    perf_find_program("ddprun", options->ddprun, turns->ddprun, sizeof turns->ddprun);
    snprintf(turns->nproc, sizeof turns->nproc, "--nproc-per-node=%u", options->nproc);
    snprintf(turns->ranks, sizeof turns->ranks, "%u", options->nproc);
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        if (wanted[i])
            add_contender(turns, &peers[i]);
    if (turns->count == 0 || turns->contenders[0].name != peers[0].name)
        return ddpi_error_set(err, DDP_E_SYSTEM, "'%s' is neither next to ddp-bench nor in PATH",
                              peers[0].program) == DDP_OK;
    for (unsigned i = 0; i < turns->count; i++)
        if (!contender_start(&turns->contenders[i], turns->folder, err))
            return false;
    return true;
}

/* ---- one size ---- */

static bool play_size(struct turns *turns, uint64_t bytes, struct ddp_error *err)
{
    struct contender *contenders[CONTENDERS];
    for (unsigned i = 0; i < turns->count; i++)
        contenders[i] = &turns->contenders[i];
    return rounds_play(contenders, turns->count, coll_kinds[turns->options->call].name, bytes, err);
}

/* ---- output ---- */

static void print_head(const struct turns *turns)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# ddp-bench turns %s%s, %u ranks, float32; medians of %d turns each, in us; x: times "
           "as long as "
           "ddprun\n",
           coll_kinds[turns->options->call].name, turns->options->alloc ? " --alloc" : "",
           turns->options->nproc, ROUNDS);
    printf("| size (B) |");
    for (unsigned i = 0; i < turns->count; i++)
        printf(i == 0 ? " %s |" : " %s | x |", turns->contenders[i].name);
    printf("\n|");
    for (unsigned i = 0; i < 2 * turns->count; i++)
        printf("---|");
    printf("\n");
}

static void write_json(struct turns *turns, struct contender *contender, uint64_t bytes,
                       double ours_us)
{
    double median = perf_percentile(&contender->times, 50);
    if (turns->json != NULL)
        fprintf(
            turns->json,
            "{\"benchmark\":\"turns\",\"call\":\"%s\",\"alloc\":%s,\"ranks\":%u,\"size\":%" PRIu64
            ",\"contender\":\"%s\",\"us\":%.3f,\"least_us\":%.3f,\"most_us\":%.3f,"
            "\"ratio\":%.4f}\n",
            coll_kinds[turns->options->call].name, turns->options->alloc ? "true" : "false",
            contender->ranks, bytes, contender->name, median, perf_percentile(&contender->times, 0),
            perf_percentile(&contender->times, 100), ours_us > 0 ? median / ours_us : 0);
}

static void print_size(struct turns *turns, uint64_t bytes)
{
    double ours_us = perf_percentile(&turns->contenders[0].times, 50);
    printf("| %" PRIu64 " |", bytes);
    for (unsigned i = 0; i < turns->count; i++) {
        double us = perf_percentile(&turns->contenders[i].times, 50);
        printf(" %.2f |", us);
        if (i > 0)
            printf(" %.2f |", ours_us > 0 ? us / ours_us : 0);
        write_json(turns, &turns->contenders[i], bytes, ours_us);
    }
    printf("\n");
}

/* Whether all results were right. */
static bool print_wrong(const struct turns *turns)
{
    bool right = true;
    for (unsigned i = 0; i < turns->count; i++)
        if (turns->contenders[i].wrong > 0) {
            printf("# %s: %" PRIu64 " elements were wrong\n", turns->contenders[i].name,
                   turns->contenders[i].wrong);
            right = false;
        }
    return right;
}

/* ---- the whole run ---- */

static bool play_all(struct turns *turns, struct ddp_error *err)
{
    const struct turns_options *options = turns->options;
    uint64_t bytes = options->begin;
    if (options->json != NULL && (turns->json = fopen(options->json, "ae")) == NULL)
        return ddpi_error_sys(err, errno, "write to '%s'", options->json) == DDP_OK;
    if (!start_contenders(turns, err))
        return false;
    print_head(turns);
    do {
        if (!play_size(turns, bytes, err))
            return false;
        print_size(turns, bytes);
        bytes = turns->options->call == COLL_BARRIER
                    ? 0
                    : coll_next_size(bytes, options->end, options->step, options->factor);
    } while (bytes != 0);
    return true;
}

static int play(const struct turns_options *options)
{
    struct turns turns = {.options = options, .folder = "/tmp/ddp-bench-turns-XXXXXX"};
    struct ddp_error err = {0};
    bool made = mkdtemp(turns.folder) != NULL ||
                ddpi_error_sys(&err, errno, "make a folder in /tmp") == DDP_OK;
    bool done = made && play_all(&turns, &err);
    bool right = print_wrong(&turns);
    for (unsigned i = 0; i < turns.count; i++)
        contender_end(&turns.contenders[i]);
    if (made)
        rmdir(turns.folder);
    if (turns.json != NULL && fclose(turns.json) != 0 && done)
        done = ddpi_error_sys(&err, errno, "write to '%s'", options->json) == DDP_OK;
    if (!done)
        fprintf(stderr, "ddp-bench: %s\n", err.msg);
    return done && right ? 0 : EXIT_FAILED;
}

int turns_main(int argc, char **argv)
{
    struct turns_options options;
    struct ddp_error err;
    if (turns_options_parse(argc, argv, &options, &err) != DDP_OK) {
        fprintf(stderr, "ddp-bench: %s\n", err.msg);
        return EXIT_USAGE;
    }
    if (options.help) {
        printf("usage: ddp-bench turns CALL --nproc=N [OPTIONS]\n");
        options_print_help(&turns_option_table, stdout);
        return 0;
    }
    return play(&options);
}
