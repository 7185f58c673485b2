/*
 * clock.c - the system's clock. The only caller of clock_gettime in the libraries.
 */
#include "clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t monotonic_us(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_MONOTONIC) / 1000;
}

static uint64_t boottime_us(void *ctx)
{
    (void)ctx;
    return clock_ns(CLOCK_BOOTTIME) / 1000;
}

uint64_t ddpi_monotonic_ms(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000000;
}

uint64_t ddpi_monotonic_us(void)
{
    return clock_ns(CLOCK_MONOTONIC) / 1000;
}

uint64_t ddpi_monotonic_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t ddpi_now_coarse_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC_COARSE);
}

uint64_t ddpi_now_real_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

const struct ddpi_clock ddpi_clock_monotonic = {.now_us = monotonic_us, .ctx = NULL};
const struct ddpi_clock ddpi_clock_boottime = {.now_us = boottime_us, .ctx = NULL};
