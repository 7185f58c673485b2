/*
 * keeper_server.c - see keeper_server.h. Owns the process and the socket.
 */
#include "keeper_server.h"

#include "error.h"
#include "keeper_status.h"
#include "mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

enum { WORDS = 5, WORD_MAX = KEEPER_PATH + DDPI_CLUSTER_ENDPOINT + 32 };

/* ---- the socket ---- */

static bool tell(const struct keeper_server *server, char kind, const char *text, size_t len)
{
    char packet[DDPI_KEEPER_STATUS_MAX + 1];
    packet[0] = kind;
    memcpy(packet + 1, text, len);
    return send(server->link, packet, len + 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

void keeper_server_tell(struct keeper_server *server, const char *status, size_t len)
{
    if (server->link >= 0)
        (void)tell(server, KEEPER_SAYS_STATUS, status, len);
}

void keeper_server_show(struct keeper_server *server, const char *summary, size_t len)
{
    if (server->link >= 0)
        (void)tell(server, KEEPER_SAYS_KEPT, summary, len);
}

void keeper_server_name(struct keeper_server *server, const char *job)
{
    if (server->link >= 0 && job[0] != '\0' && strcmp(server->told_job, job) != 0 &&
        tell(server, KEEPER_SAYS_JOB, job, strlen(job)))
        snprintf(server->told_job, sizeof server->told_job, "%s", job);
}

void keeper_server_open(struct keeper_server *server)
{
    if (server->link >= 0 && !server->told_open)
        server->told_open = tell(server, KEEPER_SAYS_OPEN, "", 0);
}

static void on_link(uv_poll_t *poll, int status, int events)
{
    struct keeper_server *server = poll->data;
    char packet;
    (void)status;
    (void)events;
    ssize_t len = recv(server->link, &packet, 1, MSG_DONTWAIT);
    if (len == 0)
        uv_poll_stop(poll);
    if (len == 1 && packet == KEEPER_HEARS_OVER)
        server->over(server->ctx);
    if (len != 1 || packet != KEEPER_HEARS_READY)
        return;
    if (!server->listened)
        server->ready(server->ctx);
    server->listened = true;
}

static void on_link_closed(uv_handle_t *handle)
{
    struct keeper_server *server = handle->data;
    close(server->link);
    server->link = -1;
    server->ended(server->ctx);
}

static void on_child_ended(struct keeper_child *child)
{
    struct keeper_server *server = child->ctx;
    uv_close((uv_handle_t *)&server->link_poll, on_link_closed);
}

/* ---- the start ---- */

/* The words of this ddprund, and those that make it the keeper's. */
static char **make_words(const struct keeper_server *server, char texts[WORDS][WORD_MAX])
{
    char **words = ddpi_calloc((size_t)server->argc + WORDS + 1, sizeof *words);
    if (words == NULL)
        return NULL;
    memcpy(words, server->argv, (size_t)server->argc * sizeof *words);
    snprintf(texts[0], WORD_MAX, "--keeper-fd=%d", KEEPER_LINK_FD);
    snprintf(texts[1], WORD_MAX, "--token-fd=%d", KEEPER_TOKEN_FD);
    snprintf(texts[2], WORD_MAX, "--state=%s", server->state);
    snprintf(texts[3], WORD_MAX, "--advertise=%s", server->endpoint);
    snprintf(texts[4], WORD_MAX, "--listen=%s", server->endpoint);
    for (int i = 0; i < (server->listens ? WORDS - 1 : WORDS); i++)
        words[server->argc + i] = texts[i];
    return words;
}

static ddp_status start_with(struct keeper_server *server, int link, struct ddp_error *err)
{
    char texts[WORDS][WORD_MAX], path[4096];
    char **words = make_words(server, texts);
    if (words == NULL)
        return ddpi_error_nomem(err, sizeof texts);
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (access(path, X_OK) != 0) /* it was replaced; this name lasts, but is not one for people */
        snprintf(path, sizeof path, "/proc/self/exe");
    const struct spawn_request request = {.path = path,
                                          .argv = words,
                                          .envp = environ,
                                          .stdio = {0, 1, 2},
                                          .key_fd = server->token_fd,
                                          .pmi_fd = link}; /* becomes KEEPER_LINK_FD */
    ddp_status status = keeper_child_start(&server->child, server->loop, &request, err);
    ddpi_free(words);
    return status;
}

ddp_status keeper_server_start(struct keeper_server *server, struct ddp_error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return ddpi_error_sys(err, errno, "cannot make a socket for the store");
    ddp_status status = start_with(server, ends[1], err);
    close(ends[1]);
    if (status != DDP_OK) {
        close(ends[0]);
        return status;
    }
    server->link = ends[0];
    server->link_poll.data = server;
    uv_poll_init(server->loop, &server->link_poll, server->link);
    uv_poll_start(&server->link_poll, UV_READABLE, on_link);
    server->told_open = false;
    server->told_job[0] = '\0';
    return DDP_OK;
}

void keeper_server_init(struct keeper_server *server)
{
    server->link = -1;
    server->child.ended = on_child_ended;
    server->child.ctx = server;
}

bool keeper_server_runs(const struct keeper_server *server)
{
    return server->link >= 0;
}
