/*
 * tune_rows.h - from the times of algorithms at some sizes to the rows of a table of algorithms
 * (selection.h). Pure.
 *
 * What is built in stays where no other algorithm is clearly faster: measurements waver, and a
 * table that follows them would change from day to day.
 */
#ifndef CMD_PERF_TUNE_ROWS_H
#define CMD_PERF_TUNE_ROWS_H

#include "selection.h"

enum {
    TUNE_ALGORITHMS = DDP_ALGORITHM_HIERARCHICAL + 1,
    TUNE_SIZES = DDPI_SELECTION_ROWS - 4, /* what is built in may change between and after them */
    TUNE_RANKS = 256,                     /* at most: as many meet in one arena (arena.h) */
    TUNE_ROW_TEXT = 96,
};

/* Ranks with consecutive numbers, divided evenly. */
struct tune_place {
    uint32_t ranks, nodes;
};

struct tune_size {
    uint64_t bytes;
    double us[TUNE_ALGORITHMS]; /* the time of a call by algorithm; 0: it was not measured */
};

const char *tune_algorithm_name(ddp_algorithm algorithm);

/* Whether an all_reduce can be carried out so. */
bool tune_possible(const struct tune_place *place, uint64_t bytes, ddp_algorithm algorithm);

/* The one that is taken without a table. */
ddp_algorithm tune_built_in(const struct tune_place *place, uint64_t bytes);

/* Of those that were measured, at least one. */
ddp_algorithm tune_fastest(const struct tune_size *size);

/* The fastest if it is clearly faster than what is built in, else that. */
ddp_algorithm tune_choose(const struct tune_place *place, const struct tune_size *size);

/*
 * Make a table of @count sizes, 1 to TUNE_SIZES of them in rising order. Each is chosen for with
 * all sizes from the one before it, the last also with all beyond it. Where that leaves what is
 * built in, the rows have what is built in for these sizes, too. Neighbours with the same
 * algorithm are one row.
 */
void tune_make_table(const struct tune_place *place, const struct tune_size *sizes, unsigned count,
                     struct ddpi_selection_table *ret_table);

/* A line of the file, with its end. */
void tune_print_row(const struct ddpi_selection_row *row, char ret_text[TUNE_ROW_TEXT]);

#endif
