/*
 * client_watch.c - watches of a client. Owns them.
 */
#include "client_watch.h"

#include "error.h"
#include "mem.h"

#include <inttypes.h>

static struct ddpi_client_watch *watch_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_client_watch, of_client);
}

void ddpi_client_watches_init(struct ddpi_client_watches *watches,
                              struct ddpi_request_queue *requests, ddpi_client_event_fn *event,
                              void *ctx)
{
    *watches = (struct ddpi_client_watches){.requests = requests, .event = event, .ctx = ctx};
    ddpi_list_init(&watches->all);
}

void ddpi_client_watches_finish(struct ddpi_client_watches *watches)
{
    while (!ddpi_list_empty(&watches->all))
        ddpi_client_watch_drop(watch_of(watches->all.next));
}

ddp_status ddpi_client_watch_add(struct ddpi_client_watches *watches,
                                 const struct ddpi_client_request *request, struct ddp_error *err)
{
    struct ddpi_bytes name = request->message.key;
    struct ddpi_client_watch *watch = ddpi_calloc(1, sizeof(*watch) + name.len);
    if (watch == NULL)
        return ddpi_error_nomem(err, sizeof(*watch) + name.len);
    watch->id = request->message.id;
    watch->flags = request->message.count;
    watch->name_len = name.len;
    if (name.len > 0)
        memcpy(watch->name, name.data, name.len);
    ddpi_list_append(&watches->all, &watch->of_client);
    return DDP_OK;
}

struct ddpi_client_watch *ddpi_client_watch_find(const struct ddpi_client_watches *watches,
                                                 uint64_t id)
{
    ddpi_list_for_each (node, &watches->all)
        if (watch_of(node)->id == id)
            return watch_of(node);
    return NULL;
}

void ddpi_client_watch_drop(struct ddpi_client_watch *watch)
{
    if (watch == NULL)
        return;
    ddpi_list_remove(&watch->of_client);
    ddpi_free(watch);
}

void ddpi_client_watch_started(struct ddpi_client_watches *watches,
                               const struct ddpi_client_request *request,
                               const struct ddpi_message *reply)
{
    struct ddpi_client_watch *watch = ddpi_client_watch_find(watches, request->message.id);
    if (reply->status != DDP_OK || watch == NULL) {
        ddpi_client_watch_drop(watch);
        return;
    }
    uint64_t from = request->message.version;
    watch->started = true;
    watch->reported = from != 0 ? from - 1 : reply->version;
}

/* ---- resuming ---- */

static bool request_again(struct ddpi_client_watches *watches,
                          const struct ddpi_client_watch *watch)
{
    struct ddpi_message message = {.op = DDPI_OP_WATCH,
                                   .id = watch->id,
                                   .key = ddpi_bytes_of(watch->name, watch->name_len),
                                   .count = watch->flags,
                                   .version = watch->has_missed ? 0 : watch->reported + 1};
    return ddpi_request_queue_put(watches->requests, &message);
}

bool ddpi_client_watches_resume(struct ddpi_client_watches *watches, bool afresh)
{
    ddpi_list_for_each (node, &watches->all) {
        struct ddpi_client_watch *watch = watch_of(node);
        if (!watch->started)
            continue;
        watch->resuming = true;
        watch->has_missed = watch->has_missed || afresh;
        if (!request_again(watches, watch))
            return false;
    }
    return true;
}

bool ddpi_client_watches_resumed(const struct ddpi_client_watches *watches)
{
    ddpi_list_for_each (node, &watches->all)
        if (watch_of(node)->resuming)
            return false;
    return true;
}

/* @reason, if it is not empty: the watch has ended. */
static ddp_status report_missed(struct ddpi_client_watches *watches,
                                struct ddpi_client_watch *watch, uint64_t version,
                                struct ddpi_bytes reason, struct ddp_error *err)
{
    const struct ddpi_message missed = {.op = DDPI_OP_WATCH,
                                        .id = watch->id,
                                        .version = version,
                                        .number = DDPI_CHANGE_NONE,
                                        .value = reason};
    return watches->event(watches->ctx, watch, &missed, err);
}

static ddp_status take_resumed(struct ddpi_client_watches *watches, struct ddpi_client_watch *watch,
                               const struct ddpi_message *reply, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (watch->has_missed)
        status = report_missed(watches, watch, reply->version, ddpi_bytes_of(NULL, 0), err);
    if (status != DDP_OK)
        return status;
    if (watch->has_missed)
        watch->reported = reply->version;
    watch->has_missed = watch->resuming = false;
    return DDP_OK;
}

/* The answer would be the same on the next connection. */
static bool is_final_refusal(ddp_status status)
{
    return status == DDP_E_LIMIT || status == DDP_E_DENIED || status == DDP_E_INVALID ||
           status == DDP_E_UNSUPPORTED;
}

static ddp_status take_not_resumed(struct ddpi_client_watches *watches,
                                   struct ddpi_client_watch *watch,
                                   const struct ddpi_message *reply, struct ddp_error *err)
{
    struct ddpi_bytes reason = reply->text;
    if (reply->status == DDP_E_GONE && !watch->has_missed) {
        watch->has_missed = true;
        return request_again(watches, watch) ? DDP_OK : ddpi_error_nomem(err, watch->name_len);
    }
    if (!is_final_refusal(reply->status))
        return ddpi_error_set(err, reply->status, "a watch cannot be resumed: %.*s",
                              (int)reason.len, (const char *)reason.data);
    if (reason.len == 0)
        reason = ddpi_bytes_of("refused", strlen("refused"));
    ddp_status status = report_missed(watches, watch, watch->reported, reason, err);
    if (status == DDP_OK)
        ddpi_client_watch_drop(watch);
    return status;
}

/* The owner gave up a watch before it had started: end it at the server too. */
static ddp_status end_unwanted(struct ddpi_client_watches *watches,
                               const struct ddpi_message *reply, struct ddp_error *err)
{
    struct ddpi_message message = {.op = DDPI_OP_UNWATCH, .number = (int64_t)reply->id};
    if (reply->status != DDP_OK || reply->number != DDPI_CHANGE_NONE ||
        ddpi_request_queue_put(watches->requests, &message))
        return DDP_OK;
    return ddpi_error_nomem(err, DDPI_FRAME_HEADER_SIZE);
}

ddp_status ddpi_client_watch_take(struct ddpi_client_watches *watches,
                                  const struct ddpi_message *reply, struct ddp_error *err)
{
    struct ddpi_client_watch *watch = ddpi_client_watch_find(watches, reply->id);
    if (watch == NULL || !watch->started)
        return end_unwanted(watches, reply, err);
    if (reply->status != DDP_OK)
        return take_not_resumed(watches, watch, reply, err);
    if (reply->number == DDPI_CHANGE_NONE)
        return take_resumed(watches, watch, reply, err);
    if (reply->version <= watch->reported || reply->number < 0 ||
        reply->number > DDPI_CHANGE_DELETE)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "a change at version %" PRIu64 " after one at %" PRIu64,
                              reply->version, watch->reported);
    ddp_status status = watches->event(watches->ctx, watch, reply, err);
    if (status == DDP_OK)
        watch->reported = reply->version;
    return status;
}
