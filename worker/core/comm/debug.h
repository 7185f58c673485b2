/*
 * debug.h - lines on stderr for a user who has set DDP_DEBUG=INFO. Nothing else in the libraries
 * writes anywhere, and this does not without the variable.
 */
#ifndef DDPI_DEBUG_H
#define DDPI_DEBUG_H

#include <ddprun/status.h>
#include <stdint.h>

/* A line on stderr, "ddprun: rank 3: ...", if DDP_DEBUG is INFO or TRACE. */
void ddpi_debug(uint32_t rank, const char *format, ...) DDP_PRINTF(2, 3);

#endif
