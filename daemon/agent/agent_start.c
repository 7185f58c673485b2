/*
 * agent_start.c - see agent_impl.h. Resets what belongs to one generation; worker_starter.c starts
 * the processes.
 */
#include "agent_impl.h"

#include "mem.h"
#include "parse.h"
#include "worker_env.h"

#include <inttypes.h>
#include <string.h>

enum { LATER_MS = 50 };

static void begin_attempt(struct agent *agent, const struct ddp_round_seat *seat)
{
    for (uint32_t i = 0; i < agent->config->nproc; i++) {
        worker_proc_reset(&agent->workers[i]);
        agent->workers[i].rank = worker_rank(seat, i);
    }
    agent->seat = *seat;
    agent->attempts++;
    agent->cause = AGENT_CAUSE_NONE;
    sigemptyset(&agent->held_signals);
    agent->root = agent->dying = NULL;
    agent->root_broken = agent->asked_helpers = false;
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
    worker_starter_begin(&agent->starter, &agent->seat, agent->attempts - 1, agent->death_watch.fd,
                         agent_open_pmix_port(agent));
}

/* The generation may have begun to end while this worker was being started. */
void agent_on_worker_started(void *ctx, struct worker_proc *worker)
{
    struct agent *agent = ctx;
    agent->alive++;
    if (agent->sm.state == AGENT_STOPPING)
        worker_proc_stop(worker, agent_stop_signal(agent), agent->config->signal_scope);
    else if (agent->sm.state == AGENT_SETTLING || agent->sm.state == AGENT_SWEEPING)
        worker_proc_stop(worker, SIGKILL, SIGNAL_GROUP);
}

static void watch_gpus(struct agent *agent)
{
    static const char name[] = "CUDA_VISIBLE_DEVICES";
    const struct agent_config *config = agent->config;
    for (uint32_t i = 0; i < config->nproc; i++)
        agent->pids[i] = agent->workers[i].pid;
    gpu_watch_begin(&agent->gpus, agent->pids, config->nproc,
                    ddpi_parse_env(config->envp, name, strlen(name)));
}

static void say_what_was_saved(struct agent *agent)
{
    const struct worker_starter *starter = &agent->starter;
    if (starter->forked > 0)
        logmux_note(&agent->mux,
                    "%" PRIu32 " of %" PRIu32
                    " workers were forked from a process that has imported "
                    "%s: each is spared %.1f s",
                    starter->forked, agent->config->nproc, agent->warm.names,
                    (double)agent->warm.import_ms / 1000);
}

void agent_wait(struct agent *agent)
{
    warm_process_begin(&agent->warm);
}

/* A job of a few milliseconds does without both. A worker needs longer than this until it uses a
 * GPU, or so much memory that its end takes time. */
static void on_workers_last(uv_timer_t *timer)
{
    struct agent *agent = timer->data;
    if (agent->sm.state != AGENT_RUNNING)
        return;
    death_watch_start(&agent->death_watch);
    watch_gpus(agent);
}

static void enter_running(struct agent *agent)
{
    ddpi_sm_move(&agent->sm, AGENT_RUNNING);
    agent_forward_held_signals(agent);
    agent->hooks.started(agent->hooks.ctx);
    say_what_was_saved(agent);
    warm_process_begin(&agent->warm);
    if (agent->gpus.begun)
        watch_gpus(agent); /* what it knows of an earlier generation is over */
    else
        uv_timer_start(&agent->timer, on_workers_last, LATER_MS, 0);
}

void agent_on_starter_over(void *ctx, ddp_status status)
{
    struct agent *agent = ctx;
    watchdog_go_on(&agent->watchdog);
    if (agent->sm.state == AGENT_STARTING && status == DDP_OK) {
        enter_running(agent); /* workers that died meanwhile are reported in the order of death */
    } else {
        agent_collect_children(agent);
        if (agent->sm.state == AGENT_STARTING)
            agent_abort_start(agent);
    }
    agent_advance(agent);
}
