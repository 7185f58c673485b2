/*
 * split.c - ddp_comm_split(): all ranks of the parent pass their colours, keys and cards round;
 * then each knows its group, and how to reach it. Owns the child until it is complete.
 */
#include "api_impl.h"
#include "error.h"
#include "group_order.h"
#include "grouped_calls.h"
#include "mem.h"

#include <ddprun/comm_groups.h>

/* What a rank tells all others. */
struct record {
    uint8_t color[4], key[4];
    uint8_t card[DDPI_CARD_SLOT]; /* zeros: it wants no communicator */
    struct ddpi_finding finding;
};
_Static_assert(sizeof(struct record) == 472, "records have the same size on all machines");

struct split {
    struct ddp_comm *parent;
    struct ddp_comm *child; /* NULL: none */
    struct record *records; /* by rank of the parent */
    struct ddpi_choice *choices;
    uint32_t *members; /* ranks of the parent, by rank of the child */
    uint32_t size;     /* of the child; 0: not known, or none */
};

/* Open the child, and tell the others how that went. */
static void fill_record(struct split *split, int32_t color, int32_t key)
{
    struct ddp_error cause = {0};
    struct record *own = &split->records[split->parent->rank];
    ddp_status status = DDP_OK;
    ddpi_put32(own->color, (uint32_t)color);
    ddpi_put32(own->key, (uint32_t)key);
    if (color != DDP_NO_COLOR)
        status = ddpi_child_open(split->parent, &split->child, &cause);
    if (status == DDP_OK && split->child != NULL && !ddpi_child_card(split->child, own->card))
        status = ddpi_error_nomem(&cause, DDPI_CARD_SLOT);
    if (status != DDP_OK)
        ddpi_error_wrap(&cause, status, "rank %u", split->parent->rank);
    ddpi_finding_fill(&own->finding, status, cause.msg);
}

static ddp_status exchange_records(const struct split *split, struct ddp_error *err)
{
    const struct ddpi_call call = {.operation = DDPI_ALL_GATHER, .count = sizeof *split->records};
    ddp_status status = ddpi_parent_call(split->parent, &call, &split->records[split->parent->rank],
                                         split->records, err);
    for (uint32_t rank = 0; rank < split->parent->world_size; rank++)
        split->choices[rank] =
            (struct ddpi_choice){.color = (int32_t)ddpi_get32(split->records[rank].color),
                                 .key = (int32_t)ddpi_get32(split->records[rank].key)};
    return status;
}

/* The first member that could not do its part. */
static ddp_status find_failure(const struct split *split, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t rank = 0; rank < split->size && status == DDP_OK; rank++)
        status = ddpi_finding_result(&split->records[split->members[rank]].finding, err);
    return status;
}

/* All records are here, and each rank has opened its child: that gets its ranks. */
static ddp_status form_group(const struct split *split, uint32_t place, struct ddp_error *err)
{
    ddp_status status = ddpi_child_place(split->child, place, split->size, err);
    for (uint32_t rank = 0; rank < split->size && status == DDP_OK; rank++)
        ddpi_child_know(split->child, rank, split->records[split->members[rank]].card);
    if (status == DDP_OK)
        status = ddpi_child_ready(split->child, split->parent, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "rank %u", split->parent->rank);
}

/* A rank may lack something until its child is complete. So all tell each other again how it went:
 * the members of a group succeed together. */
static ddp_status complete_group(struct split *split, struct ddp_error *err)
{
    const struct ddp_comm *parent = split->parent;
    struct record *own = &split->records[parent->rank];
    struct ddp_error cause = {0};
    uint32_t place = 0;
    if (split->choices[parent->rank].color != DDP_NO_COLOR)
        split->size = ddpi_group_order(split->choices, parent->world_size, parent->rank,
                                       split->members, &place);
    ddp_status status = find_failure(split, &cause);
    if (status == DDP_OK && split->size > 0)
        status = form_group(split, place, &cause);
    ddpi_finding_fill(&own->finding, status, cause.msg);
    status = exchange_records(split, err);
    return status == DDP_OK ? find_failure(split, err) : status;
}

static ddp_status run_split(struct split *split, int32_t color, int32_t key, struct ddp_error *err)
{
    uint32_t ranks = split->parent->world_size;
    split->records = ddpi_calloc(ranks, sizeof *split->records);
    split->choices = ddpi_calloc(ranks, sizeof *split->choices);
    split->members = ddpi_calloc(ranks, sizeof *split->members);
    if (split->records == NULL || split->choices == NULL || split->members == NULL)
        return ddpi_parent_give_up(split->parent,
                                   (unsigned long long)ranks * sizeof *split->records, err);
    fill_record(split, color, key);
    ddp_status status = exchange_records(split, err);
    return status == DDP_OK ? complete_group(split, err) : status;
}

ddp_status ddp_comm_split(ddp_comm *parent, int32_t color, int32_t key, ddp_comm **ret_comm,
                          struct ddp_error *err)
{
    struct split split = {.parent = parent};
    ddp_status status = ddpi_comm_check_home(parent, err);
    if (status == DDP_OK)
        status = ddpi_group_refuse(parent, "ddp_comm_split", err);
    if (status != DDP_OK)
        return status;
    if (color < 0 && color != DDP_NO_COLOR)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%d is not a colour: pass 0 or more, or DDP_NO_COLOR", color);
    status = run_split(&split, color, key, err);
    if (status == DDP_OK)
        *ret_comm = split.child;
    else if (split.child != NULL)
        ddpi_comm_destroy(split.child);
    ddpi_free(split.records);
    ddpi_free(split.choices);
    ddpi_free(split.members);
    return status;
}

ddp_status ddp_comm_split_grid(ddp_comm *parent, const struct ddp_grid *grid, const uint32_t *axes,
                               uint32_t naxes, ddp_comm **ret_comm, struct ddp_error *err)
{
    struct ddp_grid_group group;
    if (ddp_grid_size(grid) != parent->world_size)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the grid has %u ranks, but the communicator has %u",
                              ddp_grid_size(grid), parent->world_size);
    ddp_status status = ddp_grid_find_group(grid, parent->rank, axes, naxes, &group, err);
    return status == DDP_OK
               ? ddp_comm_split(parent, (int32_t)group.index, (int32_t)group.rank, ret_comm, err)
               : status;
}
