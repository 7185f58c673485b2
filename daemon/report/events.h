/*
 * events.h - the log of events: what happens to the job on this node, as lines of JSON
 * (docs/events.md). membership.c reports events; this module decides which belong to one recovery.
 *
 * It never blocks the job: what the disk or the reader does not take at once is dropped, and the
 * console reports that once.
 */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H

#include "logmux.h"

#include <ddprun/round.h>

#define EVENTS(X)                                     \
    X(FAILURE_DETECTED, failure_detected)             \
    X(WORKER_TERMINATED, worker_terminated)           \
    X(RENDEZVOUS_STARTED, rendezvous_started)         \
    X(HEALTH_CHECK_COMPLETED, health_check_completed) \
    X(RENDEZVOUS_COMPLETED, rendezvous_completed)     \
    X(WORKER_START_STARTED, worker_start_started)     \
    X(WORKER_START_COMPLETED, worker_start_completed) \
    X(NODE_LEFT_OUT, node_left_out)                   \
    X(STORE_LEADER_CHANGED, store_leader_changed)     \
    X(MEMBER_LOST, member_lost)                       \
    X(MEMBER_REPLACED, member_replaced)               \
    X(MEMBER_RETURNED, member_returned)               \
    X(JOB_ENDED, job_ended)

enum event {
#define EVENT_ENUM(symbol, name) EVENT_##symbol,
    EVENTS(EVENT_ENUM)
#undef EVENT_ENUM
};

/* Where the lines go. */
struct event_log {
    int fd;       /* of a file or FIFO; -1: none */
    bool console; /* to the agent's standard error, as whole lines */
};

/* Open @path for appending; "-": standard error. @err names the path. */
DDP_MUST_CHECK ddp_status event_log_open(struct event_log *log, const char *path,
                                         struct ddp_error *err);

void event_log_close(struct event_log *log);

/* Strings and pointers are borrowed. */
struct events {
    const struct event_log *log; /* NULL: no log */
    struct logmux *mux;
    const char *job;
    const char *node;
    struct ddp_round_seat seat; /* the last one; generation 0: none yet */
    uint64_t failure_us;        /* when the failure of the current recovery was detected */
    char reason[DDP_ROUND_TEXT_SIZE];
    bool failing; /* from failure_detected to worker_start_completed */
    bool meeting; /* from rendezvous_started to rendezvous_completed */
    bool told;    /* the console has reported missing lines */
    bool torn;    /* only part of the last line was written */
};

void events_init(struct events *events, const struct event_log *log, struct logmux *mux,
                 const char *job, const char *node);

/* The generation that this node started last has failed, here or on another node. Further calls are
 * ignored until workers run again. */
void events_failure(struct events *events, const char *why);

/* The generation is being ended because of @why. */
void events_ending(struct events *events, const char *why);

/* No process of it is left on this node. */
void events_terminated(struct events *events);

/* This node waits for a seat. May be called again. */
void events_meeting(struct events *events);

/* It has a seat and starts its workers; they all run. */
void events_seated(struct events *events, const struct ddp_round_seat *seat);
void events_started(struct events *events);

/* The node check has ended; @why the node is not fit, "": it is. */
void events_checked(struct events *events, const char *why);

/* This node gets no seat until it is admitted. */
void events_left_out(struct events *events, const char *why);

/* One of the four events of a store on three machines: @endpoint is that of the machine. */
void events_store(struct events *events, enum event event, const char *endpoint, const char *why);

/* The job is over for this node. */
void events_over(struct events *events, int exit_code, const char *why);

#endif
