/*
 * server_stats.c - collects the counters of a server, and writes them as text.
 */
#include "server_stats.h"

#include "server_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { JOBS_MAX = 100 };

struct ddpi_server_stats ddpi_server_stats(const struct ddpi_server *server)
{
    struct ddpi_server_stats stats = {
        .accepted = server->admission.accepted,
        .requests = server->requests.served,
        .reclaimed = server->reclaim.deleted,
        .connections = server->admission.connections,
        .half_open = server->admission.half_open_count,
        .input = server->shared.input.held,
        .output = server->shared.output.held,
    };
#define COUNT(counter, line) stats.counter = server->refusals.counts[REFUSAL_##counter];
    DDPI_REFUSAL_KINDS(COUNT)
#undef COUNT
    struct ddpi_kv_stats kv = ddpi_kv_stats(server->kv);
    stats.over_share = kv.shares_full;
    stats.keys = kv.keys;
    stats.bytes = kv.bytes;
    stats.reserved = kv.reserved;
    stats.waits = kv.waits;
    stats.working = kv.works;
    stats.watches = kv.watches;
    stats.sessions = kv.sessions;
    ddpi_round_keys_count(server->rounds, &stats.jobs, &stats.members);
    return stats;
}

struct listing {
    struct ddpi_buf *text;
    struct ddpi_bytes only; /* this job; empty: all */
    unsigned left;
};

static bool list_job(void *ctx, const struct ddpi_kv_use *use)
{
    char line[3 * (DDPI_JOB_MAX + 48)];
    struct listing *listing = ctx;
    if (listing->only.len > 0 && !ddpi_bytes_equal(listing->only, use->job))
        return true;
    int job_len = (int)use->job.len;
    const char *job = use->job.data;
    int len = snprintf(line, sizeof line,
                       "job/%.*s/keys %zu\njob/%.*s/bytes %zu\njob/%.*s/sessions %zu\n", job_len,
                       job, use->keys, job_len, job, use->bytes, job_len, job, use->sessions);
    return ddpi_buf_append(listing->text, line, (size_t)len) && --listing->left > 0;
}

/* Operations of both dialects may have one name. The first of them returns the sum, others 0. */
static uint64_t count_name(const struct ddpi_server *server, unsigned op)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < DDPI_OP_COUNT; i++)
        if (strcmp(ddpi_op_name((enum ddpi_op)i), ddpi_op_name((enum ddpi_op)op)) == 0) {
            if (i < op)
                return 0;
            sum += server->requests.by_op[i];
        }
    return sum;
}

/* "op/NAME NUMBER" for each operation that a client has asked for. */
static bool list_ops(const struct ddpi_server *server, struct ddpi_buf *text)
{
    bool ok = true;
    for (unsigned op = 0; op < DDPI_OP_COUNT && ok; op++) {
        char line[64];
        uint64_t count = count_name(server, op);
        int len = snprintf(line, sizeof line, "op/%s %" PRIu64 "\n", ddpi_op_name((enum ddpi_op)op),
                           count);
        ok = count == 0 || ddpi_buf_append(text, line, (size_t)len);
    }
    return ok;
}

/* What does not fit is left out. */
static void put_sink_counters(const struct ddpi_server *server, struct ddpi_buf *text)
{
    const struct ddpi_sink *sink = &server->turn.sink;
    if (sink->put_counters != NULL)
        sink->put_counters(sink->ctx, text);
}

void ddpi_server_stats_format(const struct ddpi_server *server, const char *job,
                              struct ddpi_buf *text)
{
    char counters[1024];
    struct ddpi_server_stats stats = ddpi_server_stats(server);
    struct listing listing = {
        .text = text, .only = ddpi_bytes_of(job, strlen(job)), .left = JOBS_MAX};
    int len = snprintf(counters, sizeof counters,
#define FORMAT(name) #name " %" PRIu64 "\n"
                       DDPI_SERVER_STATS(FORMAT)
#undef FORMAT
#define VALUE(name) , stats.name
                           DDPI_SERVER_STATS(VALUE)
#undef VALUE
    );
    if (!ddpi_buf_append(text, counters, (size_t)len) || !list_ops(server, text))
        return;
    put_sink_counters(server, text);
    ddpi_kv_each_job(server->kv, list_job, &listing);
}
