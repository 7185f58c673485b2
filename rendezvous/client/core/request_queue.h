/*
 * request_queue.h - the requests of one client, from submission until they are answered or given
 * up, and the output into which they are written. Pure; calls nobody back.
 *
 * A request is first queued, then pending: written into the output of the present connection.
 */
#ifndef DDPI_REQUEST_QUEUE_H
#define DDPI_REQUEST_QUEUE_H

#include "list.h"
#include "proto.h"

enum { DDPI_CLIENT_GRACE_MS = 1000 /* a server may answer this late after a request's deadline */ };

/* The owner's memory, from submission until the request is answered. */
struct ddpi_client_request {
    struct ddpi_list of_queue;
    struct ddpi_message message; /* the owner keeps what it points to */
    uint64_t deadline_ms;
    uint64_t frame_end; /* where it ends in the output of this connection; 0: not written */
    bool maybe_done;    /* it was sent on an earlier connection, and changes something */
};

struct ddpi_request_queue {
    struct ddpi_list queued;  /* ddpi_client_request::of_queue */
    struct ddpi_list pending; /* the same */
    struct ddpi_buf out;
    struct ddpi_seals *seals; /* of this connection */
    uint64_t sent_bytes;      /* that have left `out` on this connection */
    uint64_t last_id;         /* the latest that was given to a request */
    uint64_t next_expiry_ms;  /* no request expires earlier */
};

void ddpi_request_queue_init(struct ddpi_request_queue *queue, size_t out_max,
                             struct ddpi_seals *seals);
void ddpi_request_queue_finish(struct ddpi_request_queue *queue);

struct ddpi_client_request *ddpi_request_of(struct ddpi_list *node);

/* Give @request an id and a deadline, and add it to the end of the queue or to its front. */
void ddpi_request_queue_append(struct ddpi_request_queue *queue,
                               struct ddpi_client_request *request, uint32_t timeout_ms,
                               uint64_t now_ms);
void ddpi_request_queue_prepend(struct ddpi_request_queue *queue,
                                struct ddpi_client_request *request, uint32_t timeout_ms,
                                uint64_t now_ms);

/* Write queued requests into the output until it is full, and make them pending. Returns a request
 * for which even the empty output has no room, still queued, or NULL. */
struct ddpi_client_request *ddpi_request_queue_write(struct ddpi_request_queue *queue,
                                                     uint64_t now_ms);
/* Write a message that is no request in the queue. Without an id it gets one, and no reply to it is
 * expected. False: the output has no room. */
bool ddpi_request_queue_put(struct ddpi_request_queue *queue, struct ddpi_message *message);

/* The pending request with this id, or NULL. */
struct ddpi_client_request *ddpi_request_queue_find(const struct ddpi_request_queue *queue,
                                                    uint64_t id);
/* The server may have executed it: all of its bytes have left the output. */
bool ddpi_request_queue_was_sent(const struct ddpi_request_queue *queue,
                                 const struct ddpi_client_request *request);

/* Move expired requests to @late if they were queued, to @silent if they were pending. */
void ddpi_request_queue_expire(struct ddpi_request_queue *queue, struct ddpi_list *late,
                               struct ddpi_list *silent, uint64_t now_ms);

/* The connection is lost. Pending requests are queued again, in front of the others; those that may
 * have been executed, and must not be executed twice, move to @unsure. */
void ddpi_request_queue_requeue(struct ddpi_request_queue *queue, struct ddpi_list *unsure);
/* Forget the output of the connection. */
void ddpi_request_queue_reset_output(struct ddpi_request_queue *queue);

#endif
