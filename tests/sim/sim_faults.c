/*
 * sim_faults.c - what goes wrong in a simulated job, and what people do to it.
 */
#include "sim.h"

/* What is under way already waits until the end of the first cut: it must not be overtaken. */
static void cut_link(struct sim_link *link, uint64_t until_ms)
{
    if (until_ms > link->cut_until_ms)
        link->cut_until_ms = until_ms;
}

static void cut(struct sim *sim, struct sim_node *node)
{
    uint64_t until_ms = sim->now_ms + 50 + sim_random(sim, 3000);
    uint64_t which = sim_random(sim, 3);
    sim_trace(sim, "node %u is cut off, %s, until %d", node->index,
              which == 0   ? "its way up"
              : which == 1 ? "its way down"
                           : "both ways",
              (int)until_ms);
    if (which != 1)
        cut_link(&node->up, until_ms);
    if (which != 0)
        cut_link(&node->down, until_ms);
}

static void kill_node(struct sim *sim, struct sim_node *node)
{
    if (!node->alive)
        return;
    sim_node_die(node, sim_random(sim, 2) == 0);
    sim_post(sim, 50 + sim_random(sim, 3000), SIM_BOOT, node->index, node->boots);
}

/* The agent alone, for no longer than what the margin is good for; or all of the node. */
static void pause(struct sim *sim, struct sim_node *node)
{
    if (node->paused_until_ms > sim->now_ms)
        return;
    bool frozen = sim_random(sim, 2) == 0;
    uint64_t for_ms = frozen ? sim_random(sim, 3000) : sim_random(sim, SIM_LEASE_MS / 16);
    node->paused_until_ms = sim->now_ms + for_ms;
    if (frozen)
        node->exempt_until_ms = node->paused_until_ms + SIM_KILL_MS + 1;
    sim_trace(sim, "node %u: %s for %d ms", node->index, frozen ? "frozen" : "agent stopped",
              (int)for_ms);
}

/* Its workers fail, and in a while its check does: until it is mended. */
static void make_unfit(struct sim *sim, struct sim_node *node)
{
    if (!sim->checks)
        return;
    node->unfit = !node->unfit;
    if (!node->unfit)
        sim_node_stays_unclear(node);
    sim_trace(sim, "node %u is %s", node->index, node->unfit ? "unfit" : "mended");
    if (node->unfit && node->alive && node->runs != 0)
        sim_post(sim, 0, SIM_FAILED, node->index, node->run_stamp);
}

static void admit(struct sim *sim, struct sim_node *node)
{
    if (!sim->server.up || (!sim->checks && sim->terms.quarantine == 0))
        return;
    sim_trace(sim, "node %u is admitted", node->index);
    sim_server_admit(&sim->server, node->index);
}

/* In a job without restarts only what is no fault of its own happens to a worker: it must go on. */
static void fail_worker(struct sim *sim, struct sim_node *node)
{
    if (sim->terms.max_restarts != 0 && node->alive && node->runs != 0)
        sim_post(sim, 0, SIM_FAILED, node->index, node->run_stamp);
}

static void kill_server(struct sim *sim)
{
    bool forgets = sim_random(sim, 4) == 0 && sim->server.stored.state != ROUNDS_CLOSED;
    sim_server_die(&sim->server, 1 + sim_random(sim, 900), forgets);
}

static void leave(struct sim *sim, struct sim_node *node)
{
    if (!node->alive || node->paused_until_ms > sim->now_ms)
        return;
    sim_trace(sim, "node %u is asked to leave", node->index);
    sim->left = true;
    sim_node_stays_unclear(node);
    member_leave(&node->member, 130, "asked to", (enum member_stop)sim_random(sim, 3));
}

static void drain(struct sim *sim, struct sim_node *node)
{
    bool drain = !sim->server.drained[node->index];
    sim_trace(sim, "node %u is %sdrained", node->index, drain ? "" : "un");
    sim->drained |= drain;
    sim_server_drain(&sim->server, node->index, drain);
}

static void scale(struct sim *sim)
{
    struct ddpi_rounds_wish *wish = &sim->server.wish;
    wish->max_nodes = (uint32_t)sim_random(sim, sim->node_count + 1);
    sim_trace(sim, "scaled to %u", wish->max_nodes);
    sim_server_want(&sim->server);
}

void sim_fault(struct sim *sim)
{
    struct sim_node *node = &sim->nodes[sim_random(sim, sim->node_count)];
    uint64_t which = sim_random(sim, 120);
    if (which >= 115)
        admit(sim, node);
    else if (which >= 100)
        make_unfit(sim, node);
    else if (which < 30)
        cut(sim, node);
    else if (which < 45)
        kill_node(sim, node);
    else if (which < 60)
        pause(sim, node);
    else if (which < 72 && sim->server.up)
        kill_server(sim);
    else if (which < 85)
        fail_worker(sim, node);
    else if (which < 88)
        leave(sim, node);
    else if (which < 91)
        drain(sim, node);
    else if (which < 96)
        scale(sim);
    else if (sim->server.up)
        ddpi_rounds_checkpoint(sim->server.rounds);
    uint64_t after_ms = 20 + sim_random(sim, sim_random(sim, 4) == 0 ? 2500 : 400);
    if (sim->now_ms + after_ms < sim->faults_end_ms)
        sim_post(sim, after_ms, SIM_FAULT, 0, 0);
}
