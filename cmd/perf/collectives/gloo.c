/*
 * gloo.c - starts PyTorch with the script gloo.py, which measures gloo on the sizes
 * of a report, and makes a table of what it says. Owns the process.
 */
#include "error.h"
#include "mem.h"
#include "parse.h"
#include "perf_coll_rank.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
extern const char perf_gloo_script[]; /* gloo.py */

enum { WORDS = 11, NUMBER = 24, NO_TORCH = 3, NOT_FOUND = 127 };

/* ---- the process ---- */

static bool spawn(const char *const *words, pid_t *ret_pid, FILE **ret_lines, struct ddp_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ddpi_error_sys(err, errno, "cannot make a pipe") == DDP_OK;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    /* posix_spawn does not write to argv; its type is older than const. */
    int failed =
        posix_spawnp(ret_pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *ret_lines = failed == 0 ? fdopen(ends[0], "r") : NULL;
    if (*ret_lines == NULL)
        close(ends[0]);
    return failed == 0 && *ret_lines != NULL;
}

static int await_exit(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- what it says ---- */

static const struct coll_row *find_row(const struct coll_report *report, int64_t len)
{
    for (size_t i = 0; i < report->count; i++)
        if (report->rows[i].shape.size == (size_t)len)
            return &report->rows[i];
    return NULL;
}

/* "SIZE NANOSECONDS\n" */
static bool read_line(const struct coll_report *report, char *line, bool *first)
{
    int64_t size, ns;
    char *blank = strchr(line, ' ');
    if (blank == NULL)
        return false;
    *blank = '\0';
    blank[1 + strcspn(blank + 1, "\n")] = '\0';
    if (ddpi_parse_int(line, 0, INT64_MAX, &size, NULL) != DDP_OK ||
        ddpi_parse_int(blank + 1, 1, INT64_MAX, &ns, NULL) != DDP_OK)
        return false;
    const struct coll_row *row = find_row(report, size);
    if (row == NULL)
        return false;
    if (*first)
        coll_report_peer_header("gloo");
    *first = false;
    coll_report_peer(report, row, "gloo", (double)ns / 1000);
    return true;
}

static bool read_lines(const struct coll_report *report, FILE *lines, struct ddp_error *err)
{
    char line[256];
    bool first = true;
    while (fgets(line, sizeof line, lines) != NULL)
        if (!read_line(report, line, &first))
            return ddpi_error_set(err, DDP_E_PROTOCOL, "the script for gloo has said '%s'", line) ==
                   DDP_OK;
    return true;
}

/* ---- the benchmark ---- */

struct words {
    const char **words;
    char (*sizes)[NUMBER];
    char ranks[NUMBER], root[NUMBER], iters[NUMBER], warmup[NUMBER];
};

static bool make_words(const struct coll_report *report, const char *python, struct words *made,
                       struct ddp_error *err)
{
    const struct coll_options *options = report->options;
    made->words = ddpi_calloc(WORDS + report->count + 1, sizeof *made->words);
    made->sizes = ddpi_calloc(report->count + 1, sizeof *made->sizes);
    if (made->words == NULL || made->sizes == NULL)
        return ddpi_error_nomem(err, report->count * NUMBER) == DDP_OK;
    snprintf(made->ranks, NUMBER, "%u", report->ranks);
    snprintf(made->root, NUMBER, "%u", options->root);
    snprintf(made->iters, NUMBER, "%u", options->iters);
    snprintf(made->warmup, NUMBER, "%u", options->warmup);
    const char *const first[WORDS] = {python,
                                      "-c",
                                      perf_gloo_script,
                                      made->ranks,
                                      coll_kinds[report->call].name,
                                      ddp_dtype_name(options->dtype),
                                      ddp_reduce_op_name(options->op),
                                      made->root,
                                      made->iters,
                                      made->warmup,
                                      *report->seats[0].name != '\0' ? "cuda" : "cpu"};
    memcpy(made->words, first, sizeof first);
    for (size_t i = 0; i < report->count; i++) {
        snprintf(made->sizes[i], NUMBER, "%zu", report->rows[i].shape.size);
        made->words[WORDS + i] = made->sizes[i];
    }
    return true;
}

/* False, with *@ret_status, where this Python has no PyTorch. */
static bool try_python(const struct coll_report *report, const char *python, int *ret_status,
                       struct ddp_error *err)
{
    struct words made = {0};
    pid_t pid;
    FILE *lines;
    *ret_status = NOT_FOUND;
    bool done = make_words(report, python, &made, err);
    if (done && spawn(made.words, &pid, &lines, err)) {
        done = read_lines(report, lines, err);
        fclose(lines);
        *ret_status = await_exit(pid);
    }
    ddpi_free(made.words);
    ddpi_free(made.sizes);
    return done;
}

bool coll_gloo(const struct coll_report *report, struct ddp_error *err)
{
    const char *given = report->options->python;
    const char *const pythons[] = {given, "python3"};
    int status = NOT_FOUND;
    for (size_t i = given == NULL; i < sizeof pythons / sizeof *pythons; i++) {
        if (!try_python(report, pythons[i], &status, err))
            return false;
        if (status != NO_TORCH && status != NOT_FOUND)
            break;
    }
    if (status == NO_TORCH || status == NOT_FOUND)
        printf("\ngloo is left out: no Python here has PyTorch with such a call (--python=PATH "
               "names one).\n");
    else if (status != 0)
        return ddpi_error_set(err, DDP_E_SYSTEM, "gloo has failed, see above") == DDP_OK;
    return true;
}
