/*
 * selection.h - which algorithm carries out a collective: a table of rows, of which the first one
 * counts that fits and is possible. Pure.
 *
 * The rows that are built in hold everywhere. A table of the user, in DDP_ALGORITHM_TABLE, comes
 * before them, for all_reduce. It is a text; '#' begins a comment, and each other line is a row:
 *
 *   all_reduce RANKS NODES BYTES ALGORITHM
 *
 * for so many ranks on so many nodes (nodes.h), and at most so many bytes.
 */
#ifndef DDPI_SELECTION_H
#define DDPI_SELECTION_H

#include "call_header.h"

enum { DDPI_SELECTION_ROWS = 32, DDPI_SELECTION_TEXT = 192 };

struct ddpi_selection_row {
    uint32_t ranks, nodes;
    uint64_t most; /* bytes */
    ddp_algorithm algorithm;
};

/* Rows that were measured; those for the same ranks and nodes in the order of bytes. */
struct ddpi_selection_table {
    struct ddpi_selection_row rows[DDPI_SELECTION_ROWS];
    uint32_t count;
};

/* A collective, and between which ranks. The same on all ranks. */
struct ddpi_selection_case {
    enum ddpi_operation operation;
    bool reduces;
    size_t count, element_size;
    uint32_t ranks, nodes;
    uint32_t node_ranks;  /* of the largest node */
    uint32_t arena_ranks; /* the most that meet in memory */
    ddp_algorithm asked;  /* auto: none */
};

/* Bytes of a buffer; the largest number, if it has more. */
uint64_t ddpi_selection_bytes(const struct ddpi_selection_case *of);

/* What is meant by direct: all ranks meet in memory. */
bool ddpi_selection_shares(const struct ddpi_selection_case *of);

/* What was chosen, and why. */
struct ddpi_selection {
    ddp_algorithm algorithm; /* any but auto */
    bool asked;              /* the caller has named it */
    const struct ddpi_selection_row
        *row;           /* it was measured; NULL: by a row that is built in, for */
    const char *reason; /* this reason */
};

/* Choose one for @of that is possible. What is asked for counts first; if that is impossible, auto
 * decides. */
struct ddpi_selection ddpi_select(const struct ddpi_selection_table *table,
                                  const struct ddpi_selection_case *of);

/* "hierarchical, as the fewest bytes pass between nodes". */
void ddpi_selection_explain(const struct ddpi_selection *selection,
                            const struct ddpi_selection_case *of,
                            char ret_text[DDPI_SELECTION_TEXT]);

/* Read @len bytes at @text, of the file @name; a NUL follows them. DDP_E_INVALID names the file and
 * the line. */
ddp_status ddpi_selection_parse(const char *name, const char *text, size_t len,
                                struct ddpi_selection_table *ret_table, struct ddp_error *err);

#endif
