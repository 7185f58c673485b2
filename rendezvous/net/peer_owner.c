/*
 * peer_owner.c - asks the kernel for the owners of sockets. Owns a netlink socket.
 *
 * Possible failure modes are:
 *   - no answer about the first peer: if there is one about a listener made for that, the peer's
 *     end is not on this machine, or was reset; otherwise socket diagnosis does not work, and the
 *     table is read from then on. Our own end of the connection says nothing: a reset removes it;
 *   - no descriptor or memory for the request: the owner of this peer is unknown;
 *   - the table changes while it is read, so that a line is missed: it is read again, a few times.
 */
#include "peer_owner.h"

#include "parse.h"
#include "text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    REPLY_MAX = 4096,
    STALE_MAX = 16,      /* answers to earlier requests that are skipped */
    DUMP_MAX = 8 * 1024, /* the kernel sends a list in parts of this size */
    TABLE_TRIES = 3,
    TABLE_CHUNK = 16 * 1024,
    TABLE_MAX = 64 * 1024 * 1024,
    NOBODY = 65534, /* the kernel's default overflow user id */
};

/* ---- user ids ---- */

void ddpi_owners_init(struct ddpi_owners *owners)
{
    char text[256];
    int64_t nobody = NOBODY;
    *owners = (struct ddpi_owners){.fd = -1};
    if (ddpi_text_file_read("/proc/sys/kernel/overflowuid", text, sizeof text)) {
        text[strcspn(text, "\n")] = '\0';
        if (ddpi_parse_int(text, 0, UINT32_MAX, &nobody, NULL) != DDP_OK)
            nobody = NOBODY;
    }
    owners->nobody = (uint32_t)nobody;
    /* "0 0 4294967295", with more blanks: the user namespace maps all ids. */
    (void)ddpi_text_file_read("/proc/self/uid_map", text, sizeof text);
    owners->whole = strstr(text, " 4294967295\n") != NULL;
}

void ddpi_owners_finish(struct ddpi_owners *owners)
{
    if (owners->fd >= 0)
        close(owners->fd);
    owners->fd = -1;
}

static bool owner_is_trusted(const struct ddpi_owners *owners, uint32_t owner)
{
    return (owners->whole || owner != owners->nobody) && (owner == 0 || owner == geteuid());
}

/* ---- the socket diagnosis ---- */

/* An error that does not tell whether the diagnosis works. */
static bool is_shortage(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/* The kernel answers within send(), so this does not wait. False: no descriptor or memory. */
static bool owner_ask(struct ddpi_owners *owners, const struct ddpi_end *end,
                      const struct ddpi_end *other, struct ddpi_owner_answer *ret)
{
    uint8_t bytes[REPLY_MAX];
    *ret = (struct ddpi_owner_answer){0};
    size_t len = ddpi_owner_request(end, other, ++owners->number, bytes);
    if (owners->fd < 0)
        owners->fd =
            socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (owners->fd < 0 || send(owners->fd, bytes, len, 0) != (ssize_t)len)
        return !is_shortage(errno);
    for (int i = 0; i < STALE_MAX; i++) {
        ssize_t got = recv(owners->fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return !is_shortage(errno);
        if (ddpi_owner_reply(bytes, (size_t)got, end, other, owners->number, ret))
            break;
    }
    return true;
}

/* ---- the table ---- */

/* Find in @path the first line about a socket with @ends (peer_owner_wire.h). If @strangers_to is
 * not NULL, skip sockets that are closed, and those of users whom it trusts. */
static bool read_table(const char *path, const char *ends, const struct ddpi_owners *strangers_to,
                       struct ddpi_owner_answer *ret)
{
    char text[TABLE_CHUNK + 1];
    size_t held = 0, total = 0;
    bool found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !found && total < TABLE_MAX) {
        ssize_t got = read(fd, text + held, TABLE_CHUNK - held);
        if (got <= 0)
            break;
        total += (size_t)got;
        held += (size_t)got;
        text[held] = '\0';
        char *line = text;
        for (char *end; !found && (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            found = ddpi_owner_line(line, ends, ret) &&
                    (strangers_to == NULL ||
                     (ret->open && !owner_is_trusted(strangers_to, ret->owner)));
        }
        held -= (size_t)(line - text);
        memmove(text, line, held);
        if (held == TABLE_CHUNK) /* longer than any line of the table */
            break;
    }
    if (fd >= 0)
        close(fd);
    return found;
}

/* An IPv6 socket that is connected over IPv4 is in the IPv6 table. */
static struct ddpi_owner_answer read_tables(const struct ddpi_end *end,
                                            const struct ddpi_end *other)
{
    char v4[DDPI_OWNER_ENDS], v6[DDPI_OWNER_ENDS];
    struct ddpi_owner_answer answer = {0};
    bool is_v4 = ddpi_address_is_v4(&end->address);
    ddpi_owner_line_ends(end, other, false, v4);
    ddpi_owner_line_ends(end, other, true, v6);
    for (int i = 0; i < TABLE_TRIES; i++)
        if ((is_v4 && read_table("/proc/self/net/tcp", v4, NULL, &answer)) ||
            read_table("/proc/self/net/tcp6", v6, NULL, &answer))
            break;
    return answer;
}

/* A line that is written while its socket is being closed can show user 0 with an inode, so two
 * readings must agree. */
static struct ddpi_owner_answer owner_from_tables(const struct ddpi_end *end,
                                                  const struct ddpi_end *other)
{
    struct ddpi_owner_answer first = read_tables(end, other), answer = read_tables(end, other);
    answer.open = answer.open && first.open && first.owner == answer.owner;
    return answer;
}

/* ---- the owner of a peer ---- */

/* Ask for a socket that exists for certain: a listener of our own. If none can be had, the table is
 * read from now on; for want of a descriptor or memory that is still open. */
static void find_out(struct ddpi_owners *owners)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct ddpi_end nobody = {.port = 0};
    socklen_t len = sizeof at;
    struct ddpi_owner_answer answer = {0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 1) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) != 0) {
        owners->has_none = !is_shortage(errno);
    } else {
        const struct ddpi_end end = ddpi_end_of((struct sockaddr *)&at);
        owners->has_none = owner_ask(owners, &end, &nobody, &answer) && !answer.found;
        owners->works = answer.found;
    }
    if (fd >= 0)
        close(fd);
}

static struct ddpi_owner_answer owner_find(struct ddpi_owners *owners, const struct ddpi_end *peer,
                                           const struct ddpi_end *here)
{
    struct ddpi_owner_answer answer = {0};
    if (!owners->has_none && owner_ask(owners, peer, here, &answer) && !answer.found &&
        !owners->works)
        find_out(owners);
    owners->works = owners->works || answer.found;
    return owners->has_none ? owner_from_tables(peer, here) : answer;
}

bool ddpi_owners_ours(struct ddpi_owners *owners, const struct ddpi_end *peer,
                      const struct ddpi_end *here, uint32_t *ret_owner, bool *ret_known)
{
    struct ddpi_owner_answer answer = owner_find(owners, peer, here);
    *ret_known = answer.open && (owners->whole || answer.owner != owners->nobody);
    *ret_owner = answer.owner;
    return *ret_known && owner_is_trusted(owners, answer.owner);
}

bool ddpi_owners_peer_is_ours(int fd)
{
    struct sockaddr_storage peer = {0}, here = {0};
    socklen_t peer_len = sizeof peer, here_len = sizeof here;
    struct ddpi_owners owners;
    uint32_t owner;
    bool known;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0 ||
        getsockname(fd, (struct sockaddr *)&here, &here_len) != 0)
        return false;
    const struct ddpi_end there = ddpi_end_of((struct sockaddr *)&peer);
    const struct ddpi_end own = ddpi_end_of((struct sockaddr *)&here);
    ddpi_owners_init(&owners);
    bool ours = ddpi_owners_ours(&owners, &there, &own, &owner, &known);
    ddpi_owners_finish(&owners);
    return ours;
}

/* ---- a port ---- */

/* Read the list requested on @fd, up to the first socket of another user. False: the kernel sends
 * no list. */
static bool read_list(const struct ddpi_owners *owners, int fd, uint16_t port, uint32_t number,
                      uint32_t *ret_owner, bool *ret_found)
{
    uint8_t bytes[DUMP_MAX];
    enum ddpi_port_news news = DDPI_PORT_MORE;
    do {
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        const uint8_t *at = bytes;
        size_t left = (size_t)got;
        do {
            news = ddpi_port_next(&at, &left, port, number, ret_owner);
            *ret_found = news == DDPI_PORT_SOCKET && !owner_is_trusted(owners, *ret_owner);
        } while (!*ret_found && (news == DDPI_PORT_SOCKET || news == DDPI_PORT_OTHER));
    } while (news == DDPI_PORT_MORE);
    return news != DDPI_PORT_ERROR;
}

/* Uses a socket of its own, since the unread rest of a list stays in it. */
static bool ask_for_list(const struct ddpi_owners *owners, uint16_t port, bool v6, bool bound,
                         uint32_t *ret_owner, bool *ret_found)
{
    enum { NUMBER = 1 };
    uint8_t request[DDPI_OWNER_REQUEST_MAX];
    size_t len = ddpi_port_request(port, v6, bound, NUMBER, request);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    bool told = fd >= 0 && send(fd, request, len, 0) == (ssize_t)len &&
                read_list(owners, fd, port, NUMBER, ret_owner, ret_found);
    if (fd >= 0)
        close(fd);
    return told;
}

bool ddpi_owners_stranger_on(const struct ddpi_owners *owners, uint16_t port, bool bound,
                             uint32_t *ret_owner)
{
    static const char *const tables[] = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
    bool found = false;
    for (int v6 = 0; v6 < 2 && !found; v6++) {
        char ends[DDPI_OWNER_ENDS];
        struct ddpi_owner_answer answer = {0};
        if (!owners->has_none && ask_for_list(owners, port, v6 == 1, bound, ret_owner, &found))
            continue;
        ddpi_port_line_ends(port, v6 == 1, ends);
        found = read_table(tables[v6], ends, owners, &answer);
        if (found)
            *ret_owner = answer.owner;
    }
    return found;
}
