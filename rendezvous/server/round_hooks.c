/*
 * round_hooks.c - what rounds (round_keys.h) need of a server: the epoch of a new generation,
 * without the keys of earlier ones, the port at which its workers meet, and log lines.
 *
 * That port has the same number on all addresses that the server listens on for all jobs, since
 * members name only the address by which they reached the server.
 */
#include "server_impl.h"

#include "error.h"
#include "keyspaces.h"
#include "parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { PORT_ATTEMPTS = 8 };

/* ---- the port of a generation ---- */

static bool is_v6(const char *host)
{
    return strchr(host, ':') != NULL;
}

static bool is_wildcard(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* The address of @listener if it is for all jobs; false: it is not. */
static bool public_host(const struct ddpi_listener *listener, char host[DDPI_HOST_MAX])
{
    struct ddpi_endpoint endpoint;
    if (!ddpi_listener_is_permanent(listener) || listener->job[0] != '\0' ||
        ddpi_parse_endpoint(listener->endpoint, &endpoint, NULL) != DDP_OK)
        return false;
    memcpy(host, endpoint.host, sizeof endpoint.host);
    return true;
}

/* Another listener serves @host: an earlier one on the same address, or one on all addresses. */
static bool covered(const struct ddpi_server *server, const struct ddpi_listener *listener,
                    const char *host)
{
    bool before = true;
    char other[DDPI_HOST_MAX];
    ddpi_list_for_each (node, &server->listeners.all) {
        const struct ddpi_listener *at = ddpi_container_of(node, struct ddpi_listener, of_server);
        before = before && at != listener;
        if (at == listener || !public_host(at, other) || is_v6(other) != is_v6(host))
            continue;
        if ((before && strcmp(other, host) == 0) || (is_wildcard(other) && !is_wildcard(host)))
            return true;
    }
    return false;
}

/* On each address, with the number @at->port; 0: the first address selects a free one. */
static ddp_status open_everywhere(struct ddpi_server *server, struct ddpi_listen_at *at,
                                  struct ddp_error *err)
{
    char host[DDPI_HOST_MAX];
    at->host = host;
    ddp_status status = DDP_OK;
    ddpi_list_for_each (node, &server->listeners.all) {
        const struct ddpi_listener *opened;
        const struct ddpi_listener *listener =
            ddpi_container_of(node, struct ddpi_listener, of_server);
        if (!public_host(listener, host) || covered(server, listener, host))
            continue;
        status = ddpi_listeners_add(&server->listeners, at, &opened, err);
        if (status != DDP_OK)
            break;
        at->port = opened->port;
        ddpi_log(&server->log, DDPI_LOG_DEBUG, "listening on %s for generation %" PRIu64 " of '%s'",
                 opened->endpoint, at->generation, at->job);
    }
    at->host = NULL;
    if (status == DDP_OK && at->port == 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "the server has stopped listening");
    return status;
}

/* A number that is free on one address can be in use on another. */
static ddp_status open_port(struct ddpi_server *server, const char *job, uint64_t generation,
                            uint16_t *ret_port, struct ddp_error *err)
{
    struct ddp_error why = {0};
    ddp_status status = DDP_E_INTERNAL;
    for (int i = 0; i < PORT_ATTEMPTS && status != DDP_OK; i++) {
        struct ddpi_listen_at at = {.generation = generation};
        snprintf(at.job, sizeof at.job, "%s", job);
        status = open_everywhere(server, &at, &why);
        *ret_port = at.port;
        if (status != DDP_OK)
            ddpi_listeners_close_job(&server->listeners, job);
        if (status != DDP_OK && why.sys_errno != EADDRINUSE)
            break;
    }
    return status == DDP_OK ? DDP_OK : ddpi_error_set(err, status, "%s", why.msg);
}

/* ---- hooks ---- */

static uint64_t on_epoch(void *ctx, const char *job)
{
    return ddpi_server_epoch(ctx, job);
}

static ddp_status on_round_begin(void *ctx, const char *job, uint64_t generation,
                                 bool store_is_master, struct ddp_round_seat *seat,
                                 struct ddp_error *err)
{
    struct ddpi_server *server = ctx;
    ddp_status status = ddpi_server_set_epoch(server, job, generation, err);
    if (status != DDP_OK)
        return status;
    (void)ddpi_keyspaces_drop(server->kv, job);
    if (!store_is_master)
        return DDP_OK;
    seat->master_address[0] = '\0';
    if (strcmp(server->jobs.tcpstore_job, job) == 0) {
        const struct ddpi_listener *first = ddpi_listeners_at(&server->listeners, 0);
        seat->master_port = first != NULL ? first->port : 0;
        return DDP_OK;
    }
    return open_port(server, job, generation, &seat->master_port, err);
}

static void on_resume(void *ctx, const char *job, const struct ddp_round_seat *seat)
{
    struct ddpi_server *server = ctx;
    struct ddp_error err;
    struct ddpi_listen_at at = {.port = seat->master_port, .generation = seat->generation};
    if (seat->master_address[0] != '\0' || seat->master_port == 0)
        return;
    snprintf(at.job, sizeof at.job, "%s", job);
    if (open_everywhere(server, &at, &err) != DDP_OK)
        ddpi_log(&server->log, DDPI_LOG_WARN,
                 "job %s: the port %u of its workers cannot be opened again: %s", job,
                 seat->master_port, err.msg);
}

static void on_round_changed(void *ctx, const char *job, const struct ddpi_rounds_summary *before,
                             const struct ddpi_rounds_summary *now)
{
    struct ddpi_server *server = ctx;
    bool begun = now->generation > before->generation;
    ddpi_server_note_begin(server, job);
    if (before->state == ROUNDS_RUNNING && now->state != ROUNDS_CLOSED &&
        (begun || now->state != ROUNDS_RUNNING))
        ddpi_log(&server->log, DDPI_LOG_INFO, "job %s: stopping generation %" PRIu64 ": %s", job,
                 before->generation, now->reason);
    if (before->state == ROUNDS_CLOSED && now->state != ROUNDS_CLOSED)
        ddpi_log(&server->log, DDPI_LOG_INFO,
                 "job %s: its last node has left; it begins anew with the nodes that are waiting",
                 job);
    if (begun)
        ddpi_log(&server->log, DDPI_LOG_INFO,
                 "job %s: generation %" PRIu64 " with %u nodes, %u workers", job, now->generation,
                 now->seated, now->world_size);
    if (now->state == ROUNDS_CLOSED && before->state != ROUNDS_CLOSED)
        ddpi_log(&server->log, DDPI_LOG_INFO, "job %s: ended: exit code %d: %s", job,
                 now->exit_code, now->reason);
    if (server->job_changed != NULL)
        server->job_changed(server->rounds_ctx, job, now);
}

static void on_trouble(void *ctx, const char *job, const char *what)
{
    const struct ddpi_server *server = ctx;
    ddpi_log(&server->log, DDPI_LOG_WARN, "job %s: %s", job, what);
}

static void on_over(void *ctx, const char *job, bool closed)
{
    struct ddpi_server *server = ctx;
    ddpi_listeners_close_job(&server->listeners, job);
    server->reclaim.pending = true;
    if (closed)
        ddpi_server_note_end(server, job);
    ddpi_log(&server->log, DDPI_LOG_DEBUG, "job %s: its last member has left", job);
}

ddp_status ddpi_server_create_rounds(struct ddpi_server *server, const uint8_t seed[DDPI_SEED_SIZE],
                                     struct ddp_error *err)
{
    const struct ddpi_round_keys_hooks hooks = {.ctx = server,
                                                .named_only = server->jobs.named_only,
                                                .epoch = on_epoch,
                                                .begin = on_round_begin,
                                                .resume = on_resume,
                                                .changed = on_round_changed,
                                                .trouble = on_trouble,
                                                .over = on_over};
    server->rounds = ddpi_round_keys_create(server->kv, seed, &hooks);
    return server->rounds != NULL ? DDP_OK : ddpi_error_nomem(err, sizeof(void *));
}
