/*
 * control.h - the control socket of an edge: short messages next to the data. Its end shows that
 * the peer is gone.
 *
 * Messages have one fixed size. They are few, so sending never blocks: a message for which the
 * socket has no room is dropped, as then the peer has not read hundreds of messages.
 *
 * Each message has a number and a code made with the key that both sides agreed on in their
 * greeting. A signal handler may send while another message is being sent, so numbers may arrive
 * out of order, and some never; no number is accepted twice.
 */
#ifndef DDPI_CONTROL_H
#define DDPI_CONTROL_H

#include "proof.h"

#include <ddprun/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum ddpi_notice {
    DDPI_NOTICE_FAILED =
        1,                /* status and sentence of the first cause: fail with it, and pass it on */
    DDPI_NOTICE_LEFT,     /* the peer has destroyed its communicator; nothing more will come */
    DDPI_NOTICE_ASK,      /* the peer waits for this rank: does it wait as well? */
    DDPI_NOTICE_WAITING,  /* the answer: yes */
    DDPI_NOTICE_DOUBT,    /* the text names a rank that does not answer rank @tag; @status counts */
    DDPI_NOTICE_HANDOVER, /* a descriptor comes with it; @tag tells which */

    /* While ranks join (gathering.h): */
    DDPI_NOTICE_CARD,   /* the card of rank @tag; its slot (peer_card.h) is in place of the text */
    DDPI_NOTICE_STANDS, /* both ring edges of this rank exist */
    DDPI_NOTICE_GO,     /* the ring edges of all ranks exist; @tag: how many are on this machine */

    /* While survivors find each other (ops/api/shrink.c), besides CARD, STANDS and GO: */
    DDPI_NOTICE_PLACE, /* @tag: the receiver's rank in the new communicator; @status: its size */
    DDPI_NOTICE_AGAIN, /* a rank was lost meanwhile: send another card */
    DDPI_NOTICE_LAST = DDPI_NOTICE_AGAIN,
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
    DDPI_CONTROL_END,     /* closed or reset: the peer is gone */
    DDPI_CONTROL_STARVED, /* a descriptor came, but this process may not have another one */
    DDPI_CONTROL_GARBLED  /* an invalid message */
};

enum { DDPI_HANDED_MAX = 16 };

struct ddpi_control {
    int fd;     /* non-blocking; -1 = none */
    bool local; /* a Unix socket: descriptors can be handed over */
    struct ddpi_seals seals;
    _Atomic uint64_t sent; /* the number of the next message */
    atomic_flag sending;   /* a thread uses the next two */
    uint32_t unsent;       /* bytes at the end of @outbox; 0: none */
    struct ddpi_sealed_memo outbox;
    uint64_t heard;        /* one more than the highest number that was accepted */
    uint64_t heard_before; /* a bit for each of the 64 numbers up to it: accepted */
    uint32_t got;
    struct ddpi_sealed_memo inbox; /* its first @got bytes are there */
    int inbox_fd;                  /* a descriptor that came with them; -1: none */
    struct {
        uint32_t tag;
        int fd;
    } handed[DDPI_HANDED_MAX]; /* received descriptors that are not taken yet, oldest first */
    uint32_t handed_count;
};

/* Takes over @fd, which only the peer has ever had. */
void ddpi_control_init(struct ddpi_control *control, int fd);
/* Seal messages from now on; call it before the first message. */
void ddpi_control_seal(struct ddpi_control *control, const struct ddpi_seals *seals);
void ddpi_control_finish(struct ddpi_control *control);

void ddpi_memo_fill(struct ddpi_memo *memo, enum ddpi_notice notice, ddp_status status,
                    const char *text);

/* Read @memo, which a peer has filled. false: it is invalid. */
bool ddpi_memo_decode(struct ddpi_memo *memo);

/* The status to fail with when @memo of a peer says that it has failed. */
ddp_status ddpi_memo_failure(const struct ddpi_memo *memo);

/* Set the tag of @memo, which is to be sent. */
void ddpi_memo_tag(struct ddpi_memo *memo, uint32_t tag);

/* Async-signal-safe. Other threads may send at the same time. */
void ddpi_control_send(struct ddpi_control *control, const struct ddpi_memo *memo);

/* Pass @fd, which stays the caller's, to the peer, with a @tag. false: this socket cannot do that
 * (control->local), or is full, as the peer has not read for long. The peer has to take
 * descriptors: one that holds DDPI_HANDED_MAX treats another one as an invalid message. */
bool ddpi_control_pass_fd(struct ddpi_control *control, uint32_t tag, int fd);

/* Whether the peer has passed a descriptor with @tag that is not taken yet. */
bool ddpi_control_has_fd(const struct ddpi_control *control, uint32_t tag);

/* The oldest of them; the caller closes it. -1: none has come. */
int ddpi_control_take_fd(struct ddpi_control *control, uint32_t tag);

enum ddpi_control_event ddpi_control_read(struct ddpi_control *control, struct ddpi_memo *ret_memo);

#endif
