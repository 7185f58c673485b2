/*
 * failmem.c - the test's answer to every allocation. Atomic, as workers allocate on threads too.
 */
#include "failmem.h"

#include "memhook.h"

#include <limits.h>
#include <stdatomic.h>

static atomic_long calls;     /* since the start */
static atomic_long first_bad; /* of these, from here ... */
static atomic_long first_good_again;
static atomic_bool failed;

void failmem_start_some(unsigned successes, unsigned failures)
{
    atomic_store(&failed, false);
    atomic_store(&calls, 0);
    atomic_store(&first_good_again, (long)successes + (long)failures);
    atomic_store(&first_bad, (long)successes);
}

void failmem_start(unsigned successes)
{
    failmem_start_some(successes, UINT_MAX);
}

bool failmem_stop(void)
{
    atomic_store(&first_good_again, 0);
    return atomic_load(&failed);
}

bool ddpi_alloc_allowed(void)
{
    long call = atomic_fetch_add(&calls, 1);
    if (call < atomic_load(&first_bad) || call >= atomic_load(&first_good_again))
        return true;
    atomic_store(&failed, true);
    return false;
}
