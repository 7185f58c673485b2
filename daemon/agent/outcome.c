/*
 * outcome.c - collects the facts of a generation that has ended, for report.c to format. Reads
 * error files and the ends of log files; owns nothing beyond a call.
 */
#include "outcome.h"

#include "clock.h"
#include "error_file.h"
#include "exit_codes.h"
#include "hint.h"
#include "mem.h"
#include "parse.h"
#include "report.h"
#include "text.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t since(uint64_t later_us, uint64_t earlier_us)
{
    return later_us > earlier_us ? later_us - earlier_us : 0;
}

static struct report_worker worker_facts(const struct agent *agent,
                                         const struct worker_proc *worker)
{
    return (struct report_worker){
        .rank = worker->rank,
        .local_rank = worker->local_rank,
        .pid = worker->pid,
        .wait_status = worker->wait_status,
        .by_us = worker->stopped_in != WORKER_RUNNING,
        .forced = worker->stopped_in == WORKER_KILLING,
        .ran_us = since(worker->ended_us, worker->started_us),
        .after_root_us = since(worker->ended_us, agent->root->ended_us),
        .before_root_us = since(agent->root->ended_us, worker->ended_us),
        .stdout_log = worker->log_files[0],
        .stderr_log = worker->log_files[1],
    };
}

/* The end of the log file, for a stderr that went straight to it. */
static size_t read_file_end(const char *path, char *out, size_t size)
{
    /* O_NONBLOCK: a worker may have put a FIFO there. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    off_t end = lseek(fd, 0, SEEK_END);
    off_t from = end > (off_t)size ? end - (off_t)size : 0;
    ssize_t len = end > 0 ? pread(fd, out, size, from) : 0;
    close(fd);
    return len > 0 ? (size_t)len : 0;
}

static size_t stderr_tail(const struct worker_proc *worker, char *out)
{
    size_t len = tail_copy(&worker->streams[1].tail, out);
    if (len == 0 && worker->log_files[1] != NULL)
        len = read_file_end(worker->log_files[1], out, TAIL_SIZE);
    return ddpi_text_plain(out, len);
}

/* A file that a worker writes to by itself: the agent sees no error. */
static bool has_no_space(const char *path)
{
    struct statvfs stat;
    return path != NULL && statvfs(path, &stat) == 0 &&
           (geteuid() == 0 ? stat.f_bfree : stat.f_bavail) == 0;
}

static int by_time_from_root(const void *a, const void *b)
{
    const struct report_worker *x = a, *y = b;
    if (x->after_root_us != y->after_root_us)
        return x->after_root_us < y->after_root_us ? -1 : 1;
    if (x->before_root_us != y->before_root_us)
        return x->before_root_us < y->before_root_us ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool failed_later(const struct agent *agent, const struct worker_proc *worker)
{
    return worker != agent->root && worker_proc_failed(worker);
}

static bool ended_well_before(const struct agent *agent, const struct worker_proc *worker)
{
    return worker->sm.state == WORKER_EXITED && worker->wait_status == 0 &&
           worker->ended_us < agent->root->ended_us;
}

/* Those that are @chosen, nearest in time to the first failure first; has room for all. */
static size_t describe_workers(const struct agent *agent,
                               bool (*chosen)(const struct agent *, const struct worker_proc *),
                               struct report_worker *workers)
{
    size_t count = 0;
    for (uint32_t i = 0; i < agent->config->nproc && workers != NULL; i++)
        if (chosen(agent, &agent->workers[i]))
            workers[count++] = worker_facts(agent, &agent->workers[i]);
    if (count > 1)
        qsort(workers, count, sizeof *workers, by_time_from_root);
    return count;
}

static void describe_gpus(const struct agent *agent, char *text, size_t size,
                          struct report_worker *root, struct ddpi_buf *faults)
{
    uint32_t local_rank = agent->root->local_rank;
    uint64_t ended_us = agent->root->ended_us;
    if (gpu_watch_describe(&agent->gpus, local_rank, ended_us, text, size))
        root->gpus = text;
    (void)!gpu_watch_faults(&agent->gpus, local_rank, ended_us, faults);
}

/* -N for signal N, as Python's subprocess has it. */
static int torch_exit_code(const struct worker_proc *worker)
{
    return WIFSIGNALED(worker->wait_status) ? -WTERMSIG(worker->wait_status)
                                            : WEXITSTATUS(worker->wait_status);
}

/* Most programs heed these two variables. */
static bool has_colours(const struct agent *agent)
{
    static const char refuses[] = "NO_COLOR", kind[] = "TERM";
    const char *refused = ddpi_parse_env(agent->config->envp, refuses, strlen(refuses));
    const char *term = ddpi_parse_env(agent->config->envp, kind, strlen(kind));
    return agent->mux.consoles[1].terminal && (refused == NULL || *refused == '\0') &&
           term != NULL && strcmp(term, "dumb") != 0;
}

static void report_worker_failure(struct agent *agent)
{
    char gpus[1024];
    struct ddp_error error = {0};
    struct error_file recorded = {0};
    struct report_worker root = worker_facts(agent, agent->root);
    char *tail = ddpi_calloc(1, TAIL_SIZE);
    struct report_worker *others = ddpi_calloc(agent->config->nproc, sizeof *others);
    struct report_worker *earlier = ddpi_calloc(agent->config->nproc, sizeof *earlier);
    struct ddpi_buf text, gpu_faults;
    ddpi_buf_init(&text, 16 * 1024 * 1024);
    ddpi_buf_init(&gpu_faults, 64 * 1024);

    root.oom = agent->root_oom;
    root.oom_others = agent->oom_others;
    root.log_full = has_no_space(root.stderr_log);
    if (tail != NULL) {
        root.stderr_tail = tail;
        root.stderr_tail_len = stderr_tail(agent->root, tail);
        agent->root_broken =
            hint_broken_program(root.wait_status, root.stderr_tail, root.stderr_tail_len);
    }
    ddp_status status =
        error_file_read(agent->root->error_file, torch_exit_code(agent->root), &recorded, &error);
    if (status != DDP_OK && status != DDP_E_NOT_FOUND)
        root.error_file_note = error.msg;
    root.error_message = recorded.message;
    root.error_traceback = recorded.traceback;
    describe_gpus(agent, gpus, sizeof gpus, &root, &gpu_faults);

    const struct report report = {
        .host = agent->config->host,
        .interpreter = agent->config->interpreter,
        .colours = has_colours(agent),
        .root = &root,
        .earlier = earlier,
        .earlier_count = describe_workers(agent, ended_well_before, earlier),
        .others = others,
        .others_count = describe_workers(agent, failed_later, others),
        .gpu_faults = (const char *)ddpi_buf_head(&gpu_faults),
        .gpu_faults_len = ddpi_buf_len(&gpu_faults),
    };
    if (report_failure(&report, &text))
        logmux_print(&agent->mux, 1, (const char *)ddpi_buf_head(&text), ddpi_buf_len(&text));
    else
        logmux_say(&agent->mux, "rank %u failed first; no memory is left for a report",
                   agent->root->rank);
    ddpi_buf_finish(&text);
    ddpi_buf_finish(&gpu_faults);
    ddpi_free(agent->error_copy);
    agent->error_copy = recorded.copy != NULL ? ddpi_strdup(recorded.copy) : NULL;
    error_file_finish(&recorded);
    ddpi_free(others);
    ddpi_free(earlier);
    ddpi_free(tail);
}

static void report_file_losses(struct agent *agent)
{
    static const char *const names[] = {"stdout", "stderr"};
    for (int s = 0; s < 2; s++) {
        int lost = agent->mux.consoles[s].failed_errno;
        if (lost != 0)
            logmux_say(&agent->mux, "what went to %s is incomplete: %s", names[s],
                       strerrordesc_np(lost));
        lost = agent->mux.filters[s].sys_errno;
        if (lost != 0)
            logmux_say(&agent->mux, "the filtered copy of %s is incomplete: %s", names[s],
                       strerrordesc_np(lost));
    }
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        for (int s = 0; s < 2; s++) {
            int lost = agent->workers[i].streams[s].file_errno;
            if (lost != 0)
                logmux_say(&agent->mux, "the log file '%s' is incomplete: %s",
                           agent->workers[i].log_files[s], strerrordesc_np(lost));
        }
}

void outcome_failure(const struct agent *agent, struct ddp_round_failure *ret)
{
    *ret = (struct ddp_round_failure){.generation = agent->seat.generation};
    if (agent->root == NULL) {
        ret->rank = agent->seat.first_rank;
        ret->exit_code = EXIT_CONFIG;
        ret->final = true;
        snprintf(ret->text, sizeof ret->text, "%.200s (on %.40s)", agent->starter.error.msg,
                 agent->config->host);
        return;
    }
    struct report_worker root = worker_facts(agent, agent->root);
    char cause[160];
    root.oom = agent->root_oom;
    report_cause(&root, cause, sizeof cause);
    ret->rank = root.rank;
    ret->exit_code = worker_proc_exit_code(agent->root);
    ret->ran_ms = root.ran_us / 1000;
    ret->broken_program = agent->root_broken;
    int len = snprintf(ret->text, sizeof ret->text, "rank %u on %.60s failed: %s", root.rank,
                       agent->config->host, cause);
    char fault[160];
    if (gpu_watch_cause(&agent->gpus, root.local_rank, agent->root->ended_us, fault, sizeof fault))
        snprintf(ret->text + len, sizeof ret->text - (size_t)len, "; %s", fault);
}

void outcome_worker(struct agent *agent, const struct worker_proc *worker)
{
    const struct report_worker facts = {.wait_status = worker->wait_status};
    char cause[160], ran[32];
    report_cause(&facts, cause, sizeof cause);
    report_duration(since(worker->ended_us, worker->started_us), ran, sizeof ran);
    logmux_detail(&agent->mux, "rank %u has ended: %s, after %s (pid %d)", worker->rank, cause, ran,
                  (int)worker->pid);
}

void outcome_dying(const struct agent *agent, const struct worker_proc *worker,
                   struct ddp_round_failure *ret)
{
    uint64_t now_us = ddpi_monotonic_us();
    *ret = (struct ddp_round_failure){.generation = agent->seat.generation,
                                      .rank = worker->rank,
                                      .exit_code = -1,
                                      .ran_ms = since(now_us, worker->started_us) / 1000};
    snprintf(ret->text, sizeof ret->text, "rank %u on %.60s is dying", worker->rank,
             agent->config->host);
}

void outcome_report(struct agent *agent)
{
    struct ddp_error error;
    bool failed = agent->cause == AGENT_CAUSE_WORKER || agent->cause == AGENT_CAUSE_ORDER;
    report_file_losses(agent);
    if (agent->root != NULL)
        report_worker_failure(agent);
    /* A foreign socket on rank 0's port may be the reason why ranks of other nodes failed. */
    if (failed && worker_starter_check_port(agent->config, &agent->seat, true, &error) != DDP_OK)
        logmux_say(&agent->mux, "%s", error.msg);
    if (agent->cause == AGENT_CAUSE_START)
        logmux_say(&agent->mux, "%s", agent->starter.error.msg);
    if (agent->cause == AGENT_CAUSE_STUCK)
        logmux_say(&agent->mux, "not restarting while processes of the last attempt are left");
}

void outcome_pass_on(struct agent *agent)
{
    struct ddp_error error;
    const char *path = agent->config->error_file;
    if (path != NULL && *path != '\0' && agent->error_copy != NULL &&
        error_file_write(path, agent->error_copy, &error) != DDP_OK)
        logmux_say(&agent->mux, "TORCHELASTIC_ERROR_FILE: %s", error.msg);
}

int outcome_stuck_code(const struct agent *agent)
{
    return agent->root != NULL ? worker_proc_exit_code(agent->root)
                               : 128 + (agent->signal != 0 ? agent->signal : SIGKILL);
}
