/*
 * events.h - what happens to the job on this node, as a log of lines of JSON (docs/events.md): when
 * a failure was noticed, when nothing ran any more, when this node met the others again, and when
 * its workers ran again. Told by membership.c; decides what belongs to one recovery.
 *
 * An outer edge, which never holds the job up: what the disk or the reader does not take at once is
 * left out, and said once.
 */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H

#include "logmux.h"

#include <ddprun/round.h>

#define EVENTS(X)                                     \
    X(FAILURE_DETECTED, failure_detected)             \
    X(WORKER_TERMINATED, worker_terminated)           \
    X(RENDEZVOUS_STARTED, rendezvous_started)         \
    X(RENDEZVOUS_COMPLETED, rendezvous_completed)     \
    X(WORKER_START_STARTED, worker_start_started)     \
    X(WORKER_START_COMPLETED, worker_start_completed) \
    X(JOB_ENDED, job_ended)

/* Where the lines go. */
struct event_log {
    int fd;       /* of a file or a FIFO; -1: none */
    bool console; /* to the agent's standard error, whole lines between the others */
};

/* Open @path to append to it; "-": standard error. The sentence names the path. */
DDP_MUST_CHECK ddp_status event_log_open(struct event_log *log, const char *path,
                                         struct ddp_error *err);

/* Of one that was opened. */
void event_log_close(struct event_log *log);

/* Strings and pointers are borrowed. */
struct events {
    const struct event_log *log; /* NULL: nobody wants to know */
    struct logmux *mux;
    const char *job;
    const char *node;
    struct ddp_round_seat seat; /* as taken last; generation 0: none yet */
    uint64_t failure_us;        /* when the failure was noticed from which we recover */
    char reason[DDP_ROUND_TEXT_SIZE];
    bool failing; /* from failure_detected to worker_start_completed */
    bool meeting; /* from rendezvous_started to rendezvous_completed */
    bool told;    /* that lines are missing */
    bool torn;    /* the last line was written in part */
};

void events_init(struct events *events, const struct event_log *log, struct logmux *mux,
                 const char *job, const char *node);

/* The generation that was started here last has failed, here or elsewhere: the first word of it
 * counts until workers run again. */
void events_failure(struct events *events, const char *why);

/* It is ended, because of @why. */
void events_ending(struct events *events, const char *why);

/* Nothing of it is left here. */
void events_terminated(struct events *events);

/* This node has no seat in a generation, and waits for one. May be told again. */
void events_meeting(struct events *events);

/* It has one, and is about to start its workers; they all run. */
void events_seated(struct events *events, const struct ddp_round_seat *seat);
void events_started(struct events *events);

/* It is over for this node. */
void events_over(struct events *events, int exit_code, const char *why);

#endif
