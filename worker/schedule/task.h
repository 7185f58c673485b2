/*
 * task.h - an operation as its caller asked for it: the call, its buffers, and the ring schedule
 * that carries it out. Pure: the rules for arguments are here, nothing is run.
 *
 * A new collective is a row in the table of task.c, an operation of call_header.h and, where no
 * schedule of ring.h does it, a schedule.
 */
#ifndef DDPI_TASK_H
#define DDPI_TASK_H

#include "call_header.h"
#include "ring.h"

struct ddpi_task {
    struct ddpi_call call;
    const uint8_t *send; /* this rank's contribution; NULL: none */
    uint8_t *recv;       /* the result; NULL: none */
    struct ddpi_ring ring;
    size_t count; /* elements of @send or @recv, whichever is longer */
    size_t element_size;
    bool gathered;   /* see ddpi_layout */
    bool no_payload; /* its bytes are not counted */
    uint64_t timeout_ms;
    uint64_t bytes_sent;     /* counted while it runs */
    uint64_t bytes_received; /* counted while it runs */
};

/* The caller has set call, send and recv of @task: check them for rank @rank of @world_size, and
 * set ring, count and element_size. DDP_E_INVALID: the sentence names what is wrong. */
ddp_status ddpi_task_prepare(struct ddpi_task *task, uint32_t rank, uint32_t world_size,
                             struct ddp_error *err);

/* Whether the operation of @call reduces; and whether it is between two ranks only. */
bool ddpi_call_reduces(const struct ddpi_call *call);
bool ddpi_call_is_message(const struct ddpi_call *call);

#endif
