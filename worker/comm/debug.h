/*
 * debug.h - what a person who sets DDP_DEBUG=INFO wants to know of a library in the middle of his
 * program. Nothing else in the libraries writes anywhere, and without the variable this does not.
 */
#ifndef DDPI_DEBUG_H
#define DDPI_DEBUG_H

#include <ddprun/status.h>
#include <stdint.h>

/* A line on stderr, "ddprun: rank 3: ...", if DDP_DEBUG is INFO or TRACE. */
void ddpi_debug(uint32_t rank, const char *format, ...) DDP_PRINTF(2, 3);

#endif
