/*
 * peer_owner_wire.c - questions about sockets, and answers. Owns nothing.
 *
 * An owner counts only while a process has the socket: one that was closed has no inode any more,
 * and says user 0 whoever had it.
 */
#include "peer_owner_wire.h"

#include "parse.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>

struct ddpi_end ddpi_end_of(const struct sockaddr *sockaddr)
{
    return (struct ddpi_end){ddpi_address_of(sockaddr), ddpi_address_port(sockaddr)};
}

/* --- the kernel's socket diagnosis --- */

static void put_address(const struct ddpi_address *address, bool v4, __be32 ret[4])
{
    if (v4)
        memcpy(ret, address->ip + 12, 4);
    else
        memcpy(ret, address->ip, 16);
}

static struct inet_diag_sockid sockid_of(const struct ddpi_end *end, const struct ddpi_end *other)
{
    bool v4 = ddpi_address_is_v4(&end->address);
    struct inet_diag_sockid id = {.idiag_sport = htons(end->port),
                                  .idiag_dport = htons(other->port),
                                  .idiag_if = end->address.scope,
                                  .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}};
    put_address(&end->address, v4, id.idiag_src);
    put_address(&other->address, v4, id.idiag_dst);
    return id;
}

size_t ddpi_owner_request(const struct ddpi_end *end, const struct ddpi_end *other, uint32_t number,
                          uint8_t ret[DDPI_OWNER_REQUEST_MAX])
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 body;
    } request = {
        .header = {.nlmsg_len = sizeof request,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST,
                   .nlmsg_seq = number},
        .body = {.sdiag_family = ddpi_address_is_v4(&end->address) ? AF_INET : AF_INET6,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = UINT32_MAX,
                 .id = sockid_of(end, other)},
    };
    _Static_assert(sizeof request <= DDPI_OWNER_REQUEST_MAX, "it fits");
    memcpy(ret, &request, sizeof request);
    return sizeof request;
}

/* IPv4 has one word of an address, also where the socket is one of IPv6. */
static bool same_ends(const struct inet_diag_msg *message, const struct ddpi_end *end,
                      const struct ddpi_end *other)
{
    struct inet_diag_sockid wanted = sockid_of(end, other), got = message->id;
    size_t size = ddpi_address_is_v4(&end->address) ? 4 : 16;
    size_t skip = size == 4 && message->idiag_family == AF_INET6 ? 3 : 0;
    return got.idiag_sport == wanted.idiag_sport && got.idiag_dport == wanted.idiag_dport &&
           memcmp(got.idiag_src + skip, wanted.idiag_src, size) == 0 &&
           memcmp(got.idiag_dst + skip, wanted.idiag_dst, size) == 0;
}

bool ddpi_owner_reply(const void *bytes, size_t len, const struct ddpi_end *end,
                      const struct ddpi_end *other, uint32_t number, struct ddpi_owner_answer *ret)
{
    struct nlmsghdr header;
    struct inet_diag_msg message;
    if (len < sizeof header)
        return false;
    memcpy(&header, bytes, sizeof header);
    if (header.nlmsg_seq != number || header.nlmsg_len > len)
        return false;
    *ret = (struct ddpi_owner_answer){0};
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header.nlmsg_len < NLMSG_HDRLEN + sizeof message)
        return header.nlmsg_type == NLMSG_ERROR;
    memcpy(&message, (const uint8_t *)bytes + NLMSG_HDRLEN, sizeof message);
    ret->found = same_ends(&message, end, other);
    ret->open = ret->found && message.idiag_inode != 0;
    ret->owner = message.idiag_uid;
    return true;
}

/* --- /proc/net/tcp --- */

/* As the kernel writes it: words of the address as numbers of this machine. */
static size_t put_end(const struct ddpi_end *end, bool v6, char *text, size_t size)
{
    size_t used = 0;
    for (size_t at = v6 ? 0 : 12; at < sizeof end->address.ip; at += 4) {
        uint32_t word;
        memcpy(&word, end->address.ip + at, sizeof word);
        used += (size_t)snprintf(text + used, size - used, "%08X", word);
    }
    return used + (size_t)snprintf(text + used, size - used, ":%04X ", end->port);
}

void ddpi_owner_line_ends(const struct ddpi_end *end, const struct ddpi_end *other, bool v6,
                          char ret[DDPI_OWNER_ENDS])
{
    size_t used = put_end(end, v6, ret, DDPI_OWNER_ENDS);
    (void)put_end(other, v6, ret + used, DDPI_OWNER_ENDS - used);
}

/* The word at *@at, which moves behind it, as a decimal number. */
static bool next_number(const char **at, int64_t *ret)
{
    char word[24];
    *at += strspn(*at, " ");
    size_t len = strcspn(*at, " \n");
    if (len == 0 || len >= sizeof word)
        return false;
    memcpy(word, *at, len);
    word[len] = '\0';
    *at += len;
    return ddpi_parse_int(word, 0, INT64_MAX, ret, NULL) == DDP_OK;
}

/* Behind the ends: the state, two queues, a timer, retransmissions, the user, a timeout, the inode.
 */
bool ddpi_owner_line(const char *line, const char *ends, struct ddpi_owner_answer *ret)
{
    int64_t owner, timeout, inode;
    const char *at = strstr(line, ends);
    if (at == NULL)
        return false;
    at += strlen(ends);
    for (int i = 0; i < 4; i++) {
        at += strspn(at, " ");
        at += strcspn(at, " \n");
    }
    *ret = (struct ddpi_owner_answer){.found = true};
    if (next_number(&at, &owner) && next_number(&at, &timeout) && next_number(&at, &inode) &&
        owner <= UINT32_MAX) {
        ret->open = inode != 0;
        ret->owner = (uint32_t)owner;
    }
    return true;
}
