/*
 * failmem.c - counts allocations down. Takes the place of base/memhook.c at link time, as objects
 * of a program come before those of its archives.
 */
#include "failmem.h"

#include "memhook.h"

#include <stdatomic.h>

static atomic_bool armed;
static atomic_int countdown; /* to the first failure; below zero: failures so far */
static atomic_int failures;

void failmem_arm(int good, int bad)
{
    atomic_store(&failures, bad);
    atomic_store(&countdown, good);
    atomic_store(&armed, true);
}

bool failmem_disarm(void)
{
    atomic_store(&armed, false);
    return atomic_load(&countdown) < 0;
}

bool ddpi_alloc_allowed(void)
{
    if (!atomic_load(&armed))
        return true;
    int left = atomic_fetch_sub(&countdown, 1);
    return left > 0 || left <= -atomic_load(&failures);
}
