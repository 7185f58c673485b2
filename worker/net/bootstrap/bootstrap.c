/*
 * bootstrap.c - from a way to meet to a ring. Owns the directory while it runs; edges and listeners
 * belong to the communicator.
 *
 * A rank opens its listeners, is gathered with the others (gathering.h), and ends with a round that
 * passes all cards on, for edges to come: so no rank reads more than one card from the directory.
 * The address in a card is chosen by own_address.h: nothing is derived from a host name.
 */
#include "bootstrap.h"

#include "clock.h"
#include "error.h"
#include "gathering.h"
#include "host_memory.h"
#include "own_address.h"
#include "tls.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { JOIN_MIN_MS = 1000 }; /* ranks may all be here at the last moment */

struct bootstrap {
    struct ddp_comm *comm;
    const struct ddpi_config *config;
    struct ddp_error *err;
    uint64_t deadline_ms;
    struct ddpi_directory *directory;
    struct ddpi_meeting *meeting; /* the communicator's */
};

static uint32_t left_ms(const struct bootstrap *boot)
{
    int left = ddpi_remaining_ms(ddpi_monotonic_ms(), boot->deadline_ms);
    return (uint32_t)left;
}

static ddp_status open_directory(struct bootstrap *boot)
{
    static ddpi_directory_open *const openers[] = {[DDPI_WAY_STORE] = ddpi_directory_open_store,
                                                   [DDPI_WAY_KV] = ddpi_directory_open_kv,
                                                   [DDPI_WAY_ID] = ddpi_directory_open_id,
                                                   [DDPI_WAY_TORCH_STORE] =
                                                       ddpi_directory_open_torch,
                                                   [DDPI_WAY_MASTER] = ddpi_directory_open_master};
    return openers[boot->config->way](boot->config, left_ms(boot), &boot->directory, boot->err);
}

static ddp_status enable_tls(struct bootstrap *boot, bool keyed)
{
    struct ddpi_edges *edges = &boot->comm->edges;
    if (!keyed)
        return ddpi_error_set(
            boot->err, DDP_E_DENIED,
            "TLS between ranks (DDPRUN_TLS_RANKS) needs the key that ddprun gives them "
            "(DDPRUN_RANK_KEY_FD), which is missing; start the program with ddprun, and let no "
            "program in between close that descriptor");
    ddp_status status = ddpi_tls_engine_create(&edges->tls, boot->err);
    boot->meeting->tls = edges->tls;
    return status;
}

/* Ranks that have no card of rank 0 join there. */
static ddp_status add_join_listener(struct bootstrap *boot)
{
    int fd = boot->directory->join_listener;
    boot->directory->join_listener = -1;
    return fd < 0 ? DDP_OK : ddpi_meeting_add_join_listener(boot->meeting, fd, boot->err);
}

static ddp_status listen_for_ranks(struct bootstrap *boot)
{
    const struct ddpi_config *config = boot->config;
    const struct ddpi_endpoint *place = &boot->directory->place;
    bool said = config->local_address != NULL && *config->local_address != '\0';
    const char *host = said ? config->local_address : place->host;
    struct sockaddr_storage address = {0};
    const struct ddpi_meeting_options options = {.address = &address,
                                                 .use_shm = !config->force_tcp,
                                                 .host_id = config->host_id,
                                                 .sockets = config->sockets};
    ddp_status status =
        ddpi_own_address(config->interfaces, host, place->port, &address, boot->err);
    struct ddpi_rank_key key = boot->directory->key;
    if (!boot->directory->has_key)
        ddpi_rank_key_read(config->rank_key_fd, &key);
    if (status == DDP_OK)
        status = ddpi_meeting_init(boot->meeting, boot->comm->rank, boot->comm->world_size,
                                   boot->comm->bell, &key, &options, boot->err);
    if (status == DDP_OK && config->tls_ranks)
        status = enable_tls(boot, key.given);
    if (status == DDP_OK)
        status = add_join_listener(boot);
    ddpi_wipe(&key, sizeof key);
    return status;
}

static ddp_status connect_and_listen(struct bootstrap *boot)
{
    ddp_status status = open_directory(boot);
    if (status == DDP_OK)
        status = listen_for_ranks(boot);
    return ddpi_error_advise_descriptors(boot->err, status);
}

static ddp_status gather(struct ddp_comm *comm, const struct ddpi_config *config,
                         struct ddpi_directory *directory, uint64_t deadline_ms,
                         struct ddp_error *err)
{
    struct ddpi_gathering gathering = {.comm = comm,
                                       .config = config,
                                       .directory = directory,
                                       .meeting = &comm->edges.meeting,
                                       .deadline_ms = deadline_ms,
                                       .wake_ms = deadline_ms,
                                       .suspect_ms = UINT64_MAX,
                                       .look_ms = UINT64_MAX};
    gathering.events = epoll_create1(EPOLL_CLOEXEC);
    if (gathering.events < 0)
        return ddpi_error_advise_descriptors(
            err, ddpi_error_sys(err, errno, "make an epoll descriptor"));
    gathering.meeting->needs_all = true;
    ddp_status status =
        comm->rank == 0 ? ddpi_gather_host(&gathering, err) : ddpi_gather_join(&gathering, err);
    gathering.meeting->needs_all = false;
    close(gathering.events);
    return status;
}

/* Tell neighbours that have not heard it yet why this rank leaves. */
static ddp_status bootstrap_fail(struct ddp_comm *comm, const struct ddpi_config *config,
                                 ddp_status status, struct ddp_error *cause)
{
    ddpi_comm_fail(comm, NULL, status, "%s", cause->msg);
    return ddpi_error_wrap(cause, status, "rank %u cannot join '%s'", comm->rank, config->name);
}

ddp_status ddpi_bootstrap(struct ddp_comm *comm, const struct ddpi_config *config,
                          struct ddp_error *err)
{
    struct ddp_error cause = {0};
    struct bootstrap boot = {.comm = comm,
                             .config = config,
                             .err = &cause,
                             .deadline_ms =
                                 ddpi_deadline(ddpi_monotonic_ms(), config->init_timeout_ms),
                             .meeting = &comm->edges.meeting};
    ddp_status status = connect_and_listen(&boot);
    if (status == DDP_OK)
        status = gather(comm, config, boot.directory, boot.deadline_ms, &cause);
    ddpi_directory_close(boot.directory);
    if (status == DDP_OK)
        status = ddpi_host_join(comm, left_ms(&boot) > JOIN_MIN_MS ? left_ms(&boot) : JOIN_MIN_MS,
                                &cause);
    if (status == DDP_OK)
        status = ddpi_edges_open(&comm->edges, &cause);
    if (status == DDP_OK)
        return DDP_OK;
    status = bootstrap_fail(comm, config, status, &cause);
    if (err != NULL)
        *err = cause;
    return status;
}
