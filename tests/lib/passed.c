/*
 * passed.c - tells Check which assertions have held, so that it can say after which of them a test
 * was killed. Check writes a message to a file for each and afterwards moves all that follow it, so
 * that a hundred thousand take seconds: only the first thousand of a test are told.
 */
#include "check_main.h"

#include <stdatomic.h>

#undef _mark_point

enum { TOLD_MOST = 1000 };

void passed_point(const char *file, int line)
{
    static atomic_int told; /* each test has a process of its own */
    if (atomic_load_explicit(&told, memory_order_relaxed) >= TOLD_MOST)
        return;
    atomic_fetch_add_explicit(&told, 1, memory_order_relaxed);
    _mark_point(file, line);
}
