/*
 * launch.c - one worker from configuration to process: paths, prefix, environment, arguments,
 * pipes and files, then spawn. What it makes belongs to the worker.
 */
#include "launch.h"

#include "cgroup.h"
#include "clock.h"
#include "error.h"
#include "logdir.h"
#include "mem.h"
#include "placement.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Descriptors that go to the child; those above 2 are closed here afterwards. */
struct child_stdio {
    int fds[3];
};

static void close_stdio(struct child_stdio *stdio)
{
    for (int i = 0; i < 3; i++) {
        if (stdio->fds[i] > 2)
            close(stdio->fds[i]);
        stdio->fds[i] = i;
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
                                     .keep_tail = i == 1};
    ddp_status status = logmux_open(launch->mux, &worker->streams[i], &sink, ret_fd, err);
    if (status != DDP_OK && file_fd >= 0)
        close(file_fd);
    return status;
}

static ddp_status connect_stdio(const struct launch *launch, struct worker_proc *worker,
                                struct child_stdio *stdio, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = connect_stream(launch, worker, i, &stdio->fds[i + 1], err);
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

static ddp_status make_env(const struct launch *launch, const struct worker_proc *worker,
                           char ***ret_envp, struct ddp_error *err)
{
    const struct agent_config *config = launch->config;
    const struct ddp_round_seat *seat = launch->seat;
    char store_prefix[128];
    /* Who has a key sees the keys of its job only, without the prefix that these have in common. */
    bool proves = launch->key_fd > 0;
    placement_store_prefix(store_prefix, sizeof store_prefix, proves ? "" : config->store_prefix,
                           seat->generation);
    const struct placement placement = {
        .rank = worker->rank,
        .local_rank = worker->local_rank,
        .world_size = seat->world_size,
        .local_world_size = config->nproc,
        .group_rank = seat->node_rank,
        .group_world_size = seat->nodes,
        .role_rank = worker->rank,
        .role_world_size = seat->world_size,
        .restart_count = seat->restarts,
        .max_restarts = config->max_restarts,
        .role = config->role,
        .run_id = config->run_id,
        .master_addr = seat->master_address[0] != '\0' ? seat->master_address : config->master_addr,
        .master_port = seat->master_port,
        .error_file = worker->error_file,
        .store = config->store,
        .store_prefix = store_prefix,
        .token_fd = proves ? SPAWN_KEY_FD : 0,
        .signals_to_handle = config->ending_signals_text,
        .agent_store = config->agent_store,
        .virtual_local_rank = config->virtual_local_rank,
        .life_fd = launch->life_fd > 0 ? SPAWN_LIFE_FD : 0,
    };
    return placement_env(&placement, config->envp, ret_envp, err);
}

static ddp_status spawn_worker(const struct launch *launch, struct worker_proc *worker,
                               const struct child_stdio *stdio, struct ddp_error *err)
{
    const struct cgroup *group = launch->config->cgroup;
    char **argv = NULL, **envp = NULL;
    struct spawn_child child;
    ddp_status status = make_argv(launch->config, worker->local_rank, &argv, err);
    if (status == DDP_OK)
        status = make_env(launch, worker, &envp, err);
    if (status == DDP_OK) {
        const struct spawn_request request = {
            .path = launch->config->program,
            .argv = argv,
            .envp = envp,
            .stdio = {stdio->fds[0], stdio->fds[1], stdio->fds[2]},
            .key_fd = launch->key_fd,
            .life_fd = launch->life_fd,
            .cgroup_fd = group != NULL && group->path[0] != '\0' ? group->procs_fd : 0,
            .nofile = launch->config->nofile,
        };
        status = spawn_process(&request, &child, err);
    }
    free_argv(argv);
    placement_env_free(envp);
    if (status != DDP_OK)
        return status;
    return worker_proc_started(worker, launch->loop, &child, ddpi_now_us(&ddpi_clock_monotonic),
                               err);
}

ddp_status launch_worker(const struct launch *launch, struct worker_proc *worker,
                         struct ddp_error *err)
{
    struct child_stdio stdio = {{0, 1, 2}};
    ddp_status status = logdir_worker(launch->config->logs, launch->attempt, worker->local_rank,
                                      &worker->error_file, err);
    if (status == DDP_OK)
        status = make_prefix(launch, worker, err);
    if (status == DDP_OK)
        status = connect_stdio(launch, worker, &stdio, err);
    if (status == DDP_OK)
        status = spawn_worker(launch, worker, &stdio, err);
    close_stdio(&stdio);
    return status;
}
