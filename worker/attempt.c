/*
 * attempt.c - the connecting side of a handshake. Owns its connections and the memory file until
 * they are part of an edge.
 *
 *     QUEUE -> CONNECT (TCP only) -> ANSWER -> an edge, or GONE
 *
 * An attempt that the other side closes, or refuses, means that the rank is gone: a rank accepts
 * from the moment at which its card can be read until it gives its communicator back.
 */
#include "handshake.h"

#include "clock.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RETRY_MS = 10, NEWS_MS = 250 };

struct ddpi_edge *ddpi_edge_name(struct ddpi_edge *edge, uint32_t peer,
                                 const struct ddpi_card *card)
{
    edge->peer = peer;
    snprintf(edge->peer_name, sizeof edge->peer_name, "rank %u (pid %u on %s)", peer, card->pid,
             card->node);
    return edge;
}

/* An edge that is not there yet can be waited for: it brings nothing and takes nothing. When its
 * peer turns out to be gone, that may be as it has failed on account of a third rank, of which we
 * hear in a moment. */
static bool nothing_arm(struct ddpi_edge *edge, size_t recv_bytes, bool send,
                        struct pollfd *ret_poll)
{
    (void)edge;
    (void)recv_bytes;
    (void)send;
    *ret_poll = (struct pollfd){.fd = -1};
    return false;
}

static void nothing_disarm(struct ddpi_edge *edge)
{
    (void)edge;
}

static const struct ddpi_edge_ops nothing_ops = {
    .name = "none",
    .linger_ms = NEWS_MS,
    .arm = nothing_arm,
    .disarm = nothing_disarm,
};

void ddpi_attempt_clear(struct ddpi_attempt *attempt)
{
    *attempt = (struct ddpi_attempt){
        .edge = {.ops = &nothing_ops, .control.fd = -1}, .answer.fd = -1, .data_fd = -1};
}

static void unwatch(const struct ddpi_meeting *meeting, int fd)
{
    if (fd >= 0)
        epoll_ctl(meeting->events, EPOLL_CTL_DEL, fd, NULL);
}

static void let_go(struct ddpi_meeting *meeting)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    unwatch(meeting, attempt->answer.fd);
    unwatch(meeting, attempt->data_fd);
    ddpi_incoming_drop(&attempt->answer);
    if (attempt->data_fd >= 0)
        close(attempt->data_fd);
    attempt->data_fd = -1;
    ddpi_shm_destroy(attempt->segment);
    attempt->segment = NULL;
}

void ddpi_attempt_drop(struct ddpi_meeting *meeting)
{
    let_go(meeting);
    ddpi_attempt_clear(&meeting->attempt);
}

static bool means_gone(int error)
{
    return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
}

void ddpi_attempt_break(struct ddpi_meeting *meeting)
{
    let_go(meeting);
    meeting->attempt.stage = DDPI_ATTEMPT_GONE;
    meeting->attempt.edge.broken = "has died or has left the communicator";
}

/* No failure of this call. */
static ddp_status gone(struct ddpi_meeting *meeting)
{
    ddpi_attempt_break(meeting);
    return DDP_OK;
}

static ddp_status not_reached(struct ddpi_meeting *meeting, int error, struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    if (means_gone(error))
        return gone(meeting);
    ddp_status status = ddpi_error_sys(err, error, "connect to it");
    return ddpi_error_wrap(err, status, "%s", attempt->edge.peer_name);
}

/* Edge-triggered: whatever happens, the attempt is pushed as far as it goes. */
static ddp_status watch(struct ddpi_meeting *meeting, int fd, struct ddp_error *err)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                .data.ptr = &meeting->attempt};
    if (epoll_ctl(meeting->events, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddpi_error_sys(err, errno, "watch a connection");
    return DDP_OK;
}

static ddp_status greet(struct ddpi_meeting *meeting, int fd, enum ddpi_greeting_kind kind,
                        const int *fds, size_t nfds, struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    struct ddp_error cause = {0};
    ddp_status status =
        ddpi_greet(fd, kind, attempt->link, meeting->rank, &attempt->card, fds, nfds, &cause);
    if (status == DDP_OK)
        return DDP_OK;
    return means_gone(cause.sys_errno) ? gone(meeting)
                                       : ddpi_error_set(err, status, "%s", cause.msg);
}

static ddp_status connect_shm(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int error = ddpi_begin_local(attempt->card.local, &attempt->answer.fd);
    if (error == EAGAIN) {
        attempt->retry_ms = ddpi_now_ms(&ddpi_clock_monotonic) + RETRY_MS;
        return DDP_OK;
    }
    if (error != 0)
        return not_reached(meeting, error, err);
    attempt->answer.local = true;
    ddp_status status = watch(meeting, attempt->answer.fd, err);
    if (status != DDP_OK)
        return status;
    attempt->stage = DDPI_ATTEMPT_ANSWER;
    const int fds[] = {ddpi_shm_fd(attempt->segment), meeting->bell};
    return greet(meeting, attempt->answer.fd, DDPI_GREET_SHM, fds, 2, err);
}

static ddp_status begin_tcp(struct ddpi_meeting *meeting, int *fd, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int error = ddpi_begin_tcp(&attempt->card.tcp, fd);
    if (error != 0 && error != EINPROGRESS)
        return not_reached(meeting, error, err);
    ddpi_tune_tcp(*fd);
    return watch(meeting, *fd, err);
}

static ddp_status connect_tcp(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    attempt->stage = DDPI_ATTEMPT_CONNECT;
    ddp_status status = begin_tcp(meeting, &attempt->answer.fd, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_CONNECT)
        status = begin_tcp(meeting, &attempt->data_fd, err);
    return status;
}

static ddp_status start(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    if (meeting->attempt.retry_ms > ddpi_now_ms(&ddpi_clock_monotonic))
        return DDP_OK;
    return meeting->attempt.segment != NULL ? connect_shm(meeting, err) : connect_tcp(meeting, err);
}

static ddp_status greet_tcp(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int control = ddpi_connect_result(attempt->answer.fd);
    int data = ddpi_connect_result(attempt->data_fd);
    if (control == EINPROGRESS || (control == 0 && data == EINPROGRESS))
        return DDP_OK;
    if (control != 0 || data != 0)
        return not_reached(meeting, control != 0 ? control : data, err);
    attempt->stage = DDPI_ATTEMPT_ANSWER;
    ddp_status status = greet(meeting, attempt->answer.fd, DDPI_GREET_CONTROL, NULL, 0, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_ANSWER)
        status = greet(meeting, attempt->data_fd, DDPI_GREET_DATA, NULL, 0, err);
    return status;
}

/* The answer is complete: the connections, and the memory, become an edge. */
static ddp_status conclude(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                           struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    struct ddpi_incoming *answer = &attempt->answer;
    uint32_t peer = attempt->edge.peer;
    bool shm = attempt->segment != NULL;
    if (!ddpi_incoming_valid(answer, &meeting->card) ||
        !ddpi_incoming_is(answer, peer, attempt->link) ||
        answer->greeting.kind != DDPI_GREET_ANSWER || answer->nfds != (shm ? 1 : 0))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "what answers at the address of rank %u is not that rank", peer);
    unwatch(meeting, answer->fd);
    unwatch(meeting, attempt->data_fd);
    struct ddpi_edge *edge =
        shm ? ddpi_edge_shm(attempt->segment, 0, answer->fds[0], answer->fd, err)
            : ddpi_edge_tcp(attempt->data_fd, answer->fd, err);
    attempt->segment = NULL;
    attempt->data_fd = -1;
    answer->nfds = 0;
    answer->fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    *ret_edge = ddpi_edge_name(edge, peer, &attempt->card);
    return DDP_OK;
}

static ddp_status await_answer(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                               struct ddp_error *err)
{
    struct ddpi_incoming *answer = &meeting->attempt.answer;
    for (;;) {
        size_t got = answer->got;
        switch (ddpi_incoming_read(answer)) {
        case DDPI_INCOMING_COMPLETE:
            return conclude(meeting, ret_edge, err);
        case DDPI_INCOMING_ENDED:
            return gone(meeting);
        case DDPI_INCOMING_MORE:
            if (answer->got == got)
                return DDP_OK;
        }
    }
}

ddp_status ddpi_attempt_push(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                             struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    ddp_status status = DDP_OK;
    *ret_edge = NULL;
    if (attempt->stage == DDPI_ATTEMPT_QUEUE)
        status = start(meeting, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_CONNECT)
        status = greet_tcp(meeting, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_ANSWER)
        status = await_answer(meeting, ret_edge, err);
    if (status != DDP_OK || *ret_edge != NULL)
        ddpi_attempt_drop(meeting);
    return status;
}
