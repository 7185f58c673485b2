/*
 * agent_exits.c - see agent_impl.h. Reaps workers and orphans; signals no worker except one that
 * has called MPI_Abort, or one of MPI programs that cannot be served.
 */
#include "agent_impl.h"

#include "clock.h"
#include "exit_codes.h"
#include "outcome.h"
#include "reap.h"

#include <sys/wait.h>

void agent_report_failure(struct agent *agent)
{
    struct ddp_round_failure failure;
    outcome_failure(agent, &failure);
    agent->hooks.failed(agent->hooks.ctx, &failure);
}

/* Ranks that lose a peer exit at once, often before the kernel has ended the peer, which takes
 * longer the more memory it has. So a worker that is being killed right now comes before one that
 * exits by itself. NULL: there is none. */
static struct worker_proc *being_killed(struct agent *agent)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (worker_proc_alive(&agent->workers[i]) && reap_is_killed(agent->workers[i].pid))
            return &agent->workers[i];
    return NULL;
}

/* The kernel is ending @worker: stop the others now. The report follows when it has ended. */
static void blame_dying(struct agent *agent, struct worker_proc *worker)
{
    struct ddp_round_failure failure;
    agent_set_cause(agent, AGENT_CAUSE_WORKER);
    worker->dying = true;
    agent->dying = worker;
    outcome_dying(agent, worker, &failure);
    agent->hooks.failed(agent->hooks.ctx, &failure);
}

/* It may have killed @agent->root, or one that this needs, such as a helper that loads data. */
static void blame_oom_killer(struct agent *agent, int wait_status)
{
    uint64_t kills = oom_kills_new(&agent->oom);
    agent->root_oom = kills > 0 && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    agent->oom_others = kills - agent->root_oom;
}

static void take_exit(struct agent *agent, struct worker_proc *worker, int wait_status)
{
    if (worker->aborts_with != 0)
        wait_status = W_EXITCODE(worker->aborts_with, 0);
    worker_proc_exited(worker, wait_status, ddpi_monotonic_us());
    agent->alive--;
    bool by_itself = WIFEXITED(wait_status) && wait_status != 0;
    struct worker_proc *killed = NULL;
    if (by_itself && agent_is_up(agent) && agent->cause == AGENT_CAUSE_NONE)
        killed = being_killed(agent);
    if (killed != NULL)
        blame_dying(agent, killed);
    agent->hooks.changed(agent->hooks.ctx);
    outcome_worker(agent, worker);
    if (worker == agent->dying ||
        (worker_proc_failed(worker) && agent->cause == AGENT_CAUSE_NONE)) {
        agent_set_cause(agent, AGENT_CAUSE_WORKER);
        agent->root = worker;
        blame_oom_killer(agent, wait_status);
        agent_report_failure(agent);
    }
    if (worker_proc_failed(worker))
        return;
    pmi_rank_gone(&agent->pmi, worker->local_rank);
    pmix_host_rank_gone(&agent->pmix, worker->local_rank);
}

/* The kernel reports that the worker will fail, though waitpid() may take a while to say so. */
void agent_on_death_hint(void *ctx, uint32_t local_rank)
{
    struct agent *agent = ctx;
    struct worker_proc *worker = &agent->workers[local_rank];
    if (!agent_is_up(agent) || agent->cause != AGENT_CAUSE_NONE || !worker_proc_alive(worker) ||
        !reap_is_failing(worker->pid))
        return;
    struct worker_proc *killed = reap_is_killed(worker->pid) ? worker : being_killed(agent);
    blame_dying(agent, killed != NULL ? killed : worker);
}

/* A caller of MPI_Abort expects its manager to kill it and to use its exit code. An aborted job
 * must not report 0. */
void agent_on_mpi_abort(void *ctx, uint32_t local_rank, int exit_code)
{
    struct agent *agent = ctx;
    struct worker_proc *worker = &agent->workers[local_rank];
    logmux_say(&agent->mux, "rank %u has called MPI_Abort with exit code %d", worker->rank,
               exit_code);
    worker->aborts_with = (exit_code & 0xff) != 0 ? exit_code & 0xff : 1;
    worker_proc_signal(worker, SIGKILL, SIGNAL_GROUP);
}

void agent_on_pmix_failed(void *ctx, const char *why)
{
    struct agent *agent = ctx;
    if (!agent_is_up(agent) || agent->cause != AGENT_CAUSE_NONE)
        return; /* the ranks are ended for another reason */
    logmux_say(&agent->mux, "%s", why);
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (worker_proc_alive(&agent->workers[i])) {
            agent->workers[i].aborts_with = EXIT_CONFIG;
            worker_proc_signal(&agent->workers[i], SIGKILL, SIGNAL_GROUP);
            return;
        }
}

/* If the process is failing right now, that is the cause, and not the missing rank. */
void agent_on_mpi_unplugged(void *ctx, uint32_t local_rank)
{
    struct agent *agent = ctx;
    agent_on_death_hint(agent, local_rank);
    if (agent_is_up(agent) && agent->cause == AGENT_CAUSE_NONE)
        pmi_rank_gone(&agent->pmi, local_rank);
}

void agent_collect_worker(struct agent *agent, struct worker_proc *worker)
{
    int wait_status;
    if (worker_proc_alive(worker) && waitpid(worker->pid, &wait_status, WNOHANG) == worker->pid)
        take_exit(agent, worker, wait_status);
}

/* An adopted orphan needs no more than being reaped. */
static void on_child_reaped(void *ctx, pid_t pid, int wait_status)
{
    struct agent *agent = ctx;
    if (warm_process_exited(&agent->warm, pid, wait_status) ||
        pmix_host_exited(&agent->pmix, pid, wait_status) ||
        node_check_exited(&agent->check, pid, wait_status))
        return;
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (agent->workers[i].pid == pid && worker_proc_alive(&agent->workers[i])) {
            take_exit(agent, &agent->workers[i], wait_status);
            return;
        }
}

bool agent_collect_children(struct agent *agent)
{
    if (worker_starter_busy(&agent->starter) || warm_process_busy(&agent->warm) ||
        pmix_host_busy(&agent->pmix) || node_check_busy(&agent->check))
        return true;
    bool left = reap_collect(on_child_reaped, agent);
    pid_t warm = warm_process_pid(&agent->warm);
    return left && (warm == 0 || reap_has_child_besides(warm));
}
