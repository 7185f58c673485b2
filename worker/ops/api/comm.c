/*
 * comm.c - <ddprun/comm.h>: joining and leaving a communicator, and questions to it. Owns nothing.
 */
#include "api_impl.h"
#include "bootstrap.h"
#include "error.h"
#include "finalize.h"
#include "grouped_calls.h"
#include "mailbox.h"
#include "runs.h"

#include <stddef.h>
#include <string.h>

/* To join is the first operation that the flight recorder notes. */
static ddp_status join(struct ddp_comm *comm, const struct ddpi_config *config,
                       struct ddp_error *err)
{
    struct ddpi_task task = {.call = {.operation = DDPI_JOIN},
                             .timeout_ms = config->init_timeout_ms};
    const struct ddpi_recorder_group group = {
        .name = config->name, .rank = comm->rank, .size = comm->world_size};
    comm->recorder = ddpi_recorder_open(config->flight_fd, &group);
    task.record = ddpi_recorder_begin(comm->recorder, &task, true);
    ddp_status status = DDP_OK;
    if (comm->world_size > 1)
        status = ddpi_bootstrap(comm, config, err);
    else if (config->way == DDPI_WAY_ID)
        ddp_drop_unique_id(&config->unique_id);
    ddpi_recorder_end(comm->recorder, &task, status);
    return status;
}

ddp_status ddp_comm_init(const struct ddp_comm_options *options, ddp_comm **ret_comm,
                         struct ddp_error *err)
{
    struct ddpi_config config;
    ddp_status status = ddpi_config_load(options, ddpi_config_getenv, &config, err);
    if (status != DDP_OK)
        return status;
    struct ddp_comm *comm;
    status = ddpi_comm_create(&config, ddpi_memory_types, &comm, err);
    if (status != DDP_OK)
        return ddpi_error_advise_descriptors(err, status);
    comm->life = ddpi_life_hold(config.life_fd, config.life_slot);
    status = join(comm, &config, err);
    if (status != DDP_OK) {
        ddp_comm_destroy(comm);
        return status;
    }
    *ret_comm = comm;
    return DDP_OK;
}

ddp_status ddp_comm_finalize(ddp_comm *comm, uint32_t timeout_ms, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(comm, "ddp_comm_finalize", err);
    return status == DDP_OK
               ? ddpi_finalize(comm, timeout_ms != 0 ? timeout_ms : comm->timeout_ms, err)
               : status;
}

void ddp_comm_destroy(ddp_comm *comm)
{
    if (comm == NULL)
        return;
    if (ddpi_comm_is_home(comm))
        ddpi_runs_stop(comm);
    ddpi_group_drop(comm);
    ddpi_mailbox_destroy(comm);
    ddpi_comm_destroy(comm);
}

uint32_t ddp_comm_rank(const ddp_comm *comm)
{
    return comm->rank;
}

uint32_t ddp_comm_world_size(const ddp_comm *comm)
{
    return comm->world_size;
}

ddp_status ddp_comm_get_stats(const ddp_comm *comm, struct ddp_comm_stats *ret_stats)
{
    size_t size = ret_stats->size;
    struct ddp_comm_stats stats = {.size = size};
    if (size < offsetof(struct ddp_comm_stats, stream_us) ||
        ddpi_comm_check_home(comm, NULL) != DDP_OK)
        return DDP_E_INVALID;
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&comm->runs.lock;
    pthread_mutex_lock(lock);
    ddpi_comm_read_counts(comm, &stats);
    pthread_mutex_unlock(lock);
    ddpi_memories_read_stats(&comm->memories, &stats);
    memcpy(ret_stats, &stats, size < sizeof stats ? size : sizeof stats);
    return DDP_OK;
}

/* Reads only what may be read while another thread runs an operation. */
ddp_status ddp_comm_check(ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddpi_comm_check_home(comm, err);
    if (status == DDP_OK)
        status = ddpi_memories_check(&comm->memories, err);
    return status == DDP_OK ? ddpi_comm_report(comm, err) : status;
}

uint32_t ddp_comm_get_timeout(const ddp_comm *comm)
{
    return comm->timeout_ms;
}

ddp_status ddp_comm_set_timeout(ddp_comm *comm, uint32_t timeout_ms, struct ddp_error *err)
{
    if (timeout_ms == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "a timeout of 0 ms is too short");
    comm->timeout_ms = timeout_ms;
    return DDP_OK;
}
