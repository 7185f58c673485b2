/*
 * rounds_fixture.h - a round machine whose hooks write down what it tells, and members that say
 * what a test has them say.
 */
#ifndef TESTS_ROUNDS_FIXTURE_H
#define TESTS_ROUNDS_FIXTURE_H

#include "rounds.h"

enum { ROUNDS_MEMBERS = 16 };

struct rounds_fixture {
    struct ddpi_rounds *rounds;
    struct ddpi_rounds_hooks hooks;
    uint64_t now_ms;
    struct ddp_round_terms terms; /* of members that come */
    char role[DDP_ROUND_ROLE_SIZE];
    char command[DDP_ROUND_COMMAND_SIZE];
    struct ddp_round_member says[ROUNDS_MEMBERS];
    struct ddp_round_seat seat[ROUNDS_MEMBERS]; /* by id, as told last */
    unsigned told[ROUNDS_MEMBERS];
    unsigned told_all, begun, changed;
    uint64_t begun_generation;
    ddp_status begin_status;
    struct {
        char name[DDP_ROUND_NAME_SIZE]; /* "": free */
        struct ddpi_rounds_blame blame;
    } blamed[ROUNDS_MEMBERS]; /* as a store would keep it */
};

/* Terms: 2 to 3 nodes, 3 restarts, 100 ms to settle, no crash loop, join at once. */
void rounds_start(struct rounds_fixture *fixture);
void rounds_finish(struct rounds_fixture *fixture);

void rounds_step(struct rounds_fixture *fixture);
void rounds_step_after(struct rounds_fixture *fixture, uint64_t ms);

/* Member @id comes, IDLE, as @name with two workers. Each does a step after it. */
void rounds_join(struct rounds_fixture *fixture, unsigned id, const char *name);
void rounds_say(struct rounds_fixture *fixture, unsigned id, enum ddp_round_phase phase,
                uint64_t generation);
void rounds_fail(struct rounds_fixture *fixture, unsigned id, int exit_code, uint64_t ran_ms);
/* It is IDLE of @generation and checks itself; the check has failed because of @why ("": not). */
void rounds_check(struct rounds_fixture *fixture, unsigned id, uint64_t generation);
void rounds_checked(struct rounds_fixture *fixture, unsigned id, const char *why);
void rounds_leave(struct rounds_fixture *fixture, unsigned id);
void rounds_gone(struct rounds_fixture *fixture, unsigned id);

/* Have all members that were told RUN or STOP say that they run, or that nothing runs. */
void rounds_obey(struct rounds_fixture *fixture, unsigned members);

/* As many members as there are names, all running their first generation. */
void rounds_run(struct rounds_fixture *fixture, unsigned members, const char *const *names);

/* A server that starts again: what was told and said is all that the new machine knows. */
void rounds_restart(struct rounds_fixture *fixture);

/* What is kept against the node @name; NULL: nothing. */
const struct ddpi_rounds_blame *rounds_blame(const struct rounds_fixture *fixture,
                                             const char *name);

struct ddpi_rounds_summary rounds_summary(const struct rounds_fixture *fixture);

#define rounds_assert_state(fixture, is) ck_assert_int_eq(rounds_summary(fixture).state, is)

/* The job is over with @exit_code, for a reason with @words in it, and nothing is left to do. */
void rounds_assert_closed(const struct rounds_fixture *at, int exit_code, const char *words);
#define rounds_assert_seat(fixture, id, is, words)                             \
    do {                                                                       \
        ck_assert_int_eq((fixture)->seat[id].order, is);                       \
        ck_assert_msg(strstr((fixture)->seat[id].text, words) != NULL, "'%s'", \
                      (fixture)->seat[id].text);                               \
    } while (0)

#endif
