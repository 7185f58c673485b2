/*
 * store.c - measures ddprund and Redis under the same load. The method is in
 * docs/benchmarks/store.md.
 *
 * Contenders alternate within each round, so that a change of the machine's speed affects both.
 * Both servers run all the time; one is idle while the other is measured.
 */
#include "error.h"
#include "mem.h"
#include "perf_crew.h"

#include <sys/resource.h>

enum { MAX_SIDES = 2, SCRIPT_LEN = 1024 };

static const struct {
    uint32_t connections;
    uint32_t in_flight;
} shapes[] = {{1, 1}, {64, 1}, {64, 16}};

static const char *const op_names[] = {[PERF_SET] = "set", [PERF_GET] = "get"};

struct figures {
    struct perf_samples rates;
    struct perf_samples server_us;
    struct perf_histogram latencies;
};

struct contender {
    const struct perf_side *side;
    struct perf_server server;
    struct perf_crew crew;
    struct figures figures[PERF_CREW_OPS];
};

struct contest {
    struct contender contenders[MAX_SIDES]; /* ours, and Redis if it is installed */
    size_t count;
};

static bool run_turn(struct perf *perf, struct contender *c, enum perf_op op, uint32_t in_flight,
                     bool counted, struct ddp_error *err)
{
    struct figures *figures = &c->figures[op];
    struct perf_crew_figures seen;
    if (!perf_crew_run(&c->crew, op, in_flight, perf->options.duration_ms,
                       counted ? &figures->latencies : NULL, &seen, err))
        return !ddpi_error_wrap(err, err->status, "%s, %s", c->side->name, op_names[op]);
    if (counted &&
        (!perf_add(&figures->rates, seen.rate) || !perf_add(&figures->server_us, seen.server_us)))
        return !ddpi_error_nomem(err, figures->rates.size * sizeof(double));
    return true;
}

/* @ratio: to Redis; 0: Redis is not installed. */
static void print_store_row(struct perf *perf, struct contender *c, size_t shape, enum perf_op op,
                            double ratio)
{
    char times[16] = "-", json_times[16] = "null";
    if (ratio > 0) {
        snprintf(times, sizeof times, "%.2f", ratio);
        snprintf(json_times, sizeof json_times, "%.3f", ratio);
    }
    struct figures *figures = &c->figures[op];
    double rate = perf_percentile(&figures->rates, 50);
    double server_us = perf_percentile(&figures->server_us, 50);
    double p50_us = perf_histogram_percentile(&figures->latencies, 50) / 1e3;
    double p99_us = perf_histogram_percentile(&figures->latencies, 99) / 1e3;
    printf("| %u x %u | %s | %s | %.0f | %s | %.1f | %.1f | %.2f |\n", shapes[shape].connections,
           shapes[shape].in_flight, op_names[op], c->side->name, rate, times, p50_us, p99_us,
           server_us);
    if (perf->json != NULL)
        fprintf(perf->json,
                "{\"benchmark\":\"store\",\"connections\":%u,\"in_flight\":%u,\"op\":\"%s\","
                "\"contender\":\"%s\",\"runs\":%zu,\"requests_per_s\":%.0f,\"ratio_to_redis\":%s,"
                "\"p50_us\":%.2f,\"p99_us\":%.2f,\"server_us_per_request\":%.3f}\n",
                shapes[shape].connections, shapes[shape].in_flight, op_names[op], c->side->name,
                figures->rates.count, rate, json_times, p50_us, p99_us, server_us);
}

static void print_shape(struct perf *perf, struct contest *contest, size_t shape)
{
    for (int op = 0; op < PERF_CREW_OPS; op++)
        for (size_t i = 0; i < contest->count; i++) {
            struct contender *c = &contest->contenders[i];
            struct perf_samples *redis = &contest->contenders[1].figures[op].rates;
            double ratio = redis->count > 0 ? perf_percentile(&c->figures[op].rates, 50) /
                                                  perf_percentile(redis, 50)
                                            : 0;
            print_store_row(perf, c, shape, (enum perf_op)op, ratio);
        }
}

static bool run_rounds(struct perf *perf, struct contest *contest, size_t shape,
                       struct ddp_error *err)
{
    for (uint32_t round = 0; round <= perf->options.runs; round++) /* round 0 warms up */
        for (int op = 0; op < PERF_CREW_OPS; op++)
            for (size_t i = 0; i < contest->count; i++)
                if (!run_turn(perf, &contest->contenders[i], (enum perf_op)op,
                              shapes[shape].in_flight, round > 0, err))
                    return false;
    return true;
}

static bool compare_shape(struct perf *perf, struct contest *contest, size_t shape,
                          struct ddp_error *err)
{
    const uint32_t connections = shapes[shape].connections;
    const struct perf_crew_shape crew = {connections, SCRIPT_LEN,
                                         (uint64_t)connections * SCRIPT_LEN};
    bool done = true;
    for (size_t i = 0; done && i < contest->count; i++) {
        struct contender *c = &contest->contenders[i];
        done = perf_crew_open(&c->crew, c->side, &c->server, &crew, err);
    }
    done = done && run_rounds(perf, contest, shape, err);
    if (done)
        print_shape(perf, contest, shape);
    for (size_t i = 0; i < contest->count; i++) {
        struct contender *c = &contest->contenders[i];
        perf_crew_close(&c->crew);
        for (int op = 0; op < PERF_CREW_OPS; op++) {
            perf_samples_finish(&c->figures[op].rates);
            perf_samples_finish(&c->figures[op].server_us);
            c->figures[op] = (struct figures){0};
        }
    }
    return done;
}

static void choose_contenders(struct contest *contest)
{
    contest->contenders[contest->count++].side = &perf_side_ours;
    if (perf_in_path("redis-server"))
        contest->contenders[contest->count++].side = &perf_side_redis;
    else
        printf("Redis is not installed (redis-server).\n\n");
}

static bool compare_speed(struct perf *perf, struct ddp_error *err)
{
    struct contest *contest = ddpi_calloc(1, sizeof *contest);
    if (contest == NULL)
        return !ddpi_error_nomem(err, sizeof *contest);
    choose_contenders(contest);
    bool done = true;
    for (size_t i = 0; done && i < contest->count; i++) {
        struct contender *c = &contest->contenders[i];
        done = c->side->start(perf, &c->server, err);
    }
    printf(
        "| connections x in flight | operation | server | requests/s | x Redis | p50 us | p99 us "
        "| server us/request |\n|---|---|---|---|---|---|---|---|\n");
    for (size_t shape = 0; done && shape < sizeof shapes / sizeof *shapes; shape++)
        done = compare_shape(perf, contest, shape, err);
    for (size_t i = 0; i < contest->count; i++)
        perf_server_stop(&contest->contenders[i].server);
    ddpi_free(contest);
    return done;
}

bool perf_store(struct perf *perf, struct ddp_error *err)
{
    struct rlimit files; /* the servers inherit this limit */
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    printf("# ddp-bench store: one server process, one process that loads it, %d-byte values\n\n",
           PERF_VALUE_LEN);
    return compare_speed(perf, err);
}
