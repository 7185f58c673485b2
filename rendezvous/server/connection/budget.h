/*
 * budget.h - a common limit on the buffers of many owners. Pure.
 *
 * The first bytes of each owner do not count. Otherwise a few owners that use up the budget would
 * cut off all those that need little.
 */
#ifndef DDPI_BUDGET_H
#define DDPI_BUDGET_H

#include <stdbool.h>
#include <stddef.h>

enum { DDPI_BUDGET_OWN = 16 * 1024 };

struct ddpi_budget {
    size_t limit;
    size_t used; /* of it; can exceed the limit, since it is counted after the fact */
    size_t held; /* by all owners, including what does not count */
};

static inline size_t ddpi_budget_counted(size_t held)
{
    return held > DDPI_BUDGET_OWN ? held - DDPI_BUDGET_OWN : 0;
}

/* An owner that held *@held now holds @now. False: that is more than before, and the limit is
 * exceeded. */
static inline bool ddpi_budget_move(struct ddpi_budget *budget, size_t *held, size_t now)
{
    size_t before = ddpi_budget_counted(*held), after = ddpi_budget_counted(now);
    budget->held = budget->held - *held + now;
    budget->used = budget->used - before + after;
    *held = now;
    return after <= before || budget->used <= budget->limit;
}

/* The most that an owner that holds @held may hold. */
static inline size_t ddpi_budget_room(const struct ddpi_budget *budget, size_t held)
{
    size_t others = budget->used - ddpi_budget_counted(held);
    return DDPI_BUDGET_OWN + (budget->limit > others ? budget->limit - others : 0);
}

#endif
