/*
 * proto.h - the native dialect: bytes <-> struct ddpi_message. No I/O, no state.
 *
 * Each side first sends a preamble of eight bytes, "DDPS" and the range of versions that it speaks
 * (2 x u16); both use the highest common version. The client's first frame, sent without waiting,
 * is HELLO; versions only append to its layout. The server replies with a frame of the same type,
 * WELCOME. If the client authenticates, the server's CHALLENGE, which identifies the store, and the
 * client's PROOF come between them. After PROOF each frame of either side is followed by a seal
 * (proof.h), which its length does not count; only WELCOME has a proof of its own instead. Then
 * requests and replies flow freely: an id pairs them, and a reply may overtake an earlier one that
 * waits.
 *
 * A frame is a header of sixteen bytes and a payload; all integers are little-endian:
 *   u32 payload length   u8 type   i8 status (0 in requests)   u16 zero   u64 id
 * Keys and values are a u32 length and bytes; a list of keys, or of clauses (message.h), is a u32
 * count and that many of them.
 * The server's BYE (id 0) says why it closes the connection. Before WELCOME an attacker may have
 * sent it; so a server that refuses a client that has authenticated sends REFUSAL, which is sealed.
 *
 * Version 3 binds keys to the store; earlier versions, which do not, are no longer supported.
 */
#ifndef DDPI_PROTO_H
#define DDPI_PROTO_H

#include "message.h"
#include "proof.h"

enum {
    DDPI_PREAMBLE_SIZE = 8,
    DDPI_FRAME_HEADER_SIZE = 16,
    DDPI_VERSION_MIN = 3,
    DDPI_VERSION_MAX = 3,
    DDPI_CHALLENGE_SIZE = DDPI_NONCE_SIZE + 8, /* payload bytes */
    DDPI_HELLO_MAX = 952, /* payload bytes: with preamble and PROOF 1 KiB before authentication */
};

#define DDPI_MAGIC "DDPS"

/* Frames of the connection itself; the operations have theirs in proto.def. */
enum ddpi_frame_type {
    DDPI_FRAME_HELLO = 1,
    DDPI_FRAME_BYE = 2,
    DDPI_FRAME_CHALLENGE = 3, /* the server's nonce, and the number of the store */
    DDPI_FRAME_PROOF = 4,     /* the client's */
    DDPI_FRAME_REFUSAL = 5,   /* BYE, before WELCOME, to a client that has authenticated */
};

/* How the client authenticates. */
enum ddpi_auth { DDPI_AUTH_NONE = 0, DDPI_AUTH_HMAC = 1 };

struct ddpi_preamble {
    uint16_t version_min;
    uint16_t version_max;
};

struct ddpi_frame {
    uint32_t payload_len;
    uint8_t type;
    ddp_status status;
    uint64_t id;
};

struct ddpi_hello {
    uint32_t auth; /* enum ddpi_auth */
    struct ddpi_identity identity;
    uint8_t nonce[DDPI_NONCE_SIZE]; /* zero without authentication */
    /* Of an agent of the whole store: it vouches for TCPStore clients on its host of this job only;
     * "": of all jobs. */
    char vouches_for[DDPI_JOB_MAX + 1];
};

struct ddpi_challenge {
    uint8_t nonce[DDPI_NONCE_SIZE];
    uint64_t store; /* its number, as in struct ddpi_identity */
};

/* What the server accepts of this client. */
struct ddpi_welcome {
    uint32_t key_max;
    uint32_t value_max;
    uint32_t many_max;
    uint64_t incarnation; /* if it differs from an earlier one, this is another store, with other
                             versions */
    /* Proves that the server knows the key; zero without authentication. Always the end of the
     * payload, as it covers all that comes before it. */
    uint8_t proof[DDPI_PROOF_SIZE];
};

/* All _put functions append all to @buf, or return false and append nothing. */

bool ddpi_preamble_put(struct ddpi_buf *buf, const struct ddpi_preamble *preamble);

/* Whether these @len bytes may be the beginning of a preamble, or all of it. */
bool ddpi_preamble_plausible(const void *bytes, size_t len);
/* false if it is none. */
bool ddpi_preamble_get(const uint8_t bytes[DDPI_PREAMBLE_SIZE], struct ddpi_preamble *ret);
/* The highest common version; 0: there is none. */
uint16_t ddpi_version_choose(const struct ddpi_preamble *a, const struct ddpi_preamble *b);

/* false if a reserved byte is set, or the status is unknown. */
bool ddpi_frame_get(const uint8_t header[DDPI_FRAME_HEADER_SIZE], struct ddpi_frame *ret);

bool ddpi_hello_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_hello *hello);
/* A HELLO that ends after its first field is that of an agent of no job. */
bool ddpi_hello_get(const void *payload, size_t len, struct ddpi_hello *ret);
bool ddpi_welcome_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_welcome *welcome);
bool ddpi_welcome_get(const void *payload, size_t len, struct ddpi_welcome *ret);
bool ddpi_challenge_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_challenge *challenge);
bool ddpi_challenge_get(const void *payload, size_t len, struct ddpi_challenge *ret);
bool ddpi_proof_put(struct ddpi_buf *buf, uint64_t id, const uint8_t proof[DDPI_PROOF_SIZE]);
bool ddpi_proof_get(const void *payload, size_t len, uint8_t ret[DDPI_PROOF_SIZE]);

/* A frame of @type that refuses: a failed reply, or BYE. */
bool ddpi_refusal_put(struct ddpi_buf *buf, uint8_t type, uint64_t id, ddp_status status,
                      uint64_t version, struct ddpi_bytes text);
bool ddpi_refusal_get(const void *payload, size_t len, uint64_t *ret_version,
                      struct ddpi_bytes *ret_text);

/* false if no operation has this type. */
bool ddpi_op_of_type(uint8_t type, enum ddpi_op *ret);
uint8_t ddpi_type_of_op(enum ddpi_op op);

/* The longest payload that can be valid; checked before memory is allocated for it. */
size_t ddpi_request_max(enum ddpi_op op);
size_t ddpi_reply_max(enum ddpi_op op);

/* The decoders fail with DDP_E_LIMIT if a field is longer than the protocol allows in a frame that
 * is well-formed, and with DDP_E_PROTOCOL if the frame is malformed. */
bool ddpi_request_put(struct ddpi_buf *buf, const struct ddpi_message *request);
ddp_status ddpi_request_get(const struct ddpi_frame *frame, const void *payload,
                            struct ddpi_message *ret, struct ddp_error *err);
/* The key that a request names, without reading the rest; false if it names none. */
bool ddpi_request_key(const struct ddpi_frame *frame, const void *payload,
                      struct ddpi_bytes *ret_key);
bool ddpi_reply_put(struct ddpi_buf *buf, const struct ddpi_message *reply);
ddp_status ddpi_reply_get(const struct ddpi_frame *frame, const void *payload,
                          struct ddpi_message *ret, struct ddp_error *err);

#endif
