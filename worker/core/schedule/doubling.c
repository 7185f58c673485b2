/*
 * doubling.c - the schedule of recursive doubling. Pure: no buffers, no I/O.
 */
#include "doubling.h"

static uint32_t log2_floor(uint32_t nranks)
{
    uint32_t log = 0;
    while (nranks >> (log + 1) != 0)
        log++;
    return log;
}

uint32_t ddpi_doubling_steps(uint32_t nranks)
{
    uint32_t log = log2_floor(nranks);
    bool folds = nranks != 1U << log;
    return log + (folds ? 2 : 0);
}

/* A pair of neighbours: the even rank gives its elements, or gets the result. */
static struct ddpi_doubling_step pair_step(uint32_t rank, bool gives)
{
    bool even = rank % 2 == 0, sends = even == gives;
    return (struct ddpi_doubling_step){
        .sends = sends, .receives = !sends, .reduces = gives && !sends, .peer = rank ^ 1};
}

struct ddpi_doubling_step ddpi_doubling_step(uint32_t rank, uint32_t nranks, uint32_t step)
{
    uint32_t log = log2_floor(nranks), pairs = nranks - (1U << log);
    bool paired = rank < 2 * pairs;
    if (pairs > 0 && (step == 0 || step == log + 1))
        return paired ? pair_step(rank, step == 0) : (struct ddpi_doubling_step){0};
    if (paired && rank % 2 == 0)
        return (struct ddpi_doubling_step){0};
    uint32_t bit = pairs > 0 ? step - 1 : step;
    uint32_t number = paired ? rank / 2 : rank - pairs; /* among those that are left */
    uint32_t other = number ^ (1U << bit);
    return (struct ddpi_doubling_step){.sends = true,
                                       .receives = true,
                                       .reduces = true,
                                       .finishes = bit + 1 == log,
                                       .own_first = number < other,
                                       .peer = other < pairs ? 2 * other + 1 : other + pairs};
}
