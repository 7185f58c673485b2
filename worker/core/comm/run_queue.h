/*
 * run_queue.h - the operations of a communicator that have been called and have not ended, in the
 * order of the calls. The functions are in progress/: drive.h, run_queue's users. This is the data,
 * which a communicator contains.
 *
 * At any time at most one thread drives them: it moves their bytes, and sleeps when nothing can be
 * moved. That is a thread that waits for one of them, or the communicator's own.
 */
#ifndef DDPI_RUN_QUEUE_H
#define DDPI_RUN_QUEUE_H

#include "list.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct ddpi_need;

struct ddpi_run_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a run has ended, one has come for the thread, or the driver left */

    /* Under the lock. */
    struct ddpi_list incoming; /* runs that the driver has not taken yet */
    unsigned pending;          /* runs that have not ended */
    unsigned thread_runs;      /* those of them that only the communicator's thread may drive */
    unsigned sleepers;         /* threads that wait for @changed */
    bool driven;               /* a thread is the driver */
    bool serves;               /* the thread is to drive whatever comes */
    bool ending;               /* the thread is to end */
    bool has_thread;
    pthread_t thread;
    int events; /* an eventfd that counts requests that have ended; -1: none */

    atomic_bool has_incoming;

    /* The driver's; while there is none, under the lock. */
    struct ddpi_list collectives; /* the first one is under way */
    struct ddpi_list messages;    /* all are under way */
    struct ddpi_need *needs;      /* room for what they wait for */
    unsigned needs_room;
};

#endif
