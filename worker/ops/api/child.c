/*
 * child.c - a communicator of some ranks of another one, while it is being made. Owns nothing: the
 * child belongs to its caller. Sends nothing.
 */
#include "api_impl.h"

#include "error.h"
#include "tls.h"

#include <inttypes.h>
#include <stdio.h>

static ddp_status open_meeting(const struct ddp_comm *parent, struct ddp_comm *child,
                               struct ddp_error *err)
{
    const struct ddpi_meeting *model = &parent->edges.meeting;
    struct ddpi_edges *edges = &child->edges;
    ddp_status status =
        ddpi_meeting_open(&edges->meeting, child->bell, &model->key,
                          model->tcp_listener >= 0 ? &model->card.tcp : NULL, model->card.shm, err);
    memcpy(edges->meeting.card.machine, model->card.machine, sizeof model->card.machine);
    edges->meeting.card.sockets = model->card.sockets;
    if (status != DDP_OK || parent->edges.tls == NULL)
        return status;
    status = ddpi_tls_engine_create(&edges->tls, err);
    edges->meeting.tls = edges->tls;
    return status;
}

ddp_status ddpi_child_open(const struct ddp_comm *parent, struct ddp_comm **ret_child,
                           struct ddp_error *err)
{
    const struct ddpi_config config = {
        .timeout_ms = parent->timeout_ms, .algorithm = parent->algorithm, .table = parent->table};
    struct ddp_comm *child;
    ddp_status status = ddpi_comm_create(&config, parent->memories.types, &child, err);
    if (status != DDP_OK)
        return ddpi_error_advise_descriptors(err, status);
    child->device = parent->device;
    child->life = ddpi_life_share(parent->life); /* the parent may be destroyed first */
    child->crowded = parent->crowded;
    child->spin_limit = parent->spin_limit;
    child->yield_limit = parent->yield_limit;
    if (parent->world_size > 1)
        status = open_meeting(parent, child, err);
    if (status == DDP_OK)
        *ret_child = child;
    else
        ddpi_comm_destroy(child);
    return ddpi_error_advise_descriptors(err, status);
}

bool ddpi_child_card(const struct ddp_comm *child, uint8_t slot[DDPI_CARD_SLOT])
{
    return ddpi_card_put(&child->edges.meeting.card, slot);
}

ddp_status ddpi_child_place(struct ddp_comm *child, uint32_t rank, uint32_t size,
                            struct ddp_error *err)
{
    ddp_status status = ddpi_comm_place(child, rank, size, err);
    child->seq = child->unfinished = 1;
    if (status == DDP_OK && size > 1)
        return ddpi_meeting_place(&child->edges.meeting, rank, size, err);
    ddpi_meeting_finish(&child->edges.meeting);
    return status;
}

void ddpi_child_know(struct ddp_comm *child, uint32_t rank, const uint8_t slot[DDPI_CARD_SLOT])
{
    if (rank != child->rank)
        memcpy(ddpi_meeting_slot(&child->edges.meeting, rank), slot, DDPI_CARD_SLOT);
}

/* Groups have no names: the id of their first rank's card tells them apart. */
static void record_child(struct ddp_comm *child, const struct ddp_comm *parent,
                         const uint8_t id[DDPI_CARD_ID])
{
    char name[32];
    struct ddpi_recorder_group group = {
        .name = name, .rank = child->rank, .size = child->world_size};
    memcpy(&group.id, id, sizeof group.id);
    snprintf(name, sizeof name, "group %016" PRIx64, group.id);
    child->recorder = ddpi_recorder_open_child(parent->recorder, &group);
}

ddp_status ddpi_child_ready(struct ddp_comm *child, const struct ddp_comm *parent,
                            struct ddp_error *err)
{
    static const char purpose[] = "ddprun group 1";
    struct ddpi_meeting *meeting = &child->edges.meeting;
    struct ddpi_card first;
    if (child->world_size == 1)
        return DDP_OK;
    if (!ddpi_card_get(ddpi_meeting_slot(meeting, 0), &first))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the card of rank 0 of the group is from another version of "
                              "libddpcomm");
    uint8_t info[sizeof purpose + DDPI_CARD_ID];
    memcpy(info, purpose, sizeof purpose);
    memcpy(info + sizeof purpose, first.id, sizeof first.id);
    ddpi_hkdf_expand(parent->edges.meeting.key.bytes, info, sizeof info, meeting->key.bytes,
                     sizeof meeting->key.bytes);
    record_child(child, parent, first.id);
    return ddpi_edges_open(&child->edges, err);
}
