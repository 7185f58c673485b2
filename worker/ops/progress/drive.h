/*
 * drive.h - moves the bytes of operations: the loop that all of them share.
 */
#ifndef DDPI_DRIVE_H
#define DDPI_DRIVE_H

#include "run.h"

/* When a driver returns. */
struct ddpi_drive_end {
    const struct ddpi_run *run; /* this run has ended; NULL: none is pending */
    bool at_once;               /* or nothing can be moved now, or much has been */
    uint64_t until_ms;          /* or this time has come; 0: no limit */
};

/* Drive the runs of @comm; the calling thread is the driver. @is_thread: it is the communicator's
 * own, and executes runs that block. Returns with the lock of the queue held, so that a short
 * operation takes it once to end, and not again to leave. */
void ddpi_drive(struct ddp_comm *comm, const struct ddpi_drive_end *end, bool is_thread);

/* Whether @run may be carried out as follows. */
bool ddpi_drive_is_brief(const struct ddp_comm *comm, const struct ddpi_run *run);

/* Under the lock of the queue, which is empty, and nobody drives: begin @run, which is brief and
 * not in the queue, and end it if nothing makes it wait. Returns whether it has ended; else it is
 * to be put into the queue. */
bool ddpi_drive_briefly(struct ddp_comm *comm, struct ddpi_run *run);

/* The list of the driver in which @run has its place. */
struct ddpi_list *ddpi_run_list(struct ddpi_run_queue *queue, const struct ddpi_run *run);

/* Carry @run out, which is in no queue, within a run that executes in the calling thread, the
 * driver. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_drive_inner(struct ddp_comm *comm, struct ddpi_run *run);

#endif
