/*
 * daemon_listen.c - where the daemon listens, the token that this takes, and the marks that keep
 * nodes from hosting stores at these addresses meanwhile. Owns nothing.
 */
#include "daemon.h"

#include "endpoint_mark.h"
#include "error.h"
#include "mem.h"
#include "systemd.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- the token ---- */

ddp_status daemon_read_token(struct daemon *daemon, struct ddpi_credential *ret,
                             struct ddp_error *err)
{
    char *path;
    const struct ddprund_options *options = &daemon->options;
    if (options->token_fd > 0)
        return ddpi_token_read_fd((int)options->token_fd, ret, err);
    if (options->token_file != NULL)
        return ddpi_token_read(options->token_file, ret, err);
    ddp_status status =
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, err);
    if (status != DDP_OK)
        return status;
    status = ddpi_token_obtain(path, ret, err);
    ddpi_free(status == DDP_OK ? daemon->home_token : path);
    if (status == DDP_OK)
        daemon->home_token = path;
    return status;
}

/* Some clients must authenticate, so there must be a token. */
static ddp_status give_token(struct daemon *daemon, struct ddp_error *err)
{
    struct ddpi_credential token;
    ddp_status status = daemon_read_token(daemon, &token, err);
    if (status == DDP_OK)
        status = ddpi_server_set_token(daemon->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return status;
}

/* Clients of this user have the same default token, and expect the store to prove it. Failing to
 * read or create it does not prevent the service of this machine, unless the user named the token
 * or its file is not safe. */
static ddp_status give_own_token(struct daemon *daemon, struct ddp_error *err)
{
    const struct ddprund_options *options = &daemon->options;
    bool named = options->token_fd > 0 || options->token_file != NULL;
    struct ddpi_credential token;
    if (options->server.auth == DDPI_SERVER_AUTH_NEVER)
        return DDP_OK;
    ddp_status status = daemon_read_token(daemon, &token, err);
    bool needless = status != DDP_OK && status != DDP_E_DENIED && !named;
    if (status == DDP_OK)
        status = ddpi_server_set_token(daemon->server, &token, err);
    ddpi_wipe(&token, sizeof token);
    return needless ? DDP_OK : status;
}

/* ---- addresses ---- */

/* Those of the options. If there are none, and none from a service manager, the standard one. */
static const struct ddprund_listen *given_addresses(const struct daemon *daemon)
{
    static const struct ddprund_listen standard = {
        .count = 1,
        .at[0].endpoint = {.host = "127.0.0.1", .port = DDPRUND_PORT, .has_port = true}};
    bool none = daemon->adopted + daemon->options.listen.count == 0;
    return none ? &standard : &daemon->options.listen;
}

static ddp_status listen_at(struct daemon *daemon, const struct ddprund_address *at,
                            struct ddp_error *err)
{
    const struct ddpi_endpoint *where = &at->endpoint;
    ddp_status status = ddpi_server_listen(daemon->server, where->host, where->port, at->job, err);
    if (status != DDP_E_DENIED)
        return status;
    status = give_token(daemon, err);
    return status == DDP_OK
               ? ddpi_server_listen(daemon->server, where->host, where->port, at->job, err)
               : status;
}

static ddp_status adopt(struct daemon *daemon, int fd, struct ddp_error *err)
{
    ddp_status status = ddpi_server_adopt(daemon->server, fd, err);
    if (status != DDP_E_DENIED)
        return status;
    status = give_token(daemon, err);
    return status == DDP_OK ? ddpi_server_adopt(daemon->server, fd, err) : status;
}

static ddp_status adopt_sockets(struct daemon *daemon, uint32_t *ret_count, struct ddp_error *err)
{
    uint32_t count = 0;
    ddp_status status =
        systemd_listen_fds(getenv("LISTEN_PID"), getenv("LISTEN_FDS"), getpid(), &count, err);
    for (uint32_t i = 0; status == DDP_OK && i < count; i++) {
        status = adopt(daemon, SYSTEMD_FIRST_FD + (int)i, err);
        if (status != DDP_OK)
            status = ddpi_error_wrap(err, status, "LISTEN_FDS");
    }
    *ret_count = count;
    return status;
}

ddp_status daemon_listen(struct daemon *daemon, struct ddp_error *err)
{
    const struct ddprund_listen *data_ports = &daemon->options.data_ports;
    ddp_status status = give_own_token(daemon, err);
    if (status == DDP_OK)
        status = adopt_sockets(daemon, &daemon->adopted, err);
    const struct ddprund_listen *listen = given_addresses(daemon);
    for (uint32_t i = 0; status == DDP_OK && i < listen->count; i++)
        status = listen_at(daemon, &listen->at[i], err);
    for (uint32_t i = 0; status == DDP_OK && i < data_ports->count; i++)
        status = listen_at(daemon, &data_ports->at[i], err);
    return status;
}

/* ---- marks ---- */

/* Call @act for each endpoint that clients know in advance: its port was given. */
static void for_endpoints(struct daemon *daemon,
                          void (*act)(struct daemon *, const char *, uint16_t))
{
    const struct ddprund_listen *listen = given_addresses(daemon);
    const char *text;
    for (size_t i = 0; (text = ddpi_server_endpoint_at(daemon->server, i)) != NULL; i++) {
        struct ddpi_endpoint endpoint;
        size_t given = i - daemon->adopted;
        bool known =
            i < daemon->adopted || (given < listen->count && listen->at[given].endpoint.port != 0);
        if (known && ddpi_parse_endpoint(text, &endpoint, NULL) == DDP_OK)
            act(daemon, endpoint.host, endpoint.port);
    }
}

static void leave_mark(struct daemon *daemon, const char *host, uint16_t port)
{
    struct ddp_error err;
    if (endpoint_mark_leave(host, port, &err) != DDP_OK)
        ddpi_log(&daemon->logfile.log, DDPI_LOG_WARN,
                 "no mark for port %u (%s): a node that starts while ddprund is down could run a "
                 "store there; start it with --rdzv-conf=is_host=false",
                 port, err.msg);
}

static void remove_mark(struct daemon *daemon, const char *host, uint16_t port)
{
    (void)daemon;
    endpoint_mark_remove(host, port);
}

void daemon_leave_marks(struct daemon *daemon)
{
    for_endpoints(daemon, leave_mark);
}

/* Without state and jobs, nothing is lost. */
void daemon_remove_marks(struct daemon *daemon)
{
    if (daemon->options.state == NULL && ddpi_server_stats(daemon->server).members == 0)
        for_endpoints(daemon, remove_mark);
}
