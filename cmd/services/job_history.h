/*
 * job_history.h - what has happened to a job while it was watched: its latest generations, and how
 * long its recoveries took. Pure: it is told each summary of the job, and the time.
 */
#ifndef CMD_HISTORY_H
#define CMD_HISTORY_H

#include "rounds.h"

enum { HISTORY_EVENTS = 64, HISTORY_BUCKETS = 12 };

/* The phases of a recovery, each measured from its cause. */
enum history_phase { HISTORY_IDLE, HISTORY_SEATED, HISTORY_RUNNING, HISTORY_PHASES };

const char *history_phase_name(enum history_phase phase);

/* The upper bounds of the buckets, in ms; a last one has no bound. */
extern const uint64_t history_bounds_ms[HISTORY_BUCKETS];

struct history_event {
    uint64_t generation;
    uint64_t began_ms;                    /* CLOCK_REALTIME, when this was learned */
    char reason[DDP_ROUND_TEXT_SIZE];     /* why it had to begin; "": it is the first */
    uint64_t recovery_ms[HISTORY_PHASES]; /* 0: not yet, or not known */
};

struct history_histogram {
    uint64_t counts[HISTORY_BUCKETS + 1];
    uint64_t count;
    uint64_t sum_ms;
};

struct job_history {
    struct history_event events[HISTORY_EVENTS]; /* a ring: the latest is at @count - 1 */
    uint64_t count;                              /* of all */
    struct history_histogram histograms[HISTORY_PHASES];
};

/* A zeroed struct is an empty history. */
void job_history_take(struct job_history *history, const struct ddpi_rounds_summary *summary,
                      uint64_t now_ms);

/* The event @index places before the latest; NULL: there is none. */
const struct history_event *job_history_back(const struct job_history *history, uint64_t index);

#endif
