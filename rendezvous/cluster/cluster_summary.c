/*
 * cluster_summary.c - see cluster_summary.h. Owns nothing.
 */
#include "cluster_summary.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
    [MACHINE_MEMBER] = "member", [MACHINE_MISSING] = "missing", [MACHINE_JOINING] = "joining"};
enum { STATES = sizeof state_names / sizeof *state_names };

const char *ddpi_machine_state_name(enum ddpi_machine_state state)
{
    return state_names[state];
}

/* ---- what the leader knows ---- */

static enum ddpi_machine_state state_of(const struct ddpi_keeper_status *status,
                                        const struct ddpi_keeper_status *own)
{
    bool keeps_up =
        status->phase == KEEPER_MEMBER && status->number == own->number && status->knows_leader;
    return keeps_up ? MACHINE_MEMBER : MACHINE_JOINING;
}

/* What another machine said before this one led may be the last that it ever said. */
bool ddpi_cluster_summarize(const struct ddpi_cluster *cluster,
                            const struct ddpi_cluster_list *list, uint64_t now_ms,
                            struct ddpi_cluster_summary *ret)
{
    const struct ddpi_keeper_status *own = &cluster->own;
    struct ddpi_cluster_summary summary = {.leader = own->self};
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        const struct ddpi_keeper_status *status = i == own->self ? own : &cluster->heard[i].status;
        bool hears = ddpi_cluster_hears(cluster, i, now_ms);
        if (hears && cluster->heard[i].asked_ms < cluster->leads_ms)
            return false;
        summary.machines[i].at = list->at[i];
        summary.machines[i].life = (uint32_t)status->life;
        summary.machines[i].state =
            hears || i == own->self ? state_of(status, own) : MACHINE_MISSING;
    }
    *ret = summary;
    return own->leads;
}

/* ---- for people ---- */

unsigned ddpi_cluster_members(const struct ddpi_cluster_summary *summary)
{
    unsigned count = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        count += summary->machines[i].state == MACHINE_MEMBER;
    return count;
}

/* Ports are left out where hosts tell the machines apart. */
static size_t put_name(const struct ddpi_cluster_summary *summary, unsigned i, char *text,
                       size_t size)
{
    const struct ddpi_endpoint *at = &summary->machines[i].at;
    for (unsigned other = 0; other < DDPI_CLUSTER_SIZE; other++)
        if (other != i && strcmp(summary->machines[other].at.host, at->host) == 0)
            return ddpi_endpoint_text(at, text, size);
    return (size_t)snprintf(text, size, "%s", at->host);
}

void ddpi_cluster_survives(const struct ddpi_cluster_summary *summary,
                           char text[DDPI_CLUSTER_SURVIVES])
{
    unsigned away = DDPI_CLUSTER_SIZE - ddpi_cluster_members(summary), named = 0;
    size_t used = (size_t)snprintf(text, DDPI_CLUSTER_SURVIVES, "%s",
                                   away == 0 ? "any one of " : "no other loss until ");
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        if (away > 0 && summary->machines[i].state == MACHINE_MEMBER)
            continue;
        if (named++ > 0)
            used += (size_t)snprintf(text + used, DDPI_CLUSTER_SURVIVES - used, "%s",
                                     away == 0 ? ", " : " and ");
        used += put_name(summary, i, text + used, DDPI_CLUSTER_SURVIVES - used);
    }
    if (away > 0)
        snprintf(text + used, DDPI_CLUSTER_SURVIVES - used, " %s back", away == 1 ? "is" : "are");
}

/* ---- as JSON ---- */

static json_t *endpoint_json(const struct ddpi_endpoint *at)
{
    char text[DDPI_CLUSTER_ENDPOINT];
    ddpi_endpoint_text(at, text, sizeof text);
    return json_string(text);
}

json_t *ddpi_cluster_summary_json(const struct ddpi_cluster_summary *summary)
{
    char survives[DDPI_CLUSTER_SURVIVES];
    json_t *machines = json_array();
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        (void)json_array_append_new(machines,
                                    json_pack("{s:o, s:s, s:I}", "endpoint",
                                              endpoint_json(&summary->machines[i].at), "state",
                                              state_names[summary->machines[i].state], "life",
                                              (json_int_t)summary->machines[i].life));
    ddpi_cluster_survives(summary, survives);
    return json_pack("{s:o, s:o, s:s}", "leader",
                     endpoint_json(&summary->machines[summary->leader].at), "machines", machines,
                     "survives", survives);
}

size_t ddpi_cluster_summary_put(const struct ddpi_cluster_summary *summary,
                                char text[DDPI_CLUSTER_SUMMARY_MAX])
{
    json_t *root = ddpi_cluster_summary_json(summary);
    size_t len = root != NULL ? json_dumpb(root, text, DDPI_CLUSTER_SUMMARY_MAX, JSON_COMPACT) : 0;
    json_decref(root);
    return len <= DDPI_CLUSTER_SUMMARY_MAX ? len : 0;
}

static bool get_endpoint(const json_t *value, struct ddpi_endpoint *ret)
{
    const char *text = json_string_value(value);
    return text != NULL && strpbrk(text, "\"\\") == NULL &&
           ddpi_parse_endpoint(text, ret, NULL) == DDP_OK && ret->has_port;
}

static bool get_machine(const json_t *object, struct ddpi_cluster_summary *summary, unsigned i)
{
    const char *state = json_string_value(json_object_get(object, "state"));
    json_int_t life = json_integer_value(json_object_get(object, "life"));
    unsigned known = 0;
    while (state != NULL && known < STATES && strcmp(state, state_names[known]) != 0)
        known++;
    summary->machines[i].state = (enum ddpi_machine_state)known;
    summary->machines[i].life = (uint32_t)life;
    return state != NULL && known < STATES && life >= 0 && life <= UINT32_MAX &&
           get_endpoint(json_object_get(object, "endpoint"), &summary->machines[i].at);
}

static bool get_summary(const json_t *root, struct ddpi_cluster_summary *ret)
{
    const json_t *machines = json_object_get(root, "machines");
    struct ddpi_cluster_list list; /* to find the leader in it */
    struct ddpi_endpoint leader;
    if (json_array_size(machines) != DDPI_CLUSTER_SIZE ||
        !get_endpoint(json_object_get(root, "leader"), &leader))
        return false;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        if (!get_machine(json_array_get(machines, i), ret, i))
            return false;
        list.at[i] = ret->machines[i].at;
    }
    ret->leader = ddpi_cluster_list_find(&list, &leader);
    return ret->leader < DDPI_CLUSTER_SIZE;
}

ddp_status ddpi_cluster_summary_get(const char *text, size_t len, struct ddpi_cluster_summary *ret,
                                    struct ddp_error *err)
{
    struct ddpi_cluster_summary summary = {0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    bool good = get_summary(root, &summary);
    json_decref(root);
    if (!good)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "it does not say how keepers keep the store");
    *ret = summary;
    return DDP_OK;
}
