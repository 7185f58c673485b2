/*
 * tcpstore_peer.h - clients of the TCPStore dialect without a network: bytes go through the codec
 * to the core, replies come back as bytes.
 */
#ifndef TESTS_TCPSTORE_PEER_H
#define TESTS_TCPSTORE_PEER_H

#include "dialect.h"
#include "dialect_tcpstore.h"

enum { PEERS = 16 };

struct peer {
    struct ddpi_kv_client client;
    struct ddpi_dialect_state state;
    struct ddpi_buf in, out;
    bool closed;       /* by the codec, for the reason in @why, or by a reply without words */
    ddp_status status; /* of the close */
    struct ddp_error why;
    size_t need;   /* as of the last DDPI_DIALECT_MORE */
    bool overflow; /* a reply did not fit @out */
};

extern struct ddpi_kv *kv;
extern struct peer peers[PEERS];

/* A checked fixture: a core with the scope "t/", and peers that have not said anything. */
void peers_setup(void);
void peers_teardown(void);
/* The core and the peers once more, with other limits. */
void peers_make(const struct ddpi_kv_limits *limits);

/* All peers see what begins with @prefix from now on. */
void peers_scope(const char *prefix);

/* The bytes arrive as one segment. */
void peer_feed(struct peer *peer, const void *bytes, size_t len);
/* VALIDATE; returns the peer. */
struct peer *peer_open(int index);
void peer_close(struct peer *peer);

/* Drops what the peer has got, which must be these bytes and no more. */
void peer_got(struct peer *peer, const void *bytes, size_t len);
void peer_got_number(struct peer *peer, uint64_t number);

/* Requests, built in one static buffer: type, strings, lists, numbers in the order of the calls. */
struct ddpi_buf *request(uint8_t type);
void request_string(const char *text);
void request_bytes(const void *bytes, size_t len);
void request_u64(uint64_t number);
/* It arrives at @peer. */
void request_send(struct peer *peer);

#endif
