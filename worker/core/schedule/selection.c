/*
 * selection.c - the table of algorithms. Pure: no I/O.
 */
#include "selection.h"

#include "chunk_layout.h"
#include "error.h"
#include "parse.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Bytes that take fewer hops by doubling, and no longer for being sent more often than between
 * nodes, or round the ring; measured on two nodes of two ranks, and on two to eight ranks
 * (docs/benchmarks/collectives.md). */
enum { FEW_FOR_NODES = 64 * 1024, FEW_FOR_RING = 128 * 1024 };

/* ---- what is possible ---- */

uint64_t ddpi_selection_bytes(const struct ddpi_selection_case *of)
{
    uint64_t bytes;
    return __builtin_mul_overflow(of->count, of->element_size, &bytes) ? UINT64_MAX : bytes;
}

bool ddpi_selection_shares(const struct ddpi_selection_case *of)
{
    return of->ranks > 1 && of->nodes == 1 && of->ranks <= of->arena_ranks;
}

static bool always_can(const struct ddpi_selection_case *of)
{
    (void)of;
    return true;
}

static bool direct_can(const struct ddpi_selection_case *of)
{
    return of->reduces || ddpi_selection_shares(of);
}

static bool doubling_can(const struct ddpi_selection_case *of)
{
    return of->operation == DDPI_ALL_REDUCE && of->ranks > 1 &&
           ddpi_selection_bytes(of) <= DDPI_SCRATCH_SIZE;
}

static bool hierarchical_can(const struct ddpi_selection_case *of)
{
    return of->operation == DDPI_ALL_REDUCE && of->nodes > 1 && of->node_ranks > 1 &&
           of->node_ranks <= of->arena_ranks;
}

static const struct {
    const char *name;
    bool (*can)(const struct ddpi_selection_case *of);
} algorithms[] = {
    [DDP_ALGORITHM_AUTO] = {"auto", NULL},
    [DDP_ALGORITHM_RING] = {"ring", always_can},
    [DDP_ALGORITHM_DIRECT] = {"direct", direct_can},
    [DDP_ALGORITHM_DOUBLING] = {"doubling", doubling_can},
    [DDP_ALGORITHM_HIERARCHICAL] = {"hierarchical", hierarchical_can},
};
enum { ALGORITHMS = sizeof algorithms / sizeof *algorithms };

/* ---- the rows that are built in ---- */

/* The first row that is possible counts, so the last one always is. */
static const struct {
    ddp_algorithm algorithm;
    bool shares; /* only where all ranks meet in memory */
    uint64_t most;
    const char *reason;
} standard[] = {
    {DDP_ALGORITHM_DIRECT, true, UINT64_MAX, "all ranks share memory"},
    {DDP_ALGORITHM_DOUBLING, false, FEW_FOR_NODES, "few bytes take the fewest steps"},
    {DDP_ALGORITHM_HIERARCHICAL, false, UINT64_MAX, "the fewest bytes pass between nodes"},
    {DDP_ALGORITHM_DOUBLING, false, FEW_FOR_RING, "few bytes take the fewest steps"},
    {DDP_ALGORITHM_RING, false, UINT64_MAX, "each rank sends the fewest bytes"},
};

static struct ddpi_selection select_standard(const struct ddpi_selection_case *of)
{
    size_t i = 0;
    while (!algorithms[standard[i].algorithm].can(of) ||
           (standard[i].shares && !ddpi_selection_shares(of)) ||
           ddpi_selection_bytes(of) > standard[i].most)
        i++;
    return (struct ddpi_selection){.algorithm = standard[i].algorithm,
                                   .reason = standard[i].reason};
}

/* ---- the choice ---- */

static const struct ddpi_selection_row *find_measured(const struct ddpi_selection_table *table,
                                                      const struct ddpi_selection_case *of)
{
    for (uint32_t i = 0; i < table->count && of->operation == DDPI_ALL_REDUCE; i++) {
        const struct ddpi_selection_row *row = &table->rows[i];
        if (row->ranks == of->ranks && row->nodes == of->nodes &&
            ddpi_selection_bytes(of) <= row->most && algorithms[row->algorithm].can(of))
            return row;
    }
    return NULL;
}

struct ddpi_selection ddpi_select(const struct ddpi_selection_table *table,
                                  const struct ddpi_selection_case *of)
{
    if (of->asked != DDP_ALGORITHM_AUTO && algorithms[of->asked].can(of))
        return (struct ddpi_selection){.algorithm = of->asked, .asked = true};
    const struct ddpi_selection_row *row = find_measured(table, of);
    if (row != NULL)
        return (struct ddpi_selection){.algorithm = row->algorithm, .row = row};
    return select_standard(of);
}

void ddpi_selection_explain(const struct ddpi_selection *selection,
                            const struct ddpi_selection_case *of,
                            char ret_text[DDPI_SELECTION_TEXT])
{
    const struct ddpi_selection_row *row = selection->row;
    const char *chosen = algorithms[selection->algorithm].name;
    char refusal[64] = "";
    if (of->asked != DDP_ALGORITHM_AUTO)
        snprintf(refusal, sizeof refusal, "%s cannot do it; ", algorithms[of->asked].name);
    if (selection->asked)
        snprintf(ret_text, DDPI_SELECTION_TEXT, "%s, as it was asked for", chosen);
    else if (row != NULL)
        snprintf(ret_text, DDPI_SELECTION_TEXT,
                 "%s%s, as the table has it for %u ranks on %u nodes up to %" PRIu64 " bytes",
                 refusal, chosen, row->ranks, row->nodes, row->most);
    else
        snprintf(ret_text, DDPI_SELECTION_TEXT, "%s%s, as %s", refusal, chosen, selection->reason);
}

/* ---- tables ---- */

enum { WORDS = 5, WORD = 32 };

struct line {
    const char *name; /* of the file */
    unsigned number;
    unsigned count;
    char words[WORDS][WORD];
};

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* A line with a word that is too long, or with too many, is none. */
static void put_word(struct line *line, const char *text, size_t len)
{
    bool fits = line->count < WORDS && len < WORD;
    for (size_t i = 0; i < len && fits; i++)
        line->words[line->count][i] = isgraph((unsigned char)text[i]) ? text[i] : '?';
    if (fits)
        line->words[line->count][len] = '\0';
    line->count = fits ? line->count + 1 : WORDS + 1;
}

/* Take the words of the line that begins at @text; returns its end. */
static const char *split_line(const char *text, struct line *line)
{
    const char *end = text + strcspn(text, "\n"), *stop = text + strcspn(text, "#\n");
    line->number++;
    line->count = 0;
    while (text < stop) {
        size_t len = 0;
        while (text + len < stop && !is_blank(text[len]))
            len++;
        if (len > 0)
            put_word(line, text, len);
        text += len > 0 ? len : 1;
    }
    return end;
}

static ddp_status read_number(const struct line *line, unsigned word, const char *what,
                              int64_t least, int64_t most, int64_t *ret, struct ddp_error *err)
{
    ddp_status status = ddpi_parse_int(line->words[word], least, most, ret, err);
    if (status == DDP_OK)
        return DDP_OK;
    return ddpi_error_wrap(err, status, "%s:%u: %s", line->name, line->number, what);
}

static ddp_status read_algorithm(const struct line *line, ddp_algorithm *ret, struct ddp_error *err)
{
    for (unsigned i = DDP_ALGORITHM_AUTO + 1; i < ALGORITHMS; i++)
        if (strcmp(line->words[WORDS - 1], algorithms[i].name) == 0) {
            *ret = (ddp_algorithm)i;
            return DDP_OK;
        }
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%s:%u: '%s' is not an algorithm; use ring, direct, doubling or "
                          "hierarchical",
                          line->name, line->number, line->words[WORDS - 1]);
}

static ddp_status read_row(const struct line *line, struct ddpi_selection_row *row,
                           struct ddp_error *err)
{
    int64_t ranks, nodes = 0, most = 0;
    if (line->count != WORDS || strcmp(line->words[0], "all_reduce") != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s:%u: this is not 'all_reduce RANKS NODES BYTES ALGORITHM'",
                              line->name, line->number);
    ddp_status status = read_number(line, 1, "ranks", 1, INT32_MAX, &ranks, err);
    if (status == DDP_OK)
        status = read_number(line, 2, "nodes", 1, ranks, &nodes, err);
    if (status == DDP_OK)
        status = read_number(line, 3, "bytes", 0, INT64_MAX, &most, err);
    if (status != DDP_OK)
        return status;
    row->ranks = (uint32_t)ranks;
    row->nodes = (uint32_t)nodes;
    row->most = (uint64_t)most;
    return read_algorithm(line, &row->algorithm, err);
}

/* A row that could never count is a mistake. */
static ddp_status check_order(const struct ddpi_selection_table *table,
                              const struct ddpi_selection_row *row, const struct line *line,
                              struct ddp_error *err)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct ddpi_selection_row *before = &table->rows[i];
        if (before->ranks == row->ranks && before->nodes == row->nodes && before->most >= row->most)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s:%u: a row before has the same ranks and nodes and %" PRIu64
                                  " bytes: give them in rising order",
                                  line->name, line->number, before->most);
    }
    return DDP_OK;
}

ddp_status ddpi_selection_parse(const char *name, const char *text, size_t len,
                                struct ddpi_selection_table *ret_table, struct ddp_error *err)
{
    struct line line = {.name = name};
    *ret_table = (struct ddpi_selection_table){.count = 0};
    for (const char *end = text + len; text < end;) {
        struct ddpi_selection_row row;
        text = split_line(text, &line);
        if (*text == '\0' && text < end)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s:%u: this line has a NUL byte: the file is no text", name,
                                  line.number);
        text += *text == '\n';
        if (line.count == 0)
            continue;
        if (ret_table->count == DDPI_SELECTION_ROWS)
            return ddpi_error_set(err, DDP_E_INVALID, "%s:%u: more than %d rows", name, line.number,
                                  DDPI_SELECTION_ROWS);
        ddp_status status = read_row(&line, &row, err);
        if (status == DDP_OK)
            status = check_order(ret_table, &row, &line, err);
        if (status != DDP_OK)
            return status;
        ret_table->rows[ret_table->count++] = row;
    }
    return DDP_OK;
}
