/*
 * reclaim.c - deletes what ended jobs have left behind, when room is short. Owns nothing.
 *
 * A job has ended when its last member has left and none of its clients is connected. Then the keys
 * of its last generation, "gN/", and those of its TCPStore clients are deleted: the next generation
 * would delete them too. Other keys of the job belong to its users, and stay.
 */
#include "server_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SLICE = 1000 }; /* keys deleted in one turn of the loop */

static bool is_connected(const struct ddpi_server *server, struct ddpi_bytes job)
{
    ddpi_list_for_each (node, &server->conns) {
        const char *name =
            ddpi_container_of(node, struct ddpi_conn, of_server)->dialect_state.identity.job;
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
    char job[DDPI_JOB_MAX + 1], *prefix = server->reclaim.prefix;
    snprintf(job, sizeof job, "%.*s", (int)use->job.len, (const char *)use->job.data);
    snprintf(prefix, sizeof server->reclaim.prefix, "job/%s/g%" PRIu64 "/", job,
             ddpi_server_epoch(server, job));
    if (!has_keys(server, prefix))
        snprintf(prefix, sizeof server->reclaim.prefix, "job/%s/tcp/", job);
    bool over = has_keys(server, prefix) && !ddpi_round_keys_has(server->rounds, use->job) &&
                !is_connected(server, use->job);
    if (!over)
        *prefix = '\0';
    return !over;
}

bool ddpi_server_make_room(struct ddpi_server *server)
{
    if (!server->reclaim.pending || !ddpi_kv_is_tight(server->kv))
        return false;
    if (server->reclaim.prefix[0] == '\0')
        ddpi_kv_each_job(server->kv, find_leftovers, server);
    struct ddpi_bytes prefix =
        ddpi_bytes_of(server->reclaim.prefix, strlen(server->reclaim.prefix));
    server->reclaim.pending = prefix.len > 0;
    if (prefix.len == 0)
        return false;
    size_t deleted = ddpi_kv_delete_some(server->kv, prefix, SLICE);
    server->reclaim.deleted += deleted;
    if (deleted < SLICE)
        server->reclaim.prefix[0] = '\0';
    return true;
}
