/*
 * incoming.c - the connections that others have made to this rank, until they are part of an edge.
 * Owns them.
 *
 * On a Unix socket the kernel tells which user the peer is: a connection of another user is closed
 * unread. Only a few connections may be unauthenticated at a time: a new one evicts the oldest of
 * them.
 * When there is no descriptor for a new connection, and none to evict, the listeners pause for a
 * while.
 */
#include "incoming.h"

#include "attempt.h"
#include "clock.h"
#include "error.h"
#include "mem.h"
#include "stranger.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { PAUSE_MS = 100 };

/* A complete connection stays while it is half of an edge, or while this rank's own attempt to
 * reach the same peer is in progress. */
struct incoming {
    struct ddpi_list node; /* ddpi_meeting::incoming, the oldest first */
    struct ddpi_greeting in;
    bool authenticated; /* the peer is a rank of this world */
    bool complete;      /* everything that this connection brings is here */
};

static struct incoming *incoming_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct incoming, node);
}

static void incoming_drop(struct ddpi_meeting *meeting, struct incoming *incoming)
{
    if (!incoming->complete)
        epoll_ctl(meeting->events, EPOLL_CTL_DEL, incoming->in.fd, NULL);
    ddpi_greeting_drop(&incoming->in);
    ddpi_list_remove(&incoming->node);
    meeting->unauthenticated -= !incoming->authenticated;
    ddpi_free(incoming);
}

void ddpi_incoming_drop_all(struct ddpi_meeting *meeting)
{
    ddpi_list_for_each_safe (at, &meeting->incoming)
        incoming_drop(meeting, incoming_of(at));
}

static void drop_complete(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    ddpi_list_for_each_safe (at, &meeting->incoming)
        if (incoming_of(at)->complete && ddpi_greeting_is(&incoming_of(at)->in, rank, link))
            incoming_drop(meeting, incoming_of(at));
}

void ddpi_incoming_supersede(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                             bool asked)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    enum ddpi_link ours = asked ? link : ddpi_link_mirror(link);
    bool *stands = ddpi_meeting_stands(meeting, rank, link, asked);
    if (stands == NULL)
        return;
    *stands = true;
    if (attempt->stage != DDPI_ATTEMPT_NONE && attempt->edge.peer == rank && attempt->link == ours)
        ddpi_attempt_drop(meeting);
    drop_complete(meeting, rank, ddpi_link_mirror(ours));
}

/* false: there is none to evict. */
static bool evict_unauthenticated(struct ddpi_meeting *meeting)
{
    ddpi_list_for_each_safe (at, &meeting->incoming)
        if (!incoming_of(at)->authenticated) {
            incoming_drop(meeting, incoming_of(at));
            return true;
        }
    return false;
}

/* Have epoll @change the listeners, which are told apart by the addresses of their members. */
static bool watch_listeners(struct ddpi_meeting *meeting, int change, uint32_t events)
{
    int *const listeners[] = {&meeting->tcp_listener, &meeting->local_listener,
                              &meeting->join_listener};
    for (size_t i = 0; i < sizeof listeners / sizeof *listeners; i++) {
        struct epoll_event event = {.events = events, .data.ptr = listeners[i]};
        if (*listeners[i] >= 0 && epoll_ctl(meeting->events, change, *listeners[i], &event) != 0)
            return false;
    }
    return true;
}

ddp_status ddpi_incoming_listen(struct ddpi_meeting *meeting, struct ddp_error *err)
{
    return watch_listeners(meeting, EPOLL_CTL_ADD, EPOLLIN)
               ? DDP_OK
               : ddpi_error_sys(err, errno, "watch a socket");
}

/* There is no descriptor, or no memory, for a new connection. */
static ddp_status make_room_or_pause(struct ddpi_meeting *meeting, int error, struct ddp_error *err)
{
    if (evict_unauthenticated(meeting))
        return DDP_OK;
    if (meeting->needs_all)
        return ddpi_error_sys(err, error, "accept a rank that joins");
    meeting->paused_until_ms = ddpi_monotonic_ms() + PAUSE_MS;
    (void)watch_listeners(meeting, EPOLL_CTL_MOD, 0);
    return DDP_OK;
}

void ddpi_incoming_resume(struct ddpi_meeting *meeting)
{
    if (meeting->paused_until_ms == 0 || meeting->paused_until_ms > ddpi_monotonic_ms())
        return;
    meeting->paused_until_ms = 0;
    (void)watch_listeners(meeting, EPOLL_CTL_MOD, EPOLLIN);
}

static bool out_of_room(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* Watch and list the connection @fd; false: there is no memory. */
static bool incoming_add(struct ddpi_meeting *meeting, int fd, bool local)
{
    struct incoming *incoming = ddpi_calloc(1, sizeof *incoming);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = incoming};
    if (incoming == NULL || epoll_ctl(meeting->events, EPOLL_CTL_ADD, fd, &event) != 0) {
        ddpi_free(incoming);
        return false;
    }
    ddpi_greeting_clear(&incoming->in);
    incoming->in.fd = fd;
    incoming->in.local = local;
    ddpi_list_append(&meeting->incoming, &incoming->node);
    meeting->unauthenticated++;
    return true;
}

ddp_status ddpi_incoming_accept(struct ddpi_meeting *meeting, int listener, struct ddp_error *err)
{
    bool local = listener == meeting->local_listener;
    int fd = ddpi_accept(listener);
    if (fd < 0) /* the peer may have hung up */
        return out_of_room(errno) ? make_room_or_pause(meeting, errno, err) : DDP_OK;
    if (local && !ddpi_peer_is_ours(fd)) {
        ddpi_close_stranger(fd);
        return DDP_OK;
    }
    if (local)
        ddpi_pass_rights(fd, true);
    if (meeting->unauthenticated >= DDPI_UNAUTHENTICATED_MAX)
        evict_unauthenticated(meeting);
    if (incoming_add(meeting, fd, local))
        return DDP_OK;
    close(fd);
    return make_room_or_pause(meeting, ENOMEM, err);
}

static struct incoming *incoming_find(struct ddpi_meeting *meeting, uint32_t rank,
                                      enum ddpi_link link, enum ddpi_greeting_kind kind,
                                      uint32_t socket)
{
    ddpi_list_for_each (at, &meeting->incoming) {
        struct incoming *incoming = incoming_of(at);
        if (incoming->complete && ddpi_greeting_is(&incoming->in, rank, link) &&
            incoming->in.hello.kind == (uint32_t)kind && incoming->in.hello.socket == socket)
            return incoming;
    }
    return NULL;
}

/* ---- from a connection to an edge ---- */

/* If the answer cannot be sent, the peer is gone. That is an error only for a caller that needs
 * this edge, and such a caller finds out by itself. */

static ddp_status accept_join(struct ddpi_greeting *in, struct ddpi_edge **ret_edge,
                              struct ddp_error *err)
{
    if (!in->local)
        ddpi_tune_tcp(in->fd);
    if (!ddpi_greeting_answer(in, NULL, 0))
        return DDP_OK;
    *ret_edge = ddpi_edge_none(in->fd, err);
    in->fd = -1;
    return *ret_edge != NULL ? DDP_OK : DDP_E_NOMEM;
}

static ddp_status accept_shm(struct ddpi_meeting *meeting, struct ddpi_greeting *in,
                             struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    if (!ddpi_greeting_answer(in, &meeting->bell, 1))
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

/* The connections of an edge over TCP. */
struct tcp_connections {
    struct ddpi_greeting *control;
    struct ddpi_greeting *data[DDPI_SOCKETS_MAX];
    unsigned count;
};

static ddp_status accept_tcp(const struct ddpi_meeting *meeting, const struct tcp_connections *tcp,
                             struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    int fds[DDPI_SOCKETS_MAX];
    ddpi_tune_tcp(tcp->control->fd);
    if (!ddpi_greeting_answer(tcp->control, NULL, 0))
        return DDP_OK;
    for (unsigned i = 0; i < tcp->count; i++) {
        fds[i] = tcp->data[i]->fd;
        tcp->data[i]->fd = -1;
        ddpi_tune_tcp(fds[i]);
    }
    struct ddpi_edge *edge = ddpi_edge_tcp(fds, tcp->count, tcp->control->fd, err);
    tcp->control->fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    ddp_status status = DDP_OK;
    for (unsigned i = 0; i < tcp->count && meeting->tls != NULL && status == DDP_OK; i++)
        status = ddpi_edge_tcp_hide(edge, i, meeting->tls, &tcp->data[i]->seals, false, err);
    if (status == DDP_OK)
        *ret_edge = edge;
    else
        ddpi_edge_destroy(edge);
    return status;
}

/* Of two ranks that connect to each other, this one has the lower number: its own attempt wins. */
static bool own_attempt_wins(const struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    return !ddpi_link_is_bare(link) && attempt->stage != DDPI_ATTEMPT_NONE &&
           attempt->stage != DDPI_ATTEMPT_GONE && attempt->link == ddpi_link_mirror(link) &&
           attempt->edge.peer == rank && meeting->rank < rank;
}

/* Connections of two different attempts do not fit together: drop those of earlier attempts. */
static void drop_earlier_attempts(struct ddpi_meeting *meeting, const struct ddpi_hello *hello)
{
    ddpi_list_for_each_safe (at, &meeting->incoming) {
        const struct incoming *other = incoming_of(at);
        if (other->complete &&
            ddpi_greeting_is(&other->in, hello->from, (enum ddpi_link)hello->link) &&
            (other->in.hello.attempt != hello->attempt ||
             (other->in.hello.kind == hello->kind && other->in.hello.socket == hello->socket)))
            incoming_drop(meeting, incoming_of(at));
    }
}

/* false: not all of them are there. */
static bool find_tcp(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                     struct tcp_connections *tcp)
{
    struct incoming *incoming = incoming_find(meeting, rank, link, DDPI_GREET_CONTROL, 0);
    if (incoming == NULL)
        return false;
    tcp->control = &incoming->in;
    for (unsigned i = 0; i < tcp->count; i++) {
        incoming = incoming_find(meeting, rank, link, DDPI_GREET_DATA, i);
        if (incoming == NULL)
            return false;
        tcp->data[i] = &incoming->in;
    }
    return true;
}

/* Make an edge of the connections from @rank, if they are all there. */
static ddp_status make_accepted_edge(struct ddpi_meeting *meeting, uint32_t rank,
                                     enum ddpi_link link, const struct ddpi_card *card,
                                     struct ddpi_edge **ret_edge, struct ddp_error *err)
{
    struct incoming *shm = incoming_find(meeting, rank, link, DDPI_GREET_SHM, 0);
    struct incoming *join = incoming_find(meeting, rank, link, DDPI_GREET_JOIN, 0);
    struct incoming *alone = join != NULL ? join : shm;
    struct tcp_connections tcp = {.count = ddpi_card_sockets(&meeting->card, card)};
    if ((alone == NULL && !find_tcp(meeting, rank, link, &tcp)) ||
        own_attempt_wins(meeting, rank, link))
        return DDP_OK;
    struct ddpi_greeting *main = alone != NULL ? &alone->in : tcp.control;
    ddp_status status = join != NULL  ? accept_join(main, ret_edge, err)
                        : shm != NULL ? accept_shm(meeting, main, ret_edge, err)
                                      : accept_tcp(meeting, &tcp, ret_edge, err);
    if (*ret_edge != NULL)
        ddpi_control_seal(&(*ret_edge)->control, &main->seals);
    drop_complete(meeting, rank, link);
    if (*ret_edge == NULL)
        return status;
    ddpi_edge_name(*ret_edge, rank, card);
    ddpi_incoming_supersede(meeting, rank, link, false);
    return DDP_OK;
}

/* Edges of the ring are for neighbours alone. */
static bool is_neighbour(const struct ddpi_meeting *meeting, const struct ddpi_hello *hello)
{
    uint32_t prev = (meeting->rank + meeting->world_size - 1) % meeting->world_size;
    uint32_t next = (meeting->rank + 1) % meeting->world_size;
    return hello->link == DDPI_LINK_RING   ? hello->from == prev
           : hello->link == DDPI_LINK_BACK ? hello->from == next
                                           : true;
}

/* Whether the rank that says @hello may connect for that, in the way that both cards agree on.
 * *@ret_card is its card; zeros if it joins, as its card is not known yet. */
static bool hello_fits(struct ddpi_meeting *meeting, const struct ddpi_hello *hello,
                       struct ddpi_card *ret_card)
{
    if (hello->to != meeting->rank || hello->from == meeting->rank ||
        hello->link >= DDPI_LINK_LINKS || (hello->socket != 0 && hello->kind != DDPI_GREET_DATA))
        return false;
    if (hello->link == DDPI_LINK_JOIN) {
        *ret_card = (struct ddpi_card){0};
        return meeting->takes_joiners && hello->kind == DDPI_GREET_JOIN;
    }
    if (hello->from >= meeting->world_size || !is_neighbour(meeting, hello) ||
        !ddpi_card_get(ddpi_meeting_slot(meeting, hello->from), ret_card))
        return false;
    if (hello->link == DDPI_LINK_SURVIVOR)
        return meeting->takes_survivors && hello->kind == DDPI_GREET_JOIN;
    const bool *stands =
        ddpi_meeting_stands(meeting, hello->from, (enum ddpi_link)hello->link, false);
    if (stands == NULL || *stands)
        return false;
    if (ddpi_card_share_memory(&meeting->card, ret_card))
        return hello->kind == DDPI_GREET_SHM;
    return hello->kind == DDPI_GREET_CONTROL ||
           (hello->kind == DDPI_GREET_DATA &&
            hello->socket < ddpi_card_sockets(&meeting->card, ret_card));
}

static bool incoming_hello(struct ddpi_meeting *meeting, struct ddpi_greeting *in)
{
    struct ddpi_card card;
    if (!ddpi_greeting_take_hello(in) || !hello_fits(meeting, &in->hello, &card))
        return false;
    static const uint8_t unknown[DDPI_CARD_ID];
    bool knows_us = in->hello.link != DDPI_LINK_JOIN || meeting->join_listener < 0;
    const struct ddpi_greeting_terms terms = {&meeting->key, card.id,
                                              knows_us ? meeting->card.id : unknown};
    return ddpi_greeting_challenge(in, &terms);
}

static bool incoming_proof(struct ddpi_meeting *meeting, struct incoming *incoming)
{
    if (!ddpi_greeting_take_proof(&incoming->in))
        return false;
    incoming->authenticated = true;
    meeting->unauthenticated--;
    return true;
}

/* Check the message that has come from @incoming. */
static bool incoming_message(struct ddpi_meeting *meeting, struct incoming *incoming)
{
    switch (incoming->in.stage) {
    case DDPI_GREETING_HELLO:
        return incoming_hello(meeting, &incoming->in);
    case DDPI_GREETING_PROOF:
        return incoming_proof(meeting, incoming);
    case DDPI_GREETING_OFFER:
        incoming->in.stage = DDPI_GREETING_OVER;
        return ddpi_greeting_is_offer(&incoming->in, 2);
    default:
        return false;
    }
}

static ddp_status incoming_complete(struct ddpi_meeting *meeting, struct incoming *incoming,
                                    struct ddpi_arrival *arrival, struct ddp_error *err)
{
    const struct ddpi_hello *hello = &incoming->in.hello;
    uint32_t rank = hello->from;
    enum ddpi_link link = (enum ddpi_link)hello->link;
    struct ddpi_card card;
    epoll_ctl(meeting->events, EPOLL_CTL_DEL, incoming->in.fd, NULL);
    drop_earlier_attempts(meeting, hello);
    incoming->complete = true;
    /* Another connection may have become the edge since this one said hello. */
    if (!hello_fits(meeting, hello, &card)) {
        incoming_drop(meeting, incoming);
        return DDP_OK;
    }
    arrival->link = link;
    arrival->asked = false;
    return make_accepted_edge(meeting, rank, link, &card, &arrival->edge, err);
}

ddp_status ddpi_incoming_read(struct ddpi_meeting *meeting, void *data,
                              struct ddpi_arrival *arrival, struct ddp_error *err)
{
    struct incoming *incoming = data;
    enum ddpi_greeting_news news = ddpi_greeting_read(&incoming->in);
    if (news == DDPI_GREETING_MORE)
        return DDP_OK;
    if (news == DDPI_GREETING_STARVED) /* descriptors are taken from proven peers only */
        return ddpi_error_sys(err, EMFILE, "receive the descriptors of a rank that connects");
    if (news == DDPI_GREETING_ENDED || !incoming_message(meeting, incoming)) {
        incoming_drop(meeting, incoming);
        return DDP_OK;
    }
    return incoming->in.stage == DDPI_GREETING_OVER
               ? incoming_complete(meeting, incoming, arrival, err)
               : DDP_OK;
}
