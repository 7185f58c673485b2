/*
 * peer_message.c - the algorithm that moves the bytes of one rank to one other rank, over an edge
 * of their own, so that they never mix with those of a collective. Owns nothing.
 *
 * A message is the call of the sender (call_header.h), then the payload. It leaves as the edge has
 * room: the sender does not wait for the receiver's call, and hears later if that call does not
 * match. Messages from one rank to another are under way one after the other.
 */
#include "peer_message.h"

#include "clock.h"
#include "drive.h"

enum { PIECE = 1024 * 1024 }; /* bytes moved before looking at anything else */

/* The state of a run. */
struct message {
    struct ddpi_edge *edge; /* NULL: there is none yet */
    uint8_t header[DDPI_CALL_WIRE_SIZE];
    size_t header_done;
    bool sends;
    bool moved;
};
DDPI_RUN_STATE_FITS(struct message);

static struct message *message_of(struct ddpi_run *run)
{
    return (struct message *)(void *)run->state;
}

static bool message_is_complete(const struct message *message, const struct ddpi_wait *wait)
{
    return message->header_done == sizeof message->header && wait->bytes_done == wait->bytes_wanted;
}

/* At most @len bytes; returns how many. */
static size_t move_some(struct message *message, uint8_t *bytes, size_t len)
{
    struct ddpi_edge *edge = message->edge;
    if (len > PIECE)
        len = PIECE;
    size_t done =
        message->sends ? edge->ops->send(edge, bytes, len) : edge->ops->recv(edge, bytes, len);
    if (done > 0) {
        message->moved = true;
        edge->asked_ms = 0;
    }
    return done;
}

/* The sender called send to this rank. */
static ddp_status check_sender_call(struct ddp_comm *comm, struct ddpi_run *run)
{
    const struct message *message = message_of(run);
    struct ddpi_call expected = run->task.call;
    expected.operation = DDPI_SEND;
    expected.root = comm->rank;
    return ddpi_comm_check_peer_call(comm, message->edge, message->header, &expected,
                                     &run->task.call);
}

static ddp_status move_header(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct message *message = message_of(run);
    message->header_done += move_some(message, message->header + message->header_done,
                                      sizeof message->header - message->header_done);
    if (message->header_done < sizeof message->header || message->sends)
        return DDP_OK;
    return check_sender_call(comm, run);
}

/* An earlier message to, or from, the same rank is under way. */
static bool is_behind(const struct ddp_comm *comm, const struct ddpi_run *run)
{
    ddpi_list_for_each (node, &comm->runs.messages) {
        const struct ddpi_run *other = ddpi_container_of(node, struct ddpi_run, link);
        if (other == run)
            return false;
        if (other->task.call.root == run->task.call.root &&
            (other->task.send != NULL) == (run->task.send != NULL))
            return true;
    }
    return false;
}

/* Get the edge. Send nothing to a peer that is known to be dead or to have failed. */
static ddp_status message_connect(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct message *message = message_of(run);
    if (is_behind(comm, run))
        return DDP_OK;
    struct ddpi_edge *edge;
    ddp_status status = ddpi_seek_edge(comm, &run->wait, run->task.call.root, &edge);
    if (status != DDP_OK || edge == NULL)
        return status;
    edge->asked_ms = 0;
    message->moved = true;
    message->edge = edge;
    if (!message->sends)
        return DDP_OK;
    status = ddpi_wait_poll(comm, &run->wait);
    return status == DDP_OK && edge->gone_ms != 0 ? ddpi_wait_gone(comm, &run->wait, edge) : status;
}

static ddp_status message_prepare(struct ddp_comm *comm, struct ddpi_run *run)
{
    struct message *message = message_of(run);
    (void)comm;
    *message = (struct message){.sends = run->task.send != NULL};
    run->wait.sends = message->sends;
    run->wait.bytes_wanted = run->task.count * run->task.element_size;
    ddpi_call_encode(&run->task.call, message->header);
    return DDP_OK;
}

static ddp_status message_advance(struct ddp_comm *comm, struct ddpi_run *run,
                                  enum ddpi_movement *ret_movement)
{
    struct message *message = message_of(run);
    struct ddpi_wait *wait = &run->wait;
    ddp_status status = DDP_OK;
    message->moved = false;
    if (message->edge == NULL)
        status = message_connect(comm, run);
    if (status == DDP_OK && message->edge != NULL && message->header_done < sizeof message->header)
        status = move_header(comm, run);
    if (status != DDP_OK)
        return status;
    uint8_t *bytes = message->sends ? (uint8_t *)(uintptr_t)run->task.send : run->task.recv;
    if (message->header_done == sizeof message->header && wait->bytes_done < wait->bytes_wanted)
        wait->bytes_done +=
            move_some(message, bytes + wait->bytes_done, wait->bytes_wanted - wait->bytes_done);
    *ret_movement = message->moved ? DDPI_MOVED : DDPI_IDLE;
    if (!message_is_complete(message, wait))
        return DDP_OK;
    *(message->sends ? &run->task.bytes_sent : &run->task.bytes_received) = wait->bytes_done;
    *ret_movement = DDPI_COMPLETE;
    return DDP_OK;
}

static unsigned message_most_needs(const struct ddpi_run *run)
{
    (void)run;
    return 1;
}

/* One that is behind another message needs what that one needs. */
static unsigned message_needs(const struct ddp_comm *comm, struct ddpi_run *run,
                              struct ddpi_need *needs)
{
    const struct message *message = message_of(run);
    if (message->edge != NULL)
        *needs = (struct ddpi_need){
            .edge = message->edge, .send = message->sends, .recv_bytes = message->sends ? 0 : 1};
    else if (!is_behind(comm, run))
        *needs = (struct ddpi_need){.edge = ddpi_sought_edge(comm), .recv_bytes = 1};
    else
        return 0;
    return 1;
}

const struct ddpi_algorithm ddpi_message_algorithm = {.name = "message",
                                                      .begin = message_prepare,
                                                      .advance = message_advance,
                                                      .most_needs = message_most_needs,
                                                      .needs = message_needs};

/* ---- within a run ---- */

static void set_bytes(struct ddpi_run *run, void *bytes, size_t len, bool sends)
{
    run->task.send = sends ? bytes : NULL;
    run->task.recv = sends ? NULL : bytes;
    run->task.count = len;
    run->task.element_size = 1;
}

ddp_status ddpi_message_begin(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                              size_t len, struct ddpi_edge **ret_edge)
{
    struct ddpi_run run = {.algorithm = &ddpi_message_algorithm,
                           .task = {.call = *call, .timeout_ms = comm->timeout_ms}};
    set_bytes(&run, bytes, len, call->operation == DDPI_SEND);
    ddp_status status = ddpi_drive_inner(comm, &run);
    if (status == DDP_OK)
        *ret_edge = message_of(&run)->edge;
    return status;
}

ddp_status ddpi_message_go_on(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                              size_t len, bool sends)
{
    struct ddpi_run run = {.algorithm = &ddpi_message_algorithm,
                           .task = {.call = *call, .timeout_ms = comm->timeout_ms}};
    set_bytes(&run, bytes, len, sends);
    run.begun = true;
    (void)message_prepare(comm, &run);
    message_of(&run)->edge = ddpi_edges_peer(&comm->edges, call->root);
    message_of(&run)->header_done = DDPI_CALL_WIRE_SIZE;
    return ddpi_drive_inner(comm, &run);
}
