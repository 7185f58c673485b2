/*
 * tune_rows.c - chooses the fastest algorithm for each size, and merges the choices to rows. Pure:
 * no I/O, no clock.
 */
#include "tune_rows.h"

#include <inttypes.h>
#include <stdio.h>

/* Times as long as the fastest one, from which on the latter is clearly faster. */
#define CLEARLY 1.05

static const char *const names[TUNE_ALGORITHMS] = {
#define ALGORITHM_NAME(symbol, name) [symbol] = (name),
    DDP_ALGORITHM_MAP(ALGORITHM_NAME)
#undef ALGORITHM_NAME
};

const char *tune_algorithm_name(ddp_algorithm algorithm)
{
    return names[algorithm];
}

/* ---- what is possible, and what is taken ---- */

static struct ddpi_selection select_for(const struct tune_place *place, uint64_t bytes,
                                        ddp_algorithm asked)
{
    static const struct ddpi_selection_table none;
    const struct ddpi_selection_case of = {
        .operation = DDPI_ALL_REDUCE,
        .reduces = true,
        .count = (size_t)bytes,
        .element_size = 1,
        .ranks = place->ranks,
        .nodes = place->nodes,
        .node_ranks = (place->ranks + place->nodes - 1) / place->nodes,
        .arena_ranks = TUNE_RANKS,
        .asked = asked,
    };
    return ddpi_select(&none, &of);
}

bool tune_possible(const struct tune_place *place, uint64_t bytes, ddp_algorithm algorithm)
{
    return select_for(place, bytes, algorithm).asked;
}

ddp_algorithm tune_built_in(const struct tune_place *place, uint64_t bytes)
{
    return select_for(place, bytes, DDP_ALGORITHM_AUTO).algorithm;
}

/* ---- the choice for a size ---- */

ddp_algorithm tune_fastest(const struct tune_size *size)
{
    unsigned best = DDP_ALGORITHM_AUTO;
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < TUNE_ALGORITHMS; i++)
        if (size->us[i] > 0 && (best == DDP_ALGORITHM_AUTO || size->us[i] < size->us[best]))
            best = i;
    return (ddp_algorithm)best;
}

ddp_algorithm tune_choose(const struct tune_place *place, const struct tune_size *size)
{
    ddp_algorithm fastest = tune_fastest(size), built_in = tune_built_in(place, size->bytes);
    return size->us[built_in] > size->us[fastest] * CLEARLY ? fastest : built_in;
}

/* ---- rows ---- */

/* Append a row up to @most, or let the one before it, with the same algorithm, go on to there. */
static void put_row(struct ddpi_selection_table *table, const struct tune_place *place,
                    uint64_t most, ddp_algorithm algorithm)
{
    if (table->count == 0 || table->rows[table->count - 1].algorithm != algorithm)
        table->rows[table->count++] = (struct ddpi_selection_row){
            .ranks = place->ranks, .nodes = place->nodes, .algorithm = algorithm};
    table->rows[table->count - 1].most = most;
}

/* The most bytes, from @from to @to, up to which the same algorithm is built in as for @from. Each
 * is for one range of sizes, so halving finds it. */
static uint64_t same_until(const struct tune_place *place, uint64_t from, uint64_t to)
{
    ddp_algorithm same = tune_built_in(place, from);
    uint64_t least = from, most = to;
    while (least < most) {
        uint64_t middle = most - (most - least) / 2;
        if (tune_built_in(place, middle) == same)
            least = middle;
        else
            most = middle - 1;
    }
    return least;
}

/* What is built in for the sizes from @from to @to. */
static void put_built_in(struct ddpi_selection_table *table, const struct tune_place *place,
                         uint64_t from, uint64_t to)
{
    uint64_t until;
    do {
        until = same_until(place, from, to);
        put_row(table, place, until, tune_built_in(place, from));
        from = until + 1;
    } while (until < to);
}

void tune_make_table(const struct tune_place *place, const struct tune_size *sizes, unsigned count,
                     struct ddpi_selection_table *ret_table)
{
    uint64_t from = 0;
    *ret_table = (struct ddpi_selection_table){.count = 0};
    for (unsigned i = 0; i < count; i++) {
        uint64_t to = i + 1 < count ? sizes[i].bytes : INT64_MAX;
        ddp_algorithm chosen = tune_choose(place, &sizes[i]);
        if (chosen == tune_built_in(place, sizes[i].bytes))
            put_built_in(ret_table, place, from, to);
        else
            put_row(ret_table, place, to, chosen);
        from = to + 1;
    }
}

void tune_print_row(const struct ddpi_selection_row *row, char ret_text[TUNE_ROW_TEXT])
{
    snprintf(ret_text, TUNE_ROW_TEXT, "all_reduce %u %u %" PRIu64 " %s\n", row->ranks, row->nodes,
             row->most, names[row->algorithm]);
}
