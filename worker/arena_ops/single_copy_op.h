/*
 * single_copy_op.h - an operation (arena_op.h) whose ranks read each other's buffers through the
 * kernel, with process_vm_readv(2): each byte is copied once, not into a piece and out again. It
 * takes two rounds: in the first one ranks show where their buffers are; then they read, and the
 * second one tells that all have, so the buffers are their callers' again.
 *
 * The kernel lets a process read another one of the same user. A security module, a filter of
 * system calls or prctl(PR_SET_DUMPABLE) may forbid it. A rank that cannot read says so with its
 * second arrival. Then all ranks copy through the pieces, in this operation and in all later ones.
 *
 * While a rank reads, another one may fail, by a timeout say, and its caller use the buffer again.
 * So at the end each looks whether one has failed. If a rank is killed while another one reads it,
 * that one has to free its memory before it goes on, at 60 ms for each GiB.
 *
 * What a rank shows is trusted with nothing: a reader writes to its own buffer alone, as many bytes
 * as the call says. In a container with processes of its own a rank's number may belong to another
 * process here. So a rank also shows a token, and others read that from it first.
 */
#ifndef DDPI_SINGLE_COPY_OP_H
#define DDPI_SINGLE_COPY_OP_H

#include "arena_op.h"

/* Whether @op could go this way; the same on all ranks. It reduces nothing. */
bool ddpi_single_copy_is_possible(const struct ddpi_arena_op *op);

/* Show where this rank's buffer is, before it arrives in the round. */
void ddpi_single_copy_show(const struct ddpi_arena_op *op);

/* All have arrived: read a stretch of what is for this rank. */
enum ddpi_single_copy {
    DDPI_SINGLE_COPY_GOES_ON,
    DDPI_SINGLE_COPY_COMPLETE,
    DDPI_SINGLE_COPY_REFUSED, /* the kernel does not let this rank read another one */
};
enum ddpi_single_copy ddpi_single_copy_read(struct ddpi_arena_op *op);

/* All have read: count the bytes, which are the same on every way. */
void ddpi_single_copy_count(const struct ddpi_arena_op *op);

#endif
