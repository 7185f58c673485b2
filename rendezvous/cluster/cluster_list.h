/*
 * cluster_list.h - the three machines that keep a store together, as the user lists them. Pure.
 *
 * The order of the list does not matter: a keeper is known by its number in the sorted list, which
 * is the same for all. Spelling matters, since a name and its address cannot be told to be one.
 */
#ifndef DDPI_CLUSTER_LIST_H
#define DDPI_CLUSTER_LIST_H

#include "parse.h"

enum {
    DDPI_CLUSTER_SIZE = 3,
    DDPI_CLUSTER_PEER_OFFSET = 1000, /* from the store's port to that of etcd's peers */
    DDPI_CLUSTER_ENDPOINT = DDPI_HOST_MAX + 16,
    DDPI_CLUSTER_LIST_TEXT = DDPI_CLUSTER_SIZE * (DDPI_CLUSTER_ENDPOINT + 8),
};

struct ddpi_cluster_list {
    struct ddpi_endpoint at[DDPI_CLUSTER_SIZE]; /* of the stores; all have a port */
    uint16_t peer_port[DDPI_CLUSTER_SIZE];
};

/* "node1,node2:29400,10.0.0.3". @port: where an item names none; @peer_port: of etcd's peers on
 * each machine; 0: DDPI_CLUSTER_PEER_OFFSET above the store's. DDP_E_INVALID. */
ddp_status ddpi_cluster_list_parse(const char *text, uint16_t port, uint16_t peer_port,
                                   struct ddpi_cluster_list *ret, struct ddp_error *err);

/* The number of @endpoint in the list; DDPI_CLUSTER_SIZE: it is not there. */
unsigned ddpi_cluster_list_find(const struct ddpi_cluster_list *list,
                                const struct ddpi_endpoint *endpoint);

/* "10.0.0.3:29400/30400,...": two keepers with the same text have the same list. */
void ddpi_cluster_list_put(const struct ddpi_cluster_list *list, char text[DDPI_CLUSTER_LIST_TEXT]);

/* "https://HOST:PORT" of etcd's peers on machine @number. */
void ddpi_cluster_list_peer_url(const struct ddpi_cluster_list *list, unsigned number,
                                char url[DDPI_CLUSTER_ENDPOINT + 8]);

/* All three, as etcd's --initial-cluster has them: "m0=https://...,m1=...,m2=...". */
void ddpi_cluster_list_initial(const struct ddpi_cluster_list *list,
                               char text[DDPI_CLUSTER_LIST_TEXT + 64]);

#endif
