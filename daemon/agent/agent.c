/*
 * agent.c - opens and closes an agent, and connects the events of its parts to the steps that they
 * cause. Owns the workers, the output and all handles; does not own the loop, and never blocks it.
 */
#include "agent.h"

#include "agent_impl.h"
#include "error.h"
#include "guard.h"
#include "mem.h"
#include "worker_env.h"

static void on_exit_ready(struct worker_proc *worker)
{
    struct agent *agent = worker->data;
    agent_collect_worker(agent, worker);
    agent_advance(agent);
}

static void on_unwatched(struct worker_proc *worker)
{
    agent_advance(worker->data);
}

static void on_main_over(struct worker_proc *worker)
{
    agent_advance(worker->data);
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

/* The reader of our output may be gone as well. */
static void on_guard(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    struct agent *agent = poll->data;
    uv_poll_stop(poll);
    agent_set_cause(agent, AGENT_CAUSE_GUARD);
    logmux_discard(&agent->mux);
    gpu_watch_give_up(&agent->gpus);
    agent->hooks.leave(agent->hooks.ctx, 128 + SIGKILL, "the guard process was killed",
                       MEMBER_STOP_KILL);
    agent_advance(agent);
}

static ddp_status make_warm_environment(struct agent *agent, struct ddp_error *err)
{
    if (agent->config->preload == NULL)
        return DDP_OK;
    agent->warm_own = worker_env_own_names(agent->config);
    if (agent->warm_own == NULL)
        return ddpi_error_set(err, DDP_E_NOMEM, "no memory for the names of variables");
    return worker_env_make_shared(agent->config, &agent->warm_envp, err);
}

static ddp_status open_warm(struct agent *agent, struct ddp_error *err)
{
    const struct agent_config *config = agent->config;
    const struct warm_hooks hooks = {agent, on_agent_line, agent_collect_late};
    ddp_status status = make_warm_environment(agent, err);
    const struct warm_config warm = {.modules = config->preload,
                                     .program = config->program,
                                     .argv = config->argv,
                                     .envp = agent->warm_envp,
                                     .own = agent->warm_own,
                                     .nofile = config->nofile};
    return status == DDP_OK ? warm_process_open(&agent->warm, agent->loop, &warm, &hooks, err)
                            : status;
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
    agent->config = config;
    agent->hooks = *hooks;
    agent->loop = loop;
    ddpi_sm_init(&agent->sm, &agent_sm);
    logmux_init(&agent->mux, loop);
    agent->mux.voice = config->voice;
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
        worker_proc_init(&agent->workers[i], i);
        agent->workers[i].exit_ready = on_exit_ready;
        agent->workers[i].main_over = on_main_over;
        agent->workers[i].unwatched = on_unwatched;
        agent->workers[i].data = agent;
    }
    const struct gpu_watch_hooks gpu_hooks = {agent, on_agent_line, on_settled};
    gpu_watch_init(&agent->gpus, loop, &gpu_hooks);
    const struct pmi_hooks pmi_hooks = {agent, on_agent_line, agent_on_mpi_abort,
                                        agent_on_mpi_unplugged};
    pmi_init(&agent->pmi, loop, config->pmi_link, &pmi_hooks);
    death_watch_open(&agent->death_watch, loop, config->nproc, agent_on_death_hint, agent);
    const struct worker_starter_hooks starter_hooks = {agent, agent_on_worker_started,
                                                       agent_on_starter_over};
    ddp_status status = worker_starter_open(&agent->starter, config, &agent->mux, loop, &agent->pmi,
                                            &agent->warm, agent->workers, &starter_hooks, err);
    if (status == DDP_OK)
        status = open_warm(agent, err);
    if (status == DDP_OK)
        status = agent_open_pmix(agent, err);
    if (status == DDP_OK)
        status = agent_open_check(agent, err);
    if (status == DDP_OK)
        status = agent_watch_signals(agent, err);
    if (status == DDP_OK)
        status = watchdog_open(&agent->watchdog, loop, config->timer_fd, agent->workers,
                               config->nproc, &agent->mux, err);
    if (status == DDP_OK)
        status = watch_guard(agent, err);
    return status;
}

static void close_agent_handle(uv_handle_t *handle, bool open)
{
    if (open && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

void agent_close(struct agent *agent)
{
    for (uint32_t i = 0; agent->workers != NULL && i < agent->config->nproc; i++)
        worker_proc_unwatch(&agent->workers[i]); /* a stuck one still has its handle */
    /* Without a handler they would kill this process before it returns its exit code. */
    sigprocmask(SIG_BLOCK, &agent->config->ending_signals, NULL);
    sigwatch_close(&agent->signals);
    worker_starter_close(&agent->starter);
    warm_process_close(&agent->warm);
    pmix_host_close(&agent->pmix);
    node_check_close(&agent->check);
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
    logmux_stream_finish(&agent->check.output);
    if (!agent->warm.spawner.left) /* else its thread still uses it */
        worker_env_free(agent->warm_envp);
    ddpi_free(agent->warm_own);
    pmix_host_finish(&agent->pmix);
    agent->workers = NULL;
    agent->pids = NULL;
    logmux_finish(&agent->mux);
}
