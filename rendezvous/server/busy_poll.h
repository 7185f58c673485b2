/*
 * busy_poll.h - whether the loop should look for input once more before it sleeps. Being woken
 * takes longer than serving a request; but looking takes a processor. So the loop stays awake for a
 * while after a request only if the one before came within the same while: who asks again and again
 * is served at once, and who asks now and then costs nothing. Pure.
 */
#ifndef DDPI_BUSY_POLL_H
#define DDPI_BUSY_POLL_H

#include <stdbool.h>
#include <stdint.h>

struct ddpi_awake {
    uint64_t window_ns; /* 0: never */
    uint64_t busy_ns;   /* when there was input last */
    bool brisk;         /* and not long before that, too */
};

/* There has been input. */
static inline void ddpi_awake_busy(struct ddpi_awake *awake, uint64_t now_ns)
{
    awake->brisk = now_ns - awake->busy_ns < awake->window_ns;
    awake->busy_ns = now_ns;
}

/* Whether to look once more. */
static inline bool ddpi_awake_stay(const struct ddpi_awake *awake, uint64_t now_ns)
{
    return awake->brisk && now_ns - awake->busy_ns < awake->window_ns;
}

#endif
