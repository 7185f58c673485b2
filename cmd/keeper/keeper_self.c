/*
 * keeper_self.c - see keeper_self.h.
 */
#include "keeper_self.h"

#include "clock.h"
#include "error.h"
#include "host.h"
#include "store_address.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DYING_MS = 3000,
    LOOK_MS = 20,
    NAMELESS_MS = 40000, /* longer than resolvers remember that a name has no address */
    NAMELESS_LOOK_MS = 1000,
};

/* The address of @endpoint as this machine sees it. */
static struct store_address look_up(const struct ddpi_endpoint *endpoint,
                                    const struct ifaddrs *interfaces)
{
    char own_name[DDPI_HOST_MAX];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *infos = NULL;
    host_name(own_name, sizeof own_name);
    if (getaddrinfo(endpoint->host, NULL, &hints, &infos) != 0)
        infos = NULL;
    struct store_address address =
        store_address_choose(endpoint->host, own_name, infos, interfaces);
    if (infos != NULL)
        freeaddrinfo(infos);
    return address;
}

static void look_all_up(const struct ddpi_cluster_list *list,
                        struct store_address found[DDPI_CLUSTER_SIZE])
{
    struct ifaddrs *interfaces = NULL;
    if (getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        found[i] = look_up(&list->at[i], interfaces);
    if (interfaces != NULL)
        freeifaddrs(interfaces);
}

static ddp_status choose(const struct keeper_self_question *question,
                         const struct store_address *found, unsigned *ret, struct ddp_error *err)
{
    unsigned count = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++)
        if (found[i].ours) {
            *ret = i;
            count++;
        }
    if (count == 1)
        return DDP_OK;
    if (count == 0)
        return ddpi_error_set(err, DDP_E_NOT_FOUND,
                              "none of the listed machines (%s) has an address of this one; say "
                              "which it is with %s, or correct the list",
                              question->text, question->option);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "%u of the listed machines (%s) have an address of this one; say which "
                          "it is with %s",
                          count, question->text, question->option);
}

/* By its spelling in the list, or by the address of a listed name. */
static ddp_status take_advertised(const struct keeper_self_question *question,
                                  const struct store_address *found, unsigned *ret,
                                  struct ddp_error *err)
{
    struct ddpi_endpoint at;
    const struct ddpi_cluster_list *list = question->list;
    ddp_status status = ddpi_parse_endpoint(question->advertise, &at, err);
    if (status != DDP_OK)
        return status;
    *ret = ddpi_cluster_list_find(list, &at);
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE && *ret == DDPI_CLUSTER_SIZE; i++)
        if (list->at[i].port == at.port && strcmp(found[i].host, at.host) == 0)
            *ret = i;
    if (*ret < DDPI_CLUSTER_SIZE)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_NOT_FOUND, "%s=%s is not one of the listed machines (%s)",
                          question->option, question->advertise, question->text);
}

/* The machine without an address yet that could be the one that was looked for; DDPI_CLUSTER_SIZE:
 * there is none. */
static unsigned unknown(const struct store_address *found, ddp_status status, unsigned number)
{
    unsigned i = status == DDP_OK ? number : 0;
    while (status == DDP_E_NOT_FOUND && i < DDPI_CLUSTER_SIZE && found[i].host[0] != '\0')
        i++;
    bool certain = (status == DDP_OK && found[i].host[0] != '\0') || status == DDP_E_INVALID;
    return certain ? DDPI_CLUSTER_SIZE : i;
}

/* Names may come later than machines: in Kubernetes each comes with its pod. */
static ddp_status find(const struct keeper_self_question *question,
                       struct store_address found[DDPI_CLUSTER_SIZE], unsigned *ret,
                       struct ddp_error *err)
{
    uint64_t until_ms = ddpi_monotonic_ms() + NAMELESS_MS;
    for (bool told = false;; told = true) {
        look_all_up(question->list, found);
        ddp_status status = question->advertise != NULL ? take_advertised(question, found, ret, err)
                                                        : choose(question, found, ret, err);
        unsigned which = unknown(found, status, *ret);
        if (which == DDPI_CLUSTER_SIZE)
            return status;
        ddpi_error_set(err, DDP_E_INVALID,
                       "the name '%s' in the list (%s) has no address here, so it is not known "
                       "which of the listed machines this one is",
                       question->list->at[which].host, question->text);
        if (question->waits == NULL && ddpi_monotonic_ms() >= until_ms)
            return DDP_E_INVALID;
        if (!told)
            ddpi_log(question->log, DDPI_LOG_WARN, "%s; waiting for it", err->msg);
        if (!told && question->waits != NULL)
            question->waits(question->ctx);
        poll(NULL, 0, NAMELESS_LOOK_MS);
    }
}

/* 0, or why the port cannot be had. */
static int try_port(const char *host, uint16_t port)
{
    char service[8];
    int yes = 1;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *info;
    snprintf(service, sizeof service, "%u", port);
    if (getaddrinfo(host, service, &hints, &info) != 0)
        return EADDRNOTAVAIL;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool free = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                bind(fd, info->ai_addr, info->ai_addrlen) == 0;
    int sys_errno = errno;
    freeaddrinfo(info);
    if (fd >= 0)
        close(fd);
    return free ? 0 : sys_errno;
}

/* A port that is taken is said now, and not by a process that is started later. Those of a keeper
 * that was killed need a moment to die. */
static ddp_status await_port(const char *host, uint16_t port, const char *user, const char *remedy,
                             struct ddp_error *err)
{
    uint64_t until_ms = ddpi_monotonic_ms() + DYING_MS;
    int sys_errno;
    while ((sys_errno = try_port(host, port)) == EADDRINUSE && ddpi_monotonic_ms() < until_ms)
        poll(NULL, 0, LOOK_MS);
    if (sys_errno == 0)
        return DDP_OK;
    ddp_status status =
        ddpi_error_sys(err, sys_errno, "%s cannot use port %u of %s", user, port, host);
    return ddpi_error_advise(err, status, "%s", remedy);
}

ddp_status keeper_self_find(const struct keeper_self_question *question, struct keeper_self *ret,
                            struct ddp_error *err)
{
    const struct ddpi_cluster_list *list = question->list;
    struct store_address found[DDPI_CLUSTER_SIZE];
    ddp_status status = find(question, found, &ret->number, err);
    if (status != DDP_OK)
        return status;
    const char *name = list->at[ret->number].host;
    const struct store_address *own = &found[ret->number];
    if (own->is_loopback && !ddpi_host_is_address(name))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' is %s here, which no other machine reaches: correct "
                              "/etc/hosts, or list the machine's address in digits",
                              name, own->host);
    snprintf(ret->peer_host, sizeof ret->peer_host, "%s", own->host);
    return DDP_OK;
}

ddp_status keeper_self_await_ports(const struct keeper_self *self,
                                   const struct ddpi_cluster_list *list, struct ddp_error *err)
{
    ddp_status status = await_port(self->peer_host, list->at[self->number].port, "the store",
                                   "end the program that has it, or list another port", err);
    if (status != DDP_OK)
        return status;
    return await_port(self->peer_host, list->peer_port[self->number], "etcd",
                      "give all three machines another one with --peer-port", err);
}
