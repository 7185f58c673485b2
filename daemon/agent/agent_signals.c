/*
 * agent_signals.c - see agent_impl.h. What an ending signal does depends on the state: a table
 * has an action for each.
 */
#include "agent_impl.h"

#include "clock.h"
#include "guard.h"
#include "reap.h"
#include "signames.h"

enum { SAME_SIGNAL_MS = 250 }; /* a signal that follows this soon is the same request */

static void on_child_signal(uv_signal_t *handle, int sig)
{
    (void)sig;
    struct agent *agent = handle->data;
    if (agent->sm.state == AGENT_SWEEPING)
        agent_kill_everything(agent);
    agent_collect_children(agent);
    if (reap_has_stopped())
        agent->hooks.changed(agent->hooks.ctx);
    agent_advance(agent);
}

/* ---- signals that end the job ---- */

static void leave_for_signal(struct agent *agent, int sig, enum member_stop how)
{
    char why[64], name[SIGNAME_MAX];
    agent->cause = AGENT_CAUSE_SIGNAL;
    agent->signal = sig;
    agent->signal_ms = ddpi_monotonic_ms();
    const int *told = agent->config->told;
    const char *who = told != NULL && *told == sig ? "its launcher, by " : "";
    if (agent->config->guard != NULL && guard_sidecar_failed(agent->config->guard))
        snprintf(why, sizeof why, "this node leaves, as its keeper of the store cannot run");
    else
        snprintf(why, sizeof why, "the job was ended by %s%s", who, signame_of(sig, name));
    agent->hooks.leave(agent->hooks.ctx, 128 + sig, why, how);
}

static void stop_workers(struct agent *agent, int sig)
{
    char name[SIGNAME_MAX];
    uint32_t count = agent->sm.state == AGENT_RUNNING ? agent->alive : agent->config->nproc;
    logmux_note(&agent->mux, "%s: stopping %u worker%s (once more kills %s)", signame_of(sig, name),
                count, count == 1 ? "" : "s", count == 1 ? "it" : "them");
    leave_for_signal(agent, sig, MEMBER_STOP_ORDERLY);
}

/* The workers are stopping already. If the job asked for that, this is the first signal and they
 * keep their grace period. After a failure or another signal the user does not want to wait. */
static void hurry_workers(struct agent *agent, int sig)
{
    char name[SIGNAME_MAX];
    bool one = agent->alive == 1;
    signame_of(sig, name);
    if (agent->cause == AGENT_CAUSE_ORDER) {
        logmux_note(&agent->mux, "%s: leaving when %u worker%s stopped (once more kills %s)", name,
                    agent->alive, one ? " has" : "s have", one ? "it" : "them");
        leave_for_signal(agent, sig, MEMBER_STOP_ORDERLY);
    } else {
        logmux_note(&agent->mux, "%s: killing %u worker%s", name, agent->alive, one ? "" : "s");
        leave_for_signal(agent, sig, MEMBER_STOP_KILL);
    }
}

static void leave_now(struct agent *agent, int sig)
{
    leave_for_signal(agent, sig, MEMBER_STOP_KILL);
}

/* What the workers have left may clean up still, unless the user insists. */
static void leave_when_settled(struct agent *agent, int sig)
{
    if (agent->cause == AGENT_CAUSE_SIGNAL) {
        leave_for_signal(agent, sig, MEMBER_STOP_KILL);
        return;
    }
    char name[SIGNAME_MAX];
    logmux_note(&agent->mux,
                "%s: leaving when what the workers have left has cleaned up (once more kills it)",
                signame_of(sig, name));
    leave_for_signal(agent, sig, MEMBER_STOP_ORDERLY);
}

static void stop_draining(struct agent *agent, int sig)
{
    agent_drop_output(agent);
    gpu_watch_give_up(&agent->gpus);
    leave_for_signal(agent, sig, MEMBER_STOP_KILL);
    agent_advance(agent);
}

static void stop_flushing(struct agent *agent, int sig)
{
    (void)sig; /* the exit code is that of the job, which is over */
    agent_drop_output(agent);
    agent_advance(agent);
}

static void on_ending_signal(uv_signal_t *handle, int sig)
{
    static void (*const actions[])(struct agent * agent, int sig) = {
        [AGENT_IDLE] = leave_now,
        [AGENT_STARTING] = stop_workers,
        [AGENT_RUNNING] = stop_workers,
        [AGENT_STOPPING] = hurry_workers,
        [AGENT_SETTLING] = leave_when_settled,
        [AGENT_SWEEPING] = leave_now,
        [AGENT_DRAINING] = stop_draining,
        [AGENT_CHECKING] = leave_now,
        [AGENT_CLEARING] = leave_now,
        [AGENT_FLUSHING] = stop_flushing,
        [AGENT_DONE] = leave_now, /* other nodes may need us */
    };
    struct agent *agent = handle->data;
    int *told = agent->config->told;
    /* Slurm and systemd signal every process of a job, guard and agent included, and the guard
     * forwards its own. A person who repeats a signal takes longer than that. */
    if (agent->cause != AGENT_CAUSE_SIGNAL ||
        ddpi_monotonic_ms() - agent->signal_ms >= SAME_SIGNAL_MS)
        actions[agent->sm.state](agent, sig);
    if (told != NULL && *told == sig)
        *told = 0; /* the next one may have another sender */
}

/* ---- signals for the workers ---- */

/* The kernel tells everybody at a terminal that its size has changed. */
static void signal_workers(struct agent *agent, int sig)
{
    enum signal_scope scope = sig == SIGWINCH ? SIGNAL_GROUP : agent->config->signal_scope;
    for (uint32_t i = 0; i < agent->config->nproc; i++)
        worker_proc_signal(&agent->workers[i], sig, scope);
}

/* A worker that is being started cannot be signalled yet. */
static void on_forwarded_signal(uv_signal_t *handle, int sig)
{
    struct agent *agent = handle->data;
    if (agent->sm.state == AGENT_STARTING)
        sigaddset(&agent->held_signals, sig);
    else
        signal_workers(agent, sig);
}

void agent_forward_held_signals(struct agent *agent)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (sigismember(&agent->held_signals, sig) == 1)
            signal_workers(agent, sig);
}

/* The workers' terminals belong to no session, so the kernel does not tell the workers. */
static void on_window_change(uv_signal_t *handle, int sig)
{
    struct agent *agent = handle->data;
    logmux_resize(&agent->mux);
    on_forwarded_signal(handle, sig);
}

ddp_status agent_watch_signals(struct agent *agent, struct ddp_error *err)
{
    const struct agent_config *config = agent->config;
    ddp_status status =
        sigwatch_add(&agent->signals, agent->loop, SIGCHLD, on_child_signal, agent, err);
    if (status == DDP_OK && config->pty)
        status = sigwatch_add(&agent->signals, agent->loop, SIGWINCH, on_window_change, agent, err);
    return status == DDP_OK
               ? sigwatch_add_sets(&agent->signals, agent->loop, &config->ending_signals,
                                   on_ending_signal, &config->forwarded_signals,
                                   on_forwarded_signal, agent, err)
               : status;
}
