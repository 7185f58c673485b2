/*
 * tune.c - lets the algorithms of all_reduce take turns, prints their medians, and writes the table
 * of the fastest. Owns the jobs, the folder of their FIFOs, and the file until it has its name.
 */
#include "tune.h"

#include "error.h"
#include "perf_coll.h"
#include "perf_program.h"
#include "tune_rows.h"
#include "turn_rounds.h"
#include "version.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FAILED = 1, USAGE = 2, STAMP_TEXT = 32 };

struct tune {
    const struct tune_options *options;
    struct tune_place place;
    struct contender contenders[TUNE_ALGORITHMS]; /* by algorithm; those that are possible */
    struct tune_size sizes[TUNE_SIZES];
    unsigned count;
    FILE *json; /* NULL: none */
    char ddprun[CONTENDER_PATH];
    char player[CONTENDER_PATH];
    char nproc[32];
    char folder[64];
};

/* ---- the jobs ---- */

static bool start_algorithm(struct tune *tune, ddp_algorithm algorithm, struct ddp_error *err)
{
    struct contender *contender = &tune->contenders[algorithm];
    *contender = (struct contender){
        .name = tune_algorithm_name(algorithm),
        .words = {tune->ddprun, tune->nproc, "--no-prefix", tune->player},
        .algorithm = tune_algorithm_name(algorithm),
        .ranks = tune->options->nproc,
    };
    return contender_start(contender, tune->folder, err);
}

/* Those that are possible at all are so for the fewest bytes. */
static bool start_algorithms(struct tune *tune, struct ddp_error *err)
{
    const struct tune_options *options = tune->options;
    char nodes[16];
    snprintf(nodes, sizeof nodes, "%u", options->nodes);
    snprintf(tune->nproc, sizeof tune->nproc, "--nproc-per-node=%u", options->nproc);
    perf_find_program("ddprun", options->ddprun, tune->ddprun, sizeof tune->ddprun);
    perf_find_program("ddp-perf-ddprun", NULL, tune->player, sizeof tune->player);
    if (access(tune->player, X_OK) != 0)
        return ddpi_error_set(err, DDP_E_SYSTEM, "'ddp-perf-ddprun' is missing next to ddp-perf") ==
               DDP_OK;
    setenv("DDP_PERF_NODES", nodes, 1);
    unsetenv("DDP_ALGORITHM_TABLE");
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (tune_possible(&tune->place, options->begin, (ddp_algorithm)i) &&
            !start_algorithm(tune, (ddp_algorithm)i, err))
            return false;
    return true;
}

static bool play_size(struct tune *tune, struct tune_size *size, struct ddp_error *err)
{
    struct contender *contenders[TUNE_ALGORITHMS];
    unsigned count = 0;
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (tune_possible(&tune->place, size->bytes, (ddp_algorithm)i))
            contenders[count++] = &tune->contenders[i];
    if (!rounds_play(contenders, count, coll_kinds[COLL_ALL_REDUCE].name, size->bytes, err))
        return false;
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (tune_possible(&tune->place, size->bytes, (ddp_algorithm)i))
            size->us[i] = perf_percentile(&tune->contenders[i].times, 50);
    return true;
}

/* ---- output ---- */

static void print_head(const struct tune *tune)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("# ddp-perf tune: all_reduce of float32, %u ranks on %u nodes; medians of %d turns "
           "each, in us;\n# gain: the time of what is built in, in times of the fastest\n",
           tune->place.ranks, tune->place.nodes, ROUNDS);
    printf("| size (B) |");
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        printf(" %s |", tune_algorithm_name((ddp_algorithm)i));
    printf(" fastest | built in | gain |\n|");
    for (unsigned i = 0; i < TUNE_ALGORITHMS + 3; i++)
        printf("---|");
    printf("\n");
}

static void print_size(const struct tune *tune, const struct tune_size *size)
{
    ddp_algorithm fastest = tune_fastest(size);
    ddp_algorithm built_in = tune_built_in(&tune->place, size->bytes);
    printf("| %" PRIu64 " |", size->bytes);
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (size->us[i] > 0)
            printf(" %.2f |", size->us[i]);
        else
            printf(" - |");
    printf(" %s | %s | %.2f |\n", tune_algorithm_name(fastest), tune_algorithm_name(built_in),
           size->us[built_in] / size->us[fastest]);
}

static void write_json(const struct tune *tune, const struct tune_size *size)
{
    if (tune->json == NULL)
        return;
    fprintf(tune->json,
            "{\"benchmark\":\"tune\",\"call\":\"%s\",\"ranks\":%u,\"nodes\":%u,\"size\":%" PRIu64,
            coll_kinds[COLL_ALL_REDUCE].name, tune->place.ranks, tune->place.nodes, size->bytes);
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (size->us[i] > 0)
            fprintf(tune->json, ",\"%s_us\":%.3f", tune_algorithm_name((ddp_algorithm)i),
                    size->us[i]);
    fprintf(tune->json, ",\"fastest\":\"%s\",\"built_in\":\"%s\",\"chosen\":\"%s\"}\n",
            tune_algorithm_name(tune_fastest(size)),
            tune_algorithm_name(tune_built_in(&tune->place, size->bytes)),
            tune_algorithm_name(tune_choose(&tune->place, size)));
}

/* No table is written by algorithms whose results are wrong. */
static bool check_results(const struct tune *tune, struct ddp_error *err)
{
    for (unsigned i = 0; i < TUNE_ALGORITHMS; i++)
        if (tune->contenders[i].wrong > 0)
            return ddpi_error_set(err, DDP_E_SYSTEM,
                                  "%s: %" PRIu64 " elements were wrong; '%s' was not written",
                                  tune->contenders[i].name, tune->contenders[i].wrong,
                                  tune->options->output) == DDP_OK;
    return true;
}

/* ---- the file ---- */

static void write_table(const struct tune *tune, FILE *file)
{
    const struct tune_options *options = tune->options;
    struct ddpi_selection_table table;
    char stamp[STAMP_TEXT], row[TUNE_ROW_TEXT];
    struct tm when;
    time_t now = time(NULL);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &when));
    fprintf(file,
            "# Measured by ddp-perf " DDPRUN_VERSION ", finished at %s:\n"
            "# ddp-perf tune --nproc=%u --nodes=%u --minbytes=%" PRIu64 " --maxbytes=%" PRIu64
            " --stepfactor=%u\n"
            "# all_reduce RANKS NODES BYTES ALGORITHM\n",
            stamp, options->nproc, options->nodes, options->begin, options->end, options->factor);
    tune_make_table(&tune->place, tune->sizes, tune->count, &table);
    for (uint32_t i = 0; i < table.count; i++) {
        tune_print_row(&table.rows[i], row);
        fputs(row, file);
    }
}

/* The temporary file in the folder of the table. */
static FILE *open_temporary(const char *output, char path[CONTENDER_PATH], struct ddp_error *err)
{
    int len = snprintf(path, CONTENDER_PATH, "%s.%d.tmp", output, (int)getpid());
    errno = ENAMETOOLONG;
    int fd = len < CONTENDER_PATH
                 ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)
                 : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (file == NULL)
        ddpi_error_sys(err, errno, "make a file beside '%s'", output);
    if (file == NULL && fd >= 0) {
        close(fd);
        unlink(path);
    }
    return file;
}

/* A reader finds the former file, or the whole new one. */
static bool write_file(const struct tune *tune, struct ddp_error *err)
{
    const char *output = tune->options->output;
    char path[CONTENDER_PATH];
    FILE *file = open_temporary(output, path, err);
    if (file == NULL)
        return false;
    write_table(tune, file);
    bool written = fflush(file) == 0 && !ferror(file) && fsync(fileno(file)) == 0;
    written = fclose(file) == 0 && written && rename(path, output) == 0;
    if (!written) {
        ddpi_error_sys(err, errno, "write '%s'", output);
        unlink(path);
    }
    return written;
}

/* Ask before minutes of measuring, not after them. */
static bool check_output(const struct tune *tune, struct ddp_error *err)
{
    const char *output = tune->options->output;
    char path[CONTENDER_PATH];
    struct stat former;
    if (stat(output, &former) == 0 && !S_ISREG(former.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is no regular file, which a table replaces",
                              output) == DDP_OK;
    FILE *file = open_temporary(output, path, err);
    if (file == NULL)
        return false;
    fclose(file);
    unlink(path);
    return true;
}

/* ---- the whole run ---- */

static bool play_all(struct tune *tune, struct ddp_error *err)
{
    const struct tune_options *options = tune->options;
    if (!start_algorithms(tune, err))
        return false;
    print_head(tune);
    for (uint64_t bytes = options->begin; bytes != 0;
         bytes = coll_next_size(bytes, options->end, 0, options->factor)) {
        struct tune_size *size = &tune->sizes[tune->count++];
        size->bytes = bytes;
        if (!play_size(tune, size, err))
            return false;
        print_size(tune, size);
        write_json(tune, size);
    }
    return check_results(tune, err);
}

static bool measure(struct tune *tune, struct ddp_error *err)
{
    snprintf(tune->folder, sizeof tune->folder, "/tmp/ddp-perf-tune-XXXXXX");
    if (mkdtemp(tune->folder) == NULL)
        return ddpi_error_sys(err, errno, "make a folder in /tmp") == DDP_OK;
    bool done = play_all(tune, err);
    for (unsigned i = 0; i < TUNE_ALGORITHMS; i++)
        contender_end(&tune->contenders[i]);
    rmdir(tune->folder);
    return done && write_file(tune, err);
}

/* What was measured before a failure is in the file, too. */
static bool measure_and_note(struct tune *tune, struct ddp_error *err)
{
    const char *json = tune->options->json;
    if (!check_output(tune, err))
        return false;
    if (json != NULL && (tune->json = fopen(json, "we")) == NULL)
        return ddpi_error_sys(err, errno, "write to '%s'", json) == DDP_OK;
    bool done = measure(tune, err);
    if (tune->json != NULL && fclose(tune->json) != 0 && done)
        done = ddpi_error_sys(err, errno, "write to '%s'", json) == DDP_OK;
    return done;
}

int tune_main(int argc, char **argv)
{
    struct tune_options options;
    struct ddp_error err;
    bool valid = tune_options_parse(argc, argv, &options, &err) == DDP_OK;
    if (valid && options.help) {
        printf("usage: ddp-perf tune --nproc=N --output=FILE [OPTIONS]\n");
        options_print_help(&tune_option_table, stdout);
        return 0;
    }
    struct tune tune = {.options = &options,
                        .place = {.ranks = options.nproc, .nodes = options.nodes}};
    if (valid && measure_and_note(&tune, &err)) {
        printf("# '%s' is written: use it with DDP_ALGORITHM_TABLE\n", options.output);
        return 0;
    }
    fprintf(stderr, "ddp-perf: %s\n", err.msg);
    return valid ? FAILED : USAGE;
}
