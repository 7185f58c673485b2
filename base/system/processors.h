/*
 * processors.h - how many processors this process may use at the same time.
 */
#ifndef DDPI_PROCESSORS_H
#define DDPI_PROCESSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads a file like ddpi_text_file_read(). */
typedef bool ddpi_text_reader(const char *path, char *text, size_t size);

/* What the quotas of the control group of this process and of those above it allow (cpu.max of
 * version 2, cpu.cfs_quota_us of version 1), in whole processors, at least 1; UINT32_MAX: there is
 * no quota. What cannot be read or understood counts as none. Pure but for @read. */
uint32_t ddpi_processors_quota(ddpi_text_reader *read);

/* How many processors this process may be scheduled on. One system call. */
uint32_t ddpi_processors_usable(void);

/* That, and no more than the process may be scheduled on. Reads files. */
uint32_t ddpi_processors(void);

#endif
