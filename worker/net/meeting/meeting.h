/*
 * meeting.h - turns two ranks that have each other's cards into an edge. Nothing here blocks: the
 * caller waits on ddpi_meeting_wait_fd(), together with whatever else it waits for.
 *
 * The rank that needs an edge connects; its peer accepts when it looks at its listeners next.
 * Shared memory takes one connection over an abstract Unix socket: it carries the memory file and
 * both bells, and stays open as the control socket. TCP takes two connections, for control and for
 * data. If two ranks connect to each other, the attempt of the lower rank wins; the higher rank
 * gives its own attempt up as soon as it has accepted.
 *
 * The listener of a rank lives as long as its communicator. So an attempt sees at once when the
 * rank dies, whether or not it has accepted yet. An attempt whose connection is merely closed tries
 * again.
 *
 * A connection is a stranger's until its peer has proven that it is a rank of this world
 * (greeting.h). Connections of other users of the machine are closed unread.
 */
#ifndef DDPI_MEETING_H
#define DDPI_MEETING_H

#include "meeting_state.h"

/* Make @meeting such that it can be finished. */
void ddpi_meeting_clear(struct ddpi_meeting *meeting);

/* Listen on @address (NULL: nowhere; its port is ignored) and, with @use_shm, on an abstract
 * socket, and fill the card. If there can be no such socket, the card says so and nothing fails.
 * Call ddpi_meeting_finish() after a failure, too. */
ddp_status ddpi_meeting_open(struct ddpi_meeting *meeting, int bell,
                             const struct ddpi_rank_key *key,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err);

/* Then this is known, and there is room for the cards of all ranks. */
ddp_status ddpi_meeting_place(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                              struct ddp_error *err);

/* How a rank can be reached. */
struct ddpi_meeting_options {
    const struct sockaddr_storage *address; /* as for ddpi_meeting_open() */
    bool use_shm;
    const char *host_id; /* ranks with different ones share no memory; NULL: none */
    uint8_t sockets;     /* of an edge over TCP, for data; 0: one */
};

/* Both; but try first whether there is shared memory at all, for which the card says no else. */
ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                             int bell, const struct ddpi_rank_key *key,
                             const struct ddpi_meeting_options *options, struct ddp_error *err);
void ddpi_meeting_finish(struct ddpi_meeting *meeting);

/* Let ranks join at the listener @fd, too, which the meeting takes over: those that know an address
 * and the key, and not the card of this rank. Close it. */
ddp_status ddpi_meeting_add_join_listener(struct ddpi_meeting *meeting, int fd,
                                          struct ddp_error *err);
void ddpi_meeting_close_join_listener(struct ddpi_meeting *meeting);

/* Begin to connect to @peer, whose card is known. No attempt may be in progress. */
ddp_status ddpi_meeting_ask(struct ddpi_meeting *meeting, uint32_t peer, enum ddpi_link link,
                            struct ddp_error *err);

/* Go on until an edge exists, or until there is nothing to do now. A failure ends the attempt. That
 * the peer is gone is no failure: it marks attempt.edge as broken. */
ddp_status ddpi_meeting_advance(struct ddpi_meeting *meeting, struct ddpi_arrival *ret_arrival,
                                struct ddp_error *err);

/* Readable when ddpi_meeting_advance() has something to do. */
static inline int ddpi_meeting_wait_fd(const struct ddpi_meeting *meeting)
{
    return meeting->events;
}

/* When ddpi_meeting_advance() has something to do although the descriptor is not readable. */
uint64_t ddpi_meeting_wake_ms(const struct ddpi_meeting *meeting);

#endif
