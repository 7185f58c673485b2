/*
 * terms.c - the terms of a job, and the texts and seats that carry them. Owns nothing.
 */
#include "rounds_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void ddpi_rounds_say(char *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    memset(text, 0, DDP_ROUND_TEXT_SIZE);
    (void)vsnprintf(text, DDP_ROUND_TEXT_SIZE, format, args);
    va_end(args);
}

uint32_t ddpi_rounds_min(const struct ddpi_rounds *rounds)
{
    const struct ddpi_rounds_wish *wish = &rounds->wish;
    uint32_t min = wish->min_nodes != 0 ? wish->min_nodes : rounds->terms.min_nodes;
    if (wish->min_nodes == 0 && wish->max_nodes != 0 && min > wish->max_nodes)
        min = wish->max_nodes;
    return min != 0 ? min : 1;
}

uint32_t ddpi_rounds_max(const struct ddpi_rounds *rounds)
{
    uint32_t max = rounds->wish.max_nodes != 0 ? rounds->wish.max_nodes : rounds->terms.max_nodes;
    uint32_t min = ddpi_rounds_min(rounds);
    return max > min ? max : min;
}

bool ddpi_rounds_terms_differ(const struct ddp_round_terms *job, const struct ddp_round_terms *own,
                              char *text)
{
    static const struct {
        const char *what;
        size_t at;
    } numbers[] = {
        {"MIN of --nnodes", offsetof(struct ddp_round_terms, min_nodes)},
        {"MAX of --nnodes", offsetof(struct ddp_round_terms, max_nodes)},
        {"--max-restarts", offsetof(struct ddp_round_terms, max_restarts)},
        {"--settle (in ms)", offsetof(struct ddp_round_terms, settle_ms)},
        {"--lease (in ms)", offsetof(struct ddp_round_terms, lease_ms)},
        {"--crash-loop", offsetof(struct ddp_round_terms, crash_loop)},
        {"--quarantine", offsetof(struct ddp_round_terms, quarantine)},
    };
    static const char *const joins[] = {"now", "checkpoint", "never"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t theirs, ours;
        memcpy(&theirs, (const char *)job + numbers[i].at, sizeof theirs);
        memcpy(&ours, (const char *)own + numbers[i].at, sizeof ours);
        if (theirs == ours)
            continue;
        if (text != NULL)
            ddpi_rounds_say(text,
                            "%s is %u on this node and %u in the job; start all nodes with the "
                            "same settings",
                            numbers[i].what, ours, theirs);
        return true;
    }
    if (job->join == own->join)
        return false;
    if (text != NULL)
        ddpi_rounds_say(text,
                        "--join-policy is '%s' on this node and '%s' in the job; start all nodes "
                        "with the same settings",
                        joins[own->join % 3], joins[job->join % 3]);
    return true;
}

void ddpi_rounds_copy_seat(struct ddp_round_seat *to, const struct ddp_round_seat *from)
{
    memset(to, 0, sizeof *to);
    to->order = from->order;
    to->generation = from->generation;
    to->failed = from->failed;
    to->spare = from->spare;
    to->exit_code = from->exit_code;
    to->node_rank = from->node_rank;
    to->nodes = from->nodes;
    to->first_rank = from->first_rank;
    to->world_size = from->world_size;
    to->restarts = from->restarts;
    to->role_first_rank = from->role_first_rank;
    to->role_world_size = from->role_world_size;
    to->most_workers = from->most_workers;
    to->left_out = from->left_out;
    to->pausing = from->pausing;
    to->check = from->check;
    to->master_port = from->master_port;
    ddpi_rounds_say(to->master_address, "%s", from->master_address);
    ddpi_rounds_say(to->text, "%s", from->text);
}

_Static_assert(DDP_ROUND_ADDRESS_SIZE == DDP_ROUND_TEXT_SIZE, "an address is copied as a text");
