/*
 * runs.h - the queue of a communicator's operations (run_queue.h): who drives them, and how a
 * thread waits for one.
 *
 * Collectives run one by one, in the order of the calls. Messages are all under way at once.
 */
#ifndef DDPI_RUNS_H
#define DDPI_RUNS_H

#include "run.h"

/* Prepare @run, whose task, buffers and algorithm are set, and put it behind the others of its
 * kind; this gives it its number. It must stay where it is until it has ended. */
void ddpi_runs_put(struct ddp_comm *comm, struct ddpi_run *run);

/* The same, and wait until it has ended: faster than both calls. For _locked() the caller holds
 * the lock of the queue, which is released while this thread waits. */
void ddpi_runs_carry_out(struct ddp_comm *comm, struct ddpi_run *run);
void ddpi_runs_carry_out_locked(struct ddp_comm *comm, struct ddpi_run *run);

/* @run needs nothing more and is in no queue: let it end. It may be gone afterwards. */
void ddpi_runs_pass(struct ddp_comm *comm, struct ddpi_run *run);

/* Wait until @run has ended, at most until the monotonic time @until_ms (0: no limit; its own
 * deadline ends it). The calling thread drives the communicator's runs if no other one does.
 * Returns whether @run has ended. */
bool ddpi_runs_wait(struct ddp_comm *comm, const struct ddpi_run *run, uint64_t until_ms);

/* Move what can be moved without sleeping; whether @run has ended. */
bool ddpi_runs_test(struct ddp_comm *comm, const struct ddpi_run *run);

/* The owner of @run forgets it: call @ended with @arg when it has ended, instead of what was set
 * before. false: it has ended already. */
bool ddpi_runs_abandon(struct ddp_comm *comm, struct ddpi_run *run,
                       void (*ended)(void *arg, ddp_status status), void *arg);

/* Count the requests that end from now on in an eventfd, which belongs to the communicator. */
ddp_status ddpi_runs_count_ends(struct ddp_comm *comm, int *ret_fd, struct ddp_error *err);

/* Wait until no run is pending. */
void ddpi_runs_drain(struct ddp_comm *comm);

/* Wait until no run is pending, and drive what comes: the calling thread may use ddpi_drive_inner()
 * until it releases the queue. */
void ddpi_runs_claim(struct ddp_comm *comm);
void ddpi_runs_release(struct ddp_comm *comm);

/* Under the lock of the queue: whether no run is pending, and no thread drives. */
bool ddpi_runs_are_idle(const struct ddp_comm *comm);

/* Start the communicator's thread, unless it runs. It drives the runs that it alone may drive; if
 * it
 * @serves, all that come. */
ddp_status ddpi_runs_start_thread(struct ddp_comm *comm, bool serves, struct ddp_error *err);

/* Abort all that is pending, and end the thread. */
void ddpi_runs_stop(struct ddp_comm *comm);

#endif
