/*
 * rounds_fixture.c - see rounds_fixture.h.
 */
#include "rounds_fixture.h"

#include "check_main.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    struct rounds_fixture *fixture = ctx;
    fixture->begun++;
    ck_assert_uint_gt(generation, fixture->begun_generation);
    fixture->begun_generation = generation;
    if (fixture->begin_status != DDP_OK)
        return ddpi_error_set(err, fixture->begin_status, "the disk is full");
    seat->master_port = 4711;
    return DDP_OK;
}

static void on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct rounds_fixture *fixture = ctx;
    ck_assert_uint_lt(member, ROUNDS_MEMBERS);
    ck_assert_int_ne(memcmp(&fixture->seat[member], seat, sizeof *seat), 0);
    if (seat->order == DDP_ROUND_RUN)
        ck_assert_uint_eq(seat->generation, fixture->begun_generation);
    fixture->seat[member] = *seat;
    fixture->told[member]++;
    fixture->told_all++;
}

static void on_changed(void *ctx)
{
    ((struct rounds_fixture *)ctx)->changed++;
}

static void on_blame(void *ctx, const char *name, const struct ddpi_rounds_blame *blame)
{
    struct rounds_fixture *fixture = ctx;
    unsigned at = ROUNDS_MEMBERS;
    for (unsigned i = 0; i < ROUNDS_MEMBERS; i++)
        if (fixture->blamed[i].name[0] == '\0')
            at = i;
    for (unsigned i = 0; i < ROUNDS_MEMBERS; i++)
        if (strcmp(fixture->blamed[i].name, name) == 0)
            at = i;
    ck_assert_uint_lt(at, ROUNDS_MEMBERS);
    memset(&fixture->blamed[at], 0, sizeof fixture->blamed[at]);
    if (blame == NULL)
        return;
    (void)snprintf(fixture->blamed[at].name, sizeof fixture->blamed[at].name, "%s", name);
    fixture->blamed[at].blame = *blame;
}

const struct ddpi_rounds_blame *rounds_blame(const struct rounds_fixture *fixture, const char *name)
{
    for (unsigned i = 0; i < ROUNDS_MEMBERS; i++)
        if (strcmp(fixture->blamed[i].name, name) == 0)
            return &fixture->blamed[i].blame;
    return NULL;
}

void rounds_start(struct rounds_fixture *fixture)
{
    *fixture = (struct rounds_fixture){
        .hooks = {fixture, on_begin, on_seat, on_changed, on_blame},
        .now_ms = 1000,
        .terms = {.min_nodes = 2, .max_nodes = 3, .max_restarts = 3, .settle_ms = 100}};
    fixture->rounds = ddpi_rounds_create(&fixture->hooks, 0);
    ck_assert_ptr_nonnull(fixture->rounds);
}

void rounds_finish(struct rounds_fixture *fixture)
{
    ddpi_rounds_destroy(fixture->rounds);
}

void rounds_step(struct rounds_fixture *fixture)
{
    unsigned changed = fixture->changed;
    ddpi_rounds_step(fixture->rounds, fixture->now_ms);
    ck_assert_uint_le(fixture->changed, changed + 1);
    changed = fixture->changed;
    unsigned told = fixture->told_all;
    ddpi_rounds_step(fixture->rounds, fixture->now_ms); /* with nothing new does nothing */
    ck_assert_uint_eq(fixture->told_all, told);
    ck_assert_uint_eq(fixture->changed, changed);
}

void rounds_step_after(struct rounds_fixture *fixture, uint64_t ms)
{
    fixture->now_ms += ms;
    rounds_step(fixture);
}

static void publish(struct rounds_fixture *fixture, unsigned id)
{
    ck_assert_int_eq(ddpi_rounds_member(fixture->rounds, id, &fixture->says[id]), DDP_OK);
    rounds_step(fixture);
}

void rounds_join(struct rounds_fixture *fixture, unsigned id, const char *name)
{
    struct ddp_round_member *says = &fixture->says[id];
    int32_t node_rank = says->node_rank != 0 ? says->node_rank : -1; /* set by the test, or any */
    uint16_t master_port = says->master_port, first_port = says->first_port;
    memset(says, 0, sizeof *says);
    memset(&fixture->seat[id], 0, sizeof fixture->seat[id]);
    *says = (struct ddp_round_member){.nproc = 2,
                                      .node_rank = node_rank,
                                      .master_port = master_port,
                                      .first_port = first_port,
                                      .terms = fixture->terms};
    memcpy(says->role, fixture->role, sizeof says->role);
    memcpy(says->command, fixture->command, sizeof says->command);
    (void)snprintf(says->name, sizeof says->name, "%s", name);
    (void)snprintf(says->address, sizeof says->address, "10.0.0.%u", id);
    publish(fixture, id);
}

void rounds_say(struct rounds_fixture *fixture, unsigned id, enum ddp_round_phase phase,
                uint64_t generation)
{
    fixture->says[id].phase = phase;
    fixture->says[id].generation = generation;
    publish(fixture, id);
}

void rounds_fail(struct rounds_fixture *fixture, unsigned id, int exit_code, uint64_t ran_ms)
{
    struct ddp_round_failure failure = {.generation = fixture->seat[id].generation,
                                        .rank = fixture->seat[id].first_rank,
                                        .exit_code = exit_code,
                                        .ran_ms = ran_ms,
                                        .final = fixture->says[id].failure.final,
                                        .broken_program = fixture->says[id].failure.broken_program};
    (void)snprintf(failure.text, sizeof failure.text, "rank %u on node %s failed: %d", failure.rank,
                   fixture->says[id].name, exit_code);
    fixture->says[id].failure = failure;
    publish(fixture, id);
}

void rounds_check(struct rounds_fixture *fixture, unsigned id, uint64_t generation)
{
    fixture->says[id].checking = true;
    rounds_say(fixture, id, DDP_ROUND_IDLE, generation);
}

void rounds_checked(struct rounds_fixture *fixture, unsigned id, const char *why)
{
    struct ddp_round_member *says = &fixture->says[id];
    says->checking = false;
    says->checks++;
    (void)snprintf(says->sick, sizeof says->sick, "%s", why);
    publish(fixture, id);
}

void rounds_leave(struct rounds_fixture *fixture, unsigned id)
{
    fixture->says[id].leaving = true;
    publish(fixture, id);
}

void rounds_gone(struct rounds_fixture *fixture, unsigned id)
{
    ddpi_rounds_gone(fixture->rounds, id);
    fixture->says[id].name[0] = '\0';
    rounds_step(fixture);
}

void rounds_obey(struct rounds_fixture *fixture, unsigned members)
{
    for (unsigned id = 0; id < members; id++) {
        struct ddp_round_seat seat = fixture->seat[id];
        if (fixture->says[id].name[0] == '\0')
            continue;
        if (seat.order == DDP_ROUND_STOP)
            rounds_say(fixture, id, DDP_ROUND_IDLE, seat.generation);
        else if (seat.order == DDP_ROUND_RUN)
            rounds_say(fixture, id, DDP_ROUND_RUNNING, seat.generation);
    }
}

void rounds_run(struct rounds_fixture *fixture, unsigned members, const char *const *names)
{
    for (unsigned id = 0; id < members; id++)
        rounds_join(fixture, id, names[id]);
    rounds_step_after(fixture, fixture->terms.settle_ms);
    rounds_obey(fixture, members);
    rounds_assert_state(fixture, ROUNDS_RUNNING);
}

void rounds_restart(struct rounds_fixture *fixture)
{
    struct ddpi_rounds_summary summary = rounds_summary(fixture);
    ddpi_rounds_destroy(fixture->rounds);
    fixture->rounds = ddpi_rounds_create(&fixture->hooks, fixture->begun_generation);
    ddpi_rounds_restore(fixture->rounds, &summary);
    for (unsigned id = 0; id < ROUNDS_MEMBERS; id++) {
        if (fixture->says[id].name[0] == '\0')
            continue;
        ck_assert_int_eq(ddpi_rounds_member(fixture->rounds, id, &fixture->says[id]), DDP_OK);
        ddpi_rounds_restore_seat(fixture->rounds, id, &fixture->seat[id]);
    }
    for (unsigned i = 0; i < ROUNDS_MEMBERS; i++)
        if (fixture->blamed[i].name[0] != '\0')
            ck_assert_int_eq(ddpi_rounds_restore_blame(fixture->rounds, fixture->blamed[i].name,
                                                       &fixture->blamed[i].blame),
                             DDP_OK);
}

struct ddpi_rounds_summary rounds_summary(const struct rounds_fixture *fixture)
{
    struct ddpi_rounds_summary summary;
    ddpi_rounds_summary(fixture->rounds, &summary);
    return summary;
}

void rounds_assert_closed(const struct rounds_fixture *at, int exit_code, const char *words)
{
    struct ddpi_rounds_summary summary = rounds_summary(at);
    ck_assert_int_eq(summary.state, ROUNDS_CLOSED);
    ck_assert_int_eq(summary.exit_code, exit_code);
    ck_assert_msg(strstr(summary.reason, words) != NULL, "'%s'", summary.reason);
    ck_assert_uint_eq(ddpi_rounds_deadline(at->rounds), UINT64_MAX);
}
