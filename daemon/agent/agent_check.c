/*
 * agent_check.c - see agent_impl.h. CHECKING: the command runs (node_check.h). CLEARING: what it
 * has left below the agent is killed, as after a generation (agent_stop.c). Owns nothing.
 */
#include "agent_impl.h"

#include "cgroup.h"
#include "clock.h"
#include "reap.h"

enum {
    CLEAR_AGAIN_MS = 5,    /* a child may have been missed while others were exiting */
    CLEAR_LIMIT_MS = 5000, /* what survives SIGKILL for this long is stuck in the kernel */
};

static void on_check_settled(void *ctx)
{
    struct agent *agent = ctx;
    agent_collect_children(agent);
    agent_advance(agent);
}

ddp_status agent_open_check(struct agent *agent, struct ddp_error *err)
{
    const struct agent_config *config = agent->config;
    const struct cgroup *group = config->cgroup;
    const struct node_check_hooks hooks = {agent, on_check_settled};
    const struct node_check_config check = {
        .command = config->node_check,
        .timeout_ms = config->node_check_timeout_ms,
        .grace_ms = config->failure_timeout_ms,
        .envp = config->envp,
        .node = config->host,
        .job = config->run_id,
        .cgroup_fd = group != NULL && group->path[0] != '\0' ? group->procs_fd : 0,
        .nofile = config->nofile};
    return node_check_open(&agent->check, agent->loop, &check, &agent->mux, &hooks, err);
}

void agent_check(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_CHECKING);
    node_check_begin(&agent->check, agent->seat.generation);
}

void agent_end_check(struct agent *agent)
{
    node_check_end(&agent->check);
    agent_advance(agent);
}

/* While the warm process is being started its pid is not known, so it could not be spared. */
static void kill_leftovers(struct agent *agent)
{
    if (!warm_process_busy(&agent->warm))
        agent_kill_everything(agent);
}

static void on_clear_timer(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    kill_leftovers(agent);
    agent_advance(agent);
}

bool agent_clear_when_checked(struct agent *agent)
{
    if (agent->check.sm.state != NODE_CHECK_CLEARING)
        return false;
    ddpi_sm_move(&agent->sm, AGENT_CLEARING);
    agent->sweep_deadline_ms = ddpi_monotonic_ms() + CLEAR_LIMIT_MS;
    uv_timer_start(&agent->timer, on_clear_timer, CLEAR_AGAIN_MS, CLEAR_AGAIN_MS);
    kill_leftovers(agent);
    return true;
}

static void say_stuck_child(void *ctx, pid_t pid, char state, const char *name)
{
    logmux_say(ctx,
               "process %d (%s) of the node check is still there %d s after SIGKILL, in state "
               "%c: it is stuck in the kernel",
               (int)pid, name, CLEAR_LIMIT_MS / 1000, state);
}

bool agent_finish_check(struct agent *agent)
{
    char why[NODE_CHECK_WHY_MAX];
    bool left = agent_collect_children(agent);
    bool late = ddpi_monotonic_ms() >= agent->sweep_deadline_ms;
    if (left && !late)
        return false;
    if (late) /* also a process outside the job, which may hold the pipe */
        logmux_abandon(&agent->check.output);
    if (!logmux_streams_ended(&agent->mux))
        return false;
    if (left)
        reap_each_child(warm_process_pid(&agent->warm), say_stuck_child, &agent->mux);
    uv_timer_stop(&agent->timer);
    node_check_swept(&agent->check, left, why);
    ddpi_sm_move(&agent->sm, AGENT_IDLE);
    agent->hooks.checked(agent->hooks.ctx, why);
    return true;
}
