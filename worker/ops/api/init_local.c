/*
 * init_local.c - ddp_comm_init_local(): a world within one process, without a store. The edges are
 * the same as between processes, and so are deaths, aborts and deadlines: a memory file for each
 * edge, of which each end has a mapping of its own, and a socket pair for control. Owns nothing:
 * all goes to the communicators.
 *
 * Only the ring is made here. Ranks have each other's cards and listen, so that further edges are
 * made as between processes.
 */
#include "api_impl.h"
#include "attempt.h"
#include "communicator.h"
#include "error.h"
#include "mem.h"
#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LOCAL_MAX = 256 };

static int duplicate_fd(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static void close_if_open(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Set edge @which of the ring of @comm, over @segment, which it takes over. */
static ddp_status set_ring_edge(struct ddp_comm *comm, unsigned which, const struct ddp_comm *peer,
                                struct ddpi_shm_segment *segment, int bell, int control,
                                struct ddp_error *err)
{
    struct ddpi_edge *edge = ddpi_edge_shm(segment, which == DDPI_NEXT ? 0 : 1, bell, control, err);
    if (edge == NULL)
        return DDP_E_NOMEM;
    ddpi_edge_name(edge, peer->rank, &peer->edges.meeting.card);
    return ddpi_edges_set_ring(&comm->edges, which, edge, err);
}

/* The edge of the ring from @comm to @next. */
static ddp_status connect_to_next(struct ddp_comm *comm, struct ddp_comm *next,
                                  struct ddp_error *err)
{
    enum { OUR_CONTROL, THEIR_CONTROL, OUR_BELL, THEIR_BELL, MEMORY, FDS };
    struct ddpi_shm_segment *ours, *theirs;
    ddp_status status = ddpi_shm_create(&ours, err);
    if (status != DDP_OK)
        return status;
    int fds[FDS] = {-1, -1, duplicate_fd(next->bell), duplicate_fd(comm->bell),
                    duplicate_fd(ddpi_shm_fd(ours))};
    if (ddpi_socket_pair(fds) != 0 || fds[OUR_BELL] < 0 || fds[THEIR_BELL] < 0 || fds[MEMORY] < 0) {
        status = ddpi_error_sys(err, errno, "connect rank %u to rank %u", comm->rank, next->rank);
        close_if_open(fds, FDS);
        ddpi_shm_destroy(ours);
        return status;
    }
    status = ddpi_shm_attach(fds[MEMORY], &theirs, err);
    if (status != DDP_OK) {
        close_if_open(fds, MEMORY);
        ddpi_shm_destroy(ours);
        return status;
    }
    comm->edges.meeting.next_stands = true;
    next->edges.meeting.prev_stands = true;
    status = set_ring_edge(comm, DDPI_NEXT, next, ours, fds[OUR_BELL], fds[OUR_CONTROL], err);
    ddp_status other =
        set_ring_edge(next, DDPI_PREV, comm, theirs, fds[THEIR_BELL], fds[THEIR_CONTROL], err);
    return status != DDP_OK ? status : other;
}

static ddp_status create_rank(struct ddpi_config *config, uint32_t rank, const int *devices,
                              const struct ddpi_rank_key *key, struct ddp_comm **ret_comm,
                              struct ddp_error *err)
{
    config->rank = rank;
    ddp_status status = ddpi_comm_create(config, ddpi_memory_types, ret_comm, err);
    if (status != DDP_OK)
        return status;
    struct ddp_comm *comm = *ret_comm;
    comm->device = devices != NULL ? devices[rank] : (int)rank;
    comm->seq = comm->unfinished = 1; /* as after the round that ends ddp_comm_init() */
    if (config->world_size == 1)
        return DDP_OK;
    struct ddpi_meeting *meeting = &comm->edges.meeting;
    ddpi_comm_allow_spins(comm, config->world_size);
    const struct ddpi_meeting_options options = {.use_shm = true};
    status = ddpi_meeting_init(meeting, rank, config->world_size, comm->bell, key, &options, err);
    if (status == DDP_OK && !meeting->card.shm)
        status = ddpi_error_set(err, DDP_E_SYSTEM,
                                "there is no shared memory, or no /proc, for %u ranks",
                                config->world_size);
    return status;
}

/* Give each rank the cards of all others. */
static void share_cards(struct ddp_comm *const *comms, uint32_t count)
{
    for (uint32_t from = 0; from < count; from++)
        for (uint32_t to = 0; to < count; to++)
            if (from != to)
                memcpy(ddpi_meeting_slot(&comms[to]->edges.meeting, from),
                       ddpi_meeting_slot(&comms[from]->edges.meeting, from), DDPI_CARD_SLOT);
}

static ddp_status create_world(struct ddpi_config *config, const int *devices,
                               struct ddp_comm **comms, struct ddp_error *err)
{
    uint32_t count = config->world_size;
    ddp_status status = DDP_OK;
    struct ddpi_rank_key key; /* for edges that are made later */
    ddpi_rank_key_random(&key);
    for (uint32_t rank = 0; rank < count && status == DDP_OK; rank++)
        status = create_rank(config, rank, devices, &key, &comms[rank], err);
    ddpi_wipe(&key, sizeof key);
    if (status != DDP_OK || count == 1)
        return status;
    share_cards(comms, count);
    for (uint32_t rank = 0; rank < count && status == DDP_OK; rank++) {
        status = connect_to_next(comms[rank], comms[ddpi_ring_next(rank, count)], err);
        if (status == DDP_OK)
            status = ddpi_edges_open(&comms[rank]->edges, err);
    }
    return status;
}

static ddp_status check_devices(uint32_t ndev, const int *devices, struct ddp_error *err)
{
    if (ndev == 0 || ndev > LOCAL_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "a process can have 1 to %d ranks, not %u",
                              LOCAL_MAX, ndev);
    for (uint32_t i = 0; devices != NULL && i < ndev; i++)
        if (devices[i] < 0)
            return ddpi_error_set(err, DDP_E_INVALID, "%d is not a device", devices[i]);
    return DDP_OK;
}

ddp_status ddp_comm_init_local(uint32_t ndev, const int *devices, ddp_comm **comms,
                               struct ddp_error *err)
{
    ddp_status status = check_devices(ndev, devices, err);
    if (status != DDP_OK)
        return status;
    const struct ddp_comm_options options = {.size = sizeof options, .world_size = 1};
    struct ddpi_config config;
    status = ddpi_config_load(&options, ddpi_config_getenv, &config, err);
    if (status != DDP_OK)
        return status;
    config.world_size = ndev;
    ddp_comm **made = ddpi_calloc(ndev, sizeof *made);
    if (made == NULL)
        return ddpi_error_nomem(err, ndev * sizeof *made);
    status = create_world(&config, devices, made, err);
    for (uint32_t rank = 0; rank < ndev; rank++) {
        if (status == DDP_OK)
            comms[rank] = made[rank];
        else
            ddp_comm_destroy(made[rank]);
    }
    ddpi_free(made);
    return ddpi_error_advise_descriptors(err, status);
}
