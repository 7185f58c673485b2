/*
 * report.c - see report.h. Owns nothing, reads no file, prints nothing.
 */
#include "report.h"

#include "excerpt.h"
#include "hint.h"
#include "signames.h"
#include "tail.h"
#include "text.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define BOLD_RED "\033[1;31m"
#define PLAIN    "\033[0m"

enum { STDERR_LINES = 20, TRACEBACK_LINES = 40, LINE_SHOWN = 400, WORKERS_SHOWN = 8 };

DDP_PRINTF(2, 3) static bool add_text(struct ddpi_buf *out, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (len < 0)
        return false;
    size_t shown = (size_t)len < sizeof text ? (size_t)len : sizeof text - 1;
    return ddpi_buf_append(out, text, shown);
}

void report_cause(const struct report_worker *worker, char *text, size_t size)
{
    int status = worker->wait_status;
    char name[SIGNAME_MAX];
    if (WIFEXITED(status)) {
        snprintf(text, size, "exit code %d", WEXITSTATUS(status));
        return;
    }
    int sig = WTERMSIG(status);
    if (sig == SIGKILL && worker->oom)
        snprintf(text, size, "killed by the kernel's out-of-memory killer (SIGKILL)");
    else
        snprintf(text, size, "killed by %s (%s)%s", signame_of(sig, name), signame_meaning(sig),
                 WCOREDUMP(status) ? ", core dumped" : "");
}

void report_duration(uint64_t us, char *text, size_t size)
{
    if (us < 1000)
        snprintf(text, size, "%" PRIu64 " us", us);
    else if (us < 1000000)
        snprintf(text, size, "%.1f ms", (double)us / 1e3);
    else if (us < UINT64_C(3600) * 1000000)
        snprintf(text, size, "%.1f s", (double)us / 1e6);
    else
        snprintf(text, size, "%" PRIu64 " h %02" PRIu64 " min", us / 3600000000,
                 us / 60000000 % 60);
}

/* Write control characters as escapes; a C1 control has two bytes, the second is its code. */
static bool add_harmless(struct ddpi_buf *out, const char *text, size_t len)
{
    bool ok = true, control;
    for (size_t i = 0, size; i < len && ok; i += size) {
        size = ddpi_text_char(text + i, len - i, &control);
        if (!control)
            ok = ddpi_buf_append(out, text + i, size);
        else
            ok = text[i] == '\r' || add_text(out, "\\x%02x", (unsigned char)text[i + size - 1]);
    }
    return ok;
}

/* Add one line of a worker's text. */
static bool add_quoted_line(struct ddpi_buf *out, const char *line, size_t len)
{
    size_t shown = len < LINE_SHOWN ? len : LINE_SHOWN;
    return add_text(out, "  | ") && add_harmless(out, line, shown) &&
           add_text(out, shown < len ? " ... (%zu bytes more)\n" : "\n", len - shown);
}

static bool add_quoted(struct ddpi_buf *out, const char *text, size_t len, unsigned lines)
{
    size_t from = tail_last_lines(text, len, lines);
    bool ok = true;
    while (from < len && ok) {
        const char *newline = memchr(text + from, '\n', len - from);
        size_t line = newline != NULL ? (size_t)(newline - (text + from)) : len - from;
        ok = add_quoted_line(out, text + from, line);
        from += line + 1;
    }
    return ok;
}

static bool add_error_file(const struct report_worker *worker, struct ddpi_buf *out)
{
    const char *note = worker->error_file_note; /* quotes the file */
    if (note != NULL && !(add_text(out, "  note: ") && add_harmless(out, note, strlen(note)) &&
                          add_text(out, "\n")))
        return false;
    if (worker->error_message == NULL)
        return true;
    const char *text =
        worker->error_traceback != NULL ? worker->error_traceback : worker->error_message;
    return add_text(out, "  the error that it recorded:\n") &&
           add_quoted(out, text, strlen(text), TRACEBACK_LINES);
}

/* The lines before and after the traceback, which is shown already. */
static bool add_rest_of_stderr(const struct report_worker *worker, struct excerpt traceback,
                               struct ddpi_buf *out)
{
    const char *behind = worker->stderr_tail + traceback.to;
    size_t behind_len = worker->stderr_tail_len - traceback.to;
    if (traceback.from == 0 && behind_len == 0)
        return true;
    return add_text(out, "  its last lines of stderr, without that:\n") &&
           add_quoted(out, worker->stderr_tail, traceback.from, STDERR_LINES / 2) &&
           add_quoted(out, behind, behind_len, STDERR_LINES);
}

static bool add_stderr(const struct report_worker *worker, struct ddpi_buf *out)
{
    struct excerpt traceback;
    if (worker->log_full && !add_text(out, "  what it wrote to stderr may be lost: the file system "
                                           "of its log has no space left\n"))
        return false;
    if (worker->stderr_tail_len == 0)
        return worker->log_full || add_text(out, "  it wrote nothing to stderr\n");
    if (worker->error_traceback != NULL &&
        excerpt_find(worker->stderr_tail, worker->stderr_tail_len, worker->error_traceback,
                     &traceback))
        return add_rest_of_stderr(worker, traceback, out);
    return add_text(out, "  its last lines of stderr:\n") &&
           add_quoted(out, worker->stderr_tail, worker->stderr_tail_len, STDERR_LINES);
}

/* In pieces: a path may be longer than the limit of add_text(). */
static bool add_log(const char *path, struct ddpi_buf *out)
{
    return path == NULL || (add_text(out, "  its log: ") &&
                            ddpi_buf_append(out, path, strlen(path)) && add_text(out, "\n"));
}

static bool add_logs(const struct report_worker *worker, struct ddpi_buf *out)
{
    if (worker->stderr_log == NULL && worker->stdout_log == NULL)
        return add_text(out, "  its log: not kept; '--log-dir=DIR --tee=3' keeps one per rank\n");
    return add_log(worker->stderr_log, out) && add_log(worker->stdout_log, out);
}

static bool add_gpus(const struct report *report, struct ddpi_buf *out)
{
    const char *gpus = report->root->gpus;
    return (gpus == NULL || add_text(out, "  its GPU: %s\n", gpus)) &&
           ddpi_buf_append(out, report->gpu_faults, report->gpu_faults_len);
}

static bool add_oom_others(const struct report_worker *worker, struct ddpi_buf *out)
{
    uint64_t kills = worker->oom_others;
    return kills == 0 || add_text(out,
                                  "  the kernel's out-of-memory killer has killed %" PRIu64
                                  " other process%s since the start, perhaps one of this rank\n",
                                  kills, kills == 1 ? "" : "es");
}

static bool add_root(const struct report *report, struct ddpi_buf *out)
{
    const struct report_worker *root = report->root;
    char cause[160], ran[32];
    report_cause(root, cause, sizeof cause);
    report_duration(root->ran_us, ran, sizeof ran);
    return add_text(out, "%sddprun: rank %" PRIu32 " failed first: %s%s, after %s",
                    report->colours ? BOLD_RED : "", root->rank, cause,
                    report->colours ? PLAIN : "", ran) &&
           add_text(out, " (local rank %" PRIu32 ", pid %d, host %s)\n", root->local_rank,
                    (int)root->pid, report->host) &&
           add_oom_others(root, out) && add_gpus(report, out) && add_error_file(root, out) &&
           add_stderr(root, out) &&
           hint_add(root->wait_status, root->stderr_tail, root->stderr_tail_len,
                    report->interpreter, out) &&
           add_logs(root, out);
}

static bool add_other(const struct report_worker *worker, struct ddpi_buf *out)
{
    char cause[160], later[32];
    report_cause(worker, cause, sizeof cause);
    report_duration(worker->after_root_us, later, sizeof later);
    const char *how = worker->forced                   ? "did not stop in time, "
                      : worker->by_us                  ? "stopped by ddprun, "
                      : WIFEXITED(worker->wait_status) ? "exited by itself, "
                                                       : "";
    return add_text(out, "  then rank %" PRIu32 ": %s%s, %s later (pid %d)\n", worker->rank, how,
                    cause, later, (int)worker->pid);
}

static bool add_earlier(const struct report_worker *worker, struct ddpi_buf *out)
{
    char earlier[32];
    report_duration(worker->before_root_us, earlier, sizeof earlier);
    return add_text(out,
                    "  before that rank %" PRIu32 " ended with exit code 0, %s earlier (pid %d)\n",
                    worker->rank, earlier, (int)worker->pid);
}

/* The first of @workers, each by @add; and how many more there are. */
static bool add_workers(const struct report_worker *workers, size_t count,
                        bool (*add)(const struct report_worker *, struct ddpi_buf *),
                        struct ddpi_buf *out)
{
    size_t shown = count <= WORKERS_SHOWN ? count : WORKERS_SHOWN - 1;
    bool ok = true;
    for (size_t i = 0; i < shown && ok; i++)
        ok = add(&workers[i], out);
    return ok && (shown == count || add_text(out, "  and %zu others\n", count - shown));
}

bool report_failure(const struct report *report, struct ddpi_buf *out)
{
    return add_root(report, out) &&
           add_workers(report->earlier, report->earlier_count, add_earlier, out) &&
           add_workers(report->others, report->others_count, add_other, out);
}

bool report_node_check(const char *what, const char *output, size_t len, struct ddpi_buf *out)
{
    bool ok = add_text(out, "ddprun: ") && add_harmless(out, what, strlen(what));
    if (len == 0)
        return ok && add_text(out, "\n  it wrote nothing\n");
    return ok && add_text(out, "\n  its last lines:\n") &&
           add_quoted(out, output, len, STDERR_LINES);
}
