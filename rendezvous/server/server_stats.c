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
    if (ddpi_buf_append(text, counters, (size_t)len))
        ddpi_kv_each_job(server->kv, list_job, &listing);
}
