/*
 * unique_id.c - unique ids: made, read, and given up. Owns nothing: the listener belongs to the id
 * until a communicator takes it over.
 */
#include "unique_id.h"

#include "config.h"
#include "error.h"
#include "own_address.h"
#include "private_fds.h"
#include "sockets.h"
#include "token_file.h"

#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_NODE = 40, ID_BACKLOG = 4096 };

static const char id_magic[8] = "ddpid 1";
static const char purpose[] = "ddprun unique id 1";

/* Numbers are little-endian; the rest is zero. */
struct id_wire {
    char magic[sizeof id_magic];
    uint8_t secret[DDPI_KEY_SIZE];
    uint8_t address[16]; /* an IPv4 address takes the first four */
    uint64_t inode;
    uint32_t pid;
    uint32_t fd;
    uint16_t port;
    uint8_t version; /* of IP: 4 or 6 */
    char node[ID_NODE];
};
static_assert(sizeof(struct id_wire) <= sizeof(struct ddp_unique_id), "an id has room for it");

/* ---- the bytes ---- */

static void write_address(const struct sockaddr_storage *address, struct id_wire *wire)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;
    bool is_v4 = address->ss_family == AF_INET;
    wire->version = is_v4 ? 4 : 6;
    wire->port = htole16(ntohs(is_v4 ? v4->sin_port : v6->sin6_port));
    if (is_v4)
        memcpy(wire->address, &v4->sin_addr, sizeof v4->sin_addr);
    else
        memcpy(wire->address, &v6->sin6_addr, sizeof v6->sin6_addr);
}

static void read_address(const struct id_wire *wire, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (void *)ret;
    struct sockaddr_in6 *v6 = (void *)ret;
    *ret = (struct sockaddr_storage){0};
    if (wire->version == 4) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(le16toh(wire->port));
        memcpy(&v4->sin_addr, wire->address, sizeof v4->sin_addr);
    } else {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(le16toh(wire->port));
        memcpy(&v6->sin6_addr, wire->address, sizeof v6->sin6_addr);
    }
}

static void write_id(const struct ddpi_id *id, struct ddp_unique_id *ret)
{
    struct id_wire wire = {
        .inode = htole64(id->inode), .pid = htole32(id->pid), .fd = htole32(id->fd)};
    memcpy(wire.magic, id_magic, sizeof wire.magic);
    memcpy(wire.secret, id->secret, sizeof wire.secret);
    memcpy(wire.node, id->node, strnlen(id->node, sizeof wire.node - 1));
    write_address(&id->address, &wire);
    *ret = (struct ddp_unique_id){0};
    memcpy(ret->bytes, &wire, sizeof wire);
    ddpi_wipe(&wire, sizeof wire);
}

ddp_status ddpi_id_read(const struct ddp_unique_id *id, struct ddpi_id *ret, struct ddp_error *err)
{
    struct id_wire wire;
    memcpy(&wire, id->bytes, sizeof wire);
    bool valid = memcmp(wire.magic, id_magic, sizeof id_magic) == 0 &&
                 (wire.version == 4 || wire.version == 6) && wire.port != 0;
    if (!valid)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "these bytes are not a unique id of this version: pass on all %zu "
                              "bytes that ddp_get_unique_id() has made on rank 0",
                              sizeof id->bytes);
    *ret = (struct ddpi_id){
        .pid = le32toh(wire.pid), .fd = le32toh(wire.fd), .inode = le64toh(wire.inode)};
    memcpy(ret->secret, wire.secret, sizeof ret->secret);
    for (size_t i = 0; i < sizeof wire.node - 1 && wire.node[i] != '\0'; i++)
        ret->node[i] = isgraph((unsigned char)wire.node[i]) ? wire.node[i] : '?';
    read_address(&wire, &ret->address);
    ddpi_wipe(&wire, sizeof wire);
    return DDP_OK;
}

void ddpi_id_key(const struct ddpi_id *id, struct ddpi_rank_key *ret)
{
    ddpi_hkdf_expand(id->secret, purpose, sizeof purpose, ret->bytes, sizeof ret->bytes);
    ret->given = true;
}

/* ---- the listener ---- */

/* A close-on-exec socket that listens at @address; -1 with errno. */
static int listen_at(struct sockaddr_storage *address, bool inherited)
{
    socklen_t len = sizeof *address;
    ddpi_private_begin();
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (!inherited)
        fd = ddpi_private_add(fd);
    ddpi_private_end();
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)address, ddpi_address_len(address)) == 0 &&
        listen(fd, ID_BACKLOG) == 0 && getsockname(fd, (struct sockaddr *)address, &len) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

ddp_status ddpi_id_make(const char *interfaces, const char *host, bool inherited,
                        struct ddp_unique_id *ret_id, struct ddp_error *err)
{
    struct ddpi_id id = {.pid = (uint32_t)getpid()};
    struct stat file;
    char text[DDPI_ADDRESS_TEXT];
    ddp_status status = ddpi_own_address(interfaces, host, 0, &id.address, err);
    if (status != DDP_OK)
        return status;
    ddpi_address_text(&id.address, text);
    int fd = listen_at(&id.address, inherited);
    if (fd < 0 || fstat(fd, &file) != 0)
        return ddpi_error_advise_descriptors(err, ddpi_error_sys(err, errno, "listen on %s", text));
    id.fd = (uint32_t)fd;
    id.inode = file.st_ino;
    (void)gethostname(id.node, sizeof id.node - 1);
    ddpi_token_random(id.secret, sizeof id.secret);
    write_id(&id, ret_id);
    ddpi_wipe(&id, sizeof id);
    return DDP_OK;
}

int ddpi_id_listener(const struct ddpi_id *id)
{
    struct stat file;
    int fd = id->fd <= INT32_MAX ? (int)id->fd : -1, listens = 0;
    socklen_t len = sizeof listens;
    bool ours = fd >= 0 && fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode) &&
                file.st_ino == id->inode &&
                getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0 && listens != 0;
    return ours ? fd : -1;
}

ddp_status ddp_get_unique_id(struct ddp_unique_id *ret_id, struct ddp_error *err)
{
    return ddpi_id_make(ddpi_config_interfaces(ddpi_config_getenv), "", false, ret_id, err);
}

void ddp_drop_unique_id(const struct ddp_unique_id *unique_id)
{
    struct ddpi_id id;
    int fd = ddpi_id_read(unique_id, &id, NULL) == DDP_OK ? ddpi_id_listener(&id) : -1;
    ddpi_close_fd(&fd);
}
