/*
 * failmem.h - makes chosen allocations fail. Linking failmem.c replaces base/memhook.c, through
 * which every ddpi_ allocation asks first.
 */
#ifndef TESTS_FAILMEM_H
#define TESTS_FAILMEM_H

#include <stdbool.h>

/* Let @successes allocations succeed, then fail every one until failmem_stop(). */
void failmem_start(unsigned successes);

/* The same, but only @failures of them fail. */
void failmem_start_some(unsigned successes, unsigned failures);

/* Allocations succeed again. true if one was made to fail: a test that walks through all points of
 * failure counts @successes up until this is false. */
bool failmem_stop(void);

#endif
