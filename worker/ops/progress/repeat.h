/*
 * repeat.h - brief calls that are made again and again. To check a call, to find its memory and to
 * choose an algorithm takes longer than a few bytes take to the other ranks. So of each operation
 * the last brief run is kept, and a call that differs from it in nothing but the place of its
 * buffers, which lie as far from each other, is carried out with that.
 */
#ifndef DDPI_REPEAT_H
#define DDPI_REPEAT_H

#include "run.h"

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

#endif
