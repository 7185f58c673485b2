/*
 * etcd_address.c - parses the address of an etcd. Owns nothing.
 */
#include "etcd_address.h"

#include "error.h"

#include <stdio.h>
#include <string.h>

#define PLAIN "etcd://"
#define UNIX  "unix:/"
#define TLS   "etcds://"

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool ddpi_etcd_address_is(const char *text)
{
    return begins_with(text, PLAIN) || begins_with(text, TLS);
}

static ddp_status take_endpoint(struct ddpi_etcd_address *address, const char *item, size_t len,
                                struct ddp_error *err)
{
    char text[DDPI_HOST_MAX + 16];
    struct ddpi_endpoint *at = &address->at[address->count];
    if (address->count == DDPI_ETCD_ENDPOINTS_MAX)
        return ddpi_error_set(err, DDP_E_INVALID, "more than %d members of etcd are named",
                              DDPI_ETCD_ENDPOINTS_MAX);
    snprintf(text, sizeof text, "%.*s", (int)(len < sizeof text ? len : sizeof text), item);
    ddp_status status = ddpi_parse_endpoint(text, at, err);
    if (status != DDP_OK)
        return status;
    if (at->has_port && at->port == 0)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s': an etcd cannot have port 0", text);
    if (!at->has_port)
        at->port = DDPI_ETCD_PORT;
    at->has_port = true;
    address->count++;
    return DDP_OK;
}

/* Names between single slashes, so that no prefix is part of another by accident. */
static bool is_prefix(const char *text, size_t len)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    return len >= 2 && len <= DDPI_ETCD_PREFIX_MAX + 1 && strspn(text, allowed) >= len &&
           text[len - 1] != '/' && strstr(text, "//") == NULL;
}

/* Take "/PREFIX", which may end in slashes. */
static ddp_status take_prefix(struct ddpi_etcd_address *address, const char *text,
                              const char *prefix, struct ddp_error *err)
{
    size_t len = strlen(prefix);
    while (len > 1 && prefix[len - 1] == '/')
        len--;
    snprintf(address->prefix, sizeof address->prefix, "%.*s",
             (int)(len < sizeof address->prefix ? len : 0), prefix);
    if (is_prefix(address->prefix, strlen(address->prefix)))
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "'%s' names no prefix for the store's keys; write "
                          "etcd://HOST:PORT,HOST:PORT/PREFIX, where PREFIX is at most %d of "
                          "[A-Za-z0-9._-] and single '/'",
                          text, DDPI_ETCD_PREFIX_MAX);
}

/* "/SOCKET:/PREFIX" */
static ddp_status take_socket(struct ddpi_etcd_address *address, const char *text, const char *path,
                              struct ddp_error *err)
{
    const char *end = strstr(path, ":/");
    size_t len = end != NULL ? (size_t)(end - path) : strlen(path);
    if (address->tls || len > DDPI_ETCD_SOCKET_MAX)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "'%s': a socket of etcd is etcd://unix:SOCKET:/PREFIX, without TLS, "
                              "and the path SOCKET has at most %d bytes",
                              text, DDPI_ETCD_SOCKET_MAX);
    memcpy(address->socket, path, len);
    address->count = 1;
    return take_prefix(address, text, end != NULL ? end + 1 : "", err);
}

ddp_status ddpi_etcd_address_parse(const char *text, struct ddpi_etcd_address *ret,
                                   struct ddp_error *err)
{
    struct ddpi_etcd_address address = {.tls = begins_with(text, TLS)};
    const char *hosts = text + strlen(address.tls ? TLS : PLAIN), *item;
    if (begins_with(hosts, UNIX)) {
        ddp_status status = take_socket(&address, text, hosts + strlen(UNIX) - 1, err);
        if (status == DDP_OK)
            *ret = address;
        return status;
    }
    const char *slash = strchr(hosts, '/');
    char list[DDPI_ETCD_ENDPOINTS_MAX * (DDPI_HOST_MAX + 16)];
    size_t len = slash != NULL ? (size_t)(slash - hosts) : strlen(hosts);
    if (memchr(hosts, '@', len) != NULL)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "a user of etcd is not part of its address, which other users of "
                              "this machine can see; use --state-user and --state-password-file");
    ddp_status status = take_prefix(&address, text, slash != NULL ? slash : "", err);
    if (status != DDP_OK)
        return status;
    if (len == 0 || len >= sizeof list)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' names no member of etcd, or too many",
                              text);
    snprintf(list, sizeof list, "%.*s", (int)len, hosts);
    for (const char *cursor = list;
         status == DDP_OK && ddpi_parse_list_next(&cursor, ',', &item, &len);)
        status = take_endpoint(&address, item, len, err);
    if (status == DDP_OK)
        *ret = address;
    return status;
}

void ddpi_etcd_member_text(const struct ddpi_etcd_address *address, unsigned member,
                           char ret[DDPI_ETCD_MEMBER_TEXT])
{
    if (address->socket[0] != '\0')
        snprintf(ret, DDPI_ETCD_MEMBER_TEXT, "%s", address->socket);
    else
        ddpi_endpoint_text(&address->at[member], ret, DDPI_ETCD_MEMBER_TEXT);
}
