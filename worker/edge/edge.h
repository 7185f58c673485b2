/*
 * edge.h - an edge of the graph of ranks: it carries bytes between two of them in order, both
 * ways, and never blocks. What differs between shared memory and TCP is behind struct
 * ddpi_edge_ops.
 *
 * Every edge has a control socket as well (control.h). The data path says only "no more for now";
 * whether the peer is alive, and what became of it, is read from the control socket and from the
 * kernel (peer_fate.h) by wait.c.
 *
 * To sleep, a rank arms the edges that it needs and polls their descriptors together with its own
 * bell: an eventfd that peers in shared memory ring, and that ddp_comm_abort() rings too. So one
 * poll(2) covers every transport, every peer's death and the abort.
 */
#ifndef DDPI_EDGE_H
#define DDPI_EDGE_H

#include "control.h"
#include "peer_fate.h"

#include <poll.h>
#include <stddef.h>

enum { DDPI_PEER_NAME = 128 };

struct ddpi_edge;
struct ddpi_seals;
struct ddpi_tls_engine;

struct ddpi_edge_ops {
    const char *name;
    /* For so long after one of its two connections has ended, the other one, or other ranks, may
     * still have news; 0 where that cannot be. */
    uint32_t linger_ms;

    /* Take as many of the @len bytes as there is room for; returns how many. */
    size_t (*send)(struct ddpi_edge *edge, const void *bytes, size_t len);

    /* Copy at most @len bytes that have arrived to @dst; returns how many. */
    size_t (*recv)(struct ddpi_edge *edge, void *dst, size_t len);

    /* Look at what has arrived, in place: returns how many bytes lie at *@ret_bytes, at least
     * @want or as many as there are (@want <= 64). Valid until the next recv or consume. */
    size_t (*peek)(struct ddpi_edge *edge, size_t want, const uint8_t **ret_bytes);
    void (*consume)(struct ddpi_edge *edge, size_t len);

    /* Before sleeping until @recv_bytes are there (0: not needed) or until there is room to send:
     * true if that is so already. Otherwise fills *@ret_poll (fd -1: the bell will ring). */
    bool (*arm)(struct ddpi_edge *edge, size_t recv_bytes, bool send, struct pollfd *ret_poll);
    void (*disarm)(struct ddpi_edge *edge);

    /* Frees the edge, its control socket included. */
    void (*destroy)(struct ddpi_edge *edge);
};

/* The part that all transports share; each puts its own behind it. */
struct ddpi_edge {
    const struct ddpi_edge_ops *ops;
    struct ddpi_control control;
    uint32_t peer;                  /* its rank */
    char peer_name[DDPI_PEER_NAME]; /* "rank 3 (pid 4711 on node-b)" */
    const char *broken;             /* what it did to the data path; NULL while that works */
    struct ddpi_process process;    /* the peer's, on this machine */
    struct sockaddr_storage door;   /* where it listens, for those without shared memory */

    /* Kept by wait.c; times are monotonic milliseconds, 0 = not so. */
    uint64_t broken_ms;  /* since when @broken is known */
    uint64_t gone_ms;    /* since when the control socket, or the peer's process, has ended */
    enum ddpi_fate fate; /* of the peer, since one of its connections has ended */
    bool left;           /* before it ended, the peer said good-bye */
    uint64_t asked_ms;   /* when the peer was asked whether it is waiting too */
    bool answered;       /* it is */
};

/* All take over @control_fd and their other descriptors, also when they fail (then NULL). */

struct ddpi_shm_segment;

/* An edge over @segment, which it takes over. @side is 0 for the creator of the segment, 1 for the
 * other one; @peer_bell is the peer's eventfd. */
struct ddpi_edge *ddpi_edge_shm(struct ddpi_shm_segment *segment, unsigned side, int peer_bell,
                                int control_fd, struct ddp_error *err);

/* An edge over the connected, non-blocking TCP socket @data_fd. */
struct ddpi_edge *ddpi_edge_tcp(int data_fd, int control_fd, struct ddp_error *err);
/* From now on its data goes by TLS (data_tls.h), which @connects begins; @seals are those of the
 * data connection's greeting. */
ddp_status ddpi_edge_tcp_hide(struct ddpi_edge *edge, const struct ddpi_tls_engine *engine,
                              const struct ddpi_seals *seals, bool connects, struct ddp_error *err);

/* An edge without data, for words alone; and what one can do that is not there yet. */
struct ddpi_edge *ddpi_edge_none(int control_fd, struct ddp_error *err);
extern const struct ddpi_edge_ops ddpi_edge_none_ops;

/* A sealed memory file with a byte ring for each direction. */
ddp_status ddpi_shm_create(struct ddpi_shm_segment **ret_segment, struct ddp_error *err);
/* The same from a descriptor that a peer sent; takes over @fd in any case. */
ddp_status ddpi_shm_attach(int fd, struct ddpi_shm_segment **ret_segment, struct ddp_error *err);
int ddpi_shm_fd(const struct ddpi_shm_segment *segment);
void ddpi_shm_destroy(struct ddpi_shm_segment *segment);

static inline void ddpi_edge_destroy(struct ddpi_edge *edge)
{
    if (edge != NULL)
        edge->ops->destroy(edge);
}

#endif
