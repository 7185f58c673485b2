/*
 * create_group.c - ddp_comm_create_group(): the lowest rank of the list gathers the cards of the
 * others by messages of the parent, and sends all of them to each. Owns the child until it is
 * complete. Lists of the same ranks in different orders have the same lowest rank, which so sees
 * the difference.
 *
 *     member --request: its list, its card--> lowest rank
 *     member <--finding, and the cards of all-- lowest rank
 *     member --finding: whether its child is complete--> lowest rank
 *     member <--finding of all-- lowest rank
 */
#include "api_impl.h"
#include "bytes.h"
#include "error.h"
#include "grouped_calls.h"
#include "mem.h"

#include <ddprun/comm_groups.h>
#include <stdio.h>

enum { LIST_TEXT = 80, LIST_END = 24 };

struct request {
    uint8_t count[4];
    uint8_t digest[8]; /* of the list */
    char list[LIST_TEXT];
    uint8_t card[DDPI_CARD_SLOT];
    struct ddpi_finding finding;
};
_Static_assert(sizeof(struct request) == 556, "requests have the same size on all machines");

struct group {
    struct ddp_comm *parent;
    const uint32_t *ranks;
    uint32_t count;
    uint32_t own;    /* this rank's place in the list */
    uint32_t lowest; /* that of the rank that gathers */
    struct ddp_comm *child;
    uint8_t *cards; /* a slot for each member */
    struct request request;
};

/* ---- the list ---- */

static void describe_list(const uint32_t *ranks, uint32_t count, char text[LIST_TEXT])
{
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (used + LIST_END > LIST_TEXT) {
            snprintf(text + used, LIST_TEXT - used, ", ... (%u)", count);
            return;
        }
        used +=
            (size_t)snprintf(text + used, LIST_TEXT - used, "%s%u", i > 0 ? ", " : "", ranks[i]);
    }
}

static void digest_list(const uint32_t *ranks, uint32_t count, uint8_t digest[8])
{
    uint64_t hash = ddpi_digest64(DDPI_DIGEST64_NONE, ranks, count * sizeof *ranks);
    ddpi_put32(digest, (uint32_t)hash);
    ddpi_put32(digest + 4, (uint32_t)(hash >> 32));
}

static ddp_status check_list(const struct ddp_comm *parent, const uint32_t *ranks, uint32_t count,
                             uint32_t *ret_own, uint32_t *ret_lowest, struct ddp_error *err)
{
    uint32_t lowest = 0;
    bool found = false;
    bool *seen = ddpi_calloc(parent->world_size, sizeof *seen);
    if (seen == NULL)
        return ddpi_error_nomem(err, parent->world_size);
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < count && status == DDP_OK; i++) {
        if (ranks[i] >= parent->world_size || seen[ranks[i]]) {
            status = ddpi_error_set(err, DDP_E_INVALID,
                                    ranks[i] >= parent->world_size
                                        ? "rank %d of the list does not exist among %u ranks"
                                        : "rank %d is in the list of ranks twice",
                                    (int)ranks[i], parent->world_size);
            break;
        }
        seen[ranks[i]] = true;
        if (ranks[i] < ranks[lowest])
            lowest = i;
        if (ranks[i] == parent->rank) {
            found = true;
            *ret_own = i;
        }
    }
    ddpi_free(seen);
    if (status == DDP_OK && !found)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "rank %u is not in the list of ranks: only its members make a group",
                              parent->rank);
    *ret_lowest = lowest;
    return status;
}

/* ---- the exchange ---- */

static ddp_status send_to(const struct group *group, uint32_t place, const void *bytes, size_t len,
                          struct ddp_error *err)
{
    const struct ddpi_call call = {.operation = DDPI_SEND,
                                   .count = len,
                                   .root = group->ranks[place],
                                   .message_class = DDPI_GROUP_MAKING};
    return ddpi_parent_call(group->parent, &call, bytes, NULL, err);
}

static ddp_status receive_from(const struct group *group, uint32_t place, void *bytes, size_t len,
                               struct ddp_error *err)
{
    const struct ddpi_call call = {.operation = DDPI_RECV,
                                   .count = len,
                                   .root = group->ranks[place],
                                   .message_class = DDPI_GROUP_MAKING};
    return ddpi_parent_call(group->parent, &call, NULL, bytes, err);
}

/* Open the child, and say how that went. */
static void fill_request(struct group *group)
{
    struct ddp_error cause = {0};
    struct request *request = &group->request;
    ddpi_put32(request->count, group->count);
    digest_list(group->ranks, group->count, request->digest);
    describe_list(group->ranks, group->count, request->list);
    ddp_status status = ddpi_child_open(group->parent, &group->child, &cause);
    if (status == DDP_OK && !ddpi_child_card(group->child, request->card))
        status = ddpi_error_nomem(&cause, DDPI_CARD_SLOT);
    if (status != DDP_OK)
        ddpi_error_wrap(&cause, status, "rank %u", group->parent->rank);
    ddpi_finding_fill(&request->finding, status, cause.msg);
}

static ddp_status compare_lists(const struct group *group, uint32_t place,
                                const struct request *theirs, struct ddp_error *err)
{
    const struct request *ours = &group->request;
    if (memcmp(theirs->count, ours->count, sizeof ours->count) == 0 &&
        memcmp(theirs->digest, ours->digest, sizeof ours->digest) == 0)
        return DDP_OK;
    struct ddpi_finding list;
    ddpi_finding_fill(&list, DDP_E_MISMATCH, "");
    snprintf(list.text, sizeof list.text, "%.*s", LIST_TEXT - 1, theirs->list);
    struct ddp_error cleaned;
    (void)ddpi_finding_result(&list, &cleaned);
    return ddpi_error_set(err, DDP_E_MISMATCH, "rank %u makes a group of %s, but rank %u of %s",
                          group->parent->rank, ours->list, group->ranks[place], cleaned.msg);
}

/* The lowest rank: @err is of the parent; *@ret_verdict, which all get, of the group. */
static ddp_status collect(struct group *group, struct ddpi_finding *ret_verdict,
                          struct ddp_error *err)
{
    struct ddp_error cause = {0};
    ddp_status verdict = ddpi_finding_result(&group->request.finding, &cause), status = DDP_OK;
    for (uint32_t place = 0; place < group->count && status == DDP_OK; place++) {
        struct request theirs = group->request;
        if (place != group->own)
            status = receive_from(group, place, &theirs, sizeof theirs, err);
        if (status != DDP_OK)
            return status;
        if (verdict == DDP_OK)
            verdict = compare_lists(group, place, &theirs, &cause);
        if (verdict == DDP_OK)
            verdict = ddpi_finding_result(&theirs.finding, &cause);
        memcpy(group->cards + (size_t)place * DDPI_CARD_SLOT, theirs.card, DDPI_CARD_SLOT);
    }
    ddpi_finding_fill(ret_verdict, verdict, cause.msg);
    for (uint32_t place = 0; place < group->count && status == DDP_OK; place++) {
        if (place == group->own)
            continue;
        status = send_to(group, place, ret_verdict, sizeof *ret_verdict, err);
        if (status == DDP_OK && verdict == DDP_OK)
            status =
                send_to(group, place, group->cards, (size_t)group->count * DDPI_CARD_SLOT, err);
    }
    return status;
}

/* The others. */
static ddp_status apply(struct group *group, struct ddpi_finding *ret_verdict,
                        struct ddp_error *err)
{
    ddp_status status = send_to(group, group->lowest, &group->request, sizeof group->request, err);
    if (status == DDP_OK)
        status = receive_from(group, group->lowest, ret_verdict, sizeof *ret_verdict, err);
    if (status != DDP_OK || ddpi_finding_result(ret_verdict, NULL) != DDP_OK)
        return status;
    return receive_from(group, group->lowest, group->cards, (size_t)group->count * DDPI_CARD_SLOT,
                        err);
}

/* All cards are here: the child gets its ranks. */
static ddp_status form_group(const struct group *group, struct ddp_error *err)
{
    ddp_status status = ddpi_child_place(group->child, group->own, group->count, err);
    for (uint32_t place = 0; place < group->count && status == DDP_OK; place++)
        ddpi_child_know(group->child, place, group->cards + (size_t)place * DDPI_CARD_SLOT);
    if (status == DDP_OK)
        status = ddpi_child_ready(group->child, group->parent, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "rank %u", group->parent->rank);
}

/* A rank may lack something until its child is complete: *@finding tells how it went here, and then
 * of all members. They succeed together. */
static ddp_status confirm(const struct group *group, struct ddpi_finding *finding,
                          struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (group->own != group->lowest) {
        status = send_to(group, group->lowest, finding, sizeof *finding, err);
        return status == DDP_OK ? receive_from(group, group->lowest, finding, sizeof *finding, err)
                                : status;
    }
    for (uint32_t place = 0; place < group->count && status == DDP_OK; place++) {
        struct ddpi_finding theirs;
        if (place == group->own)
            continue;
        status = receive_from(group, place, &theirs, sizeof theirs, err);
        if (status == DDP_OK && ddpi_finding_result(finding, NULL) == DDP_OK)
            *finding = theirs;
    }
    for (uint32_t place = 0; place < group->count && status == DDP_OK; place++)
        status =
            place == group->own ? DDP_OK : send_to(group, place, finding, sizeof *finding, err);
    return status;
}

static ddp_status run_group(struct group *group, struct ddp_error *err)
{
    struct ddpi_finding verdict;
    struct ddp_error cause = {0};
    group->cards = ddpi_calloc(group->count, DDPI_CARD_SLOT);
    if (group->cards == NULL)
        return ddpi_parent_give_up(group->parent, (unsigned long long)group->count * DDPI_CARD_SLOT,
                                   err);
    fill_request(group);
    ddp_status status =
        group->own == group->lowest ? collect(group, &verdict, err) : apply(group, &verdict, err);
    if (status == DDP_OK)
        status = ddpi_finding_result(&verdict, err);
    if (status != DDP_OK)
        return status;
    ddpi_finding_fill(&verdict, form_group(group, &cause), cause.msg);
    status = confirm(group, &verdict, err);
    return status == DDP_OK ? ddpi_finding_result(&verdict, err) : status;
}

ddp_status ddp_comm_create_group(ddp_comm *parent, const uint32_t *ranks, uint32_t count,
                                 ddp_comm **ret_comm, struct ddp_error *err)
{
    struct group group = {.parent = parent, .ranks = ranks, .count = count};
    ddp_status status = ddpi_comm_check_home(parent, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(parent, "ddp_comm_create_group", err);
    if (status == DDP_OK)
        status = check_list(parent, ranks, count, &group.own, &group.lowest, err);
    if (status != DDP_OK)
        return status;
    status = run_group(&group, err);
    if (status == DDP_OK)
        *ret_comm = group.child;
    else if (group.child != NULL)
        ddpi_comm_destroy(group.child);
    ddpi_free(group.cards);
    return status;
}
