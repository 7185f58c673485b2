/*
 * reclaim.c - what a server does about room: it removes what jobs that are over have left
 * behind, once room is needed, and says who uses how much. Owns nothing.
 *
 * A job is over when its last member has gone and none of its clients is connected any more. What
 * goes then is what belongs to its last generation, "gN/" and the keys of its TCPStore clients: the
 * next one would remove them. Other keys of the job are people's, and stay.
 */
#include "server_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SLICE = 1000 }; /* keys that go in one turn of the loop */

static bool is_connected(const struct ddpi_server *server, struct ddpi_bytes job)
{
    ddpi_list_for_each (node, &server->conns) {
        const char *name =
            ddpi_container_of(node, struct ddpi_conn, of_server)->session.identity.job;
        if (ddpi_bytes_equal(ddpi_bytes_of(name, strlen(name)), job))
            return true;
    }
    return false;
}

static bool note(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    (void)key;
    (void)value;
    *(bool *)ctx = true;
    return false;
}

static bool has_keys(const struct ddpi_server *server, const char *prefix)
{
    bool found = false;
    ddpi_kv_each(server->kv, ddpi_bytes_of(prefix, strlen(prefix)), note, &found);
    return found;
}

static bool find_leftovers(void *ctx, const struct ddpi_kv_use *use)
{
    struct ddpi_server *server = ctx;
    char job[DDPI_JOB_MAX + 1], *prefix = server->leftovers;
    snprintf(job, sizeof job, "%.*s", (int)use->job.len, (const char *)use->job.data);
    snprintf(prefix, sizeof server->leftovers, "job/%s/g%" PRIu64 "/", job,
             ddpi_server_epoch(server, job));
    if (!has_keys(server, prefix))
        snprintf(prefix, sizeof server->leftovers, "job/%s/tcp/", job);
    bool over = has_keys(server, prefix) && !ddpi_round_keys_has(server->rounds, use->job) &&
                !is_connected(server, use->job);
    if (!over)
        *prefix = '\0';
    return !over;
}

void ddpi_server_make_room(struct ddpi_server *server)
{
    if (!server->may_have_leftovers || !ddpi_kv_is_tight(server->kv))
        return;
    if (server->leftovers[0] == '\0')
        ddpi_kv_each_job(server->kv, find_leftovers, server);
    struct ddpi_bytes prefix = ddpi_bytes_of(server->leftovers, strlen(server->leftovers));
    server->may_have_leftovers = prefix.len > 0;
    if (prefix.len == 0)
        return;
    size_t deleted = ddpi_kv_delete_some(server->kv, prefix, SLICE);
    server->counts.reclaimed += deleted;
    if (deleted < SLICE)
        server->leftovers[0] = '\0';
    ddpi_server_poll_once_more(server);
}

/* --- who uses how much --- */

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

void ddpi_server_list_jobs(const struct ddpi_server *server, const char *only, unsigned most,
                           struct ddpi_buf *text)
{
    struct listing listing = {
        .text = text, .only = ddpi_bytes_of(only, strlen(only)), .left = most};
    ddpi_kv_each_job(server->kv, list_job, &listing);
}
