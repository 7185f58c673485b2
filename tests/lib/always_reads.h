/*
 * always_reads.h - lets ranks read each other's buffers through the kernel wherever they can, and
 * not only where they have measured that it is faster. The linker puts this in place of
 * ddpi_copy_next() (--wrap).
 */
#ifndef TESTS_ALWAYS_READS_H
#define TESTS_ALWAYS_READS_H

#include <stdbool.h>

extern bool always_reads; /* false at first */

#endif
