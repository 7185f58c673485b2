/*
 * directory_store.c - a directory in ddprun's store: a key. Owns the connection to the store.
 *
 * The store compares and removes in one step, so no rank removes the key of a later rank 0.
 */
#include "directory.h"
#include "error.h"
#include "list.h"
#include "mem.h"

#include <ddprun/store.h>
#include <string.h>

enum { CONNECT_MAX_MS = 30000, LOOK_MS = 5000, WITHDRAW_MS = 2000 };

struct store_directory {
    struct ddpi_directory base;
    ddp_store *store;
    char key[DDPI_HOST_KEY];
};

static struct store_directory *store_of(struct ddpi_directory *directory)
{
    return ddpi_container_of(directory, struct store_directory, base);
}

static ddp_status store_publish(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                                uint32_t timeout_ms, struct ddp_error *err)
{
    const struct store_directory *self = store_of(directory);
    return ddp_store_set(self->store, self->key, entry->card, entry->len, timeout_ms, NULL, err);
}

static ddp_status store_find(struct ddpi_directory *directory, uint32_t timeout_ms,
                             struct ddpi_entry *ret_entry, struct ddp_error *err)
{
    const struct store_directory *self = store_of(directory);
    void *value;
    size_t len;
    ddp_status status =
        timeout_ms == 0
            ? ddp_store_try_get(self->store, self->key, LOOK_MS, &value, &len, NULL, err)
            : ddp_store_get(self->store, self->key, timeout_ms, &value, &len, NULL, err);
    if (status != DDP_OK)
        return status == DDP_E_TIMEOUT ? DDP_E_NOT_FOUND : status;
    ret_entry->len = len;
    memcpy(ret_entry->card, value, len < sizeof ret_entry->card ? len : sizeof ret_entry->card);
    ddp_store_free(value);
    return DDP_OK;
}

/* Has time of its own, as the deadline may have passed. */
static ddp_status store_withdraw(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                                 struct ddp_error *err)
{
    const struct store_directory *self = store_of(directory);
    const struct ddp_store_clause clauses[] = {{.kind = DDP_STORE_IF_VALUE,
                                                .key = self->key,
                                                .value = entry->card,
                                                .value_len = entry->len},
                                               {.kind = DDP_STORE_THEN_DELETE, .key = self->key}};
    ddp_status status = ddp_store_transact(self->store, clauses, 2, WITHDRAW_MS, NULL, err);
    return status == DDP_E_CONFLICT ? DDP_OK : status; /* it is of another rank 0, or gone */
}

static void store_close(struct ddpi_directory *directory)
{
    struct store_directory *self = store_of(directory);
    ddp_store_close(self->store);
    ddpi_free(self);
}

static const struct ddpi_directory_ops store_ops = {
    .publish = store_publish, .find = store_find, .withdraw = store_withdraw, .close = store_close};

ddp_status ddpi_directory_open_store(const struct ddpi_config *config, uint32_t timeout_ms,
                                     struct ddpi_directory **ret, struct ddp_error *err)
{
    const struct ddp_store_options options = {
        .size = sizeof options,
        .endpoint = config->store_endpoint,
        .prefix = config->store_prefix,
        .connect_timeout_ms = timeout_ms < CONNECT_MAX_MS ? timeout_ms : CONNECT_MAX_MS,
        .auth = config->token_fd > 0 ? DDP_STORE_AUTH_BEYOND_LOOPBACK : DDP_STORE_AUTH_DEFAULT,
        .token_fd = config->token_fd,
        .flags = config->tls ? DDP_STORE_TLS : 0};
    struct store_directory *self = ddpi_calloc(1, sizeof *self);
    if (self == NULL)
        return ddpi_error_nomem(err, sizeof *self);
    self->base = (struct ddpi_directory){.ops = &store_ops, .join_listener = -1};
    ddpi_directory_key(config, self->key);
    struct ddpi_endpoints endpoints;
    ddp_status status = ddpi_parse_endpoints(config->store_endpoint, &endpoints, err);
    if (status == DDP_OK)
        ddpi_server_place(&endpoints.at[0], &self->base.place);
    if (status == DDP_OK)
        status = ddp_store_connect(&options, &self->store, err);
    if (status == DDP_OK)
        *ret = &self->base;
    else
        ddpi_free(self);
    return status;
}
