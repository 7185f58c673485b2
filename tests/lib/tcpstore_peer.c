/*
 * tcpstore_peer.c - clients of the TCPStore dialect without a network. Does what a connection does
 * with steps and replies, on bytes in blocks of their exact size, so that a sanitizer sees a read
 * behind their end.
 */
#include "tcpstore_peer.h"

#include "check_main.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER_MAX = 256 * 1024 * 1024 };

struct ddpi_kv *kv;
struct peer peers[PEERS];
static struct ddpi_buf building;
static struct ddpi_kv_limits limits_now;
static const uint8_t seed[DDPI_SEED_SIZE] = {1};

static void on_reply(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    (void)ctx;
    struct peer *peer = ddpi_container_of(client, struct peer, client);
    if (peer->closed || peer->overflow)
        return;
    ddp_status status = ddpi_dialect_tcpstore.put_reply(&peer->state, &peer->out, reply);
    ck_assert(status == DDP_OK || status == DDP_E_NOMEM || status == DDP_E_CLOSED);
    peer->overflow = status == DDP_E_NOMEM;
    if (status == DDP_E_CLOSED) {
        peer->closed = true;
        peer->status = reply->status;
    }
}

void peers_make(const struct ddpi_kv_limits *limits)
{
    peers_teardown();
    limits_now = *limits;
    kv = ddpi_kv_create(&limits_now, seed, on_reply, NULL);
    ck_assert_ptr_nonnull(kv);
    ddpi_buf_init(&building, BUFFER_MAX);
    for (int i = 0; i < PEERS; i++) {
        peers[i] = (struct peer){.state.limits = &limits_now};
        ddpi_kv_client_init(&peers[i].client);
        peers[i].client.tcpstore = true;
        ddpi_buf_init(&peers[i].in, BUFFER_MAX);
        ddpi_buf_init(&peers[i].out, BUFFER_MAX);
    }
    peers_scope("t/");
}

static void set_scope(struct peer *peer, const char *prefix)
{
    ddpi_kv_scope_put(kv, peer->client.scope);
    peer->client.scope = NULL;
    if (prefix != NULL)
        ck_assert_int_eq(
            ddpi_kv_scope_get(kv, ddpi_bytes_of(prefix, strlen(prefix)), &peer->client.scope, NULL),
            DDP_OK);
}

void peers_scope(const char *prefix)
{
    for (int i = 0; i < PEERS; i++)
        set_scope(&peers[i], prefix);
}

void peers_setup(void)
{
    peers_make(&ddpi_kv_limits_default);
}

void peers_teardown(void)
{
    if (kv == NULL)
        return;
    for (int i = 0; i < PEERS; i++) {
        peer_close(&peers[i]);
        set_scope(&peers[i], NULL);
        ddpi_buf_finish(&peers[i].in);
        ddpi_buf_finish(&peers[i].out);
    }
    ddpi_buf_finish(&building);
    ddpi_kv_delete_prefix(kv, ddpi_bytes_of("", 0));
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ddpi_kv_destroy(kv);
    kv = NULL;
}

void peer_close(struct peer *peer)
{
    peer->closed = true;
    ddpi_kv_client_gone(kv, &peer->client);
}

/* false: nothing whole is left, or the peer has been closed. */
static bool take_one(struct peer *peer)
{
    size_t len = ddpi_buf_len(&peer->in);
    if (len == 0 || peer->closed)
        return false;
    uint8_t *exact = malloc(len);
    memcpy(exact, ddpi_buf_head(&peer->in), len);
    struct ddpi_dialect_step step;
    ddp_status status =
        ddpi_dialect_tcpstore.next(&peer->state, exact, len, &peer->out, &step, &peer->why);
    if (step.kind == DDPI_DIALECT_REQUEST)
        ddpi_kv_apply(kv, &peer->client, &step.request, 0);
    free(exact);
    if (step.kind == DDPI_DIALECT_CLOSE) {
        peer->status = status;
        peer->closed = true;
    } else {
        ck_assert_int_eq(status, DDP_OK);
    }
    if (step.kind == DDPI_DIALECT_MORE) {
        ck_assert_uint_gt(step.need, len);
        peer->need = step.need;
        return false;
    }
    if (peer->closed) {
        peer_close(peer);
        return false;
    }
    ck_assert(step.used > 0 && step.used <= len);
    ddpi_buf_consume(&peer->in, step.used);
    return true;
}

void peer_feed(struct peer *peer, const void *bytes, size_t len)
{
    ck_assert(ddpi_buf_append(&peer->in, bytes, len));
    while (take_one(peer)) {
    }
}

struct peer *peer_open(int index)
{
    peer_feed(&peers[index], DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE);
    ck_assert(peers[index].state.open);
    return &peers[index];
}

void peer_got(struct peer *peer, const void *bytes, size_t len)
{
    ck_assert_uint_eq(ddpi_buf_len(&peer->out), len);
    ck_assert(len == 0 || memcmp(ddpi_buf_head(&peer->out), bytes, len) == 0);
    ddpi_buf_consume(&peer->out, len);
}

void peer_got_number(struct peer *peer, uint64_t number)
{
    ck_assert_uint_eq(ddpi_buf_len(&peer->out), 8);
    struct ddpi_rd rd = ddpi_rd_of(ddpi_buf_head(&peer->out), 8);
    ck_assert_uint_eq(ddpi_rd_u64(&rd), number);
    ddpi_buf_consume(&peer->out, 8);
}

struct ddpi_buf *request(uint8_t type)
{
    ddpi_buf_consume(&building, ddpi_buf_len(&building));
    ck_assert(ddpi_buf_put_u8(&building, type));
    return &building;
}

void request_u64(uint64_t number)
{
    ck_assert(ddpi_buf_put_u64(&building, number));
}

void request_bytes(const void *bytes, size_t len)
{
    request_u64(len);
    ck_assert(ddpi_buf_append(&building, bytes, len));
}

void request_string(const char *text)
{
    request_bytes(text, strlen(text));
}

void request_send(struct peer *peer)
{
    peer_feed(peer, ddpi_buf_head(&building), ddpi_buf_len(&building));
}
