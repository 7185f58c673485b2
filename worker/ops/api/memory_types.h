/*
 * memory_types.h - the memory types of this library (memory.h).
 */
#ifndef DDPI_MEMORY_TYPES_H
#define DDPI_MEMORY_TYPES_H

#include "memory.h"

/* Host memory is the last one. */
extern const struct ddpi_memory_type *const ddpi_memory_types[];

#endif
