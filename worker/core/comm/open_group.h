/*
 * open_group.h - calls that are noted between ddp_group_start() and ddp_group_end(). The functions
 * are in progress/: call_group.h, grouped_calls.h. This is the data, which a communicator contains.
 */
#ifndef DDPI_OPEN_GROUP_H
#define DDPI_OPEN_GROUP_H

#include "list.h"

#include <stdatomic.h>

enum ddpi_group_place { DDPI_HOST_MESSAGES, DDPI_DEVICE_MESSAGES, DDPI_COLLECTIVES, DDPI_PLACES };

struct ddpi_call_group {
    struct ddpi_list places[DDPI_PLACES]; /* begin one after the other */
};

struct ddpi_open_group {
    atomic_uintptr_t owner; /* pthread_self() of the thread that has opened it; 0: none. The rest is
                               that thread's */
    unsigned depth;         /* calls of ddp_group_start() without their ddp_group_end() */
    struct ddpi_call_group calls;
};

#endif
