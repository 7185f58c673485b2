/*
 * negotiation.c - the table of tensors that ranks want. Owns its entries until they are taken.
 *
 * An entry is complete when all ranks of its set that have not joined want it. Without a group it
 * is ready then, and so if it fails; else when all tensors of its group are complete.
 */
#include "negotiation.h"

#include "error.h"
#include "mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_SHOWN = 6 };

ddp_status ddpi_negotiation_init(struct ddpi_negotiation *negotiation, uint32_t world_size,
                                 struct ddp_error *err)
{
    *negotiation =
        (struct ddpi_negotiation){.world_size = world_size, .joined = ddpi_calloc(world_size, 1)};
    ddpi_list_init(&negotiation->wanted);
    ddpi_list_init(&negotiation->ready);
    ddpi_list_init(&negotiation->open_groups);
    uint8_t *all = ddpi_calloc(world_size, 1);
    ddp_status status = DDP_E_NOMEM;
    if (all == NULL || negotiation->joined == NULL) {
        ddpi_error_nomem(err, world_size);
    } else {
        memset(all, 1, world_size);
        status = ddpi_negotiation_add_set(negotiation, all, err);
    }
    ddpi_free(all);
    if (status != DDP_OK)
        ddpi_negotiation_finish(negotiation);
    return status;
}

static void free_wanted(struct ddpi_list *list)
{
    ddpi_list_for_each_safe (link, list)
        ddpi_free(ddpi_container_of(link, struct ddpi_wanted_tensor, link));
}

void ddpi_negotiation_finish(struct ddpi_negotiation *negotiation)
{
    free_wanted(&negotiation->wanted);
    free_wanted(&negotiation->ready);
    ddpi_list_for_each_safe (link, &negotiation->open_groups) {
        struct ddpi_tensor_group *group = ddpi_container_of(link, struct ddpi_tensor_group, link);
        free_wanted(&group->complete);
        ddpi_free(group);
    }
    ddpi_name_table_finish(&negotiation->groups);
    ddpi_name_table_finish(&negotiation->names);
    for (uint32_t i = 0; i < negotiation->nsets; i++)
        ddpi_free(negotiation->sets[i].has);
    ddpi_free(negotiation->sets);
    ddpi_free(negotiation->joined);
}

ddp_status ddpi_negotiation_add_set(struct ddpi_negotiation *negotiation, const uint8_t *has,
                                    struct ddp_error *err)
{
    uint8_t *copy = ddpi_calloc(negotiation->world_size, 1);
    struct ddpi_process_set *sets =
        ddpi_realloc(negotiation->sets, (size_t)negotiation->nsets + 1, sizeof *sets);
    if (sets != NULL)
        negotiation->sets = sets;
    if (copy == NULL || sets == NULL) {
        ddpi_free(copy);
        return ddpi_error_nomem(err, negotiation->world_size);
    }
    struct ddpi_process_set *set = &sets[negotiation->nsets++];
    *set = (struct ddpi_process_set){.has = copy};
    for (uint32_t rank = 0; rank < negotiation->world_size; rank++) {
        copy[rank] = has[rank] != 0;
        set->size += copy[rank];
    }
    return DDP_OK;
}

static void become_ready(struct ddpi_negotiation *negotiation, struct ddpi_wanted_tensor *wanted)
{
    const struct ddpi_tensor_request *request = &wanted->response.request;
    ddpi_name_table_remove(&negotiation->names, request->set, request->name);
    ddpi_list_remove(&wanted->link);
    ddpi_list_append(&negotiation->ready, &wanted->link);
    if (request->kind == DDPI_TENSOR_JOIN) {
        memset(negotiation->joined, 0, negotiation->world_size);
        negotiation->njoined = 0;
    }
}

/* ---- groups ---- */

/* The group of @request; NULL: memory is short. */
static struct ddpi_tensor_group *open_group(struct ddpi_negotiation *negotiation,
                                            const struct ddpi_tensor_request *request)
{
    struct ddpi_name_table *groups = &negotiation->groups;
    struct ddpi_tensor_group *group = ddpi_name_table_find(groups, request->set, request->group);
    if (group != NULL)
        return group;
    group = ddpi_calloc(1, sizeof *group + negotiation->world_size * sizeof group->shares[0]);
    if (group == NULL)
        return NULL;
    ddpi_list_init(&group->members);
    ddpi_list_init(&group->complete);
    group->set = request->set;
    memcpy(group->name, request->group, sizeof group->name);
    if (!ddpi_name_table_add(groups, group->set, group->name, group)) {
        ddpi_free(group);
        return NULL;
    }
    ddpi_list_append(&negotiation->open_groups, &group->link);
    return group;
}

static void drop_group_if_done(struct ddpi_negotiation *negotiation,
                               struct ddpi_tensor_group *group)
{
    if (group == NULL || group->nuntold > 0 || !ddpi_list_empty(&group->members))
        return;
    ddpi_name_table_remove(&negotiation->groups, group->set, group->name);
    ddpi_list_remove(&group->link);
    ddpi_free(group);
}

static void leave_group(struct ddpi_wanted_tensor *wanted)
{
    ddpi_list_remove(&wanted->group_link);
    wanted->group = NULL;
}

/* One of the group has failed. All others do, too; each is ready when all ranks have come to it, so
 * that it is over on all of them. */
static void fail_group(struct ddpi_negotiation *negotiation, struct ddpi_tensor_group *group,
                       const struct ddp_error *reason)
{
    group->reason = *reason;
    ddpi_list_for_each_safe (link, &group->members) {
        struct ddpi_wanted_tensor *member =
            ddpi_container_of(link, struct ddpi_wanted_tensor, group_link);
        leave_group(member);
        member->response.failed = true;
        member->response.reason = group->reason;
    }
    ddpi_list_for_each_safe (link, &group->complete)
        become_ready(negotiation, ddpi_container_of(link, struct ddpi_wanted_tensor, link));
    group->ncomplete = 0;
    for (uint32_t rank = 0; rank < negotiation->world_size; rank++)
        group->shares[rank].failed = group->shares[rank].left > 0;
}

/* @rank has told of one more tensor of @group; true: it fails, as one before it has. */
static bool count_told(struct ddpi_tensor_group *group, uint32_t rank, uint32_t group_size)
{
    struct ddpi_group_share *share = &group->shares[rank];
    if (share->left == 0) {
        *share = (struct ddpi_group_share){.left = group_size};
        group->nuntold++;
    }
    share->left--;
    group->nuntold -= share->left == 0;
    return share->failed;
}

/* Note the group that @rank has @wanted in; ranks may have it in several, or singly. */
static ddp_status note_group(struct ddpi_negotiation *negotiation,
                             struct ddpi_wanted_tensor *wanted, uint32_t rank,
                             const struct ddpi_tensor_request *request, struct ddp_error *err)
{
    struct ddpi_tensor_response *response = &wanted->response;
    struct ddpi_tensor_group *group = NULL;
    bool known = false;
    if (request->group_size > 0) {
        group = open_group(negotiation, request);
        if (group == NULL)
            return ddpi_error_nomem(err, sizeof *group);
        known = count_told(group, rank, request->group_size);
    }
    if (group != NULL && wanted->ncome == 1) {
        wanted->group = group;
        ddpi_list_append(&group->members, &wanted->group_link);
    }
    if (known && !response->failed) {
        response->failed = true;
        response->reason = group->reason;
    }
    struct ddpi_tensor_group *first = wanted->group;
    if (response->failed && first != NULL)
        fail_group(negotiation, first, &response->reason);
    if (response->failed && group != NULL && group != first && !known)
        fail_group(negotiation, group, &response->reason);
    if (first != group)
        drop_group_if_done(negotiation, first);
    drop_group_if_done(negotiation, group);
    return DDP_OK;
}

/* ---- requests ---- */

static const struct ddpi_process_set *set_of(const struct ddpi_negotiation *negotiation,
                                             const struct ddpi_tensor_request *request)
{
    return &negotiation->sets[request->set == DDPI_SET_INTERNAL ? 0 : request->set];
}

/* NULL: memory is short. */
static struct ddpi_wanted_tensor *want_first(struct ddpi_negotiation *negotiation, uint32_t rank,
                                             const struct ddpi_tensor_request *request,
                                             uint64_t now_ms)
{
    struct ddpi_wanted_tensor *wanted = ddpi_calloc(1, sizeof *wanted + negotiation->world_size);
    if (wanted == NULL)
        return NULL;
    wanted->response.request = *request;
    wanted->first_rank = rank;
    wanted->since_ms = now_ms > request->waited_ms ? now_ms - request->waited_ms : 0;
    if (!ddpi_name_table_add(&negotiation->names, request->set, wanted->response.request.name,
                             wanted)) {
        ddpi_free(wanted);
        return NULL;
    }
    ddpi_list_append(&negotiation->wanted, &wanted->link);
    return wanted;
}

static void compare(struct ddpi_wanted_tensor *wanted, uint32_t rank,
                    const struct ddpi_tensor_request *request)
{
    char first[DDPI_TENSOR_VALUE], other[DDPI_TENSOR_VALUE];
    struct ddpi_tensor_response *response = &wanted->response;
    const char *what = ddpi_tensor_difference(&response->request, request, first, other);
    if (what == NULL || response->failed)
        return;
    response->failed = true;
    ddpi_error_set(&response->reason, DDP_E_MISMATCH,
                   "tensor \"%s\": %s is %s on rank %" PRIu32 ", but %s on rank %" PRIu32
                   ": enqueue it alike on all ranks",
                   request->name, what, first, wanted->first_rank, other, rank);
}

static void note_join(struct ddpi_negotiation *negotiation, uint32_t rank, bool has_gpu)
{
    negotiation->joined[rank] = has_gpu ? DDPI_JOINED_WITH_GPU : DDPI_JOINED;
    negotiation->njoined++;
    negotiation->last_joined = rank;
}

static ddp_status take_request(struct ddpi_negotiation *negotiation, uint32_t rank,
                               const struct ddpi_tensor_request *request, uint64_t now_ms,
                               struct ddp_error *err)
{
    if (request->kind == DDPI_TENSOR_STOP) {
        if (!negotiation->stopped) {
            negotiation->stopped = true;
            negotiation->stopped_by = rank;
            negotiation->stop = *request;
        }
        return DDP_OK;
    }
    if (request->set != DDPI_SET_INTERNAL &&
        (request->set >= negotiation->nsets || !negotiation->sets[request->set].has[rank]))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "rank %" PRIu32 " wants tensor \"%s\" in process set %" PRIu32
                              ", which does not have that rank",
                              rank, request->name, request->set);
    struct ddpi_wanted_tensor *wanted =
        ddpi_name_table_find(&negotiation->names, request->set, request->name);
    if (wanted == NULL)
        wanted = want_first(negotiation, rank, request, now_ms);
    if (wanted == NULL)
        return ddpi_error_nomem(err, sizeof *wanted);
    if (wanted->come[rank] || (request->kind == DDPI_TENSOR_JOIN && negotiation->joined[rank]))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "rank %" PRIu32 " wants tensor \"%s\" twice",
                              rank, request->name);
    wanted->come[rank] = 1;
    wanted->ncome++;
    if (request->kind == DDPI_TENSOR_JOIN) { /* ranks need not all have a GPU */
        note_join(negotiation, rank, request->on_gpu);
        return DDP_OK;
    }
    compare(wanted, rank, request);
    return note_group(negotiation, wanted, rank, request, err);
}

ddp_status ddpi_negotiation_take(struct ddpi_negotiation *negotiation, uint32_t rank,
                                 const void *list, size_t len, uint64_t now_ms,
                                 struct ddp_error *err)
{
    struct ddpi_rd rd = ddpi_rd_of(list, len);
    struct ddpi_tensor_request request;
    ddp_status status = DDP_OK;
    while (status == DDP_OK && rd.left > 0) {
        if (!ddpi_tensor_request_read(&rd, &request))
            return ddpi_error_set(err, DDP_E_PROTOCOL,
                                  "rank %" PRIu32 " sent a list of tensors that cannot be read",
                                  rank);
        status = take_request(negotiation, rank, &request, now_ms, err);
    }
    return status;
}

/* ---- what is ready ---- */

bool ddpi_negotiation_takes_part(const struct ddpi_negotiation *negotiation, uint32_t rank,
                                 const struct ddpi_tensor_request *request)
{
    return ddpi_tensor_goes_on(request->kind) &&
           (!request->on_gpu || negotiation->joined[rank] == DDPI_JOINED_WITH_GPU);
}

/* Ranks of the set that have joined need not come; of a join itself all must. *@ret_joined is one
 * of them, if there is one that takes no part. */
static bool all_have_come(const struct ddpi_negotiation *negotiation,
                          const struct ddpi_wanted_tensor *wanted, uint32_t *ret_joined)
{
    const struct ddpi_tensor_request *request = &wanted->response.request;
    const struct ddpi_process_set *set = set_of(negotiation, request);
    uint32_t joined = 0;
    if (wanted->ncome == set->size)
        return true;
    if (request->kind == DDPI_TENSOR_JOIN || negotiation->njoined == 0)
        return false;
    for (uint32_t rank = 0; rank < negotiation->world_size; rank++)
        if (set->has[rank] && !wanted->come[rank] && negotiation->joined[rank]) {
            joined++;
            if (!ddpi_negotiation_takes_part(negotiation, rank, request))
                *ret_joined = rank;
        }
    return wanted->ncome + joined == set->size;
}

static void complete(struct ddpi_negotiation *negotiation, struct ddpi_wanted_tensor *wanted,
                     uint32_t joined)
{
    struct ddpi_tensor_response *response = &wanted->response;
    response->last_joined = negotiation->last_joined;
    if (joined == UINT32_MAX || response->failed)
        return;
    response->failed = true;
    if (ddpi_tensor_goes_on(response->request.kind))
        ddpi_error_set(&response->reason, DDP_E_MISMATCH,
                       "tensor \"%s\": rank %" PRIu32
                       " has joined before it had a tensor on a GPU, and cannot give zeros there: "
                       "enqueue one on all ranks before ddp_tensors_join()",
                       response->request.name, joined);
    else
        ddpi_error_set(
            &response->reason, DDP_E_MISMATCH,
            "tensor \"%s\": rank %" PRIu32
            " has joined, and takes no part in %s: call ddp_tensors_join() after it on all ranks",
            response->request.name, joined, ddpi_tensor_kind_name(response->request.kind));
    struct ddpi_tensor_group *group = wanted->group;
    if (group != NULL)
        fail_group(negotiation, group, &response->reason);
    drop_group_if_done(negotiation, group);
}

/* The tensors of a group become ready together. */
static void complete_member(struct ddpi_negotiation *negotiation, struct ddpi_wanted_tensor *wanted)
{
    struct ddpi_tensor_group *group = wanted->group;
    ddpi_list_remove(&wanted->link);
    ddpi_list_append(&group->complete, &wanted->link);
    if (++group->ncomplete < wanted->response.request.group_size)
        return;
    ddpi_list_for_each_safe (link, &group->complete) {
        struct ddpi_wanted_tensor *member =
            ddpi_container_of(link, struct ddpi_wanted_tensor, link);
        leave_group(member);
        become_ready(negotiation, member);
    }
    group->ncomplete = 0;
    drop_group_if_done(negotiation, group);
}

void ddpi_negotiation_settle(struct ddpi_negotiation *negotiation)
{
    struct ddpi_wanted_tensor *join = NULL;
    ddpi_list_for_each_safe (link, &negotiation->wanted) {
        struct ddpi_wanted_tensor *wanted =
            ddpi_container_of(link, struct ddpi_wanted_tensor, link);
        uint32_t joined = UINT32_MAX;
        if (!all_have_come(negotiation, wanted, &joined))
            continue;
        complete(negotiation, wanted, joined);
        if (wanted->response.request.kind == DDPI_TENSOR_JOIN)
            join = wanted;
        else if (wanted->group == NULL)
            become_ready(negotiation, wanted);
        else
            complete_member(negotiation, wanted);
    }
    /* A join comes after the tensors that it has completed. */
    if (join != NULL)
        become_ready(negotiation, join);
}

struct ddpi_wanted_tensor *ddpi_negotiation_next(struct ddpi_negotiation *negotiation)
{
    if (ddpi_list_empty(&negotiation->ready))
        return NULL;
    struct ddpi_wanted_tensor *wanted =
        ddpi_container_of(negotiation->ready.next, struct ddpi_wanted_tensor, link);
    ddpi_list_remove(&wanted->link);
    return wanted;
}

void ddpi_negotiation_missing(const struct ddpi_negotiation *negotiation,
                              const struct ddpi_wanted_tensor *wanted, char text[DDPI_RANKS_TEXT])
{
    const struct ddpi_process_set *set = set_of(negotiation, &wanted->response.request);
    uint32_t shown = 0, missing = 0;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t rank = 0; rank < negotiation->world_size; rank++) {
        if (!set->has[rank] || wanted->come[rank] || negotiation->joined[rank])
            continue;
        if (missing++ < RANKS_SHOWN)
            used += (size_t)snprintf(text + used, DDPI_RANKS_TEXT - used, "%s%" PRIu32,
                                     shown++ > 0 ? ", " : "", rank);
    }
    if (missing > shown)
        snprintf(text + used, DDPI_RANKS_TEXT - used, " and %" PRIu32 " more", missing - shown);
}
