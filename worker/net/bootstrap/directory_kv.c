/*
 * directory_kv.c - a directory in a key-value store behind functions (<ddprun/kv.h>), which are
 * the caller's or those of torch_store.h: a key. Owns its memory, and a store that is not the
 * caller's.
 *
 * Such a store cannot compare and remove in one step: a rank that removes the key of a dead rank 0
 * may remove that of the next one, which has to look (loses_entries). A store that cannot remove
 * keys keeps this one with an empty value, which counts as none.
 */
#include "clock.h"
#include "directory.h"
#include "error.h"
#include "list.h"
#include "mem.h"

#include <poll.h>
#include <string.h>

enum { PAUSE_MIN_MS = 5, PAUSE_MAX_MS = 200 };

struct kv_directory {
    struct ddpi_directory base;
    struct ddp_kv kv;
    void (*close)(void *ctx); /* NULL: the store is the caller's */
    char key[DDPI_HOST_KEY];
};

static struct kv_directory *kv_of(struct ddpi_directory *directory)
{
    return ddpi_container_of(directory, struct kv_directory, base);
}

/* What a function of the caller has returned, with a sentence that says which one it was. */
static ddp_status kv_failed(const struct kv_directory *self, const char *function,
                            ddp_status status, const struct ddp_error *said, struct ddp_error *err)
{
    const char *text = said->msg[0] != '\0' ? said->msg : ddp_status_text(status);
    return ddpi_error_set(err, status, "%s: %s '%s': %.*s",
                          self->close == NULL ? "the caller's store" : "the store at MASTER_ADDR",
                          function, self->key, (int)sizeof said->msg - 1, text);
}

static ddp_status kv_publish(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                             uint32_t timeout_ms, struct ddp_error *err)
{
    const struct kv_directory *self = kv_of(directory);
    struct ddp_error said = {0};
    (void)timeout_ms;
    ddp_status status = self->kv.set(self->kv.ctx, self->key, entry->card, entry->len, &said);
    return status == DDP_OK ? DDP_OK : kv_failed(self, "set", status, &said, err);
}

/* DDP_E_NOT_FOUND: no key, or an empty value. */
static ddp_status kv_look(const struct kv_directory *self, struct ddpi_entry *ret_entry,
                          struct ddp_error *err)
{
    struct ddp_error said = {0};
    struct ddpi_entry entry = {0};
    ddp_status status =
        self->kv.get(self->kv.ctx, self->key, entry.card, sizeof entry.card, &entry.len, &said);
    if (status == DDP_E_NOT_FOUND || (status == DDP_OK && entry.len == 0))
        return DDP_E_NOT_FOUND;
    if (status != DDP_OK)
        return kv_failed(self, "get", status, &said, err);
    *ret_entry = entry;
    return DDP_OK;
}

static ddp_status kv_await_key(const struct kv_directory *self, uint32_t timeout_ms,
                               struct ddp_error *err)
{
    struct ddp_error said = {0};
    ddp_status status = self->kv.wait(self->kv.ctx, self->key, timeout_ms, &said);
    if (status == DDP_E_TIMEOUT)
        return DDP_E_NOT_FOUND;
    return status == DDP_OK ? DDP_OK : kv_failed(self, "wait for", status, &said, err);
}

/* The key may be there with an empty value, or go between the two calls: then look again. */
static ddp_status kv_find(struct ddpi_directory *directory, uint32_t timeout_ms,
                          struct ddpi_entry *ret_entry, struct ddp_error *err)
{
    const struct kv_directory *self = kv_of(directory);
    uint64_t deadline_ms = ddpi_deadline(ddpi_monotonic_ms(), timeout_ms);
    int left_ms, pause_ms = PAUSE_MIN_MS;
    ddp_status status = kv_look(self, ret_entry, err);
    while (status == DDP_E_NOT_FOUND &&
           (left_ms = ddpi_remaining_ms(ddpi_monotonic_ms(), deadline_ms)) > 0) {
        status = kv_await_key(self, (uint32_t)left_ms, err);
        if (status == DDP_OK)
            status = kv_look(self, ret_entry, err);
        if (status == DDP_E_NOT_FOUND)
            (void)!poll(NULL, 0, left_ms < pause_ms ? left_ms : pause_ms);
        pause_ms = pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    }
    return status;
}

static ddp_status kv_withdraw(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                              struct ddp_error *err)
{
    const struct kv_directory *self = kv_of(directory);
    struct ddpi_entry found;
    struct ddp_error said = {0};
    ddp_status status = kv_look(self, &found, err);
    if (status != DDP_OK)
        return status == DDP_E_NOT_FOUND ? DDP_OK : status;
    if (found.len != entry->len || entry->len > sizeof entry->card ||
        memcmp(found.card, entry->card, entry->len) != 0)
        return DDP_OK;
    status = self->kv.remove != NULL ? self->kv.remove(self->kv.ctx, self->key, &said)
                                     : self->kv.set(self->kv.ctx, self->key, "", 0, &said);
    return status == DDP_OK ? DDP_OK : kv_failed(self, "remove", status, &said, err);
}

static void kv_close(struct ddpi_directory *directory)
{
    struct kv_directory *self = kv_of(directory);
    if (self->close != NULL)
        self->close(self->kv.ctx);
    ddpi_free(self);
}

static const struct ddpi_directory_ops kv_ops = {.loses_entries = true,
                                                 .publish = kv_publish,
                                                 .find = kv_find,
                                                 .withdraw = kv_withdraw,
                                                 .close = kv_close};

ddp_status ddpi_directory_open_over(const struct ddpi_config *config, const struct ddp_kv *kv,
                                    void (*close)(void *ctx), struct ddpi_directory **ret,
                                    struct ddp_error *err)
{
    struct kv_directory *self = ddpi_calloc(1, sizeof *self);
    if (self == NULL) {
        if (close != NULL)
            close(kv->ctx);
        return ddpi_error_nomem(err, sizeof *self);
    }
    *self = (struct kv_directory){
        .base = {.ops = &kv_ops, .join_listener = -1}, .kv = *kv, .close = close};
    ddpi_directory_key(config, self->key);
    *ret = &self->base;
    return DDP_OK;
}

ddp_status ddpi_directory_open_kv(const struct ddpi_config *config, uint32_t timeout_ms,
                                  struct ddpi_directory **ret, struct ddp_error *err)
{
    (void)timeout_ms;
    ddp_status status = ddpi_directory_open_over(config, config->kv, NULL, ret, err);
    if (status == DDP_OK)
        ddpi_server_place(&config->server, &(*ret)->place);
    return status;
}
