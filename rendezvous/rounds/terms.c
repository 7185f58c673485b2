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

enum term_kind { TERM_NODES, TERM_COUNT, TERM_MS, TERM_JOIN, TERM_SWITCH };

struct term {
    const char *option;
    enum term_kind kind;
    size_t at; /* in struct ddp_round_terms */
};

/* As it is written behind its option. */
static void put_term(const struct term *term, const struct ddp_round_terms *terms,
                     char text[ROUND_TERM_SIZE])
{
    static const char *const joins[] = {"now", "checkpoint", "never"};
    const void *value = (const char *)terms + term->at;
    uint32_t number = term->kind == TERM_SWITCH ? *(const bool *)value : *(const uint32_t *)value;
    if (term->kind == TERM_NODES && terms->min_nodes != terms->max_nodes)
        (void)snprintf(text, ROUND_TERM_SIZE, "%u:%u", terms->min_nodes, terms->max_nodes);
    else if (term->kind == TERM_JOIN)
        (void)snprintf(text, ROUND_TERM_SIZE, "%s", joins[number % 3]);
    else if (term->kind == TERM_SWITCH)
        (void)snprintf(text, ROUND_TERM_SIZE, "%s", number != 0 ? "on" : "off");
    else
        (void)snprintf(text, ROUND_TERM_SIZE, "%u%s", number, term->kind == TERM_MS ? "ms" : "");
}

bool ddpi_rounds_terms_differ(const struct ddp_round_terms *job, const struct ddp_round_terms *own,
                              struct round_difference *ret)
{
    static const struct term terms[] = {
        {"--nnodes", TERM_NODES, offsetof(struct ddp_round_terms, min_nodes)},
        {"--max-restarts", TERM_COUNT, offsetof(struct ddp_round_terms, max_restarts)},
        {"--settle", TERM_MS, offsetof(struct ddp_round_terms, settle_ms)},
        {"--lease", TERM_MS, offsetof(struct ddp_round_terms, lease_ms)},
        {"--crash-loop", TERM_COUNT, offsetof(struct ddp_round_terms, crash_loop)},
        {"--quarantine", TERM_COUNT, offsetof(struct ddp_round_terms, quarantine)},
        {"--join-policy", TERM_JOIN, offsetof(struct ddp_round_terms, join)},
        {"--tf-config", TERM_SWITCH, offsetof(struct ddp_round_terms, worker_ports)},
    };
    for (size_t i = 0; i < sizeof terms / sizeof *terms; i++) {
        put_term(&terms[i], job, ret->job);
        put_term(&terms[i], own, ret->own);
        ret->option = terms[i].option;
        if (strcmp(ret->job, ret->own) != 0)
            return true;
    }
    return false;
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
    to->coordinator_port = from->coordinator_port;
    ddpi_rounds_say(to->master_address, "%s", from->master_address);
    ddpi_rounds_say(to->coordinator_address, "%s", from->coordinator_address);
    ddpi_rounds_say(to->text, "%s", from->text);
    ddpi_rounds_say(to->notice, "%s", from->notice);
}

_Static_assert(sizeof(enum ddp_round_join) == sizeof(uint32_t), "it is read as a number");
_Static_assert(DDP_ROUND_ADDRESS_SIZE == DDP_ROUND_TEXT_SIZE, "an address is copied as a text");
