/*
 * embed.c - <ddprun/store_server.h>: the server for other programs. Owns the handle around the
 * server, and adds nothing to what it does.
 */
#include "error.h"
#include "mem.h"
#include "server.h"
#include "token_file.h"

#include <ddprun/store.h>
#include <ddprun/store_server.h>
#include <string.h>

struct ddp_store_server {
    struct ddpi_server *inner;
    void (*log)(void *data, enum ddp_store_server_log_level level, const char *line);
    void *log_data;
    void (*closed)(void *data);
    void *closed_data;
};

static void write_log_line(void *ctx, enum ddpi_log_level level, const char *line)
{
    const ddp_store_server *server = ctx;
    server->log(server->log_data, (enum ddp_store_server_log_level)level, line);
}

static ddp_status copy_options(const struct ddp_store_server_options *given,
                               struct ddp_store_server_options *ret, struct ddp_error *err)
{
    struct ddp_store_server_options options = {0};
    if (given == NULL) {
        *ret = options;
        return DDP_OK;
    }
    if (given->size < sizeof given->size || given->size > DDP_STORE_KEY_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "the size of struct ddp_store_server_options is not plausible; set "
                              "it to sizeof(struct ddp_store_server_options)");
    memcpy(&options, given, given->size < sizeof options ? given->size : sizeof options);
    if ((unsigned)options.auth > DDP_STORE_SERVER_AUTH_NEVER)
        return ddpi_error_set(err, DDP_E_INVALID, "unknown value of auth: %d", (int)options.auth);
    if (options.max_value_len > DDP_STORE_VALUE_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "max_value_len is %u bytes; at most %d are possible",
                              options.max_value_len, DDP_STORE_VALUE_MAX);
    if (options.flags & ~(DDP_STORE_SERVER_TLS | DDP_STORE_SERVER_TCPSTORE_IN_CLEAR))
        return ddpi_error_set(err, DDP_E_INVALID, "unknown flags of a server: 0x%x", options.flags);
    *ret = options;
    return DDP_OK;
}

static ddp_status open_inner(ddp_store_server *server, uv_loop_t *loop,
                             const struct ddp_store_server_options *options, struct ddp_error *err)
{
    static const enum ddpi_server_auth auths[] = {
        [DDP_STORE_SERVER_AUTH_DEFAULT] = DDPI_SERVER_AUTH_DEFAULT,
        [DDP_STORE_SERVER_AUTH_ALWAYS] = DDPI_SERVER_AUTH_ALWAYS,
        [DDP_STORE_SERVER_AUTH_NEVER] = DDPI_SERVER_AUTH_NEVER,
    };
    const struct ddpi_log log = {
        .write = write_log_line, .ctx = server, .max_level = DDPI_LOG_DEBUG};
    struct ddpi_credential token;
    struct ddpi_server_options inner = {.auth = auths[options->auth],
                                        .trust_local_users = options->trust_local_users != 0,
                                        .tls = options->flags & DDP_STORE_SERVER_TLS,
                                        .tcpstore_in_clear =
                                            options->flags & DDP_STORE_SERVER_TCPSTORE_IN_CLEAR,
                                        .tcpstore_prefix = options->tcpstore_prefix,
                                        .max_connections = options->max_connections,
                                        .max_waits = options->max_waits,
                                        .max_keys = options->max_keys,
                                        .max_bytes = options->max_bytes,
                                        .max_value_len = options->max_value_len,
                                        .output_soft = options->max_output / 4,
                                        .output_hard = options->max_output,
                                        .log = options->log != NULL ? &log : NULL};
    ddp_status status = DDP_OK;
    if (options->token_file != NULL) {
        status = ddpi_token_read(options->token_file, &token, err);
        inner.token = &token;
    }
    if (status == DDP_OK)
        status = ddpi_server_create_unbound(loop, &inner, &server->inner, err);
    if (options->token_file != NULL)
        ddpi_wipe(&token, sizeof token);
    return status;
}

ddp_status ddp_store_server_open(struct uv_loop_s *loop,
                                 const struct ddp_store_server_options *given,
                                 ddp_store_server **ret_server, struct ddp_error *err)
{
    struct ddp_store_server_options options = {0};
    ddp_status status = copy_options(given, &options, err);
    if (status != DDP_OK)
        return status;
    ddp_store_server *server = ddpi_calloc(1, sizeof(*server));
    if (server == NULL)
        return ddpi_error_nomem(err, sizeof(*server));
    server->log = options.log;
    server->log_data = options.log_data;
    status = open_inner(server, loop, &options, err);
    if (status != DDP_OK) {
        ddpi_free(server);
        return status;
    }
    *ret_server = server;
    return DDP_OK;
}

ddp_status ddp_store_server_listen(ddp_store_server *server, const char *host, uint16_t port,
                                   const char *job, struct ddp_error *err)
{
    if (host == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "no host to listen on");
    return ddpi_server_listen(server->inner, host, port, job, err);
}

const char *ddp_store_server_endpoint(const ddp_store_server *server, size_t index)
{
    return ddpi_server_endpoint_at(server->inner, index);
}

size_t ddp_store_server_delete(ddp_store_server *server, const char *prefix)
{
    return ddpi_server_delete_prefix(server->inner, prefix);
}

void ddp_store_server_drain(ddp_store_server *server, void (*done)(void *data), void *data)
{
    ddpi_server_drain(server->inner, done, data);
}

static void on_inner_closed(void *ctx)
{
    ddp_store_server *server = ctx;
    void (*closed)(void *data) = server->closed;
    void *data = server->closed_data;
    ddpi_free(server);
    if (closed != NULL)
        closed(data);
}

void ddp_store_server_close(ddp_store_server *server, void (*done)(void *data), void *data)
{
    server->closed = done;
    server->closed_data = data;
    ddpi_server_close(server->inner, on_inner_closed, server);
}
