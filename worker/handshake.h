/*
 * handshake.h - two ranks that have each other's cards become an edge.
 *
 * For each edge of the ring the earlier rank connects and the later one accepts. Shared memory: one
 * connection over an abstract Unix socket, which carries the memory file and both bells and stays
 * open as the control socket. TCP: one connection for control and one for data.
 */
#ifndef DDPI_HANDSHAKE_H
#define DDPI_HANDSHAKE_H

#include "card.h"
#include "transport.h"

/* What a rank holds while it looks for its neighbours. */
struct ddpi_meeting {
    struct ddpi_card card; /* its own */
    uint32_t rank;
    int bell; /* borrowed from the communicator */
    int tcp_listener;
    int local_listener;               /* -1 without shared memory */
    struct ddpi_shm_segment *segment; /* for the edge to the next rank; NULL without */
};

/* A peer and its card. */
struct ddpi_peer {
    uint32_t rank;
    struct ddpi_card card;
};

/* Connected, and greeted, but not confirmed yet. */
struct ddpi_half_edge {
    int control_fd;
    int data_fd; /* -1 with shared memory */
};

void ddpi_half_edge_close(struct ddpi_half_edge *half);

/* Listen on @address (its port is ignored) and, with @use_shm, on an abstract socket, and fill the
 * card. Where shared memory cannot be had, the card says so and nothing fails. */
ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, int bell,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err);
void ddpi_meeting_finish(struct ddpi_meeting *meeting);

/* Reach out to the next rank. */
ddp_status ddpi_meeting_connect(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                                uint64_t deadline_ms, struct ddpi_half_edge *ret_half,
                                struct ddp_error *err);

/* Accept the previous rank. Strangers are sent away. Gives up if @half breaks meanwhile. */
ddp_status ddpi_meeting_accept(struct ddpi_meeting *meeting, const struct ddpi_peer *prev,
                               const struct ddpi_half_edge *half, uint64_t deadline_ms,
                               struct ddpi_edge **ret_edge, struct ddp_error *err);

/* Hear that the next rank has accepted. Takes over @half in any case. */
ddp_status ddpi_meeting_confirm(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                                struct ddpi_half_edge *half, uint64_t deadline_ms,
                                struct ddpi_edge **ret_edge, struct ddp_error *err);

#endif
