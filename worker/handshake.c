/*
 * handshake.c - greetings between neighbours, and the edges that come of them. Owns the listeners
 * and the memory file of a meeting, and every connection until it is part of an edge.
 *
 * A greeting carries the token from the card of whom it greets, so a connection from somebody who
 * has not read the store is turned away; the answer carries the token of the one who connected.
 * On a Unix socket the kernel also says whose process the peer is.
 */
#include "handshake.h"

#include "clock.h"
#include "error.h"
#include "sockets.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GREETING_MAGIC = 0x47504444 /* "DDPG" */, PENDING_MAX = 16 };

enum greeting_kind { GREET_SHM = 1, GREET_CONTROL, GREET_DATA, GREET_ANSWER };

struct greeting {
    uint32_t magic;
    uint32_t kind;
    uint32_t rank;
    uint32_t zero;
    uint8_t token[DDPI_TOKEN_SIZE];
};

/* A connection whose greeting is not complete. */
struct pending {
    int fd; /* -1 = this place is free */
    bool local;
    size_t got;
    struct greeting greeting;
    int fds[DDPI_FDS_MAX];
    size_t nfds;
};

static uint64_t now_ms(void)
{
    return ddpi_now_ms(&ddpi_clock_monotonic);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- meeting ---- */

static void random_name(const uint8_t token[DDPI_TOKEN_SIZE], char name[DDPI_LOCAL_NAME])
{
    size_t used = (size_t)snprintf(name, DDPI_LOCAL_NAME, "ddprun-");
    for (size_t i = 0; i < DDPI_TOKEN_SIZE; i++)
        used += (size_t)snprintf(name + used, DDPI_LOCAL_NAME - used, "%02x", token[i]);
}

/* Everything that shared memory needs is tried here, before the card promises it. */
static bool prepare_shm(struct ddpi_meeting *meeting)
{
    random_name(meeting->card.token, meeting->card.local);
    if (ddpi_shm_create(&meeting->segment, NULL) == DDP_OK &&
        ddpi_listen_local(meeting->card.local, &meeting->local_listener, NULL) == DDP_OK)
        return true;
    ddpi_shm_destroy(meeting->segment);
    meeting->segment = NULL;
    meeting->card.local[0] = '\0';
    return false;
}

ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, int bell,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err)
{
    *meeting =
        (struct ddpi_meeting){.rank = rank, .bell = bell, .tcp_listener = -1, .local_listener = -1};
    ddp_status status = ddpi_card_identify(&meeting->card, err);
    if (status != DDP_OK)
        return status;
    meeting->card.tcp = *address;
    status = ddpi_listen_tcp(&meeting->card.tcp, &meeting->tcp_listener, err);
    if (status != DDP_OK)
        return status;
    if (use_shm && meeting->card.machine[0] != '\0')
        meeting->card.shm = prepare_shm(meeting);
    return DDP_OK;
}

void ddpi_meeting_finish(struct ddpi_meeting *meeting)
{
    close_fd(&meeting->tcp_listener);
    close_fd(&meeting->local_listener);
    ddpi_shm_destroy(meeting->segment);
    meeting->segment = NULL;
}

/* ---- greetings ---- */

static ddp_status greet(const struct ddpi_meeting *meeting, int fd, enum greeting_kind kind,
                        const struct ddpi_peer *peer, const int *fds, size_t nfds,
                        struct ddp_error *err)
{
    struct greeting greeting = {.magic = htole32(GREETING_MAGIC),
                                .kind = htole32((uint32_t)kind),
                                .rank = htole32(meeting->rank)};
    memcpy(greeting.token, peer->card.token, sizeof greeting.token);
    return ddpi_send_fds(fd, &greeting, sizeof greeting, fds, nfds, err);
}

static void pending_drop(struct pending *pending)
{
    for (size_t i = 0; i < pending->nfds; i++)
        close(pending->fds[i]);
    pending->nfds = 0;
    close_fd(&pending->fd);
}

/* Read on; true once the greeting is complete. A connection that ends or fails is dropped. */
static bool pending_read(struct pending *pending)
{
    char *at = (char *)&pending->greeting + pending->got;
    size_t left = sizeof pending->greeting - pending->got;
    ssize_t got = pending->local
                      ? ddpi_recv_fds(pending->fd, at, left, pending->fds, &pending->nfds)
                      : recv(pending->fd, at, left, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0) {
        pending_drop(pending);
        return false;
    }
    pending->got += (size_t)got;
    return pending->got == sizeof pending->greeting;
}

/* All bytes are compared, so that time tells nothing about them. */
static bool same_token(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;
    for (size_t i = 0; i < DDPI_TOKEN_SIZE; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

static bool greeting_is(const struct pending *pending, const struct ddpi_meeting *meeting,
                        uint32_t rank)
{
    return le32toh(pending->greeting.magic) == GREETING_MAGIC &&
           le32toh(pending->greeting.rank) == rank &&
           same_token(pending->greeting.token, meeting->card.token);
}

static struct ddpi_edge *name_edge(struct ddpi_edge *edge, const struct ddpi_peer *peer)
{
    edge->peer = peer->rank;
    snprintf(edge->peer_name, sizeof edge->peer_name, "rank %u (pid %u on %s)", peer->rank,
             peer->card.pid, peer->card.node);
    return edge;
}

/* ---- connecting ---- */

static ddp_status connect_shm(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                              uint64_t deadline_ms, struct ddpi_half_edge *half,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_connect_local(next->card.local, deadline_ms, &half->control_fd, err);
    if (status != DDP_OK)
        return status;
    const int fds[] = {ddpi_shm_fd(meeting->segment), meeting->bell};
    return greet(meeting, half->control_fd, GREET_SHM, next, fds, 2, err);
}

static ddp_status connect_tcp(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                              uint64_t deadline_ms, struct ddpi_half_edge *half,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_connect_tcp(&next->card.tcp, deadline_ms, &half->control_fd, err);
    if (status == DDP_OK)
        status = ddpi_connect_tcp(&next->card.tcp, deadline_ms, &half->data_fd, err);
    if (status != DDP_OK)
        return status;
    ddpi_tune_tcp(half->control_fd);
    ddpi_tune_tcp(half->data_fd);
    status = greet(meeting, half->control_fd, GREET_CONTROL, next, NULL, 0, err);
    if (status == DDP_OK)
        status = greet(meeting, half->data_fd, GREET_DATA, next, NULL, 0, err);
    return status;
}

void ddpi_half_edge_close(struct ddpi_half_edge *half)
{
    close_fd(&half->control_fd);
    close_fd(&half->data_fd);
}

ddp_status ddpi_meeting_connect(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                                uint64_t deadline_ms, struct ddpi_half_edge *ret_half,
                                struct ddp_error *err)
{
    struct ddpi_half_edge half = {.control_fd = -1, .data_fd = -1};
    ddp_status status = ddpi_card_share_memory(&meeting->card, &next->card)
                            ? connect_shm(meeting, next, deadline_ms, &half, err)
                            : connect_tcp(meeting, next, deadline_ms, &half, err);
    if (status != DDP_OK) {
        ddpi_half_edge_close(&half);
        return ddpi_error_wrap(err, status, "rank %u on %s", next->rank, next->card.node);
    }
    *ret_half = half;
    return DDP_OK;
}

/* ---- accepting ---- */

struct acceptor {
    struct ddpi_meeting *meeting;
    const struct ddpi_peer *prev;
    bool shm; /* what the cards agree on */
    int control_fd, data_fd;
    struct pending pending[PENDING_MAX];
};

static void take_in(struct acceptor *acceptor, int listener, bool local)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    for (unsigned i = 0; i < PENDING_MAX; i++)
        if (acceptor->pending[i].fd < 0) {
            acceptor->pending[i] = (struct pending){.fd = fd, .local = local};
            return;
        }
    close(fd); /* more strangers at a time than anybody expects */
}

static ddp_status finish_shm(struct acceptor *acceptor, struct pending *pending,
                             struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    struct ddpi_meeting *meeting = acceptor->meeting;
    struct ddpi_shm_segment *segment = NULL;
    ddp_status status =
        greet(meeting, pending->fd, GREET_ANSWER, acceptor->prev, &meeting->bell, 1, err);
    if (status == DDP_OK) {
        status = ddpi_shm_attach(pending->fds[0], &segment, err);
        pending->fds[0] = pending->fds[1];
        pending->nfds = 1;
    }
    if (status != DDP_OK) {
        pending_drop(pending);
        return status;
    }
    struct ddpi_edge *edge = ddpi_edge_shm(segment, 1, pending->fds[0], pending->fd, err);
    pending->nfds = 0;
    pending->fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    *ret_edge = name_edge(edge, acceptor->prev);
    return DDP_OK;
}

static ddp_status finish_tcp(struct acceptor *acceptor, struct ddpi_edge **ret_edge,
                             struct ddp_error *err)
{
    ddpi_tune_tcp(acceptor->control_fd);
    ddpi_tune_tcp(acceptor->data_fd);
    ddp_status status =
        greet(acceptor->meeting, acceptor->control_fd, GREET_ANSWER, acceptor->prev, NULL, 0, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_edge *edge = ddpi_edge_tcp(acceptor->data_fd, acceptor->control_fd, err);
    acceptor->data_fd = -1;
    acceptor->control_fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    *ret_edge = name_edge(edge, acceptor->prev);
    return DDP_OK;
}

/* A complete greeting: part of the edge that is expected, or a stranger. */
static ddp_status welcome(struct acceptor *acceptor, struct pending *pending,
                          struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    uint32_t kind = le32toh(pending->greeting.kind);
    bool known = greeting_is(pending, acceptor->meeting, acceptor->prev->rank);
    if (known && acceptor->shm && kind == GREET_SHM && pending->nfds == 2 &&
        ddpi_peer_is_us(pending->fd))
        return finish_shm(acceptor, pending, ret_edge, err);
    int *place = kind == GREET_CONTROL ? &acceptor->control_fd : &acceptor->data_fd;
    if (known && !acceptor->shm && (kind == GREET_CONTROL || kind == GREET_DATA) && *place < 0) {
        *place = pending->fd;
        pending->fd = -1;
    }
    pending_drop(pending);
    if (acceptor->control_fd < 0 || acceptor->data_fd < 0)
        return DDP_OK;
    return finish_tcp(acceptor, ret_edge, err);
}

enum { POLL_TCP, POLL_LOCAL, POLL_HALF, POLL_PENDING, POLL_COUNT = POLL_PENDING + PENDING_MAX };

static ddp_status accept_once(struct acceptor *acceptor, const struct ddpi_half_edge *half,
                              uint64_t deadline_ms, struct ddpi_edge **ret_edge,
                              struct ddp_error *err)
{
    const struct ddpi_meeting *meeting = acceptor->meeting;
    struct pollfd fds[POLL_COUNT] = {{.fd = meeting->tcp_listener, .events = POLLIN},
                                     {.fd = meeting->local_listener, .events = POLLIN},
                                     {.fd = half->control_fd, .events = 0}};
    for (unsigned i = 0; i < PENDING_MAX; i++)
        fds[POLL_PENDING + i] = (struct pollfd){.fd = acceptor->pending[i].fd, .events = POLLIN};
    int count = poll(fds, POLL_COUNT, ddpi_remaining_ms(now_ms(), deadline_ms));
    if (count < 0 && errno != EINTR)
        return ddpi_error_sys(err, errno, "poll");
    if (count == 0)
        return ddpi_error_set(err, DDP_E_TIMEOUT, "rank %u on %s has not connected in time",
                              acceptor->prev->rank, acceptor->prev->card.node);
    if (count < 0)
        return DDP_OK;
    if (fds[POLL_HALF].revents != 0)
        return ddpi_error_set(err, DDP_E_PEER_DEAD,
                              "the next rank closed its connection during init");
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < PENDING_MAX && status == DDP_OK && *ret_edge == NULL; i++)
        if (fds[POLL_PENDING + i].revents != 0 && pending_read(&acceptor->pending[i]))
            status = welcome(acceptor, &acceptor->pending[i], ret_edge, err);
    if (fds[POLL_TCP].revents != 0)
        take_in(acceptor, meeting->tcp_listener, false);
    if (fds[POLL_LOCAL].revents != 0)
        take_in(acceptor, meeting->local_listener, true);
    return status;
}

ddp_status ddpi_meeting_accept(struct ddpi_meeting *meeting, const struct ddpi_peer *prev,
                               const struct ddpi_half_edge *half, uint64_t deadline_ms,
                               struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    struct acceptor acceptor = {.meeting = meeting,
                                .prev = prev,
                                .shm = ddpi_card_share_memory(&meeting->card, &prev->card),
                                .control_fd = -1,
                                .data_fd = -1};
    for (unsigned i = 0; i < PENDING_MAX; i++)
        acceptor.pending[i].fd = -1;
    struct ddpi_edge *edge = NULL;
    ddp_status status = DDP_OK;
    while (status == DDP_OK && edge == NULL)
        status = accept_once(&acceptor, half, deadline_ms, &edge, err);
    for (unsigned i = 0; i < PENDING_MAX; i++)
        pending_drop(&acceptor.pending[i]);
    close_fd(&acceptor.control_fd);
    close_fd(&acceptor.data_fd);
    if (status == DDP_OK)
        *ret_edge = edge;
    return status;
}

/* ---- confirming ---- */

static ddp_status await_answer(struct pending *answer, const struct ddpi_peer *next,
                               uint64_t deadline_ms, struct ddp_error *err)
{
    while (!pending_read(answer)) {
        if (answer->fd < 0)
            return ddpi_error_set(err, DDP_E_PEER_DEAD,
                                  "rank %u on %s closed its connection during init", next->rank,
                                  next->card.node);
        struct pollfd pollfd = {.fd = answer->fd, .events = POLLIN};
        int count = poll(&pollfd, 1, ddpi_remaining_ms(now_ms(), deadline_ms));
        if (count == 0)
            return ddpi_error_set(err, DDP_E_TIMEOUT, "rank %u on %s has not answered in time",
                                  next->rank, next->card.node);
        if (count < 0 && errno != EINTR)
            return ddpi_error_sys(err, errno, "poll");
    }
    return DDP_OK;
}

ddp_status ddpi_meeting_confirm(struct ddpi_meeting *meeting, const struct ddpi_peer *next,
                                struct ddpi_half_edge *half, uint64_t deadline_ms,
                                struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    bool shm = half->data_fd < 0;
    struct pending answer = {.fd = half->control_fd, .local = shm};
    half->control_fd = -1;
    ddp_status status = await_answer(&answer, next, deadline_ms, err);
    if (status == DDP_OK &&
        (!greeting_is(&answer, meeting, next->rank) ||
         le32toh(answer.greeting.kind) != GREET_ANSWER || answer.nfds != (shm ? 1 : 0)))
        status =
            ddpi_error_set(err, DDP_E_PROTOCOL,
                           "what answers at the address of rank %u is not that rank", next->rank);
    if (status != DDP_OK) {
        pending_drop(&answer);
        ddpi_half_edge_close(half);
        return status;
    }
    struct ddpi_edge *edge = shm ? ddpi_edge_shm(meeting->segment, 0, answer.fds[0], answer.fd, err)
                                 : ddpi_edge_tcp(half->data_fd, answer.fd, err);
    if (shm)
        meeting->segment = NULL;
    half->data_fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    *ret_edge = name_edge(edge, next);
    return DDP_OK;
}
