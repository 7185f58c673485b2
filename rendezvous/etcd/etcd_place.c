/*
 * etcd_place.c - see etcd_place.h. Owns the socket, on which nothing is ever sent.
 */
#include "etcd_place.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void read_place(char ret[DDPI_ETCD_PLACE_CHARS])
{
    char boot[40] = "", network[40] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, boot, 36) : -1;
    if (fd >= 0)
        close(fd);
    if (len == 36 && readlink("/proc/self/ns/net", network, sizeof network - 1) > 0)
        snprintf(ret, DDPI_ETCD_PLACE_CHARS, "%s %s", boot, network);
}

/* An abstract name, in no file system; a hash, as both texts may be longer than a name. Returns the
 * length of the address. */
static socklen_t name_claim(const char *prefix, const char *endpoint, struct sockaddr_un *ret)
{
    uint8_t hash[crypto_generichash_BYTES];
    char hex[2 * sizeof hash + 1];
    crypto_generichash_state state;
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    crypto_generichash_update(&state, (const void *)prefix, strlen(prefix) + 1);
    crypto_generichash_update(&state, (const void *)endpoint, strlen(endpoint));
    crypto_generichash_final(&state, hash, sizeof hash);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    int len = snprintf(ret->sun_path + 1, sizeof ret->sun_path - 1, "ddprund %s", hex);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

ddp_status ddpi_etcd_place_take(struct ddpi_etcd_place *place, const char *prefix,
                                const char *endpoint, struct ddp_error *err)
{
    struct sockaddr_un name;
    socklen_t len = name_claim(prefix, endpoint, &name);
    *place = (struct ddpi_etcd_place){.claim = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (place->claim < 0)
        return DDP_OK;
    if (bind(place->claim, (const struct sockaddr *)&name, len) == 0) {
        read_place(place->text);
        return DDP_OK;
    }
    int sys_errno = errno;
    ddpi_etcd_place_leave(place);
    if (sys_errno != EADDRINUSE)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_INVALID,
                          "another ddprund of this machine already serves this state as %s; end "
                          "it, or give each of them an address of its own with --advertise",
                          endpoint);
}

void ddpi_etcd_place_leave(struct ddpi_etcd_place *place)
{
    if (place->claim >= 0)
        close(place->claim);
    place->claim = -1;
}
