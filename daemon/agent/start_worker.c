/*
 * start_worker.c - workers from configuration to process: paths, prefix, environment, arguments,
 * pipes and files, in the loop; then the spawner's thread. Owns what a process needs until it runs;
 * the rest of what it makes belongs to the worker.
 */
#include "start_worker.h"

#include "cgroup.h"
#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "guard.h"
#include "logdir.h"
#include "mem.h"
#include "worker_env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

/* Where stream @i of @worker goes: straight into a file, nowhere, or through a pipe. stderr always
 * leaves a trace for the failure report. */
static ddp_status connect_stream(const struct launch *launch, struct worker_proc *worker, int i,
                                 int *ret_fd, struct ddp_error *err)
{
    const struct agent_streams *wanted = &launch->config->streams[worker->local_rank];
    uint8_t bit = (uint8_t)(1u << i);
    bool tee = (wanted->tee & bit) != 0;
    bool to_file = (tee || (wanted->redirect & bit) != 0) && launch->config->logs->path != NULL;
    struct filter *filter = &launch->mux->filters[i];
    bool filtered = tee && !wanted->hidden && filter_is_on(filter); /* as torchrun does it */
    int file_fd = -1;
    if (to_file) {
        ddp_status status = logdir_stream(launch->config->logs, launch->attempt, worker->local_rank,
                                          i, &worker->log_files[i], &file_fd, err);
        if (status != DDP_OK)
            return status;
    }
    if (to_file && !tee) {
        *ret_fd = file_fd;
        return DDP_OK;
    }
    if (wanted->hidden && !to_file && i == 0)
        return open_null(ret_fd, err);
    const struct logmux_sink sink = {.prefix = worker->prefix,
                                     .console = wanted->hidden ? -1 : i,
                                     .file_fd = file_fd,
                                     .keep_tail = i == 1,
                                     .terminal = launch->config->pty,
                                     .filter = filtered ? filter : NULL};
    ddp_status status = logmux_open(launch->mux, &worker->streams[i], &sink, ret_fd, err);
    if (status != DDP_OK && file_fd >= 0)
        close(file_fd);
    return status;
}

static ddp_status connect_stdio(const struct launch *launch, struct worker_proc *worker,
                                int stdio[3], struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = connect_stream(launch, worker, i, &stdio[i + 1], err);
    return status;
}

static ddp_status make_prefix(const struct launch *launch, struct worker_proc *worker,
                              struct ddp_error *err)
{
    char rank[16], local_rank[16];
    snprintf(rank, sizeof rank, "%u", worker->rank);
    snprintf(local_rank, sizeof local_rank, "%u", worker->local_rank);
    const struct placement_var vars[] = {{"role_name", launch->config->role},
                                         {"local_rank", local_rank},
                                         {"rank", rank},
                                         {"hostname", launch->config->host}};
    worker->prefix =
        placement_expand(launch->config->line_template, vars, sizeof vars / sizeof *vars);
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
    const struct placement_var var = {"local_rank", number};
    size_t count = 0;
    while (config->argv[count] != NULL)
        count++;
    char **argv = ddpi_calloc(count + 1, sizeof *argv);
    for (size_t i = 0; argv != NULL && i < count; i++) {
        argv[i] =
            i == 0 ? ddpi_strdup(config->argv[i]) : placement_expand(config->argv[i], &var, 1);
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

/* For programs that ask the terminal at standard input, which knows nothing of the prefix. */
static uint32_t columns(const struct launch *launch, const char *prefix)
{
    bool own =
        launch->config->pty && launch->mux->consoles[0].terminal && isatty(STDIN_FILENO) == 1;
    return own && *prefix != '\0' ? logmux_size(launch->mux, 0, prefix).ws_col : 0;
}

static ddp_status make_env(const struct launch *launch, const struct worker_proc *worker,
                           char ***ret_envp, struct ddp_error *err)
{
    const struct agent_config *config = launch->config;
    const struct ddp_round_seat *seat = launch->seat;
    char store_prefix[128];
    /* Who proves to the store who he is sees the keys of its job only, without the prefix that
     * these have in common. */
    bool proves = launch->key.fd > 0 && launch->key.for_store;
    bool roles = seat->role_world_size > 0; /* the server knows of them */
    placement_store_prefix(store_prefix, sizeof store_prefix, proves ? "" : config->store_prefix,
                           seat->generation);
    const struct placement placement = {
        .rank = worker->rank,
        .local_rank = worker->local_rank,
        .world_size = seat->world_size,
        .local_world_size = config->nproc,
        .group_rank = seat->node_rank,
        .group_world_size = seat->nodes,
        .role_rank = roles ? seat->role_first_rank + worker->local_rank : worker->rank,
        .role_world_size = roles ? seat->role_world_size : seat->world_size,
        .restart_count = seat->restarts,
        .max_restarts = config->max_restarts,
        .role = config->role,
        .run_id = config->run_id,
        .master_addr = seat->master_address[0] != '\0' ? seat->master_address : config->master_addr,
        .master_port = seat->master_port,
        .error_file = worker->error_file,
        .timer_file = config->timer_file,
        .columns = columns(launch, worker->prefix),
        .store = config->store,
        .store_prefix = store_prefix,
        .token_fd = proves ? SPAWN_KEY_FD : 0,
        .rank_key_fd = launch->key.fd > 0 ? SPAWN_KEY_FD : 0,
        .tls = config->tls,
        .tls_ranks = config->tls_ranks,
        .signals_to_handle = config->ending_signals_text,
        .agent_store = config->agent_store,
        .virtual_local_rank = config->virtual_local_rank,
        .life_fd = launch->life_fd > 0 ? SPAWN_LIFE_FD : 0,
        .pmi_fd = SPAWN_PMI_FD,
    };
    return placement_env(&placement, config->envp, ret_envp, err);
}

/* ---- one worker ----------------------------------------------------------------------------- */

static ddp_status prepare(struct launch *launch, struct launch_birth *birth, struct ddp_error *err)
{
    struct worker_proc *worker = birth->worker;
    (void)DDPI_FAILPOINT("agent.launch");
    ddp_status status = logdir_worker(launch->config->logs, launch->attempt, worker->local_rank,
                                      &worker->error_file, err);
    if (status == DDP_OK)
        status = make_prefix(launch, worker, err);
    if (status == DDP_OK)
        status = connect_stdio(launch, worker, birth->stdio, err);
    if (status == DDP_OK)
        status = make_argv(launch->config, worker->local_rank, &birth->argv, err);
    if (status == DDP_OK)
        status = make_env(launch, worker, &birth->envp, err);
    if (status == DDP_OK)
        status = pmi_connect(launch->pmi, worker->local_rank, &birth->pmi_fd, err);
    return status;
}

static void hand_over(struct launch *launch, struct launch_birth *birth)
{
    const struct agent_config *config = launch->config;
    const struct cgroup *group = config->cgroup;
    birth->job.request = (struct spawn_request){
        .path = config->program,
        .argv = birth->argv,
        .envp = birth->envp,
        .stdio = {birth->stdio[0], birth->stdio[1], birth->stdio[2]},
        .key_fd = launch->key.fd,
        .life_fd = launch->life_fd,
        .pmi_fd = birth->pmi_fd,
        .cgroup_fd = group != NULL && group->path[0] != '\0' ? group->procs_fd : 0,
        .nofile = config->nofile,
        .fence_at_ms = config->guard != NULL ? config->guard->fence_at_ms : NULL,
    };
    launch->under_way++;
    spawner_start(&launch->spawner, &birth->job);
}

static void give_back(struct launch_birth *birth)
{
    close_stdio(birth->stdio);
    free_argv(birth->argv);
    placement_env_free(birth->envp);
    birth->argv = birth->envp = NULL;
    if (birth->pmi_fd > 0)
        close(birth->pmi_fd);
    birth->pmi_fd = 0;
    birth->worker = NULL;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static void stop_at(struct launch *launch, ddp_status status, const struct ddp_error *why)
{
    if (launch->status != DDP_OK)
        return;
    launch->status = status;
    if (why != NULL)
        launch->error = *why;
    spawner_cancel(&launch->spawner);
}

static struct launch_birth *find_free(struct launch *launch)
{
    for (int i = 0; i < LAUNCH_AHEAD; i++)
        if (launch->births[i].worker == NULL)
            return &launch->births[i];
    return NULL;
}

static void start_next(struct launch *launch, struct launch_birth *birth)
{
    struct ddp_error error;
    birth->worker = &launch->workers[launch->next++];
    ddp_status status = prepare(launch, birth, &error);
    if (status == DDP_OK) {
        hand_over(launch, birth);
        return;
    }
    give_back(birth);
    stop_at(launch, status, &error);
}

static void go_on(struct launch *launch)
{
    struct launch_birth *birth;
    while (launch->status == DDP_OK && launch->next < launch->config->nproc &&
           (birth = find_free(launch)) != NULL)
        start_next(launch, birth);
    if (launch->under_way > 0)
        return;
    if (launch->key.fd > 0)
        close(launch->key.fd);
    launch->key.fd = 0;
    launch->hooks.over(launch->hooks.ctx, launch->status);
}

static void take_child(struct launch *launch, struct worker_proc *worker,
                       const struct spawn_child *child)
{
    struct ddp_error error;
    ddp_status status = worker_proc_started(worker, launch->loop, child,
                                            ddpi_now_us(&ddpi_clock_monotonic), &error);
    if (status != DDP_OK)
        stop_at(launch, status, &error);
    launch->hooks.started(launch->hooks.ctx, worker);
}

static void on_job_done(void *ctx, struct spawner_job *job)
{
    struct launch *launch = ctx;
    struct launch_birth *birth = ddpi_container_of(job, struct launch_birth, job);
    struct worker_proc *worker = birth->worker;
    if (job->status == DDP_E_TIMEOUT && launch->status == DDP_OK) {
        /* It is behind the fence. Either that has been put off since, or we shall hear that all is
         * to end, in this turn of the loop. */
        spawner_start(&launch->spawner, job);
        return;
    }
    launch->under_way--;
    give_back(birth);
    if (launch->abandoned) {
        if (job->status == DDP_OK)
            close(job->child.pidfd);
        return;
    }
    if (job->status == DDP_OK)
        take_child(launch, worker, &job->child);
    else
        stop_at(launch, job->status, &job->error);
    go_on(launch);
}

ddp_status launch_open(struct launch *launch, const struct agent_config *config, struct logmux *mux,
                       uv_loop_t *loop, struct pmi *pmi, struct worker_proc *workers,
                       const struct launch_hooks *hooks, struct ddp_error *err)
{
    *launch = (struct launch){.config = config,
                              .mux = mux,
                              .loop = loop,
                              .pmi = pmi,
                              .workers = workers,
                              .hooks = *hooks};
    for (int i = 0; i < LAUNCH_AHEAD; i++)
        for (int fd = 0; fd < 3; fd++)
            launch->births[i].stdio[fd] = fd;
    ddp_status status = spawner_open(&launch->spawner, loop, on_job_done, launch, err);
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = filter_init(&mux->filters[i], config->filters[i], err);
    return status;
}

/* Of this generation. */
static ddp_status open_filters(struct launch *launch, struct ddp_error *err)
{
    for (int i = 0; i < 2; i++) {
        struct filter *filter = &launch->mux->filters[i];
        int fd;
        ddp_status status = filter_is_on(filter) ? logdir_filtered(launch->config->logs,
                                                                   launch->attempt, i, &fd, err)
                                                 : DDP_OK;
        if (status != DDP_OK)
            return status;
        if (filter_is_on(filter))
            filter_write_to(filter, fd);
    }
    return DDP_OK;
}

ddp_status launch_check_port(const struct agent_config *config, const struct ddp_round_seat *seat,
                             bool failed, struct ddp_error *err)
{
    const struct agent_port *port = config->port;
    return port != NULL && seat->first_rank == 0
               ? port->check(port->ctx, seat->master_port, failed, err)
               : DDP_OK;
}

void launch_begin(struct launch *launch, const struct ddp_round_seat *seat, uint32_t attempt,
                  int life_fd)
{
    const struct agent_keys *keys = launch->config->keys;
    const struct pmi_place place = {.generation = seat->generation,
                                    .nproc = launch->config->nproc,
                                    .first_rank = seat->first_rank,
                                    .world_size = seat->world_size,
                                    .node_rank = seat->node_rank,
                                    .nodes = seat->nodes};
    launch->seat = seat;
    launch->attempt = attempt;
    launch->life_fd = life_fd;
    launch->next = 0;
    launch->status = launch_check_port(launch->config, seat, false, &launch->error);
    if (launch->status == DDP_OK)
        launch->status = pmi_begin(launch->pmi, &place, &launch->error);
    if (launch->status == DDP_OK && keys != NULL)
        launch->status = keys->make(keys->ctx, seat->generation, &launch->key, &launch->error);
    if (launch->status == DDP_OK)
        launch->status = open_filters(launch, &launch->error);
    go_on(launch);
}

void launch_cancel(struct launch *launch)
{
    if (launch_busy(launch))
        stop_at(launch, DDP_E_CANCELED, NULL);
}

bool launch_busy(const struct launch *launch)
{
    return launch->under_way > 0 && !launch->abandoned;
}

void launch_abandon(struct launch *launch)
{
    launch->abandoned = true;
}

void launch_close(struct launch *launch)
{
    spawner_close(&launch->spawner);
}
