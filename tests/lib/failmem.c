/*
 * failmem.c - the test's answer to every allocation. Atomic, as workers allocate on threads too.
 */
#include "failmem.h"

#include "memhook.h"

#include <limits.h>
#include <stdatomic.h>

static atomic_long successes_left = LONG_MAX;
static atomic_bool failed;

void failmem_start(unsigned successes)
{
    atomic_store(&failed, false);
    atomic_store(&successes_left, (long)successes);
}

bool failmem_stop(void)
{
    atomic_store(&successes_left, LONG_MAX);
    return atomic_load(&failed);
}

bool ddpi_alloc_allowed(void)
{
    if (atomic_fetch_sub(&successes_left, 1) > 0)
        return true;
    atomic_store(&failed, true);
    return false;
}
