/*
 * conversation.c - plays a conversation and watches over the dialect's promises: a step says what
 * it used or what it needs, no reader waits for more than the frame has, and all that the client
 * left in the core is gone with it.
 */
#include "conversation.h"

#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

enum { OUT_MAX = 1024 * 1024 };

/* Small, so that inputs of a few hundred bytes reach them. */
static const struct ddpi_kv_limits limits = {
    .room = {[KV_ROOM_KEYS] = 16, [KV_ROOM_BYTES] = 16 * 1024},
    .key_len = 64,
    .value_len = 256,
    .keys_per_wait = 8,
    .waits_per_client = 4,
    .tcpstore_key_len = 48,
    .tcpstore_value_len = 256,
    .tcpstore_many = 16,
};

static const struct ddpi_gate gate; /* without a token: fuzz_handshake has one */

struct player {
    const struct ddpi_dialect *dialect;
    check_request *check;
    struct ddpi_kv *kv;
    struct ddpi_kv_client client;
    struct ddpi_dialect_state state;
    size_t promised; /* the most that the frame being read was said to have, at least */
    struct conversation talk;
};

static void on_reply(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    struct player *player = ctx;
    struct conversation *talk = &player->talk;
    HOLDS(client == &player->client);
    if (talk->closed)
        return;
    size_t before = ddpi_buf_len(&talk->out);
    talk->status = player->dialect->put_reply(&player->state, &talk->out, reply);
    talk->closed = talk->status != DDP_OK;
    HOLDS(!talk->closed || ddpi_buf_len(&talk->out) == before);
}

static void start(struct player *player)
{
    static const uint8_t seed[DDPI_SEED_SIZE] = {1};
    player->kv = ddpi_kv_create(&limits, seed, on_reply, player);
    HOLDS(player->kv != NULL);
    ddpi_kv_client_init(&player->client);
    player->client.tcpstore = player->dialect->tcpstore;
    HOLDS(ddpi_kv_scope_get(player->kv, ddpi_bytes_of("t/", 2), &player->client.scope, NULL) ==
          DDP_OK);
    player->state.limits = &limits;
    player->state.gate = &gate;
    ddpi_buf_init(&player->talk.out, OUT_MAX);
}

/* Time passes until nobody waits any more; then the client goes, and all keys. */
static void end(struct player *player)
{
    for (uint64_t now; (now = ddpi_kv_next_deadline(player->kv)) != UINT64_MAX;)
        ddpi_kv_expire(player->kv, now);
    ddpi_kv_client_gone(player->kv, &player->client);
    ddpi_kv_scope_put(player->kv, player->client.scope);
    ddpi_kv_delete_prefix(player->kv, ddpi_bytes_of("", 0));
    struct ddpi_kv_stats stats = ddpi_kv_stats(player->kv);
    HOLDS(stats.keys == 0 && stats.bytes == 0 && stats.waits == 0);
    ddpi_kv_destroy(player->kv);
}

static void check_step(const struct player *player, const struct ddpi_dialect_step *step,
                       ddp_status status, size_t len)
{
    HOLDS(step->kind == DDPI_DIALECT_CLOSE || status == DDP_OK);
    HOLDS(step->kind != DDPI_DIALECT_MORE || step->need > len);
    if (step->kind == DDPI_DIALECT_REQUEST || step->kind == DDPI_DIALECT_ANSWERED) {
        HOLDS(step->used > 0 && step->used <= len);
        HOLDS(player->promised <= step->used || player->state.keys > 0);
    }
    HOLDS(step->kind != DDPI_DIALECT_REQUEST || player->state.open);
}

/* One step on the first @len bytes at @bytes; 0 at the end of them or of the conversation. */
static size_t take_step(struct player *player, const uint8_t *bytes, size_t len)
{
    struct ddpi_dialect_step step;
    struct ddp_error err;
    uint8_t *exact = fuzz_copy(bytes, len);
    struct conversation *talk = &player->talk;
    ddp_status status = player->dialect->next(&player->state, exact, len, &talk->out, &step, &err);
    check_step(player, &step, status, len);
    if (step.kind == DDPI_DIALECT_REQUEST) {
        player->check(&step.request, exact, step.used);
        talk->requests++;
        ddpi_kv_apply(player->kv, &player->client, &step.request, 0);
    }
    free(exact);
    if (step.kind == DDPI_DIALECT_CLOSE) {
        fuzz_check_error(&err, status);
        if (player->dialect->put_farewell != NULL)
            player->dialect->put_farewell(&player->state, &talk->out, status, err.msg);
        talk->closed = true;
        talk->status = status;
        return 0;
    }
    bool more = step.kind == DDPI_DIALECT_MORE;
    player->promised = !more ? 0 : step.need > player->promised ? step.need : player->promised;
    return more ? 0 : step.used;
}

/* The next piece's length: any from 1 to @max, depending on the @state only. */
static size_t piece(uint32_t *state, uint8_t max)
{
    *state = *state * 1664525u + 1013904223u;
    return max == 0 ? 1 : 1 + (*state >> 16) % max;
}

static struct conversation play(const struct ddpi_dialect *dialect, check_request *check,
                                const uint8_t *bytes, size_t len, bool whole, uint8_t max)
{
    struct player player = {.dialect = dialect, .check = check};
    struct conversation *talk = &player.talk;
    uint32_t state = max;
    start(&player);
    for (size_t there = 0; there < len && !talk->closed;) {
        size_t arrives = whole ? len : piece(&state, max);
        there = arrives < len - there ? there + arrives : len;
        for (size_t used = 1; used > 0 && talk->used < there && !talk->closed;) {
            used = take_step(&player, bytes + talk->used, there - talk->used);
            talk->used += used;
        }
    }
    end(&player);
    return *talk;
}

struct conversation converse(const struct ddpi_dialect *dialect, check_request *check,
                             const uint8_t *data, size_t size)
{
    uint8_t max = size > 0 ? data[0] : 0;
    const uint8_t *bytes = size > 0 ? data + 1 : data;
    size_t len = size > 0 ? size - 1 : 0;
    struct conversation whole = play(dialect, check, bytes, len, true, max);
    struct conversation split = play(dialect, check, bytes, len, false, max);
    HOLDS(whole.closed == split.closed && whole.status == split.status);
    HOLDS(whole.requests == split.requests && whole.used == split.used);
    size_t out = ddpi_buf_len(&whole.out);
    HOLDS(out == ddpi_buf_len(&split.out));
    HOLDS(out == 0 || memcmp(ddpi_buf_head(&whole.out), ddpi_buf_head(&split.out), out) == 0);
    conversation_finish(&split);
    return whole;
}

void conversation_finish(struct conversation *talk)
{
    ddpi_buf_finish(&talk->out);
}
