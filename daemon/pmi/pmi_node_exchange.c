/*
 * pmi_node_exchange.c - see pmi_node_exchange.h.
 *
 * The text of an exchange consists of lines: "nproc N" in the first exchange, so that each node
 * knows the location of all ranks; then, one exchange for each barrier, "put KEY VALUE" for each
 * key, or "gone RANK" when a barrier cannot complete. Texts of other nodes are not trusted.
 */
#include "pmi_node_exchange.h"

#include "parse.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pmi_answer(struct pmi_node *node, uint32_t local, const char *format, ...)
{
    char text[PMI_VALUE_MAX + 128];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    node->hooks.reply(node->hooks.ctx, local, text, (size_t)len);
}

static uint32_t count_ranks_in(const struct pmi_node *node, unsigned state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->place.nproc; i++)
        count += node->ranks[i].sm.state == state;
    return count;
}

/* No barrier can complete any more: who waits loses its connection, a fatal error for MPICH. */
static void break_barriers(struct pmi_node *node, const char *why)
{
    if (node->broken)
        return;
    node->broken = true;
    node->hooks.say(node->hooks.ctx, why);
}

static void hang_up_waiting(struct pmi_node *node)
{
    for (uint32_t i = 0; i < node->place.nproc; i++) {
        if (node->ranks[i].sm.state != PMI_RANK_WAITING && !node->ranks[i].wants_mapping)
            continue;
        ddpi_sm_move(&node->ranks[i].sm, PMI_RANK_GONE);
        node->ranks[i].wants_mapping = false;
        node->hooks.hang_up(node->hooks.ctx, i);
    }
}

/* Which ranks share a machine, as blocks (first node, nodes, ranks of each); false: the text is too
 * long for a value. */
static bool describe_mapping(const struct pmi_node *node, char text[PMI_VALUE_MAX])
{
    int len = snprintf(text, PMI_VALUE_MAX, "(vector");
    for (uint32_t i = 0, next; i < node->place.nodes; i = next) {
        for (next = i + 1; next < node->place.nodes && node->nprocs[next] == node->nprocs[i];)
            next++;
        len += snprintf(text + len, (size_t)(PMI_VALUE_MAX - len),
                        ",(%" PRIu32 ",%" PRIu32 ",%" PRIu32 ")", i, next - i, node->nprocs[i]);
        if (len >= PMI_VALUE_MAX - 1)
            return false;
    }
    snprintf(text + len, (size_t)(PMI_VALUE_MAX - len), ")");
    return true;
}

void pmi_answer_get(struct pmi_node *node, uint32_t local, const char *value)
{
    if (value != NULL)
        pmi_answer(node, local, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else
        pmi_answer(node, local, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
}

void pmi_answer_mapping(struct pmi_node *node)
{
    char mapping[PMI_VALUE_MAX];
    bool known = describe_mapping(node, mapping);
    for (uint32_t i = 0; i < node->place.nproc; i++)
        if (node->ranks[i].wants_mapping) {
            node->ranks[i].wants_mapping = false;
            pmi_answer_get(node, i, known ? mapping : NULL);
        }
}

static void open_barrier(struct pmi_node *node)
{
    for (uint32_t i = 0; i < node->place.nproc; i++)
        if (node->ranks[i].sm.state == PMI_RANK_WAITING) {
            ddpi_sm_move(&node->ranks[i].sm, PMI_RANK_OPEN);
            pmi_answer(node, i, "cmd=barrier_out\n");
        }
}

/* ---- the text of another node ---- */

/* The next word, which ends at a blank; false: no word, or too long. */
static bool take_pmi_word(const char **at, const char *end, char *word, size_t size)
{
    const char *blank = memchr(*at, ' ', (size_t)(end - *at));
    size_t len = (size_t)((blank != NULL ? blank : end) - *at);
    if (len == 0 || len >= size || memchr(*at, '\0', len) != NULL)
        return false;
    memcpy(word, *at, len);
    word[len] = '\0';
    *at = blank != NULL ? blank + 1 : end;
    return true;
}

static bool take_pmi_number(const char **at, const char *end, int64_t max, uint32_t *ret)
{
    char word[16];
    int64_t number;
    if (!take_pmi_word(at, end, word, sizeof word) ||
        ddpi_parse_int(word, 0, max, &number, NULL) != DDP_OK)
        return false;
    *ret = (uint32_t)number;
    return true;
}

static bool on_nproc(struct pmi_node *node, uint32_t from, const char *at, const char *end)
{
    uint32_t nproc;
    if (!take_pmi_number(&at, end, node->place.world_size, &nproc) || at != end || nproc == 0 ||
        node->nprocs[from] != 0)
        return false;
    node->nprocs[from] = nproc;
    return true;
}

static bool on_put(struct pmi_node *node, uint32_t from, const char *at, const char *end)
{
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
    (void)from;
    return take_pmi_word(&at, end, key, sizeof key) &&
           take_pmi_word(&at, end, value, sizeof value) && at == end &&
           pmi_kvs_put(&node->kvs, key, value) == DDP_OK;
}

static bool on_gone_line(struct pmi_node *node, uint32_t from, const char *at, const char *end)
{
    char why[128];
    uint32_t rank;
    if (!take_pmi_number(&at, end, node->place.world_size - 1, &rank) || at != end)
        return false;
    snprintf(why, sizeof why,
             "rank %" PRIu32 " (node %" PRIu32
             ") has left MPI while others wait for it in a barrier",
             rank, from);
    break_barriers(node, why);
    return true;
}

static const struct {
    const char *word;
    bool (*take)(struct pmi_node *node, uint32_t from, const char *at, const char *end);
} text_lines[] = {{"nproc", on_nproc}, {"put", on_put}, {"gone", on_gone_line}};

static bool take_exchange_line(struct pmi_node *node, uint32_t from, const char *at,
                               const char *end)
{
    char word[8];
    if (!take_pmi_word(&at, end, word, sizeof word))
        return false;
    for (size_t i = 0; i < sizeof text_lines / sizeof *text_lines; i++)
        if (strcmp(text_lines[i].word, word) == 0)
            return text_lines[i].take(node, from, at, end);
    return false;
}

static bool take_exchange_text(struct pmi_node *node, uint32_t from, const char *text, size_t len)
{
    const char *end = text + len;
    for (const char *at = text; at < end;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (line_end == NULL || !take_exchange_line(node, from, at, line_end))
            return false;
        at = line_end + 1;
    }
    return node->nprocs[from] != 0; /* required in the first text */
}

void pmi_node_exchange_text(struct pmi_node *node, uint32_t from, const char *text, size_t len)
{
    char why[96];
    if (!node->exchanging || from >= node->place.nodes || node->heard[from])
        return;
    node->heard[from] = true;
    node->missing--;
    if (!take_exchange_text(node, from, text, len)) {
        snprintf(why, sizeof why,
                 "node %" PRIu32 " has sent invalid or too many keys of its MPI ranks", from);
        break_barriers(node, why);
    }
    pmi_node_exchange_advance(node);
}

void pmi_node_exchange_cut_off(struct pmi_node *node, const char *why)
{
    break_barriers(node, why);
    pmi_node_exchange_advance(node);
}

/* Send the text in @put to all nodes, including this one. */
static void begin_exchange(struct pmi_node *node)
{
    struct ddp_error err;
    uint32_t number = node->exchanges++;
    memset(node->heard, 0, node->place.nodes * sizeof *node->heard);
    node->missing = node->place.nodes;
    node->exchanging = true;
    const char *text = (const char *)ddpi_buf_head(&node->put);
    size_t len = ddpi_buf_len(&node->put);
    if (node->place.nodes > 1 &&
        node->hooks.exchange(node->hooks.ctx, number, text, len, &err) != DDP_OK)
        break_barriers(node, err.msg);
    bool good = take_exchange_text(node, node->place.node_rank, text, len);
    ddpi_buf_consume(&node->put, len);
    node->heard[node->place.node_rank] = true;
    node->missing--;
    if (!good)
        break_barriers(node, "the keys of the MPI ranks exceed the limit");
}

bool pmi_node_exchange_put(struct pmi_node *node, const char *format, ...)
{
    char line[PMI_KEY_MAX + PMI_VALUE_MAX + 16];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return ddpi_buf_append(&node->put, line, (size_t)len);
}

static void introduce_node(struct pmi_node *node)
{
    if (pmi_node_exchange_put(node, "nproc %" PRIu32 "\n", node->place.nproc))
        begin_exchange(node);
    else
        break_barriers(node, "no memory is left for the keys of this node's MPI ranks");
}

/* A rank of ours that has left or finalized cannot reach the barrier that others wait in. */
static bool barrier_is_lost(struct pmi_node *node, uint32_t waiting)
{
    for (uint32_t i = 0; i < node->place.nproc && !node->left && waiting > 0; i++)
        if (node->ranks[i].sm.state == PMI_RANK_FINALIZED ||
            node->ranks[i].sm.state == PMI_RANK_GONE) {
            node->left = true;
            node->left_rank = node->place.first_rank + i;
        }
    return node->left;
}

static void next_exchange(struct pmi_node *node)
{
    uint32_t waiting = count_ranks_in(node, PMI_RANK_WAITING);
    if (barrier_is_lost(node, waiting)) {
        ddpi_buf_consume(&node->put, ddpi_buf_len(&node->put));
        if (pmi_node_exchange_put(node, "gone %" PRIu32 "\n", node->left_rank))
            begin_exchange(node);
        else
            break_barriers(node, "no memory is left for the keys of this node's MPI ranks");
    } else if (waiting == node->place.nproc) {
        begin_exchange(node);
    }
}

static void end_exchange(struct pmi_node *node)
{
    node->exchanging = false;
    if (node->broken)
        return;
    if (node->exchanges == 1)
        pmi_answer_mapping(node);
    else
        open_barrier(node);
}

/* Take every step that is possible now. */
void pmi_node_exchange_advance(struct pmi_node *node)
{
    if (!node->spoken)
        return; /* no MPI program so far */
    if (node->exchanges == 0 && !node->broken)
        introduce_node(node);
    if (node->exchanging && node->missing == 0)
        end_exchange(node);
    if (node->exchanges > 0 && !node->exchanging && !node->broken) {
        next_exchange(node);
        if (node->exchanging && node->missing == 0)
            end_exchange(node);
    }
    if (node->broken)
        hang_up_waiting(node);
}
