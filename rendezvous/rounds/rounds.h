/*
 * rounds.h - the round machine of one job: its members, the seat of each, when a generation starts
 * and when it must end. Pure: it is told facts and the time, and calls its hooks with the
 * conclusions; no descriptor, clock, log or key inside.
 *
 *     FORMING --seats given--> RUNNING --a reason to stop--> STOPPING --all are idle--> FORMING
 *        |                        |                             |                         ^
 *        |                        |        failed again and again, quickly --> PAUSING ---+
 *        |                        |                             |                 |
 *        |                        +--all done, nothing to stop--+--verdict--> CLOSED <-- stop
 *        +--verdict-----------------------------------------------------------^
 *
 * PAUSING lasts for a time that grows with the failures (crash_loop.c). A member that comes, or too
 * few that are left, end it early. A server that starts again does not go on with a pause.
 *
 * A member that comes when the job is CLOSED waits. When all earlier members are gone, the machine
 * is FORMING again, as a new job of the members that have waited. Only the numbers of generations
 * continue.
 *
 * Everything else rests on two promises. No two members have a seat with the same rank in one
 * generation. A generation begins only when every member that was seated in the one before has
 * said that none of its workers run any more, or is gone (which the end of its session proves: a
 * member that loses the store ends its workers before its lease can end).
 *
 * A failure may be the effect of a node that was lost at the same time: the workers of its peers
 * see their connections break long before the loss is known. So a failure stops the generation at
 * once, and is judged when all members are idle: if a node was lost meanwhile, that was the cause,
 * and the failure neither counts as a restart nor ends the job. A node that was lost without a word
 * counts as busy until its lease ends, so no failure is judged too early.
 *
 * A node that is not fit gets no seat: one that says that it is sick (its check has failed), or one
 * that is in quarantine, as it was the first cause of too many failures in a row (blame.c). Neither
 * costs a restart: the failure that leads to quarantine is not counted, and a failure is explained
 * by a check that fails in a node of that generation, as it is by the loss of one. So no failure is
 * judged while a node checks itself. A job that has too few nodes left waits for others.
 *
 * Facts may be noted at any time; ddpi_rounds_step() takes all steps that they allow.
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
    X(ROUNDS, STOPPING,                                                                         \
      DDPI_SM_TO(ROUNDS_FORMING) | DDPI_SM_TO(ROUNDS_PAUSING) | DDPI_SM_TO(ROUNDS_CLOSED), 0)   \
    X(ROUNDS, PAUSING, DDPI_SM_TO(ROUNDS_FORMING) | DDPI_SM_TO(ROUNDS_CLOSED), 0)               \
    X(ROUNDS, CLOSED, DDPI_SM_TO(ROUNDS_FORMING), 0)

DDPI_SM_DECLARE(ddpi_rounds, DDPI_ROUNDS_STATES);

/* No generation is later than this; a record with a later one is malformed. */
#define DDPI_GENERATION_MAX (INT64_C(1) << 53)

struct ddpi_rounds;

/* What is held against a node. It belongs to the node's name, and outlives its members. */
struct ddpi_rounds_blame {
    uint32_t failures;              /* in a row, of which it was the first cause */
    bool left_out;                  /* these are too many: it gets no seat until it is admitted */
    char text[DDP_ROUND_TEXT_SIZE]; /* the latest of them */
};

/* The state of the job, for observers, and for a server that starts again. */
struct ddpi_rounds_summary {
    enum ddpi_rounds_state state;
    uint64_t generation; /* the latest of this job; 0: none yet */
    uint32_t members;    /* seated or not */
    uint32_t seated;     /* of these, in the latest generation */
    uint32_t world_size;
    uint32_t restarts;                /* after failures */
    struct ddp_round_terms terms;     /* all zero before the first member */
    char reason[DDP_ROUND_TEXT_SIZE]; /* why the last generation stopped, or the job is over */
    bool judging;      /* STOPPING after a failure, which is judged when all are idle */
    bool closing;      /* STOPPING leads to CLOSED; CLOSED */
    int32_t exit_code; /* of the job, once it is closing; of the failure, while judging */
    /* The last recovery, in ms after its cause was noted; 0: not yet. */
    uint64_t idle_ms;    /* all workers of the old generation had ended */
    uint64_t seated_ms;  /* the new generation had begun */
    uint64_t running_ms; /* all its workers had started */
    uint32_t left_out;   /* of the members: sick, or in quarantine */
};

/* None of them may call back into the machine. */
struct ddpi_rounds_hooks {
    void *ctx;
    /* Called before the first seat of @generation is told: makes its keyspace, and ends earlier
     * ones. All members get what it puts into *@seat about the workers' meeting point. On failure
     * no member is seated, and the job is closed with the sentence in @err. */
    ddp_status (*begin)(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                        struct ddp_error *err);
    /* Tells @member its seat, which has changed. */
    void (*seat)(void *ctx, uint64_t member, const struct ddp_round_seat *seat);
    /* The summary has changed. Called at most once in a step, at its end. */
    void (*changed)(void *ctx);
    /* What is held against the node @name has changed; NULL: nothing is any more. May be NULL:
     * nobody keeps it. */
    void (*blame)(void *ctx, const char *name, const struct ddpi_rounds_blame *blame);
};

/* A job without members, whose next generation comes after @last_generation. NULL: no memory.
 * @hooks is copied. */
struct ddpi_rounds *ddpi_rounds_create(const struct ddpi_rounds_hooks *hooks,
                                       uint64_t last_generation);
void ddpi_rounds_destroy(struct ddpi_rounds *rounds);

/* Notes what @member says of itself. If it is not known, it is a new member; with other terms than
 * the job's it gets the order END and a sentence that says which differ. Its name and terms stay as
 * they were when it came. DDP_E_NOMEM. */
ddp_status ddpi_rounds_member(struct ddpi_rounds *rounds, uint64_t member,
                              const struct ddp_round_member *says);

/* The first member of a job that has never run, as it waits for more; NULL: it does not. */
const char *ddpi_rounds_waiting_node(const struct ddpi_rounds *rounds);

/* Members that wait are told @notice once, which may be why others do not come. */
void ddpi_rounds_hear(struct ddpi_rounds *rounds, const char *notice);

/* All generations up to @epoch are void: the next one is later. */
void ddpi_rounds_epoch(struct ddpi_rounds *rounds, uint64_t epoch);

/* @member's session has ended. No effect if it is not known. */
void ddpi_rounds_gone(struct ddpi_rounds *rounds, uint64_t member);

/* What users want of the job now. */
struct ddpi_rounds_wish {
    bool stop;          /* end it */
    uint32_t min_nodes; /* 0: as the terms say */
    uint32_t max_nodes;
};
void ddpi_rounds_wish(struct ddpi_rounds *rounds, const struct ddpi_rounds_wish *wish);

/* Members with this name must go (@drain), or may stay again. A job that would have too few members
 * without them is closed. DDP_E_NOMEM. */
ddp_status ddpi_rounds_drain(struct ddpi_rounds *rounds, const char *name, bool drain);

/* Nothing is held any more against nodes with this name; those that are sick must check again
 * whether they are. */
void ddpi_rounds_admit(struct ddpi_rounds *rounds, const char *name);

/* A worker has saved its state: members that wait for that may join. */
void ddpi_rounds_checkpoint(struct ddpi_rounds *rounds);

/* Takes all steps that are possible at @now_ms, of any clock that only grows. Each fact noted since
 * the last step counts as having happened now. */
void ddpi_rounds_step(struct ddpi_rounds *rounds, uint64_t now_ms);

/* When to step again without a new fact; UINT64_MAX: never. */
uint64_t ddpi_rounds_deadline(const struct ddpi_rounds *rounds);

void ddpi_rounds_summary(const struct ddpi_rounds *rounds, struct ddpi_rounds_summary *ret);

/* ---- a server that starts again ---- */

/* After create, call ddpi_rounds_restore() with the summary that was stored; then
 * ddpi_rounds_member() for each member, in the order of their arrival; then
 * ddpi_rounds_restore_seat() for each, with the seat that it was told; then
 * ddpi_rounds_restore_blame() for each name, and ddpi_rounds_wish().
 * Nothing is told before the next step. The seats may be newer than the summary, and of different
 * ages. The number of failures that were alike is lost. */
void ddpi_rounds_restore(struct ddpi_rounds *rounds, const struct ddpi_rounds_summary *summary);
void ddpi_rounds_restore_seat(struct ddpi_rounds *rounds, uint64_t member,
                              const struct ddp_round_seat *seat);
/* DDP_E_NOMEM. */
ddp_status ddpi_rounds_restore_blame(struct ddpi_rounds *rounds, const char *name,
                                     const struct ddpi_rounds_blame *blame);

/* Less than, equal to or greater than 0 if the name @a sorts before, with or after @b. Digits count
 * as numbers, so that node10 comes after node9. */
int ddpi_rounds_compare_names(const char *a, const char *b);

#endif
