/*
 * etcd_codec.h - requests to etcd's JSON gateway as text, and its answers. Pure and bounded: what
 * the network gives is data to judge, each field is checked for its type, and numbers and base64
 * are read strictly. Answers of etcd 3.4 to 3.6 are understood.
 */
#ifndef DDPI_ETCD_CODEC_H
#define DDPI_ETCD_CODEC_H

#include "buf.h"
#include "bytes.h"

#include <ddprun/status.h>
#include <jansson.h>
#include <stdbool.h>

/* gRPC's codes, as far as they matter here. */
enum ddpi_etcd_code {
    DDPI_ETCD_OK = 0,
    DDPI_ETCD_UNKNOWN = 2,
    DDPI_ETCD_INVALID = 3,
    DDPI_ETCD_DEADLINE = 4,
    DDPI_ETCD_NOT_FOUND = 5, /* a lease */
    DDPI_ETCD_DENIED = 7,
    DDPI_ETCD_EXHAUSTED = 8, /* its database is full */
    DDPI_ETCD_EXISTS = 9,    /* a lease */
    DDPI_ETCD_RANGE = 11,    /* a revision is compacted, or in the future */
    DDPI_ETCD_UNAVAILABLE = 14,
    DDPI_ETCD_TOKEN = 16, /* the token of a user is not valid any more */
};

/* ---- requests: false, with @buf useless, if its limit or memory does not suffice ---- */

bool ddpi_etcd_put_text(struct ddpi_buf *buf, const char *text);
/* "name":"base64 of @bytes" */
bool ddpi_etcd_put_bytes(struct ddpi_buf *buf, const char *name, struct ddpi_bytes bytes);
/* "name":"number" */
bool ddpi_etcd_put_number(struct ddpi_buf *buf, const char *name, uint64_t number);

struct ddpi_etcd_range {
    struct ddpi_bytes key;
    struct ddpi_bytes end; /* len 0: only the key */
    uint64_t revision;     /* 0: the latest */
    uint32_t limit;        /* 0: none */
    bool keys_only;
};
bool ddpi_etcd_put_range(struct ddpi_buf *buf, const struct ddpi_etcd_range *range);

enum ddpi_etcd_op_kind { DDPI_ETCD_PUT, DDPI_ETCD_DELETE, DDPI_ETCD_DELETE_RANGE };

struct ddpi_etcd_op {
    enum ddpi_etcd_op_kind kind;
    struct ddpi_bytes key;
    struct ddpi_bytes value; /* of a put; the end of a range that is deleted */
    uint64_t lease;          /* of a put; 0: none */
};
bool ddpi_etcd_put_op(struct ddpi_buf *buf, const struct ddpi_etcd_op *op);

/* A comparison: the key was written last at @mod_revision (0: it does not exist), or has @value. */
bool ddpi_etcd_put_compare_mod(struct ddpi_buf *buf, struct ddpi_bytes key, uint64_t mod_revision);
bool ddpi_etcd_put_compare_value(struct ddpi_buf *buf, struct ddpi_bytes key,
                                 struct ddpi_bytes value);

/* The end of the range of all keys with @prefix, which must not be empty or end in 0xff: @prefix
 * with its last byte raised by one. */
bool ddpi_etcd_prefix_end(struct ddpi_bytes prefix, struct ddpi_buf *ret);

/* ---- answers ---- */

struct ddpi_etcd_reply {
    json_t *root; /* what a stream wraps in "result" is taken out */
    enum ddpi_etcd_code code;
    uint64_t revision; /* of the header */
    char message[200]; /* of an error */
};

/* Parse one answer. An error of etcd is one, with its code; DDP_E_PROTOCOL: it is none.
 * ddpi_etcd_reply_finish() is always allowed afterwards. */
ddp_status ddpi_etcd_reply_parse(struct ddpi_bytes text, struct ddpi_etcd_reply *ret,
                                 struct ddp_error *err);
void ddpi_etcd_reply_finish(struct ddpi_etcd_reply *reply);

/* A number of at most 64 bits, written as a JSON number or string; a missing one is 0. */
ddp_status ddpi_etcd_get_number(const json_t *object, const char *name, uint64_t *ret,
                                struct ddp_error *err);

/* Whether the comparisons of a transaction held. */
bool ddpi_etcd_succeeded(const struct ddpi_etcd_reply *reply);
/* The answer to operation @index of a transaction, which was a range; NULL: there is none. */
const json_t *ddpi_etcd_range_at(const struct ddpi_etcd_reply *reply, size_t index);

struct ddpi_etcd_kv {
    struct ddpi_bytes key;
    struct ddpi_bytes value;
    uint64_t mod_revision;
};

/* Pass each key of the answer to a range to @take, valid during the call; stops at a failure. */
ddp_status ddpi_etcd_each_kv(const json_t *range,
                             ddp_status (*take)(void *ctx, const struct ddpi_etcd_kv *kv,
                                                struct ddp_error *err),
                             void *ctx, struct ddp_error *err);

/* Standard base64 with padding, of which each row of bytes has one text. Appends the bytes to @ret;
 * false: it is none, or too long. */
bool ddpi_base64_get(const char *text, size_t len, struct ddpi_buf *ret);

#endif
