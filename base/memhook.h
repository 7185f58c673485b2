/*
 * memhook.h - a hook that is called before each allocation. The product's version allows all; a
 * test that links tests/lib/failmem.c makes some fail.
 */
#ifndef DDPI_MEMHOOK_H
#define DDPI_MEMHOOK_H

#include <stdbool.h>

bool ddpi_alloc_allowed(void);

#endif
