/*
 * handshake.c - where a rank meets others: its listeners, and who comes in through them. Owns them,
 * the table of cards, and every connection until it is part of an edge.
 *
 * On a Unix socket the kernel says whose process the visitor is: another user's is closed before
 * anything is read. Who has not proven itself has one of a few places, and of them the one that has
 * been there longest gives way to a newcomer. When there is no descriptor for a newcomer, and
 * nobody can give way, the listeners rest for a while.
 */
#include "handshake.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "stranger.h"
#include "token_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    EVENTS_A_TURN = 64, /* however many want in, the work of the rank goes on */
    DEAF_MS = 100,
};

/* Who has connected. Complete ones stay as long as they are half of an edge, or as our own attempt
 * to reach the same rank is under way. */
struct visitor {
    struct ddpi_list node; /* ddpi_meeting::visitors, the oldest first */
    struct ddpi_greeting in;
    bool proven;
    bool complete; /* and all that it has to bring is here */
};

static struct visitor *visitor_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct visitor, node);
}

/* ---- life ---- */

/* All users of the machine can see it. */
static void random_name(char name[DDPI_LOCAL_NAME])
{
    uint8_t random[16];
    ddpi_token_random(random, sizeof random);
    size_t used = (size_t)snprintf(name, DDPI_LOCAL_NAME, "ddprun-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(name + used, DDPI_LOCAL_NAME - used, "%02x", random[i]);
}

/* Everything that shared memory needs is tried here, before the card promises it. */
static bool prepare_shm(struct ddpi_meeting *meeting)
{
    random_name(meeting->card.local);
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
                             int bell, const struct ddpi_rank_key *key,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err)
{
    ddpi_meeting_clear(meeting);
    meeting->key = *key;
    meeting->card.keyed = key->given;
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
    ddpi_greeting_drop(&visitor->in);
    ddpi_list_remove(&visitor->node);
    meeting->stranger_count -= !visitor->proven;
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
    ddpi_wipe(&meeting->key, sizeof meeting->key);
    ddpi_meeting_clear(meeting);
}

/* ---- visitors ---- */

static void drop_rank(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    ddpi_list_for_each_safe (at, &meeting->visitors)
        if (visitor_of(at)->complete && ddpi_greeting_is(&visitor_of(at)->in, rank, link))
            visitor_drop(meeting, visitor_of(at));
}

/* The edge to @rank is there: whatever else either has begun comes too late. */
static void forget(struct ddpi_meeting *meeting, uint32_t rank)
{
    if (meeting->attempt.stage != DDPI_ATTEMPT_NONE && meeting->attempt.edge.peer == rank)
        ddpi_attempt_drop(meeting);
    drop_rank(meeting, rank, DDPI_LINK_PEER);
    memset(ddpi_meeting_slot(meeting, rank), 0, DDPI_CARD_SLOT);
}

/* false: there is none. */
static bool drop_oldest_stranger(struct ddpi_meeting *meeting)
{
    ddpi_list_for_each_safe (at, &meeting->visitors)
        if (!visitor_of(at)->proven) {
            visitor_drop(meeting, visitor_of(at));
            return true;
        }
    return false;
}

static void listen_again(struct ddpi_meeting *meeting, uint32_t events)
{
    int *const listeners[] = {&meeting->tcp_listener, &meeting->local_listener};
    for (size_t i = 0; i < sizeof listeners / sizeof *listeners; i++) {
        struct epoll_event event = {.events = events, .data.ptr = listeners[i]};
        if (*listeners[i] >= 0)
            epoll_ctl(meeting->events, EPOLL_CTL_MOD, *listeners[i], &event);
    }
}

/* There is no descriptor, or no memory, for who wants in. */
static ddp_status make_do(struct ddpi_meeting *meeting, int error, struct ddp_error *err)
{
    if (drop_oldest_stranger(meeting))
        return DDP_OK;
    if (meeting->needs_all)
        return ddpi_error_sys(err, error, "let in a rank that joins");
    meeting->deaf_until_ms = ddpi_now_ms(&ddpi_clock_monotonic) + DEAF_MS;
    listen_again(meeting, 0);
    return DDP_OK;
}

static void hear_again(struct ddpi_meeting *meeting)
{
    if (meeting->deaf_until_ms == 0 || meeting->deaf_until_ms > ddpi_now_ms(&ddpi_clock_monotonic))
        return;
    meeting->deaf_until_ms = 0;
    listen_again(meeting, EPOLLIN);
}

uint64_t ddpi_meeting_wake_ms(const struct ddpi_meeting *meeting)
{
    uint64_t wake_ms = meeting->deaf_until_ms != 0 ? meeting->deaf_until_ms : UINT64_MAX;
    if (meeting->attempt.stage == DDPI_ATTEMPT_QUEUE && meeting->attempt.retry_ms < wake_ms)
        wake_ms = meeting->attempt.retry_ms;
    return wake_ms;
}

static bool out_of_room(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

static ddp_status take_in(struct ddpi_meeting *meeting, int listener, struct ddp_error *err)
{
    bool local = listener == meeting->local_listener;
    int fd = ddpi_accept(listener);
    if (fd < 0) /* who wanted in may have changed his mind */
        return out_of_room(errno) ? make_do(meeting, errno, err) : DDP_OK;
    if (local && !ddpi_peer_is_ours(fd)) {
        ddpi_close_stranger(fd);
        return DDP_OK;
    }
    if (local)
        ddpi_pass_rights(fd, true);
    if (meeting->stranger_count >= DDPI_STRANGERS_MAX)
        drop_oldest_stranger(meeting);
    struct visitor *visitor = ddpi_calloc(1, sizeof *visitor);
    if (visitor == NULL || watch(meeting, fd, visitor, NULL) != DDP_OK) {
        ddpi_free(visitor);
        close(fd);
        return make_do(meeting, ENOMEM, err);
    }
    ddpi_greeting_clear(&visitor->in);
    visitor->in.fd = fd;
    visitor->in.local = local;
    ddpi_list_append(&meeting->visitors, &visitor->node);
    meeting->visitor_count++;
    meeting->stranger_count++;
    return DDP_OK;
}

static struct visitor *find(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                            enum ddpi_greeting_kind kind)
{
    ddpi_list_for_each (at, &meeting->visitors) {
        struct visitor *visitor = visitor_of(at);
        if (visitor->complete && ddpi_greeting_is(&visitor->in, rank, link) &&
            visitor->in.hello.kind == (uint32_t)kind)
            return visitor;
    }
    return NULL;
}

/* ---- accepting ---- */

/* If the answer cannot be sent, the peer is gone; that is an error only for a caller that needs
 * this edge, and is found there. */

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

static ddp_status accept_tcp(const struct ddpi_meeting *meeting, struct ddpi_greeting *control,
                             struct ddpi_greeting *data, struct ddpi_edge **ret_edge,
                             struct ddp_error *err)
{
    ddpi_tune_tcp(control->fd);
    ddpi_tune_tcp(data->fd);
    if (!ddpi_greeting_answer(control, NULL, 0))
        return DDP_OK;
    struct ddpi_edge *edge = ddpi_edge_tcp(data->fd, control->fd, err);
    data->fd = -1;
    control->fd = -1;
    if (edge == NULL)
        return DDP_E_NOMEM;
    ddp_status status = DDP_OK;
    if (meeting->tls != NULL)
        status = ddpi_edge_tcp_hide(edge, meeting->tls, &data->seals, false, err);
    if (status == DDP_OK)
        *ret_edge = edge;
    else
        ddpi_edge_destroy(edge);
    return status;
}

/* Our own attempt to reach @rank counts, not his to reach us. */
static bool ours_counts(const struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link)
{
    const struct ddpi_attempt *attempt = &meeting->attempt;
    return link == DDPI_LINK_PEER && attempt->stage != DDPI_ATTEMPT_NONE &&
           attempt->stage != DDPI_ATTEMPT_GONE && attempt->link == DDPI_LINK_PEER &&
           attempt->edge.peer == rank && meeting->rank < rank;
}

/* Of two attempts to become an edge that began on both sides, or one after the other, the parts do
 * not fit together. */
static void drop_others(struct ddpi_meeting *meeting, const struct ddpi_hello *hello)
{
    ddpi_list_for_each_safe (at, &meeting->visitors) {
        const struct visitor *other = visitor_of(at);
        if (other->complete &&
            ddpi_greeting_is(&other->in, hello->from, (enum ddpi_link)hello->link) &&
            (other->in.hello.attempt != hello->attempt || other->in.hello.kind == hello->kind))
            visitor_drop(meeting, visitor_of(at));
    }
}

/* All that @rank has to bring for an edge may be here. */
static ddp_status receive(struct ddpi_meeting *meeting, uint32_t rank, enum ddpi_link link,
                          const struct ddpi_card *card, struct ddpi_edge **ret_edge,
                          struct ddp_error *err)
{
    struct visitor *shm = find(meeting, rank, link, DDPI_GREET_SHM);
    struct visitor *control = find(meeting, rank, link, DDPI_GREET_CONTROL);
    struct visitor *data = find(meeting, rank, link, DDPI_GREET_DATA);
    struct visitor *join = find(meeting, rank, link, DDPI_GREET_JOIN);
    struct visitor *alone = join != NULL ? join : shm;
    if ((alone == NULL && (control == NULL || data == NULL)) || ours_counts(meeting, rank, link))
        return DDP_OK;
    struct ddpi_greeting *main = alone != NULL ? &alone->in : &control->in;
    ddp_status status = join != NULL  ? accept_join(main, ret_edge, err)
                        : shm != NULL ? accept_shm(meeting, main, ret_edge, err)
                                      : accept_tcp(meeting, main, &data->in, ret_edge, err);
    if (*ret_edge != NULL)
        ddpi_control_seal(&(*ret_edge)->control, &main->seals);
    drop_rank(meeting, rank, link);
    if (*ret_edge == NULL)
        return status;
    ddpi_edge_name(*ret_edge, rank, card);
    if (link == DDPI_LINK_RING)
        meeting->ring_stands = true;
    else if (link == DDPI_LINK_PEER)
        forget(meeting, rank);
    return DDP_OK;
}

/* Of the rank that may connect for this, in the way that both cards agree on? Its card, of which
 * nothing is known yet if it joins. */
static bool makes_sense(const struct ddpi_meeting *meeting, const struct ddpi_hello *hello,
                        struct ddpi_card *ret_card)
{
    uint32_t prev = (meeting->rank + meeting->world_size - 1) % meeting->world_size;
    if (hello->to != meeting->rank || hello->from == meeting->rank || hello->link > DDPI_LINK_JOIN)
        return false;
    if (hello->link == DDPI_LINK_JOIN) {
        *ret_card = (struct ddpi_card){0};
        return meeting->gathers && hello->kind == DDPI_GREET_JOIN;
    }
    if (hello->link == DDPI_LINK_RING && (hello->from != prev || meeting->ring_stands))
        return false;
    if (hello->from >= meeting->world_size ||
        !ddpi_card_get(ddpi_meeting_slot(meeting, hello->from), ret_card))
        return false;
    if (ddpi_card_share_memory(&meeting->card, ret_card))
        return hello->kind == DDPI_GREET_SHM;
    return hello->kind == DDPI_GREET_CONTROL || hello->kind == DDPI_GREET_DATA;
}

static bool take_hello(struct ddpi_meeting *meeting, struct ddpi_greeting *in)
{
    struct ddpi_card card;
    if (!ddpi_greeting_take_hello(in) || !makes_sense(meeting, &in->hello, &card))
        return false;
    const struct ddpi_greeting_terms terms = {&meeting->key, card.id, meeting->card.id};
    return ddpi_greeting_challenge(in, &terms);
}

static bool take_proof(struct ddpi_meeting *meeting, struct visitor *visitor)
{
    if (!ddpi_greeting_take_proof(&visitor->in))
        return false;
    visitor->proven = true;
    meeting->stranger_count--;
    return true;
}

/* One message of @visitor is there. false: it is not what it has to be. */
static bool take_message(struct ddpi_meeting *meeting, struct visitor *visitor)
{
    switch (visitor->in.stage) {
    case DDPI_GREETING_HELLO:
        return take_hello(meeting, &visitor->in);
    case DDPI_GREETING_PROOF:
        return take_proof(meeting, visitor);
    case DDPI_GREETING_OFFER:
        visitor->in.stage = DDPI_GREETING_OVER;
        return ddpi_greeting_is_offer(&visitor->in, 2);
    default:
        return false;
    }
}

/* A visitor has brought all. */
static ddp_status complete(struct ddpi_meeting *meeting, struct visitor *visitor,
                           struct ddpi_arrival *arrival, struct ddp_error *err)
{
    const struct ddpi_hello *hello = &visitor->in.hello;
    uint32_t rank = hello->from;
    enum ddpi_link link = (enum ddpi_link)hello->link;
    struct ddpi_card card;
    epoll_ctl(meeting->events, EPOLL_CTL_DEL, visitor->in.fd, NULL);
    drop_others(meeting, hello);
    visitor->complete = true;
    /* Since it has said hello, another connection may have become the edge. */
    if (!makes_sense(meeting, hello, &card)) {
        visitor_drop(meeting, visitor);
        return DDP_OK;
    }
    arrival->link = link;
    arrival->asked = false;
    return receive(meeting, rank, link, &card, &arrival->edge, err);
}

/* A visitor has something to say. */
static ddp_status listen_to(struct ddpi_meeting *meeting, struct visitor *visitor,
                            struct ddpi_arrival *arrival, struct ddp_error *err)
{
    enum ddpi_greeting_news news = ddpi_greeting_read(&visitor->in);
    if (news == DDPI_GREETING_MORE)
        return DDP_OK;
    if (news == DDPI_GREETING_STARVED) /* only of who has proven itself is any taken */
        return ddpi_error_sys(err, EMFILE, "take what a rank that connects hands over");
    if (news == DDPI_GREETING_ENDED || !take_message(meeting, visitor)) {
        visitor_drop(meeting, visitor);
        return DDP_OK;
    }
    return visitor->in.stage == DDPI_GREETING_OVER ? complete(meeting, visitor, arrival, err)
                                                   : DDP_OK;
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
    attempt->local = ddpi_card_share_memory(&meeting->card, &attempt->card);
    if (attempt->local && link != DDPI_LINK_JOIN) {
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
    hear_again(meeting);
    for (int i = 0; i < EVENTS_A_TURN && status == DDP_OK && arrival.edge == NULL &&
                    epoll_wait(meeting->events, &event, 1, 0) == 1;
         i++) {
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
