/*
 * memory_types.c - the list of memory types: a new one gets a row here.
 */
#include "api_impl.h"

#include "cuda_memory.h"
#include "host_memory.h"

const struct ddpi_memory_type *const ddpi_memory_types[] = {&ddpi_cuda_memory, &ddpi_host_memory};
