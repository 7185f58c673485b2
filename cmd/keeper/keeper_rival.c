/*
 * keeper_rival.c - see keeper_rival.h. Owns the socket until it is taken, and what waits for it.
 */
#include "keeper_rival.h"

#include "error.h"
#include "keeper.h"
#include "keeper_watch.h"
#include "text.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LOOK_MS = 50,
    MANY = 16,         /* may wait */
    SILENT_MS = 10000, /* a keeper that begins needs a moment to answer */
};

struct rival {
    const struct keeper_rival_question *question;
    uv_loop_t *loop;
    struct keeper_peers *peers;
    struct keeper_watch watch;
    uint64_t since_ms;
    bool seen;      /* it goes on: the two have one job, ... */
    bool of_no_job; /* ... or it has none, and comes back by its service */
    int waits;      /* connected to it since then; -1: not */
    int fd;         /* that has the address; -1: another process does */
    ddp_status status;
    struct ddp_error *err;
};

/* ---- the address ---- */

/* A socket to which @act, bind() or connect(), has applied the address; -1: errno says why not. */
static int open_at(const struct keeper_rival_question *question,
                   int (*act)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}; /* one that begins with NUL is no file */
    int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "ddprund-keeper-%s-%u",
                       question->self->peer_host, question->list->at[question->self->number].port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    if (fd < 0 || act(fd, (const struct sockaddr *)&name, size) == 0)
        return fd;
    int sys_errno = errno;
    close(fd);
    errno = sys_errno;
    return -1;
}

static int take_address(const struct keeper_rival_question *question)
{
    int fd = open_at(question, bind);
    if (fd >= 0)
        (void)listen(fd, MANY);
    return fd;
}

/* They are accepted only now: nothing else is said to them. */
void keeper_rival_tell_over(int fd)
{
    int one;
    while ((one = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        (void)send(one, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(one);
    }
}

/* Whether the other keeper has said that the job is over. */
static bool hears_over(struct rival *rival)
{
    char byte;
    if (rival->waits < 0)
        return false;
    ssize_t len = recv(rival->waits, &byte, 1, MSG_DONTWAIT);
    if (len < 0 && errno == EAGAIN)
        return false;
    close(rival->waits);
    rival->waits = -1;
    return len == 1;
}

/* ---- the wait ---- */

static void finish(struct rival *rival, ddp_status status)
{
    rival->status = status;
    keeper_watch_close(&rival->watch);
    keeper_peers_close(rival->peers);
    if (rival->waits >= 0)
        close(rival->waits);
}

static const char *port_text(const struct rival *rival, char text[DDPI_CLUSTER_ENDPOINT])
{
    const struct keeper_rival_question *question = rival->question;
    snprintf(text, DDPI_CLUSTER_ENDPOINT, "%u of %s",
             question->list->at[question->self->number].port, question->self->peer_host);
    return text;
}

static void on_heard(void *ctx, unsigned machine, const struct ddpi_keeper_status *status,
                     uint64_t asked_ms)
{
    struct rival *rival = ctx;
    const struct keeper_rival_question *question = rival->question;
    char list[DDPI_CLUSTER_LIST_TEXT], port[DDPI_CLUSTER_ENDPOINT];
    (void)asked_ms;
    ddpi_cluster_list_put(question->list, list);
    bool same = strcmp(status->list, list) == 0 && status->self == machine &&
                (status->job[0] == '\0' || strcmp(status->job, question->job) == 0);
    bool ends = status->phase == KEEPER_ENDING;
    rival->since_ms = uv_now(rival->loop);
    if (!same && !ends) {
        ddpi_error_set(rival->err, DDP_E_INVALID,
                       "the store's port %s is that of a keeper of the job '%s' with the list %s; "
                       "wait for its end, or give this job another port",
                       port_text(rival, port), status->job, status->list);
        ddpi_text_mask(rival->err->msg);
        finish(rival, DDP_E_INVALID);
    }
    if (!same || ends) /* of a job before this one, perhaps */
        return;
    if (!rival->seen)
        question->waits(question->ctx);
    rival->seen = true;
    rival->of_no_job = status->job[0] == '\0';
    if (rival->waits < 0)
        rival->waits = open_at(question, connect);
}

static void on_tick(void *ctx)
{
    struct rival *rival = ctx;
    char port[DDPI_CLUSTER_ENDPOINT];
    if (hears_over(rival)) {
        finish(rival, ddpi_error_set(rival->err, DDP_E_CLOSED, "the job is over"));
        return;
    }
    rival->fd = take_address(rival->question);
    if (rival->fd >= 0 && rival->of_no_job) {
        close(rival->fd);
        rival->fd = -1;
        finish(rival, ddpi_error_set(rival->err, DDP_E_CLOSED, "the other keeper has ended"));
        return;
    }
    if (rival->fd >= 0) {
        finish(rival, DDP_OK);
        return;
    }
    if (!rival->seen && uv_now(rival->loop) - rival->since_ms >= SILENT_MS) {
        ddpi_error_set(rival->err, DDP_E_INVALID,
                       "another process keeps a store at port %s, and does not answer as one of "
                       "this job; end it, or list another port",
                       port_text(rival, port));
        finish(rival, DDP_E_INVALID);
        return;
    }
    keeper_peers_ask(rival->peers);
}

static void on_signal(void *ctx, int signum)
{
    struct rival *rival = ctx;
    if (keeper_ends_by(rival->question->job, signum))
        finish(rival, ddpi_error_set(rival->err, DDP_E_CLOSED, "%s", strsignal(signum)));
}

static ddp_status await(uv_loop_t *loop, const struct keeper_rival_question *question, int *ret,
                        struct ddp_error *err)
{
    struct rival rival = {.question = question, .loop = loop, .waits = -1, .fd = -1, .err = err};
    struct keeper_peers_options peers = {.list = question->list,
                                         .token_fd = question->token_fd,
                                         .tls = question->tls,
                                         .log = question->log,
                                         .ctx = &rival,
                                         .heard = on_heard};
    peers.asks[question->self->number] = true;
    ddp_status status = keeper_peers_open(loop, &peers, &rival.peers, err);
    if (status == DDP_OK) {
        uv_update_time(loop);
        rival.since_ms = uv_now(loop);
        rival.watch = (struct keeper_watch){.tick = on_tick, .signal = on_signal, .ctx = &rival};
        keeper_watch_start(&rival.watch, loop, LOOK_MS);
        ddpi_log(question->log, DDPI_LOG_INFO,
                 "another keeper of this machine is at work; this one waits for its end");
    }
    uv_run(loop, UV_RUN_DEFAULT);
    *ret = rival.fd;
    return status == DDP_OK ? rival.status : status;
}

ddp_status keeper_rival_await(uv_loop_t *loop, const struct keeper_rival_question *question,
                              int *ret, struct ddp_error *err)
{
    *ret = take_address(question);
    if (*ret >= 0)
        return DDP_OK;
    if (errno != EADDRINUSE)
        return ddpi_error_sys(err, errno, "cannot take the address of this keeper");
    if (question->job == NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "another keeper of this machine has the store's port %u of %s; one "
                              "is enough",
                              question->list->at[question->self->number].port,
                              question->self->peer_host);
    return await(loop, question, ret, err);
}
