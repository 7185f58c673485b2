/*
 * clock.c - the system's clock. The only caller of clock_gettime in the libraries.
 */
#include "clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t monotonic_us(void *ctx)
{
    (void)ctx;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

const struct ddpi_clock ddpi_clock_monotonic = {.now_us = monotonic_us, .ctx = NULL};
