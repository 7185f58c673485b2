/*
 * failmem.h - memory that runs out on purpose. A test that has failmem.c among its sources gets
 * this instead of base/memhook.c.
 */
#ifndef TESTS_FAILMEM_H
#define TESTS_FAILMEM_H

#include <stdbool.h>

/* Let @good allocations succeed from now on, in all threads together, then @bad fail. */
void failmem_arm(int good, int bad);
/* Fail no more; true if an allocation has failed since it was armed. */
bool failmem_disarm(void);

#endif
