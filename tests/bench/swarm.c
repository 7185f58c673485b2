/*
 * swarm.c - ten thousand clients at once: how long it takes to connect them all, a barrier of
 * all, one set that wakes all, and what an idle one weighs.
 *
 * Redis has neither barriers nor gets that wait: it is measured as far as it goes.
 */
#include "error.h"
#include "perf_crew.h"
#include "scale.h"

#include <sys/resource.h>

enum { SWARM = 10000, OTHER_FILES = 64, MAX_ROUNDS = 10, MAX_SIDES = 2 };

enum measure { CONNECT, BARRIER, WAKE, BYTES_EACH, MEASURES };

static const struct {
    const char *name;
    const char *json;
    const char *goal;
    double unit; /* what is printed is the sample divided by it */
} measures[] = {
    [CONNECT] = {"connect and greet all, ms", "connect_ms", "1000", 1e3},
    [BARRIER] = {"a barrier of all, ms", "barrier_ms", "1000", 1e3},
    [WAKE] = {"one set wakes all, ms", "wake_ms", "100", 1e3},
    [BYTES_EACH] = {"an idle connection, bytes", "idle_bytes", "4096", 1},
};

struct swarm {
    const struct perf_side *side;
    uint32_t size;
    uint32_t round;
    struct perf_server server;
    struct perf_load load;
    struct perf_samples samples[MEASURES];
};

static bool note(struct swarm *swarm, enum measure measure, double value, struct ddp_error *err)
{
    return perf_add(&swarm->samples[measure], value) || !ddpi_error_nomem(err, sizeof value);
}

static bool prepare(struct swarm *swarm, enum perf_op op, struct perf_script *script,
                    struct ddp_error *err)
{
    const struct perf_pattern pattern = {.op = op,
                                         .prefix = "swarm/",
                                         .first = swarm->round,
                                         .step = 1,
                                         .keys = UINT32_MAX,
                                         .arrivals = swarm->size};
    return perf_script_init(script, swarm->side->wire, &pattern, 1) ||
           !ddpi_error_nomem(err, ddpi_buf_len(&script->bytes));
}

static bool run_connect(struct swarm *swarm, struct ddp_error *err)
{
    double elapsed_us;
    double before_kib = (double)perf_memory_kib(swarm->server.pid, "VmRSS:");
    if (!perf_load_open(&swarm->load, swarm->side->wire, swarm->server.port, swarm->size,
                        &elapsed_us, err))
        return false;
    double added_kib = (double)perf_memory_kib(swarm->server.pid, "VmRSS:") - before_kib;
    /* A later round finds the memory of the first one. */
    return note(swarm, CONNECT, elapsed_us, err) &&
           (swarm->round > 0 || note(swarm, BYTES_EACH, added_kib * 1024 / swarm->size, err));
}

static bool run_barrier(struct swarm *swarm, struct ddp_error *err)
{
    struct perf_script arrive = {0};
    struct perf_result result = {0};
    const struct perf_play play = {.scripts = &arrive, .shared = true, .in_flight = 1};
    bool done = prepare(swarm, PERF_BARRIER, &arrive, err) &&
                perf_load_play(&swarm->load, &play, &result, err) &&
                note(swarm, BARRIER, result.elapsed_us, err);
    perf_script_finish(&arrive);
    return done;
}

/* From before the set is sent until the last of those who waited has its answer. */
static bool time_wake(struct swarm *swarm, struct perf_load *setter,
                      const struct perf_script *script, struct ddp_error *err)
{
    struct perf_result result;
    const struct perf_play play = {.scripts = script, .in_flight = 1};
    double begin = perf_now_us();
    return perf_load_play(setter, &play, &result, err) && perf_load_await(&swarm->load, err) &&
           note(swarm, WAKE, perf_now_us() - begin, err);
}

static bool run_wake(struct swarm *swarm, struct ddp_error *err)
{
    struct perf_script wait = {0}, set = {0};
    struct perf_load setter = {0};
    double connect_us;
    const struct perf_play waits = {.scripts = &wait, .shared = true};
    bool done =
        prepare(swarm, PERF_WAIT, &wait, err) && prepare(swarm, PERF_SET, &set, err) &&
        perf_load_open(&setter, swarm->side->wire, swarm->server.port, 1, &connect_us, err) &&
        perf_load_post(&swarm->load, &waits, err) && perf_confirm(&swarm->load, err) &&
        time_wake(swarm, &setter, &set, err);
    perf_load_close(&setter);
    perf_script_finish(&wait);
    perf_script_finish(&set);
    return done;
}

static bool run_round(struct swarm *swarm, struct ddp_error *err)
{
    bool waits = swarm->side == &perf_side_ours;
    bool done =
        run_connect(swarm, err) && (!waits || (run_barrier(swarm, err) && run_wake(swarm, err)));
    perf_load_close(&swarm->load);
    swarm->round++;
    return done ||
           !ddpi_error_wrap(err, err->status, "%u clients of %s", swarm->size, swarm->side->name);
}

static void print_swarm(struct perf *perf, struct swarm *swarm)
{
    for (int m = 0; m < MEASURES; m++) {
        struct perf_samples *samples = &swarm->samples[m];
        double median = perf_percentile(samples, 50) / measures[m].unit;
        double max = perf_percentile(samples, 100) / measures[m].unit;
        if (samples->count == 0)
            continue;
        printf("| %s | %s | %u | %.1f | %.1f | %s |\n", measures[m].name, swarm->side->name,
               swarm->size, median, max, measures[m].goal);
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"store-swarm\",\"contender\":\"%s\",\"clients\":%u,"
                    "\"runs\":%zu,\"%s\":%.3f,\"max\":%.3f}\n",
                    swarm->side->name, swarm->size, samples->count, measures[m].json, median, max);
    }
}

/* As many as the limit of open files allows: each process holds one end of each connection. */
static uint32_t swarm_size(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= SWARM + OTHER_FILES)
        return SWARM;
    printf("Only %lu files may be open at once (ulimit -n).\n\n", (unsigned long)files.rlim_cur);
    return files.rlim_cur > 2 * OTHER_FILES ? (uint32_t)files.rlim_cur - OTHER_FILES : OTHER_FILES;
}

bool scale_swarm(struct perf *perf, struct ddp_error *err)
{
    struct swarm swarms[MAX_SIDES] = {{.side = &perf_side_ours}, {.side = &perf_side_redis}};
    size_t count = perf_in_path("redis-server") ? MAX_SIDES : 1;
    uint32_t size = swarm_size();
    uint32_t rounds = perf->options.runs < MAX_ROUNDS ? perf->options.runs : MAX_ROUNDS;
    bool done = true;
    for (size_t i = 0; done && i < count; i++) {
        swarms[i].size = size;
        done = swarms[i].side->start(perf, &swarms[i].server, err) &&
               perf_fill(swarms[i].side, &swarms[i].server, 1, err);
    }
    for (uint32_t round = 0; done && round < rounds; round++)
        for (size_t i = 0; done && i < count; i++)
            done = run_round(&swarms[i], err);
    printf("| measure | server | clients | median | max | goal |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        if (done)
            print_swarm(perf, &swarms[i]);
        perf_server_stop(&swarms[i].server);
        for (int m = 0; m < MEASURES; m++)
            perf_samples_finish(&swarms[i].samples[m]);
    }
    return done;
}
