/*
 * test_sim_rounds.c - many simulated jobs, each with its own schedule of faults. At every start of
 * workers: no rank runs twice, nothing of another generation runs. And after the last fault, the
 * job gets going again, or is over for a reason that it has had: that workers fail when those of
 * another node vanish is none.
 *
 * DDPRUN_SIM_RUNS=N runs so many, from the seed DDPRUN_SIM_SEED on; DDPRUN_SIM_TRACE=1 tells what
 * happens. In some jobs nodes become unfit, or are left out after failures: these have no seat,
 * cost no restart, and the others go on. In some, workers fail soon after each start: restarts come
 * after pauses. What is printed of a failure is enough to see it again.
 */
#include "check_main.h"
#include "parse.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUNS = 1000,
    SETTLED_MS = 40000 /* after the last fault: its end, leases, joins that give up and try again */
};

static uint64_t setting(const char *name, uint64_t otherwise)
{
    int64_t value;
    const char *text = getenv(name);
    return text != NULL && ddpi_parse_int(text, 0, INT64_MAX, &value, NULL) == DDP_OK
               ? (uint64_t)value
               : otherwise;
}

static void begin(struct sim *sim, uint64_t seed, bool trace)
{
    memset(sim, 0, sizeof *sim);
    sim->seed = sim->random = seed;
    sim->trace = trace;
    sim->node_count = 2 + (unsigned)sim_random(sim, SIM_NODES - 1);
    sim->terms.min_nodes = 1 + (uint32_t)sim_random(sim, sim->node_count);
    sim->terms.max_nodes = sim->terms.min_nodes +
                           (uint32_t)sim_random(sim, sim->node_count - sim->terms.min_nodes + 1);
    static const uint32_t restarts[] = {0, 2, 7};
    sim->terms.max_restarts = restarts[sim_random(sim, 3)];
    sim->terms.lease_ms = SIM_LEASE_MS;
    sim->terms.settle_ms = (uint32_t)sim_random(sim, 300);
    sim->terms.join = (enum ddp_round_join)sim_random(sim, 3);
    static const uint32_t quarantines[] = {0, 0, 1, 2};
    sim->terms.quarantine = quarantines[sim_random(sim, 4)];
    static const uint32_t crash_loops[] = {0, 2, 4};
    sim->terms.crash_loop = crash_loops[sim_random(sim, 3)];
    sim->quick = sim->terms.max_restarts != 0 && sim_random(sim, 3) == 0;
    sim->broken_program = sim->quick && sim_random(sim, 4) == 0;
    sim->checks = sim_random(sim, 2) == 0;
    sim->finishing = sim_random(sim, 4) == 0;
    sim->again = sim_random(sim, 2) == 0;
    sim->faults_end_ms = 1000 + sim_random(sim, 15000);
    sim->server.sim = sim;
    sim->server.drift = (int)sim_random(sim, 3) * 10 - 10;
    sim_post(sim, 0, SIM_BOOT, SIM_SERVER, 0);
    sim_post(sim, 1, SIM_TICK, SIM_SERVER, 0);
    for (unsigned i = 0; i < sim->node_count; i++) {
        struct sim_node *node = &sim->nodes[i];
        node->sim = sim;
        node->index = i;
        node->nproc = 1 + (uint32_t)sim_random(sim, 3);
        node->drift = (int)sim_random(sim, 3) * 10 - 10;
        sim_post(sim, 1 + sim_random(sim, 1000), SIM_BOOT, i, 0);
    }
    sim_post(sim, 500, SIM_FAULT, 0, 0);
}

/* What is cut or stopped comes back when its time is over. */
static void heal(struct sim *sim)
{
    sim_trace(sim, "no more faults");
    bool admitted = sim_random(sim, 2) == 0;
    for (unsigned i = 0; i < sim->node_count; i++) {
        sim_server_drain(&sim->server, i, false);
        if (sim_random(sim, 2) == 0) {
            sim->nodes[i].unfit = false;
            sim_node_stays_unclear(&sim->nodes[i]);
        }
        if (admitted)
            sim_server_admit(&sim->server, i);
    }
    sim->server.wish = (struct ddpi_rounds_wish){0};
    sim_server_want(&sim->server);
}

static void check_over(struct sim *sim, const struct ddpi_rounds_summary *summary)
{
    bool legal = (summary->exit_code == 0 && sim->finishing) ||
                 ((summary->exit_code == 5 || summary->exit_code == 1) &&
                  sim->failures > summary->restarts + sim->quarantines &&
                  summary->restarts == sim->terms.max_restarts) ||
                 (summary->exit_code == 93 && sim->broken_program && sim->terms.crash_loop != 0 &&
                  sim->failures >= sim->terms.crash_loop) ||
                 (summary->exit_code == 130 && sim->left) ||
                 (summary->exit_code == 143 && sim->drained);
    if (!legal)
        sim_break(sim, "over with %d for no reason: %s", (int)summary->exit_code, summary->reason);
    for (unsigned i = 0; i < sim->node_count; i++)
        if (sim->nodes[i].alive || sim->nodes[i].runs != 0)
            sim_break(sim, "the job is over, but node %u goes on", i);
}

/* Some were not started again when the job was over, or are left out, and the others wait. */
static bool waits_for_others(const struct sim *sim)
{
    unsigned there = 0, fit = 0;
    for (unsigned i = 0; i < sim->node_count; i++) {
        const struct sim_node *node = &sim->nodes[i];
        bool left_out =
            node->unfit || node->member.says.sick[0] != '\0' || sim->server.blamed[i].left_out;
        if (node->runs != 0)
            return false;
        there += node->alive && !left_out;
        fit += !left_out;
    }
    return sim->server.stored.state == ROUNDS_FORMING &&
           (fit < sim->terms.min_nodes || (sim->renewed && there < sim->terms.min_nodes));
}

static void check_settled(struct sim *sim)
{
    const struct ddpi_rounds_summary *summary = &sim->server.stored;
    if (sim->broken[0] != '\0')
        return;
    if (summary->state == ROUNDS_CLOSED) {
        check_over(sim, summary);
        return;
    }
    if (waits_for_others(sim))
        return;
    if (summary->state != ROUNDS_RUNNING)
        sim_break(sim, "stuck in %s: %s", ddpi_rounds_sm.states[summary->state].name,
                  summary->reason);
    unsigned running = 0;
    for (unsigned i = 0; i < sim->node_count; i++) {
        const struct sim_node *node = &sim->nodes[i];
        bool current = node->runs == summary->generation;
        running += node->alive && (current || node->says.phase == DDP_ROUND_DONE);
        sim_trace(sim, "node %u: %s, runs %d, %s, session %d", i,
                  node->alive ? ddpi_sm_name(&node->member.sm) : "dead", (int)node->runs,
                  node->member.seat.text, (int)node->session);
        if (node->runs != 0 && !current)
            sim_break(sim, "node %u runs generation %d, not %d", i, (int)node->runs,
                      (int)summary->generation);
    }
    if (running < summary->seated)
        sim_break(sim, "%u of %u nodes run generation %d", running, summary->seated,
                  (int)summary->generation);
}

/* false: a promise was broken. */
static bool run(uint64_t seed, bool trace, uint64_t *generations)
{
    static struct sim sim;
    begin(&sim, seed, trace);
    sim_run(&sim, sim.faults_end_ms);
    heal(&sim);
    sim_run(&sim, sim.faults_end_ms + SETTLED_MS);
    check_settled(&sim);
    sim_finish(&sim);
    *generations += sim.generations;
    if (sim.broken[0] == '\0')
        return true;
    printf("DDPRUN_SIM_RUNS=1 DDPRUN_SIM_SEED=%llu DDPRUN_SIM_TRACE=1: %s\n",
           (unsigned long long)seed, sim.broken);
    fflush(stdout);
    return false;
}

START_TEST(promises_hold_in_all_schedules)
{
    uint64_t first = setting("DDPRUN_SIM_SEED", 1), runs = setting("DDPRUN_SIM_RUNS", RUNS);
    bool trace = setting("DDPRUN_SIM_TRACE", 0) != 0;
    uint64_t generations = 0, broken = 0;
    for (uint64_t seed = first; seed < first + runs; seed++)
        broken += !run(seed, trace, &generations);
    printf("%llu schedules, %llu generations\n", (unsigned long long)runs,
           (unsigned long long)generations);
    ck_assert_uint_eq(broken, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sim_rounds");
    TCase *tcase = tcase_create("schedules");
    tcase_add_test(tcase, promises_hold_in_all_schedules);
    suite_add_tcase(suite, tcase);
    return suite;
}
