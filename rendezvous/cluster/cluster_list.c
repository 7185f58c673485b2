/*
 * cluster_list.c - see cluster_list.h. Owns nothing.
 */
#include "cluster_list.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const struct ddpi_endpoint *one = a, *other = b;
    int order = strcmp(one->host, other->host);
    return order != 0 ? order : (int)one->port - (int)other->port;
}

static ddp_status take_item(const char *item, size_t len, uint16_t port, struct ddpi_endpoint *ret,
                            struct ddp_error *err)
{
    char text[DDPI_CLUSTER_ENDPOINT];
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text), item);
    ddp_status status = ddpi_parse_endpoint(text, ret, err);
    if (status != DDP_OK)
        return status;
    if (ret->has_port && ret->port == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s': others cannot find port 0", text);
    if (!ret->has_port)
        ret->port = port;
    ret->has_port = true;
    return DDP_OK;
}

static ddp_status check_count(unsigned count, const char *text, struct ddp_error *err)
{
    if (count == DDPI_CLUSTER_SIZE)
        return DDP_OK;
    if (count == 2)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s' lists two machines; two cannot outlive either of them, since "
                              "the one that is left could not know whether the other one goes on. "
                              "List a third, which may run nothing but 'ddprund --cluster'",
                              text);
    return ddpi_error_set(err, DDP_E_INVALID,
                          "'%s' lists %u machines; a store is kept by three, such as "
                          "node1,node2,node3",
                          text, count);
}

ddp_status ddpi_cluster_list_parse(const char *text, uint16_t port, uint16_t peer_port,
                                   struct ddpi_cluster_list *ret, struct ddp_error *err)
{
    struct ddpi_cluster_list list = {0};
    const char *item;
    size_t len;
    unsigned count = 0;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len); count++) {
        if (count >= DDPI_CLUSTER_SIZE)
            continue;
        ddp_status status = take_item(item, len, port, &list.at[count], err);
        if (status != DDP_OK)
            return status;
    }
    ddp_status status = check_count(count, text, err);
    if (status != DDP_OK)
        return status;
    qsort(list.at, DDPI_CLUSTER_SIZE, sizeof *list.at, compare);
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        unsigned peers = peer_port != 0 ? peer_port : list.at[i].port + DDPI_CLUSTER_PEER_OFFSET;
        if (i > 0 && compare(&list.at[i - 1], &list.at[i]) == 0)
            return ddpi_error_set(err, DDP_E_INVALID, "'%s' lists %s:%u twice", text,
                                  list.at[i].host, list.at[i].port);
        if (peers > UINT16_MAX || peers == list.at[i].port)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s:%u leaves no port for the members of etcd, who use the "
                                  "store's port + %d; give another one with --peer-port",
                                  list.at[i].host, list.at[i].port, DDPI_CLUSTER_PEER_OFFSET);
        list.peer_port[i] = (uint16_t)peers;
    }
    *ret = list;
    return DDP_OK;
}

unsigned ddpi_cluster_list_find(const struct ddpi_cluster_list *list,
                                const struct ddpi_endpoint *endpoint)
{
    unsigned i = 0;
    while (i < DDPI_CLUSTER_SIZE && compare(&list->at[i], endpoint) != 0)
        i++;
    return i;
}

void ddpi_cluster_list_put(const struct ddpi_cluster_list *list, char text[DDPI_CLUSTER_LIST_TEXT])
{
    size_t used = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        used +=
            (size_t)snprintf(text + used, DDPI_CLUSTER_LIST_TEXT - used, "%s", i > 0 ? "," : "");
        used += ddpi_endpoint_text(&list->at[i], text + used, DDPI_CLUSTER_LIST_TEXT - used);
        used +=
            (size_t)snprintf(text + used, DDPI_CLUSTER_LIST_TEXT - used, "/%u", list->peer_port[i]);
    }
}

void ddpi_cluster_list_peer_url(const struct ddpi_cluster_list *list, unsigned number,
                                char url[DDPI_CLUSTER_ENDPOINT + 8])
{
    char text[DDPI_CLUSTER_ENDPOINT];
    struct ddpi_endpoint at = list->at[number];
    at.port = list->peer_port[number];
    ddpi_endpoint_text(&at, text, sizeof text);
    snprintf(url, DDPI_CLUSTER_ENDPOINT + 8, "https://%s", text);
}

void ddpi_cluster_list_initial(const struct ddpi_cluster_list *list,
                               char text[DDPI_CLUSTER_LIST_TEXT + 64])
{
    size_t used = 0;
    for (unsigned i = 0; i < DDPI_CLUSTER_SIZE; i++) {
        char url[DDPI_CLUSTER_ENDPOINT + 8];
        ddpi_cluster_list_peer_url(list, i, url);
        used += (size_t)snprintf(text + used, DDPI_CLUSTER_LIST_TEXT + 64 - used, "%sm%u=%s",
                                 i > 0 ? "," : "", i, url);
    }
}
