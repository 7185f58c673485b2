/*
 * spawn_ranks.c - ddp_spawn() and what a program does with the ranks. Owns their processes, and the
 * memory in which they leave what they have to say.
 */
#include "clock.h"
#include "config.h"
#include "error.h"
#include "mem.h"
#include "rank_process.h"
#include "unique_id.h"

#include <ddprun/spawn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GRACE_MS = 5000, KILLED_MS = 10000, CAUSE_MS = 2000 };

struct ddp_spawned {
    pid_t home; /* the process that has started the ranks */
    struct ddpi_rank_task task;
    struct ddpi_rank_process *processes; /* by rank */
    struct pollfd *fds;                  /* by rank */
    uint32_t grace_ms;
    uint32_t running;
    uint32_t ended;    /* how many are reaped */
    uint32_t failures; /* how many of them have failed */
};

/* ---- waiting ---- */

static void reap_ended(ddp_spawned *spawned)
{
    for (uint32_t rank = 0; rank < spawned->task.nprocs; rank++) {
        struct ddpi_rank_process *process = &spawned->processes[rank];
        if (!ddpi_rank_reap(process, &spawned->task.words[rank], spawned->ended))
            continue;
        spawned->running--;
        spawned->ended++;
        spawned->failures += ddpi_rank_failed(&process->end);
    }
}

/* Sleep until a process ends, at most until @deadline_ms, and reap. */
static ddp_status await_an_end(ddp_spawned *spawned, uint64_t deadline_ms, struct ddp_error *err)
{
    for (uint32_t rank = 0; rank < spawned->task.nprocs; rank++)
        spawned->fds[rank] =
            (struct pollfd){.fd = spawned->processes[rank].pidfd, .events = POLLIN};
    int count = poll(spawned->fds, spawned->task.nprocs,
                     ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms));
    if (count < 0 && errno != EINTR)
        return ddpi_error_sys(err, errno, "wait for %u processes", spawned->task.nprocs);
    reap_ended(spawned);
    return DDP_OK;
}

static bool all_have_ended(const ddp_spawned *spawned)
{
    return spawned->running == 0;
}

static void signal_all(ddp_spawned *spawned, int signal)
{
    for (uint32_t rank = 0; rank < spawned->task.nprocs; rank++)
        ddpi_rank_signal(&spawned->processes[rank], signal);
}

/* By @signal, within @limit_ms. */
static void end_by(ddp_spawned *spawned, int signal, uint32_t limit_ms)
{
    uint64_t deadline_ms = ddpi_monotonic_ms() + limit_ms;
    if (!all_have_ended(spawned))
        signal_all(spawned, signal);
    while (!all_have_ended(spawned) && ddpi_monotonic_ms() < deadline_ms &&
           await_an_end(spawned, deadline_ms, NULL) == DDP_OK)
        ;
}

static void end_all(ddp_spawned *spawned)
{
    reap_ended(spawned);
    end_by(spawned, SIGTERM, spawned->grace_ms);
    end_by(spawned, SIGKILL, KILLED_MS);
}

/* ---- joining ---- */

static const struct ddpi_rank_end *first_failure(const ddp_spawned *spawned)
{
    const struct ddpi_rank_end *first = NULL;
    for (uint32_t rank = 0; rank < spawned->task.nprocs; rank++) {
        const struct ddpi_rank_process *process = &spawned->processes[rank];
        if (ddpi_rank_runs(process) || !ddpi_rank_failed(&process->end))
            continue;
        if (first == NULL || ddpi_rank_end_before(&process->end, first))
            first = &process->end;
    }
    return first;
}

/* The rank that has caused it may be on its way out: do not end it before it can say why. */
static void await_cause(ddp_spawned *spawned)
{
    uint64_t deadline_ms =
        ddpi_monotonic_ms() + (spawned->grace_ms < CAUSE_MS ? spawned->grace_ms : CAUSE_MS);
    const struct ddpi_rank_end *first = first_failure(spawned);
    while (first != NULL && ddpi_rank_end_follows(first) && !all_have_ended(spawned) &&
           ddpi_monotonic_ms() < deadline_ms && await_an_end(spawned, deadline_ms, NULL) == DDP_OK)
        first = first_failure(spawned);
}

static ddp_status report_failure(const ddp_spawned *spawned, const struct ddpi_rank_end *end,
                                 struct ddp_spawn_failure *ret_failure, struct ddp_error *err)
{
    char text[DDP_ERROR_TEXT];
    memcpy(text, spawned->task.words[end->rank].text, sizeof text);
    text[sizeof text - 1] = '\0';
    if (ret_failure != NULL) {
        const struct ddp_spawn_failure failure = {.size = ret_failure->size,
                                                  .rank = end->rank,
                                                  .pid = end->pid,
                                                  .status = end->said ? end->status : DDP_OK,
                                                  .exit_code = end->exit_code,
                                                  .signal = end->signal};
        memcpy(ret_failure, &failure,
               failure.size < sizeof failure ? failure.size : sizeof failure);
    }
    return ddpi_rank_end_describe(end, text, err);
}

static ddp_status check_join(const ddp_spawned *spawned,
                             const struct ddp_spawn_failure *ret_failure, struct ddp_error *err)
{
    if (ret_failure != NULL && ret_failure->size < sizeof *ret_failure)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "size in struct ddp_spawn_failure is %zu, at least %zu expected",
                              ret_failure->size, sizeof *ret_failure);
    if (spawned->home != getpid())
        return ddpi_error_set(err, DDP_E_INVALID,
                              "only the process that has started the ranks (pid %d) can wait for "
                              "them, not a child of it",
                              spawned->home);
    return DDP_OK;
}

static ddp_status still_running(const ddp_spawned *spawned, uint32_t timeout_ms,
                                struct ddp_error *err)
{
    uint32_t rank = 0;
    while (!ddpi_rank_runs(&spawned->processes[rank]))
        rank++;
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "after %.1f s %u of %u ranks run still; the first is rank %u (pid %d)",
                          timeout_ms / 1000.0, spawned->running, spawned->task.nprocs, rank,
                          spawned->processes[rank].pid);
}

ddp_status ddp_spawn_join(ddp_spawned *spawned, uint32_t timeout_ms,
                          struct ddp_spawn_failure *ret_failure, struct ddp_error *err)
{
    uint64_t deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), timeout_ms);
    ddp_status status = check_join(spawned, ret_failure, err);
    if (status != DDP_OK)
        return status;
    reap_ended(spawned);
    while (status == DDP_OK && !all_have_ended(spawned) && spawned->failures == 0 &&
           ddpi_monotonic_ms() < deadline_ms)
        status = await_an_end(spawned, deadline_ms, err);
    if (status != DDP_OK)
        return status;
    if (spawned->failures > 0) {
        await_cause(spawned);
        end_all(spawned);
    }
    const struct ddpi_rank_end *failed = first_failure(spawned);
    if (failed != NULL)
        return report_failure(spawned, failed, ret_failure, err);
    return all_have_ended(spawned) ? DDP_OK : still_running(spawned, timeout_ms, err);
}

int ddp_spawn_pid(const ddp_spawned *spawned, uint32_t rank)
{
    return spawned->processes[rank].pid;
}

/* ---- life ---- */

static void spawned_free(ddp_spawned *spawned)
{
    if (spawned->task.words != NULL)
        munmap(spawned->task.words, spawned->task.nprocs * sizeof *spawned->task.words);
    ddpi_wipe(&spawned->task.id, sizeof spawned->task.id);
    ddpi_free(spawned->fds);
    ddpi_free(spawned->processes);
    ddpi_free(spawned);
}

void ddp_spawn_destroy(ddp_spawned *spawned)
{
    if (spawned == NULL)
        return;
    if (spawned->home == getpid())
        end_all(spawned);
    for (uint32_t rank = 0; rank < spawned->task.nprocs; rank++)
        ddpi_rank_leave(&spawned->processes[rank]);
    spawned_free(spawned);
}

static ddp_status spawned_create(uint32_t nprocs, ddp_spawned **ret, struct ddp_error *err)
{
    ddp_spawned *spawned = ddpi_calloc(1, sizeof *spawned);
    if (spawned == NULL)
        return ddpi_error_nomem(err, sizeof *spawned);
    *spawned = (ddp_spawned){.home = getpid(), .task = {.nprocs = nprocs}};
    spawned->processes = ddpi_calloc(nprocs, sizeof *spawned->processes);
    spawned->fds = ddpi_calloc(nprocs, sizeof *spawned->fds);
    void *words = mmap(NULL, nprocs * sizeof *spawned->task.words, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    spawned->task.words = words != MAP_FAILED ? words : NULL;
    if (spawned->processes == NULL || spawned->fds == NULL || spawned->task.words == NULL) {
        spawned_free(spawned);
        return ddpi_error_nomem(err, nprocs * sizeof *spawned->task.words);
    }
    for (uint32_t rank = 0; rank < nprocs; rank++)
        spawned->processes[rank].pidfd = -1;
    *ret = spawned;
    return DDP_OK;
}

static ddp_status start_all(ddp_spawned *spawned, struct ddp_error *err)
{
    uint32_t nprocs = spawned->task.nprocs;
    ddp_status status = ddpi_id_make(NULL, "127.0.0.1", true, &spawned->task.id, err);
    if (status != DDP_OK)
        return status;
    fflush(NULL);
    for (uint32_t rank = 0; rank < nprocs && status == DDP_OK; rank++) {
        status = ddpi_rank_start(spawned->processes, &spawned->task, rank, err);
        spawned->running += status == DDP_OK;
    }
    ddp_drop_unique_id(&spawned->task.id);
    return status;
}

static ddp_status check_spawn(ddp_rank_function *function, uint32_t nprocs,
                              const struct ddp_spawn_options *options, struct ddp_error *err)
{
    if (function == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "there is no function for the ranks to call");
    if (nprocs == 0 || nprocs > DDPI_WORLD_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "a world has 1 to %d ranks, not %u",
                              DDPI_WORLD_MAX, nprocs);
    if (options != NULL && options->size < sizeof *options)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "size in struct ddp_spawn_options is %zu, at least %zu expected",
                              options->size, sizeof *options);
    return DDP_OK;
}

ddp_status ddp_spawn(ddp_rank_function *function, void *arg, uint32_t nprocs,
                     const struct ddp_spawn_options *options, ddp_spawned **ret_spawned,
                     struct ddp_error *err)
{
    ddp_spawned *spawned = NULL;
    ddp_status status = check_spawn(function, nprocs, options, err);
    if (status == DDP_OK)
        status = spawned_create(nprocs, &spawned, err);
    if (status != DDP_OK)
        return status;
    spawned->task.function = function;
    spawned->task.arg = arg;
    spawned->grace_ms = options != NULL && options->grace_ms > 0 ? options->grace_ms : GRACE_MS;
    status = start_all(spawned, err);
    if (status == DDP_OK)
        *ret_spawned = spawned;
    else
        ddp_spawn_destroy(spawned);
    return status;
}
