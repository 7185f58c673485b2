/*
 * perf_torch.c - starts PyTorch's server and its clients, all of them in torch.py, and makes a
 * table of what they measure. Owns the processes.
 */
#include "perf_torch.h"

#include "error.h"
#include "parse.h"
#include "perf_server.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern const char perf_torch_script[]; /* torch.py */

enum { WORD_MAX = 32, WORDS = 5 };

static const char *const op_names[] = {
#define PERF_TORCH_OP(symbol, name) [PERF_TORCH_##symbol] = name,
    PERF_TORCH_OPS(PERF_TORCH_OP)
#undef PERF_TORCH_OP
};
static const char *const side_names[] = {
    [PERF_TORCH_OURS] = "ddprun", [PERF_TORCH_THEIRS] = "PyTorch"};

struct torch {
    const char *python;
    struct perf_server servers[PERF_TORCH_SIDES];
    struct perf_samples rates[PERF_TORCH_SIDES][PERF_TORCH_OP_COUNT];
    struct perf_samples server_us[PERF_TORCH_SIDES][PERF_TORCH_OP_COUNT];
};

/* ---- what the clients say -------------------------------------------------------------------- */

/* Blanks between exactly WORDS words. */
static bool split(const char *line, char words[WORDS][WORD_MAX])
{
    size_t len = strcspn(line, "\n");
    for (int i = 0; i < WORDS; i++) {
        size_t word_len = strcspn(line, " \n");
        if (word_len == 0 || word_len >= WORD_MAX || (i == WORDS - 1) != (word_len == len))
            return false;
        memcpy(words[i], line, word_len);
        words[i][word_len] = '\0';
        line += word_len + 1;
        len -= i < WORDS - 1 ? word_len + 1 : 0;
    }
    return true;
}

static bool find(const char *word, const char *const *names, int count, int *ret)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

bool perf_torch_parse(const char *line, struct perf_torch_run *ret)
{
    char words[WORDS][WORD_MAX];
    int side, op;
    int64_t requests, elapsed_us, cpu_us;
    if (!split(line, words) || !find(words[0], side_names, PERF_TORCH_SIDES, &side) ||
        !find(words[1], op_names, PERF_TORCH_OP_COUNT, &op) ||
        ddpi_parse_int(words[2], 1, INT32_MAX, &requests, NULL) != DDP_OK ||
        ddpi_parse_int(words[3], 1, INT64_MAX, &elapsed_us, NULL) != DDP_OK ||
        ddpi_parse_int(words[4], 0, INT64_MAX, &cpu_us, NULL) != DDP_OK)
        return false;
    *ret = (struct perf_torch_run){(enum perf_torch_side)side, (enum perf_torch_op)op,
                                   (double)requests / (double)elapsed_us * 1e6,
                                   (double)cpu_us / (double)requests};
    return true;
}

static bool read_runs(struct torch *torch, FILE *lines, struct ddp_error *err)
{
    char line[256];
    struct perf_torch_run run;
    while (fgets(line, sizeof line, lines) != NULL) {
        if (!perf_torch_parse(line, &run))
            return !ddpi_error_set(err, DDP_E_PROTOCOL, "the clients in '%s' have said '%s'",
                                   torch->python, line);
        if (!perf_add(&torch->rates[run.side][run.op], run.rate) ||
            !perf_add(&torch->server_us[run.side][run.op], run.server_us))
            return !ddpi_error_nomem(err, sizeof(double));
    }
    return true;
}

/* ---- a run of all rounds --------------------------------------------------------------------- */

static bool run_clients(struct perf *perf, struct torch *torch, uint32_t clients,
                        struct ddp_error *err)
{
    char count[16], rounds[16], duration[24], sides[PERF_TORCH_SIDES][64];
    snprintf(count, sizeof count, "%u", clients);
    snprintf(rounds, sizeof rounds, "%u", perf->options.runs);
    snprintf(duration, sizeof duration, "%llu", (unsigned long long)perf->options.duration_ms);
    for (int i = 0; i < PERF_TORCH_SIDES; i++)
        snprintf(sides[i], sizeof sides[i], "%s=%u:%d", side_names[i], torch->servers[i].port,
                 (int)torch->servers[i].pid);
    const char *const words[] = {torch->python, "-c",     perf_torch_script, "clients", count,
                                 rounds,        duration, sides[0],          sides[1],  NULL};
    struct perf_server process;
    int fd;
    if (!perf_server_spawn(words, &process.pid, &fd, err))
        return false;
    FILE *lines = fdopen(fd, "r");
    bool done = lines != NULL ? read_runs(torch, lines, err)
                              : !ddpi_error_sys(err, errno, "cannot read from '%s'", torch->python);
    int status = -1;
    if (!done)
        perf_server_stop(&process);
    else if (waitpid(process.pid, &status, 0) != process.pid || status != 0)
        done = !ddpi_error_set(err, DDP_E_SYSTEM, "the clients in '%s' have failed", torch->python);
    if (lines != NULL)
        fclose(lines);
    else
        close(fd);
    return done;
}

/* @ratio: to PyTorch's server. */
static void print_row(struct perf *perf, struct torch *torch, uint32_t clients, int side, int op,
                      double ratio)
{
    double rate = perf_percentile(&torch->rates[side][op], 50);
    double server_us = perf_percentile(&torch->server_us[side][op], 50);
    printf("| %u | %s | %s | %.0f | %.2f | %.2f |\n", clients, op_names[op], side_names[side], rate,
           ratio, server_us);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"store-torch\",\"clients\":%u,\"op\":\"%s\",\"contender\":\"%s\","
                "\"runs\":%zu,\"requests_per_s\":%.0f,\"ratio_to_torch\":%.3f,"
                "\"server_us_per_request\":%.3f}\n",
                clients, op_names[op], side_names[side], torch->rates[side][op].count, rate, ratio,
                server_us);
}

static void print_runs(struct perf *perf, struct torch *torch, uint32_t clients)
{
    for (int op = 0; op < PERF_TORCH_OP_COUNT; op++)
        for (int side = 0; side < PERF_TORCH_SIDES; side++) {
            double theirs = perf_percentile(&torch->rates[PERF_TORCH_THEIRS][op], 50);
            double ratio = theirs > 0 ? perf_percentile(&torch->rates[side][op], 50) / theirs : 0;
            print_row(perf, torch, clients, side, op, ratio);
        }
}

static bool compare(struct perf *perf, struct torch *torch, uint32_t clients, struct ddp_error *err)
{
    bool done = run_clients(perf, torch, clients, err);
    if (done)
        print_runs(perf, torch, clients);
    for (int side = 0; side < PERF_TORCH_SIDES; side++)
        for (int op = 0; op < PERF_TORCH_OP_COUNT; op++) {
            perf_samples_finish(&torch->rates[side][op]);
            perf_samples_finish(&torch->server_us[side][op]);
        }
    return done;
}

/* ---- the benchmark --------------------------------------------------------------------------- */

/* The Python that is given; else the first that can start PyTorch's server. */
static bool start_theirs(struct perf *perf, struct torch *torch, struct ddp_error *err)
{
    const char *const given[] = {perf->options.python};
    const char *const usual[] = {perf->python, "python3"};
    const char *const *pythons = *given != NULL ? given : usual;
    size_t count = *given != NULL ? 1 : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < count; i++) {
        const char *const words[] = {pythons[i], "-c", perf_torch_script, "server", NULL};
        torch->python = pythons[i];
        if (perf_server_start(words, &torch->servers[PERF_TORCH_THEIRS], err))
            return true;
    }
    return false;
}

bool perf_torch(struct perf *perf, struct ddp_error *err)
{
    static const uint32_t clients[] = {1, 8};
    struct torch torch = {0};
    if (!start_theirs(perf, &torch, err)) {
        if (perf->options.python != NULL)
            return !ddpi_error_wrap(err, err->status, "PyTorch's server");
        printf("\nPyTorch is not there (--python=PATH names a Python that has it).\n");
        return true;
    }
    bool done = perf_server_start_ours(perf, &torch.servers[PERF_TORCH_OURS], err);
    printf(
        "\n| PyTorch's clients | operation | server | requests/s | x PyTorch | server us/request "
        "|\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; done && i < sizeof clients / sizeof *clients; i++)
        done = compare(perf, &torch, clients[i], err);
    for (int side = 0; side < PERF_TORCH_SIDES; side++)
        perf_server_stop(&torch.servers[side]);
    return done;
}
