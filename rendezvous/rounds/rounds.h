/*
 * rounds.h - the round machine of one job: who is a member, who has which seat, when a generation
 * starts and when it must end. Pure: it is told what has happened and what time it is, and calls
 * its hooks with what follows; no descriptor, clock, log or key inside.
 *
 *     FORMING --seats given--> RUNNING --a reason to stop--> STOPPING --all is quiet--> FORMING
 *        |                        |                             |
 *        |                        +--all done, nothing to stop--+--verdict--> CLOSED
 *        +--verdict-----------------------------------------------------------^
 *
 * Whoever comes when the job is CLOSED waits; when all who were there before have gone, the machine
 * is FORMING again, as a new job of those who have waited. Only the generations go on counting.
 *
 * The two promises on which all else rests: no two members have a seat with one rank in one
 * generation, and a generation is begun only when every member that was seated in the one before
 * has said that nothing of it runs any more, or is gone (which its session's end proves: whoever
 * loses touch ends its workers before its lease can be over).
 *
 * A failure may be the effect of a node that was lost at the same time: its peers' workers see
 * their connections break long before anybody knows of the loss. So a failure stops the generation
 * at once, and is judged when all is quiet: if a node was lost until then, that was the cause, and
 * neither the number of restarts nor the job's end comes of the failure. As a node that was lost
 * without a word keeps the generation from being quiet until its lease is over, nobody is judged
 * too early.
 *
 * Facts go in at any time and only are noted; ddpi_rounds_step() takes all steps that they allow.
 */
#ifndef DDPI_ROUNDS_H
#define DDPI_ROUNDS_H

#include "sm.h"

#include <ddprun/round.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DDPI_ROUNDS_STATES(X)                                                                   \
    X(ROUNDS, FORMING, DDPI_SM_TO(ROUNDS_RUNNING) | DDPI_SM_TO(ROUNDS_CLOSED), DDPI_SM_INITIAL) \
    X(ROUNDS, RUNNING, DDPI_SM_TO(ROUNDS_STOPPING) | DDPI_SM_TO(ROUNDS_CLOSED), 0)              \
    X(ROUNDS, STOPPING, DDPI_SM_TO(ROUNDS_FORMING) | DDPI_SM_TO(ROUNDS_CLOSED), 0)              \
    X(ROUNDS, CLOSED, DDPI_SM_TO(ROUNDS_FORMING), 0)

DDPI_SM_DECLARE(ddpi_rounds, DDPI_ROUNDS_STATES);

/* No generation can be later; what a member says of one is no record. */
#define DDPI_GENERATION_MAX (INT64_C(1) << 53)

struct ddpi_rounds;

/* How the job stands, for those who look, and for a server that starts again. */
struct ddpi_rounds_summary {
    enum ddpi_rounds_state state;
    uint64_t generation; /* the latest of this job; 0: none yet */
    uint32_t members;    /* all that are there, seated or not */
    uint32_t seated;     /* in the latest generation, of those that are there */
    uint32_t world_size;
    uint32_t restarts;                /* after failures */
    struct ddp_round_terms terms;     /* all zero while nobody has come */
    char reason[DDP_ROUND_TEXT_SIZE]; /* why the last generation was stopped, or the job is over */
    bool judging; /* STOPPING after a failure: whether it counts is decided when all is quiet */
    bool closing; /* STOPPING leads to CLOSED; CLOSED */
    int32_t exit_code; /* of the job, once it is closing; of the failure, while judging */
    /* The last recovery, in ms after the moment in which its cause was noted; 0: not yet. */
    uint64_t quiet_ms;   /* nothing of the old generation ran */
    uint64_t seated_ms;  /* the new one was begun */
    uint64_t running_ms; /* all its workers had been started */
};

/* None of them may call back into the machine. */
struct ddpi_rounds_hooks {
    void *ctx;
    /* Before the first seat of @generation is told: make its keyspace, and end those before. What
     * it puts into *@seat about the workers' meeting point all members get. On failure nobody is
     * seated, and the job is closed with the sentence in @err. */
    ddp_status (*begin)(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                        struct ddp_error *err);
    /* Tell @member its seat, which has changed. */
    void (*seat)(void *ctx, uint64_t member, const struct ddp_round_seat *seat);
    /* The summary has changed. Called at most once in a step, at its end. */
    void (*changed)(void *ctx);
};

/* A job without members, whose next generation comes after @last_generation. NULL: no memory.
 * @hooks is copied. */
struct ddpi_rounds *ddpi_rounds_create(const struct ddpi_rounds_hooks *hooks,
                                       uint64_t last_generation);
void ddpi_rounds_destroy(struct ddpi_rounds *rounds);

/* What @member says of itself; it is a new member if it is not known. A newcomer with other terms
 * than the job's gets the order END with a sentence that says which differ. Its name and terms stay
 * as they were when it came. DDP_E_NOMEM. */
ddp_status ddpi_rounds_member(struct ddpi_rounds *rounds, uint64_t member,
                              const struct ddp_round_member *says);

/* All generations up to @epoch are void: the next comes after it. */
void ddpi_rounds_epoch(struct ddpi_rounds *rounds, uint64_t epoch);

/* @member's session has ended. No effect if it is not known. */
void ddpi_rounds_gone(struct ddpi_rounds *rounds, uint64_t member);

/* What people want of the job, as it is now. */
struct ddpi_rounds_wish {
    bool stop;          /* end it */
    uint32_t min_nodes; /* 0: as the terms say */
    uint32_t max_nodes;
};
void ddpi_rounds_wish(struct ddpi_rounds *rounds, const struct ddpi_rounds_wish *wish);

/* Members of this name are to go (or may stay again). A job that would have too few without them
 * is closed. DDP_E_NOMEM. */
ddp_status ddpi_rounds_drain(struct ddpi_rounds *rounds, const char *name, bool drain);

/* A worker has saved its state: whoever waits for that may come in. */
void ddpi_rounds_checkpoint(struct ddpi_rounds *rounds);

/* Take all steps that are possible at @now_ms (of any clock that only grows). Each fact that was
 * noted since the last step counts as having happened now. */
void ddpi_rounds_step(struct ddpi_rounds *rounds, uint64_t now_ms);

/* When to step again although nothing has happened; UINT64_MAX: never. */
uint64_t ddpi_rounds_deadline(const struct ddpi_rounds *rounds);

void ddpi_rounds_summary(const struct ddpi_rounds *rounds, struct ddpi_rounds_summary *ret);

/* --- a server that starts again ---
 * After create: the summary it had stored, then each member (ddpi_rounds_member), in the order in
 * which they had come, and the seat that it had been told; then what people want. Nothing is told
 * before the next step. The seats may be newer than the summary, and some of them may be older than
 * others; how often failures were alike is forgotten. */
void ddpi_rounds_restore(struct ddpi_rounds *rounds, const struct ddpi_rounds_summary *summary);
void ddpi_rounds_restore_seat(struct ddpi_rounds *rounds, uint64_t member,
                              const struct ddp_round_seat *seat);

/* Below, at or above 0, as the name @a sorts before, with or behind @b: digits count as numbers, so
 * that node10 comes after node9. */
int ddpi_rounds_compare_names(const char *a, const char *b);

#endif
