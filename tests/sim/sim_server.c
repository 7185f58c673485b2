/*
 * sim_server.c - the simulated store: sessions with leases on its own clock, and the round machine
 * fed by them. What it has told and heard is stored, so that it can start again.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t clock_of(const struct sim_server *server)
{
    return sim_clock(server->sim, server->drift);
}

static void tell(struct sim_server *server, uint64_t id, enum sim_word word, uint64_t sent_ms)
{
    const struct sim_session *session = &server->sessions[id];
    sim_send(server->sim, session->node, false,
             &(struct sim_message){.word = word,
                                   .session = id,
                                   .epoch = session->epoch,
                                   .sent_ms = sent_ms,
                                   .life = server->life,
                                   .seat = session->seat});
}

/* ---- the machine's hooks ---- */

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    (void)err;
    struct sim_server *server = ctx;
    if (generation <= server->generation)
        sim_break(server->sim, "generation %d is begun after %d", (int)generation,
                  (int)server->generation);
    if (server->forgetful && !server->reminded)
        server->sim->forgotten_until_ms = server->sim->now_ms + SIM_LEASE_MS + SIM_KILL_MS;
    server->forgetful = false;
    server->generation = generation;
    server->sim->generations++;
    seat->master_port = 1;
    return DDP_OK;
}

static void on_seat(void *ctx, uint64_t id, const struct ddp_round_seat *seat)
{
    static const char *const orders[] = {"WAIT", "RUN", "STOP", "END"};
    struct sim_server *server = ctx;
    struct sim_session *session = &server->sessions[id];
    sim_trace(server->sim, "server: session %d of node %u: %s %d %s", (int)id, session->node,
              orders[seat->order], (int)seat->generation, seat->text);
    bool fit = session->says.sick[0] == '\0' && !server->blamed[session->node].left_out;
    if (seat->order == DDP_ROUND_RUN && (!fit || session->says.checking))
        sim_break(server->sim, "node %u has a seat, but is not fit", session->node);
    session->seat = *seat;
    session->told = true;
    tell(server, id, SIM_SEAT, 0);
}

static void on_changed(void *ctx)
{
    struct sim_server *server = ctx;
    bool closed = server->stored.state == ROUNDS_CLOSED;
    ddpi_rounds_summary(server->rounds, &server->stored);
    server->has_stored = true;
    if (server->stored.restarts + server->sim->quarantines > server->sim->failures)
        sim_break(server->sim, "%u failures have cost %u restarts, and led to quarantine %u times",
                  server->sim->failures, server->stored.restarts, server->sim->quarantines);
    if (!closed || server->stored.state == ROUNDS_CLOSED)
        return;
    sim_trace(server->sim, "server: the next job");
    server->sim->renewed = true;
    server->wish = (struct ddpi_rounds_wish){0};
    memset(server->drained, 0, sizeof server->drained);
    server->sim->quarantines = 0;
}

static void on_blame(void *ctx, const char *name, const struct ddpi_rounds_blame *blame)
{
    struct sim_server *server = ctx;
    struct ddpi_rounds_blame none = {0};
    server->blamed[name[strlen("node")] - '0'] = blame != NULL ? *blame : none;
    if (blame == NULL || !blame->left_out)
        return;
    sim_trace(server->sim, "server: %s is in quarantine", name);
    server->sim->quarantines++;
}

static void step(struct sim_server *server)
{
    ddpi_rounds_step(server->rounds, clock_of(server));
}

/* ---- sessions ---- */

static void end_session(struct sim_server *server, uint64_t id, const char *why)
{
    struct sim_node *node = &server->sim->nodes[server->sessions[id].node];
    sim_trace(server->sim, "server: session %d of node %u ends: %s", (int)id, node->index, why);
    sim_node_stays_unclear(node);
    server->sessions[id].open = false;
    ddpi_rounds_gone(server->rounds, id);
}

static void expire(struct sim_server *server)
{
    for (uint64_t id = 1; id <= server->session_count; id++)
        if (server->sessions[id].open && server->sessions[id].until_ms <= clock_of(server))
            end_session(server, id, "its lease is over");
}

/* The session of @message, or 0. */
static uint64_t session_of(struct sim_server *server, unsigned node,
                           const struct sim_message *message)
{
    if (message->session != 0)
        return server->sessions[message->session].open ? message->session : 0;
    if (message->word != SIM_SAY || server->session_count + 1 == SIM_SESSIONS)
        return 0;
    uint64_t id = ++server->session_count;
    server->sessions[id] =
        (struct sim_session){.open = true, .node = node, .epoch = message->epoch};
    return id;
}

static void receive(struct sim_server *server, unsigned node, const struct sim_message *message)
{
    expire(server);
    uint64_t id = session_of(server, node, message);
    struct sim_session *session = &server->sessions[id];
    if (id == 0) {
        if (message->word != SIM_CLOSE)
            sim_send(server->sim, node, false,
                     &(struct sim_message){.word = SIM_UNKNOWN,
                                           .session = message->session,
                                           .epoch = message->epoch});
        return;
    }
    if (message->epoch < session->epoch)
        return;
    session->behind |= message->epoch > session->epoch;
    session->epoch = message->epoch;
    if (message->word == SIM_CLOSE) {
        end_session(server, id, "it was closed");
        return;
    }
    session->until_ms = clock_of(server) + SIM_LEASE_MS;
    tell(server, id, SIM_ACK, message->sent_ms);
    if (session->behind && session->told)
        tell(server, id, SIM_SEAT, 0);
    session->behind = false;
    if (message->word != SIM_SAY)
        return;
    session->says = message->says;
    server->sim->nodes[node].unclear &= message->says.sick[0] == '\0';
    server->reminded |= message->says.generation != 0;
    if (ddpi_rounds_member(server->rounds, id, &message->says) != DDP_OK)
        abort();
}

/* ---- its life ---- */

static void boot(struct sim_server *server)
{
    const struct ddpi_rounds_hooks hooks = {server, on_begin, on_seat, on_changed, on_blame};
    server->up = true;
    server->rounds = ddpi_rounds_create(&hooks, server->generation);
    if (server->rounds == NULL)
        abort();
    if (server->has_stored)
        ddpi_rounds_restore(server->rounds, &server->stored);
    for (uint64_t id = 1; id <= server->session_count; id++) {
        struct sim_session *session = &server->sessions[id];
        if (!session->open)
            continue;
        session->until_ms = clock_of(server) + SIM_LEASE_MS;
        session->epoch++; /* the connections of before are no more */
        session->behind = true;
        if (ddpi_rounds_member(server->rounds, id, &session->says) != DDP_OK)
            abort();
        if (session->told)
            ddpi_rounds_restore_seat(server->rounds, id, &session->seat);
    }
    for (unsigned i = 0; i < server->sim->node_count; i++) {
        char name[DDP_ROUND_NAME_SIZE];
        (void)snprintf(name, sizeof name, "node%u", i);
        if (server->blamed[i].failures != 0 &&
            ddpi_rounds_restore_blame(server->rounds, name, &server->blamed[i]) != DDP_OK)
            abort();
        if (server->drained[i])
            sim_server_drain(server, i, true);
        sim_post(server->sim, 1 + sim_random(server->sim, 50), SIM_RESET, i,
                 server->sim->nodes[i].boots);
    }
    sim_server_want(server);
}

/* All but the ids of sessions, which no server gives twice. */
static void forget(struct sim_server *server)
{
    for (uint64_t id = 1; id <= server->session_count; id++)
        server->sessions[id].open = false;
    memset(&server->stored, 0, sizeof server->stored);
    server->has_stored = false;
    memset(server->blamed, 0, sizeof server->blamed);
    server->sim->quarantines = 0;
    server->generation = 0;
    server->life++;
    server->forgetful = true;
    server->reminded = false;
}

void sim_server_die(struct sim_server *server, uint64_t down_ms, bool forgets)
{
    sim_trace(server->sim, "server dies, for %d ms%s", (int)down_ms,
              forgets ? ", and forgets all" : "");
    if (forgets)
        forget(server);
    ddpi_rounds_destroy(server->rounds);
    server->rounds = NULL;
    server->up = false;
    sim_post(server->sim, down_ms, SIM_BOOT, SIM_SERVER, 0);
}

void sim_server_want(struct sim_server *server)
{
    if (server->up)
        ddpi_rounds_wish(server->rounds, &server->wish);
}

void sim_server_drain(struct sim_server *server, unsigned node, bool drain)
{
    char name[DDP_ROUND_NAME_SIZE];
    (void)snprintf(name, sizeof name, "node%u", node);
    server->drained[node] = drain;
    if (drain)
        sim_node_stays_unclear(&server->sim->nodes[node]);
    if (server->up && ddpi_rounds_drain(server->rounds, name, drain) != DDP_OK)
        abort();
}

void sim_server_admit(struct sim_server *server, unsigned node)
{
    char name[DDP_ROUND_NAME_SIZE];
    (void)snprintf(name, sizeof name, "node%u", node);
    if (server->up)
        ddpi_rounds_admit(server->rounds, name);
}

void sim_server_event(struct sim_server *server, const struct sim_event *event)
{
    if (event->kind == SIM_TICK)
        sim_post(server->sim, 10 + sim_random(server->sim, 20), SIM_TICK, SIM_SERVER, 0);
    if (event->kind == SIM_BOOT)
        boot(server);
    else if (!server->up)
        return;
    else if (event->kind == SIM_ARRIVAL)
        receive(server, (unsigned)event->stamp, event->message);
    else
        expire(server);
    step(server);
}
