/*
 * directory_fixed.c - directories whose entry all ranks know beforehand: the address in a unique
 * id, and MASTER_ADDR, where rank 0 listens. Owns nothing but its memory.
 *
 * The card of rank 0 is made up of what is known: joining takes no more, and the ring's cards come
 * from rank 0. If nothing listens at the address in an id, there will be no other rank 0; at
 * MASTER_ADDR rank 0 may come later. Communicators that are made there at the same time are told
 * apart by a key that is derived from the name, and no secret.
 */
#include "clock.h"
#include "directory.h"
#include "error.h"
#include "list.h"
#include "mem.h"
#include "own_address.h"
#include "private_fds.h"
#include "route.h"
#include "unique_id.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ASK_AGAIN_MS = 20,
    JOIN_BACKLOG = 4096,
    PORT_WAIT_MS = 3000, /* for a port that is in use, */
    PORT_RETRY_MS = 50,  /* between attempts */
};

struct fixed_directory {
    struct ddpi_directory base;
    struct ddpi_entry entry;
    struct ddpi_card card;
    bool is_host;
    bool asked; /* the entry has been found before */
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
    self->base = (struct ddpi_directory){.ops = ops, .join_listener = -1};
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
        .world_size = world_size, .pid = id->pid, .keyed = true, .sockets = 1, .tcp = id->address};
    memcpy(card.node, id->node, sizeof card.node);
    return card;
}

static ddp_status take_listener(struct ddpi_directory *directory, const struct ddpi_id *id,
                                struct ddp_error *err)
{
    directory->join_listener = ddpi_id_listener(id);
    if (directory->join_listener >= 0)
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
    directory->has_key = true;
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

/* ---- MASTER_ADDR ---- */

static const char master_purpose[] = "ddprun master 1 ";

/* Leaves time before it is found again. */
static ddp_status master_find(struct ddpi_directory *directory, uint32_t timeout_ms,
                              struct ddpi_entry *ret_entry, struct ddp_error *err)
{
    struct fixed_directory *self = fixed_of(directory);
    (void)err;
    if (timeout_ms == 0)
        return DDP_E_NOT_FOUND;
    if (self->asked)
        (void)!poll(NULL, 0, timeout_ms < ASK_AGAIN_MS ? (int)timeout_ms : ASK_AGAIN_MS);
    self->asked = true;
    *ret_entry = self->entry;
    return DDP_OK;
}

static ddp_status master_withdraw(struct ddpi_directory *directory, const struct ddpi_entry *entry,
                                  struct ddp_error *err)
{
    (void)directory;
    (void)entry;
    (void)err;
    return DDP_OK;
}

static const struct ddpi_directory_ops master_ops = {.fixed = true,
                                                     .patient = true,
                                                     .publish = fixed_publish,
                                                     .find = master_find,
                                                     .withdraw = master_withdraw,
                                                     .close = fixed_close};

/* A private socket for both versions of IP, or for IPv4 alone where there is no other. */
static int join_socket(int *ret_family)
{
    const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int on = 1, off = 0;
    ddpi_private_begin();
    int fd = socket(AF_INET6, kind, 0);
    *ret_family = fd >= 0 ? AF_INET6 : AF_INET;
    fd = ddpi_private_add(fd >= 0 ? fd : socket(AF_INET, kind, 0));
    ddpi_private_end();
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd >= 0 && *ret_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    return fd;
}

/* At all addresses, as MASTER_ADDR may mean another one on other machines. -1 with errno. */
static int listen_everywhere(uint16_t port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int family;
    int fd = join_socket(&family);
    if (fd < 0)
        return -1;
    int bound = family == AF_INET6 ? bind(fd, (struct sockaddr *)&v6, sizeof v6)
                                   : bind(fd, (struct sockaddr *)&v4, sizeof v4);
    if (bound == 0 && listen(fd, JOIN_BACKLOG) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* The rank 0 of a generation before may not have been freed completely. */
static int listen_when_free(uint16_t port, uint32_t timeout_ms)
{
    uint64_t wait_ms = timeout_ms < PORT_WAIT_MS ? timeout_ms : PORT_WAIT_MS;
    uint64_t end = ddpi_deadline(ddpi_monotonic_ms(), wait_ms);
    int fd = listen_everywhere(port);
    while (fd < 0 && errno == EADDRINUSE && ddpi_monotonic_ms() < end) {
        (void)poll(NULL, 0, PORT_RETRY_MS);
        fd = listen_everywhere(port);
    }
    return fd;
}

static ddp_status listen_at_master(const struct ddpi_config *config,
                                   struct ddpi_directory *directory, struct ddp_error *err)
{
    directory->join_listener = listen_when_free(config->master.port, config->init_timeout_ms);
    if (directory->join_listener >= 0)
        return DDP_OK;
    ddp_status status = ddpi_error_sys(err, errno, "listen at MASTER_PORT %u for the other ranks",
                                       config->master.port);
    return ddpi_error_advise(err, status,
                             "choose another MASTER_PORT or, if a store of PyTorch is there, set "
                             "TORCHELASTIC_USE_AGENT_STORE=True");
}

static void master_key(const struct ddpi_config *config, struct ddpi_rank_key *ret)
{
    struct ddpi_rank_key known;
    char info[sizeof master_purpose + DDPI_HOST_KEY];
    int len = snprintf(info, sizeof info, "%s%s", master_purpose, config->name);
    ddpi_rank_key_none(&known);
    ddpi_hkdf_expand(known.bytes, info, (size_t)len, ret->bytes, sizeof ret->bytes);
    ret->given = false;
}

ddp_status ddpi_directory_open_master(const struct ddpi_config *config, uint32_t timeout_ms,
                                      struct ddpi_directory **ret, struct ddp_error *err)
{
    struct ddpi_card card = {.world_size = config->world_size, .sockets = 1};
    struct ddpi_directory *directory;
    (void)timeout_ms;
    ddp_status status =
        ddpi_target_address(config->master.host, config->master.port, &card.tcp, err);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, status, "MASTER_ADDR");
    status = open_fixed(config, &card, &master_ops, &directory, err);
    if (status != DDP_OK)
        return status;
    directory->has_key = true;
    master_key(config, &directory->key);
    ddpi_server_place(&config->master, &directory->place);
    if (config->rank == 0)
        status = listen_at_master(config, directory, err);
    if (status == DDP_OK)
        *ret = directory;
    else
        ddpi_directory_close(directory);
    return status;
}
