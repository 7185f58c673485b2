/*
 * busy_poll.h - whether the loop should poll for input once more before it sleeps. Waking up takes
 * longer than serving a request, but polling uses a processor. So the loop polls for a while after
 * a request only if the previous request came within the same while: a client that asks continually
 * is served at once, and one that asks rarely costs nothing. Pure.
 */
#ifndef DDPI_BUSY_POLL_H
#define DDPI_BUSY_POLL_H

#include <stdbool.h>
#include <stdint.h>

struct ddpi_busy_poll {
    uint64_t window_ns; /* 0: never poll */
    uint64_t input_ns;  /* when the last input came */
    bool repeated;      /* it came within the window of the input before it */
};

/* Input has come. */
static inline void ddpi_busy_poll_input(struct ddpi_busy_poll *poll, uint64_t now_ns)
{
    poll->repeated = now_ns - poll->input_ns < poll->window_ns;
    poll->input_ns = now_ns;
}

/* Whether to poll once more. */
static inline bool ddpi_busy_poll_continues(const struct ddpi_busy_poll *poll, uint64_t now_ns)
{
    return poll->repeated && now_ns - poll->input_ns < poll->window_ns;
}

#endif
