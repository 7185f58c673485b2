/*
 * peer_message.c - moves the bytes of one rank to one other rank, over an edge of their own, so
 * that they never mix with those of a collective. Owns nothing.
 *
 * A message is the call of the sender (call_header.h), then the payload. It leaves as the edge has
 * room: the sender does not wait for the receiver's call, and hears later if that call does not
 * match.
 */
#include "peer_message.h"

#include "clock.h"
#include "error.h"

enum {
    PIECE = 1024 * 1024, /* bytes moved before looking at the clock */
    HEAR_MS = 50,        /* between reads of messages of peers, which wait longer than that */
};

struct message {
    struct ddp_comm *comm;
    struct ddpi_call call;
    struct ddpi_edge *edge;
    uint8_t header[DDPI_CALL_WIRE_SIZE];
    size_t header_done;
    uint8_t *payload; /* only read when sending */
    size_t len;
    struct ddpi_wait wait; /* its bytes_done are those of the payload */
    bool moved;
    uint64_t heard_ms; /* when messages of peers were last read */
};

static bool message_is_complete(const struct message *message)
{
    return message->header_done == sizeof message->header &&
           message->wait.bytes_done == message->len;
}

/* At most @len bytes; returns how many. */
static size_t move_some(struct message *message, uint8_t *bytes, size_t len)
{
    struct ddpi_edge *edge = message->edge;
    if (len > PIECE)
        len = PIECE;
    size_t done =
        message->wait.sends ? edge->ops->send(edge, bytes, len) : edge->ops->recv(edge, bytes, len);
    if (done > 0) {
        message->moved = true;
        edge->asked_ms = 0;
    }
    return done;
}

/* The sender called send to this rank. */
static ddp_status check_sender_call(struct message *message)
{
    struct ddpi_call expected = message->call;
    expected.operation = DDPI_SEND;
    expected.root = message->comm->rank;
    return ddpi_comm_check_peer_call(message->comm, message->edge, message->header, &expected,
                                     &message->call);
}

/* Move what can be moved now. */
static ddp_status message_move(struct message *message)
{
    message->moved = false;
    if (message->header_done < sizeof message->header) {
        message->header_done += move_some(message, message->header + message->header_done,
                                          sizeof message->header - message->header_done);
        if (message->header_done < sizeof message->header)
            return DDP_OK;
        ddp_status status = message->wait.sends ? DDP_OK : check_sender_call(message);
        if (status != DDP_OK)
            return status;
    }
    size_t done = message->wait.bytes_done, left = message->len - done;
    if (left > 0)
        message->wait.bytes_done += move_some(message, message->payload + done, left);
    return DDP_OK;
}

/* Others have failed: if all that this one needs is here already, it is a success. */
static ddp_status message_finish_after_failure(struct message *message, ddp_status failure)
{
    do {
        ddp_status status = message_move(message);
        if (status != DDP_OK)
            return status;
    } while (message->moved);
    return message_is_complete(message) ? DDP_OK : failure;
}

/* Bytes may move for long, and other ranks may ask meanwhile whether this one waits. */
static ddp_status message_stay_in_touch(struct message *message)
{
    ddp_status status = ddpi_wait_overdue(message->comm, &message->wait, message->edge);
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    if (status != DDP_OK || now - message->heard_ms < HEAR_MS)
        return status;
    message->heard_ms = now;
    return ddpi_wait_poll(message->comm, &message->wait);
}

static ddp_status message_run(struct message *message)
{
    struct ddp_comm *comm = message->comm;
    uint32_t idle = 0;
    for (;;) {
        ddp_status status = message_move(message);
        if (status != DDP_OK || message_is_complete(message))
            return status;
        if (message->moved) {
            idle = 0;
            status = message_stay_in_touch(message);
        } else if (idle < comm->spin_limit) {
            idle++;
            ddpi_relax();
        } else {
            idle = 0;
            const struct ddpi_need need = {.edge = message->edge,
                                           .send = message->wait.sends,
                                           .recv_bytes = message->wait.sends ? 0 : 1};
            status = ddpi_wait(comm, &message->wait, &need, 1);
        }
        if (status != DDP_OK)
            return message_finish_after_failure(message, status);
    }
}

/* Send nothing to a peer that is known to be dead or to have failed. */
static ddp_status message_start(struct message *message)
{
    struct ddp_comm *comm = message->comm;
    ddp_status status = ddpi_wait_edge(comm, &message->wait, message->call.root, &message->edge);
    if (status != DDP_OK)
        return status;
    message->edge->asked_ms = 0;
    if (!message->wait.sends)
        return DDP_OK;
    ddpi_call_encode(&message->call, message->header);
    status = ddpi_wait_poll(comm, &message->wait);
    if (status == DDP_OK && message->edge->gone_ms != 0)
        status = ddpi_wait_gone(comm, &message->wait, message->edge);
    return status;
}

static struct message message_of(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                                 size_t len, bool sends)
{
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    return (struct message){.comm = comm,
                            .call = *call,
                            .payload = bytes,
                            .len = len,
                            .heard_ms = now,
                            .wait = {.started_ms = now,
                                     .deadline_ms = ddpi_deadline(now, comm->timeout_ms),
                                     .bytes_wanted = len,
                                     .sends = sends}};
}

ddp_status ddpi_message_begin(struct ddp_comm *comm, const struct ddpi_call *call, void *bytes,
                              size_t len, struct ddpi_edge **ret_edge)
{
    struct message message = message_of(comm, call, bytes, len, call->operation == DDPI_SEND);
    message.wait.call = &message.call;
    ddp_status status = message_start(&message);
    if (status == DDP_OK)
        status = message_run(&message);
    if (status == DDP_OK)
        *ret_edge = message.edge;
    return status;
}

ddp_status ddpi_message_go_on(struct ddp_comm *comm, const struct ddpi_call *call,
                              struct ddpi_edge *edge, void *bytes, size_t len, bool sends)
{
    struct message message = message_of(comm, call, bytes, len, sends);
    message.wait.call = &message.call;
    message.edge = edge;
    message.header_done = sizeof message.header;
    return message_run(&message);
}
