/*
 * metrics_config.c - where metrics are served and written, from the command line. Makes the
 * listening socket, which the server takes over.
 */
#include "error.h"
#include "listen.h"
#include "mem.h"
#include "metrics_server.h"
#include "parse.h"
#include "token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A port alone is on loopback. */
static ddp_status parse_listen(const char *text, struct ddpi_endpoint *ret, struct ddp_error *err)
{
    int64_t port;
    if (text[strspn(text, "0123456789")] != '\0') {
        ddp_status status = ddpi_parse_endpoint(text, ret, err);
        if (status != DDP_OK || ret->has_port)
            return status;
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is neither PORT nor HOST:PORT", text);
    }
    ddp_status status = ddpi_parse_int(text, 0, UINT16_MAX, &port, err);
    if (status != DDP_OK)
        return status;
    *ret = (struct ddpi_endpoint){.host = "127.0.0.1", .port = (uint16_t)port, .has_port = true};
    return DDP_OK;
}

/* "metrics-token" beside the user's token: who may look may not change the job. */
static ddp_status token_path(char **ret, struct ddp_error *err)
{
    char *path;
    ddp_status status =
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), &path, err);
    if (status != DDP_OK)
        return ddpi_error_advise(err, status, "name a file with --metrics-token-file");
    *strrchr(path, '/') = '\0';
    *ret = ddpi_asprintf("%s/metrics-token", path);
    ddpi_free(path);
    return *ret != NULL ? DDP_OK : ddpi_error_nomem(err, 1);
}

static ddp_status take_metrics_token(struct metrics_config *config, const char *file,
                                     struct ddp_error *err)
{
    struct ddpi_credential token;
    char *path = NULL;
    ddp_status status = file != NULL ? DDP_OK : token_path(&path, err);
    if (status != DDP_OK)
        return status;
    file = file != NULL ? file : path;
    status = ddpi_token_obtain(file, &token, err);
    if (status == DDP_OK && !token.is_token)
        status = ddpi_error_set(err, DDP_E_INVALID, "'%s' is the key of a role, not a token", file);
    for (size_t i = 0; status == DDP_OK && i < sizeof token.secret; i++)
        snprintf(config->token + 2 * i, 3, "%02x", token.secret[i]);
    ddpi_wipe(&token, sizeof token);
    ddpi_free(path);
    return status;
}

static ddp_status listen_there(struct metrics_config *config, const struct metrics_wish *wish,
                               struct ddp_error *err)
{
    struct ddpi_endpoint where;
    ddp_status status = parse_listen(wish->listen, &where, err);
    if (status == DDP_OK)
        status = ddpi_listen(where.host, where.port, true, &config->fd, err);
    config->beyond = status == DDP_E_DENIED;
    if (config->beyond)
        status = ddpi_listen(where.host, where.port, false, &config->fd, err);
    if (status == DDP_OK && (config->beyond || wish->token_file != NULL))
        status = take_metrics_token(config, wish->token_file, err);
    return status == DDP_OK ? DDP_OK : ddpi_error_wrap(err, status, "--metrics-listen");
}

/* It is replaced as a whole, which must not happen to a device. */
static ddp_status check_textfile(const char *path, struct ddp_error *err)
{
    struct stat status;
    if (lstat(path, &status) != 0 || S_ISREG(status.st_mode))
        return DDP_OK;
    return ddpi_error_set(
        err, DDP_E_INVALID,
        "--metrics-textfile: '%s' is no regular file; name one that may be replaced", path);
}

static const char *text_or_null(const char *text)
{
    return text != NULL && *text != '\0' ? text : NULL;
}

ddp_status metrics_config_make(struct metrics_config *config, const struct metrics_wish *wish,
                               struct ddp_error *err)
{
    *config = (struct metrics_config){.fd = -1,
                                      .textfile = text_or_null(wish->textfile),
                                      .token_named = wish->token_file != NULL,
                                      .trust_local_users = wish->trust_local_users};
    ddp_status status = config->textfile != NULL ? check_textfile(config->textfile, err) : DDP_OK;
    if (status == DDP_OK && text_or_null(wish->listen) != NULL)
        status = listen_there(config, wish, err);
    return status;
}
