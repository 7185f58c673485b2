/*
 * handshake.c - where a rank meets others: its listeners, and who comes in through them. Owns them,
 * the table of cards, and every connection until it is part of an edge.
 *
 * On a Unix socket the kernel also says whose process the visitor is. Strangers are sent away; one
 * that says nothing has to give way when there is no room. The places are bounded: one for each
 * connection that a rank of this world can have with us, and a few more.
 */
#include "handshake.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { STRANGERS_MAX = 16, CONNECTIONS_PER_RANK = 2 };

/* Who has connected. Complete ones stay as long as they are half of an edge, or as our own attempt
 * to reach the same rank is under way. */
struct visitor {
    struct ddpi_list node; /* ddpi_meeting::visitors, the oldest first */
    struct ddpi_incoming in;
    bool complete;
};

static struct visitor *visitor_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct visitor, node);
}

/* ---- life ---- */

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

/* Watch @fd for bytes to read; @owner is told from others by its address. */
static ddp_status watch(const struct ddpi_meeting *meeting, int fd, void *owner,
                        struct ddp_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = owner};
    if (fd < 0 || epoll_ctl(meeting->events, EPOLL_CTL_ADD, fd, &event) == 0)
        return DDP_OK;
    return ddpi_error_sys(err, errno, "watch a socket");
}

void ddpi_meeting_clear(struct ddpi_meeting *meeting)
{
    *meeting = (struct ddpi_meeting){.events = -1, .tcp_listener = -1, .local_listener = -1};
    ddpi_list_init(&meeting->visitors);
    ddpi_attempt_clear(&meeting->attempt);
}

static ddp_status listen_everywhere(struct ddpi_meeting *meeting,
                                    const struct sockaddr_storage *address, bool use_shm,
                                    struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    meeting->card.tcp.ss_family = AF_INET;
    if (address != NULL) {
        meeting->card.tcp = *address;
        status = ddpi_listen_tcp(&meeting->card.tcp, &meeting->tcp_listener, err);
    }
    if (status == DDP_OK && use_shm && meeting->card.machine[0] != '\0')
        meeting->card.shm = prepare_shm(meeting);
    return status;
}

ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                             int bell, const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err)
{
    ddpi_meeting_clear(meeting);
    meeting->rank = rank;
    meeting->world_size = world_size;
    meeting->card.world_size = world_size;
    meeting->bell = bell;
    meeting->cards = ddpi_calloc(world_size, DDPI_CARD_SLOT);
    if (meeting->cards == NULL)
        return ddpi_error_nomem(err, (unsigned long long)world_size * DDPI_CARD_SLOT);
    meeting->events = epoll_create1(EPOLL_CLOEXEC);
    if (meeting->events < 0)
        return ddpi_error_sys(err, errno, "make an epoll descriptor");
    ddp_status status = ddpi_card_identify(&meeting->card, err);
    if (status == DDP_OK)
        status = listen_everywhere(meeting, address, use_shm, err);
    if (status == DDP_OK)
        status = watch(meeting, meeting->tcp_listener, &meeting->tcp_listener, err);
    if (status == DDP_OK)
        status = watch(meeting, meeting->local_listener, &meeting->local_listener, err);
    if (status == DDP_OK && !ddpi_card_put(&meeting->card, ddpi_meeting_slot(meeting, rank)))
        status = ddpi_error_nomem(err, DDPI_CARD_SLOT);
    return status;
}

static void visitor_drop(struct ddpi_meeting *meeting, struct visitor *visitor)
{
    if (!visitor->complete)
        epoll_ctl(meeting->events, EPOLL_CTL_DEL, visitor->in.fd, NULL);
    ddpi_incoming_drop(&visitor->in);
    ddpi_list_remove(&visitor->node);
    ddpi_free(visitor);
    meeting->visitor_count--;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void ddpi_meeting_finish(struct ddpi_meeting *meeting)
{
    ddpi_list_for_each_safe (at, &meeting->visitors)
        visitor_drop(meeting, visitor_of(at));
    ddpi_attempt_drop(meeting);
    close_fd(&meeting->tcp_listener);
    close_fd(&meeting->local_listener);
    close_fd(&meeting->events);
    ddpi_shm_destroy(meeting->segment);
    ddpi_free(meeting->cards);
    ddpi_meeting_clear(meeting);
}

/* ---- visitors ---- */

static void drop_rank(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    ddpi_list_for_each_safe (at, &meeting->visitors)
        if (visitor_of(at)->complete && ddpi_incoming_is(&visitor_of(at)->in, rank, link))
            visitor_drop(meeting, visitor_of(at));
}

/* The edge to @rank is there: whatever else that rank has begun comes too late. */
static void forget(struct ddpi_meeting *meeting, uint32_t rank)
{
    drop_rank(meeting, rank, DDPI_LINK_PEER);
    memset(ddpi_meeting_slot(meeting, rank), 0, DDPI_CARD_SLOT);
}

static void make_room(struct ddpi_meeting *meeting)
{
    uint64_t places = (uint64_t)meeting->world_size * CONNECTIONS_PER_RANK + STRANGERS_MAX;
    if (meeting->visitor_count < places)
        return;
    ddpi_list_for_each_safe (at, &meeting->visitors)
        if (!visitor_of(at)->complete) {
            visitor_drop(meeting, visitor_of(at));
            return;
        }
}

static ddp_status take_in(struct ddpi_meeting *meeting, int listener, struct ddp_error *err)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
        return ddpi_error_sys(err, errno, "accept a connection");
    if (fd < 0)
        return DDP_OK; /* who wanted in has changed his mind */
    make_room(meeting);
    struct visitor *visitor = ddpi_calloc(1, sizeof *visitor);
    ddp_status status =
        visitor != NULL ? watch(meeting, fd, visitor, err) : ddpi_error_nomem(err, sizeof *visitor);
    if (status != DDP_OK) {
        ddpi_free(visitor);
        close(fd);
        return status;
    }
    visitor->in = (struct ddpi_incoming){.fd = fd, .local = listener == meeting->local_listener};
    ddpi_list_append(&meeting->visitors, &visitor->node);
    meeting->visitor_count++;
    return DDP_OK;
}

static struct visitor *find(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                            enum ddpi_greeting_kind kind)
{
    ddpi_list_for_each (at, &meeting->visitors) {
        struct visitor *visitor = visitor_of(at);
        if (visitor->complete && ddpi_incoming_is(&visitor->in, rank, link) &&
            visitor->in.greeting.kind == (uint32_t)kind)
            return visitor;
    }
    return NULL;
}

/* ---- accepting ---- */

/* false: it has gone away again, which matters only to somebody who needs it. */
static bool answer(const struct ddpi_meeting *meeting, const struct ddpi_incoming *in,
                   const struct ddpi_card *card, size_t nfds)
{
    return ddpi_greet(in->fd, DDPI_GREET_ANSWER, (enum ddpi_link)in->greeting.link, meeting->rank,
                      card, &meeting->bell, nfds, NULL) == DDP_OK;
}

static ddp_status accept_shm(struct ddpi_meeting *meeting, struct ddpi_incoming *in,
                             const struct ddpi_card *card, struct ddpi_edge **ret_edge,
                             struct ddp_error *err)
{
    if (!answer(meeting, in, card, 1))
        return DDP_OK;
    struct ddpi_shm_segment *segment;
    int bell = in->fds[1];
    ddp_status status = ddpi_shm_attach(in->fds[0], &segment, err);
    in->fds[0] = bell;
    in->nfds = 1;
    if (status != DDP_OK)
        return status;
    *ret_edge = ddpi_edge_shm(segment, 1, bell, in->fd, err);
    in->nfds = 0;
    in->fd = -1;
    return *ret_edge != NULL ? DDP_OK : DDP_E_NOMEM;
}

static ddp_status accept_tcp(struct ddpi_meeting *meeting, struct ddpi_incoming *control,
                             struct ddpi_incoming *data, const struct ddpi_card *card,
                             struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    ddpi_tune_tcp(control->fd);
    ddpi_tune_tcp(data->fd);
    if (!answer(meeting, control, card, 0))
        return DDP_OK;
    *ret_edge = ddpi_edge_tcp(data->fd, control->fd, err);
    data->fd = -1;
    control->fd = -1;
    return *ret_edge != NULL ? DDP_OK : DDP_E_NOMEM;
}

/* Our own attempt to reach @rank counts, not his to reach us. */
static bool ours_counts(const struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    return link == DDPI_LINK_PEER && attempt->stage != DDPI_ATTEMPT_NONE &&
           attempt->stage != DDPI_ATTEMPT_GONE && attempt->link == DDPI_LINK_PEER &&
           attempt->edge.peer == rank && meeting->rank < rank;
}

/* Our own attempt to reach @rank is of no use any more: there is an edge, or, if not, nobody. */
static void give_up(struct ddpi_meeting *meeting, uint32_t rank, bool reached)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    if (attempt->stage == DDPI_ATTEMPT_NONE || attempt->edge.peer != rank)
        return;
    if (reached)
        ddpi_attempt_drop(meeting);
    else
        ddpi_attempt_break(meeting);
}

/* All that @rank has to bring for an edge may be here. */
static ddp_status receive(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                          const struct ddpi_card *card, struct ddpi_edge **ret_edge,
                          struct ddp_error *err)
{
    struct visitor *shm = find(meeting, rank, link, DDPI_GREET_SHM);
    struct visitor *control = find(meeting, rank, link, DDPI_GREET_CONTROL);
    struct visitor *data = find(meeting, rank, link, DDPI_GREET_DATA);
    if ((shm == NULL && (control == NULL || data == NULL)) || ours_counts(meeting, rank, link))
        return DDP_OK;
    ddp_status status = shm != NULL
                            ? accept_shm(meeting, &shm->in, card, ret_edge, err)
                            : accept_tcp(meeting, &control->in, &data->in, card, ret_edge, err);
    drop_rank(meeting, rank, link);
    if (link == DDPI_LINK_PEER)
        give_up(meeting, rank, *ret_edge != NULL);
    if (*ret_edge == NULL)
        return status;
    ddpi_edge_name(*ret_edge, rank, card);
    if (link == DDPI_LINK_PEER)
        forget(meeting, rank);
    return DDP_OK;
}

/* From the rank that may connect for this, in the way that both cards agree on, and not twice? */
static bool expected(struct ddpi_meeting *meeting, const struct visitor *visitor,
                     const struct ddpi_card *card)
{
    const struct ddpi_greeting *greeting = &visitor->in.greeting;
    enum ddpi_greeting_kind kind = (enum ddpi_greeting_kind)greeting->kind;
    enum ddpi_link link = (enum ddpi_link)greeting->link;
    uint32_t prev = (meeting->rank + meeting->world_size - 1) % meeting->world_size;
    if (link > DDPI_LINK_PEER || (link == DDPI_LINK_RING && greeting->rank != prev) ||
        greeting->rank == meeting->rank || find(meeting, greeting->rank, link, kind) != visitor)
        return false;
    if (ddpi_card_share_memory(&meeting->card, card))
        return kind == DDPI_GREET_SHM && visitor->in.nfds == 2 && ddpi_peer_is_us(visitor->in.fd);
    return (kind == DDPI_GREET_CONTROL || kind == DDPI_GREET_DATA) && visitor->in.nfds == 0;
}

/* A visitor has something to say. */
static ddp_status listen_to(struct ddpi_meeting *meeting, struct visitor *visitor,
                            struct ddpi_arrival *arrival, struct ddp_error *err)
{
    enum ddpi_incoming_state state = ddpi_incoming_read(&visitor->in);
    if (state == DDPI_INCOMING_MORE)
        return DDP_OK;
    struct ddpi_card card;
    uint32_t rank = visitor->in.greeting.rank;
    if (state == DDPI_INCOMING_ENDED || !ddpi_incoming_valid(&visitor->in, &meeting->card) ||
        rank >= meeting->world_size || !ddpi_card_get(ddpi_meeting_slot(meeting, rank), &card)) {
        visitor_drop(meeting, visitor);
        return DDP_OK;
    }
    epoll_ctl(meeting->events, EPOLL_CTL_DEL, visitor->in.fd, NULL);
    visitor->complete = true;
    if (!expected(meeting, visitor, &card)) {
        visitor_drop(meeting, visitor);
        return DDP_OK;
    }
    arrival->link = (enum ddpi_link)visitor->in.greeting.link;
    arrival->asked = false;
    return receive(meeting, rank, arrival->link, &card, &arrival->edge, err);
}

/* ---- both sides ---- */

ddp_status ddpi_meeting_ask(struct ddpi_meeting *meeting, uint32_t peer, enum ddpi_link link,
                            struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    ddpi_attempt_clear(attempt);
    if (!ddpi_card_get(ddpi_meeting_slot(meeting, peer), &attempt->card))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the card of rank %u is from another version of libddpcomm", peer);
    if (ddpi_card_share_memory(&meeting->card, &attempt->card)) {
        attempt->segment = meeting->segment;
        meeting->segment = NULL;
        ddp_status status =
            attempt->segment == NULL ? ddpi_shm_create(&attempt->segment, err) : DDP_OK;
        if (status != DDP_OK)
            return status;
    }
    ddpi_edge_name(&attempt->edge, peer, &attempt->card);
    attempt->link = link;
    attempt->stage = DDPI_ATTEMPT_QUEUE;
    return DDP_OK;
}

static ddp_status push(struct ddpi_meeting *meeting, struct ddpi_arrival *arrival,
                       struct ddp_error *err)
{
    arrival->link = meeting->attempt.link;
    arrival->asked = true;
    ddp_status status = ddpi_attempt_push(meeting, &arrival->edge, err);
    if (arrival->edge != NULL && arrival->link == DDPI_LINK_PEER)
        forget(meeting, arrival->edge->peer);
    return status;
}

ddp_status ddpi_meeting_advance(struct ddpi_meeting *meeting, struct ddpi_arrival *ret_arrival,
                                struct ddp_error *err)
{
    struct ddpi_arrival arrival = {0};
    ddp_status status = DDP_OK;
    struct epoll_event event;
    while (status == DDP_OK && arrival.edge == NULL &&
           epoll_wait(meeting->events, &event, 1, 0) == 1) {
        if (event.data.ptr == &meeting->tcp_listener)
            status = take_in(meeting, meeting->tcp_listener, err);
        else if (event.data.ptr == &meeting->local_listener)
            status = take_in(meeting, meeting->local_listener, err);
        else if (event.data.ptr == &meeting->attempt)
            status = push(meeting, &arrival, err);
        else
            status = listen_to(meeting, event.data.ptr, &arrival, err);
    }
    if (status == DDP_OK && arrival.edge == NULL && meeting->attempt.stage == DDPI_ATTEMPT_QUEUE)
        status = push(meeting, &arrival, err);
    if (status != DDP_OK)
        ddpi_attempt_drop(meeting);
    else
        *ret_arrival = arrival;
    return status;
}
