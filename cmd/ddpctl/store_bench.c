/*
 * store_bench.c - "ddpctl store bench": measures a store's speed from this machine. Each thread has
 * one request in flight through the blocking client. Owns the keys below one prefix, and deletes
 * them afterwards. tests/bench measures the server's limits.
 */
#include "clock.h"
#include "ddpctl_store.h"
#include "error.h"
#include "mem.h"
#include "perf_stats.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { KEYS_EACH = 16, DURATION_MS = 2000, VALUE_SIZE = 64, PREFIX_MAX = 64 };

struct bench {
    const struct ddpctl_call *call;
    char prefix[PREFIX_MAX];
    void *value;
    size_t value_len;
    const char *op; /* set, get or mix */
    atomic_bool stop;
};

struct client {
    struct bench *bench;
    uint32_t number;
    pthread_t thread;
    ddp_store *store;
    struct perf_histogram latencies; /* microseconds */
    double rate;                     /* requests per second */
    ddp_status status;
    struct ddp_error err;
};

static ddp_status bench_ask(struct client *client, uint64_t request, bool set)
{
    const struct bench *bench = client->bench;
    char key[PREFIX_MAX + 32];
    void *value = NULL;
    size_t len;
    snprintf(key, sizeof key, "%s%" PRIu32 "/%" PRIu64, bench->prefix, client->number,
             request % KEYS_EACH);
    if (set)
        return ddp_store_set(client->store, key, bench->value, bench->value_len,
                             bench->call->timeout_ms, NULL, &client->err);
    ddp_status status = ddp_store_try_get(client->store, key, bench->call->timeout_ms, &value, &len,
                                          NULL, &client->err);
    ddp_store_free(value);
    return status;
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    struct bench *bench = client->bench;
    for (uint64_t i = 0; client->status == DDP_OK && i < KEYS_EACH; i++) /* not counted */
        client->status = bench_ask(client, i, true);
    uint64_t begin = ddpi_monotonic_us(), before = begin, after = begin;
    for (uint64_t i = 0; client->status == DDP_OK && !atomic_load(&bench->stop); i++) {
        bool set = *bench->op == 's' || (*bench->op == 'm' && i % 2 == 0);
        client->status = bench_ask(client, i, set);
        after = ddpi_monotonic_us();
        perf_histogram_add(&client->latencies, after - before);
        before = after;
    }
    if (after > begin)
        client->rate = (double)client->latencies.total * 1e6 / (double)(after - begin);
    if (client->status != DDP_OK)
        kill(getpid(), SIGTERM); /* end the run */
    return NULL;
}

static ddp_status remove_keys(struct bench *bench, ddp_store *store, struct ddp_error *err)
{
    char **keys;
    size_t count;
    ddp_status status =
        ddp_store_list(store, bench->prefix, bench->call->timeout_ms, &keys, &count, err);
    if (status != DDP_OK)
        return status;
    for (size_t i = 0; i < count && status == DDP_OK; i++)
        status = ddp_store_delete(store, keys[i], bench->call->timeout_ms, err);
    ddp_store_free(keys);
    return status;
}

static ddp_status connect_bench_clients(struct bench *bench, struct client *clients, uint32_t count,
                                        struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    for (uint32_t i = 0; i < count && status == DDP_OK; i++) {
        clients[i].bench = bench;
        clients[i].number = i;
        if (i > 0 && bench->call->options->bench.shared)
            clients[i].store = clients[0].store;
        else
            status = ddp_store_connect(bench->call->connect, &clients[i].store, err);
    }
    return status;
}

/* Run until the time is up, a signal arrives, or a client fails. Signals stay blocked afterwards,
 * so that the keys can be deleted. */
static void run_bench_clients(struct bench *bench, struct client *clients, uint32_t count,
                              uint64_t duration_ms)
{
    const struct timespec duration = {(time_t)(duration_ms / 1000),
                                      (long)(duration_ms % 1000) * 1000000};
    uint32_t started = 0;
    int failed = 0;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL); /* inherited by the threads */
    for (; started < count && failed == 0; started += failed == 0)
        failed = pthread_create(&clients[started].thread, NULL, run_client, &clients[started]);
    if (failed != 0)
        clients[started].status =
            ddpi_error_sys(&clients[started].err, failed, "cannot start a thread");
    else
        (void)sigtimedwait(&ends, NULL, &duration);
    atomic_store(&bench->stop, true);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(clients[i].thread, NULL);
}

static ddp_status print_figures(const struct bench *bench, const struct client *total,
                                uint32_t clients, struct ddp_error *err)
{
    const struct ddpctl_store_options *options = bench->call->options;
    double p50_us = perf_histogram_percentile(&total->latencies, 50);
    double p99_us = perf_histogram_percentile(&total->latencies, 99);
    double max_us = perf_histogram_percentile(&total->latencies, 100);
    if (options->json)
        return ddpctl_print_json(
            json_pack("{s:s,s:I,s:b,s:I,s:I,s:f,s:f,s:f,s:f}", "op", bench->op, "clients",
                      (json_int_t)clients, "shared", (int)options->bench.shared, "value_size",
                      (json_int_t)bench->value_len, "requests", (json_int_t)total->latencies.total,
                      "requests_per_s", total->rate, "p50_us", p50_us, "p99_us", p99_us, "max_us",
                      max_us),
            err);
    printf("%s, %" PRIu32 " client%s, values of %zu bytes: %.0f requests/s\n"
           "latency: p50 %.0f us, p99 %.0f us, max %.0f us\n",
           bench->op, clients, clients == 1 ? "" : "s", bench->value_len, total->rate, p50_us,
           p99_us, max_us);
    return DDP_OK;
}

/* Add all results to the first client's; return the first failure. */
static ddp_status sum_up_bench(struct client *clients, uint32_t count, struct ddp_error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (clients[i].status != DDP_OK)
            return ddpi_error_set(err, clients[i].status, "%s", clients[i].err.msg);
        if (i == 0)
            continue;
        perf_histogram_merge(&clients->latencies, &clients[i].latencies);
        clients->rate += clients[i].rate;
    }
    return DDP_OK;
}

static ddp_status run_bench(struct bench *bench, struct client *clients, uint32_t count,
                            struct ddp_error *err)
{
    uint64_t duration_ms = bench->call->options->bench.duration_ms;
    ddp_status status = connect_bench_clients(bench, clients, count, err);
    if (status == DDP_OK) {
        run_bench_clients(bench, clients, count, duration_ms > 0 ? duration_ms : DURATION_MS);
        status = sum_up_bench(clients, count, err);
        ddp_status removed = remove_keys(bench, clients->store, status == DDP_OK ? err : NULL);
        status = status == DDP_OK ? removed : status;
    }
    if (status == DDP_OK)
        status = print_figures(bench, clients, count, err);
    for (uint32_t i = count; i-- > 0;) /* the first one last: all may share it */
        if (i == 0 || clients[i].store != clients[0].store)
            ddp_store_close(clients[i].store);
    return status;
}

ddp_status ddpctl_run_bench(struct ddpctl_call *call, struct ddp_error *err)
{
    static const char *const ops[] = {"mix", "set", "get"};
    const struct ddpctl_bench_options *given = &call->options->bench;
    struct bench bench = {.call = call,
                          .value_len = given->value_size != UINT64_MAX ? (size_t)given->value_size
                                                                       : VALUE_SIZE,
                          .op = ops[given->op != UINT32_MAX ? given->op : 0]};
    uint32_t count = given->clients > 0 ? given->clients : 1;
    snprintf(bench.prefix, sizeof bench.prefix, "ddpctl-bench/%d-%" PRIx64 "/", (int)getpid(),
             ddpi_monotonic_us());
    struct client *clients = ddpi_calloc(count, sizeof *clients);
    bench.value = ddpi_calloc(1, bench.value_len + 1);
    ddp_status status = clients != NULL && bench.value != NULL
                            ? run_bench(&bench, clients, count, err)
                            : ddpi_error_nomem(err, count * sizeof *clients + bench.value_len);
    ddpi_free(bench.value);
    ddpi_free(clients);
    return status;
}
