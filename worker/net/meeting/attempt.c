/*
 * attempt.c - the connecting side of a meeting. Owns its connections and the memory file until they
 * are part of an edge.
 *
 *     QUEUE -> CONNECT (TCP only) -> ANSWER -> an edge, or GONE
 *       ^                              |
 *       +-- the peer hung up ----------+
 *
 * If the connection is refused, the rank is gone: a rank listens from the moment at which its card
 * can be read until its communicator is destroyed. If it is closed later, the rank may live: one
 * with many incoming connections evicts unauthenticated ones.
 */
#include "attempt.h"

#include "clock.h"
#include "error.h"
#include "mem.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { RETRY_MS = 10 };

struct ddpi_edge *ddpi_edge_name(struct ddpi_edge *edge, uint32_t peer,
                                 const struct ddpi_card *card)
{
    char address[DDPI_ADDRESS_TEXT];
    edge->peer = peer;
    ddpi_address_text(&card->tcp, address);
    if (card->pid != 0)
        snprintf(edge->peer_name, sizeof edge->peer_name, "rank %u (pid %u on %s)", peer, card->pid,
                 card->node);
    else /* an address is all that is known */
        snprintf(edge->peer_name, sizeof edge->peer_name, "rank %u (at %s)", peer, address);
    edge->listener = card->tcp;
    return edge;
}

void ddpi_attempt_clear(struct ddpi_attempt *attempt)
{
    *attempt = (struct ddpi_attempt){
        .edge = {.ops = &ddpi_edge_none_ops, .control.fd = -1, .process.pidfd = -1}, .main.fd = -1};
}

static void attempt_unwatch(const struct ddpi_meeting *meeting, int fd)
{
    if (fd >= 0)
        epoll_ctl(meeting->events, EPOLL_CTL_DEL, fd, NULL);
}

static void attempt_hang_up(struct ddpi_meeting *meeting)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    attempt_unwatch(meeting, attempt->main.fd);
    attempt_unwatch(meeting, attempt->edge.process.pidfd);
    ddpi_process_finish(&attempt->edge.process);
    ddpi_greeting_drop(&attempt->main);
    for (unsigned i = 0; i < attempt->data_count; i++) {
        attempt_unwatch(meeting, attempt->data[i].fd);
        ddpi_greeting_drop(&attempt->data[i]);
    }
}

static void attempt_release(struct ddpi_meeting *meeting)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    attempt_hang_up(meeting);
    ddpi_shm_destroy(attempt->segment);
    attempt->segment = NULL;
}

void ddpi_attempt_drop(struct ddpi_meeting *meeting)
{
    attempt_release(meeting);
    ddpi_free(meeting->attempt.data);
    ddpi_attempt_clear(&meeting->attempt);
}

void ddpi_attempt_tell(const struct ddpi_meeting *meeting, const struct ddpi_memo *memos,
                       unsigned count)
{
    const struct ddpi_greeting *main = &meeting->attempt.main;
    struct ddpi_control control;
    if (meeting->attempt.stage != DDPI_ATTEMPT_ANSWER || main->stage != DDPI_GREETING_ANSWER)
        return;
    ddpi_control_init(&control, main->fd); /* which stays the greeting's */
    ddpi_control_seal(&control, &main->seals);
    for (unsigned i = 0; i < count; i++)
        ddpi_control_send(&control, &memos[i]);
    ddpi_wipe(&control.seals, sizeof control.seals);
}

static bool means_gone(int error)
{
    return error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;
}

/* This is no failure of the call. */
static ddp_status attempt_gone(struct ddpi_meeting *meeting)
{
    attempt_release(meeting);
    meeting->attempt.stage = DDPI_ATTEMPT_GONE;
    meeting->attempt.edge.broken = "has died or has left the communicator";
    return DDP_OK;
}

/* If the rank is gone, the next connection will be refused. */
static ddp_status attempt_retry(struct ddpi_meeting *meeting)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    attempt_hang_up(meeting);
    attempt->stage = DDPI_ATTEMPT_QUEUE;
    attempt->retry_ms = attempt->turn > 1 ? ddpi_monotonic_ms() + RETRY_MS : 0;
    return DDP_OK;
}

static ddp_status connect_failed(struct ddpi_meeting *meeting, int error, struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    if (means_gone(error))
        return attempt_gone(meeting);
    char address[DDPI_ADDRESS_TEXT];
    ddpi_address_text(&attempt->edge.listener, address);
    ddp_status status = ddpi_error_sys(err, error, "connect to it at %s", address);
    status = ddpi_error_wrap(err, status, "%s", attempt->edge.peer_name);
    return ddpi_error_advise(err, status,
                             "DDP_SOCKET_IFNAME=INTERFACE on each node chooses the network");
}

/* Edge-triggered: each event pushes the attempt as far as it goes. A negative @fd is none. */
static ddp_status attempt_watch(struct ddpi_meeting *meeting, int fd, struct ddp_error *err)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                .data.ptr = &meeting->attempt};
    if (fd >= 0 && epoll_ctl(meeting->events, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddpi_error_sys(err, errno, "watch a connection");
    return DDP_OK;
}

static enum ddpi_greeting_kind main_kind(const struct ddpi_attempt *attempt)
{
    if (ddpi_link_is_bare(attempt->link))
        return DDPI_GREET_JOIN;
    return attempt->local ? DDPI_GREET_SHM : DDPI_GREET_CONTROL;
}

/* Whether data has connections of its own. */
static bool has_data(const struct ddpi_attempt *attempt)
{
    return main_kind(attempt) == DDPI_GREET_CONTROL;
}

/* A part of the greeting could not be sent because of @cause. */
static ddp_status send_failed(struct ddpi_meeting *meeting, ddp_status status,
                              const struct ddp_error *cause, struct ddp_error *err)
{
    if (means_gone(cause->sys_errno))
        return attempt_retry(meeting);
    if (err != NULL)
        *err = *cause;
    return status;
}

static ddp_status send_hello(struct ddpi_meeting *meeting, struct ddpi_greeting *greeting,
                             enum ddpi_greeting_kind kind, uint32_t socket, struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    const struct ddpi_hello hello = {.kind = kind,
                                     .link = attempt->link,
                                     .from = meeting->rank,
                                     .to = attempt->edge.peer,
                                     .attempt = attempt->turn,
                                     .socket = socket};
    static const uint8_t unknown[DDPI_CARD_ID];
    const struct ddpi_greeting_terms terms = {
        &meeting->key, attempt->link == DDPI_LINK_JOIN ? unknown : meeting->card.id,
        attempt->card.id};
    struct ddp_error cause = {0};
    ddp_status status = ddpi_greeting_begin(greeting, &hello, &terms, &cause);
    return status == DDP_OK ? DDP_OK : send_failed(meeting, status, &cause, err);
}

static ddp_status connect_local(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int error = ddpi_begin_local(attempt->card.local, &attempt->main.fd);
    if (error == EAGAIN) {
        attempt->retry_ms = ddpi_monotonic_ms() + RETRY_MS;
        return DDP_OK;
    }
    if (error != 0)
        return connect_failed(meeting, error, err);
    attempt->main.local = true;
    ddpi_process_find(attempt->main.fd, &attempt->edge.process);
    ddp_status status = attempt_watch(meeting, attempt->main.fd, err);
    if (status == DDP_OK)
        status = attempt_watch(meeting, attempt->edge.process.pidfd, err);
    if (status != DDP_OK)
        return status;
    attempt->stage = DDPI_ATTEMPT_ANSWER;
    return send_hello(meeting, &attempt->main, main_kind(attempt), 0, err);
}

static ddp_status begin_tcp(struct ddpi_meeting *meeting, int *fd, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int error = ddpi_begin_tcp(&attempt->card.tcp, fd);
    if (error != 0 && error != EINPROGRESS)
        return connect_failed(meeting, error, err);
    ddpi_tune_tcp(*fd);
    return attempt_watch(meeting, *fd, err);
}

/* Room for the greetings on the connections for data; it stays for the next turn. */
static ddp_status prepare_data(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    if (attempt->data != NULL)
        return DDP_OK;
    unsigned count = ddpi_card_sockets(&meeting->card, &attempt->card);
    attempt->data = ddpi_calloc(count, sizeof *attempt->data);
    if (attempt->data == NULL)
        return ddpi_error_nomem(err, count * sizeof *attempt->data);
    attempt->data_count = count;
    for (unsigned i = 0; i < count; i++)
        ddpi_greeting_clear(&attempt->data[i]);
    return DDP_OK;
}

static ddp_status connect_tcp(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    attempt->stage = DDPI_ATTEMPT_CONNECT;
    ddp_status status = has_data(attempt) ? prepare_data(meeting, err) : DDP_OK;
    if (status == DDP_OK)
        status = begin_tcp(meeting, &attempt->main.fd, err);
    for (unsigned i = 0;
         i < attempt->data_count && status == DDP_OK && attempt->stage == DDPI_ATTEMPT_CONNECT; i++)
        status = begin_tcp(meeting, &attempt->data[i].fd, err);
    return status;
}

static ddp_status attempt_start(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    if (meeting->attempt.retry_ms > ddpi_monotonic_ms())
        return DDP_OK;
    meeting->attempt.turn++;
    return meeting->attempt.local ? connect_local(meeting, err) : connect_tcp(meeting, err);
}

static ddp_status send_hello_tcp(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    int result = ddpi_connect_result(attempt->main.fd);
    for (unsigned i = 0; i < attempt->data_count && result == 0; i++)
        result = ddpi_connect_result(attempt->data[i].fd);
    if (result != 0)
        return result == EINPROGRESS ? DDP_OK : connect_failed(meeting, result, err);
    attempt->stage = DDPI_ATTEMPT_ANSWER;
    ddp_status status = send_hello(meeting, &attempt->main, main_kind(attempt), 0, err);
    for (unsigned i = 0;
         i < attempt->data_count && status == DDP_OK && attempt->stage == DDPI_ATTEMPT_ANSWER; i++)
        status = send_hello(meeting, &attempt->data[i], DDPI_GREET_DATA, i, err);
    return status;
}

/* The peer has another key, or none. */
static ddp_status peer_not_proven(const struct ddpi_meeting *meeting, struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    const char *why =
        attempt->card.keyed == meeting->card.keyed
            ? "its key differs from ours; give all nodes the same token, or all ranks the same "
              "unique id, and start all ranks in the same job"
        : meeting->card.keyed
            ? "it has no key; start all ranks in the same way, and let no program between ddprun "
              "and them close the descriptor DDPRUN_RANK_KEY_FD"
            : "it has a key, and we have none; start all ranks in the same way, and let no program "
              "between ddprun and them close the descriptor DDPRUN_RANK_KEY_FD";
    return ddpi_error_set(err, DDP_E_DENIED, "%s did not prove that it is a rank of this job: %s",
                          attempt->edge.peer_name, why);
}

/* The edge takes over the connections and the memory of @attempt. */
static struct ddpi_edge *make_asked_edge(struct ddpi_attempt *attempt, struct ddp_error *err)
{
    struct ddpi_greeting *main = &attempt->main;
    struct ddpi_shm_segment *segment = attempt->segment;
    int control = main->fd, data[DDPI_SOCKETS_MAX];
    for (unsigned i = 0; i < attempt->data_count; i++) {
        data[i] = attempt->data[i].fd;
        attempt->data[i].fd = -1;
    }
    attempt->segment = NULL;
    main->fd = -1;
    main->nfds = 0;
    switch (main_kind(attempt)) {
    case DDPI_GREET_JOIN:
        return ddpi_edge_none(control, err);
    case DDPI_GREET_SHM:
        return ddpi_edge_shm(segment, 0, main->fds[0], control, err);
    default:
        return ddpi_edge_tcp(data, attempt->data_count, control, err);
    }
}

/* The answer has come: make the edge. */
static ddp_status take_answer(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                              struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    struct ddpi_greeting *main = &attempt->main;
    uint32_t peer = attempt->edge.peer;
    if (!ddpi_greeting_is_answer(main, attempt->segment != NULL ? 1 : 0))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "%s sent an invalid answer",
                              attempt->edge.peer_name);
    attempt_unwatch(meeting, main->fd);
    for (unsigned i = 0; i < attempt->data_count; i++)
        attempt_unwatch(meeting, attempt->data[i].fd);
    struct ddpi_edge *edge = make_asked_edge(attempt, err);
    if (edge == NULL)
        return DDP_E_NOMEM;
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < attempt->data_count && meeting->tls != NULL && status == DDP_OK; i++)
        status = ddpi_edge_tcp_hide(edge, i, meeting->tls, &attempt->data[i].seals, true, err);
    if (status != DDP_OK) {
        ddpi_edge_destroy(edge);
        return status;
    }
    ddpi_control_seal(&edge->control, &main->seals);
    *ret_edge = ddpi_edge_name(edge, peer, &attempt->card);
    return DDP_OK;
}

/* The challenge has come: prove that this is a rank, too, and offer the memory. */
static ddp_status send_proof(struct ddpi_meeting *meeting, struct ddpi_greeting *greeting,
                             struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    if (!ddpi_greeting_is_proven(greeting))
        return peer_not_proven(meeting, err);
    bool shm = attempt->segment != NULL;
    const int fds[] = {shm ? ddpi_shm_fd(attempt->segment) : -1, meeting->bell};
    struct ddp_error cause = {0};
    ddp_status status = ddpi_greeting_reply(greeting, fds, shm ? 2 : 0, &cause);
    return status == DDP_OK ? DDP_OK : send_failed(meeting, status, &cause, err);
}

/* Handle all messages of one connection that are here. */
static ddp_status read_greeting(struct ddpi_meeting *meeting, struct ddpi_greeting *greeting,
                                struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK && *ret_edge == NULL && greeting->fd >= 0) {
        enum ddpi_greeting_news news = ddpi_greeting_read(greeting);
        if (news == DDPI_GREETING_MORE)
            return DDP_OK;
        if (news == DDPI_GREETING_STARVED)
            return ddpi_error_sys(err, EMFILE, "receive the descriptors of %s",
                                  meeting->attempt.edge.peer_name);
        if (news == DDPI_GREETING_ENDED)
            return attempt_retry(meeting);
        status = greeting->stage == DDPI_GREETING_CHALLENGE ? send_proof(meeting, greeting, err)
                                                            : take_answer(meeting, ret_edge, err);
    }
    return status;
}

static ddp_status await_answer(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                               struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    bool ended = ddpi_process_ended(
        &attempt->edge.process); /* look first: it may have answered before it ended */
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < attempt->data_count && status == DDP_OK; i++)
        status = read_greeting(meeting, &attempt->data[i], ret_edge, err);
    if (status == DDP_OK)
        status = read_greeting(meeting, &attempt->main, ret_edge, err);
    return status == DDP_OK && *ret_edge == NULL && ended ? attempt_gone(meeting) : status;
}

ddp_status ddpi_attempt_push(struct ddpi_meeting *meeting, struct ddpi_edge **ret_edge,
                             struct ddp_error *err)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    ddp_status status = DDP_OK;
    *ret_edge = NULL;
    if (attempt->stage == DDPI_ATTEMPT_QUEUE)
        status = attempt_start(meeting, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_CONNECT)
        status = send_hello_tcp(meeting, err);
    if (status == DDP_OK && attempt->stage == DDPI_ATTEMPT_ANSWER)
        status = await_answer(meeting, ret_edge, err);
    if (status != DDP_OK || *ret_edge != NULL)
        ddpi_attempt_drop(meeting);
    return status;
}
