/*
 * arena_rows.c - see arena_rows.h. Owns nothing.
 */
#include "arena_rows.h"

static const struct ddpi_arena_row rows[] = {
    [DDPI_BARRIER] = {.copies_in = DDPI_NOBODY, .takes = DDPI_NOBODY},
    [DDPI_MONITORED] = {.copies_in = DDPI_NOBODY, .takes = DDPI_NOBODY},
    [DDPI_BROADCAST] = {.copies_in = DDPI_ROOT, .in = DDPI_WHOLE, .takes = DDPI_OTHERS},
    [DDPI_ALL_REDUCE] = {.copies_in = DDPI_EVERY,
                         .in = DDPI_WHOLE,
                         .works = true,
                         .takes = DDPI_EVERY},
    [DDPI_REDUCE] = {.copies_in = DDPI_EVERY, .in = DDPI_WHOLE, .works = true, .takes = DDPI_ROOT},
    [DDPI_ALL_GATHER] = {.copies_in = DDPI_EVERY,
                         .in = DDPI_WHOLE,
                         .takes = DDPI_EVERY,
                         .out_of_each = true},
    [DDPI_GATHER] = {.copies_in = DDPI_OTHERS,
                     .in = DDPI_WHOLE,
                     .takes = DDPI_ROOT,
                     .out_of_each = true},
    [DDPI_SCATTER] = {.copies_in = DDPI_ROOT, .in = DDPI_PARTS, .takes = DDPI_OTHERS},
    [DDPI_REDUCE_SCATTER] = {.copies_in = DDPI_EVERY,
                             .in = DDPI_PARTS,
                             .reduces = true,
                             .takes = DDPI_EVERY},
    [DDPI_ALL_TO_ALL] = {.copies_in = DDPI_EVERY,
                         .in = DDPI_PARTS,
                         .takes = DDPI_EVERY,
                         .out_of_each = true},
};

const struct ddpi_arena_row *ddpi_arena_row(enum ddpi_operation operation)
{
    return &rows[operation];
}

bool ddpi_arena_includes(enum ddpi_arena_who who, const struct ddpi_call *call, uint32_t rank)
{
    bool is_root = rank == call->root;
    return who == DDPI_EVERY || (who == DDPI_ROOT && is_root) || (who == DDPI_OTHERS && !is_root);
}
