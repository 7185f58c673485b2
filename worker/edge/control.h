/*
 * control.h - the control socket of an edge: short messages beside the data, and the proof that the
 * peer lives, as its end is seen when the peer is gone.
 *
 * Messages have one fixed size. They are few, so a send never blocks: one that the socket has no
 * room for is dropped, as then the peer has not listened for hundreds of messages.
 *
 * Each has a number and a code from the key that both sides agreed on as they met (greeting.h). A
 * signal handler may send while another message is being sent, so numbers may come out of order,
 * and some never; none is taken twice.
 */
#ifndef DDPI_CONTROL_H
#define DDPI_CONTROL_H

#include "proof.h"

#include <ddprun/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ddpi_notice {
    DDPI_NOTICE_FAILED = 1, /* status and sentence of the first cause: fail with it, pass it on */
    DDPI_NOTICE_LEFT,       /* the peer gave its communicator back; nothing more will come */
    DDPI_NOTICE_ASK,        /* the peer has waited too long for us: are we waiting as well? */
    DDPI_NOTICE_WAITING,    /* the answer: yes */
    DDPI_NOTICE_HANDOVER,   /* a descriptor comes with it, and a tag */

    /* While ranks join (gathering.h). */
    DDPI_NOTICE_CARD,   /* of rank @tag: in place of a text, its slot (peer_card.h) */
    DDPI_NOTICE_STANDS, /* both edges that this rank has in the ring */
    DDPI_NOTICE_GO,     /* those of all ranks stand; @tag: how many ranks run on this machine */
};

struct ddpi_memo {
    uint32_t magic;
    uint32_t notice;
    int32_t status;
    uint32_t tag;
    char text[DDP_ERROR_TEXT];
};

/* A message on its way. */
struct ddpi_sealed_memo {
    struct ddpi_memo memo;
    uint64_t number;
    uint8_t seal[DDPI_SEAL_SIZE];
};

enum ddpi_control_event {
    DDPI_CONTROL_NONE,    /* nothing more to read now */
    DDPI_CONTROL_MEMO,    /* @ret_memo is filled */
    DDPI_CONTROL_END,     /* closed, or broken by the kernel: the peer is gone */
    DDPI_CONTROL_STARVED, /* a descriptor came, and this process may have no more of them */
    DDPI_CONTROL_GARBLED  /* what came is no message */
};

enum { DDPI_HANDED_MAX = 16 };

struct ddpi_control {
    int fd;     /* non-blocking; -1 = none */
    bool local; /* a Unix socket: descriptors can be handed over */
    struct ddpi_seals seals;
    _Atomic uint64_t sent; /* the number of the next message; */
    uint64_t heard;        /* of those that came, the latest plus one, */
    uint64_t heard_before; /* and a bit for each of the 64 up to it */
    uint32_t got;
    struct ddpi_sealed_memo inbox; /* its first @got bytes are there */
    int inbox_fd;                  /* came with them; -1 = none */
    struct {
        uint32_t tag;
        int fd;
    } handed[DDPI_HANDED_MAX]; /* what the peer handed over and nobody has taken, oldest first */
    uint32_t handed_count;
};

/* Takes over @fd, to which nobody but the peer has ever had access. */
void ddpi_control_init(struct ddpi_control *control, int fd);
/* Messages are sealed, before the first one. */
void ddpi_control_seal(struct ddpi_control *control, const struct ddpi_seals *seals);
void ddpi_control_finish(struct ddpi_control *control);

void ddpi_memo_fill(struct ddpi_memo *memo, enum ddpi_notice notice, ddp_status status,
                    const char *text);

/* The status to fail with when @memo of a peer says that it has failed. */
ddp_status ddpi_memo_failure(const struct ddpi_memo *memo);

/* Give @memo, which is to be sent, its tag. */
void ddpi_memo_tag(struct ddpi_memo *memo, uint32_t tag);

/* Async-signal-safe. */
void ddpi_control_send(struct ddpi_control *control, const struct ddpi_memo *memo);

/* Hand @fd, which stays the caller's, over to the peer, with a @tag for him. false: this socket
 * cannot do that (control->local), or is full as the peer has not listened for long. The peer has
 * to take them: one that holds DDPI_HANDED_MAX takes a further one for garbage. */
bool ddpi_control_hand_over(struct ddpi_control *control, uint32_t tag, int fd);

/* The first of the descriptors that the peer has handed over, in order; the caller closes it.
 * -1: none has been read. */
int ddpi_control_take_over(struct ddpi_control *control, uint32_t *ret_tag);

enum ddpi_control_event ddpi_control_read(struct ddpi_control *control, struct ddpi_memo *ret_memo);

#endif
