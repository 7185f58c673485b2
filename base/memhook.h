/*
 * memhook.h - asked before each allocation. The product's version says yes; a test that links
 * tests/lib/failmem.c decides for itself.
 */
#ifndef DDPI_MEMHOOK_H
#define DDPI_MEMHOOK_H

#include <stdbool.h>

bool ddpi_alloc_allowed(void);

#endif
