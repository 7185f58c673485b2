/*
 * edge.h - an edge: it carries bytes between two ranks in order, in both directions, and never
 * blocks. A transport is a table of functions, struct ddpi_edge_ops; edge_shm.c and edge_tcp.c are
 * the two of them.
 *
 * Every edge also has a control socket (control.h). The data path says only "no more for now";
 * whether the peer lives, and what became of it, is read from the control socket and from the
 * kernel (peer_fate.h).
 *
 * To sleep, a rank arms the edges that it needs and polls their descriptors together with its own
 * bell: an eventfd that peers write to over shared memory, and that ddp_comm_abort() writes to. So
 * one poll(2) covers every transport, the death of every peer, and the abort.
 */
#ifndef DDPI_EDGE_H
#define DDPI_EDGE_H

#include "control.h"
#include "peer_fate.h"

#include <poll.h>
#include <stddef.h>

enum {
    DDPI_PEER_NAME = 128,
    DDPI_EDGE_POLLS = 2, /* an edge may receive through one descriptor and send through another */
};

struct ddpi_edge;
struct ddpi_seals;
struct ddpi_tls_engine;

struct ddpi_edge_ops {
    const char *name;
    /* After one of its two connections has ended, the other one, or other ranks, may still report
     * the cause for this long; 0: they cannot. */
    uint32_t linger_ms;

    /* Send as many of the @len bytes as there is room for; returns how many. */
    size_t (*send)(struct ddpi_edge *edge, const void *bytes, size_t len);

    /* Copy at most @len bytes that have arrived to @dst; returns how many. */
    size_t (*recv)(struct ddpi_edge *edge, void *dst, size_t len);

    /* Return how many bytes that have arrived lie at *@ret_bytes, at least @want or all there are
     * (@want <= 64). They are valid until the next recv or consume. */
    size_t (*peek)(struct ddpi_edge *edge, size_t want, const uint8_t **ret_bytes);
    void (*consume)(struct ddpi_edge *edge, size_t len);

    /* How many bytes that were sent the peer, or at least its kernel, has not taken yet. */
    size_t (*untaken)(struct ddpi_edge *edge);

    /* The peer is on this machine: no network lies between. NULL: that makes no difference. */
    void (*stay_on_machine)(struct ddpi_edge *edge);

    /* Prepare to sleep until @recv_bytes have arrived (0: not needed) or until there is room to
     * send: true if that is so already. Otherwise sets what to poll in @ret_polls, which has none
     * (fd -1) before; where it leaves them so, the bell will ring. */
    bool (*arm)(struct ddpi_edge *edge, size_t recv_bytes, bool send,
                struct pollfd ret_polls[DDPI_EDGE_POLLS]);
    void (*disarm)(struct ddpi_edge *edge);

    /* Free the edge and its control socket. */
    void (*destroy)(struct ddpi_edge *edge);
};

/* The part that all transports share, and at which each one's own structure begins. */
struct ddpi_edge {
    const struct ddpi_edge_ops *ops;
    struct ddpi_control control;
    uint32_t peer;                    /* its rank */
    char peer_name[DDPI_PEER_NAME];   /* "rank 3 (pid 4711 on node-b)" */
    const char *broken;               /* how the peer broke the data path; NULL while it works */
    struct ddpi_process process;      /* the peer's, on this machine */
    struct sockaddr_storage listener; /* where it listens; for peers without shared memory */

    /* For the code that waits; times are monotonic milliseconds, 0: has not happened. */
    uint64_t broken_ms; /* when @broken was seen */
    uint64_t gone_ms;   /* when the control socket, or the peer's process, was seen to have ended */
    enum ddpi_fate fate;  /* of the peer, since one of its connections has ended */
    bool left;            /* the peer said that it leaves */
    uint64_t asked_ms;    /* when the peer was asked whether it is waiting too */
    uint64_t question_ms; /* the same, but bytes that move do not reset it */
    bool answered;        /* it has answered */
    bool doubted;         /* other ranks were told that it does not answer */
};

/* Each of these takes over @control_fd and its other descriptors, even if it fails (then NULL). */

struct ddpi_shm_segment;

/* An edge over @segment, which it takes over. @side is 0 for the creator of the segment, 1 for its
 * peer; @peer_bell is the peer's eventfd. */
struct ddpi_edge *ddpi_edge_shm(struct ddpi_shm_segment *segment, unsigned side, int peer_bell,
                                int control_fd, struct ddp_error *err);

/* An edge over @count connected, non-blocking TCP sockets, at most DDPI_SOCKETS_MAX (stripes.h); in
 * the same order on both sides. */
struct ddpi_edge *ddpi_edge_tcp(const int *data_fds, unsigned count, int control_fd,
                                struct ddp_error *err);
/* Encrypt what goes over socket @index with TLS (data_tls.h) from now on; the side that @connects
 * begins. @seals are those of the greeting on that connection. */
ddp_status ddpi_edge_tcp_hide(struct ddpi_edge *edge, unsigned index,
                              const struct ddpi_tls_engine *engine, const struct ddpi_seals *seals,
                              bool connects, struct ddp_error *err);

/* An edge that carries messages only; its table also serves edges that do not exist yet. */
struct ddpi_edge *ddpi_edge_none(int control_fd, struct ddp_error *err);
extern const struct ddpi_edge_ops ddpi_edge_none_ops;

/* A sealed memory file with a byte ring for each direction. */
ddp_status ddpi_shm_create(struct ddpi_shm_segment **ret_segment, struct ddp_error *err);
/* The same, from a descriptor that a peer has sent; takes over @fd in any case. */
ddp_status ddpi_shm_attach(int fd, struct ddpi_shm_segment **ret_segment, struct ddp_error *err);
int ddpi_shm_fd(const struct ddpi_shm_segment *segment);
void ddpi_shm_destroy(struct ddpi_shm_segment *segment);

static inline void ddpi_edge_destroy(struct ddpi_edge *edge)
{
    if (edge != NULL)
        edge->ops->destroy(edge);
}

#endif
