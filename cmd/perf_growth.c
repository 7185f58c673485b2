/*
 * perf_growth.c - what one operation costs the store's server when there are many keys, many waits
 * for other keys, or many idle connections. The cost is the server's processor time: it does not
 * contain what the load generator needs for itself.
 */
#include "error.h"
#include "mem.h"
#include "perf_crew.h"

enum {
    CONNECTIONS = 8,
    IN_FLIGHT = 16,
    SCRIPT_LEN = 4096,
    FEW_KEYS = 1000, /* where their number is not what grows */
    ROUNDS = 5,
    WAITS_EACH = 1000, /* on one connection: the server allows 1024 */
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

static bool post_waits(struct perf_load *load, struct perf_script *waits, uint32_t each,
                       struct ddp_error *err)
{
    for (uint32_t i = 0; i < load->count; i++) {
        const struct perf_pattern pattern = {.op = PERF_WAIT,
                                             .prefix = "wait/",
                                             .first = (uint64_t)i * each,
                                             .step = 1,
                                             .keys = UINT32_MAX};
        if (!perf_script_init(&waits[i], load->wire, &pattern, each))
            return !ddpi_error_nomem(err, ddpi_buf_len(&waits[i].bytes));
    }
    const struct perf_play play = {.scripts = waits};
    return perf_load_post(load, &play, err) && perf_confirm(load, err);
}

static bool begin_waits(struct perf_load *load, const struct perf_server *server, uint32_t count,
                        struct ddp_error *err)
{
    uint32_t each = count < WAITS_EACH ? count : WAITS_EACH;
    uint32_t connections = count / each;
    struct perf_script *waits = ddpi_calloc(connections, sizeof *waits);
    if (waits == NULL)
        return !ddpi_error_nomem(err, connections * sizeof *waits);
    bool done = begin_idle(load, server, connections, err) && post_waits(load, waits, each, err);
    for (uint32_t i = 0; i < connections; i++)
        perf_script_finish(&waits[i]);
    ddpi_free(waits);
    return done;
}

static const struct crowd crowds[] = {
    {"keys", 1000000, NULL},
    {"waits for other keys", 100000, begin_waits},
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

bool perf_growth(struct perf *perf, struct ddp_error *err)
{
    printf("\n| what there is | how many | set, server us | get, server us | set requests/s | get "
           "requests/s | server memory, bytes each |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof crowds / sizeof *crowds; i++)
        for (uint32_t count = 100; count <= crowds[i].max; count *= 10)
            if (!measure(perf, &crowds[i], count, err))
                return !ddpi_error_wrap(err, err->status, "with %u %s", count, crowds[i].name);
    return true;
}
