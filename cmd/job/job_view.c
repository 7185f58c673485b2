/*
 * job_view.c - assembles a job from its keys, and answers questions about it. Owns the nodes, the
 * requested changes, what is held against nodes, and their texts.
 */
#include "job_view.h"

#include "mem.h"
#include "parse.h"
#include "round_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void job_view_init(struct job_view *view, const char *name)
{
    memset(view, 0, sizeof *view);
    snprintf(view->name, sizeof view->name, "%s", name);
}

void job_view_forget_gone(struct job_view *view)
{
    size_t kept = 0;
    for (size_t i = 0; i < view->nnodes; i++) {
        struct job_node *node = view->nodes[i];
        if (node->member.there || node->order.there || node->node.there) {
            view->nodes[kept++] = node;
            continue;
        }
        ddpi_free(node->workers);
        ddpi_free(node);
    }
    view->nnodes = kept;
}

void job_view_finish(struct job_view *view)
{
    for (size_t i = 0; i < view->nnodes; i++) {
        ddpi_free(view->nodes[i]->workers);
        ddpi_free(view->nodes[i]);
    }
    for (size_t i = 0; i < view->nwants; i++) {
        ddpi_free(view->wants[i].what);
        ddpi_free(view->wants[i].value);
    }
    for (size_t i = 0; i < view->nblames; i++)
        ddpi_free(view->blames[i].name);
    ddpi_free(view->nodes);
    ddpi_free(view->wants);
    ddpi_free(view->blames);
    memset(view, 0, sizeof *view);
}

/* ---- keys ---- */

/* The part of @text after @prefix; NULL: @text does not begin with it. */
static const char *after_prefix(const char *text, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(text, prefix, len) == 0 ? text + len : NULL;
}

bool job_view_name(const char *key, char name[DDPI_JOB_MAX + 1])
{
    const char *at = after_prefix(key, DDPI_ROUND_PREFIX);
    size_t len = at != NULL ? strcspn(at, "/") : 0;
    if (len == 0 || strcmp(at + len, "/state") != 0 || !ddpi_job_valid(at, len))
        return false;
    memcpy(name, at, len);
    name[len] = '\0';
    return true;
}

/* Update @record; false: @version is not newer. */
static bool update_record(struct job_record *record, uint64_t version, const void *value)
{
    if (version <= record->version)
        return false;
    record->version = version;
    record->there = value != NULL;
    record->bad = false;
    return true;
}

/* Make room for one more element; false: out of memory. */
static bool reserve(void **array, size_t count, size_t *size, size_t element)
{
    if (count < *size)
        return true;
    size_t more = *size != 0 ? 2 * *size : 16;
    void *at = ddpi_realloc(*array, more, element);
    if (at == NULL)
        return false;
    *array = at;
    *size = more;
    return true;
}

/* The index of the node @id, or where to insert it. */
static size_t find_node(const struct job_view *view, uint64_t id)
{
    size_t from = 0, to = view->nnodes;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (view->nodes[middle]->id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Find the node, or add it; NULL: out of memory. */
static struct job_node *need_node(struct job_view *view, uint64_t id)
{
    size_t at = find_node(view, id);
    if (at < view->nnodes && view->nodes[at]->id == id)
        return view->nodes[at];
    struct job_node *node = ddpi_calloc(1, sizeof *node);
    void *nodes = view->nodes;
    if (node == NULL || !reserve(&nodes, view->nnodes, &view->nodes_size, sizeof *view->nodes)) {
        ddpi_free(node);
        return NULL;
    }
    view->nodes = nodes;
    memmove(view->nodes + at + 1, view->nodes + at,
            (view->nnodes - at) * sizeof(struct job_node *));
    view->nodes[at] = node;
    view->nnodes++;
    node->id = id;
    return node;
}

static ddp_status take_member(struct job_node *node, uint64_t version, struct ddpi_bytes value)
{
    if (update_record(&node->member, version, value.data) && value.data != NULL)
        node->member.bad = ddpi_round_member_get(value, &node->says, NULL) != DDP_OK;
    return DDP_OK;
}

static ddp_status take_order(struct job_node *node, uint64_t version, struct ddpi_bytes value)
{
    if (update_record(&node->order, version, value.data) && value.data != NULL)
        node->order.bad = ddpi_round_seat_get(value, &node->seat, NULL) != DDP_OK;
    return DDP_OK;
}

static ddp_status take_workers(struct job_node *node, uint64_t version, struct ddpi_bytes value)
{
    if (!update_record(&node->node, version, value.data))
        return DDP_OK;
    ddpi_free(node->workers);
    node->workers = value.data != NULL ? ddpi_strndup(value.data, value.len) : NULL;
    node->workers_len = node->workers != NULL ? value.len : 0;
    return node->workers != NULL || value.data == NULL ? DDP_OK : DDP_E_NOMEM;
}

static struct job_want *find_want(const struct job_view *view, const char *what)
{
    for (size_t i = 0; i < view->nwants; i++)
        if (strcmp(view->wants[i].what, what) == 0)
            return &view->wants[i];
    return NULL;
}

/* Find the request, or add it; NULL: out of memory. */
static struct job_want *need_want(struct job_view *view, const char *what)
{
    struct job_want *want = find_want(view, what);
    void *wants = view->wants;
    if (want != NULL)
        return want;
    char *copy = ddpi_strdup(what);
    if (copy == NULL || !reserve(&wants, view->nwants, &view->wants_size, sizeof *view->wants)) {
        ddpi_free(copy);
        return NULL;
    }
    view->wants = wants;
    view->wants[view->nwants] = (struct job_want){.what = copy};
    return &view->wants[view->nwants++];
}

static ddp_status take_want(struct job_view *view, const char *what, uint64_t version,
                            struct ddpi_bytes value)
{
    struct job_want *want = need_want(view, what);
    if (want == NULL)
        return DDP_E_NOMEM;
    if (!update_record(&want->record, version, value.data))
        return DDP_OK;
    ddpi_free(want->value);
    want->value = value.data != NULL ? ddpi_strndup(value.data, value.len) : NULL;
    return want->value != NULL || value.data == NULL ? DDP_OK : DDP_E_NOMEM;
}

/* What is held against @name, which is added if it is new; NULL: out of memory. */
static struct job_blame *need_blame(struct job_view *view, const char *name)
{
    void *blames = view->blames;
    for (size_t i = 0; i < view->nblames; i++)
        if (strcmp(view->blames[i].name, name) == 0)
            return &view->blames[i];
    char *copy = ddpi_strdup(name);
    if (copy == NULL ||
        !reserve(&blames, view->nblames, &view->blames_size, sizeof *view->blames)) {
        ddpi_free(copy);
        return NULL;
    }
    view->blames = blames;
    view->blames[view->nblames] = (struct job_blame){.name = copy};
    return &view->blames[view->nblames++];
}

static ddp_status take_blame(struct job_view *view, const char *name, uint64_t version,
                             struct ddpi_bytes value)
{
    struct job_blame *blame = need_blame(view, name);
    if (blame == NULL)
        return DDP_E_NOMEM;
    if (update_record(&blame->record, version, value.data) && value.data != NULL)
        blame->record.bad = ddpi_round_blame_get(value, &blame->blame, NULL) != DDP_OK;
    return DDP_OK;
}

static void take_job_state(struct job_view *view, uint64_t version, struct ddpi_bytes value)
{
    if (update_record(&view->state, version, value.data) && value.data != NULL)
        view->state.bad = ddpi_round_summary_get(value, &view->summary, NULL) != DDP_OK;
}

static ddp_status take_of_node(struct job_view *view, const char *kind, uint64_t version,
                               struct ddpi_bytes value)
{
    static const struct {
        const char *prefix;
        ddp_status (*take)(struct job_node *node, uint64_t version, struct ddpi_bytes value);
    } parts[] = {{"member/", take_member}, {"seat/", take_order}, {"node/", take_workers}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const char *digits = after_prefix(kind, parts[i].prefix);
        int64_t id;
        if (digits == NULL || *digits == '0' ||
            ddpi_parse_int(digits, 1, INT64_MAX, &id, NULL) != DDP_OK)
            continue;
        struct job_node *node = need_node(view, (uint64_t)id);
        return node != NULL ? parts[i].take(node, version, value) : DDP_E_NOMEM;
    }
    return DDP_OK; /* not a key of interest */
}

ddp_status job_view_take(struct job_view *view, const char *key, uint64_t version,
                         const void *value, size_t value_len)
{
    const struct ddpi_bytes bytes = {value, value_len};
    const char *kind = after_prefix(key, DDPI_ROUND_PREFIX);
    if (kind != NULL)
        kind = after_prefix(kind, view->name);
    if (kind == NULL || *kind++ != '/')
        return DDP_OK;
    const char *what = after_prefix(kind, "want/");
    if (what != NULL)
        return take_want(view, what, version, bytes);
    const char *blamed = after_prefix(kind, "blame/");
    if (blamed != NULL)
        return take_blame(view, blamed, version, bytes);
    if (strcmp(kind, "state") != 0)
        return take_of_node(view, kind, version, bytes);
    take_job_state(view, version, bytes);
    return DDP_OK;
}

static bool has_order(const struct job_node *node)
{
    return node->member.there && node->order.there && !node->order.bad;
}

/* ---- the job ---- */

bool job_view_is(const struct job_view *view, enum ddpi_rounds_state state)
{
    bool known = view->state.there ? !view->state.bad : state == ROUNDS_CLOSED;
    return known && view->summary.state == state;
}

bool job_view_wants(const struct job_view *view, const char *what, const char **ret_value)
{
    const struct job_want *want = find_want(view, what);
    if (want == NULL || !want->record.there)
        return false;
    if (ret_value != NULL)
        *ret_value = want->value;
    return true;
}

bool job_view_drains(const struct job_view *view, const char *name)
{
    char what[sizeof "drain/" + DDP_ROUND_NAME_SIZE];
    snprintf(what, sizeof what, "drain/%s", name);
    return job_view_wants(view, what, NULL);
}

bool job_parse_size(const char *text, uint32_t *ret_min, uint32_t *ret_max)
{
    char copy[32];
    int64_t min, max;
    if (strlen(text) >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%s", text);
    char *colon = strchr(copy, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    if (ddpi_parse_int(copy, 1, UINT32_MAX, &min, NULL) != DDP_OK ||
        ddpi_parse_int(colon + 1, min, UINT32_MAX, &max, NULL) != DDP_OK)
        return false;
    *ret_min = (uint32_t)min;
    *ret_max = (uint32_t)max;
    return true;
}

void job_view_size(const struct job_view *view, uint32_t *ret_min, uint32_t *ret_max)
{
    const char *size;
    if (job_view_wants(view, "size", &size) && job_parse_size(size, ret_min, ret_max))
        return;
    *ret_min = view->summary.terms.min_nodes;
    *ret_max = view->summary.terms.max_nodes;
}

bool job_view_up(const struct job_view *view)
{
    uint32_t up = 0;
    for (size_t i = 0; i < view->nnodes; i++) {
        const struct job_node *node = view->nodes[i];
        bool runs = node->says.phase == DDP_ROUND_RUNNING || node->says.phase == DDP_ROUND_DONE;
        up += job_node_seated(view, node) && runs &&
              node->says.generation == view->summary.generation;
    }
    return job_view_is(view, ROUNDS_RUNNING) && up == view->summary.seated;
}

/* A node that is left out waits for something of its own. */
const char *job_view_waiting(const struct job_view *view)
{
    const char *text = "";
    for (size_t i = 0; i < view->nnodes; i++) {
        const struct job_node *node = view->nodes[i];
        if (!has_order(node) || node->seat.order != DDP_ROUND_WAIT || node->seat.spare)
            continue;
        text = node->seat.text;
        if (!node->seat.left_out)
            break;
    }
    return text;
}

bool job_view_left_out(const struct job_view *view, const char *name, char *text, size_t size)
{
    for (size_t i = 0; i < view->nnodes; i++) {
        const struct job_node *node = view->nodes[i];
        const char *why = job_node_left_out(node);
        if (why == NULL || !job_node_is(node, name))
            continue;
        if (text != NULL)
            snprintf(text, size, "%s", why);
        return true;
    }
    for (size_t i = 0; i < view->nblames; i++) {
        const struct job_blame *blame = &view->blames[i];
        if (!blame->record.there || blame->record.bad || !blame->blame.left_out ||
            strcmp(blame->name, name) != 0)
            continue;
        if (text != NULL)
            snprintf(text, size, "first cause of %u failure%s in a row: %s", blame->blame.failures,
                     blame->blame.failures == 1 ? "" : "s", blame->blame.text);
        return true;
    }
    return false;
}

/* ---- nodes ---- */

bool job_node_seated(const struct job_view *view, const struct job_node *node)
{
    return has_order(node) && node->seat.generation != 0 && !node->seat.spare &&
           node->seat.world_size != 0 && node->seat.generation == view->summary.generation;
}

bool job_node_busy(const struct job_node *node)
{
    return has_order(node) &&
           (node->seat.order == DDP_ROUND_RUN || node->seat.order == DDP_ROUND_STOP);
}

bool job_node_spare(const struct job_node *node)
{
    return has_order(node) && node->seat.order == DDP_ROUND_WAIT && node->seat.spare &&
           !node->seat.left_out;
}

const char *job_node_left_out(const struct job_node *node)
{
    const char *text = node->seat.text;
    if (!has_order(node) || node->seat.order != DDP_ROUND_WAIT || !node->seat.left_out)
        return NULL;
    const char *why = after_prefix(text, "left out: ");
    return why != NULL ? why : text;
}

bool job_node_is(const struct job_node *node, const char *name)
{
    return node->member.there && !node->member.bad && strcmp(node->says.name, name) == 0;
}

struct ranked {
    struct job_node *node;
    uint64_t place; /* UINT64_MAX: none */
};

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (a->place != b->place)
        return a->place < b->place ? -1 : 1;
    return a->node->id < b->node->id ? -1 : a->node->id > b->node->id;
}

struct job_node **job_view_order(const struct job_view *view, size_t *ret_count)
{
    size_t count = 0;
    *ret_count = 0;
    struct ranked *ranked = ddpi_calloc(view->nnodes + 1, sizeof *ranked);
    struct job_node **nodes = ddpi_calloc(view->nnodes + 1, sizeof(struct job_node *));
    if (ranked == NULL || nodes == NULL) {
        ddpi_free(ranked);
        ddpi_free(nodes);
        return NULL;
    }
    for (size_t i = 0; i < view->nnodes; i++) {
        struct job_node *node = view->nodes[i];
        bool seated = job_node_seated(view, node);
        if (node->member.there)
            ranked[count++] = (struct ranked){node, seated ? node->seat.node_rank : UINT64_MAX};
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; i < count; i++)
        nodes[i] = ranked[i].node;
    ddpi_free(ranked);
    *ret_count = count;
    return nodes;
}

uint32_t job_view_count_without(const struct job_view *view, const char *name)
{
    uint32_t count = 0;
    for (size_t i = 0; i < view->nnodes; i++) {
        const struct job_node *node = view->nodes[i];
        bool willing = node->member.there && !node->member.bad && !node->says.leaving &&
                       job_node_left_out(node) == NULL && !job_node_is(node, name) &&
                       !job_view_drains(view, node->says.name);
        count += willing && !(has_order(node) && node->seat.order == DDP_ROUND_END);
    }
    return count;
}
