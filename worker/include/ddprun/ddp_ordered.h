/*
 * ddprun/ddp_ordered.h - a section that ranks run one after the other: to unpack a data set that
 * the next rank finds ready, or to print in order. Part of <ddprun/ddp.h>.
 *
 *     status = ddp_ordered_begin(comm, 0, &err);
 *     ... this rank alone ...
 *     status = ddp_ordered_end(comm, &err);
 *
 * For one rank of each machine, or other subsets, pass a communicator of these ranks
 * (ddp_comm_split()).
 */
#ifndef DDPRUN_DDP_ORDERED_H
#define DDPRUN_DDP_ORDERED_H

#include <ddprun/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tag of the messages that pass the turn on; programs do not use it. */
#define DDP_ORDERED_TAG 0xddbe0001U

/**
 * Wait for this rank's turn: until all ranks below it have called ddp_ordered_end(), at most
 * @timeout_ms (0: the timeout of @comm), which counts from this call and so covers the sections of
 * all ranks below. Returns at once on rank 0. All ranks of @comm call it. What the ranks below have
 * written to memory or files before their end is there.
 *
 * DDP_E_PEER_DEAD, DDP_E_CLOSED: the rank below has died in its section, or left. DDP_E_TIMEOUT: it
 * has not come to its end. A rank whose section fails destroys @comm, or aborts it: then those
 * behind it get such an error, one after the other. Others as ddp_recv().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_ordered_begin(ddp_comm *comm, uint32_t timeout_ms,
                                                    struct ddp_error *err);

/**
 * Pass the turn on to the next rank. Does not wait for its section; returns at once on the last
 * rank. Errors as ddp_send().
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_ordered_end(ddp_comm *comm, struct ddp_error *err);

#ifdef __cplusplus
}
#endif

#endif
