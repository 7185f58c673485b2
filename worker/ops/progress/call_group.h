/*
 * call_group.h - calls that are noted between ddp_group_start() and ddp_group_end(), in the order
 * in which they are to begin. A list that owns what is in it. Starts nothing.
 *
 * Messages on host memory are all under way at once and keep the order of the calls. On device
 * memory operations run one by one, and a message waits for its peer: all ranks begin theirs in one
 * order, so no ring of ranks can wait for each other. Collectives follow.
 */
#ifndef DDPI_CALL_GROUP_H
#define DDPI_CALL_GROUP_H

#include "memory.h"
#include "open_group.h"
#include "run.h"

struct ddpi_grouped_call {
    struct ddpi_run run;
    struct ddpi_memory *memory; /* the type of its buffers */
    void *stream;
    struct ddpi_list link;
};

void ddpi_call_group_init(struct ddpi_call_group *group);

/* Add @call, of rank @rank. */
void ddpi_call_group_add(struct ddpi_call_group *group, struct ddpi_grouped_call *call,
                         uint32_t rank);

/* Remove the call that begins next; it is the caller's then. NULL: there is none. */
struct ddpi_grouped_call *ddpi_call_group_take(struct ddpi_call_group *group);

/* Add all calls of @from, which is empty then, to @to, which is empty. */
void ddpi_call_group_move(struct ddpi_call_group *to, struct ddpi_call_group *from);

/* Free all calls. */
void ddpi_call_group_clear(struct ddpi_call_group *group);

#endif
