/*
 * membership.c - a membership, from its first publication until it is lost.
 *
 * The happy path: open and hold a session, whose number becomes the member's; watch the seat; set
 * the member key, and set it again after each change. Each answer is matched to its request by
 * number; an answer to a request that is no longer pending is dropped.
 *
 * Possible failure modes are:
 *   - the connection is lost: publications that may not have arrived are sent again on the next
 *     one; the client keeps the session and resumes the watch itself;
 *   - the session has ended, or the server refuses a request: the member is lost, and the next
 *     publication opens a new session; after a refusal it first waits 0.1 s to 5 s.
 */
#include "address.h"
#include "client_store.h"
#include "parse.h"
#include "round_impl.h"
#include "round_names.h"
#include "round_record.h"
#include "uv_handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

DDPI_SM_DEFINE(ddpi_round_client, ROUND_STATES);

enum { REST_FIRST_MS = 100, REST_MOST_MS = 5000 };

enum { KEY_SIZE = sizeof DDPI_ROUND_PREFIX "/member/" + DDPI_JOB_MAX + 24 };

static void key_of(const ddp_round *round, const char *kind, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, DDPI_ROUND_PREFIX "%s/%s/%" PRIu64, round->job, kind, round->id);
}

static ddp_status submit_request(ddp_round *round, struct ddp_store_request request,
                                 ddp_store_uv_done *done, uint64_t *ret_request,
                                 struct ddp_error *err)
{
    request.size = sizeof request;
    request.timeout_ms = DDP_STORE_FOREVER;
    return ddp_store_uv_submit(round->store, &request, done, round, ret_request, err);
}

/* True for an answer to a request of an earlier membership, or while @round closes. */
static bool is_stale(const ddp_round *round, const struct ddp_store_result *result, uint64_t asked)
{
    return round->closing || result->request != asked;
}

/* ---- losing the membership ---- */

void ddpi_round_forget(ddp_round *round)
{
    struct ddp_store_request unwatch = {
        .size = sizeof unwatch, .op = DDP_STORE_OP_UNWATCH, .watch = round->watch};
    if (round->watch != 0)
        (void)!ddp_store_uv_submit(round->store, &unwatch, NULL, NULL, NULL, NULL);
    round->watch = round->asked = round->member.request = round->node.request = 0;
    round->known = false;
    round->member.due = false;
    round->node.due = round->description != NULL;
    round->seat = (struct ddp_round_seat){0};
}

/* Needs no answer: if the request does not arrive, the lease ends the session. */
static void close_session(ddp_round *round, const struct ddp_store_session *session)
{
    const struct ddp_store_request close = {.size = sizeof close,
                                            .op = DDP_STORE_OP_SESSION_CLOSE,
                                            .timeout_ms = round->lease_ms,
                                            .session = session};
    (void)!ddp_store_uv_submit(round->store, &close, NULL, NULL, NULL, NULL);
}

/* Closing a session tells the server that no worker of the member runs any more, which may not be
 * true. So the session stays open until the server has the next membership's publication. */
static void keep_old_session(ddp_round *round)
{
    if (!round->known) {
        close_session(round, &round->session);
        return;
    }
    round->old = round->session;
    round->has_old = true;
}

void ddpi_round_end_old(ddp_round *round)
{
    if (round->has_old)
        close_session(round, &round->old);
    round->has_old = false;
}

static void report_lost(ddp_round *round, const char *why)
{
    ddpi_sm_move(&round->sm, ROUND_ABSENT);
    ddpi_round_forget(round);
    round->hooks.lost(round->hooks.data, why);
}

static bool can_be_lost(const ddp_round *round)
{
    return (round->sm.state == ROUND_OPENING || round->sm.state == ROUND_JOINED) && !round->closing;
}

void ddpi_round_lose_session(ddp_round *round, const char *why)
{
    if (can_be_lost(round))
        report_lost(round, why);
}

/* After a failure that leaves the session open. */
static void lose_membership(ddp_round *round, const char *why)
{
    if (!can_be_lost(round))
        return;
    if (round->sm.state == ROUND_JOINED)
        keep_old_session(round);
    report_lost(round, why);
}

static void on_rested(void *data)
{
    ddp_round *round = data;
    round->resting = false;
    ddpi_round_go_on(round);
}

/* The server refused a request. Back off, as an immediate retry would fail again; with a random
 * part, so that the members that are refused together do not retry together. */
static void take_refusal(ddp_round *round, const char *why)
{
    uint32_t rest_ms = round->rest_ms == 0 ? REST_FIRST_MS : 2 * round->rest_ms;
    round->rest_ms = rest_ms < REST_MOST_MS ? rest_ms : REST_MOST_MS;
    round->resting = true;
    ddpi_uv_later(round->store, round->rest_ms / 2 + ddpi_uv_random() % (round->rest_ms / 2 + 1),
                  on_rested, round);
    lose_membership(round, why);
}

/* ---- seats ---- */

/* The host of the store, unless the seat names another. It stays during a generation, even if
 * another server has taken the store over. */
static void fill_master_address(const ddp_round *round, struct ddp_round_seat *seat)
{
    const struct ddp_round_seat *last = &round->seat;
    bool known = last->generation == seat->generation && last->master_address[0] != '\0';
    if (seat->master_address[0] == '\0')
        snprintf(seat->master_address, sizeof seat->master_address, "%s",
                 known ? last->master_address : ddpi_store_uv_host(round->store));
}

static void change_seat(ddp_round *round, const void *record, size_t len)
{
    struct ddp_round_seat seat;
    struct ddp_error err;
    if (ddpi_round_seat_get(ddpi_bytes_of(record, len), &seat, &err) != DDP_OK) {
        lose_membership(round, err.msg);
        return;
    }
    fill_master_address(round, &seat);
    if (memcmp(&seat, &round->seat, sizeof seat) == 0)
        return;
    round->seat = seat;
    round->hooks.seat(round->hooks.data, &seat);
}

static void on_seat_read(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    if (result->status == DDP_OK)
        change_seat(round, result->value, result->value_len);
    else if (result->status != DDP_E_NOT_FOUND) /* without a key, it has no seat yet */
        take_refusal(round, result->message);
}

/* After events of the watch were dropped. */
static void read_seat(ddp_round *round)
{
    char key[KEY_SIZE];
    struct ddp_error err;
    key_of(round, "seat", key);
    if (submit_request(round, (struct ddp_store_request){.op = DDP_STORE_OP_TRY_GET, .key = key},
                       on_seat_read, &round->asked, &err) != DDP_OK)
        lose_membership(round, err.msg);
}

void ddpi_round_on_event(void *data, ddp_store_uv *store, const struct ddp_store_event *event)
{
    ddp_round *round = data;
    (void)store;
    if (event->watch != round->watch && round->pass != NULL && !round->closing)
        round->pass(round->pass_data, event);
    if (round->sm.state != ROUND_JOINED || event->watch != round->watch)
        return;
    if (event->kind == DDP_STORE_EVENT_SET)
        change_seat(round, event->value, event->value_len);
    else if (event->kind == DDP_STORE_EVENT_DELETED)
        lose_membership(round, "the server has removed this member");
    else if (event->value_len > 0)
        lose_membership(round, event->value);
    else
        read_seat(round);
}

/* ---- publishing ---- */

static void take_set_reply(ddp_round *round, struct part *part,
                           const struct ddp_store_result *result)
{
    if (is_stale(round, result, part->request))
        return;
    part->request = 0;
    bool sure = result->status == DDP_OK, maybe = result->status == DDP_E_CLOSED;
    if (part == &round->member) {
        round->known = round->known || sure || maybe;
        if (sure) {
            round->rest_ms = 0;
            ddpi_round_end_old(round);
        }
    }
    if (maybe)
        part->due = true;
    else if (result->status == DDP_E_NOT_FOUND)
        ddpi_round_lose_session(round, result->message);
    else if (!sure && part == &round->member) /* the description is not essential */
        take_refusal(round, result->message);
    ddpi_round_go_on(round);
}

static void on_member_set(void *data, const struct ddp_store_result *result)
{
    take_set_reply(data, &((ddp_round *)data)->member, result);
}

static void on_node_set(void *data, const struct ddp_store_result *result)
{
    take_set_reply(data, &((ddp_round *)data)->node, result);
}

static ddp_status set_part(ddp_round *round, struct part *part, struct ddpi_bytes value,
                           ddp_store_uv_done *done, struct ddp_error *err)
{
    char key[KEY_SIZE];
    key_of(round, part->kind, key);
    ddp_status status = submit_request(round,
                                       (struct ddp_store_request){.op = DDP_STORE_OP_SET_EPHEMERAL,
                                                                  .key = key,
                                                                  .value = value.data,
                                                                  .value_len = value.len,
                                                                  .session = &round->session},
                                       done, &part->request, err);
    part->due = status != DDP_OK;
    return status;
}

/* The local address of the connection to the store. If that is loopback, as for a machine that has
 * its own name at 127.0.1.1, others reach this one by the name that leads there. */
static void own_address(const ddp_round *round, char *text, size_t size)
{
    struct sockaddr_storage name = {0};
    socklen_t len = sizeof name;
    char host[DDPI_ADDRESS_CHARS];
    const char *store = ddpi_store_uv_host(round->store);
    int fd = ddp_store_uv_socket(round->store);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &len) != 0)
        return;
    struct ddpi_address address = ddpi_address_of((const struct sockaddr *)&name);
    ddpi_address_format(&address, host);
    bool by_name = ddpi_address_is_loopback(&address) && !ddpi_host_is_address(store) &&
                   !ddpi_host_is_loopback(store);
    snprintf(text, size, "%s", by_name ? store : host);
}

ddp_status ddpi_round_send_member(ddp_round *round, struct ddp_error *err)
{
    struct ddp_round_member member = round->says;
    struct ddpi_buf record;
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    if (member.address[0] == '\0')
        own_address(round, member.address, sizeof member.address);
    ddp_status status = ddpi_round_member_put(&record, &member, err);
    if (status == DDP_OK)
        status = set_part(round, &round->member,
                          ddpi_bytes_of(ddpi_buf_head(&record), ddpi_buf_len(&record)),
                          on_member_set, err);
    ddpi_buf_finish(&record);
    return status;
}

/* Send the keys that are due; without a connection they stay due, and newer values replace them. */
static ddp_status send_due(ddp_round *round, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (!round->connected)
        return DDP_OK;
    if (round->member.due && round->member.request == 0)
        status = ddpi_round_send_member(round, err);
    if (status == DDP_OK && round->node.due && round->node.request == 0)
        status = set_part(round, &round->node,
                          ddpi_bytes_of(round->description, strlen(round->description)),
                          on_node_set, err);
    return status;
}

/* ---- joining ---- */

static void on_watched(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    if (result->status == DDP_OK)
        round->watch = result->watch;
    else
        take_refusal(round, result->message);
}

static ddp_status watch_seat(ddp_round *round, struct ddp_error *err)
{
    char key[KEY_SIZE];
    key_of(round, "seat", key);
    return submit_request(round, (struct ddp_store_request){.op = DDP_STORE_OP_WATCH, .key = key},
                          on_watched, &round->asked, err);
}

/* A session's token begins with its number (proto.def). */
static uint64_t number_of(const struct ddp_store_session *session)
{
    struct ddpi_rd rd = ddpi_rd_of(session->token, sizeof session->token);
    return ddpi_rd_u64(&rd);
}

static void on_session_opened(void *data, const struct ddp_store_result *result)
{
    ddp_round *round = data;
    if (is_stale(round, result, round->asked))
        return;
    round->asked = 0;
    struct ddp_error err;
    if (result->status == DDP_E_CLOSED) { /* if it was opened, its lease ends it */
        ddpi_sm_move(&round->sm, ROUND_ABSENT);
    } else if (result->status != DDP_OK) {
        take_refusal(round, result->message);
    } else {
        round->session = *result->session;
        round->id = number_of(&round->session);
        ddpi_sm_move(&round->sm, ROUND_JOINED);
        if (watch_seat(round, &err) != DDP_OK)
            lose_membership(round, err.msg);
    }
    ddpi_round_go_on(round);
}

static ddp_status open_session(ddp_round *round, struct ddp_error *err)
{
    ddp_status status = submit_request(round,
                                       (struct ddp_store_request){.op = DDP_STORE_OP_SESSION_OPEN,
                                                                  .lease_ms = round->lease_ms,
                                                                  .flags = DDP_STORE_HOLD},
                                       on_session_opened, &round->asked, err);
    if (status == DDP_OK)
        ddpi_sm_move(&round->sm, ROUND_OPENING);
    return status;
}

ddp_status ddpi_round_kick(ddp_round *round, struct ddp_error *err)
{
    if (round->sm.state == ROUND_ABSENT && round->member.due && !round->resting)
        return open_session(round, err);
    return round->sm.state == ROUND_JOINED ? send_due(round, err) : DDP_OK;
}

void ddpi_round_go_on(ddp_round *round)
{
    struct ddp_error err;
    if (!round->closing && ddpi_round_kick(round, &err) != DDP_OK)
        lose_membership(round, err.msg);
}
