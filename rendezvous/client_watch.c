/*
 * client_watch.c - the blocking client's watches. An event is a reply to a request of long ago: it
 * comes when nothing is asked, or before the reply to something else (client_sync.c puts it aside).
 */
#include "client_impl.h"
#include "clock.h"
#include "error.h"
#include "mem.h"

#include <string.h>

_Static_assert((int)DDP_STORE_WATCH_PREFIX == (int)DDPI_WATCH_PREFIX &&
                   (int)DDP_STORE_EVENT_SET == (int)DDPI_CHANGE_SET &&
                   (int)DDP_STORE_EVENT_DELETED == (int)DDPI_CHANGE_DELETE,
               "flags and kinds cross the wire as they are");

ddp_status ddp_store_watch(ddp_store *store, const char *name, uint32_t flags,
                           uint64_t from_version, uint32_t timeout_ms, uint64_t *ret_watch,
                           uint64_t *ret_version, struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms,
                        .request = {.op = DDPI_OP_WATCH, .version = from_version, .count = flags}};
    if (flags & ~(uint32_t)DDP_STORE_WATCH_PREFIX)
        return ddpi_error_set(err, DDP_E_INVALID, "a watch with unknown flags: 0x%x", flags);
    ddp_status status = ddpi_client_run_key(store, name, &call, err);
    if (status == DDP_OK && ret_watch != NULL)
        *ret_watch = call.request.id;
    if ((status == DDP_OK || status == DDP_E_GONE) && ret_version != NULL)
        *ret_version = call.reply.version;
    return status;
}

ddp_status ddp_store_unwatch(ddp_store *store, uint64_t watch, uint32_t timeout_ms,
                             struct ddp_error *err)
{
    struct call call = {.timeout_ms = timeout_ms,
                        .request = {.op = DDPI_OP_UNWATCH, .number = (int64_t)watch}};
    return ddpi_client_run(store, &call, err);
}

/* Event, key and value in one block. */
static ddp_status make_event(const ddp_store *store, const struct ddpi_message *reply,
                             struct ddp_store_event **ret, struct ddp_error *err)
{
    if (reply->key.len < store->prefix_len || reply->status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "the store at %s told of a foreign key",
                              store->endpoint);
    size_t key_len = reply->key.len - store->prefix_len;
    size_t size = sizeof(struct ddp_store_event) + key_len + 1 + reply->value.len + 1;
    struct ddp_store_event *event = ddpi_calloc(size, 1);
    if (event == NULL)
        return ddpi_error_nomem(err, size);
    char *key = (char *)(event + 1), *value = key + key_len + 1;
    memcpy(key, (const char *)reply->key.data + store->prefix_len, key_len);
    if (reply->value.len > 0)
        memcpy(value, reply->value.data, reply->value.len);
    *event = (struct ddp_store_event){
        .kind = reply->number == DDPI_CHANGE_SET ? DDP_STORE_EVENT_SET : DDP_STORE_EVENT_DELETED,
        .watch = reply->id,
        .version = reply->version,
        .key = key,
        .key_len = key_len,
        .value = value,
        .value_len = reply->value.len};
    *ret = event;
    return DDP_OK;
}

/* The frame that was put aside first; it is taken only if all goes well. */
static ddp_status take_event(ddp_store *store, struct ddp_store_event **ret_event,
                             struct ddp_error *err)
{
    struct ddpi_seals none = {0}; /* it was seen to when the frame came */
    struct ddpi_client_frame frame;
    struct ddpi_message reply;
    size_t need;
    ddp_status status = ddpi_client_frame_next(&store->events, &none, &frame, &need, err);
    if (status != DDP_OK)
        return status;
    if (frame.header.type == DDPI_FRAME_BYE)
        return ddpi_client_farewell(&frame, err);
    if (frame.header.type != ddpi_type_of_op(DDPI_OP_WATCH))
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a reply to nothing that was asked");
    status = ddpi_reply_get(&frame.header, frame.payload, &reply, err);
    if (status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "a malformed event");
    status = make_event(store, &reply, ret_event, err);
    if (status == DDP_OK)
        ddpi_buf_consume(&store->events, frame.size);
    return status;
}

static ddp_status receive_event(ddp_store *store, uint32_t timeout_ms,
                                struct ddp_store_event **ret_event, struct ddp_error *err)
{
    struct ddpi_client_frame frame;
    uint64_t deadline_ms = ddpi_deadline(ddpi_link_now(), timeout_ms);
    ddpi_buf_consume(&store->link.in, store->held);
    store->held = 0;
    ddp_status status = ddpi_client_receive(store, deadline_ms, &frame, err);
    if (status == DDP_OK)
        status = ddpi_client_keep_event(store, &frame, err);
    if (status == DDP_OK)
        status = take_event(store, ret_event, err);
    return status;
}

ddp_status ddp_store_next_event(ddp_store *store, uint32_t timeout_ms,
                                struct ddp_store_event **ret_event, struct ddp_error *err)
{
    struct ddp_error why = {0};
    if (ddpi_buf_len(&store->events) > 0)
        return take_event(store, ret_event, err != NULL ? err : &why);
    if (store->link.fd < 0)
        return ddpi_error_set(err, DDP_E_CLOSED, "the connection to the store at %s was closed",
                              store->endpoint);
    ddp_status status = receive_event(store, timeout_ms, ret_event, &why);
    if (status == DDP_OK)
        return DDP_OK;
    if (status == DDP_E_TIMEOUT)
        return ddpi_error_set(err, status,
                              "nothing that is watched at the store %s has changed "
                              "within %u ms",
                              store->endpoint, timeout_ms);
    if (status != DDP_E_NOMEM || store->seals.on) /* a sealed frame can be looked at once only */
        ddpi_link_close(&store->link);
    return ddpi_error_set(err, status, "watching at the store %s: %s", store->endpoint, why.msg);
}
