/*
 * agent.c - the agent's machine and the events that drive it. Owns the workers, the output, and its
 * signal handlers. Does not own the loop, and never blocks it.
 *
 * The happy path: start all, every worker exits 0, sweep (nothing is left), drain (take what they
 * have left in their pipes, without waiting for whoever reads our own output: the rest of the job
 * waits for us), idle. What may come instead: a worker fails (stop the others, sweep, report), an
 * order or a signal (stop, sweep), a worker cannot start, the guard is gone, a process cannot be
 * killed.
 */
#include "agent.h"

#include "cgroup.h"
#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "guard.h"
#include "mem.h"
#include "outcome.h"
#include "parse.h"
#include "reap.h"
#include "signames.h"
#include "worker_starter.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SWEEP_AGAIN_MS = 5,    /* a child may have been missed while others were exiting */
    SWEEP_LIMIT_MS = 5000, /* what survives SIGKILL for this long is stuck in the kernel */
    DRAIN_LIMIT_MS = 2000, /* for a pipe that somebody outside the job holds open */
    SAME_SIGNAL_MS = 250,  /* until then it is the same wish, which came by two ways */
};

DDPI_SM_DEFINE(agent, AGENT_STATES);

static void agent_advance(struct agent *agent);

static void set_cause(struct agent *agent, enum agent_cause cause)
{
    /* The first cause stays; only what makes going on impossible replaces it. */
    if (agent->cause == AGENT_CAUSE_NONE || cause == AGENT_CAUSE_GUARD ||
        cause == AGENT_CAUSE_STUCK)
        agent->cause = cause;
}

static void leave_job(struct agent *agent, int exit_code, const char *why, enum member_stop how)
{
    agent->hooks.leave(agent->hooks.ctx, exit_code, why, how);
}

/* ---- ending a generation -------------------------------------------------------------------- */

static void on_sweep_timer(uv_timer_t *timer);

/* SIGKILL to all that is below the agent, again and again until nothing is. */
static void kill_everything(struct agent *agent)
{
    cgroup_kill(agent->config->cgroup);
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_stop(&agent->workers[i], SIGKILL);
    reap_kill_children();
}

static void enter_sweeping(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_SWEEPING);
    agent->sweep_deadline_ms = ddpi_now_ms(&ddpi_clock_monotonic) + SWEEP_LIMIT_MS;
    uv_timer_start(&agent->timer, on_sweep_timer, SWEEP_AGAIN_MS, SWEEP_AGAIN_MS);
    kill_everything(agent);
    agent_advance(agent);
}

static void on_grace_over(uv_timer_t *timer)
{
    enter_sweeping(timer->data);
}

static int stop_signal(const struct agent *agent)
{
    return agent->signal != 0 ? agent->signal : SIGTERM;
}

static void enter_stopping(struct agent *agent, uint64_t grace_ms)
{
    ddpi_sm_move(&agent->sm, AGENT_STOPPING);
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_stop(&agent->workers[i], stop_signal(agent));
    uv_timer_start(&agent->timer, on_grace_over, grace_ms, 0);
    agent->hooks.changed(agent->hooks.ctx);
}

/* Workers run, or are about to, and none has been told to stop. */
static bool is_up(const struct agent *agent)
{
    return agent->sm.state == AGENT_STARTING || agent->sm.state == AGENT_RUNNING;
}

/* Nothing of the generation runs, or is about to. */
static bool all_exited(const struct agent *agent)
{
    return agent->alive == 0 && !worker_starter_busy(&agent->starter);
}

/* Grace that is running ends at least so soon. */
static void shorten_grace(struct agent *agent, uint64_t grace_ms)
{
    if (uv_timer_get_due_in(&agent->timer) > grace_ms)
        uv_timer_start(&agent->timer, on_grace_over, grace_ms, 0);
}

void agent_stop(struct agent *agent, enum member_stop how)
{
    const struct agent_config *config = agent->config;
    uint64_t grace_ms =
        how == MEMBER_STOP_ORDERLY ? config->shutdown_timeout_ms : config->failure_timeout_ms;
    if (agent->cause == AGENT_CAUSE_START || agent->sm.state == AGENT_IDLE)
        return; /* start_failed() sees to it; or nothing runs */
    worker_starter_cancel(&agent->starter);
    set_cause(agent, AGENT_CAUSE_ORDER);
    if (is_up(agent) && how != MEMBER_STOP_KILL && !all_exited(agent))
        enter_stopping(agent, grace_ms);
    else if (agent->sm.state == AGENT_STOPPING && how != MEMBER_STOP_KILL)
        shorten_grace(agent, grace_ms);
    else if (ddpi_sm_allowed(&agent->sm, AGENT_SWEEPING))
        enter_sweeping(agent);
}

/* ---- exits ---------------------------------------------------------------------------------- */

static void tell_failure(struct agent *agent)
{
    struct ddp_round_failure failure;
    outcome_failure(agent, &failure);
    agent->hooks.failed(agent->hooks.ctx, &failure);
}

static void worker_ended(struct agent *agent, struct worker_proc *worker, int wait_status)
{
    if (worker->aborts_with != 0)
        wait_status = W_EXITCODE(worker->aborts_with, 0);
    worker_proc_exited(worker, wait_status, ddpi_now_us(&ddpi_clock_monotonic));
    agent->alive--;
    agent->hooks.changed(agent->hooks.ctx);
    if (worker == agent->dying ||
        (worker_proc_failed(worker) && agent->cause == AGENT_CAUSE_NONE)) {
        set_cause(agent, AGENT_CAUSE_WORKER);
        agent->root = worker;
        agent->root_oom = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL &&
                          oom_kills_new(&agent->oom) > 0;
        tell_failure(agent);
    }
    if (!worker_proc_failed(worker))
        pmi_rank_gone(&agent->pmi, worker->local_rank);
    if (all_exited(agent) &&
        (agent->sm.state == AGENT_RUNNING || agent->sm.state == AGENT_STOPPING))
        enter_sweeping(agent);
}

/* It is certain that it has failed, and may take long until it can be waited for: the others need
 * not go on until then. What is to be said of it follows when it has ended. */
static void on_death_hint(void *ctx, uint32_t local_rank)
{
    struct agent *agent = ctx;
    struct worker_proc *worker = &agent->workers[local_rank];
    struct ddp_round_failure failure;
    if (!is_up(agent) || agent->cause != AGENT_CAUSE_NONE || !worker_proc_alive(worker) ||
        !reap_is_failing(worker->pid))
        return;
    set_cause(agent, AGENT_CAUSE_WORKER);
    worker->dying = true;
    agent->dying = worker;
    outcome_dying(agent, worker, &failure);
    agent->hooks.failed(agent->hooks.ctx, &failure);
}

/* Whoever calls MPI_Abort waits for its manager to end it, and wants that exit code. 0 is none that
 * a job which was aborted could have. */
static void on_mpi_abort(void *ctx, uint32_t local_rank, int exit_code)
{
    struct agent *agent = ctx;
    struct worker_proc *worker = &agent->workers[local_rank];
    logmux_say(&agent->mux, "rank %u has called MPI_Abort with exit code %d", worker->rank,
               exit_code);
    worker->aborts_with = (exit_code & 0xff) != 0 ? exit_code & 0xff : 1;
    worker_proc_forward(worker, SIGKILL);
}

/* Its process may be failing right now: then that is the cause, and not what the other ranks make
 * of it. */
static void on_mpi_unplugged(void *ctx, uint32_t local_rank)
{
    struct agent *agent = ctx;
    on_death_hint(agent, local_rank);
    if (is_up(agent) && agent->cause == AGENT_CAUSE_NONE)
        pmi_rank_gone(&agent->pmi, local_rank);
}

static void on_exit_ready(struct worker_proc *worker)
{
    int wait_status;
    if (worker_proc_alive(worker) && waitpid(worker->pid, &wait_status, WNOHANG) == worker->pid)
        worker_ended(worker->data, worker, wait_status);
}

static void on_unwatched(struct worker_proc *worker)
{
    agent_advance(worker->data);
}

static void on_child_reaped(void *ctx, pid_t pid, int wait_status)
{
    struct agent *agent = ctx;
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (agent->workers[i].pid == pid && worker_proc_alive(&agent->workers[i])) {
            worker_ended(agent, &agent->workers[i], wait_status);
            return;
        }
    /* An adopted orphan: it is buried, and nobody needs to know. */
}

/* Those that wait to be buried; false: no child is left at all. While a worker is being started it
 * is not known which of them it is, so they wait. */
static bool collect_exits(struct agent *agent)
{
    return worker_starter_busy(&agent->starter) || reap_collect(on_child_reaped, agent);
}

/* ---- from sweeping to the end --------------------------------------------------------------- */

static void say_stuck_process(void *ctx, pid_t pid, char state, const char *name)
{
    logmux_say(ctx,
               "process %d (%s) is still there %d s after SIGKILL, in state %c: it is stuck in the "
               "kernel; nothing but its driver or file system can end it",
               (int)pid, name, SWEEP_LIMIT_MS / 1000, state);
}

static void on_sweep_timer(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    if (ddpi_now_ms(&ddpi_clock_monotonic) >= agent->sweep_deadline_ms) {
        worker_starter_abandon(&agent->starter);
        collect_exits(agent);
        reap_each_child(say_stuck_process, &agent->mux);
        set_cause(agent, AGENT_CAUSE_STUCK);
    } else {
        kill_everything(agent);
    }
    agent_advance(agent);
}

static void abandon_streams(struct agent *agent)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        for (int s = 0; s < 2; s++)
            logmux_abandon(&agent->workers[i].streams[s]);
}

static void on_drain_limit(uv_timer_t *timer)
{
    abandon_streams(timer->data);
}

/* Of workers that failed or were told to stop others come next, maybe; else nobody waits. */
static void reclaim_gpus(struct agent *agent)
{
    if (agent->cause == AGENT_CAUSE_WORKER || agent->cause == AGENT_CAUSE_ORDER)
        gpu_watch_reclaim(&agent->gpus, agent->config->gpu_memory_timeout_ms);
}

static bool watches_closed(const struct agent *agent)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (agent->workers[i].watched && !worker_proc_alive(&agent->workers[i]))
            return false;
    return true;
}

static void finish_draining(struct agent *agent)
{
    bool well = agent->cause == AGENT_CAUSE_NONE;
    pmi_end(&agent->pmi);
    (void)DDPI_FAILPOINT("agent.report");
    uv_timer_stop(&agent->timer);
    outcome_report(agent);
    ddpi_sm_move(&agent->sm, AGENT_IDLE);
    if (agent->cause == AGENT_CAUSE_STUCK)
        leave_job(agent, outcome_stuck_code(agent), "processes are left that cannot be killed",
                  MEMBER_STOP_KILL);
    agent->hooks.ended(agent->hooks.ctx, well);
}

static void finish_flushing(struct agent *agent)
{
    if (!logmux_flushed(&agent->mux))
        return; /* the reader of our output is slow: it gets everything, or interrupts us */
    ddpi_sm_move(&agent->sm, AGENT_DONE);
    agent->hooks.done(agent->hooks.ctx, agent->exit_code);
}

/* Take every step that is possible now. Called after each event that could allow one. */
static void agent_advance(struct agent *agent)
{
    if (agent->sm.state == AGENT_SWEEPING) {
        bool left = collect_exits(agent);
        if (left && agent->cause != AGENT_CAUSE_STUCK)
            return;
        bool all_read = !agent->mux.paused; /* but for what has just come */
        ddpi_sm_move(&agent->sm, AGENT_DRAINING);
        reclaim_gpus(agent);
        logmux_take_rest(&agent->mux);
        uv_timer_start(&agent->timer, on_drain_limit, left && all_read ? 0 : DRAIN_LIMIT_MS, 0);
    }
    if (agent->sm.state == AGENT_DRAINING && logmux_streams_ended(&agent->mux) &&
        watches_closed(agent) && gpu_watch_settled(&agent->gpus))
        finish_draining(agent);
    if (agent->sm.state == AGENT_FLUSHING)
        finish_flushing(agent);
}

void agent_end(struct agent *agent, int exit_code)
{
    agent->exit_code = exit_code;
    if (exit_code != 0)
        outcome_pass_on(agent);
    ddpi_sm_move(&agent->sm, AGENT_FLUSHING);
    agent_advance(agent);
}

/* ---- events from outside -------------------------------------------------------------------- */

static void on_child_signal(uv_signal_t *handle, int sig)
{
    (void)sig;
    struct agent *agent = handle->data;
    if (agent->sm.state == AGENT_SWEEPING)
        kill_everything(agent);
    collect_exits(agent);
    agent_advance(agent);
}

/* Slurm and systemd signal every process of a job, guard and agent included, and the guard forwards
 * its own. A person needs longer than that to become impatient. */
static bool is_the_same_wish(const struct agent *agent)
{
    return agent->cause == AGENT_CAUSE_SIGNAL &&
           ddpi_now_ms(&ddpi_clock_monotonic) - agent->signal_ms < SAME_SIGNAL_MS;
}

static void leave_for_signal(struct agent *agent, int sig, enum member_stop how)
{
    char why[64], name[SIGNAME_MAX];
    agent->cause = AGENT_CAUSE_SIGNAL;
    agent->signal = sig;
    agent->signal_ms = ddpi_now_ms(&ddpi_clock_monotonic);
    snprintf(why, sizeof why, "the job was ended by %s", signame_of(sig, name));
    leave_job(agent, 128 + sig, why, how);
}

/* Output that nobody reads must not hold us. */
static void drop_output(struct agent *agent)
{
    if (!logmux_flushed(&agent->mux)) {
        logmux_discard(&agent->mux);
        abandon_streams(agent);
    }
}

static void on_ending_signal(uv_signal_t *handle, int sig)
{
    struct agent *agent = handle->data;
    char name[SIGNAME_MAX];
    switch (agent->sm.state) {
    case AGENT_STARTING:
    case AGENT_RUNNING:
        logmux_say(&agent->mux, "%s: stopping %u workers (once more kills them)",
                   signame_of(sig, name),
                   agent->sm.state == AGENT_RUNNING ? agent->alive : agent->config->nproc);
        leave_for_signal(agent, sig, MEMBER_STOP_ORDERLY);
        break;
    case AGENT_STOPPING: /* impatience, or a signal after a failure: no restart either way */
        if (is_the_same_wish(agent))
            break;
        if (agent->cause ==
            AGENT_CAUSE_ORDER) { /* they stop for the job: nobody is impatient yet */
            logmux_say(&agent->mux,
                       "%s: leaving when %u workers have stopped (once more kills them)",
                       signame_of(sig, name), agent->alive);
            leave_for_signal(agent, sig, MEMBER_STOP_ORDERLY);
            break;
        }
        logmux_say(&agent->mux, "%s: killing %u workers", signame_of(sig, name), agent->alive);
        leave_for_signal(agent, sig, MEMBER_STOP_KILL);
        break;
    case AGENT_IDLE:
    case AGENT_SWEEPING:
        leave_for_signal(agent, sig, MEMBER_STOP_KILL);
        break;
    case AGENT_DONE: /* the others may still need something that we have */
        if (!is_the_same_wish(agent))
            leave_for_signal(agent, sig, MEMBER_STOP_KILL);
        break;
    case AGENT_DRAINING:
        if (is_the_same_wish(agent))
            break;
        drop_output(agent);
        gpu_watch_give_up(&agent->gpus);
        leave_for_signal(agent, sig, MEMBER_STOP_KILL);
        agent_advance(agent);
        break;
    case AGENT_FLUSHING:
        if (is_the_same_wish(agent))
            break;
        drop_output(agent);
        agent_advance(agent);
        break;
    default:
        break;
    }
}

static void forward_signal(struct agent *agent, int sig)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_forward(&agent->workers[i], sig);
}

/* A worker that is being started cannot be signalled yet, and none is to miss it. */
static void on_forwarded_signal(uv_signal_t *handle, int sig)
{
    struct agent *agent = handle->data;
    if (agent->sm.state == AGENT_STARTING)
        sigaddset(&agent->held_signals, sig);
    else
        forward_signal(agent, sig);
}

static void on_window_change(uv_signal_t *handle, int sig)
{
    struct agent *agent = handle->data;
    logmux_resize(&agent->mux);
    on_forwarded_signal(handle,
                        sig); /* their terminals are of no session, so nobody else tells them */
}

static void on_guard(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct agent *agent = poll->data;
    uv_poll_stop(poll);
    set_cause(agent, AGENT_CAUSE_GUARD);
    logmux_discard(&agent->mux); /* whoever read it may be gone as well */
    gpu_watch_give_up(&agent->gpus);
    leave_job(agent, 128 + SIGKILL, "the guard process was killed", MEMBER_STOP_KILL);
    agent_advance(agent);
}

static void on_settled(void *ctx)
{
    agent_advance(ctx);
}

static void on_agent_line(void *ctx, const char *line)
{
    struct agent *agent = ctx;
    logmux_say(&agent->mux, "%s", line);
}

/* ---- starting ------------------------------------------------------------------------------- */

/* What is to end has been told so while this one was being started. */
static void on_worker_started(void *ctx, struct worker_proc *worker)
{
    struct agent *agent = ctx;
    agent->alive++;
    if (agent->sm.state == AGENT_STOPPING)
        worker_proc_stop(worker, stop_signal(agent));
    else if (agent->sm.state == AGENT_SWEEPING)
        worker_proc_stop(worker, SIGKILL);
}

/* Behind everything else of a start, as none waits for it. */
static void watch_gpus(struct agent *agent)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const struct agent_config *config = agent->config;
    for (uint32_t i = 0; i < config->nproc; i++)
        agent->pids[i] = agent->workers[i].pid;
    gpu_watch_begin(&agent->gpus, agent->pids, config->nproc,
                    ddpi_parse_env(config->envp, name, strlen(name)));
}

static void forward_held_signals(struct agent *agent)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sigismember(&agent->held_signals, sig) == 1)
            forward_signal(agent, sig);
}

static void enter_agent_running(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_RUNNING);
    forward_held_signals(agent);
    agent->hooks.started(agent->hooks.ctx);
    watch_gpus(agent);
    if (all_exited(agent)) /* sooner than the last of them was started */
        enter_sweeping(agent);
}

static void start_failed(struct agent *agent)
{
    set_cause(agent, AGENT_CAUSE_START);
    tell_failure(agent);
    enter_sweeping(agent);
}

static void on_starter_over(void *ctx, ddp_status status)
{
    struct agent *agent = ctx;
    watchdog_go_on(&agent->watchdog);
    if (agent->sm.state == AGENT_STARTING && status == DDP_OK) {
        enter_agent_running(
            agent); /* the watches tell who has died meanwhile, the first one first */
        return;
    }
    collect_exits(agent);
    if (agent->sm.state == AGENT_STARTING)
        start_failed(agent);
    else if (agent->sm.state == AGENT_STOPPING && all_exited(agent))
        enter_sweeping(agent);
    else
        agent_advance(agent);
}

/* ---- life ------------------------------------------------------------------------------------ */

static ddp_status watch_agent_signals(struct agent *agent, struct ddp_error *err)
{
    const struct agent_config *config = agent->config;
    ddp_status status =
        sigwatch_add(&agent->signals, agent->loop, SIGCHLD, on_child_signal, agent, err);
    if (status == DDP_OK && config->pty)
        status = sigwatch_add(&agent->signals, agent->loop, SIGWINCH, on_window_change, agent, err);
    for (int sig = 1; sig < NSIG && status == DDP_OK; sig++) {
        uv_signal_cb callback = sigismember(&config->ending_signals, sig) == 1 ? on_ending_signal
                                : sigismember(&config->forwarded_signals, sig) == 1
                                    ? on_forwarded_signal
                                    : NULL;
        if (callback != NULL)
            status = sigwatch_add(&agent->signals, agent->loop, sig, callback, agent, err);
    }
    return status;
}

static ddp_status watch_guard(struct agent *agent, struct ddp_error *err)
{
    if (agent->config->guard == NULL)
        return DDP_OK;
    int uv_status = uv_poll_init(agent->loop, &agent->guard, agent->config->guard->guard_fd);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch the guard process");
    agent->guard_open = true;
    agent->guard.data = agent;
    uv_poll_start(&agent->guard, UV_READABLE | UV_DISCONNECT, on_guard);
    return DDP_OK;
}

ddp_status agent_init(struct agent *agent, uv_loop_t *loop, const struct agent_config *config,
                      const struct agent_hooks *hooks, struct ddp_error *err)
{
    memset(agent, 0, sizeof *agent);
    agent->config = config;
    agent->hooks = *hooks;
    agent->loop = loop;
    ddpi_sm_init(&agent->sm, &agent_sm);
    logmux_init(&agent->mux, loop);
    agent->mux.idle = on_settled;
    agent->mux.ctx = agent;
    uv_timer_init(loop, &agent->timer);
    agent->timer.data = agent;
    agent->pids = ddpi_calloc(config->nproc, sizeof *agent->pids);
    if (agent->pids != NULL)
        agent->workers = ddpi_calloc(config->nproc, sizeof *agent->workers);
    if (agent->workers == NULL)
        return ddpi_error_nomem(err, config->nproc * sizeof *agent->workers);
    for (uint32_t i = 0; i < config->nproc; i++) {
        worker_proc_init(&agent->workers[i], i, i);
        agent->workers[i].exit_ready = on_exit_ready;
        agent->workers[i].unwatched = on_unwatched;
        agent->workers[i].data = agent;
    }
    const struct gpu_watch_hooks gpu_hooks = {agent, on_agent_line, on_settled};
    gpu_watch_init(&agent->gpus, loop, &gpu_hooks);
    const struct pmi_hooks pmi_hooks = {agent, on_agent_line, on_mpi_abort, on_mpi_unplugged};
    pmi_init(&agent->pmi, loop, config->pmi_link, &pmi_hooks);
    death_watch_open(&agent->death_watch, loop, config->nproc, on_death_hint, agent);
    const struct worker_starter_hooks worker_starter_hooks = {agent, on_worker_started,
                                                              on_starter_over};
    ddp_status status = worker_starter_open(&agent->starter, config, &agent->mux, loop, &agent->pmi,
                                            agent->workers, &worker_starter_hooks, err);
    if (status == DDP_OK)
        status = watch_agent_signals(agent, err);
    if (status == DDP_OK)
        status = watchdog_open(&agent->watchdog, loop, config->timer_fd, agent->workers,
                               config->nproc, &agent->mux, err);
    if (status == DDP_OK)
        status = watch_guard(agent, err);
    return status;
}

static void begin_attempt(struct agent *agent, const struct ddp_round_seat *seat)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++) {
        worker_proc_reset(&agent->workers[i]);
        agent->workers[i].rank = seat->first_rank + i;
    }
    agent->seat = *seat;
    agent->attempts++;
    agent->cause = AGENT_CAUSE_NONE;
    sigemptyset(&agent->held_signals);
    agent->root = agent->dying = NULL;
    ddpi_free(agent->error_copy);
    agent->error_copy = NULL;
    death_watch_renew(&agent->death_watch);
    watchdog_hold(&agent->watchdog);
    oom_kills_init(&agent->oom); /* before a worker can be killed */
}

void agent_run(struct agent *agent, const struct ddp_round_seat *seat)
{
    ddpi_sm_move(&agent->sm, AGENT_STARTING);
    begin_attempt(agent, seat);
    worker_starter_begin(&agent->starter, &agent->seat, agent->attempts - 1, agent->death_watch.fd);
}

static void close_agent_handle(uv_handle_t *handle, bool open)
{
    if (open && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

void agent_close(struct agent *agent)
{
    for (uint32_t i = 0; agent->workers != NULL && i < agent->config->nproc; i++)
        worker_proc_unwatch(&agent->workers[i]); /* one that is stuck still has its watch */
    /* Without a handler they would kill us on the last steps to our exit code. */
    sigprocmask(SIG_BLOCK, &agent->config->ending_signals, NULL);
    sigwatch_close(&agent->signals);
    worker_starter_close(&agent->starter);
    watchdog_close(&agent->watchdog);
    death_watch_close(&agent->death_watch);
    gpu_watch_close(&agent->gpus);
    close_agent_handle((uv_handle_t *)&agent->guard, agent->guard_open);
    close_agent_handle((uv_handle_t *)&agent->timer, true);
    pmi_end(&agent->pmi);
    logmux_close(&agent->mux);
}

void agent_finish(struct agent *agent)
{
    for (uint32_t i = 0; agent->workers != NULL && i < agent->config->nproc; i++)
        worker_proc_reset(&agent->workers[i]);
    ddpi_free(agent->workers);
    ddpi_free(agent->pids);
    ddpi_free(agent->error_copy);
    agent->workers = NULL;
    agent->pids = NULL;
    logmux_finish(&agent->mux);
}
