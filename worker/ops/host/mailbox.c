/*
 * mailbox.c - moves messages over the edges between pairs of ranks. Owns the mailbox of a
 * communicator: a lane for each rank with which it has exchanged messages, and the memory of
 * messages that came before their receive. Which receive takes which message is decided in
 * matching.c.
 */
#include "mailbox.h"

#include "clock.h"
#include "mem.h"
#include "wait.h"

#include <string.h>

enum { PIECE = 1024 * 1024 }; /* bytes moved before looking at anything else */

/* A message that has begun to arrive, and that no receive has taken. */
struct arrival {
    struct ddpi_match match;
    struct ddpi_call call;
    uint32_t peer;
    uint8_t *bytes; /* NULL: they are on the edge still */
    size_t len;
    size_t done;
};

/* What goes over the edge to one rank. */
struct lane {
    uint32_t peer;
    struct ddpi_list queue; /* mails to send; the first one may have left in part */
    bool out_stuck;         /* the rest of a message will not follow: the communicator has failed */
    bool in_stuck;

    /* What arrives: a header; then the bytes, for one of both. */
    uint8_t header[DDPI_CALL_WIRE_SIZE];
    size_t header_done;
    struct ddpi_mail *receive;
    struct arrival *arrival;
};

struct ddpi_mailbox {
    struct ddpi_matching matching;
    struct lane **lanes; /* by rank; NULL: none yet */
    uint32_t count;
};

/* ---- life ---- */

static ddp_status fail_nomem(struct ddp_comm *comm, unsigned long long bytes, uint32_t peer)
{
    return ddpi_comm_fail(comm, NULL, DDP_E_NOMEM,
                          "rank %u: no memory for %llu bytes of messages of rank %u", comm->rank,
                          bytes, peer);
}

/* The mailbox, made when the first message is; NULL: the communicator has failed. */
static struct ddpi_mailbox *mailbox_of(struct ddp_comm *comm)
{
    if (comm->mailbox != NULL)
        return comm->mailbox;
    struct ddpi_mailbox *box = ddpi_calloc(1, sizeof *box);
    if (box != NULL)
        box->lanes = ddpi_calloc(comm->world_size, sizeof *box->lanes);
    if (box == NULL || box->lanes == NULL) {
        ddpi_free(box);
        (void)fail_nomem(comm, comm->world_size * sizeof *box->lanes, comm->rank);
        return NULL;
    }
    ddpi_matching_init(&box->matching);
    box->count = comm->world_size;
    comm->mailbox = box;
    return box;
}

/* NULL: the communicator has failed. */
static struct lane *lane_to(struct ddp_comm *comm, uint32_t peer)
{
    struct ddpi_mailbox *box = mailbox_of(comm);
    if (box == NULL || box->lanes[peer] != NULL)
        return box != NULL ? box->lanes[peer] : NULL;
    struct lane *lane = ddpi_calloc(1, sizeof *lane);
    if (lane == NULL) {
        (void)fail_nomem(comm, sizeof *lane, peer);
        return NULL;
    }
    lane->peer = peer;
    ddpi_list_init(&lane->queue);
    return box->lanes[peer] = lane;
}

static struct arrival *arrival_of(struct ddpi_match *match)
{
    return ddpi_container_of(match, struct arrival, match);
}

static struct ddpi_mail *mail_of(struct ddpi_match *match)
{
    return ddpi_container_of(match, struct ddpi_mail, match);
}

static void arrival_free(struct arrival *arrival)
{
    ddpi_list_remove(&arrival->match.link);
    ddpi_free(arrival->bytes);
    ddpi_free(arrival);
}

void ddpi_mailbox_destroy(struct ddp_comm *comm)
{
    struct ddpi_mailbox *box = comm->mailbox;
    if (box == NULL)
        return;
    ddpi_list_for_each_safe (node, &box->matching.messages)
        arrival_free(arrival_of(ddpi_container_of(node, struct ddpi_match, link)));
    for (uint32_t i = 0; i < box->count; i++)
        ddpi_free(box->lanes[i]);
    ddpi_free(box->lanes);
    ddpi_free(box);
    comm->mailbox = NULL;
}

/* ---- a receive and its message ---- */

/* What the sender has called if it fits to what @mail receives. The numbers of messages need not
 * agree: they are counted on each side, and tags overtake. */
static struct ddpi_call expected_call(const struct ddp_comm *comm, const struct ddpi_mail *mail,
                                      const struct ddpi_call *theirs)
{
    struct ddpi_call expected = mail->call;
    if (!ddpi_call_shape(&expected)->message)
        return expected;
    expected.operation = DDPI_SEND;
    expected.root = comm->rank;
    expected.seq = theirs->seq;
    return expected;
}

/* Both ranks called the same, with parts of different sizes. */
static ddp_status fail_lengths(struct ddp_comm *comm, const struct ddpi_mail *mail,
                               const struct ddpi_call *theirs, uint32_t peer)
{
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(&mail->call, call);
    return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH,
                          "%s: rank %u expects %llu bytes of rank %u, which sends %llu", call,
                          comm->rank, (unsigned long long)mail->call.bytes, peer,
                          (unsigned long long)theirs->bytes);
}

/* @mail takes the message that rank @peer has sent with @theirs. */
static ddp_status check_message(struct ddp_comm *comm, const struct ddpi_mail *mail,
                                const struct ddpi_call *theirs, uint32_t peer)
{
    struct ddpi_call expected = expected_call(comm, mail, theirs);
    if (ddpi_call_same(&expected, theirs))
        return DDP_OK;
    expected.bytes = theirs->bytes;
    if (ddpi_call_same(&expected, theirs))
        return fail_lengths(comm, mail, theirs, peer);
    char our_text[DDPI_CALL_TEXT], their_text[DDPI_CALL_TEXT];
    const struct ddpi_edge *edge = ddpi_edges_peer(&comm->edges, peer);
    ddpi_call_describe(&mail->call, our_text);
    ddpi_call_describe(theirs, their_text);
    if (edge == NULL)
        return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH, "rank %u called %s, and also %s",
                              comm->rank, our_text, their_text);
    return ddpi_comm_fail(comm, NULL, DDP_E_MISMATCH, "rank %u called %s, but %s called %s",
                          comm->rank, our_text, edge->peer_name, their_text);
}

static void complete_if_done(struct ddpi_mail *mail)
{
    if (mail->done == mail->len)
        mail->state = DDPI_MAIL_COMPLETE;
}

/* Give what has come of @arrival to @mail; the rest follows on the edge. Frees @arrival. */
static ddp_status take_arrival(struct ddp_comm *comm, struct ddpi_mail *mail,
                               struct arrival *arrival)
{
    struct lane *lane = comm->mailbox->lanes[arrival->peer];
    ddp_status status = check_message(comm, mail, &arrival->call, arrival->peer);
    if (status == DDP_OK) {
        mail->peer = arrival->peer;
        mail->state = DDPI_MAIL_ARRIVING;
        mail->done = arrival->done;
        if (arrival->done > 0)
            memcpy(mail->bytes, arrival->bytes, arrival->done);
        if (lane != NULL && lane->arrival == arrival)
            lane->receive = mail;
        else
            complete_if_done(mail);
    }
    if (lane != NULL && lane->arrival == arrival) {
        lane->arrival = NULL;
        lane->in_stuck = status != DDP_OK;
    }
    arrival_free(arrival);
    return status;
}

/* Let a message wait for its receive. NULL: the communicator has failed. */
static struct arrival *add_arrival(struct ddp_comm *comm, const struct ddpi_call *call,
                                   uint32_t peer)
{
    struct arrival *arrival = NULL;
    if (call->bytes <= PTRDIFF_MAX)
        arrival = ddpi_calloc(1, sizeof *arrival);
    if (arrival == NULL) {
        (void)fail_nomem(comm, call->bytes, peer);
        return NULL;
    }
    *arrival = (struct arrival){.call = *call, .peer = peer, .len = call->bytes};
    arrival->match.envelope = ddpi_envelope_of(call, peer);
    ddpi_matching_add_message(&comm->mailbox->matching, &arrival->match);
    return arrival;
}

/* Get memory for the bytes of @arrival, unless it has some. */
static ddp_status arrival_get_memory(struct ddp_comm *comm, struct arrival *arrival)
{
    if (arrival->bytes != NULL || arrival->len == 0)
        return DDP_OK;
    arrival->bytes = ddpi_calloc(1, arrival->len);
    return arrival->bytes != NULL ? DDP_OK : fail_nomem(comm, arrival->len, arrival->peer);
}

/* ---- posting ---- */

static void copy_bytes(uint8_t *to, const struct ddpi_mail *from)
{
    if (from->len > 0)
        memcpy(to, from->bytes, from->len);
}

/* To this rank itself, without a receive that waits: keep it, as no edge can. */
static ddp_status keep_for_self(struct ddp_comm *comm, const struct ddpi_mail *mail)
{
    struct arrival *arrival = add_arrival(comm, &mail->call, comm->rank);
    ddp_status status = arrival != NULL ? arrival_get_memory(comm, arrival) : comm->failed;
    if (status != DDP_OK)
        return status;
    copy_bytes(arrival->bytes, mail);
    arrival->done = mail->len;
    return DDP_OK;
}

static ddp_status post_to_self(struct ddp_comm *comm, struct ddpi_mail *mail)
{
    struct ddpi_match *match =
        ddpi_matching_take_receive(&comm->mailbox->matching, &mail->match.envelope);
    mail->done = mail->len;
    mail->state = DDPI_MAIL_COMPLETE;
    if (match == NULL)
        return keep_for_self(comm, mail);
    struct ddpi_mail *receive = mail_of(match);
    ddp_status status = check_message(comm, receive, &mail->call, comm->rank);
    if (status != DDP_OK)
        return status;
    copy_bytes(receive->bytes, mail);
    receive->peer = comm->rank;
    receive->done = receive->len;
    receive->state = DDPI_MAIL_COMPLETE;
    return DDP_OK;
}

static ddp_status post_send(struct ddp_comm *comm, struct ddpi_mail *mail)
{
    if (mail->peer == comm->rank)
        return post_to_self(comm, mail);
    struct lane *lane = lane_to(comm, mail->peer);
    if (lane == NULL)
        return comm->failed;
    ddpi_call_encode(&mail->call, mail->header);
    mail->state = DDPI_MAIL_QUEUED;
    ddpi_list_append(&lane->queue, &mail->match.link);
    return DDP_OK;
}

ddp_status ddpi_mail_post(struct ddp_comm *comm, struct ddpi_mail *mail)
{
    struct ddpi_mailbox *box = mailbox_of(comm);
    ddpi_list_init(&mail->match.link);
    mail->match.envelope = ddpi_envelope_of(&mail->call, mail->peer);
    if (box == NULL)
        return comm->failed;
    if (mail->sends)
        return post_send(comm, mail);
    struct ddpi_match *match = ddpi_matching_take_message(&box->matching, &mail->match.envelope);
    if (match != NULL)
        return take_arrival(comm, mail, arrival_of(match));
    mail->state = DDPI_MAIL_WAITING;
    ddpi_matching_add_receive(&box->matching, &mail->match);
    return DDP_OK;
}

void ddpi_mail_drop(struct ddp_comm *comm, struct ddpi_mail *mail)
{
    if (mail->state == DDPI_MAIL_QUEUED && mail->header_done > 0)
        comm->mailbox->lanes[mail->peer]->out_stuck = true;
    if (mail->state == DDPI_MAIL_QUEUED || mail->state == DDPI_MAIL_WAITING)
        ddpi_list_remove(&mail->match.link);
    if (mail->state == DDPI_MAIL_ARRIVING) {
        struct lane *lane = comm->mailbox->lanes[mail->peer];
        lane->receive = NULL;
        lane->in_stuck = true;
    }
    mail->state = DDPI_MAIL_NONE;
}

/* ---- moving ---- */

static size_t at_most_a_piece(size_t len)
{
    return len < PIECE ? len : PIECE;
}

/* Add @len bytes to *@done. */
static void note_move(struct ddpi_edge *edge, size_t len, size_t *done, bool *moved)
{
    if (len == 0)
        return;
    *done += len;
    *moved = true;
    edge->asked_ms = 0;
}

static size_t send_some(struct ddpi_edge *edge, const uint8_t *bytes, size_t len)
{
    return len > 0 ? edge->ops->send(edge, bytes, at_most_a_piece(len)) : 0;
}

static size_t receive_some(struct ddpi_edge *edge, uint8_t *bytes, size_t len)
{
    return len > 0 ? edge->ops->recv(edge, bytes, at_most_a_piece(len)) : 0;
}

/* Whether the first message of the queue has left. */
static bool send_first(struct lane *lane, struct ddpi_edge *edge, bool *moved)
{
    struct ddpi_mail *mail = mail_of(ddpi_container_of(lane->queue.next, struct ddpi_match, link));
    size_t len = sizeof mail->header - mail->header_done;
    note_move(edge, send_some(edge, mail->header + mail->header_done, len), &mail->header_done,
              moved);
    if (mail->header_done < sizeof mail->header)
        return false;
    len = mail->len - mail->done;
    note_move(edge, send_some(edge, mail->bytes + mail->done, len), &mail->done, moved);
    if (mail->done < mail->len)
        return false;
    ddpi_list_remove(&mail->match.link);
    mail->state = DDPI_MAIL_COMPLETE;
    return true;
}

static void lane_send(struct lane *lane, struct ddpi_edge *edge, bool *moved)
{
    while (!lane->out_stuck && !ddpi_list_empty(&lane->queue) && send_first(lane, edge, moved))
        ;
}

/* The header of a message is complete. Until it has a place to go to, no bytes can be taken. */
static ddp_status begin_message(struct ddp_comm *comm, struct lane *lane,
                                const struct ddpi_edge *edge)
{
    struct ddpi_call theirs;
    lane->in_stuck = true;
    if (!ddpi_call_decode(lane->header, &theirs) || theirs.message_class == DDPI_NOT_A_MESSAGE)
        return ddpi_comm_fail(comm, NULL, DDP_E_PROTOCOL, "%s uses another version of libddpcomm",
                              edge->peer_name);
    struct ddpi_envelope envelope = ddpi_envelope_of(&theirs, lane->peer);
    struct ddpi_match *match = ddpi_matching_take_receive(&comm->mailbox->matching, &envelope);
    if (match == NULL) {
        lane->arrival = add_arrival(comm, &theirs, lane->peer);
        lane->in_stuck = lane->arrival == NULL;
        return lane->in_stuck ? comm->failed : DDP_OK;
    }
    lane->receive = mail_of(match);
    lane->receive->state = DDPI_MAIL_ARRIVING;
    lane->receive->peer = lane->peer;
    ddp_status status = check_message(comm, lane->receive, &theirs, lane->peer);
    lane->in_stuck = status != DDP_OK;
    return status;
}

/* The bytes of a message are complete. */
static void end_message(struct lane *lane)
{
    if (lane->receive != NULL)
        lane->receive->state = DDPI_MAIL_COMPLETE;
    lane->receive = NULL;
    lane->arrival = NULL;
    lane->header_done = 0;
}

/* Receive at most one message. */
static ddp_status lane_receive(struct ddp_comm *comm, struct lane *lane, struct ddpi_edge *edge,
                               bool *moved)
{
    ddp_status status = DDP_OK;
    if (lane->in_stuck)
        return DDP_OK;
    if (lane->header_done < sizeof lane->header) {
        size_t len = sizeof lane->header - lane->header_done;
        note_move(edge, receive_some(edge, lane->header + lane->header_done, len),
                  &lane->header_done, moved);
        if (lane->header_done < sizeof lane->header)
            return DDP_OK;
        status = begin_message(comm, lane, edge);
    }
    if (status == DDP_OK && lane->arrival != NULL)
        status = arrival_get_memory(comm, lane->arrival);
    if (status != DDP_OK)
        return status;
    uint8_t *bytes = lane->receive != NULL ? lane->receive->bytes : lane->arrival->bytes;
    size_t *done = lane->receive != NULL ? &lane->receive->done : &lane->arrival->done;
    size_t len = lane->receive != NULL ? lane->receive->len : lane->arrival->len;
    note_move(edge, receive_some(edge, len > 0 ? bytes + *done : NULL, len - *done), done, moved);
    if (*done == len)
        end_message(lane);
    return DDP_OK;
}

static ddp_status move_to_or_from(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                  struct ddpi_mail *mail, bool *moved)
{
    struct lane *lane = lane_to(comm, mail->peer);
    struct ddpi_edge *edge;
    if (lane == NULL)
        return comm->failed;
    ddp_status status = ddpi_seek_edge(comm, wait, mail->peer, &edge);
    if (status != DDP_OK || edge == NULL)
        return status;
    if (!mail->connected) {
        edge->asked_ms = 0;
        *moved = true;
        /* Send nothing to a peer that is known to be dead or to have failed. */
        if (mail->sends)
            status = ddpi_notices_read_ready(comm, wait, NULL);
        if (status == DDP_OK && mail->sends && edge->gone_ms != 0)
            status = ddpi_judge_gone(comm, wait, edge);
        mail->connected = status == DDP_OK;
    }
    if (status != DDP_OK)
        return status;
    if (!mail->sends)
        return lane_receive(comm, lane, edge, moved);
    lane_send(lane, edge, moved);
    return DDP_OK;
}

/* ---- receives that no edge need exist for ---- */

static ddp_status check_deadline(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                 const struct ddpi_mail *mail)
{
    uint64_t now = ddpi_monotonic_ms(), elapsed = now - wait->started_ms;
    if (wait->deadline_ms == 0 || now < wait->deadline_ms)
        return DDP_OK;
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(&mail->call, call);
    return ddpi_comm_fail(
        comm, NULL, DDP_E_TIMEOUT,
        "%s: rank %u has waited %llu.%llu s for a message with tag %u, and %s has sent one", call,
        comm->rank, (unsigned long long)elapsed / 1000, (unsigned long long)elapsed % 1000 / 100,
        mail->call.tag, mail->peer == DDP_ANY_RANK ? "no rank" : "not even itself");
}

/* An edge, to @rank, that has ended with nothing left to receive; NULL: the rank may live. */
static struct ddpi_edge *ended_edge(const struct ddp_comm *comm, uint32_t rank, uint64_t now)
{
    for (uint32_t i = 0; i < DDPI_RING_EDGES + 1; i++) {
        struct ddpi_edge *edge =
            i < DDPI_RING_EDGES ? comm->edges.ring[i] : ddpi_edges_peer(&comm->edges, rank);
        if (edge != NULL && edge->peer == rank && edge->gone_ms != 0 &&
            (edge->broken != NULL || now >= edge->gone_ms + edge->ops->linger_ms))
            return edge;
    }
    return NULL;
}

/* Fail if all other ranks are gone. */
static ddp_status check_others(struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    uint64_t now = ddpi_monotonic_ms();
    struct ddpi_edge *edge = NULL;
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        if (rank == comm->rank)
            continue;
        edge = ended_edge(comm, rank, now);
        if (edge == NULL)
            return DDP_OK;
    }
    return edge != NULL ? ddpi_judge_gone(comm, wait, edge) : DDP_OK;
}

static ddp_status receive_from_any(struct ddp_comm *comm, const struct ddpi_wait *wait,
                                   struct ddpi_mail *mail, bool *moved)
{
    ddp_status status = DDP_OK;
    bool any = false;
    for (uint32_t rank = 0; rank < comm->world_size; rank++) {
        struct ddpi_edge *edge = ddpi_edges_peer(&comm->edges, rank);
        struct lane *lane = edge != NULL ? lane_to(comm, rank) : NULL;
        if (edge != NULL && lane == NULL)
            return comm->failed;
        if (edge != NULL)
            status = lane_receive(comm, lane, edge, &any);
        if (status != DDP_OK || mail->state != DDPI_MAIL_WAITING)
            break;
    }
    *moved |= any;
    if (status == DDP_OK && !any && mail->state == DDPI_MAIL_WAITING)
        status = check_others(comm, wait);
    return status == DDP_OK && !any ? check_deadline(comm, wait, mail) : status;
}

ddp_status ddpi_mail_move(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_mail *mail, bool *moved)
{
    if (mail->state == DDPI_MAIL_COMPLETE)
        return DDP_OK;
    if (mail->peer == comm->rank)
        return check_deadline(comm, wait, mail);
    return mail->peer == DDP_ANY_RANK ? receive_from_any(comm, wait, mail, moved)
                                      : move_to_or_from(comm, wait, mail, moved);
}

/* ---- needs ---- */

unsigned ddpi_mail_most_needs(const struct ddp_comm *comm, const struct ddpi_mail *mail)
{
    return mail->peer == DDP_ANY_RANK ? comm->world_size : 1;
}

unsigned ddpi_mail_needs(const struct ddp_comm *comm, struct ddpi_mail *mail,
                         struct ddpi_need *needs)
{
    unsigned count = 0;
    if (mail->state == DDPI_MAIL_COMPLETE)
        return 0;
    if (mail->peer == comm->rank || mail->peer == DDP_ANY_RANK)
        needs[count++] = (struct ddpi_need){.optional = true};
    for (uint32_t rank = 0; mail->peer == DDP_ANY_RANK && rank < comm->world_size; rank++) {
        struct ddpi_edge *edge = ddpi_edges_peer(&comm->edges, rank);
        if (edge != NULL)
            needs[count++] = (struct ddpi_need){.edge = edge, .recv_bytes = 1, .optional = true};
    }
    if (count > 0)
        return count;
    struct ddpi_edge *edge = ddpi_edges_peer(&comm->edges, mail->peer);
    needs[0] = edge == NULL ? (struct ddpi_need){.edge = ddpi_sought_edge(comm), .recv_bytes = 1}
                            : (struct ddpi_need){.edge = edge,
                                                 .send = mail->sends,
                                                 .recv_bytes = mail->sends ? 0 : 1};
    return 1;
}
