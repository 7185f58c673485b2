/*
 * proof.h - the identity of a peer of the native dialect, how the peer proves it, and how later
 * frames are protected from changes. Pure: no I/O, no clock, no randomness of its own. The owner of
 * a struct with a secret wipes it with ddpi_wipe().
 *
 * A token is 32 random bytes that the machines of one user share. The key of each identity, a role
 * in a job and epoch at one store, is derived from it by HKDF-SHA-256: a process that has only such
 * a key cannot take another role, nor the same role at a store that has begun anew. Both sides add
 * all bytes that they have sent to a transcript, and each proves that it knows the key by an HMAC
 * of the transcript; a proof is of no use in another connection.
 */
#ifndef DDPI_PROOF_H
#define DDPI_PROOF_H

#include "buf.h"
#include "bytes.h"

#include <ddprun/status.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    DDPI_KEY_SIZE = 32,   /* a token, or the key of an identity */
    DDPI_NONCE_SIZE = 32, /* of either side */
    DDPI_PROOF_SIZE = 32,
    DDPI_SEAL_SIZE = 16, /* after each frame */
    DDPI_JOB_MAX = 64,
};

/* X(symbol, number on the wire, name), from most to least privileged. A keeper (ddprund --cluster)
 * may only ask how another one is. */
#define DDPI_ROLES(X)          \
    X(AGENT, 0, "agent")       \
    X(WORKER, 1, "worker")     \
    X(OBSERVER, 2, "observer") \
    X(KEEPER, 3, "keeper")

enum ddpi_role {
#define DDPI_ROLE(symbol, number, name) DDPI_ROLE_##symbol = number,
    DDPI_ROLES(DDPI_ROLE)
#undef DDPI_ROLE
};

/* The job of nodes that gave theirs no name, as with torchrun. */
#define DDPI_JOB_UNNAMED "none"

struct ddpi_identity {
    enum ddpi_role role;
    char job[DDPI_JOB_MAX + 1]; /* "": no job; access to the whole store */
    uint64_t epoch;
    bool proven;    /* else it is only claimed */
    uint64_t store; /* the number of its store, which is not secret */
};

/* NULL if no role has this number. */
const char *ddpi_role_name(unsigned role);
/* false if no role has this name. */
bool ddpi_role_of_name(const char *name, enum ddpi_role *ret);

/* 1 to DDPI_JOB_MAX bytes of [A-Za-z0-9._-], not beginning with '.'; not "-" alone, which means "no
 * job" in a key file. */
bool ddpi_job_valid(const char *name, size_t len);

/* A valid name for the job that its user calls @text: '_' stands for each byte that a name must not
 * have, and what is too long is cut. The same as @text if that is valid. */
void ddpi_job_name(const char *text, char ret[DDPI_JOB_MAX + 1]);

/* ---- keys ---- */

/* RFC 5869 with SHA-256. @len is at most 255 * 32. */
void ddpi_hkdf_extract(const void *salt, size_t salt_len, const void *secret, size_t secret_len,
                       uint8_t ret_key[DDPI_KEY_SIZE]);
void ddpi_hkdf_expand(const uint8_t key[DDPI_KEY_SIZE], const void *info, size_t info_len,
                      uint8_t *ret, size_t len);

/* What a client or server authenticates with. */
struct ddpi_credential {
    bool is_token;                 /* can take any identity; else: */
    struct ddpi_identity identity; /* the identity of the key */
    uint8_t secret[DDPI_KEY_SIZE];
};

/* Whether the credential can prove @identity, at any store. DDP_E_DENIED: it is the key of another
 * identity. */
ddp_status ddpi_credential_fits(const struct ddpi_credential *credential,
                                const struct ddpi_identity *identity, struct ddp_error *err);

/* The key of @identity. DDP_E_DENIED: the credential is the key of another identity or store. */
ddp_status ddpi_credential_key(const struct ddpi_credential *credential,
                               const struct ddpi_identity *identity, uint8_t ret_key[DDPI_KEY_SIZE],
                               struct ddp_error *err);

void ddpi_wipe(void *secret, size_t len);

/* ---- the handshake ---- */

enum ddpi_side { DDPI_SIDE_CLIENT, DDPI_SIDE_SERVER };

struct ddpi_handshake {
    crypto_hash_sha256_state transcript;
    uint8_t key[DDPI_KEY_SIZE]; /* of the identity; set by the caller before it is needed */
};

void ddpi_handshake_begin(struct ddpi_handshake *handshake);

/* Add what either side has sent, in order. */
void ddpi_handshake_add(struct ddpi_handshake *handshake, const void *bytes, size_t len);

void ddpi_handshake_prove(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          uint8_t ret_proof[DDPI_PROOF_SIZE]);
/* In constant time. */
bool ddpi_handshake_check(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          const uint8_t proof[DDPI_PROOF_SIZE]);

/* ---- sealed frames ---- */

struct ddpi_seal {
    uint8_t keys[2][crypto_shorthash_siphashx24_KEYBYTES];
    uint64_t sequence; /* of the next frame */
};

/* Of one connection: for received and sent frames. */
struct ddpi_seals {
    bool on; /* else frames have no seal */
    struct ddpi_seal in;
    struct ddpi_seal out;
};

/* The seal of frame number @sequence. Async-signal-safe. */
void ddpi_seal_make(const struct ddpi_seal *seal, uint64_t sequence, const void *frame, size_t len,
                    uint8_t ret[DDPI_SEAL_SIZE]);

/* From now on all frames of both sides must be sealed. */
void ddpi_seals_begin(struct ddpi_seals *seals, const struct ddpi_handshake *handshake,
                      enum ddpi_side ours);

/* The size of the seal of a received frame. */
static inline size_t ddpi_seals_size(const struct ddpi_seals *seals)
{
    return seals->on ? DDPI_SEAL_SIZE : 0;
}

/* Seal the frame at the end of @out, which begins @before bytes after its head, if sealing is on.
 * @put: the frame was written. False: the frame was not written, or is removed since its seal does
 * not fit. */
bool ddpi_seals_put(struct ddpi_seals *seals, struct ddpi_buf *out, size_t before, bool put);

/* Whether the @len bytes of a frame and the seal after them are the next of the other side. */
bool ddpi_seals_check(struct ddpi_seals *seals, const uint8_t *frame, size_t len);

#endif
