/*
 * job_history.c - see job_history.h. A phase of a recovery is counted once, when its duration is
 * told.
 */
#include "job_history.h"

#include <string.h>

const uint64_t history_bounds_ms[HISTORY_BUCKETS] = {10,   25,   50,   100,   250,   500,
                                                     1000, 2500, 5000, 10000, 30000, 60000};

const char *history_phase_name(enum history_phase phase)
{
    static const char *const names[] = {"idle", "seated", "running"};
    return names[phase];
}

static void count_duration(struct history_histogram *histogram, uint64_t ms)
{
    unsigned i = 0;
    while (i < HISTORY_BUCKETS && ms > history_bounds_ms[i])
        i++;
    histogram->counts[i]++;
    histogram->count++;
    histogram->sum_ms += ms;
}

static struct history_event *latest(struct job_history *history)
{
    return &history->events[(history->count + HISTORY_EVENTS - 1) % HISTORY_EVENTS];
}

static void begin_generation(struct job_history *history, const struct ddpi_rounds_summary *summary,
                             uint64_t now_ms)
{
    history->count++;
    struct history_event *event = latest(history);
    *event = (struct history_event){.generation = summary->generation, .began_ms = now_ms};
    memcpy(event->reason, summary->reason, sizeof event->reason);
}

void job_history_take(struct job_history *history, const struct ddpi_rounds_summary *summary,
                      uint64_t now_ms)
{
    const uint64_t ms[HISTORY_PHASES] = {summary->idle_ms, summary->seated_ms, summary->running_ms};
    if (summary->generation == 0)
        return;
    if (history->count == 0 || latest(history)->generation != summary->generation)
        begin_generation(history, summary, now_ms);
    struct history_event *event = latest(history);
    if (summary->state != ROUNDS_RUNNING) /* these durations are of the next generation */
        return;
    for (unsigned i = 0; i < HISTORY_PHASES; i++) {
        if (ms[i] != 0 && event->recovery_ms[i] == 0)
            count_duration(&history->histograms[i], ms[i]);
        event->recovery_ms[i] = ms[i] != 0 ? ms[i] : event->recovery_ms[i];
    }
}

const struct history_event *job_history_back(const struct job_history *history, uint64_t index)
{
    if (index >= history->count || index >= HISTORY_EVENTS)
        return NULL;
    return &history->events[(history->count - 1 - index) % HISTORY_EVENTS];
}
