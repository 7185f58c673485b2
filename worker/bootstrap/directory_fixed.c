/*
 * directory_fixed.c - a directory whose entry all ranks know beforehand: the address in a unique
 * id, where rank 0 opens a door. Owns nothing but its memory.
 *
 * The card of rank 0 is made up of what is known: joining takes no more, and the ring's cards come
 * from rank 0. If nothing listens there, there will be no other rank 0.
 */
#include "directory.h"
#include "error.h"
#include "list.h"
#include "mem.h"
#include "own_address.h"
#include "unique_id.h"

#include <string.h>

struct fixed_directory {
    struct ddpi_directory base;
    struct ddpi_entry entry;
    struct ddpi_card card;
    bool is_host;
};

static struct fixed_directory *fixed_of(struct ddpi_directory *directory)
{
    return ddpi_container_of(directory, struct fixed_directory, base);
}

static ddp_status fixed_publish(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                                uint32_t timeout_ms, struct ddp_error *err)
{
    (void)directory;
    (void)entry;
    (void)timeout_ms;
    (void)err;
    return DDP_OK;
}

static ddp_status fixed_find(struct ddpi_directory *directory, uint32_t timeout_ms,
                             struct ddpi_entry *ret_entry, struct ddp_error *err)
{
    (void)timeout_ms;
    (void)err;
    *ret_entry = fixed_of(directory)->entry;
    return DDP_OK;
}

/* Another rank than rank 0 finds that rank 0 is gone. */
static ddp_status id_withdraw(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                              struct ddp_error *err)
{
    const struct fixed_directory *self = fixed_of(directory);
    (void)entry;
    if (self->is_host)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_PEER_DEAD,
                          "rank 0 (pid %u on %s) does not listen any more: it has died or given "
                          "up, or all have joined that it waited for; make a new unique id",
                          self->card.pid, self->card.node);
}

static void fixed_close(struct ddpi_directory *directory)
{
    ddpi_free(fixed_of(directory));
}

static const struct ddpi_directory_ops id_ops = {.fixed = true,
                                                 .publish = fixed_publish,
                                                 .find = fixed_find,
                                                 .withdraw = id_withdraw,
                                                 .close = fixed_close};

/* @card becomes the entry. */
static ddp_status open_fixed(const struct ddpi_config *config, const struct ddpi_card *card,
                             const struct ddpi_directory_ops *ops, struct ddpi_directory **ret,
                             struct ddp_error *err)
{
    struct fixed_directory *self = ddpi_calloc(1, sizeof *self);
    if (self == NULL)
        return ddpi_error_nomem(err, sizeof *self);
    self->base = (struct ddpi_directory){.ops = ops, .door = -1};
    self->card = *card;
    self->is_host = config->rank == 0;
    if (!ddpi_entry_fill(&self->entry, card)) {
        ddpi_free(self);
        return ddpi_error_nomem(err, DDPI_CARD_WIRE_MAX);
    }
    *ret = &self->base;
    return DDP_OK;
}

/* What is known of rank 0. */
static struct ddpi_card card_of(const struct ddpi_id *id, uint32_t world_size)
{
    struct ddpi_card card = {
        .world_size = world_size, .pid = id->pid, .keyed = true, .tcp = id->address};
    memcpy(card.node, id->node, sizeof card.node);
    return card;
}

static ddp_status take_listener(struct ddpi_directory *directory, const struct ddpi_id *id,
                                struct ddp_error *err)
{
    directory->door = ddpi_id_listener(id);
    if (directory->door >= 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "rank 0 has to be the process that has made the unique id (pid %u on "
                          "%s), and an id is good for one ddp_comm_init()",
                          id->pid, id->node);
}

static ddp_status open_id(const struct ddpi_config *config, const struct ddpi_id *id,
                          struct ddpi_directory **ret, struct ddp_error *err)
{
    struct ddpi_card card = card_of(id, config->world_size);
    struct ddpi_directory *directory;
    ddp_status status = open_fixed(config, &card, &id_ops, &directory, err);
    if (status != DDP_OK)
        return status;
    ddpi_id_key(id, &directory->key);
    ddpi_address_endpoint(&id->address, &directory->place);
    if (config->rank == 0)
        status = take_listener(directory, id, err);
    if (status == DDP_OK)
        *ret = directory;
    else
        ddpi_directory_close(directory);
    return status;
}

ddp_status ddpi_directory_open_id(const struct ddpi_config *config, uint32_t timeout_ms,
                                  struct ddpi_directory **ret, struct ddp_error *err)
{
    struct ddpi_id id;
    (void)timeout_ms;
    ddp_status status = ddpi_id_read(&config->unique_id, &id, err);
    if (status == DDP_OK)
        status = open_id(config, &id, ret, err);
    if (status != DDP_OK && config->rank == 0)
        ddp_drop_unique_id(&config->unique_id); /* taken over in any case */
    ddpi_wipe(&id, sizeof id);
    return status;
}
