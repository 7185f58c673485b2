/*
 * peer_card.h - the card of a rank: where and how others reach it. It is no secret: nothing in it
 * lets a process pass for a rank (greeting.h).
 */
#ifndef DDPI_PEER_CARD_H
#define DDPI_PEER_CARD_H

#include "buf.h"
#include "stripes.h"

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum {
    DDPI_CARD_ID = 16,
    DDPI_MACHINE_TEXT = 96,
    DDPI_NODE_TEXT = 65,
    DDPI_LOCAL_NAME = 48,
    DDPI_CARD_WIRE_MAX = 512,
    DDPI_CARD_SLOT = 264, /* the longest card that ddpi_card_encode() makes, and its length */
};

struct ddpi_card {
    uint32_t world_size;
    uint32_t pid;
    uint8_t id[DDPI_CARD_ID];        /* of this communicator in this process; no secret */
    bool keyed;                      /* this rank has a key to prove itself */
    bool shm;                        /* this rank can use shared memory */
    uint8_t sockets;                 /* for the data of an edge over TCP; 1 to DDPI_SOCKETS_MAX */
    char machine[DDPI_MACHINE_TEXT]; /* the same on ranks that can share memory */
    char node[DDPI_NODE_TEXT];       /* host name, for sentences only */
    char local[DDPI_LOCAL_NAME];     /* abstract Unix socket; "" without shm */
    struct sockaddr_storage tcp;     /* AF_INET or AF_INET6 */
};

/* Fills id, pid, machine and node; one socket. */
ddp_status ddpi_card_identify(struct ddpi_card *card, struct ddp_error *err);

/* Only ranks with the same @host_id share memory. */
void ddpi_card_set_host(struct ddpi_card *card, const char *host_id);

/* Append the card to @buf; false: no memory. */
bool ddpi_card_encode(const struct ddpi_card *card, struct ddpi_buf *buf);

/* false: not a card of this version of the library, of which the last number does not count. */
bool ddpi_card_decode(const void *wire, size_t len, struct ddpi_card *ret_card);

/* The same in a slot of fixed size, as ranks pass cards round; a slot of zeros is empty. */
bool ddpi_card_put(const struct ddpi_card *card, uint8_t slot[DDPI_CARD_SLOT]);
bool ddpi_card_get(const uint8_t slot[DDPI_CARD_SLOT], struct ddpi_card *ret_card);

/* DDP_E_PROTOCOL, with the reason why the card of @rank was not taken by @own_rank: it is from
 * another version, and both are named, or it is no card. */
ddp_status ddpi_card_refuse(const void *wire, size_t len, uint32_t rank, uint32_t own_rank,
                            struct ddp_error *err);
ddp_status ddpi_card_refuse_slot(const uint8_t slot[DDPI_CARD_SLOT], uint32_t rank,
                                 uint32_t own_rank, struct ddp_error *err);

/* Whether two ranks are on one machine, even if they can share no memory. */
bool ddpi_card_same_machine(const struct ddpi_card *a, const struct ddpi_card *b);

/* How many sockets carry the data of an edge over TCP: the fewer that one of both wants. */
unsigned ddpi_card_sockets(const struct ddpi_card *a, const struct ddpi_card *b);

/* Whether two ranks can share memory; both ranks get the same answer. */
bool ddpi_card_share_memory(const struct ddpi_card *a, const struct ddpi_card *b);

#endif
