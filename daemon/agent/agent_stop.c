/*
 * agent_stop.c - see agent_impl.h. agent_stop() asks the workers to stop and gives them a grace
 * period, which lasts as long as their main programs. SETTLING asks their helpers to end, some of
 * which clean up. SWEEPING kills what is left. DRAINING reads what the workers left in their pipes,
 * writes the report, and does not wait for a slow reader of our own output: the other nodes wait
 * for us. FLUSHING waits for that reader.
 */
#include "agent_impl.h"

#include "cgroup.h"
#include "clock.h"
#include "failpoint.h"
#include "outcome.h"
#include "reap.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    SETTLE_MS = 500,          /* for helpers to clean up after a good end of their main program */
    SETTLE_ASKED_MS = 2000,   /* after any other end; a busy machine may not run them at once */
    MANAGER_LIMIT_MS = 10000, /* the same for PyTorch's manager, which waits for 2 s by itself */
    MANAGER_AGAIN_MS = 100,   /* from one look at what is left to the next */
    SWEEP_AGAIN_MS = 5,       /* a child may have been missed while others were exiting */
    SWEEP_LIMIT_MS = 5000,    /* what survives SIGKILL for this long is stuck in the kernel */
    DRAIN_LIMIT_MS = 2000,    /* for a pipe that a process outside the job holds open */
    FLUSH_LEAST_MS = 2000,    /* after a signal, for a reader of our output */
    FLUSH_SAY_MS = 60000,
};

/* ---- STOPPING ---- */

static void enter_sweeping(struct agent *agent);
static void enter_settling(struct agent *agent);
static void ask_helpers(struct agent *agent);
static void on_settle_over(uv_timer_t *timer);

static void ask_workers(struct agent *agent, int sig)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_stop(&agent->workers[i], sig, agent->config->signal_scope);
}

static void on_grace_over(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    ask_workers(agent, SIGKILL);
    enter_settling(agent);
    agent_advance(agent);
}

int agent_stop_signal(const struct agent *agent)
{
    return agent->signal != 0 ? agent->signal : SIGTERM;
}

void agent_stop(struct agent *agent, enum member_stop how)
{
    const struct agent_config *config = agent->config;
    uint64_t grace_ms =
        how == MEMBER_STOP_ORDERLY ? config->shutdown_timeout_ms : config->failure_timeout_ms;
    if (agent->cause == AGENT_CAUSE_START || agent->sm.state == AGENT_IDLE)
        return; /* agent_abort_start() ends the workers; or none runs */
    worker_starter_cancel(&agent->starter);
    if (agent->sm.state == AGENT_SETTLING && !agent->asked_helpers)
        ask_helpers(agent);
    agent_set_cause(agent, AGENT_CAUSE_ORDER);
    if (how == MEMBER_STOP_KILL) {
        if (ddpi_sm_allowed(&agent->sm, AGENT_SWEEPING))
            enter_sweeping(agent);
    } else if (agent_is_up(agent)) {
        ddpi_sm_move(&agent->sm, AGENT_STOPPING);
        ask_workers(agent, agent_stop_signal(agent));
        uv_timer_start(&agent->timer, on_grace_over, grace_ms, 0);
        agent->hooks.changed(agent->hooks.ctx);
    } else if (agent->sm.state == AGENT_STOPPING && uv_timer_get_due_in(&agent->timer) > grace_ms) {
        uv_timer_start(&agent->timer, on_grace_over, grace_ms, 0);
    }
    agent_advance(agent);
}

/* ---- SWEEPING ---- */

void agent_kill_everything(struct agent *agent)
{
    cgroup_kill(agent->config->cgroup);
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_stop(&agent->workers[i], SIGKILL, SIGNAL_GROUP);
    reap_kill_children(warm_process_pid(&agent->warm));
}

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
    if (ddpi_monotonic_ms() >= agent->sweep_deadline_ms) {
        worker_starter_abandon(&agent->starter);
        agent_collect_children(agent);
        reap_each_child(warm_process_pid(&agent->warm), say_stuck_process, &agent->mux);
        agent_set_cause(agent, AGENT_CAUSE_STUCK);
    } else {
        agent_kill_everything(agent);
    }
    agent_advance(agent);
}

static void enter_sweeping(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_SWEEPING);
    agent->sweep_deadline_ms = ddpi_monotonic_ms() + SWEEP_LIMIT_MS;
    pmix_host_end(&agent->pmix);
    uv_timer_start(&agent->timer, on_sweep_timer, SWEEP_AGAIN_MS, SWEEP_AGAIN_MS);
    agent_kill_everything(agent);
}

static void sweep_now(struct agent *agent)
{
    enter_sweeping(agent);
    agent_advance(agent);
}

void agent_abort_start(struct agent *agent)
{
    agent_set_cause(agent, AGENT_CAUSE_START);
    agent_report_failure(agent);
    sweep_now(agent);
}

/* ---- SETTLING ---- */

static bool is_helper(void *ctx, const struct ddpi_proc_stat *stat)
{
    const struct agent *agent = ctx;
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (stat->session == agent->workers[i].pid && !agent->workers[i].main_ended)
            return true;
    return false;
}

/* PyTorch's manager of shared memory (the sharing strategy file_system), as the kernel cuts its
 * name. It removes the segments when it ends, by itself, 2 s after its last client. */
static bool is_shm_manager(const struct ddpi_proc_stat *stat)
{
    return strcmp(stat->name, "torch_shm_manag") == 0;
}

static void ask_helpers(struct agent *agent)
{
    agent->asked_helpers = true;
    uv_timer_start(&agent->timer, on_settle_over, SETTLE_ASKED_MS, 0);
    reap_signal_below(SIGTERM, warm_process_pid(&agent->warm), is_helper, agent);
}

struct left_over {
    char names[512];
    size_t len; /* of the names that fit */
    unsigned count;
    unsigned managers; /* not counted above */
    pid_t server;      /* of MPI programs: it is ours */
};

static bool note_left_over(void *ctx, const struct ddpi_proc_stat *stat)
{
    struct left_over *left = ctx;
    if (stat->state == 'Z' || stat->pid == left->server)
        return false;
    if (is_shm_manager(stat)) {
        left->managers++;
        return false;
    }
    int len = snprintf(left->names + left->len, sizeof left->names - left->len, "%s%s (pid %d)",
                       left->count > 0 ? ", " : "", stat->name, (int)stat->pid);
    left->count++;
    if (left->len + (size_t)len < sizeof left->names)
        left->len += (size_t)len;
    left->names[left->len] = '\0';
    return false;
}

static bool is_no_manager(void *ctx, const struct ddpi_proc_stat *stat)
{
    (void)ctx;
    return !is_shm_manager(stat);
}

/* Kill all but managers, whose clients may be among those that are killed. */
static void on_manager_timer(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    pid_t warm = warm_process_pid(&agent->warm);
    struct left_over left = {.server = agent->pmix.pid};
    reap_signal_below(0, warm, note_left_over, &left);
    if (left.managers == 0 || ddpi_monotonic_ms() >= agent->sweep_deadline_ms)
        sweep_now(agent);
    else
        reap_signal_below(SIGKILL, warm, is_no_manager, NULL);
}

static void on_settle_over(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    struct left_over left = {.server = agent->pmix.pid};
    reap_signal_below(0, warm_process_pid(&agent->warm), note_left_over, &left);
    if (agent->cause == AGENT_CAUSE_NONE && left.count > 0) /* nobody has asked for their end */
        logmux_say(&agent->mux,
                   "processes that the workers have left running are killed, %u in all: %s; a "
                   "worker that needs them must wait for them before it ends",
                   left.count, left.names);
    if (left.managers > 0)
        logmux_note(&agent->mux,
                    "waiting for PyTorch's torch_shm_manager to remove the workers' shared memory, "
                    "at most %d s; a second signal ends the wait",
                    MANAGER_LIMIT_MS / 1000);
    agent->asked_helpers = true; /* they are killed now */
    agent->sweep_deadline_ms = ddpi_monotonic_ms() + MANAGER_LIMIT_MS;
    uv_timer_start(timer, on_manager_timer, MANAGER_AGAIN_MS, MANAGER_AGAIN_MS);
    on_manager_timer(timer);
}

/* At a good end what is left may be work that the workers have started; it has its time. */
static void enter_settling(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_SETTLING);
    pmix_host_end(&agent->pmix);
    if (agent->cause == AGENT_CAUSE_NONE)
        uv_timer_start(&agent->timer, on_settle_over, SETTLE_MS, 0);
    else
        ask_helpers(agent);
}

static bool settle_when_main_programs_ended(struct agent *agent)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (worker_proc_alive(&agent->workers[i]) && !agent->workers[i].main_ended)
            return false;
    if (worker_starter_busy(&agent->starter))
        return false;
    enter_settling(agent);
    return true;
}

static bool sweep_when_settled(struct agent *agent)
{
    if (agent_collect_children(agent))
        return false;
    enter_sweeping(agent);
    return true;
}

/* ---- DRAINING ---- */

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

static bool drain_when_swept(struct agent *agent)
{
    bool left = agent_collect_children(agent);
    if (left && agent->cause != AGENT_CAUSE_STUCK)
        return false;
    bool all_read = !agent->mux.paused; /* except what has just arrived */
    ddpi_sm_move(&agent->sm, AGENT_DRAINING);
    /* After a failure or an order a new generation may start, and needs the memory. */
    if (agent->cause == AGENT_CAUSE_WORKER || agent->cause == AGENT_CAUSE_ORDER)
        gpu_watch_reclaim(&agent->gpus, agent->config->gpu_memory_timeout_ms);
    logmux_take_rest(&agent->mux);
    uv_timer_start(&agent->timer, on_drain_limit, left && all_read ? 0 : DRAIN_LIMIT_MS, 0);
    return true;
}

static bool finish_when_drained(struct agent *agent)
{
    if (!logmux_streams_ended(&agent->mux) || !gpu_watch_settled(&agent->gpus))
        return false;
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        if (worker_proc_watched(&agent->workers[i]) && !worker_proc_alive(&agent->workers[i]))
            return false; /* its handle is being closed */
    pmi_end(&agent->pmi);
    (void)DDPI_FAILPOINT("agent.report");
    uv_timer_stop(&agent->timer);
    outcome_report(agent);
    if (agent->root_broken)
        agent_report_failure(agent);
    bool well = agent->cause == AGENT_CAUSE_NONE;
    ddpi_sm_move(&agent->sm, AGENT_IDLE);
    if (agent->cause == AGENT_CAUSE_STUCK)
        agent->hooks.leave(agent->hooks.ctx, outcome_stuck_code(agent),
                           "processes are left that cannot be killed", MEMBER_STOP_KILL);
    agent->hooks.ended(agent->hooks.ctx, well);
    return true;
}

/* ---- FLUSHING ---- */

void agent_drop_output(struct agent *agent)
{
    if (!logmux_flushed(&agent->mux)) {
        logmux_discard(&agent->mux);
        abandon_streams(agent);
    }
}

static void on_flush_over(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    agent_drop_output(agent);
    agent_advance(agent);
}

static void on_flush_slow(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    logmux_note(&agent->mux, "the job has ended; ddprun waits until the rest of its output is "
                             "read; a signal ends the wait");
}

/* A slow reader of our output gets everything, unless a signal ends the wait: one that comes now,
 * or the one that has ended the job. */
static void enter_flushing(struct agent *agent)
{
    uint64_t limit_ms = agent->config->shutdown_timeout_ms;
    ddpi_sm_move(&agent->sm, AGENT_FLUSHING);
    if (agent->signal == 0)
        uv_timer_start(&agent->timer, on_flush_slow, FLUSH_SAY_MS, 0);
    else
        uv_timer_start(&agent->timer, on_flush_over,
                       limit_ms > FLUSH_LEAST_MS ? limit_ms : FLUSH_LEAST_MS, 0);
}

static bool done_when_flushed(struct agent *agent)
{
    if (!logmux_flushed(&agent->mux))
        return false;
    uv_timer_stop(&agent->timer);
    ddpi_sm_move(&agent->sm, AGENT_DONE);
    agent->hooks.done(agent->hooks.ctx, agent->exit_code);
    return true;
}

void agent_end(struct agent *agent, int exit_code)
{
    agent->exit_code = exit_code;
    warm_process_end(&agent->warm);
    if (exit_code != 0)
        outcome_pass_on(agent);
    enter_flushing(agent);
    agent_advance(agent);
}

/* ---- the next step ---- */

void agent_advance(struct agent *agent)
{
    /* The step out of each state, taken as soon as its condition holds. */
    static bool (*const steps[])(struct agent *) = {
        [AGENT_RUNNING] = settle_when_main_programs_ended,
        [AGENT_STOPPING] = settle_when_main_programs_ended,
        [AGENT_SETTLING] = sweep_when_settled,
        [AGENT_SWEEPING] = drain_when_swept,
        [AGENT_DRAINING] = finish_when_drained,
        [AGENT_CHECKING] = agent_clear_when_checked,
        [AGENT_CLEARING] = agent_finish_check,
        [AGENT_FLUSHING] = done_when_flushed,
        [AGENT_DONE] = NULL,
    };
    while (steps[agent->sm.state] != NULL && steps[agent->sm.state](agent))
        ;
}

void agent_collect_late(void *ctx)
{
    struct agent *agent = ctx;
    agent_collect_children(agent);
    agent_advance(agent);
}
