/*
 * http_none.c - replaces http_server.c in a build without libmicrohttpd: every request for a server
 * fails with an error that names the build option.
 */
#include "http_server.h"

#include "error.h"

#include <unistd.h>

ddp_status http_server_create(uv_loop_t *loop, const struct http_options *options,
                              struct http_server **ret, struct ddp_error *err)
{
    (void)loop, (void)options, (void)ret;
    return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                          "this ddprun was built without HTTP; rebuild it with -Dhttp=enabled, "
                          "which needs libmicrohttpd");
}

void http_server_take(struct http_server *server, int fd, const struct sockaddr *peer)
{
    (void)server, (void)peer;
    close(fd);
}

void http_answer(struct http_request *request, unsigned status, const char *type, const void *bytes,
                 size_t len)
{
    (void)request, (void)status, (void)type, (void)bytes, (void)len;
}

void http_server_destroy(struct http_server *server)
{
    (void)server;
}
