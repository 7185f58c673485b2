/*
 * core_watch.c - what a client watches. Owns the watches; part of the client core.
 *
 * A watch has the id of the request that began it, on every connection, so its owner knows it by
 * one number. On a new connection it goes on behind the last change that it told. Where the server
 * cannot tell these any more, or is another one, it begins anew, and its owner is told that changes
 * were missed once it has: what is looked up from then on is covered. What the server refuses for
 * good ends, and its owner is told why; the connection, and the other watches, go on.
 */
#include "client_core.h"
#include "error.h"
#include "mem.h"

#include <inttypes.h>

ddp_status ddpi_client_watch_add(struct ddpi_client *client,
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
    ddpi_list_append(&client->watches, &watch->of_client);
    return DDP_OK;
}

struct ddpi_client_watch *ddpi_client_watch_find(const struct ddpi_client *client, uint64_t id)
{
    ddpi_list_for_each (node, &client->watches) {
        struct ddpi_client_watch *watch =
            ddpi_container_of(node, struct ddpi_client_watch, of_client);
        if (watch->id == id)
            return watch;
    }
    return NULL;
}

void ddpi_client_watch_drop(struct ddpi_client_watch *watch)
{
    if (watch == NULL)
        return;
    ddpi_list_remove(&watch->of_client);
    ddpi_free(watch);
}

void ddpi_client_watch_begun(struct ddpi_client *client, const struct ddpi_client_request *request,
                             const struct ddpi_message *reply)
{
    struct ddpi_client_watch *watch = ddpi_client_watch_find(client, request->message.id);
    if (reply->status != DDP_OK || watch == NULL) {
        ddpi_client_watch_drop(watch);
        return;
    }
    uint64_t from = request->message.version;
    watch->on = true;
    watch->told = from != 0 ? from - 1 : reply->version;
}

static bool ask(struct ddpi_client *client, const struct ddpi_client_watch *watch)
{
    struct ddpi_message message = {.op = DDPI_OP_WATCH,
                                   .id = watch->id,
                                   .key = ddpi_bytes_of(watch->name, watch->name_len),
                                   .count = watch->flags,
                                   .version = watch->gap ? 0 : watch->told + 1};
    return ddpi_client_put(client, &message);
}

bool ddpi_client_watch_resume(struct ddpi_client *client, bool anew)
{
    ddpi_list_for_each (node, &client->watches) {
        struct ddpi_client_watch *watch =
            ddpi_container_of(node, struct ddpi_client_watch, of_client);
        if (!watch->on)
            continue;
        watch->due = true;
        watch->gap = watch->gap || anew;
        if (!ask(client, watch))
            return false;
    }
    return true;
}

bool ddpi_client_watch_settled(const struct ddpi_client *client)
{
    ddpi_list_for_each (node, &client->watches)
        if (ddpi_container_of(node, struct ddpi_client_watch, of_client)->due)
            return false;
    return true;
}

/* One that its owner gave up before it had begun. */
static ddp_status refuse(struct ddpi_client *client, const struct ddpi_message *reply,
                         struct ddp_error *err)
{
    struct ddpi_message message = {.op = DDPI_OP_UNWATCH, .number = (int64_t)reply->id};
    if (reply->status != DDP_OK || reply->number != DDPI_CHANGE_NONE ||
        ddpi_client_put(client, &message))
        return DDP_OK;
    return ddpi_error_nomem(err, DDPI_FRAME_HEADER_SIZE);
}

/* Changes up to @version were missed; @why, if it is not empty: and the watch ends. */
static ddp_status tell_missed(struct ddpi_client *client, struct ddpi_client_watch *watch,
                              uint64_t version, struct ddpi_bytes why, struct ddp_error *err)
{
    const struct ddpi_message missed = {.op = DDPI_OP_WATCH,
                                        .id = watch->id,
                                        .version = version,
                                        .number = DDPI_CHANGE_NONE,
                                        .value = why};
    return client->hooks.event(client->hooks.ctx, watch, &missed, err);
}

/* It has begun again. */
static ddp_status told_again(struct ddpi_client *client, struct ddpi_client_watch *watch,
                             const struct ddpi_message *reply, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (watch->gap)
        status = tell_missed(client, watch, reply->version, ddpi_bytes_of(NULL, 0), err);
    if (status != DDP_OK)
        return status;
    if (watch->gap)
        watch->told = reply->version;
    watch->gap = watch->due = false;
    return DDP_OK;
}

/* Whether the answer would be the same on the next connection. */
static bool for_good(ddp_status status)
{
    return status == DDP_E_LIMIT || status == DDP_E_DENIED || status == DDP_E_INVALID ||
           status == DDP_E_UNSUPPORTED;
}

static ddp_status not_resumed(struct ddpi_client *client, struct ddpi_client_watch *watch,
                              const struct ddpi_message *reply, struct ddp_error *err)
{
    struct ddpi_bytes why = reply->text;
    if (reply->status == DDP_E_GONE && !watch->gap) {
        watch->gap = true;
        return ask(client, watch) ? DDP_OK : ddpi_error_nomem(err, watch->name_len);
    }
    if (!for_good(reply->status))
        return ddpi_error_set(err, reply->status, "a watch cannot go on: %.*s", (int)why.len,
                              (const char *)why.data);
    if (why.len == 0)
        why = ddpi_bytes_of("refused", strlen("refused"));
    ddp_status status = tell_missed(client, watch, watch->told, why, err);
    if (status == DDP_OK)
        ddpi_client_watch_drop(watch);
    return status;
}

ddp_status ddpi_client_watch_take(struct ddpi_client *client, const struct ddpi_message *reply,
                                  struct ddp_error *err)
{
    struct ddpi_client_watch *watch = ddpi_client_watch_find(client, reply->id);
    if (watch == NULL || !watch->on)
        return refuse(client, reply, err);
    if (reply->status != DDP_OK)
        return not_resumed(client, watch, reply, err);
    if (reply->number == DDPI_CHANGE_NONE)
        return told_again(client, watch, reply, err);
    if (reply->version <= watch->told || reply->number < 0 || reply->number > DDPI_CHANGE_DELETE)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "a change at version %" PRIu64 " behind one at %" PRIu64,
                              reply->version, watch->told);
    ddp_status status = client->hooks.event(client->hooks.ctx, watch, reply, err);
    if (status == DDP_OK)
        watch->told = reply->version;
    return status;
}
