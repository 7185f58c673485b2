/*
 * crowd.c - a hundred to a hundred thousand agents meet: the time from the first that joins until
 * the last has its seat, the same after one of them is lost, and the server's memory.
 *
 * A process may not have a descriptor for each of so many agents everywhere, so a hundred share a
 * connection; each has a session, a member, a watch of its seat, and answers of its own, as the
 * agents of rendezvous.c have. What a connection costs is measured there.
 */
#include "error.h"
#include "perf_server.h"
#include "round_names.h"
#include "round_record.h"
#include "scale.h"

#include <ddprun/store_uv.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum {
    FEWEST_AGENTS = 100,
    AGENTS = 100000,
    SHARE = 100, /* agents of a connection */
    CROWD_RUNS = 3,
    CROWD_LIMIT_MS = 240000,
    CROWD_LEASE_MS = 600000,
    CROWD_KEY = 64,
};

#define CROWD_JOB "crowd"

enum crowd_measure { CROWD_FORM, CROWD_AGAIN, CROWD_MEMORY, CROWD_MEASURES };

static const struct {
    const char *name, *json, *goal;
} crowd_measures[] = {
    [CROWD_FORM] = {"first join to last seat, s", "form_s", "15"},
    [CROWD_AGAIN] = {"one lost to last new seat, s", "again_s", ""},
    [CROWD_MEMORY] = {"most memory of the server, MiB", "server_mib", ""},
};

struct crowd;
struct shared;

struct crowd_agent {
    struct shared *shared;
    struct ddp_store_session session;
    uint64_t id, watch;
    uint64_t generation; /* in which it has a seat */
};

/* A connection. */
struct shared {
    struct crowd *crowd;
    ddp_store_uv *store;
    struct crowd_agent agents[SHARE];
};

struct crowd {
    uv_loop_t loop;
    uv_timer_t limit;
    struct shared *connections;
    uint32_t count, open;
    uint32_t seated; /* in the generation that is waited for */
    uint64_t generation;
    struct ddp_error why; /* it has failed */
    struct perf_server server;
    struct perf_samples samples[CROWD_MEASURES];
};

static void crowd_fail(struct crowd *crowd, const char *why)
{
    if (crowd->why.status == DDP_OK)
        ddpi_error_set(&crowd->why, DDP_E_SYSTEM, "%s", why);
}

static bool crowd_failed(const struct crowd *crowd)
{
    return crowd->why.status != DDP_OK;
}

static uint32_t number_of_agent(const struct crowd_agent *agent)
{
    const struct shared *shared = agent->shared;
    return (uint32_t)(shared - shared->crowd->connections) * SHARE +
           (uint32_t)(agent - shared->agents);
}

static void key_of_agent(const struct crowd_agent *agent, const char *kind, char key[CROWD_KEY])
{
    snprintf(key, CROWD_KEY, DDPI_ROUND_PREFIX CROWD_JOB "/%s/%" PRIu64, kind, agent->id);
}

static void submit(struct crowd_agent *agent, struct ddp_store_request request,
                   ddp_store_uv_done *done)
{
    struct crowd *crowd = agent->shared->crowd;
    request.size = sizeof request;
    request.timeout_ms = CROWD_LIMIT_MS;
    if (ddp_store_uv_submit(agent->shared->store, &request, done, agent, NULL, &crowd->why) !=
        DDP_OK)
        crowd_fail(crowd, "cannot send a request");
}

static void on_done(void *data, const struct ddp_store_result *result)
{
    const struct crowd_agent *agent = data;
    if (result->status != DDP_OK && result->status != DDP_E_CANCELED)
        crowd_fail(agent->shared->crowd, result->message);
}

static void crowd_say(struct crowd_agent *agent, enum ddp_round_phase phase, uint64_t generation)
{
    const struct crowd *crowd = agent->shared->crowd;
    char key[CROWD_KEY];
    struct ddpi_buf record;
    struct ddp_round_member member = {
        .nproc = 8, .node_rank = -1, .phase = phase, .generation = generation};
    member.terms = (struct ddp_round_terms){
        .min_nodes = crowd->count - 1, .max_nodes = crowd->count, .settle_ms = CROWD_LIMIT_MS};
    snprintf(member.name, sizeof member.name, "node%u", number_of_agent(agent));
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    if (ddpi_round_member_put(&record, &member, &agent->shared->crowd->why) == DDP_OK) {
        key_of_agent(agent, "member", key);
        submit(agent,
               (struct ddp_store_request){.op = DDP_STORE_OP_SET_EPHEMERAL,
                                          .key = key,
                                          .value = ddpi_buf_head(&record),
                                          .value_len = ddpi_buf_len(&record),
                                          .session = &agent->session},
               on_done);
    }
    ddpi_buf_finish(&record);
}

static void take_seat(struct crowd_agent *agent, const struct ddp_round_seat *seat)
{
    struct crowd *crowd = agent->shared->crowd;
    if (seat->order == DDP_ROUND_END)
        crowd_fail(crowd, seat->text);
    if (seat->order == DDP_ROUND_STOP)
        crowd_say(agent, DDP_ROUND_IDLE, seat->generation);
    if (seat->order != DDP_ROUND_RUN || seat->generation == agent->generation)
        return;
    agent->generation = seat->generation;
    crowd->seated += seat->generation == crowd->generation;
    crowd_say(agent, DDP_ROUND_RUNNING, seat->generation);
}

static void on_crowd_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    struct shared *shared = data;
    struct ddp_round_seat seat;
    (void)store;
    for (unsigned i = 0; i < SHARE; i++) {
        struct crowd_agent *agent = &shared->agents[i];
        if (agent->watch != event->watch)
            continue;
        if (event->kind == DDP_STORE_EVENT_LOST)
            crowd_fail(shared->crowd, "changes of a seat were missed");
        else if (event->kind == DDP_STORE_EVENT_SET &&
                 ddpi_round_seat_get(ddpi_bytes_of(event->value, event->value_len), &seat,
                                     &shared->crowd->why) == DDP_OK)
            take_seat(agent, &seat);
    }
}

static void on_crowd_watching(void *data, const struct ddp_store_result *result)
{
    struct crowd_agent *agent = data;
    on_done(data, result);
    agent->watch = result->watch;
    crowd_say(agent, DDP_ROUND_IDLE, 0);
}

static void on_crowd_session(void *data, const struct ddp_store_result *result)
{
    struct crowd_agent *agent = data;
    char key[CROWD_KEY];
    on_done(data, result);
    if (result->status != DDP_OK)
        return;
    agent->session = *result->session;
    for (unsigned i = 0; i < 8; i++) /* a session's token begins with its number (proto.def) */
        agent->id |= (uint64_t)((const uint8_t *)agent->session.token)[i] << 8 * i;
    key_of_agent(agent, "seat", key);
    submit(agent, (struct ddp_store_request){.op = DDP_STORE_OP_WATCH, .key = key},
           on_crowd_watching);
}

static void open_connection(struct crowd *crowd, struct shared *shared)
{
    char endpoint[32];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", crowd->server.port);
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    const struct ddp_store_uv_hooks hooks = {
        .size = sizeof hooks, .data = shared, .event = on_crowd_event};
    shared->crowd = crowd;
    if (ddp_store_uv_open(&crowd->loop, &options, &hooks, &shared->store, &crowd->why) != DDP_OK)
        return;
    crowd->open++;
    for (unsigned i = 0; i < SHARE; i++) {
        shared->agents[i].shared = shared;
        submit(
            &shared->agents[i],
            (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = CROWD_LEASE_MS},
            on_crowd_session);
    }
}

static void lose_one(struct crowd *crowd)
{
    struct crowd_agent *agent = &crowd->connections[crowd->count / SHARE / 2].agents[SHARE / 2];
    submit(agent,
           (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_CLOSE, .session = &agent->session},
           on_done);
}

static void on_crowd_limit(uv_timer_t *limit)
{
    struct crowd *crowd = limit->data;
    char why[128];
    snprintf(why, sizeof why, "%u of %u agents had a seat after %d s", crowd->seated, crowd->count,
             CROWD_LIMIT_MS / 1000);
    crowd_fail(crowd, why);
}

static bool await_seats(struct crowd *crowd, uint32_t count, enum crowd_measure measure,
                        double begin_us)
{
    while (!crowd_failed(crowd) && crowd->seated < count)
        uv_run(&crowd->loop, UV_RUN_ONCE);
    if (!crowd_failed(crowd) &&
        !perf_add(&crowd->samples[measure], (perf_now_us() - begin_us) / 1e6))
        ddpi_error_nomem(&crowd->why, sizeof(double));
    return !crowd_failed(crowd);
}

static bool gather(struct crowd *crowd)
{
    crowd->generation = 1;
    crowd->seated = 0;
    double begin_us = perf_now_us();
    for (uint32_t i = 0; i < crowd->count / SHARE && !crowd_failed(crowd); i++)
        open_connection(crowd, &crowd->connections[i]);
    if (!await_seats(crowd, crowd->count, CROWD_FORM, begin_us))
        return false;
    crowd->generation = 2;
    crowd->seated = 0;
    begin_us = perf_now_us();
    lose_one(crowd);
    double mib;
    return await_seats(crowd, crowd->count - 1, CROWD_AGAIN, begin_us) &&
           (mib = (double)perf_memory_kib(crowd->server.pid, "VmHWM:") / 1024,
            perf_add(&crowd->samples[CROWD_MEMORY], mib));
}

static void disperse(struct crowd *crowd)
{
    for (uint32_t i = 0; i < crowd->count / SHARE; i++)
        if (crowd->connections[i].store != NULL)
            ddp_store_uv_close(crowd->connections[i].store, NULL, NULL);
    uv_close((uv_handle_t *)&crowd->limit, NULL);
    uv_run(&crowd->loop, UV_RUN_DEFAULT);
    perf_server_stop(&crowd->server);
}

static bool run_crowd(struct perf *perf, struct crowd *crowd)
{
    if (uv_loop_init(&crowd->loop) != 0)
        return !ddpi_error_set(&crowd->why, DDP_E_SYSTEM, "cannot make an event loop");
    bool done = perf_server_start_ours(perf, &crowd->server, &crowd->why);
    crowd->connections = calloc(crowd->count / SHARE, sizeof *crowd->connections);
    if (done && crowd->connections == NULL)
        done = !ddpi_error_nomem(&crowd->why, crowd->count);
    if (done) {
        uv_timer_init(&crowd->loop, &crowd->limit);
        crowd->limit.data = crowd;
        uv_timer_start(&crowd->limit, on_crowd_limit, CROWD_LIMIT_MS, 0);
        done = gather(crowd);
        disperse(crowd);
    }
    uv_loop_close(&crowd->loop);
    free(crowd->connections);
    return done;
}

static void print_crowd(struct perf *perf, struct crowd *crowd)
{
    for (int m = 0; m < CROWD_MEASURES; m++) {
        struct perf_samples *samples = &crowd->samples[m];
        double median = perf_percentile(samples, 50), max = perf_percentile(samples, 100);
        printf("| %s | %u | %.3f | %.3f | %s |\n", crowd_measures[m].name, crowd->count, median,
               max, crowd->count == AGENTS ? crowd_measures[m].goal : "");
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"crowd\",\"contender\":\"ddprun\",\"agents\":%u,"
                    "\"runs\":%zu,\"%s\":%.4f,\"max\":%.4f}\n",
                    crowd->count, samples->count, crowd_measures[m].json, median, max);
    }
}

static bool measure_crowd(struct perf *perf, uint32_t count, struct ddp_error *err)
{
    struct crowd crowd = {.count = count};
    uint32_t runs = perf->options.runs < CROWD_RUNS ? perf->options.runs : CROWD_RUNS;
    bool done = true;
    for (uint32_t i = 0; done && i < runs; i++)
        done = run_crowd(perf, &crowd);
    if (done)
        print_crowd(perf, &crowd);
    else
        ddpi_error_set(err, crowd.why.status, "%u agents: %s", count, crowd.why.msg);
    for (int m = 0; m < CROWD_MEASURES; m++)
        perf_samples_finish(&crowd.samples[m]);
    return done;
}

bool scale_crowd(struct perf *perf, struct ddp_error *err)
{
    bool done = true;
    signal(SIGPIPE, SIG_IGN);
    printf("| measure | agents | median | max | goal |\n|---|---|---|---|---|\n");
    for (uint32_t count = FEWEST_AGENTS; done && count <= AGENTS; count *= 10)
        done = measure_crowd(perf, count, err);
    return done;
}
