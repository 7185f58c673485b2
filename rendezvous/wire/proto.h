/*
 * proto.h - the native dialect: bytes <-> struct ddpi_message. No I/O, no state.
 *
 * Each side first sends a preamble of eight bytes, "DDPS" and the range of versions it speaks
 * (2 x u16); the highest that both know is spoken. The client's first frame, sent without
 * waiting, is HELLO, whose layout no version changes except by appending; the server's answer is
 * a frame of the same type, WELCOME. Where the client wants to prove who it is, the server's
 * CHALLENGE, which says which store it is, and the client's PROOF come between them, and after
 * PROOF each frame of either side but WELCOME, which has a proof of its own, has a seal behind it
 * (proof.h) which its length does not count. Then requests and replies flow freely: an id pairs
 * them, and a reply may overtake an earlier one that waits.
 *
 * A frame is a header of sixteen bytes and a payload; all integers are little-endian:
 *   u32 payload length   u8 type   i8 status (0 in requests)   u16 zero   u64 id
 * Keys and values are a u32 length and bytes; a list of keys, or of clauses (message.h), is a u32
 * count and that many of them.
 * The server's BYE (id 0) says why it is about to close. Before WELCOME anybody may have sent it;
 * so a server that does not let in who has proven himself says REFUSAL instead, which is sealed.
 *
 * Version 3 binds keys to the store; earlier ones, which do not, are not spoken any more.
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
    DDPI_FRAME_CHALLENGE = 3, /* the server's nonce, and which store it is */
    DDPI_FRAME_PROOF = 4,     /* the client's */
    DDPI_FRAME_REFUSAL = 5,   /* BYE, before WELCOME, to who has proven himself */
};

/* How the client proves who it is. */
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
    uint8_t nonce[DDPI_NONCE_SIZE]; /* zero where nothing is to be proven */
    /* Of an agent of the whole store: the one job for whose TCPStore clients, on its host, it
     * vouches; "": all. */
    char vouches_for[DDPI_JOB_MAX + 1];
};

struct ddpi_challenge {
    uint8_t nonce[DDPI_NONCE_SIZE];
    uint64_t store; /* its number, as in struct ddpi_identity */
};

/* What the server accepts from this client. */
struct ddpi_welcome {
    uint32_t key_max;
    uint32_t value_max;
    uint32_t many_max;
    uint64_t incarnation; /* another one: not the store it was, with other versions */
    /* That the server knows the key; zero where nobody asked. Always the last of the payload, as it
     * is about all that comes before it. */
    uint8_t proof[DDPI_PROOF_SIZE];
};

/* All _put functions append to @buf: the whole or, returning false, nothing. */

bool ddpi_preamble_put(struct ddpi_buf *buf, const struct ddpi_preamble *preamble);

/* @len bytes of a preamble (maybe not all yet) may be the beginning of one. */
bool ddpi_preamble_plausible(const void *bytes, size_t len);
/* false if it is none. */
bool ddpi_preamble_get(const uint8_t bytes[DDPI_PREAMBLE_SIZE], struct ddpi_preamble *ret);
/* The version to speak, 0 if there is none that both know. */
uint16_t ddpi_version_choose(const struct ddpi_preamble *a, const struct ddpi_preamble *b);

/* false if a reserved byte is set or the status is none. */
bool ddpi_frame_get(const uint8_t header[DDPI_FRAME_HEADER_SIZE], struct ddpi_frame *ret);

bool ddpi_hello_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_hello *hello);
/* A HELLO that ends behind its first field is that of an agent of no job. */
bool ddpi_hello_get(const void *payload, size_t len, struct ddpi_hello *ret);
bool ddpi_welcome_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_welcome *welcome);
bool ddpi_welcome_get(const void *payload, size_t len, struct ddpi_welcome *ret);
bool ddpi_challenge_put(struct ddpi_buf *buf, uint64_t id, const struct ddpi_challenge *challenge);
bool ddpi_challenge_get(const void *payload, size_t len, struct ddpi_challenge *ret);
bool ddpi_proof_put(struct ddpi_buf *buf, uint64_t id, const uint8_t proof[DDPI_PROOF_SIZE]);
bool ddpi_proof_get(const void *payload, size_t len, uint8_t ret[DDPI_PROOF_SIZE]);

/* A frame of @type that says no: what a failed reply looks like, and BYE. */
bool ddpi_refusal_put(struct ddpi_buf *buf, uint8_t type, uint64_t id, ddp_status status,
                      uint64_t version, struct ddpi_bytes text);
bool ddpi_refusal_get(const void *payload, size_t len, uint64_t *ret_version,
                      struct ddpi_bytes *ret_text);

/* false if no operation has this type. */
bool ddpi_op_of_type(uint8_t type, enum ddpi_op *ret);
uint8_t ddpi_type_of_op(enum ddpi_op op);

/* The longest payload that can be right, to be checked before anything is allocated for it. */
size_t ddpi_request_max(enum ddpi_op op);
size_t ddpi_reply_max(enum ddpi_op op);

/* The decoders' results: DDP_E_LIMIT, a field is longer than the protocol allows but the frame is
 * sound; DDP_E_PROTOCOL, the frame is not. */
bool ddpi_request_put(struct ddpi_buf *buf, const struct ddpi_message *request);
ddp_status ddpi_request_get(const struct ddpi_frame *frame, const void *payload,
                            struct ddpi_message *ret, struct ddp_error *err);
/* The key that a request names, without looking at the rest; false if it names none. */
bool ddpi_request_key(const struct ddpi_frame *frame, const void *payload,
                      struct ddpi_bytes *ret_key);
bool ddpi_reply_put(struct ddpi_buf *buf, const struct ddpi_message *reply);
ddp_status ddpi_reply_get(const struct ddpi_frame *frame, const void *payload,
                          struct ddpi_message *ret, struct ddp_error *err);

#endif
