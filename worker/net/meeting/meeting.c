/*
 * meeting.c - the meeting of a rank with others: its listeners, the table of cards, and the loop
 * over both sides (incoming.c accepts, attempt.c connects). Owns listeners, cards and the epoll
 * descriptor.
 */
#include "meeting.h"

#include "attempt.h"
#include "error.h"
#include "incoming.h"
#include "mem.h"
#include "token_file.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { EVENTS_A_TURN = 64 }; /* however many connections wait, the work of the rank goes on */

/* Random, as all users of the machine can see the name and could take it first. */
static void random_name(char name[DDPI_LOCAL_NAME])
{
    uint8_t random[16];
    ddpi_token_random(random, sizeof random);
    size_t used = (size_t)snprintf(name, DDPI_LOCAL_NAME, "ddprun-");
    for (size_t i = 0; i < sizeof random; i++)
        used += (size_t)snprintf(name + used, DDPI_LOCAL_NAME - used, "%02x", random[i]);
}

static bool listen_for_shm(struct ddpi_meeting *meeting)
{
    random_name(meeting->card.local);
    if (ddpi_listen_local(meeting->card.local, &meeting->local_listener, NULL) == DDP_OK)
        return true;
    meeting->card.local[0] = '\0';
    return false;
}

void ddpi_meeting_clear(struct ddpi_meeting *meeting)
{
    *meeting = (struct ddpi_meeting){
        .events = -1, .tcp_listener = -1, .local_listener = -1, .join_listener = -1};
    ddpi_list_init(&meeting->incoming);
    ddpi_attempt_clear(&meeting->attempt);
}

static ddp_status open_listeners(struct ddpi_meeting *meeting,
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
        meeting->card.shm = listen_for_shm(meeting);
    return status;
}

ddp_status ddpi_meeting_open(struct ddpi_meeting *meeting, int bell,
                             const struct ddpi_rank_key *key,
                             const struct sockaddr_storage *address, bool use_shm,
                             struct ddp_error *err)
{
    ddpi_meeting_clear(meeting);
    meeting->key = *key;
    meeting->card.keyed = key->given;
    meeting->bell = bell;
    meeting->events = epoll_create1(EPOLL_CLOEXEC);
    if (meeting->events < 0)
        return ddpi_error_sys(err, errno, "make an epoll descriptor");
    ddp_status status = ddpi_card_identify(&meeting->card, err);
    if (status == DDP_OK)
        status = open_listeners(meeting, address, use_shm, err);
    return status == DDP_OK ? ddpi_incoming_listen(meeting, err) : status;
}

ddp_status ddpi_meeting_place(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                              struct ddp_error *err)
{
    meeting->rank = rank;
    meeting->world_size = world_size;
    meeting->card.world_size = world_size;
    meeting->cards = ddpi_calloc(world_size, DDPI_CARD_SLOT);
    meeting->met = ddpi_calloc(world_size, sizeof *meeting->met);
    if (meeting->cards == NULL || meeting->met == NULL)
        return ddpi_error_nomem(err, (unsigned long long)world_size * DDPI_CARD_SLOT);
    return ddpi_card_put(&meeting->card, ddpi_meeting_slot(meeting, rank))
               ? DDP_OK
               : ddpi_error_nomem(err, DDPI_CARD_SLOT);
}

ddp_status ddpi_meeting_init(struct ddpi_meeting *meeting, uint32_t rank, uint32_t world_size,
                             int bell, const struct ddpi_rank_key *key,
                             const struct ddpi_meeting_options *options, struct ddp_error *err)
{
    struct ddpi_shm_segment *segment = NULL;
    bool has_shm = options->use_shm && ddpi_shm_create(&segment, NULL) == DDP_OK;
    ddp_status status = ddpi_meeting_open(meeting, bell, key, options->address, has_shm, err);
    if (meeting->card.shm)
        meeting->segment = segment;
    else
        ddpi_shm_destroy(segment);
    if (options->host_id != NULL)
        ddpi_card_set_host(&meeting->card, options->host_id);
    if (options->sockets > 0)
        meeting->card.sockets = options->sockets;
    return status == DDP_OK ? ddpi_meeting_place(meeting, rank, world_size, err) : status;
}

void ddpi_meeting_finish(struct ddpi_meeting *meeting)
{
    ddpi_incoming_drop_all(meeting);
    ddpi_attempt_drop(meeting);
    ddpi_close_fd(&meeting->tcp_listener);
    ddpi_close_fd(&meeting->local_listener);
    ddpi_close_fd(&meeting->join_listener);
    ddpi_close_fd(&meeting->events);
    ddpi_shm_destroy(meeting->segment);
    ddpi_free(meeting->cards);
    ddpi_free(meeting->met);
    ddpi_wipe(&meeting->key, sizeof meeting->key);
    ddpi_meeting_clear(meeting);
}

ddp_status ddpi_meeting_add_join_listener(struct ddpi_meeting *meeting, int fd,
                                          struct ddp_error *err)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &meeting->join_listener};
    meeting->join_listener = fd;
    if (epoll_ctl(meeting->events, EPOLL_CTL_ADD, fd, &event) != 0)
        return ddpi_error_sys(err, errno, "watch a socket");
    return DDP_OK;
}

void ddpi_meeting_close_join_listener(struct ddpi_meeting *meeting)
{
    if (meeting->join_listener >= 0)
        epoll_ctl(meeting->events, EPOLL_CTL_DEL, meeting->join_listener, NULL);
    ddpi_close_fd(&meeting->join_listener);
}

uint64_t ddpi_meeting_wake_ms(const struct ddpi_meeting *meeting)
{
    uint64_t wake_ms = meeting->paused_until_ms != 0 ? meeting->paused_until_ms : UINT64_MAX;
    if (meeting->attempt.stage == DDPI_ATTEMPT_QUEUE && meeting->attempt.retry_ms < wake_ms)
        wake_ms = meeting->attempt.retry_ms;
    return wake_ms;
}

ddp_status ddpi_meeting_ask(struct ddpi_meeting *meeting, uint32_t peer, enum ddpi_link link,
                            struct ddp_error *err)
{
    struct ddpi_attempt *attempt = &meeting->attempt;
    ddpi_attempt_clear(attempt);
    if (!ddpi_card_get(ddpi_meeting_slot(meeting, peer), &attempt->card))
        return ddpi_card_refuse_slot(ddpi_meeting_slot(meeting, peer), peer, meeting->rank, err);
    attempt->local = ddpi_card_share_memory(&meeting->card, &attempt->card);
    if (attempt->local && !ddpi_link_is_bare(link)) {
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

static ddp_status push_attempt(struct ddpi_meeting *meeting, struct ddpi_arrival *arrival,
                               struct ddp_error *err)
{
    arrival->link = meeting->attempt.link;
    arrival->asked = true;
    ddp_status status = ddpi_attempt_push(meeting, &arrival->edge, err);
    if (arrival->edge != NULL)
        ddpi_incoming_supersede(meeting, arrival->edge->peer, arrival->link, true);
    return status;
}

ddp_status ddpi_meeting_advance(struct ddpi_meeting *meeting, struct ddpi_arrival *ret_arrival,
                                struct ddp_error *err)
{
    struct ddpi_arrival arrival = {0};
    ddp_status status = DDP_OK;
    struct epoll_event event;
    ddpi_incoming_resume(meeting);
    for (int i = 0; i < EVENTS_A_TURN && status == DDP_OK && arrival.edge == NULL &&
                    epoll_wait(meeting->events, &event, 1, 0) == 1;
         i++) {
        if (event.data.ptr == &meeting->tcp_listener)
            status = ddpi_incoming_accept(meeting, meeting->tcp_listener, err);
        else if (event.data.ptr == &meeting->local_listener)
            status = ddpi_incoming_accept(meeting, meeting->local_listener, err);
        else if (event.data.ptr == &meeting->join_listener)
            status = ddpi_incoming_accept(meeting, meeting->join_listener, err);
        else if (event.data.ptr == &meeting->attempt)
            status = push_attempt(meeting, &arrival, err);
        else
            status = ddpi_incoming_read(meeting, event.data.ptr, &arrival, err);
    }
    if (status == DDP_OK && arrival.edge == NULL && meeting->attempt.stage == DDPI_ATTEMPT_QUEUE)
        status = push_attempt(meeting, &arrival, err);
    if (status != DDP_OK)
        ddpi_attempt_drop(meeting);
    else
        *ret_arrival = arrival;
    return status;
}
