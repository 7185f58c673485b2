/*
 * run.c - runs a benchmark of collectives: as a worker of ddprun, as threads of this process, or by
 * executing ddprun, which starts this program again as its workers. Owns the communicators.
 */
#include "perf_coll.h"

#include "error.h"
#include "mem.h"
#include "parse.h"
#include "perf_coll_context.h"
#include "perf_node.h"
#include "perf_program.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_TEXT = 4096, FAILED = 1, USAGE = 2, NOT_STARTED = 78 };

static int coll_fail(int code, const struct ddp_error *err)
{
    fprintf(stderr, "ddp-perf: %s\n", err->msg);
    return code;
}

bool coll_find(const char *name, enum coll_call *ret)
{
    for (int call = 0; call < COLL_CALLS; call++)
        if (strcmp(name, coll_kinds[call].name) == 0 || strcmp(name, coll_kinds[call].other) == 0) {
            *ret = (enum coll_call)call;
            return true;
        }
    return false;
}

/* ---- one rank ---- */

/* Clean up after the run, in the thread that ran it. */
static int leave_rank(struct coll_rank *rank, bool done, struct ddp_error *err)
{
    ddp_comm_destroy(rank->comm);
    ddp_comm_destroy(rank->side);
    coll_memory_close(&rank->memory);
    bool correct = coll_report_correct(&rank->report);
    struct ddp_error *first = done ? err : NULL;
    done = coll_report_close(&rank->report, first) && done;
    ddpi_free(rank->seats);
    return !done ? coll_fail(FAILED, err) : correct ? 0 : FAILED;
}

static bool choose_place(const struct coll_options *options)
{
    return options->place == COLL_CUDA || (options->place == COLL_AUTO && coll_devices() > 0);
}

/* A rank that is a process, started by ddprun or alone: the environment says which. */
static int run_process(const struct coll_options *options, enum coll_call call)
{
    struct ddp_error err = {0};
    int64_t local = 0;
    const char *text = getenv("LOCAL_RANK");
    if (text != NULL && ddpi_parse_int(text, 0, UINT32_MAX, &local, &err) != DDP_OK)
        return coll_fail(USAGE, &err);
    if (perf_pretend_node(options->nodes, &err) != DDP_OK)
        return coll_fail(USAGE, &err);
    struct coll_rank rank = {
        .options = options, .call = call, .cuda = choose_place(options), .local = (uint32_t)local};
    const struct ddp_comm_options measured = {
        .size = sizeof measured, .name = "perf", .algorithm = options->algorithm};
    const struct ddp_comm_options side = {.size = sizeof side, .name = "perf-side"};
    bool done = ddp_comm_init(&measured, &rank.comm, &err) == DDP_OK &&
                ddp_comm_init(&side, &rank.side, &err) == DDP_OK && coll_rank_run(&rank, &err);
    return leave_rank(&rank, done, &err);
}

/* ---- threads ---- */

struct thread {
    pthread_t id;
    struct coll_rank rank;
    int code;
};

static void *run_thread(void *arg)
{
    struct thread *thread = arg;
    struct ddp_error err = {0};
    bool done = coll_rank_run(&thread->rank, &err);
    thread->code = leave_rank(&thread->rank, done, &err);
    return NULL;
}

/* Each thread owns its communicators from here on. */
static int run_threads(struct thread *threads, uint32_t count)
{
    int code = 0;
    uint32_t started = 0;
    while (started < count &&
           pthread_create(&threads[started].id, NULL, run_thread, &threads[started]) == 0)
        started++;
    for (uint32_t i = started; i < count; i++) { /* the other ranks see that this one left */
        ddp_comm_destroy(threads[i].rank.comm);
        ddp_comm_destroy(threads[i].rank.side);
        code = FAILED;
    }
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i].id, NULL);
        code = threads[i].code != 0 ? threads[i].code : code;
    }
    return code;
}

/* The library reads the algorithm of a local world only from the environment. */
static ddp_status make_local_world(const struct coll_options *options, ddp_comm **comms,
                                   ddp_comm **sides, struct ddp_error *err)
{
    static const char *const names[] = {
#define ALGORITHM_NAME(symbol, name) [symbol] = name,
        DDP_ALGORITHM_MAP(ALGORITHM_NAME)
#undef ALGORITHM_NAME
    };
    uint32_t count = options->local;
    int seen = coll_devices();
    int *devices = ddpi_calloc(count, sizeof *devices);
    if (devices == NULL)
        return ddpi_error_nomem(err, count * sizeof *devices);
    for (uint32_t rank = 0; seen > 0 && rank < count; rank++)
        devices[rank] = (int)rank % seen;
    setenv("DDP_ALGORITHM", names[options->algorithm], 1);
    ddp_status status = ddp_comm_init_local(count, devices, comms, err);
    if (status == DDP_OK) {
        status = ddp_comm_init_local(count, devices, sides, err);
        for (uint32_t rank = 0; status != DDP_OK && rank < count; rank++)
            ddp_comm_destroy(comms[rank]);
    }
    ddpi_free(devices);
    return status;
}

static int run_local(const struct coll_options *options, enum coll_call call)
{
    struct ddp_error err = {0};
    uint32_t count = options->local;
    bool cuda = choose_place(options);
    ddp_comm **comms = ddpi_calloc(2 * (size_t)count, sizeof(ddp_comm *));
    struct thread *threads = ddpi_calloc(count, sizeof *threads);
    int code = FAILED;
    if (comms == NULL || threads == NULL) {
        ddpi_error_nomem(&err, count * sizeof *threads);
        coll_fail(FAILED, &err);
    } else if (make_local_world(options, comms, comms + count, &err) != DDP_OK) {
        coll_fail(FAILED, &err);
    } else {
        for (uint32_t i = 0; i < count; i++)
            threads[i].rank = (struct coll_rank){.options = options,
                                                 .call = call,
                                                 .cuda = cuda,
                                                 .local = i,
                                                 .comm = comms[i],
                                                 .side = comms[count + i]};
        code = run_threads(threads, count);
    }
    ddpi_free(comms);
    ddpi_free(threads);
    return code;
}

/* ---- processes ---- */

/* The workers get the same arguments, and see RANK in their environment. */
static int become_ddprun(const struct coll_options *options, enum coll_call call, int argc,
                         char **argv)
{
    char path[PATH_TEXT], nproc[64];
    struct ddp_error err;
    snprintf(nproc, sizeof nproc, "--nproc-per-node=%u", options->nproc);
    char self[PATH_TEXT] = {0};
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) {
        ddpi_error_sys(&err, errno, "cannot find the path of this program");
        return coll_fail(NOT_STARTED, &err);
    }
    perf_find_program("ddprun", options->ddprun, path, sizeof path);
    const char *const first[] = {path, nproc, "--no-prefix", self, coll_kinds[call].name};
    enum { FIRST = sizeof first / sizeof *first };
    const char **words = ddpi_calloc(FIRST + (size_t)argc + 1, sizeof *words);
    if (words == NULL) {
        ddpi_error_nomem(&err, (size_t)argc * sizeof *words);
        return coll_fail(NOT_STARTED, &err);
    }
    memcpy(words, first, sizeof first);
    for (int i = 1; i < argc; i++)
        words[FIRST + i - 1] = argv[i];
    execvp(path, (char *const *)(uintptr_t)words); /* execvp does not write to argv */
    ddpi_error_sys(&err, errno, "cannot start '%s'", path);
    ddpi_free(words);
    return coll_fail(NOT_STARTED, &err);
}

/* ---- main ---- */

static void print_coll_help(void)
{
    fputs("usage: ddp-perf CALL [OPTIONS]\n"
          "       ddprun --nproc-per-node=N ddp-perf CALL [OPTIONS]\n\nCALL is one of",
          stdout);
    for (int call = 0; call < COLL_CALLS; call++)
        printf(" %s", coll_kinds[call].name);
    putchar('\n');
    options_print_help(&coll_option_table, stdout);
}

int coll_main(enum coll_call call, int argc, char **argv)
{
    struct ddp_error err;
    struct coll_options options;
    if (coll_options_parse(argc, argv, &options, &err) != DDP_OK)
        return coll_fail(USAGE, &err);
    if (options.help) {
        print_coll_help();
        return 0;
    }
    bool launched = getenv("RANK") != NULL;
    if (options.nproc > 0 && !launched)
        return become_ddprun(&options, call, argc, argv);
    return options.local > 0 ? run_local(&options, call) : run_process(&options, call);
}
