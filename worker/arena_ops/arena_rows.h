/*
 * arena_rows.h - what each operation moves through an arena: who copies what into its slot, what
 * ranks do together, and what each takes out. One row for each operation. Pure.
 *
 *   whole    a range of the buffer, the same of every rank: it fills the slot
 *   parts    a range of the part for each rank: the slot has a block for each
 */
#ifndef DDPI_ARENA_ROWS_H
#define DDPI_ARENA_ROWS_H

#include "call_header.h"

#include <stdbool.h>

enum ddpi_arena_who { DDPI_NOBODY, DDPI_ROOT, DDPI_OTHERS, DDPI_EVERY };
enum ddpi_arena_division { DDPI_WHOLE, DDPI_PARTS };

struct ddpi_arena_row {
    enum ddpi_arena_who copies_in;
    enum ddpi_arena_division in;
    bool works;                /* the ranks reduce all slots to one, together, unless it is short */
    bool reduces;              /* each rank reduces its block of all slots */
    enum ddpi_arena_who takes; /* who copies out: the result, or what others have copied in */
    bool out_of_each;          /* a rank takes something of each slot, not of the root's alone */
};

const struct ddpi_arena_row *ddpi_arena_row(enum ddpi_operation operation);

/* Whether @who includes @rank in @call. */
bool ddpi_arena_includes(enum ddpi_arena_who who, const struct ddpi_call *call, uint32_t rank);

#endif
