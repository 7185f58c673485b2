/*
 * store_host.c - hosts the store of a job in this process, if this node should. Owns the server.
 *
 * Names do not decide which node hosts the store: each node that has the endpoint's address tries
 * to bind it. It becomes a client like all others if the address is taken, or if a ddprund that is
 * down for now has left a mark there (endpoint_mark.h).
 *
 * On Debian the own name of a machine is 127.0.1.1 on itself, and its address on all others: a node
 * that meets the others at its own name listens on all addresses.
 */
#include "store_host.h"

#include "error.h"
#include "exit_codes.h"
#include "round_names.h"
#include "token_file.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TRY_AGAIN_MS = 1000 }; /* from one attempt to listen at a busy port to the next */

/* ---- the address ---- */

/* @infos: of the endpoint's host. */
static void choose_address(struct store_host *host, const struct addrinfo *infos)
{
    char own_name[DDPI_HOST_MAX] = "";
    struct ifaddrs *interfaces = NULL;
    (void)gethostname(own_name, sizeof own_name - 1);
    (void)getifaddrs(&interfaces);
    host->address = store_address_choose(host->config->endpoint.host, own_name, infos, interfaces);
    if (interfaces != NULL)
        freeifaddrs(interfaces);
    host->everywhere = host->address.is_loopback && host->address.is_own_name &&
                       host->membership->member.says.terms.max_nodes > 1;
}

static const char *listening_host(const struct store_host *host)
{
    return host->everywhere ? "0.0.0.0" : host->address.host;
}

/* ---- the token ---- */

/* The user's own token is created if it does not exist; a file that was named must exist. */
static ddp_status give_token(struct store_host *host, struct ddp_error *err)
{
    const struct multi_node_config *config = host->config;
    struct ddpi_credential token = {0};
    if (config->token_file == NULL)
        return ddpi_error_set(
            err, DDP_E_DENIED,
            "nodes must authenticate to the store at %s with a token, and there is no HOME to keep "
            "one; name a file by --token-file, or give --no-auth",
            config->store);
    bool had_one = access(config->token_file, F_OK) == 0;
    ddp_status status = config->token_named ? ddpi_token_read(config->token_file, &token, err)
                                            : ddpi_token_obtain(config->token_file, &token, err);
    if (status == DDP_OK && !had_one && !config->is_loopback)
        membership_note(host->membership, "token made in %s; copy it to every other node",
                        config->token_file);
    if (status == DDP_OK)
        status = ddpi_server_set_token(host->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status;
}

/* Other clients of this user have the same token and expect the store to prove it. A token that
 * cannot be read is an error only if it was named, or if its file is not safe to use. */
static ddp_status give_token_if_any(struct store_host *host, struct ddp_error *err)
{
    const struct multi_node_config *config = host->config;
    if (config->token_file == NULL)
        return DDP_OK;
    ddp_status status = give_token(host, err);
    bool needed = config->token_named || status == DDP_E_DENIED || status == DDP_E_INVALID;
    return needed ? status : DDP_OK;
}

/* ---- listening ---- */

/* Create the user's own token if the server refuses to listen without one. */
static ddp_status listen_at(struct store_host *host, const char *address, struct ddp_error *err)
{
    const struct multi_node_config *config = host->config;
    uint16_t port = config->endpoint.port;
    ddp_status status = give_token_if_any(host, err);
    if (status == DDP_OK)
        status = ddpi_server_listen(host->server, address, port, NULL, err);
    if (status != DDP_E_DENIED || config->token_named)
        return status;
    status = give_token(host, err);
    return status == DDP_OK ? ddpi_server_listen(host->server, address, port, NULL, err) : status;
}

/* IPv6, too, where this machine has it. */
static ddp_status listen_everywhere(struct store_host *host, struct ddp_error *err)
{
    ddp_status status = listen_at(host, "0.0.0.0", err);
    if (status != DDP_OK)
        return status;
    status = listen_at(host, "::", err);
    if (status != DDP_OK && err->sys_errno == EADDRINUSE)
        return status;
    membership_note(host->membership,
                    "the name '%s' is %s here, which no other machine can reach: this node hosts "
                    "the store on all of its addresses, port %u; with an address instead of the "
                    "name in --rdzv-endpoint it listens on that alone",
                    host->config->endpoint.host, host->address.host, host->config->endpoint.port);
    return DDP_OK;
}

void store_host_on_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)level;
    membership_say(ctx, "the store: %s", line);
}

/* At a busy port there may be the store of another node of this machine: the client finds out. */
static ddp_status serve(struct store_host *host, struct ddp_error *err)
{
    const struct multi_node_config *config = host->config;
    const struct ddpi_server_options options = {.auth = config->auth,
                                                .trust_local_users = config->trust_local_users,
                                                .tls = config->tls,
                                                .log = &host->log};
    host->log = (struct ddpi_log){store_host_on_log, host->membership, DDPI_LOG_WARN};
    ddp_status status = ddpi_server_create_unbound(host->loop, &options, &host->server, err);
    if (status != DDP_OK)
        return status;
    if (config->is_master)
        ddpi_server_set_tcpstore_job(host->server, config->job);
    status =
        ddpi_server_show(host->server, DDPI_STORE_JOB_KEY, config->job, strlen(config->job), err);
    if (status == DDP_OK)
        status = host->everywhere ? listen_everywhere(host, err)
                                  : listen_at(host, host->address.host, err);
    if (status == DDP_OK)
        return DDP_OK;
    ddpi_server_close(host->server, NULL, NULL);
    host->server = NULL;
    if (err->sys_errno != EADDRINUSE || config->is_host >= 0)
        return status;
    snprintf(host->busy_host, sizeof host->busy_host, "%s", listening_host(host));
    return DDP_OK;
}

/* A name that does not resolve yet is not this machine's: the client retries. */
ddp_status store_host_open(struct store_host *host, const struct addrinfo *infos,
                           struct ddp_error *err)
{
    const struct multi_node_config *config = host->config;
    choose_address(host, infos);
    if (config->is_host < 0 && !host->address.ours)
        return DDP_OK;
    if (host->address.host[0] == '\0')
        return ddpi_error_set(err, DDP_E_UNREACHABLE,
                              "this node must host the store (is_host), and the name '%s' has no "
                              "address; give an address of this machine",
                              config->endpoint.host);
    if (config->is_host < 0 &&
        endpoint_mark_find(listening_host(host), config->endpoint.port, host->mark))
        return DDP_OK;
    host->mark[0] = '\0';
    return serve(host, err);
}

static void on_try_again(uv_timer_t *timer)
{
    struct store_host *host = timer->data;
    struct ddp_error err;
    host->busy_host[0] = '\0';
    if (serve(host, &err) != DDP_OK)
        membership_leave(host->membership, EXIT_CONFIG, err.msg);
    if (host->busy_host[0] == '\0')
        uv_timer_stop(timer);
}

void store_host_keep_trying(struct store_host *host)
{
    if (host->busy_host[0] != '\0')
        uv_timer_start(&host->try_again, on_try_again, TRY_AGAIN_MS, TRY_AGAIN_MS);
}

void store_host_stop_trying(struct store_host *host)
{
    host->busy_host[0] = '\0';
    uv_timer_stop(&host->try_again);
}

/* ---- life ---- */

void store_host_init(struct store_host *host, uv_loop_t *loop,
                     const struct multi_node_config *config, struct membership *membership)
{
    *host = (struct store_host){.config = config, .membership = membership, .loop = loop};
    uv_timer_init(loop, &host->try_again);
    host->try_again.data = host;
}

void store_host_close(struct store_host *host, void (*closed)(void *ctx), void *ctx)
{
    struct ddpi_server *server = host->server;
    host->server = NULL;
    if (server != NULL)
        ddpi_server_close(server, closed, ctx);
}
