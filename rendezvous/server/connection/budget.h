/*
 * budget.h - what buffers of many owners may have together. Pure.
 *
 * The first bytes of each are his own and do not count: else a few who take all that there is would
 * cut off everybody who asks for little.
 */
#ifndef DDPI_BUDGET_H
#define DDPI_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

enum { DDPI_BUDGET_OWN = 16 * 1024 };

struct ddpi_budget {
    size_t limit;
    size_t used; /* of it; may be more than the limit, as who has taken is not asked before */
    size_t held; /* all that owners have, with what does not count */
};

static inline size_t ddpi_budget_counted(size_t held)
{
    return held > DDPI_BUDGET_OWN ? held - DDPI_BUDGET_OWN : 0;
}

/* An owner that had *@held has @now. False: he has more than before, and more than there is. */
static inline bool ddpi_budget_move(struct ddpi_budget *budget, size_t *held, size_t now)
{
    size_t before = ddpi_budget_counted(*held), after = ddpi_budget_counted(now);
    budget->held = budget->held - *held + now;
    budget->used = budget->used - before + after;
    *held = now;
    return after <= before || budget->used <= budget->limit;
}

/* The most that an owner of @held may have. */
static inline size_t ddpi_budget_room(const struct ddpi_budget *budget, size_t held)
{
    size_t others = budget->used - ddpi_budget_counted(held);
    return DDPI_BUDGET_OWN + (budget->limit > others ? budget->limit - others : 0);
}

#endif
