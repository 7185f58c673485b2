/*
 * directory.c - what all kinds of directories share. Owns nothing.
 */
#include "directory.h"

#include "route.h"
#include "sockets.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

void ddpi_directory_key(const struct ddpi_config *config, char key[DDPI_HOST_KEY])
{
    snprintf(key, DDPI_HOST_KEY, "comm/%s/host", config->name);
}

bool ddpi_entry_fill(struct ddpi_entry *entry, const struct ddpi_card *card)
{
    struct ddpi_buf wire;
    ddpi_buf_init(&wire, sizeof entry->card);
    bool fits = ddpi_card_encode(card, &wire);
    if (fits) {
        entry->len = ddpi_buf_len(&wire);
        memcpy(entry->card, ddpi_buf_head(&wire), entry->len);
    }
    ddpi_buf_finish(&wire);
    return fits;
}

void ddpi_directory_close(struct ddpi_directory *directory)
{
    if (directory == NULL)
        return;
    ddpi_close_fd(&directory->join_listener);
    ddpi_wipe(&directory->key, sizeof directory->key);
    directory->ops->close(directory);
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    return address->ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                         : IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

void ddpi_server_place(const struct ddpi_endpoint *server, struct ddpi_endpoint *ret)
{
    struct sockaddr_storage source;
    *ret = *server;
    if (ret->host[0] != '\0' && !ddpi_host_is_loopback(ret->host) &&
        (ddpi_source_address(ret->host, ret->port, &source, NULL) != DDP_OK ||
         is_loopback(&source)))
        ret->host[0] = '\0';
}
