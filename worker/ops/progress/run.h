/*
 * run.h - an operation under way: what was called, the algorithm that carries it out, and the state
 * of that algorithm.
 *
 * An algorithm is a table of functions that never block: begin() once, advance() until it is
 * complete, needs() when nothing can be moved. So one loop (ops/progress/drive.c) carries blocking
 * calls, requests, and operations that wait for the stream of a GPU.
 */
#ifndef DDPI_RUN_H
#define DDPI_RUN_H

#include "list.h"
#include "task.h"
#include "wait.h"

#include <stdatomic.h>

struct ddpi_run;

enum ddpi_movement {
    DDPI_IDLE,
    DDPI_MOVED,
    DDPI_COMPLETE,
    DDPI_GIVEN_UP /* of a request, as this rank leaves: it ends with DDP_E_CANCELED */
};

struct ddpi_algorithm {
    const char *name;
    bool uses_ring;     /* before begin(), both edges of the ring are made */
    bool takes_lists;   /* it works in the buffers of a list, which are packed for the others */
    bool sees_failures; /* in shared memory ranks see whether one has failed */
    bool takes_turn;    /* a message, too, waits for the collectives that were called before it */

    /* Whether the run moves so few bytes that it may begin, and end if nobody makes it wait, under
     * the lock of the queue. NULL: never. It has a begin(), no end(), no list of buffers, and needs
     * no edges of the ring any more. */
    bool (*is_brief)(const struct ddp_comm *comm, const struct ddpi_run *run);

    /* The run is the next one of its kind: prepare its state. NULL: there is nothing to prepare. */
    ddp_status (*begin)(struct ddp_comm *comm, struct ddpi_run *run);

    /* Move what can be moved now. After DDPI_MOVED there may be more. Anything but DDP_OK has made
     * the communicator fail. */
    ddp_status (*advance)(struct ddp_comm *comm, struct ddpi_run *run,
                          enum ddpi_movement *ret_movement);

    /* Write to @needs what the run cannot go on without, and return how many; never more than
     * most_needs() says, which is asked first. */
    unsigned (*most_needs)(const struct ddpi_run *run);
    unsigned (*needs)(const struct ddp_comm *comm, struct ddpi_run *run, struct ddpi_need *needs);

    /* The run ends with @status, whether or not it has begun: free what begin() has allocated.
     * NULL: nothing. */
    void (*end)(struct ddp_comm *comm, struct ddpi_run *run, ddp_status status);

    /* Instead of all of these but end(): carry the run out in the communicator's own thread, where
     * it may block. */
    ddp_status (*execute)(struct ddp_comm *comm, struct ddpi_run *run);
};

enum { DDPI_RUN_STATE = 768 };

struct ddpi_run {
    struct ddpi_task task;
    struct ddpi_buffers buffers; /* what the memory type knows of them */
    const struct ddpi_algorithm *algorithm;
    struct ddpi_memory *owner; /* the type of the buffers; for algorithms that belong to one */
    struct ddpi_wait wait;     /* its times are set late (drive.c) */
    struct ddpi_list link;     /* in the queue */
    bool begun;
    bool broken;      /* begin() or advance() has failed */
    bool decided;     /* other ranks rely on its success: no failure of others prevents it */
    bool is_awaited;  /* submit() may wait until it has ended */
    bool is_request;  /* no thread waits for it, as far as the queue knows */
    bool is_repeat;   /* @state is what an earlier brief run of the same call has left */
    atomic_bool done; /* set under the lock of the queue */
    ddp_status status;
    char *cause; /* room for DDP_ERROR_TEXT bytes that get the sentence of a failure; NULL: none */

    /* Called with @ended_arg when the run has ended and may be gone, by the thread that drives it.
     * NULL: nothing. */
    void (*ended)(void *arg, ddp_status status);
    void *ended_arg;

    _Alignas(16) unsigned char state[DDPI_RUN_STATE]; /* the algorithm's */
};

static inline bool ddpi_run_is_done(const struct ddpi_run *run)
{
    return atomic_load_explicit(&run->done, memory_order_acquire);
}

#define DDPI_RUN_STATE_FITS(type) \
    _Static_assert(sizeof(type) <= DDPI_RUN_STATE, "the state of an algorithm fits into a run")

#endif
