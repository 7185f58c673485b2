/*
 * metrics_text.c - see metrics_text.h. The store's counters come as text from another process: a
 * line that is not known, or has no number, is left out.
 */
#include "metrics_text.h"

#include "parse.h"
#include "version.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { METRIC_LINE = 512, METRIC_NAME = 64 };

DDP_PRINTF(2, 3) static bool put(struct ddpi_buf *text, const char *format, ...)
{
    char line[METRIC_LINE];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return len >= 0 && len < METRIC_LINE && ddpi_buf_append(text, line, (size_t)len);
}

static bool put_head(struct ddpi_buf *text, const char *name, const char *type, const char *help)
{
    return put(text, "# HELP ddprun_%s %s\n# TYPE ddprun_%s %s\n", name, help, name, type);
}

static bool put_one(struct ddpi_buf *text, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    return put_head(text, name, type, help) && put(text, "ddprun_%s %" PRIu64 "\n", name, value);
}

/* ---- the job ---- */

static bool put_state(struct ddpi_buf *text, const struct job_view *view)
{
    static const char *const names[] = {[ROUNDS_FORMING] = "forming",
                                        [ROUNDS_RUNNING] = "running",
                                        [ROUNDS_STOPPING] = "stopping",
                                        [ROUNDS_PAUSING] = "pausing",
                                        [ROUNDS_CLOSED] = "closed"};
    bool known = view->state.there && !view->state.bad;
    bool ok = put_head(text, "job_state", "gauge", "1 for the state that the job is in.");
    for (unsigned i = 0; i < sizeof names / sizeof *names && ok; i++)
        ok = put(text, "ddprun_job_state{job=\"%s\",state=\"%s\"} %d\n", view->name, names[i],
                 known && view->summary.state == (enum ddpi_rounds_state)i);
    return ok;
}

static uint64_t restarts_for_membership(const struct ddpi_rounds_summary *job)
{
    uint64_t begun = job->generation > 0 ? job->generation - 1 : 0;
    return begun > job->restarts ? begun - job->restarts : 0;
}

static bool put_restarts(struct ddpi_buf *text, const struct ddpi_rounds_summary *job)
{
    return put_head(text, "restarts_total", "counter",
                    "Generations that began after a failure, which uses up a restart, or because "
                    "nodes came or went.") &&
           put(text, "ddprun_restarts_total{reason=\"failure\"} %" PRIu32 "\n", job->restarts) &&
           put(text, "ddprun_restarts_total{reason=\"membership\"} %" PRIu64 "\n",
               restarts_for_membership(job));
}

static bool put_job(struct ddpi_buf *text, const struct job_view *view)
{
    const struct ddpi_rounds_summary *job = &view->summary;
    uint32_t spares = 0;
    for (size_t i = 0; i < view->nnodes; i++)
        spares += job_node_spare(view->nodes[i]);
    return put_state(text, view) && put_restarts(text, job) &&
           put_one(text, "generation", "gauge", "The latest generation of workers.",
                   job->generation) &&
           put_one(text, "members", "gauge", "Nodes that have joined the job.", job->members) &&
           put_one(text, "seated", "gauge", "Nodes with workers in the latest generation.",
                   job->seated) &&
           put_one(text, "spares", "gauge", "Nodes that wait for a place.", spares) &&
           put_one(text, "left_out", "gauge",
                   "Nodes that failed their check, or are in quarantine.", job->left_out) &&
           put_one(text, "world_size", "gauge", "Workers of the latest generation.",
                   job->world_size) &&
           put_one(text, "max_restarts", "gauge", "Restarts after failures that the job may use.",
                   job->terms.max_restarts);
}

static bool put_workers(struct ddpi_buf *text, const struct job_view *view)
{
    uint64_t counts[WORKER_STATUS_KILLED + 1] = {0};
    struct worker_status worker;
    for (size_t i = 0; i < view->nnodes; i++) {
        const char *at = view->nodes[i]->workers;
        for (size_t left = at != NULL ? view->nodes[i]->workers_len : 0;
             worker_status_next(&at, &left, &worker);)
            counts[worker.state]++;
    }
    bool ok = put_head(text, "workers", "gauge", "Workers of the job by state.");
    for (unsigned i = 0; i <= WORKER_STATUS_KILLED && ok; i++)
        ok = put(text, "ddprun_workers{state=\"%s\"} %" PRIu64 "\n",
                 worker_status_state_name((enum worker_status_state)i), counts[i]);
    return ok;
}

/* ---- recoveries ---- */

static bool put_histogram(struct ddpi_buf *text, const char *phase,
                          const struct history_histogram *histogram)
{
    uint64_t below = 0;
    bool ok = true;
    for (unsigned i = 0; i < HISTORY_BUCKETS && ok; i++) {
        below += histogram->counts[i];
        ok = put(text, "ddprun_recovery_seconds_bucket{phase=\"%s\",le=\"%g\"} %" PRIu64 "\n",
                 phase, (double)history_bounds_ms[i] / 1e3, below);
    }
    return ok &&
           put(text, "ddprun_recovery_seconds_bucket{phase=\"%s\",le=\"+Inf\"} %" PRIu64 "\n",
               phase, histogram->count) &&
           put(text, "ddprun_recovery_seconds_sum{phase=\"%s\"} %.3f\n", phase,
               (double)histogram->sum_ms / 1e3) &&
           put(text, "ddprun_recovery_seconds_count{phase=\"%s\"} %" PRIu64 "\n", phase,
               histogram->count);
}

static bool put_recoveries(struct ddpi_buf *text, const struct job_history *history)
{
    bool ok = put_head(text, "recovery_seconds", "histogram",
                       "From the cause of a recovery until the old workers had ended (idle), the "
                       "new generation had begun (seated) and its workers had started (running), "
                       "as seen since this agent watches.");
    for (unsigned i = 0; i < HISTORY_PHASES && ok; i++)
        ok =
            put_histogram(text, history_phase_name((enum history_phase)i), &history->histograms[i]);
    return ok;
}

/* ---- ranks of this node ---- */

static uint64_t most_operations(const struct metrics_facts *facts)
{
    uint64_t most = 0;
    for (size_t i = 0; i < facts->nranks; i++)
        most = facts->ranks[i].operations > most ? facts->ranks[i].operations : most;
    return most;
}

static bool put_ranks(struct ddpi_buf *text, const struct metrics_facts *facts)
{
    uint64_t most = most_operations(facts);
    bool ok = put_head(text, "rank_operations_total", "counter",
                       "Operations of libddpcomm that the rank has called.");
    for (size_t i = 0; i < facts->nranks && ok; i++)
        ok = put(text, "ddprun_rank_operations_total{rank=\"%" PRIu32 "\"} %" PRIu64 "\n",
                 facts->ranks[i].rank, facts->ranks[i].operations);
    ok = ok && put_head(text, "allreduce_bytes_total", "counter",
                        "Bytes that the rank has reduced by all_reduce of libddpcomm.");
    for (size_t i = 0; i < facts->nranks && ok; i++)
        ok = put(text, "ddprun_allreduce_bytes_total{rank=\"%" PRIu32 "\"} %" PRIu64 "\n",
                 facts->ranks[i].rank, facts->ranks[i].all_reduced);
    ok = ok && put_head(text, "rank_last_progress_seconds", "gauge",
                        "Time since the rank called, began or ended an operation.");
    for (size_t i = 0; i < facts->nranks && ok; i++)
        ok = put(text, "ddprun_rank_last_progress_seconds{rank=\"%" PRIu32 "\"} %.3f\n",
                 facts->ranks[i].rank, (double)facts->ranks[i].idle_ns / 1e9);
    ok = ok && put_head(text, "straggler_score", "gauge",
                        "Operations by which the rank is behind the first rank of this node.");
    for (size_t i = 0; i < facts->nranks && ok; i++)
        ok = put(text, "ddprun_straggler_score{rank=\"%" PRIu32 "\"} %" PRIu64 "\n",
                 facts->ranks[i].rank, most - facts->ranks[i].operations);
    return ok;
}

/* ---- the store ---- */

static const struct store_metric {
    const char *stat; /* as the store names it */
    const char *name, *type, *help;
} store_metrics[] = {
    {"connections", "store_clients", "gauge", "Connections of clients."},
    {"output", "store_queue_bytes", "gauge", "Replies that clients have not read yet."},
    {"requests", "store_requests_total", "counter", "Requests of clients."},
    {"keys", "store_keys", "gauge", "Keys."},
    {"bytes", "store_bytes", "gauge", "Memory of keys and values."},
    {"waits", "store_waits", "gauge", "Requests that wait."},
    {"watches", "store_watches", "gauge", "Watches."},
    {"sessions", "store_sessions", "gauge", "Sessions."},
    {"jobs", "store_jobs", "gauge", "Jobs of several nodes."},
    {"accepted", "store_accepted_total", "counter", "Connections that were accepted."},
    {"denied", "store_denied_total", "counter", "Clients that failed to authenticate."},
    {"limited", "store_limited_total", "counter", "Requests that a limit refused."},
    {"etcd_failures", "etcd_failures_total", "counter", "Requests that etcd did not answer."},
};

/* The next line of *@text, "NAME NUMBER"; false: the end. *@ret_name is "" if it is another. */
static bool next_stat(const char **text, size_t *left, char ret_name[METRIC_NAME],
                      uint64_t *ret_value)
{
    const char *line = *text, *end = *left > 0 ? memchr(line, '\n', *left) : NULL;
    if (end == NULL)
        return false;
    size_t len = (size_t)(end - line);
    const char *blank = memchr(line, ' ', len);
    char number[24];
    ret_name[0] = '\0';
    *text = end + 1;
    *left -= len + 1;
    if (blank == NULL || blank - line >= METRIC_NAME || end - blank > (int)sizeof number)
        return true;
    int64_t value;
    snprintf(number, sizeof number, "%.*s", (int)(end - blank - 1), blank + 1);
    if (ddpi_parse_int(number, 0, INT64_MAX, &value, NULL) != DDP_OK)
        return true;
    snprintf(ret_name, METRIC_NAME, "%.*s", (int)(blank - line), line);
    *ret_value = (uint64_t)value;
    return true;
}

static bool put_stat(struct ddpi_buf *text, const char *stat, uint64_t value)
{
    for (size_t i = 0; i < sizeof store_metrics / sizeof *store_metrics; i++)
        if (strcmp(store_metrics[i].stat, stat) == 0)
            return put_one(text, store_metrics[i].name, store_metrics[i].type,
                           store_metrics[i].help, value);
    return true;
}

static bool is_label(const char *name)
{
    return name[strspn(name, "abcdefghijklmnopqrstuvwxyz-")] == '\0';
}

/* Counters by operation are lines "op/NAME NUMBER". */
static bool put_operations(struct ddpi_buf *text, const char *stats, size_t left)
{
    static const char prefix[] = "op/";
    char name[METRIC_NAME];
    uint64_t value;
    bool ok = put_head(text, "store_ops_total", "counter", "Requests of clients by operation.");
    while (ok && next_stat(&stats, &left, name, &value))
        if (strncmp(name, prefix, sizeof prefix - 1) == 0 && is_label(name + sizeof prefix - 1))
            ok = put(text, "ddprun_store_ops_total{op=\"%s\"} %" PRIu64 "\n",
                     name + sizeof prefix - 1, value);
    return ok;
}

/* Where the store is in etcd there are lines "etcd_request_us/BOUND NUMBER", in the order of their
 * bounds; the last ones are "inf" and "sum". */
static bool put_etcd_line(struct ddpi_buf *text, const char *what, uint64_t value)
{
    int64_t bound_us;
    if (strcmp(what, "inf") == 0)
        return put(text,
                   "ddprun_etcd_request_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\n"
                   "ddprun_etcd_request_seconds_count %" PRIu64 "\n",
                   value, value);
    if (strcmp(what, "sum") == 0)
        return put(text, "ddprun_etcd_request_seconds_sum %.6f\n", (double)value / 1e6);
    if (ddpi_parse_int(what, 1, INT32_MAX, &bound_us, NULL) != DDP_OK)
        return true;
    return put(text, "ddprun_etcd_request_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
               (double)bound_us / 1e6, value);
}

static bool put_etcd(struct ddpi_buf *text, const char *stats, size_t left)
{
    static const char prefix[] = "etcd_request_us/";
    char name[METRIC_NAME];
    uint64_t value;
    bool begun = false, ok = true;
    while (ok && next_stat(&stats, &left, name, &value)) {
        if (strncmp(name, prefix, sizeof prefix - 1) != 0)
            continue;
        ok = begun || put_head(text, "etcd_request_seconds", "histogram",
                               "How long etcd took for requests of the store.");
        begun = true;
        ok = ok && put_etcd_line(text, name + sizeof prefix - 1, value);
    }
    return ok;
}

static bool put_store(struct ddpi_buf *text, const char *stats, size_t stats_len)
{
    const char *at = stats;
    size_t left = stats_len;
    char name[METRIC_NAME];
    uint64_t value;
    bool ok =
        put_one(text, "store_up", "gauge", "1 if the store of the job answers.", stats != NULL);
    while (ok && stats != NULL && next_stat(&at, &left, name, &value))
        ok = put_stat(text, name, value);
    return ok && (stats == NULL ||
                  (put_operations(text, stats, stats_len) && put_etcd(text, stats, stats_len)));
}

static bool put_kept(struct ddpi_buf *text, const struct ddpi_cluster_summary *kept)
{
    if (kept == NULL)
        return true;
    bool ok = put_one(text, "store_members", "gauge",
                      "Machines that keep the store and keep up; any one of three may die.",
                      ddpi_cluster_members(kept)) &&
              put_head(text, "store_leader", "gauge", "1 for the machine whose store serves.");
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE && ok; i++) {
        char endpoint[DDPI_CLUSTER_ENDPOINT];
        ddpi_endpoint_text(&kept->machines[i].at, endpoint, sizeof endpoint);
        ok = put(text, "ddprun_store_leader{endpoint=\"%s\"} %d\n", endpoint, kept->leader == i);
    }
    return ok;
}

bool metrics_put(struct ddpi_buf *text, const struct metrics_facts *facts)
{
    return put_head(text, "build_info", "gauge", "1, with the version of ddprun.") &&
           put(text, "ddprun_build_info{version=\"" DDPRUN_VERSION "\"} 1\n") &&
           put_job(text, facts->view) && put_workers(text, facts->view) &&
           put_recoveries(text, facts->history) && put_ranks(text, facts) &&
           put_store(text, facts->stats, facts->stats_len) && put_kept(text, facts->kept);
}
