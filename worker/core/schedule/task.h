/*
 * task.h - an operation as its caller asked for it: the call, its buffers and their parts, and the
 * ring schedule that can carry it out. Pure: the rules for arguments are here, nothing is run.
 *
 * A new collective is a row in the table of shape.c, an operation of call_header.h and, where no
 * schedule of ring.h does it, an algorithm.
 */
#ifndef DDPI_TASK_H
#define DDPI_TASK_H

#include "call_header.h"
#include "parts.h"
#include "ring.h"
#include "segments.h"
#include "shape.h"

struct ddpi_task {
    struct ddpi_call call; /* the same on all ranks, but for the roles of a message */
    const uint8_t *send;   /* this rank's contribution; NULL: none */
    uint8_t *recv;         /* the result; NULL: none */
    const struct ddp_buffer
        *list;   /* call.buffers of them, instead of @send and @recv; NULL: none */
    bool uneven; /* ranks have parts of different sizes */
    struct ddpi_parts send_parts, recv_parts; /* of a buffer that has a part for each rank */
    size_t own;        /* elements of this rank's part, or of a buffer that has one part only */
    size_t send_count; /* elements of @send from its start to its last part; 0: it is not used */
    size_t recv_count;
    size_t count;  /* the larger of both */
    double factor; /* multiplies elements before a reduction sums them; 1: it does not */
    struct ddpi_ring ring;
    size_t element_size;
    bool gathered;         /* see ddpi_layout */
    bool no_payload;       /* its bytes are not counted */
    uint32_t *source;      /* of a receive: room for the rank that has sent it; NULL: not wanted */
    uint32_t *non_finite;  /* room for whether the result has an inf or a NaN; NULL: not wanted */
    bool found_non_finite; /* set while it runs, if call.finite_check is */
    uint64_t timeout_ms;
    uint64_t bytes_sent;     /* counted while it runs, or when it is complete */
    uint64_t bytes_received; /* the same */
    uint64_t record;         /* of the flight recorder; 0: none */
};

/* The caller has set call, send, recv or the list, and the parts: check them for rank @rank of
 * @world_size, and set the rest up to element_size. A list of one buffer is replaced by that. If
 * parts are uneven, call.count is this rank's part; afterwards it is what all ranks have in common.
 * DDP_E_INVALID: the sentence names what is wrong. */
ddp_status ddpi_task_prepare(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                             struct ddp_error *err);

/* Let @task be one on @nbuffers buffers, before it is prepared; the array stays the caller's. NULL
 * is an empty list. DDP_E_INVALID: there are too many, or none at NULL. */
ddp_status ddpi_task_set_list(struct ddpi_task *task, const struct ddp_buffer *buffers,
                              size_t nbuffers, struct ddp_error *err);

/* The list of @task. */
struct ddpi_segments ddpi_task_segments(const struct ddpi_task *task);

/* What @rank copies from its send buffer to its own part of its receive buffer; no bytes if the
 * buffers are used in place, or one of them is not used. Not for operations that reduce. */
struct ddpi_copy {
    const uint8_t *from;
    uint8_t *to;
    size_t len;
};
struct ddpi_copy ddpi_task_own_copy(const struct ddpi_task *task, uint32_t rank);

/* Part @index of the buffer that @rank sends from, or receives into; false: it has no such part.
 * A buffer with a part for each rank has them in the order of ranks, any other one has part 0. */
bool ddpi_task_part(const struct ddpi_task *task, uint32_t rank, bool receives, uint32_t index,
                    struct ddpi_chunk *ret_part);

/* Of gather, scatter and all_to_all: the bytes that @rank sends to @peer, only read, or receives
 * from it; false: none pass between the two in this direction. There may be 0 of them. */
struct ddpi_range {
    uint8_t *bytes;
    size_t len;
};
bool ddpi_task_to_peer(const struct ddpi_task *task, uint32_t rank, uint32_t peer,
                       struct ddpi_range *ret_piece);
bool ddpi_task_from_peer(const struct ddpi_task *task, uint32_t rank, uint32_t peer,
                         struct ddpi_range *ret_piece);

/* Of such an operation with uneven parts: a number for the flight recorder. Those of all @nranks
 * ranks add up to 0, modulo 2^16, if each rank is sent what it expects; else they do not, but for
 * chance. */
uint16_t ddpi_task_balance(const struct ddpi_task *task, uint32_t rank, uint32_t nranks);

/* How many parts of @call, of equal size, are in the send and in the receive buffer of @rank: none,
 * one, or one for each of the @world_size ranks. */
struct ddpi_extents {
    uint32_t send, recv;
};
struct ddpi_extents ddpi_call_extents(const struct ddpi_call *call, uint32_t rank,
                                      uint32_t world_size);

/* Whether @call has uneven parts of which a rank knows only what it sends and receives itself. */
bool ddpi_call_is_in_pairs(const struct ddpi_call *call);

#endif
