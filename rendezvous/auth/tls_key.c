/*
 * tls_key.c - key names and keys for TLS.
 */
#include "tls_key.h"

#include "parse.h"

#include <inttypes.h>
#include <stdio.h>

static const char purpose[] = "ddprun tls 1";
static const char prefix[] = "ddprun 1 ";

/* Not the key of the proofs, so that the use of one key reveals nothing about the other. */
static void derive_tls_secret(const uint8_t key[DDPI_KEY_SIZE],
                              uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    ddpi_hkdf_expand(key, purpose, strlen(purpose), ret_secret, DDPI_TLS_KEY_SIZE);
}

static void put_key_name(const struct ddpi_identity *identity, struct ddpi_tls_key *ret)
{
    int len = snprintf(ret->identity, sizeof ret->identity, "%s%s %s %" PRIu64 " %" PRIx64, prefix,
                       ddpi_role_name(identity->role), *identity->job != '\0' ? identity->job : "-",
                       identity->epoch, identity->store);
    ret->identity_len = (size_t)len;
}

ddp_status ddpi_tls_key_make(const struct ddpi_credential *credential,
                             const struct ddpi_identity *identity, struct ddpi_tls_key *ret,
                             struct ddp_error *err)
{
    uint8_t key[DDPI_KEY_SIZE];
    struct ddpi_identity named = *identity;
    named.store = credential->is_token ? 0 : credential->identity.store;
    ddp_status status = ddpi_credential_key(credential, &named, key, err);
    if (status != DDP_OK)
        return status;
    put_key_name(&named, ret);
    derive_tls_secret(key, ret->secret);
    ddpi_wipe(key, sizeof key);
    return DDP_OK;
}

/* Split the next word off *@text. */
static char *next_word(char **text)
{
    return strsep(text, " ");
}

/* Accepts only the form that put_key_name() writes, so that each identity has one name. */
static bool parse_key_name(const uint8_t *name, size_t len, struct ddpi_identity *ret)
{
    char text[DDPI_TLS_IDENTITY_MAX + 1], *rest = text + strlen(prefix);
    if (len > DDPI_TLS_IDENTITY_MAX || memchr(name, '\0', len) != NULL)
        return false;
    memcpy(text, name, len);
    text[len] = '\0';
    if (strncmp(text, prefix, strlen(prefix)) != 0)
        return false;
    struct ddpi_identity named = {0};
    const char *role = next_word(&rest), *job = next_word(&rest), *epoch = next_word(&rest);
    const char *store = next_word(&rest);
    int64_t number;
    if (store == NULL || rest != NULL || !ddpi_role_of_name(role, &named.role) ||
        ddpi_parse_int(epoch, 0, INT64_MAX, &number, NULL) != DDP_OK ||
        !ddpi_parse_hex(store, &named.store))
        return false;
    named.epoch = (uint64_t)number;
    if (strcmp(job, "-") != 0) {
        if (!ddpi_job_valid(job, strlen(job)))
            return false;
        memcpy(named.job, job, strlen(job) + 1);
    }
    struct ddpi_tls_key again;
    put_key_name(&named, &again);
    *ret = named;
    return again.identity_len == len && memcmp(again.identity, name, len) == 0;
}

bool ddpi_tls_key_find(const struct ddpi_credential *token, uint64_t store, const uint8_t *name,
                       size_t len, uint8_t ret_secret[DDPI_TLS_KEY_SIZE])
{
    uint8_t key[DDPI_KEY_SIZE];
    struct ddpi_identity named;
    if (token == NULL || !parse_key_name(name, len, &named) ||
        (named.store != 0 && named.store != store) ||
        ddpi_credential_key(token, &named, key, NULL) != DDP_OK)
        return false;
    derive_tls_secret(key, ret_secret);
    ddpi_wipe(key, sizeof key);
    return true;
}
