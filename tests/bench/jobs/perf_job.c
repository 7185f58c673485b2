/*
 * perf_job.c - starts and ends the launchers of a job, and reads the board. Owns both. Processes
 * that launchers leave behind end with the board, so nothing of a job outlives perf_job_close().
 */
#include "perf_job.h"

#include "error.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLOSE_LIMIT_MS = 10000 };

/* ---- launchers ---- */

static _Noreturn void become_launcher(const char *const *words)
{
    (void)ddpi_thread_unblock_signals();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null_fd >= 0; fd++)
        dup2(null_fd, fd);
    execvp(words[0], (char *const *)(uintptr_t)words); /* execvp does not write to argv */
    _exit(127);
}

bool perf_job_start(struct perf_job *job, uint32_t node, const char *const *words, bool forks,
                    struct ddp_error *err)
{
    const char *all[PERF_JOB_WORDS] = {0};
    size_t count = 0;
    while (words[count] != NULL && count < PERF_JOB_WORDS - 4) {
        all[count] = words[count];
        count++;
    }
    all[count++] = job->worker;
    all[count++] = job->path;
    if (forks)
        all[count++] = "fork";
    pid_t pid = fork();
    if (pid < 0)
        return !ddpi_error_sys(err, errno, "cannot start '%s'", words[0]);
    if (pid == 0)
        become_launcher(all);
    job->nodes[node] = pid;
    return true;
}

pid_t perf_job_agent(const struct perf_job *job, uint32_t node)
{
    pid_t agent = 0;
    return perf_children(job->nodes[node], &agent) > 0 ? agent : 0;
}

bool perf_job_await(struct perf_job *job, uint32_t node, uint32_t limit_ms)
{
    pid_t pid = job->nodes[node];
    if (pid == 0)
        return true;
    struct pollfd ended = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    bool in_time = ended.fd < 0 || poll(&ended, 1, (int)limit_ms) > 0;
    if (!in_time)
        kill(pid, SIGKILL);
    if (ended.fd >= 0)
        close(ended.fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    job->nodes[node] = 0;
    return in_time;
}

/* ---- the board ---- */

void perf_job_clear(struct perf_job *job)
{
    for (uint32_t i = 0; i < PERF_BOARD_STAMPS; i++)
        atomic_store(&job->board->stamps[i].done, 0);
    atomic_store(&job->board->count, 0);
}

/* When the last worker of the latest generation stamped; 0 unless all @world and @children have. */
static uint64_t read_board(struct perf_job *job, uint32_t world, uint32_t children)
{
    uint32_t count = atomic_load(&job->board->count), ranks = 0;
    uint64_t latest = 0, generation = 0, meeting = 0;
    job->count = 0;
    for (uint32_t i = 0; i < count && i < PERF_BOARD_STAMPS; i++) {
        const struct perf_stamp *stamp = &job->board->stamps[i];
        if (!atomic_load(&stamp->done) || stamp->generation < generation)
            continue;
        if (stamp->generation > generation)
            job->count = ranks = 0;
        if (job->count == 0)
            meeting = stamp->meeting;
        generation = stamp->generation;
        job->pids[job->count++] = stamp->pid;
        ranks += stamp->world == world && stamp->meeting == meeting;
        latest = stamp->at_us > latest ? stamp->at_us : latest;
    }
    return ranks == world && job->count == world + children ? latest : 0;
}

uint64_t perf_job_running(struct perf_job *job, uint32_t world, uint32_t children,
                          uint32_t limit_ms)
{
    double limit_us = perf_now_us() + limit_ms * 1e3;
    uint64_t at_us;
    while ((at_us = read_board(job, world, children)) == 0 && perf_now_us() < limit_us)
        poll(NULL, 0, 1);
    return at_us;
}

uint32_t perf_job_left(const struct perf_job *job)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < job->count; i++)
        left += kill(job->pids[i], 0) == 0;
    return left;
}

/* ---- opening and closing ---- */

static bool map_board(struct perf_job *job, struct ddp_error *err)
{
    snprintf(job->path, sizeof job->path, "/dev/shm/ddp-bench-XXXXXX");
    int fd = mkostemp(job->path, O_CLOEXEC);
    void *shared = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *job->board) == 0)
        shared = mmap(NULL, sizeof *job->board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int sys_errno = errno;
    if (fd >= 0)
        close(fd);
    if (shared == MAP_FAILED && fd >= 0)
        unlink(job->path);
    if (shared == MAP_FAILED)
        return !ddpi_error_sys(err, sys_errno, "cannot make '%s'", job->path);
    job->board = shared;
    job->board->owner = (int32_t)getpid();
    return true;
}

bool perf_job_open(struct perf_job *job, struct ddp_error *err)
{
    *job = (struct perf_job){0};
    perf_find_program("ddp-bench-worker", NULL, job->worker, sizeof job->worker);
    return map_board(job, err);
}

void perf_job_close(struct perf_job *job)
{
    if (job->board == NULL)
        return;
    atomic_store(&job->board->over, 1); /* all workers exit with 0, and then their launchers */
    for (uint32_t node = 0; node < PERF_JOB_NODES; node++)
        if (job->nodes[node] != 0)
            kill(job->nodes[node], SIGTERM);
    for (uint32_t node = 0; node < PERF_JOB_NODES; node++)
        perf_job_await(job, node, CLOSE_LIMIT_MS);
    double limit_us = perf_now_us() + CLOSE_LIMIT_MS * 1e3;
    while (perf_job_left(job) > 0 && perf_now_us() < limit_us)
        poll(NULL, 0, 10);
    unlink(job->path);
    munmap(job->board, sizeof *job->board);
    *job = (struct perf_job){0};
}
