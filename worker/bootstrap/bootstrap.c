/*
 * bootstrap.c - from the store to a ring. Owns the connection to the store while it runs; edges and
 * listeners belong to the communicator.
 *
 * A rank opens its listeners, is gathered with the others (gathering.h), and ends with a round that
 * passes all cards on, for edges to come: so no rank reads more than one card from the store. The
 * address in a card is the source address of the route to the store: nothing is derived from a host
 * name.
 */
#include "bootstrap.h"

#include "clock.h"
#include "error.h"
#include "gathering.h"
#include "host_memory.h"
#include "sockets.h"
#include "tls.h"

#include <ddprun/store.h>
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { STORE_CONNECT_MAX_MS = 30000 };

struct bootstrap {
    struct ddp_comm *comm;
    const struct ddpi_config *config;
    struct ddp_error *err;
    uint64_t deadline_ms;
    ddp_store *store;
    struct ddpi_meeting *meeting; /* the communicator's */
};

static uint32_t left_ms(const struct bootstrap *boot)
{
    int left = ddpi_remaining_ms(ddpi_now_ms(&ddpi_clock_monotonic), boot->deadline_ms);
    return (uint32_t)left;
}

static ddp_status open_store(struct bootstrap *boot)
{
    uint32_t timeout_ms = left_ms(boot);
    if (timeout_ms > STORE_CONNECT_MAX_MS)
        timeout_ms = STORE_CONNECT_MAX_MS;
    int token_fd = boot->config->token_fd;
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = boot->config->store_endpoint,
                                              .prefix = boot->config->store_prefix,
                                              .connect_timeout_ms = timeout_ms,
                                              .auth = token_fd > 0 ? DDP_STORE_AUTH_BEYOND_LOOPBACK
                                                                   : DDP_STORE_AUTH_DEFAULT,
                                              .token_fd = token_fd,
                                              .flags = boot->config->tls ? DDP_STORE_TLS : 0};
    return ddp_store_connect(&options, &boot->store, boot->err);
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

static ddp_status listen_for_ranks(struct bootstrap *boot)
{
    struct ddpi_endpoint endpoint;
    struct sockaddr_storage address = {0};
    ddp_status status = ddpi_parse_endpoint(boot->config->store_endpoint, &endpoint, boot->err);
    if (status == DDP_OK)
        status = ddpi_source_address(endpoint.host, endpoint.port, &address, boot->err);
    struct ddpi_rank_key key;
    ddpi_rank_key_read(boot->config->rank_key_fd, &key);
    if (status == DDP_OK)
        status = ddpi_meeting_init(boot->meeting, boot->comm->rank, boot->comm->world_size,
                                   boot->comm->bell, &key, &address, !boot->config->force_tcp,
                                   boot->err);
    if (status == DDP_OK && boot->config->tls_ranks)
        status = enable_tls(boot, key.given);
    ddpi_wipe(&key, sizeof key);
    return status;
}

static ddp_status connect_and_listen(struct bootstrap *boot)
{
    ddp_status status = open_store(boot);
    if (status == DDP_OK)
        status = listen_for_ranks(boot);
    return ddpi_error_advise_descriptors(boot->err, status);
}

static ddp_status gather(struct ddp_comm *comm, const struct ddpi_config *config, ddp_store *store,
                         uint64_t deadline_ms, struct ddp_error *err)
{
    struct ddpi_gathering gathering = {.comm = comm,
                                       .config = config,
                                       .store = store,
                                       .meeting = &comm->edges.meeting,
                                       .deadline_ms = deadline_ms,
                                       .wake_ms = deadline_ms,
                                       .suspect_ms = UINT64_MAX};
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
    struct bootstrap boot = {
        .comm = comm,
        .config = config,
        .err = &cause,
        .deadline_ms = ddpi_deadline(ddpi_now_ms(&ddpi_clock_monotonic), config->init_timeout_ms),
        .meeting = &comm->edges.meeting};
    ddp_status status = connect_and_listen(&boot);
    if (status == DDP_OK)
        status = gather(comm, config, boot.store, boot.deadline_ms, &cause);
    ddp_store_close(boot.store);
    if (status == DDP_OK)
        status = ddpi_host_join(comm, left_ms(&boot), &cause);
    if (status == DDP_OK)
        status = ddpi_edges_open(&comm->edges, &cause);
    if (status == DDP_OK)
        return DDP_OK;
    status = bootstrap_fail(comm, config, status, &cause);
    if (err != NULL)
        *err = cause;
    return status;
}
