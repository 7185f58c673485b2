/*
 * uneven_gather.h - all-gathers to which each rank gives a number of elements of its own.
 */
#ifndef DDPI_UNEVEN_GATHER_H
#define DDPI_UNEVEN_GATHER_H

#include "tensors.h"

/* Carry out @count all-gathers of one set, whose communicator is @comm, and set the results of
 * @own, this rank's tensors; NULL: it has joined, and gives nothing. *@ret_operations is how many
 * operations moved elements. Runs in the object's thread; errors are final. */
ddp_status ddpi_uneven_gather(const struct ddp_tensors *tensors, ddp_comm *comm,
                              const struct ddpi_tensor_response *const *batch,
                              struct ddp_tensor *const *own, size_t count, uint64_t *ret_operations,
                              struct ddp_error *err);

#endif
