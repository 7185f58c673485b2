/*
 * growth.c - what one operation costs the store's server beside many keys, many waits for other
 * keys or watches of them, many sessions, or many idle connections. The cost is the server's
 * processor time: it does not contain that of the load generator.
 */
#include "error.h"
#include "mem.h"
#include "perf_crew.h"
#include "scale.h"

enum {
    CONNECTIONS = 8,
    IN_FLIGHT = 16,
    SCRIPT_LEN = 4096,
    FEW_KEYS = 1000, /* where their number is not what grows */
    ROUNDS = 5,
    WAITS_EACH = 1000, /* and watches, on one connection: the server allows 1024 */
    LISTED = 10,       /* keys */
};

/* Something of which there are many while operations are measured. */
struct crowd {
    const char *name;
    uint32_t max;
    /* Makes them, through @load; NULL: they are the keys. */
    bool (*begin)(struct perf_load *load, const struct perf_server *server, uint32_t count,
                  struct ddp_error *err);
};

static bool begin_idle(struct perf_load *load, const struct perf_server *server, uint32_t count,
                       struct ddp_error *err)
{
    double connect_us;
    return perf_load_open(load, &perf_wire_native, server->port, count, &connect_us, err);
}

/* What makes a crowd: @each requests on every connection. */
static bool put_scripts(struct perf_load *load, struct perf_script *scripts,
                        struct perf_pattern pattern, uint32_t each, struct ddp_error *err)
{
    for (uint32_t i = 0; i < load->count; i++) {
        pattern.first = (uint64_t)i * each;
        if (!perf_script_init(&scripts[i], load->wire, &pattern, each))
            return !ddpi_error_nomem(err, ddpi_buf_len(&scripts[i].bytes));
    }
    return true;
}

/* Whose answers come at once are awaited; of the others is known that the server has them all. */
static bool ask_all(struct perf_load *load, const struct perf_script *scripts, bool answered,
                    struct ddp_error *err)
{
    struct perf_result result;
    const struct perf_play play = {.scripts = scripts, .in_flight = IN_FLIGHT};
    if (answered)
        return perf_load_play(load, &play, &result, err);
    return perf_load_post(load, &play, err) && perf_confirm(load, err);
}

static bool begin_requests(struct perf_load *load, const struct perf_server *server,
                           enum perf_op op, uint32_t count, struct ddp_error *err)
{
    const struct perf_pattern pattern = {
        .op = op, .prefix = "other/", .step = 1, .keys = UINT32_MAX};
    uint32_t each = count < WAITS_EACH ? count : WAITS_EACH;
    uint32_t connections = count / each;
    struct perf_script *scripts = ddpi_calloc(connections, sizeof *scripts);
    if (scripts == NULL)
        return !ddpi_error_nomem(err, connections * sizeof *scripts);
    bool done = begin_idle(load, server, connections, err) &&
                put_scripts(load, scripts, pattern, each, err) &&
                ask_all(load, scripts, op != PERF_WAIT, err);
    for (uint32_t i = 0; i < connections; i++)
        perf_script_finish(&scripts[i]);
    ddpi_free(scripts);
    return done;
}

static bool begin_waits(struct perf_load *load, const struct perf_server *server, uint32_t count,
                        struct ddp_error *err)
{
    return begin_requests(load, server, PERF_WAIT, count, err);
}

static bool begin_watches(struct perf_load *load, const struct perf_server *server, uint32_t count,
                          struct ddp_error *err)
{
    return begin_requests(load, server, PERF_WATCH, count, err);
}

static bool begin_sessions(struct perf_load *load, const struct perf_server *server, uint32_t count,
                           struct ddp_error *err)
{
    return begin_requests(load, server, PERF_SESSION, count, err);
}

static const struct crowd crowds[] = {
    {"keys", 1000000, NULL},
    {"waits for other keys", 100000, begin_waits},
    {"watches of other keys", 100000, begin_watches},
    {"sessions", 10000, begin_sessions},
    {"idle connections", 10000, begin_idle},
};

struct costs {
    struct perf_samples rates[PERF_CREW_OPS];
    struct perf_samples server_us[PERF_CREW_OPS];
    long memory_kib; /* what the crowd has added to the server */
};

static bool run_ops(struct perf *perf, struct perf_crew *crew, struct costs *costs,
                    struct ddp_error *err)
{
    for (int round = 0; round < ROUNDS; round++)
        for (int op = 0; op < PERF_CREW_OPS; op++) {
            struct perf_crew_figures seen;
            if (!perf_crew_run(crew, (enum perf_op)op, IN_FLIGHT, perf->options.duration_ms, NULL,
                               &seen, err))
                return false;
            if (!perf_add(&costs->rates[op], seen.rate) ||
                !perf_add(&costs->server_us[op], seen.server_us))
                return !ddpi_error_nomem(err, sizeof(double));
        }
    return true;
}

static void print_costs(struct perf *perf, const struct crowd *crowd, uint32_t count,
                        struct costs *costs)
{
    double set_rate = perf_percentile(&costs->rates[PERF_SET], 50);
    double get_rate = perf_percentile(&costs->rates[PERF_GET], 50);
    double set_us = perf_percentile(&costs->server_us[PERF_SET], 50);
    double get_us = perf_percentile(&costs->server_us[PERF_GET], 50);
    double bytes_each = (double)costs->memory_kib * 1024 / count;
    printf("| %s | %u | %.2f | %.2f | %.0f | %.0f | %.0f |\n", crowd->name, count, set_us, get_us,
           set_rate, get_rate, bytes_each);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"store-growth\",\"what\":\"%s\",\"count\":%u,"
                "\"set_server_us\":%.3f,\"get_server_us\":%.3f,\"set_requests_per_s\":%.0f,"
                "\"get_requests_per_s\":%.0f,\"bytes_each\":%.0f}\n",
                crowd->name, count, set_us, get_us, set_rate, get_rate, bytes_each);
}

static bool measure(struct perf *perf, const struct crowd *crowd, uint32_t count,
                    struct ddp_error *err)
{
    struct perf_server server = {0};
    struct perf_load load = {0};
    struct perf_crew crew = {0};
    struct costs costs = {0};
    uint64_t keys = crowd->begin == NULL ? count : FEW_KEYS;
    const struct perf_crew_shape shape = {CONNECTIONS, SCRIPT_LEN, keys};
    bool done =
        perf_server_start_ours(perf, &server, err) && perf_fill(&perf_side_ours, &server, 1, err);
    long before_kib = (long)perf_memory_kib(server.pid, "VmRSS:");
    done = done && (crowd->begin != NULL ? crowd->begin(&load, &server, count, err)
                                         : perf_fill(&perf_side_ours, &server, keys, err));
    costs.memory_kib = (long)perf_memory_kib(server.pid, "VmRSS:") - before_kib;
    done = done && perf_crew_open(&crew, &perf_side_ours, &server, &shape, err) &&
           run_ops(perf, &crew, &costs, err);
    if (done)
        print_costs(perf, crowd, count, &costs);
    for (int op = 0; op < PERF_CREW_OPS; op++) {
        perf_samples_finish(&costs.rates[op]);
        perf_samples_finish(&costs.server_us[op]);
    }
    perf_crew_close(&crew);
    perf_load_close(&load);
    perf_server_stop(&server);
    return done;
}

/* ---- list ---- */

/* Asked on one connection, after a first time that is not counted. */
static bool run_lists(struct perf *perf, struct perf_load *load, pid_t server, struct costs *costs,
                      struct ddp_error *err)
{
    static const struct perf_pattern listed = {
        .op = PERF_SET, .prefix = "list/", .step = 1, .keys = LISTED};
    static const struct perf_pattern list = {.op = PERF_LIST, .prefix = "list/", .keys = 1};
    struct perf_script set = {0}, ask = {0};
    const struct perf_play fill = {.scripts = &set, .in_flight = 1};
    const struct perf_play play = {.scripts = &ask,
                                   .in_flight = IN_FLIGHT,
                                   .duration_ns = perf->options.duration_ms * 1000000};
    struct perf_result result;
    bool done = perf_script_init(&set, load->wire, &listed, LISTED) &&
                perf_script_init(&ask, load->wire, &list, SCRIPT_LEN);
    if (!done)
        ddpi_error_nomem(err, SCRIPT_LEN);
    done = done && perf_load_play(load, &fill, &result, err);
    for (int round = 0; done && round <= ROUNDS; round++) {
        double cpu_us = perf_cpu_us(server);
        done = perf_load_play(load, &play, &result, err);
        cpu_us = perf_cpu_us(server) - cpu_us;
        if (done && round > 0 &&
            (!perf_add(&costs->rates[0], (double)result.requests / result.elapsed_us * 1e6) ||
             !perf_add(&costs->server_us[0], cpu_us / (double)result.requests)))
            done = !ddpi_error_nomem(err, sizeof(double));
    }
    perf_script_finish(&set);
    perf_script_finish(&ask);
    return done;
}

static bool measure_list(struct perf *perf, uint32_t count, struct ddp_error *err)
{
    struct perf_server server = {0};
    struct perf_load load = {0};
    struct costs costs = {0};
    bool done = perf_server_start_ours(perf, &server, err) &&
                perf_fill(&perf_side_ours, &server, count, err) &&
                begin_idle(&load, &server, 1, err) &&
                run_lists(perf, &load, server.pid, &costs, err);
    double rate = perf_percentile(&costs.rates[0], 50);
    double server_us = perf_percentile(&costs.server_us[0], 50);
    if (done)
        printf("| %u | %.2f | %.0f |\n", count, server_us, rate);
    if (done && perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"store-list\",\"listed\":%d,\"others\":%u,"
                "\"server_us\":%.3f,\"requests_per_s\":%.0f}\n",
                LISTED, count, server_us, rate);
    perf_samples_finish(&costs.rates[0]);
    perf_samples_finish(&costs.server_us[0]);
    perf_load_close(&load);
    perf_server_stop(&server);
    return done;
}

static bool growth_of_list(struct perf *perf, struct ddp_error *err)
{
    printf("\n| other keys, beside the %d listed | list, server us | requests/s |\n|---|---|---|\n",
           LISTED);
    for (uint32_t count = 100; count <= crowds[0].max; count *= 10)
        if (!measure_list(perf, count, err))
            return !ddpi_error_wrap(err, err->status, "list beside %u keys", count);
    return true;
}

bool scale_growth(struct perf *perf, struct ddp_error *err)
{
    printf("| what there is | how many | set, server us | get, server us | set requests/s | get "
           "requests/s | server memory, bytes each |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof crowds / sizeof *crowds; i++)
        for (uint32_t count = 100; count <= crowds[i].max; count *= 10)
            if (!measure(perf, &crowds[i], count, err))
                return !ddpi_error_wrap(err, err->status, "with %u %s", count, crowds[i].name);
    return growth_of_list(perf, err);
}
