/*
 * call_group.c - the order of the calls of a group. Owns the calls that it contains. Pure.
 */
#include "call_group.h"

#include "mem.h"

static struct ddpi_grouped_call *call_at(struct ddpi_list *link)
{
    return ddpi_container_of(link, struct ddpi_grouped_call, link);
}

void ddpi_call_group_init(struct ddpi_call_group *group)
{
    for (unsigned i = 0; i < DDPI_PLACES; i++)
        ddpi_list_init(&group->places[i]);
}

/* What sender and receiver both know of a message. */
struct message_place {
    uint32_t lower, higher; /* the two ranks */
    bool second;            /* to the lower rank; of a message to oneself: the receive */
    uint32_t tag;
};

static struct message_place message_place(const struct ddpi_call *call, uint32_t rank)
{
    bool is_lower = rank <= call->root;
    return (struct message_place){.lower = is_lower ? rank : call->root,
                                  .higher = is_lower ? call->root : rank,
                                  .second = (call->operation == DDPI_SEND) != is_lower,
                                  .tag = call->tag};
}

static bool is_before(const struct message_place *a, const struct message_place *b)
{
    if (a->lower != b->lower)
        return a->lower < b->lower;
    if (a->higher != b->higher)
        return a->higher < b->higher;
    if (a->second != b->second)
        return b->second;
    return a->tag < b->tag;
}

/* Put @call before all that come after it; messages alike stay in the order of the calls. */
static void add_sorted(struct ddpi_list *head, struct ddpi_grouped_call *call, uint32_t rank)
{
    struct message_place place = message_place(&call->run.task.call, rank);
    struct ddpi_list *after = head->prev;
    for (; after != head; after = after->prev) {
        struct message_place other = message_place(&call_at(after)->run.task.call, rank);
        if (!is_before(&place, &other))
            break;
    }
    ddpi_list_append(after->next, &call->link);
}

void ddpi_call_group_add(struct ddpi_call_group *group, struct ddpi_grouped_call *call,
                         uint32_t rank)
{
    ddpi_list_init(&call->link);
    if (!ddpi_call_shape(&call->run.task.call)->message)
        ddpi_list_append(&group->places[DDPI_COLLECTIVES], &call->link);
    else if (call->memory->type->enqueues)
        add_sorted(&group->places[DDPI_DEVICE_MESSAGES], call, rank);
    else
        ddpi_list_append(&group->places[DDPI_HOST_MESSAGES], &call->link);
}

struct ddpi_grouped_call *ddpi_call_group_take(struct ddpi_call_group *group)
{
    for (unsigned i = 0; i < DDPI_PLACES; i++) {
        struct ddpi_list *head = &group->places[i];
        if (ddpi_list_empty(head))
            continue;
        struct ddpi_grouped_call *call = call_at(head->next);
        ddpi_list_remove(&call->link);
        return call;
    }
    return NULL;
}

void ddpi_call_group_move(struct ddpi_call_group *to, struct ddpi_call_group *from)
{
    for (unsigned i = 0; i < DDPI_PLACES; i++)
        ddpi_list_for_each_safe (node, &from->places[i]) {
            ddpi_list_remove(node);
            ddpi_list_append(&to->places[i], node);
        }
}

void ddpi_call_group_clear(struct ddpi_call_group *group)
{
    for (struct ddpi_grouped_call *call; (call = ddpi_call_group_take(group)) != NULL;)
        ddpi_free(call);
}
