/*
 * pmix_waiting.h - ranks that others would wait for in vain: one that has left MPI without
 * MPI_Finalize(), on whichever node, fails the generation; one that does not come is named after a
 * minute. All calls but one are of the loop's thread.
 */
#ifndef CMD_PMIX_WAITING_H
#define CMD_PMIX_WAITING_H

#include "pmix_gather.h"
#include "pmix_place.h"
#include "pmix_tasks.h"

struct pmix_waiting {
    const struct pmix_place *place;
    struct pmix_gathering *gathering;
    struct pmix_tasks *tasks;
    void (*tell)(const char *format, ...) DDP_PRINTF(1, 2); /* as of pmix_upcalls.h */
    bool serves;                                            /* all nodes have met */
    uv_timer_t minute;
    uint32_t missing;     /* rank that has left, for @task */
    _Atomic bool telling; /* the other nodes of it: not done yet */
    void (*told)(void); /* called when that is done, if pmix_waiting_holds() was true; NULL: not */
    struct pmix_task task;
};

/* The caller has set the first four members, and no others. */
void pmix_waiting_open(struct pmix_waiting *waiting, uv_loop_t *loop);

/* Ranks may connect from now on. Errors are those of ddp_store_uv_submit(). */
DDP_MUST_CHECK ddp_status pmix_waiting_serve(struct pmix_waiting *waiting, struct ddp_error *err);

/* Whether the other nodes are being told of a rank that has left, so that the process must not end
 * yet. @told is called when it may. */
bool pmix_waiting_holds(struct pmix_waiting *waiting, void (*told)(void));

/* @rank of this node has left; call it once. From any thread. */
void pmix_waiting_missing(struct pmix_waiting *waiting, uint32_t rank);

#endif
