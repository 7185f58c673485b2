/*
 * listeners.c - the list of listeners.
 */
#include "listeners.h"

#include "error.h"
#include "listen.h"

#include <string.h>

static struct ddpi_listener *listener_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct ddpi_listener, of_server);
}

/* Takes over @fd. */
static ddp_status take_socket(struct ddpi_listeners *listeners, int fd, struct ddpi_listener **ret,
                              struct ddp_error *err)
{
    ddp_status status = ddpi_listener_create(&listeners->env, fd, ret, err);
    if (status != DDP_OK)
        return status;
    ddpi_list_append(&listeners->all, &(*ret)->of_server);
    listeners->open++;
    return DDP_OK;
}

/* Without a token, some addresses would admit no client, or every client. */
static ddp_status check_token(const struct ddpi_listeners *listeners, bool *ret_loopback_only,
                              struct ddp_error *err)
{
    const struct ddpi_gate *gate = listeners->gate;
    *ret_loopback_only = gate->token == NULL && !gate->open_to_all;
    if (*ret_loopback_only && !gate->open_to_loopback)
        return ddpi_error_set(err, DDP_E_DENIED,
                              "all clients must authenticate, but the server has no token");
    if (*ret_loopback_only && listeners->tls)
        return ddpi_error_set(err, DDP_E_DENIED, "TLS needs a token, but the server has none");
    return DDP_OK;
}

ddp_status ddpi_listeners_add(struct ddpi_listeners *listeners, const struct ddpi_listen_at *at,
                              const struct ddpi_listener **ret, struct ddp_error *err)
{
    int fd;
    bool loopback_only;
    struct ddpi_listener *listener;
    ddp_status status = check_token(listeners, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen(at->host, at->port, loopback_only, &fd, err);
    if (status == DDP_OK)
        status = take_socket(listeners, fd, &listener, err);
    if (status != DDP_OK)
        return status;
    memcpy(listener->job, at->job, sizeof listener->job);
    listener->session = at->session;
    listener->generation = at->generation;
    if (ret != NULL)
        *ret = listener;
    return DDP_OK;
}

ddp_status ddpi_listeners_adopt(struct ddpi_listeners *listeners, int fd, struct ddp_error *err)
{
    bool loopback_only;
    struct ddpi_listener *listener;
    ddp_status status = check_token(listeners, &loopback_only, err);
    if (status == DDP_OK)
        status = ddpi_listen_check(fd, loopback_only, err);
    return status == DDP_OK ? take_socket(listeners, fd, &listener, err) : status;
}

const struct ddpi_listener *ddpi_listeners_at(const struct ddpi_listeners *listeners, size_t index)
{
    ddpi_list_for_each (node, &listeners->all)
        if (ddpi_listener_is_permanent(listener_of(node)) && index-- == 0)
            return listener_of(node);
    return NULL;
}

/* The ports of generations do not count: a job has one on each address, as long as it has nodes. */
ddp_status ddpi_listeners_check_room(const struct ddpi_listeners *listeners, struct ddp_error *err)
{
    size_t count = 0;
    ddpi_list_for_each (node, &listeners->all)
        count += listener_of(node)->session != 0;
    if (count < listeners->max_data_ports)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "clients have opened %zu data ports, and %u is the limit", count,
                          listeners->max_data_ports);
}

void ddpi_listeners_close_job(struct ddpi_listeners *listeners, const char *job)
{
    ddpi_list_for_each_safe (node, &listeners->all) {
        struct ddpi_listener *listener = listener_of(node);
        if (!ddpi_listener_is_permanent(listener) && strcmp(listener->job, job) == 0)
            ddpi_listener_close(listener);
    }
}

void ddpi_listeners_close_session(struct ddpi_listeners *listeners, uint64_t session)
{
    ddpi_list_for_each_safe (node, &listeners->all)
        if (listener_of(node)->session == session)
            ddpi_listener_close(listener_of(node));
}

void ddpi_listeners_close_all(struct ddpi_listeners *listeners)
{
    ddpi_list_for_each_safe (node, &listeners->all)
        ddpi_listener_close(listener_of(node));
}
