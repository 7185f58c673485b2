/*
 * cuda_memory.h - the memory type of GPUs: collectives and messages on memory of CUDA devices.
 */
#ifndef DDPI_CUDA_MEMORY_H
#define DDPI_CUDA_MEMORY_H

#include "memory.h"

extern const struct ddpi_memory_type ddpi_cuda_memory;

#endif
