/*
 * pmi_node.c - serves the commands of one node's ranks. Owns their states, the keys, and the keys
 * put since the last barrier; pmi_node_exchange.c sends those to the other nodes.
 */
#include "pmi_node.h"

#include "mem.h"
#include "parse.h"
#include "pmi_node_exchange.h"
#include "pmi_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    SHARE_OF_A_RANK = 256 * 1024, /* bytes of keys and values; MPICH puts some hundred */
    KVS_MAX = 1 << 30,            /* of all ranks together */
};

DDPI_SM_DEFINE(pmi_rank, PMI_RANK_STATES);

/* ---- commands ---- */

struct line {
    uint32_t local;
    const char *text;
    size_t len;
};

static void on_init(struct pmi_node *node, const struct line *line)
{
    int version;
    bool good = pmi_words_number(line->text, line->len, "pmi_version", &version) && version == 1;
    pmi_answer(node, line->local, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=%d\n",
               good ? 0 : -1);
}

static void on_get_maxes(struct pmi_node *node, const struct line *line)
{
    pmi_answer(node, line->local, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n",
               PMI_KEY_MAX, PMI_KEY_MAX, PMI_VALUE_MAX);
}

static void on_get_appnum(struct pmi_node *node, const struct line *line)
{
    pmi_answer(node, line->local, "cmd=appnum appnum=0\n");
}

static void on_get_kvsname(struct pmi_node *node, const struct line *line)
{
    pmi_answer(node, line->local, "cmd=my_kvsname kvsname=%s\n", node->place.job);
}

static void on_get_universe(struct pmi_node *node, const struct line *line)
{
    pmi_answer(node, line->local, "cmd=universe_size size=%" PRIu32 "\n", node->place.world_size);
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
    else if (!pmi_node_exchange_put(node, "put %s %s\n", key, value))
        fault = "no_room";
    pmi_answer(node, line->local, "cmd=put_result rc=%d msg=%s\n", fault != NULL ? -1 : 0,
               fault != NULL ? fault : "success");
}

static void on_get_key(struct pmi_node *node, const struct line *line)
{
    char key[PMI_KEY_MAX];
    bool good = pmi_words_get(line->text, line->len, "key", key, sizeof key);
    if (good && strcmp(key, "PMI_process_mapping") == 0) {
        node->ranks[line->local].wants_mapping = true;
        if (node->exchanges > 0 && !(node->exchanges == 1 && node->exchanging))
            pmi_answer_mapping(node);
    } else {
        pmi_answer_get(node, line->local, good ? pmi_kvs_get(&node->kvs, key) : NULL);
    }
}

static void on_barrier(struct pmi_node *node, const struct line *line)
{
    ddpi_sm_move(&node->ranks[line->local].sm, PMI_RANK_WAITING);
}

static void on_finalize(struct pmi_node *node, const struct line *line)
{
    ddpi_sm_move(&node->ranks[line->local].sm, PMI_RANK_FINALIZED);
    pmi_answer(node, line->local, "cmd=finalize_ack\n");
}

static void on_abort(struct pmi_node *node, const struct line *line)
{
    int exit_code;
    if (!pmi_words_number(line->text, line->len, "exitcode", &exit_code))
        exit_code = 1;
    node->hooks.aborted(node->hooks.ctx, line->local, exit_code);
}

/* MPI_Publish_name and the like: between ranks of this node, if it is the only one. Ranks of other
 * nodes would have to find a name without a barrier, in which alone texts travel. */
static bool read_service(const struct pmi_node *node, const struct line *line,
                         char service[PMI_VALUE_MAX])
{
    return node->place.nodes == 1 &&
           pmi_words_get(line->text, line->len, "service", service, PMI_VALUE_MAX) &&
           service[0] != '\0';
}

static void on_pmi_publish(struct pmi_node *node, const struct line *line)
{
    char service[PMI_VALUE_MAX], port[PMI_VALUE_MAX];
    bool good = read_service(node, line, service) &&
                pmi_words_get(line->text, line->len, "port", port, sizeof port) &&
                pmi_kvs_put(&node->names, service, port) == DDP_OK;
    pmi_answer(node, line->local, "cmd=publish_result rc=%d msg=%s\n", good ? 0 : -1,
               good ? "success" : "not_served_by_ddprun");
}

static void on_unpublish(struct pmi_node *node, const struct line *line)
{
    char service[PMI_VALUE_MAX];
    bool good =
        read_service(node, line, service) && pmi_kvs_put(&node->names, service, "") == DDP_OK;
    pmi_answer(node, line->local, "cmd=unpublish_result rc=%d msg=%s\n", good ? 0 : -1,
               good ? "success" : "not_served_by_ddprun");
}

static void on_lookup(struct pmi_node *node, const struct line *line)
{
    char service[PMI_VALUE_MAX];
    bool served = read_service(node, line, service);
    const char *port = served ? pmi_kvs_get(&node->names, service) : NULL;
    if (port != NULL && port[0] != '\0')
        pmi_answer(node, line->local, "cmd=lookup_result rc=0 port=%s\n", port);
    else
        pmi_answer(node, line->local, "cmd=lookup_result rc=-1 msg=%s\n",
                   served ? "service_not_found" : "not_served_by_ddprun");
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

/* The number in a line "NAME=NUMBER"; 0: it is another line. */
static uint32_t number_of(const struct line *line, const char *name)
{
    char digits[16];
    size_t len = strlen(name);
    int64_t number;
    if (line->len <= len || line->len - len >= sizeof digits || memcmp(line->text, name, len) != 0)
        return 0;
    snprintf(digits, sizeof digits, "%.*s", (int)(line->len - len), line->text + len);
    return ddpi_parse_int(digits, 1, INT32_MAX, &number, NULL) == DDP_OK ? (uint32_t)number : 0;
}

static void refuse_spawn(struct pmi_node *node, uint32_t local)
{
    struct pmi_rank *rank = &node->ranks[local];
    char why[200];
    snprintf(why, sizeof why,
             "rank %" PRIu32
             " has called MPI_Comm_spawn, which ddprun does not serve: the ranks of "
             "a job are fixed at its start; run the program under MPICH's mpiexec",
             node->place.first_rank + local);
    if (!rank->told)
        node->hooks.say(node->hooks.ctx, why);
    rank->told = true;
    pmi_answer(node, local, "cmd=spawn_result rc=-1 msg=not_served_by_ddprun\n");
}

/* MPI_Comm_spawn. MPI_Comm_spawn_multiple sends such a command for each program, which says how
 * many there are and which one it is, and reads one answer to all. */
static bool take_command_line(struct pmi_node *node, const struct line *line)
{
    static const char begin[] = "mcmd=", end[] = "endcmd";
    struct pmi_rank *rank = &node->ranks[line->local];
    bool begins = line->len >= sizeof begin - 1 && memcmp(line->text, begin, sizeof begin - 1) == 0;
    if (!rank->in_command && !begins)
        return false;
    if (!rank->in_command)
        rank->programs = rank->program = 1;
    uint32_t programs = number_of(line, "totspawns="), program = number_of(line, "spawnssofar=");
    rank->programs = programs > 0 ? programs : rank->programs;
    rank->program = program > 0 ? program : rank->program;
    rank->in_command = line->len != sizeof end - 1 || memcmp(line->text, end, sizeof end - 1) != 0;
    if (!rank->in_command && rank->program >= rank->programs)
        refuse_spawn(node, line->local);
    return true;
}

/* The rank leaves. Unless it has finalized, others may wait for it in a barrier. */
static void leave_mpi(struct pmi_node *node, uint32_t local)
{
    struct pmi_rank *rank = &node->ranks[local];
    if (rank->sm.state != PMI_RANK_FINALIZED && !node->left) {
        node->left = true;
        node->left_rank = node->place.first_rank + local;
    }
    rank->wants_mapping = false;
    ddpi_sm_move(&rank->sm, PMI_RANK_GONE);
}

/* The rank violates the protocol: end its connection. */
static void refuse_rank(struct pmi_node *node, uint32_t local, const char *cmd)
{
    char why[160];
    snprintf(why, sizeof why,
             "rank %" PRIu32 " sent '%s' to its MPI process manager, which is not a PMI-1 command "
             "of MPICH; ddprun closes the connection",
             node->place.first_rank + local, cmd);
    node->hooks.say(node->hooks.ctx, why);
    leave_mpi(node, local);
    node->hooks.hang_up(node->hooks.ctx, local);
}

static void serve_line(struct pmi_node *node, const struct line *line)
{
    struct pmi_rank *rank = &node->ranks[line->local];
    char cmd[32] = "";
    if (take_command_line(node, line))
        return;
    if (!pmi_words_get(line->text, line->len, "cmd", cmd, sizeof cmd))
        snprintf(cmd, sizeof cmd, "an unreadable line");
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
    pmi_node_exchange_advance(node);
}

void pmi_node_gone(struct pmi_node *node, uint32_t local_rank)
{
    if (node->ranks[local_rank].sm.state == PMI_RANK_GONE)
        return;
    leave_mpi(node, local_rank);
    pmi_node_exchange_advance(node);
}

/* ---- creation ---- */

struct pmi_node *pmi_node_create(const struct pmi_place *place, const struct pmi_node_hooks *hooks)
{
    struct pmi_node *node = ddpi_calloc(1, sizeof *node + place->nproc * sizeof node->ranks[0]);
    if (node == NULL)
        return NULL;
    uint64_t room = (uint64_t)SHARE_OF_A_RANK * place->world_size;
    node->place = *place;
    node->hooks = *hooks;
    pmi_kvs_init(&node->kvs, room < KVS_MAX ? room : KVS_MAX);
    pmi_kvs_init(&node->names, SHARE_OF_A_RANK);
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
    pmi_kvs_finish(&node->names);
    ddpi_buf_finish(&node->put);
    ddpi_free(node->nprocs);
    ddpi_free(node->heard);
    ddpi_free(node);
}

unsigned pmi_node_state(const struct pmi_node *node, uint32_t local_rank)
{
    return node->ranks[local_rank].sm.state;
}
