/*
 * coll_options.c - the option table of the benchmarks of collectives. Short options mean the
 * same as in nccl-tests.
 */
#include "error.h"
#include "perf_coll.h"

#include <string.h>

extern char **environ;

/* ---- values ---- */

struct word {
    const char *text;
    unsigned value;
};

_Static_assert(sizeof(ddp_dtype) == sizeof(unsigned) && sizeof(ddp_reduce_op) == sizeof(unsigned),
               "find_word() fills fields of both types");

static ddp_status find_word(const struct word *words, const char *text, unsigned *field,
                            struct ddp_error *err)
{
    for (size_t i = 0; words[i].text != NULL; i++)
        if (strcmp(words[i].text, text) == 0) {
            *field = words[i].value;
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a value that --help lists", text);
}

static ddp_status option_dtype(const struct option *option, const char *text, void *field,
                               struct ddp_error *err)
{
    static const struct word words[] = {{"float32", DDP_FLOAT32},   {"float", DDP_FLOAT32},
                                        {"float64", DDP_FLOAT64},   {"double", DDP_FLOAT64},
                                        {"int32", DDP_INT32},       {"int64", DDP_INT64},
                                        {"bfloat16", DDP_BFLOAT16}, {"half", DDP_FLOAT16},
                                        {"float16", DDP_FLOAT16},   {NULL, 0}};
    (void)option;
    return find_word(words, text, field, err);
}

static ddp_status option_op(const struct option *option, const char *text, void *field,
                            struct ddp_error *err)
{
    static const struct word words[] = {
        {"sum", DDP_SUM},         {"average", DDP_AVERAGE}, {"avg", DDP_AVERAGE}, {"min", DDP_MIN},
        {"product", DDP_PRODUCT}, {"prod", DDP_PRODUCT},    {"max", DDP_MAX},     {NULL, 0}};
    (void)option;
    return find_word(words, text, field, err);
}

/* ---- the table ---- */

#define FIELD(member) offsetof(struct coll_options, member)

static const char calls[] = "Calls";
static const char ranks[] = "Ranks";
static const char output[] = "Output";

static const struct option table[] = {
    COLL_SIZE_OPTIONS(FIELD),
    {"iters", 'n', "N", NULL, "20", calls, "time N calls of each size", option_u32, FIELD(iters), 1,
     1000000},
    {"warmup-iters", 'w', "N", NULL, "1", calls, "make N calls before those", option_u32,
     FIELD(warmup), 0, 1000000},
    {"check", 'c', "0|1", NULL, "1", calls,
     "compare each element of one call with the expected result", option_u32, FIELD(check), 0, 1},
    {"op", 'o', "OP", NULL, "sum", calls,
     "reduction: sum, average (avg), min, max or product (prod)", option_op, FIELD(op), 0, 0},
    {"datatype", 'd', "TYPE", NULL, "float32", calls,
     "element type: float32 (float), float64 (double), float16 (half), bfloat16, int32 or int64",
     option_dtype, FIELD(dtype), 0, 0},
    {"root", 'r', "RANK", NULL, "0", calls, "root of reduce and broadcast", option_u32, FIELD(root),
     0, 1 << 20},
    {"algorithm", 0, "auto|ring|direct|doubling|hierarchical", "DDP_ALGORITHM", "auto", calls,
     "order in which elements are reduced", option_choice, FIELD(algorithm), 0, 0},
    {"alloc", 0, NULL, NULL, NULL, calls, "take buffers in host memory from ddp_alloc()",
     option_switch, FIELD(alloc), 0, 0},
    {"device", 0, "auto|cuda|cpu", NULL, "auto", ranks,
     "use memory of the GPU or of the host; auto: of the GPU if there is one", option_choice,
     FIELD(place), 0, 0},
    {"nproc", 0, "N", NULL, NULL, ranks,
     "start N processes with ddprun; without this option, and outside ddprun, there is one rank",
     option_u32, FIELD(nproc), 1, 4096},
    {"nodes", 0, "N", NULL, NULL, ranks,
     "divide the processes of --nproc among N pretended nodes: ranks of different ones use TCP",
     option_u32, FIELD(nodes), 1, 4096},
    {"local", 0, "N", NULL, NULL, ranks, "run N ranks as threads of one process", option_u32,
     FIELD(local), 1, 256},
    {"ddprun", 0, "PATH", NULL, "next to ddp-perf, or in PATH", ranks,
     "use this ddprun for --nproc", option_text, FIELD(ddprun), 0, 0},
    {"breakdown", 0, NULL, NULL, NULL, output,
     "with --device=cuda: show where the time of one call goes, for each size", option_switch,
     FIELD(breakdown), 0, 0},
    {"json", 0, "FILE", NULL, NULL, output, "write every figure to FILE, one JSON object per line",
     option_text, FIELD(json), 0, 0},
    OPTION_HELP(output, FIELD(help)),
};

const struct option_table coll_option_table = {
    .program = "ddp-perf allreduce", .options = table, .count = sizeof table / sizeof *table};

static const struct coll_options standard = {
    .begin = 32 << 20,
    .end = 32 << 20,
    .step = 1 << 20,
    .factor = 1,
    .iters = 20,
    .warmup = 1,
    .check = 1,
    .op = DDP_SUM,
    .dtype = DDP_FLOAT32,
};

ddp_status coll_options_parse(int argc, char **argv, struct coll_options *ret,
                              struct ddp_error *err)
{
    int operand;
    *ret = standard;
    ddp_status status = options_parse(&coll_option_table, argc, argv, environ, ret, &operand, err);
    if (status != DDP_OK)
        return status;
    if (operand != argc)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not an option; see --help",
                              argv[operand]);
    if (ret->nproc != 0 && ret->local != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--nproc starts processes and --local threads; choose one of them");
    if (ret->nodes != 0 && ret->local != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--nodes divides processes, and --local starts threads: use --nproc");
    if (ret->end < ret->begin)
        ret->end = ret->begin;
    return DDP_OK;
}
