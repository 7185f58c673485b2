/*
 * tune_options.c - the option table of "ddp-perf tune".
 */
#include "error.h"
#include "perf_coll.h"
#include "tune.h"
#include "tune_rows.h"

#include <inttypes.h>
#include <stdlib.h>

extern char **environ;

#define FIELD(member) offsetof(struct tune_options, member)

static const char ranks[] = "Ranks";
static const char output[] = "Output";

static const struct option table[] = {
    {"minbytes", 'b', "SIZE", NULL, "8", COLL_SIZES, "smallest size", option_size, FIELD(begin), 0,
     COLL_MOST_BYTES},
    {"maxbytes", 'e', "SIZE", NULL, "64M", COLL_SIZES, "largest size", option_size, FIELD(end), 0,
     COLL_MOST_BYTES},
    {"stepfactor", 'f', "N", NULL, "4", COLL_SIZES, "multiply the size by N each time", option_u32,
     FIELD(factor), 2, 1024},
    {"nproc", 0, "N", NULL, NULL, ranks, "start N processes with ddprun, for each algorithm",
     option_u32, FIELD(nproc), 2, TUNE_RANKS},
    {"nodes", 0, "N", NULL, "1", ranks,
     "divide them among N pretended nodes: ranks of different ones use TCP", option_u32,
     FIELD(nodes), 1, TUNE_RANKS},
    {"ddprun", 0, "PATH", NULL, "next to ddp-perf, or in PATH", ranks, "use this ddprun",
     option_text, FIELD(ddprun), 0, 0},
    {"output", 0, "FILE", NULL, NULL, output, "write the table for DDP_ALGORITHM_TABLE to FILE",
     option_text, FIELD(output), 0, 0},
    {"json", 0, "FILE", NULL, NULL, output, "write every figure to FILE, one JSON object per line",
     option_text, FIELD(json), 0, 0},
    OPTION_HELP(output, FIELD(help)),
};

const struct option_table tune_option_table = {
    .program = "ddp-perf tune", .options = table, .count = sizeof table / sizeof *table};

static ddp_status check_sizes(const struct tune_options *options, struct ddp_error *err)
{
    unsigned count = 0;
    if (options->begin < sizeof(float) || options->begin > options->end)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--minbytes=%" PRIu64 " --maxbytes=%" PRIu64
                              ": the smallest size is at least %zu, an element, and at most the "
                              "largest one",
                              options->begin, options->end, sizeof(float));
    for (uint64_t bytes = options->begin; bytes != 0;
         bytes = coll_next_size(bytes, options->end, 0, options->factor))
        count++;
    if (count > TUNE_SIZES)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%u sizes are more than the %d that a table has room for: choose a "
                              "larger --stepfactor, or a smaller --maxbytes",
                              count, TUNE_SIZES);
    return DDP_OK;
}

/* Which ranks share memory is known only if nothing else decides about it. */
static ddp_status check_ranks(const struct tune_options *options, struct ddp_error *err)
{
    static const char *const dividing[] = {"DDP_FORCE_TCP", "DDP_HOST_ID"};
    if (options->nproc == 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tune needs --nproc=N, the number of ranks to measure with");
    if (options->nodes > options->nproc)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%u ranks cannot be divided among %u nodes: each has at least one",
                              options->nproc, options->nodes);
    for (size_t i = 0; i < sizeof dividing / sizeof *dividing; i++)
        if (getenv(dividing[i]) != NULL)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s is set and decides which ranks share memory: unset it, and "
                                  "use --nodes",
                                  dividing[i]);
    return DDP_OK;
}

ddp_status tune_options_parse(int argc, char **argv, struct tune_options *ret,
                              struct ddp_error *err)
{
    int operand;
    *ret = (struct tune_options){.begin = 8, .end = 64 << 20, .factor = 4, .nodes = 1};
    ddp_status status = options_parse(&tune_option_table, argc, argv, environ, ret, &operand, err);
    if (status != DDP_OK || ret->help)
        return status;
    if (operand != argc)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not an option; see --help",
                              argv[operand]);
    if (ret->output == NULL || *ret->output == '\0')
        return ddpi_error_set(err, DDP_E_INVALID,
                              "tune needs --output=FILE, where the table is written");
    status = check_ranks(ret, err);
    return status == DDP_OK ? check_sizes(ret, err) : status;
}
