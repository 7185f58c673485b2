/*
 * sim_node.c - a simulated node: the real member machine, an agent's connection, and workers of
 * which only the generation and the ranks are known. Here the promises are checked: at the moment
 * in which workers start.
 */
#include "sim.h"

#include <stdio.h>
#include <string.h>

static uint64_t clock_of(const struct sim_node *node)
{
    return sim_clock(node->sim, node->drift);
}

/* The member's next deadline is another one now. */
static void watch_deadline(struct sim_node *node)
{
    uint64_t deadline_ms = member_deadline(&node->member);
    if (node->alive && deadline_ms != UINT64_MAX)
        sim_post(node->sim, sim_until(node->sim, node->drift, deadline_ms), SIM_TICK, node->index,
                 node->boots);
}

/* ---- the connection ---- */

static void send_word(struct sim_node *node, enum sim_word word)
{
    uint64_t now_ms = clock_of(node);
    if (node->unacked_ms == 0 && word != SIM_CLOSE)
        node->unacked_ms = now_ms;
    sim_send(node->sim, node->index, true,
             &(struct sim_message){.word = word,
                                   .session = node->session,
                                   .epoch = node->epoch,
                                   .sent_ms = now_ms,
                                   .says = node->says});
}

static void reconnect(struct sim_node *node)
{
    node->epoch++;
    node->unacked_ms = 0;
    if (node->joined)
        send_word(node, SIM_SAY);
}

static void beat(struct sim_node *node)
{
    if (node->unacked_ms != 0 && clock_of(node) - node->unacked_ms > SIM_LEASE_MS / 4)
        reconnect(node);
    else if (node->session != 0)
        send_word(node, SIM_HEARTBEAT);
    sim_post(node->sim, SIM_LEASE_MS / 5, SIM_BEAT, node->index, node->boots);
}

/* Each word that is sent before the first answer opens a session: the first one is kept, and is
 * told what the others were. The others end with their leases. */
static bool take_session(struct sim_node *node, uint64_t session)
{
    bool is_new = node->session == 0;
    if (!is_new)
        return session == node->session;
    node->session = session;
    if (node->joined)
        send_word(node, SIM_SAY);
    return true;
}

static void receive(struct sim_node *node, const struct sim_message *message)
{
    uint64_t now_ms = clock_of(node);
    if (message->epoch != node->epoch)
        return;
    switch (message->word) {
    case SIM_ACK:
        if (!take_session(node, message->session))
            break;
        node->unacked_ms = 0;
        member_contact(&node->member, message->sent_ms, now_ms);
        break;
    case SIM_SEAT:
        if (message->session != node->session)
            break;
        if (node->runs == 0)
            node->life = message->life;
        member_seat(&node->member, &message->seat, now_ms);
        break;
    default:
        if (message->session != node->session)
            break;
        node->session = node->unacked_ms = 0;
        node->joined = false;
        member_dropped(&node->member, "the store knows this node no more", now_ms);
        break;
    }
    watch_deadline(node);
}

/* ---- what the member wants done ---- */

static bool overlap(const struct sim_node *a, const struct sim_node *b)
{
    return a->first_rank < b->first_rank + b->nproc && b->first_rank < a->first_rank + a->nproc;
}

static void check_promises(const struct sim_node *node)
{
    struct sim *sim = node->sim;
    for (unsigned i = 0; i < sim->node_count; i++) {
        const struct sim_node *other = &sim->nodes[i];
        bool forgotten = other->run_life != node->run_life && sim->now_ms < sim->forgotten_until_ms;
        if (other == node || other->runs == 0 || other->exempt_until_ms > sim->now_ms || forgotten)
            continue;
        if (other->runs != node->runs)
            sim_break(sim, "generation %d starts on node %u while %d runs on node %u",
                      (int)node->runs, node->index, (int)other->runs, other->index);
        else if (overlap(node, other))
            sim_break(sim, "rank %u of generation %d is on node %u and on node %u",
                      node->first_rank, (int)node->runs, node->index, other->index);
    }
}

/* Its workers have vanished; those of its peers see their connections break, and fail. */
static void break_off(const struct sim_node *node)
{
    struct sim *sim = node->sim;
    for (unsigned i = 0; i < sim->node_count; i++) {
        const struct sim_node *peer = &sim->nodes[i];
        if (peer != node && peer->runs != 0 && peer->runs == node->runs && peer->life == node->life)
            sim_post(sim, sim_random(sim, 30), SIM_BROKEN_OFF, i, peer->run_stamp);
    }
}

static void on_start(void *ctx, const struct ddp_round_seat *seat)
{
    struct sim_node *node = ctx;
    struct sim *sim = node->sim;
    sim_trace(sim, "node %u starts generation %d as %u", node->index, (int)seat->generation,
              seat->node_rank);
    if (node->runs != 0)
        sim_break(sim, "node %u starts workers while it has some", node->index);
    node->runs = seat->generation;
    node->run_life = node->life;
    node->first_rank = seat->first_rank;
    node->run_stamp++;
    node->cleared_at_ms = 0;
    node->failed_once = false;
    check_promises(node);
    sim_post(sim, 5 + sim_random(sim, 100), SIM_STARTED, node->index, node->run_stamp);
    if (sim->quick && node->first_rank == 0 && sim->now_ms < sim->faults_end_ms &&
        sim_random(sim, 8) != 0)
        sim_post(sim, 1 + sim_random(sim, 200), SIM_FAILED, node->index, node->run_stamp);
    if (sim->finishing)
        sim_post(sim, 2000 + sim_random(sim, 3000), SIM_ENDED_WELL, node->index, node->run_stamp);
}

static void on_stop(void *ctx, enum member_stop how, const char *why)
{
    static const uint64_t longest_ms[] = {2 * SIM_LEASE_MS, 150, SIM_KILL_MS};
    struct sim_node *node = ctx;
    struct sim *sim = node->sim;
    uint64_t after_ms = 1 + sim_random(sim, longest_ms[how]);
    sim_trace(sim, "node %u ends generation %d: %s", node->index, (int)node->runs, why);
    if (node->member.says.fenced || node->member.seat_void)
        break_off(node);
    if (node->cleared_at_ms != 0 && node->cleared_at_ms <= sim->now_ms + after_ms)
        return;
    node->cleared_at_ms = sim->now_ms + after_ms;
    sim_post(sim, after_ms, SIM_CLEARED, node->index, node->run_stamp);
}

static void on_publish(void *ctx, const struct ddp_round_member *says)
{
    struct sim_node *node = ctx;
    node->says = *says;
    node->joined = true;
    send_word(node, SIM_SAY);
}

static void on_over(void *ctx, int exit_code, const char *why)
{
    struct sim_node *node = ctx;
    sim_trace(node->sim, "node %u is over with %d: %s", node->index, exit_code, why);
    if (node->runs != 0)
        sim_break(node->sim, "node %u is over while its workers run", node->index);
    if (node->session != 0)
        send_word(node, SIM_CLOSE);
    node->alive = false;
    node->boots++;
    sim_post(node->sim, 200 + sim_random(node->sim, 1000), SIM_BOOT, node->index, node->boots);
}

/* ---- the node's check ---- */

static void on_check(void *ctx)
{
    struct sim_node *node = ctx;
    if (node->runs != 0)
        sim_break(node->sim, "node %u is checked while its workers run", node->index);
    sim_post(node->sim, 1 + sim_random(node->sim, 300), SIM_CHECKED, node->index, node->boots);
}

static void on_end_check(void *ctx)
{
    struct sim_node *node = ctx;
    sim_post(node->sim, 1 + sim_random(node->sim, SIM_KILL_MS), SIM_CHECKED, node->index,
             node->boots);
}

/* ---- what happens to workers ---- */

void sim_node_stays_unclear(struct sim_node *node)
{
    node->sim->failures += node->unclear;
    node->unclear = false;
}

static void worker_fails(struct sim_node *node, bool by_itself)
{
    bool known = node->failed_once || sim_random(node->sim, 2) == 0;
    struct ddp_round_failure failure = {.generation = node->runs,
                                        .rank = node->first_rank,
                                        .exit_code = known ? 5 : -1,
                                        .ran_ms = node->sim->quick ? 50 : 20000,
                                        .broken_program = node->sim->broken_program};
    (void)snprintf(failure.text, sizeof failure.text, "rank %u has failed", failure.rank);
    sim_trace(node->sim, "node %u: a worker of generation %d fails", node->index, (int)node->runs);
    bool first = by_itself && !node->failed_once;
    bool explained =
        node->unfit && !node->member.leaving && !node->sim->server.drained[node->index];
    node->sim->failures += first && !explained;
    node->unclear |= first && explained;
    node->failed_once = true;
    if (!known)
        sim_post(node->sim, 1, by_itself ? SIM_FAILED : SIM_BROKEN_OFF, node->index,
                 node->run_stamp);
    member_failed(&node->member, &failure);
}

static void worker_event(struct sim_node *node, enum sim_kind kind)
{
    switch (kind) {
    case SIM_STARTED:
        member_started(&node->member);
        break;
    case SIM_ENDED_WELL:
        if (node->cleared_at_ms != 0)
            break;
        node->runs = 0;
        node->run_stamp++;
        member_finished(&node->member, clock_of(node));
        break;
    case SIM_FAILED:
        worker_fails(node, true);
        break;
    case SIM_BROKEN_OFF:
        worker_fails(node, false);
        break;
    default: /* SIM_CLEARED */
        if (node->cleared_at_ms > node->sim->now_ms)
            break;
        node->runs = node->cleared_at_ms = 0;
        node->run_stamp++;
        member_cleared(&node->member, clock_of(node));
        break;
    }
    watch_deadline(node);
}

/* ---- the agent ---- */

void sim_node_boot(struct sim_node *node)
{
    struct member_hooks hooks = {
        .ctx = node, .start = on_start, .stop = on_stop, .publish = on_publish, .over = on_over};
    struct member_config config = {.lease_ms = SIM_LEASE_MS, .join_timeout_ms = 8000};
    config.says =
        (struct ddp_round_member){.nproc = node->nproc, .node_rank = -1, .terms = node->sim->terms};
    (void)snprintf(config.says.name, sizeof config.says.name, "node%u", node->index);
    if (node->sim->checks) {
        hooks.check = on_check;
        hooks.end_check = on_end_check;
    }
    sim_trace(node->sim, "node %u boots", node->index);
    node->alive = true;
    node->boots++;
    node->session = node->unacked_ms = 0;
    node->epoch++;
    node->joined = false;
    member_init(&node->member, &config, &hooks);
    member_join(&node->member, clock_of(node));
    sim_post(node->sim, SIM_LEASE_MS / 5, SIM_BEAT, node->index, node->boots);
    watch_deadline(node);
}

/* Its agent is killed: the guard ends the workers, and then the connection closes. Or the node has
 * lost its power: no message is sent. */
void sim_node_die(struct sim_node *node, bool with_guard)
{
    sim_trace(node->sim, "node %u: %s", node->index, with_guard ? "agent killed" : "power lost");
    sim_node_stays_unclear(node);
    if (!node->member.leaving)
        break_off(node);
    node->runs = 0;
    node->run_stamp++;
    node->cleared_at_ms = 0;
    if (with_guard && node->session != 0)
        send_word(node, SIM_CLOSE);
    node->alive = false;
    node->boots++;
}

static bool may_boot(const struct sim *sim)
{
    return sim->server.stored.state != ROUNDS_CLOSED ||
           (sim->again && sim->now_ms < sim->faults_end_ms);
}

void sim_node_event(struct sim_node *node, const struct sim_event *event)
{
    bool of_worker = event->kind >= SIM_STARTED && event->kind <= SIM_CLEARED;
    if (event->kind == SIM_ARRIVAL) {
        if (node->alive)
            receive(node, event->message);
        return;
    }
    if (event->stamp != (of_worker ? node->run_stamp : node->boots))
        return;
    if (of_worker)
        worker_event(node, event->kind);
    else if (event->kind == SIM_BOOT && may_boot(node->sim))
        sim_node_boot(node);
    else if (event->kind == SIM_BEAT && node->alive)
        beat(node);
    else if (event->kind == SIM_RESET && node->alive)
        reconnect(node);
    else if (event->kind == SIM_CHECKED && node->alive) {
        sim_trace(node->sim, "node %u is checked: %s", node->index, node->unfit ? "unfit" : "fit");
        member_checked(&node->member, node->unfit ? "node check failed" : "", clock_of(node));
        watch_deadline(node);
    } else if (event->kind == SIM_TICK && node->alive) {
        member_tick(&node->member, clock_of(node));
        watch_deadline(node);
    }
}
