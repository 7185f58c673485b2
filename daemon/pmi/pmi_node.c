/*
 * pmi_node.c - answers the ranks of one node. Owns their states, the keys, and what they have put
 * since the last barrier.
 *
 * An exchange's texts are lines: "nproc N" in the first, by which each node knows where all ranks
 * are; then, one exchange for each barrier, "put KEY VALUE" for each key, or "gone RANK" when a
 * barrier cannot be reached any more. Texts of other nodes are checked like those of strangers.
 */
#include "pmi_node.h"

#include "buf.h"
#include "mem.h"
#include "parse.h"
#include "pmi_kvs.h"
#include "pmi_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    SHARE_OF_A_RANK = 256 * 1024, /* bytes of keys and values: MPICH puts some hundred */
    KVS_MAX = 1 << 30,            /* of all ranks */
};

struct rank {
    struct ddpi_sm sm;
    bool wants_mapping; /* it has asked where ranks are, which is not known yet */
    bool in_command;    /* "mcmd=": lines follow until "endcmd" */
};

struct pmi_node {
    struct pmi_place place;
    struct pmi_node_hooks hooks;
    struct pmi_kvs kvs;
    struct ddpi_buf put; /* the text of the next exchange */
    uint32_t *nprocs;    /* of each node; 0: not known yet */
    bool *heard;         /* nodes whose text of this exchange is there */
    uint32_t missing;    /* such texts that are not */
    uint32_t exchanges;  /* that were begun */
    bool exchanging;     /* one is under way */
    bool broken;         /* no barrier can be reached any more */
    bool spoken;         /* a rank has said init */
    bool left;           /* @left_rank of ours has ended without MPI_Finalize */
    uint32_t left_rank;
    struct rank ranks[];
};

DDPI_SM_DEFINE(pmi_rank, PMI_RANK_STATES);

static void advance_exchange(struct pmi_node *node);

/* ---- answers ------------------------------------------------------------------------------- */

static void answer_rank(struct pmi_node *node, uint32_t local, const char *format, ...)
    DDP_PRINTF(3, 4);

static void answer_rank(struct pmi_node *node, uint32_t local, const char *format, ...)
{
    char text[PMI_VALUE_MAX + 128];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    node->hooks.reply(node->hooks.ctx, local, text, (size_t)len);
}

static uint32_t count_job_ranks(const struct pmi_node *node, unsigned state)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->place.nproc; i++)
        count += node->ranks[i].sm.state == state;
    return count;
}

/* Ranks that wait for what cannot come lose their manager, which MPICH takes for a fatal error. */
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

/* Which ranks share a machine, as blocks (first node, nodes, ranks of each); false: it is longer
 * than a value may be. */
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

static void answer_get(struct pmi_node *node, uint32_t local, const char *value)
{
    if (value != NULL)
        answer_rank(node, local, "cmd=get_result rc=0 msg=success value=%s\n", value);
    else
        answer_rank(node, local, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
}

static void answer_mapping(struct pmi_node *node)
{
    char mapping[PMI_VALUE_MAX];
    bool known = describe_mapping(node, mapping);
    for (uint32_t i = 0; i < node->place.nproc; i++)
        if (node->ranks[i].wants_mapping) {
            node->ranks[i].wants_mapping = false;
            answer_get(node, i, known ? mapping : NULL);
        }
}

static void open_barrier(struct pmi_node *node)
{
    for (uint32_t i = 0; i < node->place.nproc; i++)
        if (node->ranks[i].sm.state == PMI_RANK_WAITING) {
            ddpi_sm_move(&node->ranks[i].sm, PMI_RANK_OPEN);
            answer_rank(node, i, "cmd=barrier_out\n");
        }
}

/* ---- exchanges with other nodes ------------------------------------------------------------ */

/* The next word of @line, which ends at a blank; false: there is none, or it is too long. */
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
    return node->nprocs[from] != 0; /* which the first text has to say */
}

void pmi_node_text(struct pmi_node *node, uint32_t from, const char *text, size_t len)
{
    char why[96];
    if (!node->exchanging || from >= node->place.nodes || node->heard[from])
        return;
    node->heard[from] = true;
    node->missing--;
    if (!take_exchange_text(node, from, text, len)) {
        snprintf(why, sizeof why,
                 "what node %" PRIu32 " says of its MPI ranks cannot be used, or is too much",
                 from);
        break_barriers(node, why);
    }
    advance_exchange(node);
}

void pmi_node_cut_off(struct pmi_node *node, const char *why)
{
    break_barriers(node, why);
    advance_exchange(node);
}

/* Give what is in @put to all nodes, ourselves included. */
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
        break_barriers(node, "there is no room for what the MPI ranks of this node have put");
}

static bool put_exchange_line(struct pmi_node *node, const char *format, ...) DDP_PRINTF(2, 3);

static bool put_exchange_line(struct pmi_node *node, const char *format, ...)
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
    if (put_exchange_line(node, "nproc %" PRIu32 "\n", node->place.nproc))
        begin_exchange(node);
    else
        break_barriers(node, "there is no memory for the MPI ranks of this node");
}

/* Whether a barrier of ours that others may wait in cannot be reached. A rank that has finalized,
 * whether its connection has ended since or not, does not come to another. */
static bool is_deserted(struct pmi_node *node, uint32_t waiting)
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
    uint32_t waiting = count_job_ranks(node, PMI_RANK_WAITING);
    if (is_deserted(node, waiting)) {
        ddpi_buf_consume(&node->put, ddpi_buf_len(&node->put));
        if (put_exchange_line(node, "gone %" PRIu32 "\n", node->left_rank))
            begin_exchange(node);
        else
            break_barriers(node, "there is no memory for the MPI ranks of this node");
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
        answer_mapping(node);
    else
        open_barrier(node);
}

/* Take every step that is possible now. */
static void advance_exchange(struct pmi_node *node)
{
    if (!node->spoken)
        return; /* no MPI program, so far */
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

/* ---- what ranks ask ------------------------------------------------------------------------ */

struct line {
    uint32_t local;
    const char *text;
    size_t len;
};

static void on_init(struct pmi_node *node, const struct line *line)
{
    int version;
    bool good = pmi_words_number(line->text, line->len, "pmi_version", &version) && version == 1;
    answer_rank(node, line->local, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
                good ? 0 : -1);
}

static void on_get_maxes(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n",
                PMI_KEY_MAX, PMI_KEY_MAX, PMI_VALUE_MAX);
}

static void on_get_appnum(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=appnum appnum=0\n");
}

static void on_get_kvsname(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=my_kvsname kvsname=generation_%" PRIu64 "\n",
                node->place.generation);
}

static void on_get_universe(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=universe_size size=%" PRIu32 "\n", node->place.world_size);
}

static void on_put_key(struct pmi_node *node, const struct line *line)
{
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
    const char *fault = NULL;
    if (!pmi_words_get(line->text, line->len, "key", key, sizeof key) || key[0] == '\0')
        fault = "bad_key";
    else if (!pmi_words_get(line->text, line->len, "value", value, sizeof value) ||
             value[0] == '\0')
        fault = "bad_value";
    else if (!put_exchange_line(node, "put %s %s\n", key, value))
        fault = "no_room";
    answer_rank(node, line->local, "cmd=put_result rc=%d msg=%s\n", fault != NULL ? -1 : 0,
                fault != NULL ? fault : "success");
}

static void on_get_key(struct pmi_node *node, const struct line *line)
{
    char key[PMI_KEY_MAX];
    bool good = pmi_words_get(line->text, line->len, "key", key, sizeof key);
    if (good && strcmp(key, "PMI_process_mapping") == 0) {
        node->ranks[line->local].wants_mapping = true;
        if (node->exchanges > 0 && !(node->exchanges == 1 && node->exchanging))
            answer_mapping(node);
    } else {
        answer_get(node, line->local, good ? pmi_kvs_get(&node->kvs, key) : NULL);
    }
}

static void on_barrier(struct pmi_node *node, const struct line *line)
{
    ddpi_sm_move(&node->ranks[line->local].sm, PMI_RANK_WAITING);
}

static void on_finalize(struct pmi_node *node, const struct line *line)
{
    ddpi_sm_move(&node->ranks[line->local].sm, PMI_RANK_FINALIZED);
    answer_rank(node, line->local, "cmd=finalize_ack\n");
}

static void on_abort(struct pmi_node *node, const struct line *line)
{
    int exit_code;
    if (!pmi_words_number(line->text, line->len, "exitcode", &exit_code))
        exit_code = 1;
    node->hooks.aborted(node->hooks.ctx, line->local, exit_code);
}

/* MPI_Publish_name and its relatives take a server for all jobs, and there is none. */
static void on_pmi_publish(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=publish_result rc=-1 msg=not_served_by_ddprun\n");
}

static void on_unpublish(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=unpublish_result rc=-1 msg=not_served_by_ddprun\n");
}

static void on_lookup(struct pmi_node *node, const struct line *line)
{
    answer_rank(node, line->local, "cmd=lookup_result rc=-1 msg=not_served_by_ddprun\n");
}

static const struct {
    const char *cmd;
    void (*serve)(struct pmi_node *node, const struct line *line);
} commands[] = {
    {"get_maxes", on_get_maxes},
    {"get_appnum", on_get_appnum},
    {"get_my_kvsname", on_get_kvsname},
    {"get_universe_size", on_get_universe},
    {"put", on_put_key},
    {"get", on_get_key},
    {"barrier_in", on_barrier},
    {"finalize", on_finalize},
    {"abort", on_abort},
    {"publish_name", on_pmi_publish},
    {"unpublish_name", on_unpublish},
    {"lookup_name", on_lookup},
};

/* MPI_Comm_spawn: a job's ranks are those that it was started with. */
static bool take_command_line(struct pmi_node *node, const struct line *line)
{
    static const char begin[] = "mcmd=", end[] = "endcmd";
    struct rank *rank = &node->ranks[line->local];
    if (!rank->in_command &&
        (line->len < sizeof begin - 1 || memcmp(line->text, begin, sizeof begin - 1) != 0))
        return false;
    rank->in_command = line->len != sizeof end - 1 || memcmp(line->text, end, sizeof end - 1) != 0;
    if (!rank->in_command)
        answer_rank(node, line->local, "cmd=spawn_result rc=-1 msg=not_served_by_ddprun\n");
    return true;
}

/* It says no more. Unless it has finalized, the others may wait for it in vain. */
static void leave_mpi(struct pmi_node *node, uint32_t local)
{
    struct rank *rank = &node->ranks[local];
    if (rank->sm.state != PMI_RANK_FINALIZED && !node->left) {
        node->left = true;
        node->left_rank = node->place.first_rank + local;
    }
    rank->wants_mapping = false;
    ddpi_sm_move(&rank->sm, PMI_RANK_GONE);
}

/* A rank that does not keep to the protocol has lost its manager. */
static void refuse_rank(struct pmi_node *node, uint32_t local, const char *cmd)
{
    char why[160];
    snprintf(why, sizeof why,
             "rank %" PRIu32
             " says '%s' to its MPI process manager, which is not PMI-1 as MPICH speaks "
             "it; ddprun ends that connection",
             node->place.first_rank + local, cmd);
    node->hooks.say(node->hooks.ctx, why);
    leave_mpi(node, local);
    node->hooks.hang_up(node->hooks.ctx, local);
}

static void serve_line(struct pmi_node *node, const struct line *line)
{
    struct rank *rank = &node->ranks[line->local];
    char cmd[32] = "";
    if (take_command_line(node, line))
        return;
    if (!pmi_words_get(line->text, line->len, "cmd", cmd, sizeof cmd))
        snprintf(cmd, sizeof cmd, "nothing that can be read");
    if (rank->sm.state == PMI_RANK_SILENT && strcmp(cmd, "init") == 0) {
        node->spoken = true;
        ddpi_sm_move(&rank->sm, PMI_RANK_OPEN);
        on_init(node, line);
        return;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands && rank->sm.state == PMI_RANK_OPEN;
         i++)
        if (strcmp(commands[i].cmd, cmd) == 0) {
            commands[i].serve(node, line);
            return;
        }
    refuse_rank(node, line->local, cmd);
}

void pmi_node_line(struct pmi_node *node, uint32_t local_rank, const char *text, size_t len)
{
    const struct line line = {local_rank, text, len};
    if (node->ranks[local_rank].sm.state == PMI_RANK_GONE)
        return;
    serve_line(node, &line);
    advance_exchange(node);
}

void pmi_node_gone(struct pmi_node *node, uint32_t local_rank)
{
    if (node->ranks[local_rank].sm.state == PMI_RANK_GONE)
        return;
    leave_mpi(node, local_rank);
    advance_exchange(node);
}

/* ---- life ---------------------------------------------------------------------------------- */

struct pmi_node *pmi_node_create(const struct pmi_place *place, const struct pmi_node_hooks *hooks)
{
    struct pmi_node *node = ddpi_calloc(1, sizeof *node + place->nproc * sizeof node->ranks[0]);
    if (node == NULL)
        return NULL;
    uint64_t room = (uint64_t)SHARE_OF_A_RANK * place->world_size;
    node->place = *place;
    node->hooks = *hooks;
    pmi_kvs_init(&node->kvs, room < KVS_MAX ? room : KVS_MAX);
    ddpi_buf_init(&node->put, (size_t)SHARE_OF_A_RANK * place->nproc);
    for (uint32_t i = 0; i < place->nproc; i++)
        ddpi_sm_init(&node->ranks[i].sm, &pmi_rank_sm);
    node->nprocs = ddpi_calloc(place->nodes, sizeof *node->nprocs);
    node->heard = ddpi_calloc(place->nodes, sizeof *node->heard);
    if (node->nprocs != NULL && node->heard != NULL)
        return node;
    pmi_node_destroy(node);
    return NULL;
}

void pmi_node_destroy(struct pmi_node *node)
{
    if (node == NULL)
        return;
    pmi_kvs_finish(&node->kvs);
    ddpi_buf_finish(&node->put);
    ddpi_free(node->nprocs);
    ddpi_free(node->heard);
    ddpi_free(node);
}

unsigned pmi_node_state(const struct pmi_node *node, uint32_t local_rank)
{
    return node->ranks[local_rank].sm.state;
}
