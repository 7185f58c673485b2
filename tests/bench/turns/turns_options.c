/*
 * turns_options.c - the option table of "ddp-bench turns". The sizes are told as to ddp-perf.
 */
#include "error.h"
#include "perf_coll.h"
#include "turns.h"

extern char **environ;

#define FIELD(member) offsetof(struct turns_options, member)

static const char ranks[] = "Ranks";
static const char peers[] = "Peers";
static const char output[] = "Output";

static const struct option table[] = {
    COLL_SIZE_OPTIONS(FIELD),
    {"nproc", 0, "N", NULL, NULL, ranks, "start N processes for each contender", option_u32,
     FIELD(nproc), 2, 4096},
    {"alloc", 0, NULL, NULL, NULL, ranks, "take the buffers of libddpcomm from ddp_alloc()",
     option_switch, FIELD(alloc), 0, 0},
    {"ddprun", 0, "PATH", NULL, "next to this program, or in PATH", ranks, "use this ddprun",
     option_text, FIELD(ddprun), 0, 0},
    {"mpi", 0, NULL, NULL, NULL, peers,
     "compare with the MPI implementations for which ddp-bench was built", option_switch,
     FIELD(mpi), 0, 0},
    {"gloo", 0, NULL, NULL, NULL, peers,
     "compare with PyTorch's gloo, in the python3 that is in PATH", option_switch, FIELD(gloo), 0,
     0},
    {"json", 0, "FILE", NULL, NULL, output, "add every figure to FILE, one JSON object per line",
     option_text, FIELD(json), 0, 0},
    OPTION_HELP(output, FIELD(help)),
};

const struct option_table turns_option_table = {
    .program = "ddp-bench turns", .options = table, .count = sizeof table / sizeof *table};

static ddp_status find_call(const char *name, enum coll_call *ret, struct ddp_error *err)
{
    if (!coll_find(name, ret))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not a collective; see --help", name);
    if (*ret == COLL_REDUCE || *ret == COLL_SENDRECV)
        return ddpi_error_set(err, DDP_E_INVALID, "%s is not compared with other libraries", name);
    return DDP_OK;
}

ddp_status turns_options_parse(int argc, char **argv, struct turns_options *ret,
                               struct ddp_error *err)
{
    int operand;
    bool named = argc > 1 && argv[1][0] != '-';
    *ret = (struct turns_options){.begin = 32 << 20, .end = 32 << 20, .step = 1 << 20, .factor = 1};
    ddp_status status =
        options_parse(&turns_option_table, argc - named, argv + named, environ, ret, &operand, err);
    if (status != DDP_OK || ret->help)
        return status;
    if (!named)
        return ddpi_error_set(err, DDP_E_INVALID, "turns needs a collective, such as allreduce");
    if (operand != argc - named)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not an option; see --help",
                              argv[operand + named]);
    if (ret->nproc == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "turns needs --nproc=N, at least 2");
    if (ret->end < ret->begin)
        ret->end = ret->begin;
    return find_call(argv[1], &ret->call, err);
}
