/*
 * progress_impl.h - what the files of this folder offer each other, for this folder alone.
 */
#ifndef DDPI_PROGRESS_IMPL_H
#define DDPI_PROGRESS_IMPL_H

#include "communicator.h"
#include "run.h"

/* ---- which types of memory (memory.h) this process uses (opened_types.c) ---- */

/* Open the types that this process has begun to use since the last call; before each operation. */
ddp_status ddpi_types_open_used(struct ddp_comm *comm, struct ddp_error *err);

/* Whether no type but the host's is open. */
bool ddpi_types_only_host_is_open(const struct ddpi_memories *memories);

/* The same, and this process has not begun to use another one since. */
bool ddpi_types_only_host_is_used(const struct ddpi_memories *memories);

/* ---- brief calls that are made again and again (repeat.c) ---- */

/* To check a call, to find its memory and to choose an algorithm takes longer than a few bytes take
 * to the other ranks. So of each operation the last brief run is kept, and a call that differs from
 * it in nothing but the place of its buffers, which lie as far from each other, is carried out with
 * that. */

/* The run of the last brief call of an operation. */
struct ddpi_repeat {
    bool lent; /* a call is carried out with it */
    struct ddpi_run run;
};

/* If @called, which is not prepared, and whose caller waits, is like the call that was kept last:
 * carry it out, and set *@ret_status. false: nothing was done. */
bool ddpi_repeat_call(struct ddp_comm *comm, const struct ddpi_task *called,
                      ddp_status *ret_status);

/* Keep @run, which a blocking call on host memory has carried out, if it was brief. */
void ddpi_repeat_keep(struct ddp_comm *comm, const struct ddpi_run *run);

/* ---- a list of buffers as one, for algorithms that do not work in a list (packing.c) ---- */

/* Before the algorithm of @run begins: from here on its task has one buffer, in place. Anything but
 * DDP_OK has made the communicator fail. */
ddp_status ddpi_pack(struct ddp_comm *comm, struct ddpi_run *run);

/* After its end, also when it has not begun: write the result to the list if @status is DDP_OK, and
 * free that buffer. */
void ddpi_unpack(const struct ddp_comm *comm, struct ddpi_run *run, ddp_status status);

#endif
