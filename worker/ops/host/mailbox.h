/*
 * mailbox.h - the messages of a communicator: those to send, those that receives wait for, and
 * those that came before their receive. They travel over the edges between pairs of ranks
 * (edges.h, peers), where each is a header (call_header.h) and the bytes.
 *
 * Several operations share an edge: messages to one rank leave one after the other, in the order in
 * which they were posted. Whichever operation is driven moves whatever is at the head of its edge.
 * A message that no receive wants stays on the edge, unless a receive waits for one behind it: then
 * it is received into memory of its own. For the driver of the communicator only.
 */
#ifndef DDPI_MAILBOX_H
#define DDPI_MAILBOX_H

#include "matching.h"
#include "run.h"

enum ddpi_mail_state {
    DDPI_MAIL_NONE,
    DDPI_MAIL_QUEUED,  /* to be sent, behind others to the same rank */
    DDPI_MAIL_WAITING, /* for a message that matches */
    DDPI_MAIL_ARRIVING,
    DDPI_MAIL_COMPLETE
};

/* One message to send or to receive; must stay where it is until it was dropped. */
struct ddpi_mail {
    struct ddpi_match match; /* in the queue of its lane, or in the list of receives */
    struct ddpi_call call;   /* what this rank called, with class, tag and bytes */
    uint8_t *bytes;          /* only read, if it is sent */
    size_t len;
    size_t done;
    uint32_t peer; /* of a receive from any rank: that rank, once its message has begun */
    enum ddpi_mail_state state;
    bool sends;
    bool connected; /* the edge was looked at */
    uint8_t header[DDPI_CALL_WIRE_SIZE];
    size_t header_done;
};

/* Post @mail, whose call, bytes, len, peer and sends are set; the rest is zero. What a rank sends
 * to itself is copied at once. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_mail_post(struct ddp_comm *comm, struct ddpi_mail *mail);

/* Move what can be moved for @mail, as a part of the operation that waits as @wait says, and make
 * an edge if there is none. Sets *@moved if something was moved. */
ddp_status ddpi_mail_move(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_mail *mail, bool *moved);

/* What @mail cannot go on without, at most ddpi_mail_most_needs(). */
unsigned ddpi_mail_most_needs(const struct ddp_comm *comm, const struct ddpi_mail *mail);
unsigned ddpi_mail_needs(const struct ddp_comm *comm, struct ddpi_mail *mail,
                         struct ddpi_need *needs);

/* The owner of @mail forgets it. Unless it is complete, or a receive that waits, the communicator
 * has failed. */
void ddpi_mail_drop(struct ddp_comm *comm, struct ddpi_mail *mail);

/* Free what came and was not received; call it before ddpi_comm_destroy(). */
void ddpi_mailbox_destroy(struct ddp_comm *comm);

#endif
