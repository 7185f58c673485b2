/*
 * sim.c - time, chance, the queue of events and the network of a simulated job.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_random(struct sim *sim, uint64_t below)
{
    uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

void sim_trace(struct sim *sim, const char *format, ...)
{
    if (!sim->trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%8llu ", (unsigned long long)sim->now_ms);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

void sim_break(struct sim *sim, const char *format, ...)
{
    if (sim->broken[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sim->broken, sizeof sim->broken, format, args);
    va_end(args);
    sim_trace(sim, "BROKEN: %s", sim->broken);
}

/* ---- the queue: a binary heap ---- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->seq < b->seq;
}

static void push(struct sim *sim, struct sim_event event)
{
    if (sim->event_count == sim->event_size) {
        sim->event_size = sim->event_size != 0 ? 2 * sim->event_size : 256;
        sim->events = realloc(sim->events, sim->event_size * sizeof *sim->events);
        if (sim->events == NULL)
            abort();
    }
    size_t at = sim->event_count++;
    for (; at > 0 && earlier(&event, &sim->events[(at - 1) / 2]); at = (at - 1) / 2)
        sim->events[at] = sim->events[(at - 1) / 2];
    sim->events[at] = event;
}

static struct sim_event pop(struct sim *sim)
{
    struct sim_event top = sim->events[0], last = sim->events[--sim->event_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < sim->event_count; at = child) {
        if (child + 1 < sim->event_count && earlier(&sim->events[child + 1], &sim->events[child]))
            child++;
        if (!earlier(&sim->events[child], &last))
            break;
        sim->events[at] = sim->events[child];
    }
    sim->events[at] = last;
    return top;
}

void sim_post(struct sim *sim, uint64_t after_ms, enum sim_kind kind, unsigned whose,
              uint64_t stamp)
{
    push(sim, (struct sim_event){.at_ms = sim->now_ms + after_ms,
                                 .seq = sim->seq++,
                                 .kind = kind,
                                 .whose = whose,
                                 .stamp = stamp});
}

/* ---- the network ---- */

void sim_send(struct sim *sim, unsigned index, bool up, const struct sim_message *message)
{
    struct sim_node *node = &sim->nodes[index];
    struct sim_link *link = up ? &node->up : &node->down;
    uint64_t at_ms = sim->now_ms + 1 + sim_random(sim, 10);
    if (sim_random(sim, 20) == 0)
        at_ms += sim_random(sim, 200);
    if (at_ms < link->last_arrival_ms)
        at_ms = link->last_arrival_ms;
    link->last_arrival_ms = at_ms;
    struct sim_message *copy = malloc(sizeof *copy);
    if (copy == NULL)
        abort();
    *copy = *message;
    push(sim, (struct sim_event){.at_ms = at_ms,
                                 .seq = sim->seq++,
                                 .kind = SIM_ARRIVAL,
                                 .whose = up ? SIM_SERVER : index,
                                 .stamp = index,
                                 .message = copy});
}

/* Until when @event must wait although its time has come. */
static uint64_t held_until(const struct sim *sim, const struct sim_event *event)
{
    const struct sim_node *node =
        &sim->nodes[event->whose == SIM_SERVER ? event->stamp : event->whose];
    uint64_t until_ms = 0;
    if (event->kind == SIM_FAULT)
        return 0;
    if (event->kind == SIM_ARRIVAL)
        until_ms = (event->whose == SIM_SERVER ? &node->up : &node->down)->cut_until_ms;
    if (event->whose != SIM_SERVER && event->kind != SIM_BOOT && node->paused_until_ms > until_ms)
        until_ms = node->paused_until_ms;
    return until_ms;
}

/* ---- clocks ---- */

uint64_t sim_clock(const struct sim *sim, int drift)
{
    return sim->now_ms + (uint64_t)((int64_t)sim->now_ms * drift / 1000) + 1000;
}

uint64_t sim_until(const struct sim *sim, int drift, uint64_t local_ms)
{
    uint64_t now_ms = sim_clock(sim, drift);
    return local_ms <= now_ms ? 0 : (local_ms - now_ms) * 1000 / (uint64_t)(1000 + drift) + 1;
}

/* ---- the run ---- */

void sim_run(struct sim *sim, uint64_t until_ms)
{
    while (sim->event_count > 0 && sim->events[0].at_ms <= until_ms && sim->broken[0] == '\0') {
        struct sim_event event = pop(sim);
        sim->now_ms = event.at_ms;
        uint64_t held_ms = held_until(sim, &event);
        if (held_ms > sim->now_ms) {
            event.at_ms = held_ms; /* with its old number, so that order is kept */
            push(sim, event);
            continue;
        }
        if (event.kind == SIM_FAULT)
            sim_fault(sim);
        else if (event.whose == SIM_SERVER)
            sim_server_event(&sim->server, &event);
        else
            sim_node_event(&sim->nodes[event.whose], &event);
        free(event.message);
    }
    sim->now_ms = until_ms;
}

void sim_finish(struct sim *sim)
{
    while (sim->event_count > 0)
        free(pop(sim).message);
    free(sim->events);
    ddpi_rounds_destroy(sim->server.rounds);
}
