/*
 * reduce_check.h - which reductions an element type has.
 */
#ifndef DDPI_REDUCE_CHECK_H
#define DDPI_REDUCE_CHECK_H

#include <ddprun/comm.h>

/* DDP_E_INVALID: one of the two is unknown, or the type does not have this reduction; the sentence
 * names both and says what to do. */
ddp_status ddpi_reduce_check(ddp_dtype dtype, ddp_reduce_op op,
                             struct ddp_error *err) DDP_MUST_CHECK;

#endif
