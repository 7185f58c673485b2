/*
 * sm.c - transitions checked against a table. Owns nothing; has no table of its own.
 */
#include "sm.h"

#include <assert.h>

void ddpi_sm_init(struct ddpi_sm *sm, const struct ddpi_sm_table *table)
{
    *sm = (struct ddpi_sm){.table = table};
    while (!(table->states[sm->state].flags & DDPI_SM_INITIAL))
        sm->state++;
}

bool ddpi_sm_allowed(const struct ddpi_sm *sm, unsigned to)
{
    return to < sm->table->count && (sm->table->states[sm->state].allowed & DDPI_SM_TO(to)) != 0;
}

bool ddpi_sm_move(struct ddpi_sm *sm, unsigned to)
{
    bool allowed = ddpi_sm_allowed(sm, to);
    assert(allowed && "the state table has no such move");
    if (allowed)
        sm->state = to;
    return allowed;
}

bool ddpi_sm_final(const struct ddpi_sm *sm)
{
    return (sm->table->states[sm->state].flags & DDPI_SM_FINAL) != 0;
}

const char *ddpi_sm_name(const struct ddpi_sm *sm)
{
    return sm->table->states[sm->state].name;
}

bool ddpi_sm_table_valid(const struct ddpi_sm_table *table)
{
    if (table->count == 0 || table->count > 32)
        return false;
    uint32_t all = table->count == 32 ? UINT32_MAX : (UINT32_C(1) << table->count) - 1;
    uint32_t reached = 0;
    unsigned initials = 0;
    for (unsigned i = 0; i < table->count; i++) {
        const struct ddpi_sm_state *row = &table->states[i];
        if ((row->allowed & ~all) != 0 || (row->allowed == 0 && !(row->flags & DDPI_SM_FINAL)))
            return false;
        if (row->flags & DDPI_SM_INITIAL) {
            initials++;
            reached |= DDPI_SM_TO(i);
        }
    }
    /* Each pass reaches at least one more state, or is the last. */
    for (uint32_t before = 0; before != reached;) {
        before = reached;
        for (unsigned i = 0; i < table->count; i++)
            if (before & DDPI_SM_TO(i))
                reached |= table->states[i].allowed;
    }
    return initials == 1 && reached == all;
}
