/*
 * worker_starter.c - prepares each worker in the loop (log files, prefix, pipes, arguments,
 * environment) and hands it to the spawner's thread. Owns descriptors and arguments until the
 * process runs; prefix, paths and streams belong to the worker.
 */
#include "worker_starter.h"

#include "binding.h"
#include "cgroup.h"
#include "clock.h"
#include "error.h"
#include "expand_vars.h"
#include "failpoint.h"
#include "guard.h"
#include "logdir.h"
#include "mem.h"
#include "processors.h"
#include "warm_fork.h"
#include "worker_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static void close_stdio(int stdio[3])
{
    for (int i = 0; i < 3; i++) {
        if (stdio[i] > 2)
            close(stdio[i]);
        stdio[i] = i;
    }
}

static ddp_status open_null(int *ret_fd, struct ddp_error *err)
{
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot open /dev/null");
    *ret_fd = fd;
    return DDP_OK;
}

/* Connect stream @i of @worker to a file, to /dev/null, or to a pipe. stderr always goes to a file
 * or a pipe, for the failure report. */
static ddp_status connect_stream(const struct worker_starter *starter, struct worker_proc *worker,
                                 int i, int *ret_fd, struct ddp_error *err)
{
    const struct agent_streams *wanted = &starter->config->streams[worker->local_rank];
    uint8_t bit = (uint8_t)(1u << i);
    bool tee = (wanted->tee & bit) != 0;
    bool to_file = (tee || (wanted->redirect & bit) != 0) && starter->config->logs->path != NULL;
    struct line_filter *filter = &starter->mux->filters[i];
    bool filtered = tee && !wanted->hidden && line_filter_is_on(filter); /* as torchrun does it */
    int file_fd = -1;
    if (to_file) {
        ddp_status status =
            logdir_stream(starter->config->logs, starter->attempt, worker->local_rank, i,
                          &worker->log_files[i], &file_fd, err);
        if (status != DDP_OK)
            return status;
    }
    if (to_file && !tee) {
        *ret_fd = file_fd;
        return DDP_OK;
    }
    bool shown = starter->config->shows_output;
    if (wanted->hidden && !to_file && i == 0 && !shown)
        return open_null(ret_fd, err);
    const struct logmux_sink sink = {.prefix = worker->prefix,
                                     .console = wanted->hidden ? -1 : i,
                                     .file_fd = file_fd,
                                     .keep_tail = i == 1,
                                     .shared = shown ? &worker->output : NULL,
                                     .terminal = starter->config->pty,
                                     .filter = filtered ? filter : NULL};
    ddp_status status = logmux_open(starter->mux, &worker->streams[i], &sink, ret_fd, err);
    if (status != DDP_OK && file_fd >= 0)
        close(file_fd);
    return status;
}

static ddp_status make_prefix(const struct worker_starter *starter, struct worker_proc *worker,
                              struct ddp_error *err)
{
    char rank[16], local_rank[16];
    snprintf(rank, sizeof rank, "%u", worker->rank);
    snprintf(local_rank, sizeof local_rank, "%u", worker->local_rank);
    const struct text_var vars[] = {{"role_name", starter->config->role},
                                    {"local_rank", local_rank},
                                    {"rank", rank},
                                    {"hostname", starter->config->host}};
    worker->prefix = expand_vars(starter->config->line_template, vars, sizeof vars / sizeof *vars);
    return worker->prefix != NULL ? DDP_OK : ddpi_error_nomem(err, 256);
}

static void free_argv(char **argv)
{
    for (size_t i = 0; argv != NULL && argv[i] != NULL; i++)
        ddpi_free(argv[i]);
    ddpi_free(argv);
}

static ddp_status make_argv(const struct agent_config *config, uint32_t local_rank,
                            char ***ret_argv, struct ddp_error *err)
{
    char number[16];
    snprintf(number, sizeof number, "%u", local_rank);
    const struct text_var var = {"local_rank", number};
    size_t count = 0;
    while (config->argv[count] != NULL)
        count++;
    char **argv = ddpi_calloc(count + 1, sizeof *argv);
    for (size_t i = 0; argv != NULL && i < count; i++) {
        argv[i] = i == 0 ? ddpi_strdup(config->argv[i]) : expand_vars(config->argv[i], &var, 1);
        if (argv[i] == NULL) {
            free_argv(argv);
            argv = NULL;
        }
    }
    if (argv == NULL)
        return ddpi_error_nomem(err, count * sizeof *argv);
    *ret_argv = argv;
    return DDP_OK;
}

/* Programs ask the terminal at standard input for its width, which includes our prefix. */
static uint32_t terminal_columns(const struct worker_starter *starter, const char *prefix)
{
    bool own =
        starter->config->pty && starter->mux->consoles[0].terminal && isatty(STDIN_FILENO) == 1;
    return own && *prefix != '\0' ? logmux_size(starter->mux, 0, prefix).ws_col : 0;
}

static ddp_status make_env(const struct worker_starter *starter, const struct worker_proc *worker,
                           char ***ret_envp, struct ddp_error *err)
{
    const struct worker_place place = {
        .config = starter->config,
        .seat = starter->seat,
        .local_rank = worker->local_rank,
        .error_file = worker->error_file,
        .columns = terminal_columns(starter, worker->prefix),
        .key = starter->key,
        .pmix_port = starter->pmix_port,
        .has_life_page = starter->life_fd > 0,
        .has_recorder = flight_memory_has(&starter->flight, worker->local_rank),
    };
    return worker_env_make(&place, ret_envp, err);
}

/* ---- one worker ---- */

static ddp_status prepare_start(struct worker_starter *starter, struct worker_start *start,
                                struct ddp_error *err)
{
    struct worker_proc *worker = start->worker;
    (void)DDPI_FAILPOINT("agent.starter");
    ddp_status status = logdir_worker(starter->config->logs, starter->attempt, worker->local_rank,
                                      &worker->error_file, err);
    if (status == DDP_OK)
        status = make_prefix(starter, worker, err);
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = connect_stream(starter, worker, i, &start->stdio[i + 1], err);
    if (status == DDP_OK)
        status = make_argv(starter->config, worker->local_rank, &start->argv, err);
    start->flight_fd = flight_memory_make(&starter->flight, worker->local_rank);
    if (status == DDP_OK)
        status = make_env(starter, worker, &start->envp, err);
    if (status == DDP_OK && starter->config->serves_pmi)
        status = pmi_connect(starter->pmi, worker->local_rank, &start->pmi_fd, err);
    return status;
}

static void hand_over(struct worker_starter *starter, struct worker_start *start)
{
    const struct agent_config *config = starter->config;
    const struct cgroup *group = config->cgroup;
    start->task.request = (struct spawn_request){
        .path = config->program,
        .argv = start->argv,
        .envp = start->envp,
        .stdio = {start->stdio[0], start->stdio[1], start->stdio[2]},
        .key_fd = starter->key.fd,
        .life_fd = starter->life_fd,
        .pmi_fd = start->pmi_fd,
        .flight_fd = start->flight_fd,
        .cgroup_fd = group != NULL && group->path[0] != '\0' ? group->procs_fd : 0,
        .cpus =
            config->binding != NULL ? binding_of(config->binding, start->worker->local_rank) : NULL,
        .cpus_size = config->binding != NULL ? config->binding->size : 0,
        .nofile = config->nofile,
        .fence_at_ms = config->guard != NULL ? &config->guard->page->fence_at_ms : NULL,
    };
    start->warm_fd = starter->forks ? warm_process_socket(starter->warm) : 0;
    start->task.request.warm_fd = start->warm_fd;
    start->task.start = start->warm_fd > 0 ? warm_fork_or_spawn : spawn_process;
    starter->under_way++;
    spawner_start(&starter->spawner, &start->task);
}

static void free_start(struct worker_start *start)
{
    close_stdio(start->stdio);
    free_argv(start->argv);
    worker_env_free(start->envp);
    start->argv = start->envp = NULL;
    if (start->pmi_fd > 0)
        close(start->pmi_fd);
    if (start->flight_fd > 0)
        close(start->flight_fd);
    if (start->warm_fd > 0)
        close(start->warm_fd);
    start->pmi_fd = start->flight_fd = start->warm_fd = 0;
    start->worker = NULL;
}

/* ---- all workers ---- */

static void stop_at(struct worker_starter *starter, ddp_status status, const struct ddp_error *why)
{
    if (starter->status != DDP_OK)
        return;
    starter->status = status;
    if (why != NULL)
        starter->error = *why;
    spawner_cancel(&starter->spawner);
}

static struct worker_start *find_free(struct worker_starter *starter)
{
    for (int i = 0; i < WORKER_STARTER_AHEAD; i++)
        if (starter->starts[i].worker == NULL)
            return &starter->starts[i];
    return NULL;
}

static void start_next(struct worker_starter *starter, struct worker_start *start)
{
    struct ddp_error error;
    start->worker = &starter->workers[starter->next++];
    ddp_status status = prepare_start(starter, start, &error);
    if (status == DDP_OK) {
        hand_over(starter, start);
        return;
    }
    free_start(start);
    stop_at(starter, status, &error);
}

static void start_more(struct worker_starter *starter)
{
    struct worker_start *start;
    while (starter->status == DDP_OK && starter->next < starter->config->nproc &&
           (start = find_free(starter)) != NULL)
        start_next(starter, start);
    if (starter->under_way > 0)
        return;
    if (starter->key.fd > 0)
        close(starter->key.fd);
    starter->key.fd = 0;
    starter->hooks.over(starter->hooks.ctx, starter->status);
}

static void take_child(struct worker_starter *starter, struct worker_proc *worker,
                       const struct spawn_child *child)
{
    struct ddp_error error;
    starter->forked += child->forked;
    ddp_status status =
        worker_proc_started(worker, starter->loop, child, ddpi_monotonic_us(), &error);
    if (status != DDP_OK)
        stop_at(starter, status, &error);
    starter->hooks.started(starter->hooks.ctx, worker);
}

static void on_spawned(void *ctx, struct spawner_task *task)
{
    struct worker_starter *starter = ctx;
    struct worker_start *start = ddpi_container_of(task, struct worker_start, task);
    struct worker_proc *worker = start->worker;
    if (task->status == DDP_E_TIMEOUT && starter->status == DDP_OK) {
        /* The fence has passed. Either the deadline has moved since, or this turn of the loop ends
         * the generation. */
        spawner_start(&starter->spawner, task);
        return;
    }
    bool asked = start->warm_fd > 0;
    starter->under_way--;
    free_start(start);
    if (starter->abandoned) {
        if (task->status == DDP_OK)
            close(task->child.pidfd);
        return;
    }
    if (task->status == DDP_OK && asked && !task->child.forked)
        warm_process_failed(starter->warm, task->error.msg);
    if (task->status == DDP_OK)
        take_child(starter, worker, &task->child);
    else
        stop_at(starter, task->status, &task->error);
    start_more(starter);
}

ddp_status worker_starter_open(struct worker_starter *starter, const struct agent_config *config,
                               struct logmux *mux, uv_loop_t *loop, struct pmi *pmi,
                               struct warm_process *warm, struct worker_proc *workers,
                               const struct worker_starter_hooks *hooks, struct ddp_error *err)
{
    *starter = (struct worker_starter){.config = config,
                                       .mux = mux,
                                       .loop = loop,
                                       .pmi = pmi,
                                       .warm = warm,
                                       .workers = workers,
                                       .hooks = *hooks};
    flight_memory_open(&starter->flight, config->nproc, config->flight_records);
    for (int i = 0; i < WORKER_STARTER_AHEAD; i++)
        for (int fd = 0; fd < 3; fd++)
            starter->starts[i].stdio[fd] = fd;
    /* The warm process forks one worker at a time. */
    unsigned threads = config->preload != NULL ? 1 : ddpi_processors_usable();
    ddp_status status = spawner_open(&starter->spawner, loop, threads, on_spawned, starter, err);
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = line_filter_init(&mux->filters[i], config->filters[i], err);
    return status;
}

static ddp_status open_filters(struct worker_starter *starter, struct ddp_error *err)
{
    for (int i = 0; i < 2; i++) {
        struct line_filter *filter = &starter->mux->filters[i];
        int fd;
        ddp_status status =
            line_filter_is_on(filter)
                ? logdir_filtered(starter->config->logs, starter->attempt, i, &fd, err)
                : DDP_OK;
        if (status != DDP_OK)
            return status;
        if (line_filter_is_on(filter))
            line_filter_write_to(filter, fd);
    }
    return DDP_OK;
}

ddp_status worker_starter_check_port(const struct agent_config *config,
                                     const struct ddp_round_seat *seat, bool failed,
                                     struct ddp_error *err)
{
    const struct agent_port *port = config->port;
    return port != NULL && seat->first_rank == 0
               ? port->check(port->ctx, seat->master_port, failed, err)
               : DDP_OK;
}

void worker_starter_begin(struct worker_starter *starter, const struct ddp_round_seat *seat,
                          uint32_t attempt, int life_fd, uint16_t pmix_port)
{
    const struct agent_keys *keys = starter->config->keys;
    struct pmi_place place = {.generation = seat->generation,
                              .nproc = starter->config->nproc,
                              .first_rank = seat->first_rank,
                              .world_size = seat->world_size,
                              .node_rank = seat->node_rank,
                              .nodes = seat->nodes};
    worker_env_job_name(place.job, sizeof place.job, starter->config, seat);
    starter->seat = seat;
    starter->attempt = attempt;
    starter->life_fd = life_fd;
    starter->pmix_port = pmix_port;
    starter->next = starter->forked = 0;
    starter->forks = warm_process_is_ready(starter->warm);
    flight_memory_renew(&starter->flight);
    starter->status = worker_starter_check_port(starter->config, seat, false, &starter->error);
    if (starter->status == DDP_OK)
        starter->status = pmi_begin(starter->pmi, &place, &starter->error);
    if (starter->status == DDP_OK && keys != NULL)
        starter->status = keys->make(keys->ctx, seat->generation, &starter->key, &starter->error);
    if (starter->status == DDP_OK)
        starter->status = open_filters(starter, &starter->error);
    start_more(starter);
}

void worker_starter_cancel(struct worker_starter *starter)
{
    if (worker_starter_busy(starter))
        stop_at(starter, DDP_E_CANCELED, NULL);
}

bool worker_starter_busy(const struct worker_starter *starter)
{
    return starter->under_way > 0 && !starter->abandoned;
}

void worker_starter_abandon(struct worker_starter *starter)
{
    starter->abandoned = true;
}

void worker_starter_close(struct worker_starter *starter)
{
    flight_memory_close(&starter->flight);
    spawner_close(&starter->spawner);
}
