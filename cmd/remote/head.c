/*
 * head.c - see head.h. Owns the loop, the store and the agents. Must not decide about ranks,
 * restarts or the result: the rounds do. That an agent ends says only that its host is gone.
 *
 * The end of a job has steps: the agents get a signal, as their users would send it; then their
 * leashes are let go, at which they kill their workers; then the remote shells are killed. Each
 * step waits for the one before, for a bounded time.
 */
#include "head.h"

#include "clock.h"
#include "discovery.h"
#include "exit_codes.h"
#include "head_command.h"
#include "leash_text.h"
#include "logmux.h"
#include "mem.h"
#include "processors.h"
#include "proof.h"
#include "remote_agent.h"
#include "rounds.h"
#include "signames.h"
#include "sigwatch.h"
#include "thread.h"
#include "version.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SSH_FAILED = 255,
    LETTING_GO_MS = 5000, /* for agents without a leash to kill their workers */
    KILLING_MS = 5000,
    SAME_SIGNAL_MS = 250,
    /* Beyond --shutdown-timeout: for what the workers have left to clean up, at most 10.5 s, and
     * for an agent to say what happened. */
    STEP_MS = 13000,
};

enum head_step {
    HEAD_RUNNING,
    HEAD_EXPECTING, /* the job is over, and the agents should end by themselves */
    HEAD_SIGNALLED,
    HEAD_LET_GO,
    HEAD_KILLED,
    HEAD_CLOSING, /* no agent is left */
};

struct head {
    const struct head_config *config;
    uv_loop_t loop;
    struct logmux mux;
    struct spawner spawner;
    struct ddpi_server *server;
    struct ddpi_log log;
    struct sigwatch signals;
    struct discovery discovery;
    struct remote_hooks hooks;
    struct remote_agent **agents;
    size_t count, room;
    size_t up;       /* agents that are not ended ... */
    size_t left_out; /* ... and those of them that the rounds leave out */
    uv_timer_t patience;
    uv_poll_t guard;
    enum head_step step;
    int code;      /* of the job, from its rounds; -1: not known yet */
    int lost_code; /* why the first host is gone; 0: none is */
    int signal;    /* that ended the job; 0: none */
    uint64_t signal_ms;
    bool discovered; /* the first list has come */
};

/* ---- the end ---- */

static void close_head(struct head *head);
static void end_job(struct head *head, int sig);
static void wait_at_most(struct head *head, enum head_step step, uint64_t ms);
static void on_settled(void *ctx);

/* No process of an agent is left. */
static bool only_output_is_left(const struct head *head)
{
    for (size_t i = 0; i < head->count; i++)
        if (remote_agent_is_up(head->agents[i]) && !head->agents[i]->exited)
            return false;
    return head->up > 0 || head->step == HEAD_CLOSING;
}

static void apply_to_all(struct head *head, void (*action)(struct remote_agent *agent))
{
    for (size_t i = 0; i < head->count; i++)
        if (remote_agent_is_up(head->agents[i]))
            action(head->agents[i]);
}

/* Nobody reads the rest of the output, so it is dropped, and the head can close. */
static void drop_output(struct head *head)
{
    logmux_discard(&head->mux);
    on_settled(head);
}

static void say_stuck(struct remote_agent *agent)
{
    logmux_say(agent->mux, "the process %d, which starts host '%s', does not end when it is killed",
               (int)agent->pid, agent->host.name);
}

static void on_patience_over(uv_timer_t *timer)
{
    struct head *head = timer->data;
    if (head->step >= HEAD_SIGNALLED && only_output_is_left(head)) {
        drop_output(head);
        return;
    }
    switch (head->step) {
    case HEAD_RUNNING: /* --host-discovery-script has named no host that could be started */
        logmux_say(&head->mux, "no host could be started within %" PRIu64 " s",
                   head->config->join_timeout_ms / 1000);
        head->lost_code = EXIT_TRY_AGAIN;
        close_head(head);
        break;
    case HEAD_EXPECTING: /* while output is not read, an agent cannot get rid of its own */
        if (head->mux.paused)
            wait_at_most(head, HEAD_EXPECTING, STEP_MS);
        else
            end_job(head, SIGTERM);
        break;
    case HEAD_SIGNALLED:
        apply_to_all(head, remote_agent_let_go);
        wait_at_most(head, HEAD_LET_GO, LETTING_GO_MS);
        break;
    case HEAD_LET_GO:
        apply_to_all(head, remote_agent_kill);
        wait_at_most(head, HEAD_KILLED, KILLING_MS);
        break;
    case HEAD_KILLED: /* the guard tries once more */
        apply_to_all(head, say_stuck);
        uv_stop(&head->loop);
        break;
    case HEAD_CLOSING:
        break;
    }
}

static void wait_at_most(struct head *head, enum head_step step, uint64_t ms)
{
    head->step = step;
    uv_timer_start(&head->patience, on_patience_over, ms, 0);
}

/* One that has not said hello cannot read signals yet. */
static void give_up_starting(struct remote_agent *agent)
{
    if (agent->exited || agent->sm.state != REMOTE_STARTING)
        return;
    remote_agent_give_up(agent);
    agent->stopping = true;
}

static void end_job(struct head *head, int sig)
{
    apply_to_all(head, give_up_starting);
    for (size_t i = 0; i < head->count; i++) {
        struct remote_agent *agent = head->agents[i];
        if (agent->exited || agent->sm.state != REMOTE_RUNNING)
            continue;
        remote_agent_signal(agent, sig);
        agent->stopping = true;
    }
    if (head->step < HEAD_SIGNALLED)
        wait_at_most(head, HEAD_SIGNALLED, head->config->shutdown_timeout_ms + STEP_MS);
    if (head->up == 0)
        close_head(head);
}

static void on_settled(void *ctx)
{
    struct head *head = ctx;
    for (size_t i = 0; i < head->count; i++)
        remote_agent_check(head->agents[i]);
    if (head->step == HEAD_CLOSING && logmux_streams_ended(&head->mux) &&
        logmux_flushed(&head->mux) && !uv_is_closing((uv_handle_t *)&head->patience)) {
        uv_close((uv_handle_t *)&head->patience, NULL);
        logmux_close(&head->mux);
        sigwatch_close(&head->signals);
        uv_close((uv_handle_t *)&head->guard, NULL);
    }
}

static void close_head(struct head *head)
{
    if (head->step == HEAD_CLOSING)
        return;
    head->step = HEAD_CLOSING;
    uv_timer_stop(&head->patience);
    spawner_close(&head->spawner);
    ddpi_server_close(head->server, NULL, NULL);
    head->discovery.hooks.closed = on_settled;
    head->discovery.hooks.ctx = head;
    discovery_close(&head->discovery);
}

/* ---- the hosts ---- */

/* False: memory is short. */
static bool add_agent(struct head *head, const struct host_entry *host)
{
    if (head->count == head->room) {
        size_t room = head->room > 0 ? head->room * 2 : 16;
        struct remote_agent **agents = ddpi_realloc(head->agents, room, sizeof *agents);
        if (agents == NULL)
            return false;
        head->agents = agents;
        head->room = room;
    }
    struct remote_agent *agent = ddpi_calloc(1, sizeof *agent);
    if (agent == NULL)
        return false;
    remote_agent_init(agent, host, &head->loop, &head->mux, &head->spawner, &head->hooks);
    agent->listed = true;
    head->agents[head->count++] = agent;
    return true;
}

static void start_agent(struct head *head, struct remote_agent *agent, uint32_t rank)
{
    const struct head_config *config = head->config;
    struct ddpi_buf greeting;
    char devices[HOST_DEVICES_MAX + 32];
    ddpi_buf_init(&greeting, LEASH_TEXT_MAX);
    bool ok =
        ddpi_buf_append(&greeting, ddpi_buf_head(config->greeting), ddpi_buf_len(config->greeting));
    snprintf(devices, sizeof devices, "CUDA_VISIBLE_DEVICES=%s", agent->host.devices);
    if (agent->host.devices[0] != '\0')
        ok = ok && leash_put_variable(&greeting, devices);
    ok = ok && leash_put_go(&greeting);
    char **argv =
        head_command_make(config->command, &agent->host, rank, ddpi_server_endpoint(head->server));
    if (ok && argv != NULL) {
        if (head->up++ == 0)
            uv_timer_stop(&head->patience);
        remote_agent_start(agent, argv, config->envp, &config->nofile, &greeting,
                           config->start_timeout_ms);
    } else {
        logmux_say(&head->mux, "host '%s' cannot be started: " HEAD_COMMAND_TOO_LONG,
                   agent->host.name);
        head->lost_code = EXIT_CONFIG;
        agent->listed = false;
        ddpi_free(argv);
    }
    ddpi_wipe(greeting.data, greeting.tail); /* the token is in it */
    ddpi_buf_finish(&greeting);
}

/* Start the hosts that are wanted and free, up to the most that the job may have. */
static void start_hosts(struct head *head)
{
    for (size_t i = 0; i < head->count && head->step == HEAD_RUNNING; i++) {
        struct remote_agent *agent = head->agents[i];
        if (agent->listed && !agent->drained && agent->sm.state == REMOTE_IDLE &&
            !blacklist_has(&agent->blacklist, ddpi_monotonic_ms()) &&
            head->up < head->config->max_nodes + head->left_out)
            start_agent(head, agent, (uint32_t)i);
    }
}

static struct remote_agent *find_agent(const struct head *head, const char *name)
{
    for (size_t i = 0; i < head->count; i++)
        if (strcmp(head->agents[i]->host.name, name) == 0)
            return head->agents[i];
    return NULL;
}

/* A host that is no longer listed leaves the job, as on SIGTERM there. */
static void on_hosts(void *ctx, const struct host_list *list)
{
    struct head *head = ctx;
    if (head->step != HEAD_RUNNING)
        return;
    for (size_t i = 0; i < head->count; i++)
        head->agents[i]->listed = false;
    for (size_t i = 0; i < list->count; i++) {
        struct remote_agent *agent = find_agent(head, list->entries[i].name);
        if (agent != NULL && agent->sm.state == REMOTE_IDLE)
            agent->host = list->entries[i]; /* its slots may be others now */
        if (agent != NULL)
            agent->listed = true;
        else if (add_agent(head, &list->entries[i]) && head->discovered)
            logmux_note(&head->mux, "host '%s' is new", list->entries[i].name);
    }
    for (size_t i = 0; i < head->count; i++) {
        struct remote_agent *agent = head->agents[i];
        agent->drained = agent->drained && agent->listed;
        if (agent->listed || agent->stopping || agent->sm.state != REMOTE_RUNNING)
            continue;
        logmux_note(&head->mux, "host '%s' is no longer listed: its workers are stopped",
                    agent->host.name);
        agent->stopping = true;
        remote_agent_signal(agent, SIGTERM);
    }
    head->discovered = true;
    start_hosts(head);
}

static void on_discovery_failed(void *ctx, const char *why)
{
    struct head *head = ctx;
    logmux_say(&head->mux, "--host-discovery-script: %s; the hosts stay as they are", why);
}

/* ---- what happens to an agent ---- */

static void on_agent_ready(void *ctx, struct remote_agent *agent)
{
    struct head *head = ctx;
    if (strcmp(agent->version, DDPRUN_VERSION) != 0)
        logmux_note(&head->mux, "host '%s' has ddprun %s, and this one " DDPRUN_VERSION,
                    agent->host.name, agent->version);
    logmux_detail(&head->mux, "ddprun runs on host '%s'", agent->host.name);
}

/* The agent has run and ended by itself: its user has been told why. ssh's own failures end with
 * 255. While the job goes on, no agent ends with a code of its workers. */
static bool has_left(const struct remote_agent *agent)
{
    int code = remote_agent_code(agent);
    return agent->version[0] != '\0' && code != SSH_FAILED && code != 128 + SIGKILL;
}

/* The agent's own sentence comes with a code of ddprun; all else is a host out of reach. */
static int code_of_end(const struct remote_agent *agent)
{
    int code = remote_agent_code(agent);
    if (has_left(agent))
        return code == 0 ? EXIT_STOPPED : code; /* 0: it was drained */
    return code == EXIT_USAGE || code == EXIT_REFUSED || code == EXIT_CONFIG ? code
                                                                             : EXIT_UNREACHABLE;
}

static void say_failure(struct head *head, const struct remote_agent *agent, const char *what)
{
    char why[512];
    remote_agent_describe(agent, why, sizeof why);
    logmux_say(&head->mux, "host '%s' %s: %s", agent->host.name, what, why);
    if (agent->version[0] == '\0')
        remote_agent_show_tail(agent);
}

/* Whether the job can go on with the hosts that it has, and those that may still come. */
static bool has_enough(const struct head *head)
{
    size_t count = 0;
    for (size_t i = 0; i < head->count; i++)
        count += head->agents[i]->listed && !head->agents[i]->exited;
    return head->config->discovery != NULL || count >= head->config->min_nodes;
}

/* A host that was drained, or ended by a signal there, has not failed. Hosts that end since too few
 * are left do not say why. */
static void note_end(struct head *head, struct remote_agent *agent)
{
    int code = code_of_end(agent);
    if (agent->stopping || agent->noted)
        return;
    agent->noted = true;
    if (head->lost_code == 0 || head->lost_code == EXIT_LEFT)
        head->lost_code = code;
    if (head->step != HEAD_RUNNING)
        return;
    if (!has_left(agent))
        say_failure(head, agent, agent->version[0] != '\0' ? "is lost" : "could not be started");
    if (code <= 128)
        blacklist_fail(&agent->blacklist, &head->config->cooldown, ddpi_monotonic_ms());
}

/* A connection has broken. What the other agents will say about it is less than what is known here,
 * so they are ended first if the job cannot go on. */
static void on_agent_exited(void *ctx, struct remote_agent *agent)
{
    struct head *head = ctx;
    if (head->step != HEAD_RUNNING || agent->stopping || agent->version[0] == '\0' ||
        has_left(agent))
        return;
    note_end(head, agent);
    if (!has_enough(head))
        end_job(head, SIGTERM);
}

static void on_agent_ended(void *ctx, struct remote_agent *agent)
{
    struct head *head = ctx;
    bool left = has_left(agent) && !agent->stopping;
    head->up--;
    note_end(head, agent);
    agent->drained = left && remote_agent_code(agent) == 0;
    remote_agent_reset(agent);
    agent->stopping = agent->noted = false;
    if (head->config->discovery == NULL) { /* it is not tried again; a spare one steps in */
        agent->listed = false;
        start_hosts(head);
    }
    bool goes_on = head->step == HEAD_RUNNING && has_enough(head);
    if (head->up == 0 && (left || !goes_on))
        close_head(head);
    else if (head->up == 0)
        wait_at_most(head, HEAD_RUNNING, head->config->join_timeout_ms);
    else if (head->step == HEAD_RUNNING && !goes_on && left)
        wait_at_most(head, HEAD_EXPECTING, head->config->shutdown_timeout_ms + STEP_MS);
    else if (head->step == HEAD_RUNNING && !goes_on)
        end_job(head, SIGTERM);
}

static void on_spawned(void *ctx, struct spawner_task *task)
{
    (void)ctx;
    remote_agent_spawned(task);
}

/* The agents get the result from the rounds, too, and end by themselves. If hosts that came too
 * late begin the job anew then, it is ended from the loop: here the server may not be changed.
 * With discovery other hosts may come for those that have left. */
static void on_job_changed(void *ctx, const char *job, const struct ddpi_rounds_summary *now)
{
    struct head *head = ctx;
    bool over = now->state == ROUNDS_CLOSED &&
                (now->exit_code != EXIT_LEFT || head->config->discovery == NULL);
    if (head->step > HEAD_EXPECTING || strcmp(job, head->config->job) != 0)
        return;
    head->left_out = now->left_out;
    if (over == (head->code >= 0)) {
        start_hosts(head); /* spare ones, for those that are left out */
        return;
    }
    if (over) {
        head->code = now->exit_code;
        apply_to_all(head, give_up_starting);
    }
    wait_at_most(head, HEAD_EXPECTING,
                 over && head->up > 0 ? head->config->shutdown_timeout_ms + STEP_MS : 0);
}

/* ---- signals ---- */

static void on_ending_signal(uv_signal_t *handle, int sig)
{
    struct head *head = handle->data;
    char name[SIGNAME_MAX];
    if (head->signal != 0 && ddpi_monotonic_ms() - head->signal_ms < SAME_SIGNAL_MS)
        return; /* Slurm and systemd signal the guard as well, which passes it on */
    bool first = head->signal == 0;
    head->signal = sig;
    head->signal_ms = ddpi_monotonic_ms();
    if (only_output_is_left(head)) {
        drop_output(head);
        return;
    }
    logmux_note(&head->mux, "%s: %s on %zu hosts", signame_of(sig, name),
                first ? "stopping the workers (once more kills them)" : "killing the workers",
                head->up);
    end_job(head, sig);
}

static void on_forwarded_signal(uv_signal_t *handle, int sig)
{
    struct head *head = handle->data;
    for (size_t i = 0; i < head->count; i++)
        if (head->agents[i]->sm.state == REMOTE_RUNNING)
            remote_agent_signal(head->agents[i], sig);
}

/* The guard is dead: nobody waits for the result, and nothing else ends the agents. Without their
 * leashes they kill their workers. */
static void on_guard_gone(uv_poll_t *poll, int status, int events)
{
    struct head *head = poll->data;
    (void)status;
    (void)events;
    uv_poll_stop(poll);
    if (only_output_is_left(head)) {
        drop_output(head);
        return;
    }
    logmux_discard(&head->mux);
    end_job(head, SIGTERM);
    apply_to_all(head, remote_agent_let_go);
    if (head->step == HEAD_SIGNALLED)
        wait_at_most(head, HEAD_LET_GO, LETTING_GO_MS);
}

/* ---- life ---- */

static void on_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    struct head *head = ctx;
    (void)level;
    logmux_say(&head->mux, "the store: %s", line);
}

static ddp_status open_store(struct head *head, struct ddp_error *err)
{
    const struct head_config *config = head->config;
    head->log = (struct ddpi_log){on_log, head, DDPI_LOG_WARN};
    const struct ddpi_server_options options = {.host = config->store_host,
                                                .token = config->token,
                                                .auth = config->auth,
                                                .trust_local_users = config->trust_local_users,
                                                .tls = config->tls,
                                                .job_changed = on_job_changed,
                                                .rounds_ctx = head,
                                                .log = &head->log};
    ddp_status status = ddpi_server_create(&head->loop, &options, &head->server, err);
    if (status == DDP_OK)
        ddpi_server_set_tcpstore_job(head->server, config->job);
    return status;
}

static ddp_status open_head(struct head *head, const struct guard_agent *split,
                            struct ddp_error *err)
{
    const struct head_config *config = head->config;
    const struct discovery_hooks asked = {on_hosts, on_discovery_failed, on_settled, head};
    logmux_init(&head->mux, &head->loop);
    head->mux.voice = config->voice;
    head->mux.idle = on_settled;
    head->mux.ctx = head;
    uv_timer_init(&head->loop, &head->patience);
    head->patience.data = head;
    uv_poll_init(&head->loop, &head->guard, split->guard_fd);
    head->guard.data = head;
    uv_poll_start(&head->guard, UV_READABLE | UV_DISCONNECT, on_guard_gone);
    head->hooks = (struct remote_hooks){on_agent_ready, on_agent_exited, on_agent_ended, head};
    ddp_status status =
        spawner_open(&head->spawner, &head->loop, ddpi_processors_usable(), on_spawned, head, err);
    if (status == DDP_OK)
        status = sigwatch_add_sets(&head->signals, &head->loop, &config->ending_signals,
                                   on_ending_signal, &config->forwarded_signals,
                                   on_forwarded_signal, head, err);
    if (status == DDP_OK)
        status = open_store(head, err);
    if (status == DDP_OK && config->discovery != NULL)
        status = discovery_open(&head->discovery, config->discovery, config->envp, &config->nofile,
                                &head->loop, &asked, err);
    if (status == DDP_OK && config->discovery != NULL)
        wait_at_most(head, HEAD_RUNNING, config->join_timeout_ms);
    return status;
}

/* That nodes have left says less than why the first has. */
static int exit_code(const struct head *head)
{
    if (head->code == EXIT_LEFT && head->lost_code != 0)
        return head->lost_code;
    if (head->code >= 0)
        return head->code;
    return head->signal != 0 ? 128 + head->signal : head->lost_code;
}

int head_run(const struct head_config *config, const struct guard_agent *split)
{
    struct ddp_error err;
    struct head *head = ddpi_calloc(1, sizeof *head);
    if (head == NULL || uv_loop_init(&head->loop) != 0) {
        fprintf(stderr, "ddprun: cannot set up the launcher of hosts: memory is short\n");
        ddpi_free(head);
        return EXIT_CONFIG;
    }
    head->config = config;
    head->code = -1;
    signal(SIGPIPE, SIG_IGN);
    ddp_status status = open_head(head, split, &err);
    (void)ddpi_thread_unblock_signals();
    if (status == DDP_OK) {
        for (size_t i = 0; i < config->hosts->count; i++)
            (void)add_agent(head, &config->hosts->entries[i]);
        start_hosts(head);
        if (!has_enough(head))
            end_job(head, SIGTERM);
    } else {
        logmux_say(&head->mux, "%s", err.msg);
        head->lost_code = EXIT_CONFIG;
        close_head(head);
    }
    uv_run(&head->loop, UV_RUN_DEFAULT);
    int code = exit_code(head);
    for (size_t i = 0; i < head->count; i++) {
        remote_agent_reset(head->agents[i]);
        ddpi_free(head->agents[i]);
    }
    ddpi_free(head->agents);
    logmux_finish(&head->mux);
    uv_loop_close(&head->loop);
    ddpi_free(head);
    return code;
}
