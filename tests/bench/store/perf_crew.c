/*
 * perf_crew.c - connections with prepared requests. Owns both, but not the server.
 */
#include "perf_crew.h"

#include "error.h"
#include "mem.h"

/* A prime that divides no number of keys used here: successive requests of a script use distant
 * keys, and a script of enough requests uses every key. */
enum { STRIDE = 1000003, FILL_IN_FLIGHT = 16, FILL_LEN = 4096 };

const struct perf_side perf_side_ours = {"ddprun", &perf_wire_native, perf_server_start_ours};
const struct perf_side perf_side_redis = {"Redis", &perf_wire_resp, perf_server_start_redis};

static const char key_prefix[] = "bench/";

/* Play a script of @count requests on all connections. */
static bool play_once(struct perf_load *load, const struct perf_pattern *pattern, uint32_t count,
                      uint32_t in_flight, struct ddp_error *err)
{
    struct perf_script script;
    const struct perf_play play = {.scripts = &script, .shared = true, .in_flight = in_flight};
    struct perf_result result;
    bool done = perf_script_init(&script, load->wire, pattern, count)
                    ? perf_load_play(load, &play, &result, err)
                    : !ddpi_error_nomem(err, ddpi_buf_len(&script.bytes));
    perf_script_finish(&script);
    return done;
}

bool perf_fill(const struct perf_side *side, const struct perf_server *server, uint64_t keys,
               struct ddp_error *err)
{
    struct perf_load load;
    double connect_us;
    bool done = perf_load_open(&load, side->wire, server->port, 1, &connect_us, err);
    for (uint64_t first = 0; done && first < keys; first += FILL_LEN) {
        const struct perf_pattern pattern = {
            .op = PERF_SET, .prefix = key_prefix, .first = first, .step = 1, .keys = keys};
        done = play_once(&load, &pattern, FILL_LEN, FILL_IN_FLIGHT, err);
    }
    perf_load_close(&load);
    return done;
}

bool perf_confirm(struct perf_load *load, struct ddp_error *err)
{
    const struct perf_pattern pattern = {.op = PERF_GET, .prefix = key_prefix, .keys = 1};
    return play_once(load, &pattern, 1, 1, err);
}

static bool make_scripts(struct perf_crew *crew, const struct perf_side *side,
                         const struct perf_crew_shape *shape, struct ddp_error *err)
{
    for (int op = 0; op < PERF_CREW_OPS; op++) {
        crew->scripts[op] = ddpi_calloc(shape->connections, sizeof **crew->scripts);
        if (crew->scripts[op] == NULL)
            return !ddpi_error_nomem(err, shape->connections * sizeof **crew->scripts);
        struct perf_pattern pattern = {
            .op = (enum perf_op)op, .prefix = key_prefix, .step = STRIDE, .keys = shape->keys};
        for (uint32_t i = 0; i < shape->connections; i++) {
            pattern.first = (uint64_t)i * shape->each * STRIDE;
            if (!perf_script_init(&crew->scripts[op][i], side->wire, &pattern, shape->each))
                return !ddpi_error_nomem(err, ddpi_buf_len(&crew->scripts[op][i].bytes));
        }
    }
    return true;
}

bool perf_crew_open(struct perf_crew *crew, const struct perf_side *side,
                    const struct perf_server *server, const struct perf_crew_shape *shape,
                    struct ddp_error *err)
{
    double connect_us;
    *crew = (struct perf_crew){.server = server->pid, .connections = shape->connections};
    return perf_fill(side, server, shape->keys, err) && make_scripts(crew, side, shape, err) &&
           perf_load_open(&crew->load, side->wire, server->port, shape->connections, &connect_us,
                          err);
}

void perf_crew_close(struct perf_crew *crew)
{
    perf_load_close(&crew->load);
    for (int op = 0; op < PERF_CREW_OPS; op++) {
        for (uint32_t i = 0; crew->scripts[op] != NULL && i < crew->connections; i++)
            perf_script_finish(&crew->scripts[op][i]);
        ddpi_free(crew->scripts[op]);
    }
    *crew = (struct perf_crew){0};
}

bool perf_crew_run(struct perf_crew *crew, enum perf_op op, uint32_t in_flight,
                   uint64_t duration_ms, struct perf_histogram *latencies,
                   struct perf_crew_figures *ret, struct ddp_error *err)
{
    const struct perf_play play = {.scripts = crew->scripts[op],
                                   .in_flight = in_flight,
                                   .duration_ns = duration_ms * 1000000,
                                   .latencies = latencies};
    struct perf_result result;
    double cpu_us = perf_cpu_us(crew->server);
    if (!perf_load_play(&crew->load, &play, &result, err))
        return false;
    cpu_us = perf_cpu_us(crew->server) - cpu_us;
    *ret = (struct perf_crew_figures){(double)result.requests / result.elapsed_us * 1e6,
                                      cpu_us / (double)result.requests};
    return true;
}
