/*
 * request_queue.c - queues requests and writes them into the output. Owns the output; the requests
 * belong to those who submitted them.
 */
#include "request_queue.h"

#include "clock.h"

void ddpi_request_queue_init(struct ddpi_request_queue *queue, size_t out_max,
                             struct ddpi_seals *seals)
{
    *queue = (struct ddpi_request_queue){.seals = seals, .next_expiry_ms = UINT64_MAX};
    ddpi_buf_init(&queue->out, out_max);
    ddpi_list_init(&queue->queued);
    ddpi_list_init(&queue->pending);
}

void ddpi_request_queue_finish(struct ddpi_request_queue *queue)
{
    ddpi_buf_finish(&queue->out);
}

struct ddpi_client_request *ddpi_request_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_client_request, of_queue);
}

/* ---- queueing ---- */

static void set_id_and_deadline(struct ddpi_request_queue *queue,
                                struct ddpi_client_request *request, uint32_t timeout_ms,
                                uint64_t now_ms)
{
    request->message.id = ++queue->last_id;
    request->deadline_ms = ddpi_deadline(now_ms, timeout_ms);
    request->frame_end = 0;
    request->maybe_done = false;
    if (queue->next_expiry_ms > request->deadline_ms)
        queue->next_expiry_ms = request->deadline_ms;
}

void ddpi_request_queue_append(struct ddpi_request_queue *queue,
                               struct ddpi_client_request *request, uint32_t timeout_ms,
                               uint64_t now_ms)
{
    set_id_and_deadline(queue, request, timeout_ms, now_ms);
    ddpi_list_append(&queue->queued, &request->of_queue);
}

void ddpi_request_queue_prepend(struct ddpi_request_queue *queue,
                                struct ddpi_client_request *request, uint32_t timeout_ms,
                                uint64_t now_ms)
{
    set_id_and_deadline(queue, request, timeout_ms, now_ms);
    ddpi_list_append(queue->queued.next, &request->of_queue); /* before the first one */
}

/* ---- writing ---- */

static bool write_frame(struct ddpi_request_queue *queue, const struct ddpi_message *message)
{
    size_t before = ddpi_buf_len(&queue->out);
    return ddpi_seals_put(queue->seals, &queue->out, before,
                          ddpi_request_put(&queue->out, message));
}

bool ddpi_request_queue_put(struct ddpi_request_queue *queue, struct ddpi_message *message)
{
    if (message->id == 0)
        message->id = ++queue->last_id;
    return write_frame(queue, message);
}

struct ddpi_client_request *ddpi_request_queue_write(struct ddpi_request_queue *queue,
                                                     uint64_t now_ms)
{
    while (!ddpi_list_empty(&queue->queued)) {
        struct ddpi_client_request *request = ddpi_request_of(queue->queued.next);
        uint64_t left_ms = request->deadline_ms > now_ms ? request->deadline_ms - now_ms : 0;
        request->message.timeout_ms = left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
        if (!write_frame(queue, &request->message))
            return ddpi_buf_len(&queue->out) > 0 ? NULL : request;
        request->frame_end = queue->sent_bytes + ddpi_buf_len(&queue->out);
        ddpi_list_remove(&request->of_queue);
        ddpi_list_append(&queue->pending, &request->of_queue);
    }
    return NULL;
}

/* ---- answers and deadlines ---- */

struct ddpi_client_request *ddpi_request_queue_find(const struct ddpi_request_queue *queue,
                                                    uint64_t id)
{
    ddpi_list_for_each (node, &queue->pending)
        if (ddpi_request_of(node)->message.id == id)
            return ddpi_request_of(node);
    return NULL;
}

bool ddpi_request_queue_was_sent(const struct ddpi_request_queue *queue,
                                 const struct ddpi_client_request *request)
{
    return request->maybe_done ||
           (request->frame_end > 0 && request->frame_end <= queue->sent_bytes);
}

/* When @request is given up: at its deadline, or later if it is pending, as the server answers. */
static uint64_t expiry_of(const struct ddpi_client_request *request)
{
    return request->frame_end > 0 ? ddpi_deadline(request->deadline_ms, DDPI_CLIENT_GRACE_MS)
                                  : request->deadline_ms;
}

static void move_expired(struct ddpi_request_queue *queue, struct ddpi_list *from,
                         struct ddpi_list *to, uint64_t now_ms)
{
    ddpi_list_for_each_safe (node, from) {
        uint64_t expiry_ms = expiry_of(ddpi_request_of(node));
        if (expiry_ms <= now_ms) {
            ddpi_list_remove(node);
            ddpi_list_append(to, node);
        } else if (expiry_ms < queue->next_expiry_ms) {
            queue->next_expiry_ms = expiry_ms;
        }
    }
}

void ddpi_request_queue_expire(struct ddpi_request_queue *queue, struct ddpi_list *late,
                               struct ddpi_list *silent, uint64_t now_ms)
{
    queue->next_expiry_ms = UINT64_MAX;
    move_expired(queue, &queue->queued, late, now_ms);
    move_expired(queue, &queue->pending, silent, now_ms);
}

/* ---- losing the connection ---- */

/* The operation may be executed twice without harm. */
static bool is_repeatable(enum ddpi_op op)
{
    switch (op) {
    case DDPI_OP_GET:
    case DDPI_OP_TRY_GET:
    case DDPI_OP_WAIT:
    case DDPI_OP_LIST:
    case DDPI_OP_STATS:
    case DDPI_OP_KEEPER_STATUS:
    case DDPI_OP_WATCH:
    case DDPI_OP_UNWATCH:
    case DDPI_OP_SESSION_KEEP:
    case DDPI_OP_SESSION_HOLD:
    case DDPI_OP_FENCE:
        return true;
    default:
        return false;
    }
}

static bool changes_server(enum ddpi_op op)
{
    return op == DDPI_OP_FENCE || op == DDPI_OP_SESSION_KEEP || op == DDPI_OP_SESSION_HOLD;
}

void ddpi_request_queue_requeue(struct ddpi_request_queue *queue, struct ddpi_list *unsure)
{
    struct ddpi_list *oldest_queued = queue->queued.next;
    ddpi_list_for_each_safe (node, &queue->pending) {
        struct ddpi_client_request *request = ddpi_request_of(node);
        bool was_sent = ddpi_request_queue_was_sent(queue, request);
        bool is_unsure = was_sent && !is_repeatable(request->message.op);
        ddpi_list_remove(node);
        ddpi_list_append(is_unsure ? unsure : oldest_queued, node);
        if (is_unsure)
            continue;
        request->frame_end = 0;
        request->maybe_done = was_sent && changes_server(request->message.op);
    }
    queue->next_expiry_ms = 0; /* some may have passed their deadline */
}

void ddpi_request_queue_reset_output(struct ddpi_request_queue *queue)
{
    ddpi_buf_consume(&queue->out, ddpi_buf_len(&queue->out));
    queue->sent_bytes = 0;
}
