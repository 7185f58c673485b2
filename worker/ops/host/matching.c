/*
 * matching.c - which receive takes which message. Pure; owns nothing.
 */
#include "matching.h"

void ddpi_matching_init(struct ddpi_matching *matching)
{
    ddpi_list_init(&matching->receives);
    ddpi_list_init(&matching->messages);
}

struct ddpi_envelope ddpi_envelope_of(const struct ddpi_call *call, uint32_t sender)
{
    return (struct ddpi_envelope){.message_class = call->message_class,
                                  .peer = sender,
                                  .tag = call->tag,
                                  .seq = call->message_class == DDPI_PIECE ? call->seq : 0};
}

static bool takes(const struct ddpi_envelope *receive, const struct ddpi_envelope *message)
{
    return receive->message_class == message->message_class && receive->tag == message->tag &&
           receive->seq == message->seq &&
           (receive->peer == message->peer || receive->peer == DDP_ANY_RANK);
}

static struct ddpi_match *match_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_match, link);
}

struct ddpi_match *ddpi_matching_take_receive(struct ddpi_matching *matching,
                                              const struct ddpi_envelope *envelope)
{
    ddpi_list_for_each (node, &matching->receives)
        if (takes(&match_of(node)->envelope, envelope)) {
            ddpi_list_remove(node);
            return match_of(node);
        }
    return NULL;
}

struct ddpi_match *ddpi_matching_take_message(struct ddpi_matching *matching,
                                              const struct ddpi_envelope *envelope)
{
    ddpi_list_for_each (node, &matching->messages)
        if (takes(envelope, &match_of(node)->envelope)) {
            ddpi_list_remove(node);
            return match_of(node);
        }
    return NULL;
}

void ddpi_matching_add_receive(struct ddpi_matching *matching, struct ddpi_match *match)
{
    ddpi_list_append(&matching->receives, &match->link);
}

void ddpi_matching_add_message(struct ddpi_matching *matching, struct ddpi_match *match)
{
    ddpi_list_append(&matching->messages, &match->link);
}
