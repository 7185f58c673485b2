/*
 * proof.c - keys, proofs and seals. All cryptography is libsodium's; this file prepares its inputs.
 */
#include "proof.h"

#include "error.h"

#include <assert.h>

static const char protocol[] = "ddprun store 2";

/* What a key or proof is bound to: parts, each preceded by its length. */
struct label {
    uint8_t bytes[160];
    size_t len;
};

static void add_number(struct label *label, uint64_t value, size_t size)
{
    assert(size <= sizeof label->bytes - label->len);
    for (size_t i = 0; i < size; i++)
        label->bytes[label->len++] = (uint8_t)(value >> (8 * i));
}

static void add_bytes(struct label *label, const void *bytes, size_t len)
{
    add_number(label, len, 4);
    assert(len <= sizeof label->bytes - label->len);
    memcpy(label->bytes + label->len, bytes, len);
    label->len += len;
}

void ddpi_wipe(void *secret, size_t len)
{
    sodium_memzero(secret, len);
}

/* ---- identities ---- */

static const char *const role_names[] = {
#define DDPI_ROLE(symbol, number, name) [number] = name,
    DDPI_ROLES(DDPI_ROLE)
#undef DDPI_ROLE
};

enum { ROLES = sizeof role_names / sizeof *role_names };

const char *ddpi_role_name(unsigned role)
{
    return role < ROLES ? role_names[role] : NULL;
}

bool ddpi_role_of_name(const char *name, enum ddpi_role *ret)
{
    for (unsigned role = 0; role < ROLES; role++)
        if (strcmp(name, role_names[role]) == 0) {
            *ret = (enum ddpi_role)role;
            return true;
        }
    return false;
}

static bool may_be_in_name(char c)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return memchr(allowed, c, sizeof allowed - 1) != NULL;
}

bool ddpi_job_valid(const char *name, size_t len)
{
    if (len == 0 || len > DDPI_JOB_MAX || name[0] == '.' || (len == 1 && name[0] == '-'))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!may_be_in_name(name[i]))
            return false;
    return true;
}

void ddpi_job_name(const char *text, char ret[DDPI_JOB_MAX + 1])
{
    size_t len = strnlen(text, DDPI_JOB_MAX);
    for (size_t i = 0; i < len; i++)
        ret[i] = may_be_in_name(text[i]) ? text[i] : '_';
    ret[len] = '\0';
    if (len == 0 || !ddpi_job_valid(ret, len)) { /* it begins with '.', or is "-" */
        ret[0] = '_';
        ret[len > 0 ? len : 1] = '\0';
    }
}

/* ---- keys ---- */

void ddpi_hkdf_extract(const void *salt, size_t salt_len, const void *secret, size_t secret_len,
                       uint8_t ret_key[DDPI_KEY_SIZE])
{
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, salt, salt_len);
    crypto_auth_hmacsha256_update(&state, secret, secret_len);
    crypto_auth_hmacsha256_final(&state, ret_key);
    ddpi_wipe(&state, sizeof state);
}

void ddpi_hkdf_expand(const uint8_t key[DDPI_KEY_SIZE], const void *info, size_t info_len,
                      uint8_t *ret, size_t len)
{
    uint8_t block[DDPI_KEY_SIZE];
    assert(len <= 255 * sizeof block);
    for (uint8_t count = 1; len > 0; count++) {
        crypto_auth_hmacsha256_state state;
        size_t part = len < sizeof block ? len : sizeof block;
        crypto_auth_hmacsha256_init(&state, key, DDPI_KEY_SIZE);
        if (count > 1)
            crypto_auth_hmacsha256_update(&state, block, sizeof block);
        crypto_auth_hmacsha256_update(&state, info, info_len);
        crypto_auth_hmacsha256_update(&state, &count, 1);
        crypto_auth_hmacsha256_final(&state, block);
        ddpi_wipe(&state, sizeof state);
        memcpy(ret, block, part);
        ret += part;
        len -= part;
    }
    ddpi_wipe(block, sizeof block);
}

static void derive_key(const uint8_t token[DDPI_KEY_SIZE], const struct ddpi_identity *identity,
                       uint8_t ret_key[DDPI_KEY_SIZE])
{
    struct label info = {0};
    uint8_t extracted[DDPI_KEY_SIZE];
    add_bytes(&info, protocol, strlen(protocol));
    add_number(&info, identity->role, 1);
    add_bytes(&info, identity->job, strlen(identity->job));
    add_number(&info, identity->epoch, 8);
    add_number(&info, identity->store, 8);
    ddpi_hkdf_extract("", 0, token, DDPI_KEY_SIZE, extracted);
    ddpi_hkdf_expand(extracted, info.bytes, info.len, ret_key, DDPI_KEY_SIZE);
    ddpi_wipe(extracted, sizeof extracted);
}

ddp_status ddpi_credential_fits(const struct ddpi_credential *credential,
                                const struct ddpi_identity *identity, struct ddp_error *err)
{
    const struct ddpi_identity *own = &credential->identity;
    if (!credential->is_token &&
        (own->role != identity->role || strcmp(own->job, identity->job) != 0 ||
         own->epoch != identity->epoch))
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this is the key of the %s of job '%s' in epoch %llu; the %s of job "
                              "'%s' in epoch %llu needs another, or the token itself",
                              role_names[own->role], own->job, (unsigned long long)own->epoch,
                              role_names[identity->role], identity->job,
                              (unsigned long long)identity->epoch);
    return DDP_OK;
}

ddp_status ddpi_credential_key(const struct ddpi_credential *credential,
                               const struct ddpi_identity *identity, uint8_t ret_key[DDPI_KEY_SIZE],
                               struct ddp_error *err)
{
    const struct ddpi_identity *own = &credential->identity;
    ddp_status status = ddpi_credential_fits(credential, identity, err);
    if (status != DDP_OK)
        return status;
    if (credential->is_token) {
        derive_key(credential->secret, identity, ret_key);
        return DDP_OK;
    }
    if (own->store != identity->store)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "this key was made for the store %016llx, but this is the store "
                              "%016llx: it has begun anew since, or is another one; make a key "
                              "for it: ddpctl token derive",
                              (unsigned long long)own->store, (unsigned long long)identity->store);
    memcpy(ret_key, credential->secret, DDPI_KEY_SIZE);
    return DDP_OK;
}

/* ---- the handshake ---- */

void ddpi_handshake_begin(struct ddpi_handshake *handshake)
{
    crypto_hash_sha256_init(&handshake->transcript);
}

void ddpi_handshake_add(struct ddpi_handshake *handshake, const void *bytes, size_t len)
{
    struct label size = {0};
    add_number(&size, len, 4);
    crypto_hash_sha256_update(&handshake->transcript, size.bytes, size.len);
    crypto_hash_sha256_update(&handshake->transcript, bytes, len);
}

/* Bind a label to the transcript and to @purpose, a letter. */
static void bind_transcript(const struct ddpi_handshake *handshake, char purpose,
                            struct label *label)
{
    crypto_hash_sha256_state transcript = handshake->transcript;
    uint8_t hash[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&transcript, hash);
    *label = (struct label){0};
    add_number(label, (uint8_t)purpose, 1);
    add_bytes(label, hash, sizeof hash);
}

void ddpi_handshake_prove(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          uint8_t ret_proof[DDPI_PROOF_SIZE])
{
    struct label label;
    crypto_auth_hmacsha256_state state;
    bind_transcript(handshake, side == DDPI_SIDE_CLIENT ? 'c' : 's', &label);
    crypto_auth_hmacsha256_init(&state, handshake->key, DDPI_KEY_SIZE);
    crypto_auth_hmacsha256_update(&state, label.bytes, label.len);
    crypto_auth_hmacsha256_final(&state, ret_proof);
    ddpi_wipe(&state, sizeof state);
}

bool ddpi_handshake_check(const struct ddpi_handshake *handshake, enum ddpi_side side,
                          const uint8_t proof[DDPI_PROOF_SIZE])
{
    uint8_t wanted[DDPI_PROOF_SIZE];
    ddpi_handshake_prove(handshake, side, wanted);
    bool same = sodium_memcmp(wanted, proof, DDPI_PROOF_SIZE) == 0;
    ddpi_wipe(wanted, sizeof wanted);
    return same;
}

/* ---- sealed frames ---- */

static void begin_seal(struct ddpi_seal *seal, const struct ddpi_handshake *handshake,
                       enum ddpi_side sender)
{
    struct label label;
    bind_transcript(handshake, sender == DDPI_SIDE_CLIENT ? 'C' : 'S', &label);
    ddpi_hkdf_expand(handshake->key, label.bytes, label.len, (uint8_t *)seal->keys,
                     sizeof seal->keys);
    seal->sequence = 0;
}

void ddpi_seals_begin(struct ddpi_seals *seals, const struct ddpi_handshake *handshake,
                      enum ddpi_side ours)
{
    begin_seal(&seals->out, handshake, ours);
    begin_seal(&seals->in, handshake,
               ours == DDPI_SIDE_CLIENT ? DDPI_SIDE_SERVER : DDPI_SIDE_CLIENT);
    seals->on = true;
}

/* The sequence number and the frame are not adjacent in memory, so one key hashes the frame, and
 * the other one that hash with the number. */
void ddpi_seal_make(const struct ddpi_seal *seal, uint64_t sequence, const void *frame, size_t len,
                    uint8_t ret[DDPI_SEAL_SIZE])
{
    uint8_t hash[crypto_shorthash_siphashx24_BYTES];
    struct label outer = {0};
    crypto_shorthash_siphashx24(hash, frame, len, seal->keys[0]);
    add_bytes(&outer, hash, sizeof hash);
    add_number(&outer, sequence, 8);
    crypto_shorthash_siphashx24(ret, outer.bytes, outer.len, seal->keys[1]);
}

bool ddpi_seals_put(struct ddpi_seals *seals, struct ddpi_buf *out, size_t before, bool put)
{
    uint8_t mac[DDPI_SEAL_SIZE];
    if (!put || !seals->on)
        return put;
    ddpi_seal_make(&seals->out, seals->out.sequence, ddpi_buf_head(out) + before,
                   ddpi_buf_len(out) - before, mac);
    if (!ddpi_buf_append(out, mac, sizeof mac)) {
        ddpi_buf_truncate(out, before);
        return false;
    }
    seals->out.sequence++;
    return true;
}

bool ddpi_seals_check(struct ddpi_seals *seals, const uint8_t *frame, size_t len)
{
    uint8_t wanted[DDPI_SEAL_SIZE];
    ddpi_seal_make(&seals->in, seals->in.sequence, frame, len, wanted);
    if (sodium_memcmp(wanted, frame + len, sizeof wanted) != 0)
        return false;
    seals->in.sequence++;
    return true;
}
