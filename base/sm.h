/*
 * sm.h - state machines as tables.
 *
 * A module lists its states once, as an X-macro with one row per state:
 *
 *     #define DOOR_STATES(X)                       \
 *         X(DOOR, CLOSED, DDPI_SM_TO(DOOR_OPEN), DDPI_SM_INITIAL) \
 *         X(DOOR, OPEN,   DDPI_SM_TO(DOOR_CLOSED), DDPI_SM_FINAL)
 *
 * This list gives the enum, the names and the table of allowed moves. Only ddpi_sm_move() changes a
 * state: it refuses a move that is not in the table.
 */
#ifndef DDPI_SM_H
#define DDPI_SM_H

#include <stdbool.h>
#include <stdint.h>

#define DDPI_SM_TO(state) (UINT32_C(1) << (state))

enum { DDPI_SM_INITIAL = 1, DDPI_SM_FINAL = 2 };

struct ddpi_sm_state {
    const char *name;
    uint32_t allowed; /* set of DDPI_SM_TO() */
    uint32_t flags;
};

struct ddpi_sm_table {
    const char *name;
    const struct ddpi_sm_state *states;
    unsigned count; /* at most 32 */
};

#define DDPI_SM_ENUM(prefix, state, to, flags) prefix##_##state,
#define DDPI_SM_ROW(prefix, state, to, flags)  {#state, to, flags},

/* Enum and table of a machine: DDPI_SM_DECLARE in the header, DDPI_SM_DEFINE in the source. */
#define DDPI_SM_DECLARE(tag, STATES)        \
    enum tag##_state{STATES(DDPI_SM_ENUM)}; \
    extern const struct ddpi_sm_table tag##_sm
#define DDPI_SM_DEFINE(tag, STATES)                                         \
    static const struct ddpi_sm_state tag##_rows[] = {STATES(DDPI_SM_ROW)}; \
    const struct ddpi_sm_table tag##_sm = {#tag, tag##_rows, sizeof tag##_rows / sizeof *tag##_rows}

struct ddpi_sm {
    const struct ddpi_sm_table *table;
    unsigned state;
};

/* Start in the state with DDPI_SM_INITIAL. */
void ddpi_sm_init(struct ddpi_sm *sm, const struct ddpi_sm_table *table);

/* Returns false, with the state unchanged, if the table does not allow the move. That is a bug in
 * the caller; debug builds stop with an assertion. */
bool ddpi_sm_move(struct ddpi_sm *sm, unsigned to);

bool ddpi_sm_allowed(const struct ddpi_sm *sm, unsigned to);
bool ddpi_sm_final(const struct ddpi_sm *sm);
const char *ddpi_sm_name(const struct ddpi_sm *sm);

/* True if there is one initial state, all allowed targets exist, all states are reachable, and each
 * state without moves is final. Each machine's unit test asserts it. */
bool ddpi_sm_table_valid(const struct ddpi_sm_table *table);

#endif
