/*
 * keeper_room.c - see keeper_room.h. The order is that of etcd's manual, "Space quota".
 */
#include "keeper_room.h"

#include "keeper_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STEP_MS = 5000,
    WORK_MS = 120000, /* etcd answers nobody while it gives pages back */
    BODY_MAX = 128,
    MOST_ALARMS = 16,
};

static void ask(struct keeper_room *room, const char *path, const char *body, uint32_t most_ms,
                void (*done)(struct ddpi_etcd_call *, const struct ddpi_etcd_outcome *))
{
    const struct keeper_request request = {.path = path,
                                           .body = body,
                                           .try_ms = most_ms,
                                           .total_ms = most_ms,
                                           .done = done,
                                           .ctx = room};
    keeper_call_begin(room->client, &room->call, &request);
}

static void on_alarms(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome);

static void ask_for_alarms(struct keeper_room *room)
{
    ask(room, "/v3/maintenance/alarm", "{\"action\":\"GET\"}", STEP_MS, on_alarms);
}

/* ---- what is old goes ---- */

static void on_given_back(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_room *room = call->ctx;
    const char *why = keeper_call_failure(outcome);
    room->made = true;
    if (why != NULL)
        room->done(room->ctx, why);
    else
        ask_for_alarms(room);
}

static void on_compacted(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_room *room = call->ctx;
    bool before = outcome->status == DDP_OK && outcome->reply->code == DDPI_ETCD_RANGE;
    const char *why = before ? NULL : keeper_call_failure(outcome); /* another keeper was faster */
    if (why != NULL)
        room->done(room->ctx, why);
    else
        ask(room, "/v3/maintenance/defragment", "{}", WORK_MS, on_given_back);
}

static void on_revision(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_room *room = call->ctx;
    const char *why = keeper_call_failure(outcome);
    char body[BODY_MAX];
    struct ddp_error err;
    uint64_t revision;
    if (why == NULL && ddpi_etcd_get_number(json_object_get(outcome->reply->root, "header"),
                                            "revision", &revision, &err) != DDP_OK)
        why = err.msg;
    if (why != NULL) {
        room->done(room->ctx, why);
        return;
    }
    snprintf(body, sizeof body, "{\"revision\":\"%" PRIu64 "\",\"physical\":true}", revision);
    ask(room, "/v3/kv/compaction", body, WORK_MS, on_compacted);
}

/* ---- it may write again ---- */

static void on_silenced(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct keeper_room *room = call->ctx;
    const char *why = keeper_call_failure(outcome);
    if (why != NULL)
        room->done(room->ctx, why);
    else
        ask_for_alarms(room);
}

/* A member whose contents alone fill its file raises its alarm again at once. */
static void silence(struct keeper_room *room, const json_t *alarm)
{
    char body[BODY_MAX];
    struct ddp_error err;
    uint64_t member;
    if (room->silenced++ == MOST_ALARMS) {
        room->done(room->ctx, "what the store has fills it");
        return;
    }
    if (ddpi_etcd_get_number(alarm, "memberID", &member, &err) != DDP_OK) {
        room->done(room->ctx, err.msg);
        return;
    }
    snprintf(body, sizeof body,
             "{\"action\":\"DEACTIVATE\",\"memberID\":\"%" PRIu64 "\",\"alarm\":\"NOSPACE\"}",
             member);
    ask(room, "/v3/maintenance/alarm", body, STEP_MS, on_silenced);
}

static const json_t *alarm_of_room(const struct ddpi_etcd_outcome *outcome)
{
    size_t i;
    const json_t *alarm;
    json_array_foreach(json_object_get(outcome->reply->root, "alarms"), i, alarm)
    {
        const char *kind = json_string_value(json_object_get(alarm, "alarm"));
        if (kind != NULL && strcmp(kind, "NOSPACE") == 0)
            return alarm;
    }
    return NULL;
}

/* A refused change has raised an alarm. A ddprund that ends for another reason has not. */
static void on_alarms(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    static const char any_key[] = "{\"key\":\"AA==\"}";
    struct keeper_room *room = call->ctx;
    const char *why = keeper_call_failure(outcome);
    const json_t *alarm = why == NULL ? alarm_of_room(outcome) : NULL;
    if (why != NULL)
        room->done(room->ctx, why);
    else if (alarm != NULL && !room->made)
        ask(room, "/v3/kv/range", any_key, STEP_MS, on_revision);
    else if (alarm != NULL)
        silence(room, alarm);
    else if (room->made)
        room->done(room->ctx, NULL);
}

void keeper_room_init(struct keeper_room *room)
{
    ddpi_etcd_call_init(&room->call);
}

void keeper_room_begin(struct keeper_room *room)
{
    if (ddpi_etcd_call_is_busy(&room->call))
        return;
    room->made = false;
    room->silenced = 0;
    ask_for_alarms(room);
}

void keeper_room_finish(struct keeper_room *room)
{
    ddpi_etcd_call_finish(room->client, &room->call);
    ddpi_etcd_call_init(&room->call);
}
