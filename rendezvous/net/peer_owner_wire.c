/*
 * peer_owner_wire.c - requests about sockets, and answers. Owns nothing.
 *
 * An owner is valid only while a process has the socket open: a closed one has no inode, and shows
 * user 0.
 */
#include "peer_owner_wire.h"

#include "parse.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>

/* States as bits of a request; the second exists since Linux 6.8. */
enum { LISTENING = 1 << 10, BOUND = 1 << 13 };

struct ddpi_end ddpi_end_of(const struct sockaddr *sockaddr)
{
    return (struct ddpi_end){ddpi_address_of(sockaddr), ddpi_address_port(sockaddr)};
}

/* ---- the kernel's socket diagnosis ---- */

static void put_ip(const struct ddpi_address *address, bool v4, __be32 ret[4])
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
    put_ip(&end->address, v4, id.idiag_src);
    put_ip(&other->address, v4, id.idiag_dst);
    return id;
}

static size_t put_request(uint16_t flags, uint32_t number, const struct inet_diag_req_v2 *body,
                          uint8_t ret[DDPI_OWNER_REQUEST_MAX])
{
    const struct nlmsghdr header = {.nlmsg_len = NLMSG_LENGTH(sizeof *body),
                                    .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                    .nlmsg_flags = NLM_F_REQUEST | flags,
                                    .nlmsg_seq = number};
    _Static_assert(NLMSG_LENGTH(sizeof *body) <= DDPI_OWNER_REQUEST_MAX, "it fits");
    memcpy(ret, &header, sizeof header);
    memcpy(ret + NLMSG_HDRLEN, body, sizeof *body);
    return header.nlmsg_len;
}

size_t ddpi_owner_request(const struct ddpi_end *end, const struct ddpi_end *other, uint32_t number,
                          uint8_t ret[DDPI_OWNER_REQUEST_MAX])
{
    const struct inet_diag_req_v2 body = {
        .sdiag_family = ddpi_address_is_v4(&end->address) ? AF_INET : AF_INET6,
        .sdiag_protocol = IPPROTO_TCP,
        .idiag_states = UINT32_MAX,
        .id = sockid_of(end, other)};
    return put_request(0, number, &body, ret);
}

/* An IPv4 address is one word, also in an IPv6 socket. */
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

size_t ddpi_port_request(uint16_t port, bool v6, bool bound, uint32_t number,
                         uint8_t ret[DDPI_OWNER_REQUEST_MAX])
{
    const struct inet_diag_req_v2 body = {
        .sdiag_family = v6 ? AF_INET6 : AF_INET,
        .sdiag_protocol = IPPROTO_TCP,
        .idiag_states = bound ? LISTENING | BOUND : LISTENING,
        .id = {.idiag_sport = htons(port),
               .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}};
    return put_request(NLM_F_DUMP, number, &body, ret);
}

enum ddpi_port_news ddpi_port_next(const uint8_t **bytes, size_t *len, uint16_t port,
                                   uint32_t number, uint32_t *ret_owner)
{
    struct nlmsghdr header;
    struct inet_diag_msg message;
    if (*len < sizeof header)
        return DDPI_PORT_MORE;
    memcpy(&header, *bytes, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > *len)
        return DDPI_PORT_ERROR;
    const uint8_t *body = *bytes + NLMSG_HDRLEN;
    size_t size = NLMSG_ALIGN(header.nlmsg_len) < *len ? NLMSG_ALIGN(header.nlmsg_len) : *len;
    *bytes += size;
    *len -= size;
    if (header.nlmsg_seq != number)
        return DDPI_PORT_OTHER;
    if (header.nlmsg_type == NLMSG_DONE)
        return DDPI_PORT_END;
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header.nlmsg_len < NLMSG_HDRLEN + sizeof message)
        return DDPI_PORT_ERROR;
    memcpy(&message, body, sizeof message);
    if (message.id.idiag_sport != htons(port) || message.idiag_inode == 0)
        return DDPI_PORT_OTHER;
    *ret_owner = message.idiag_uid;
    return DDPI_PORT_SOCKET;
}

/* ---- /proc/net/tcp ---- */

/* As the kernel prints it: the words of the address in the byte order of this machine. */
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

/* The peer address of a listener is zero. */
void ddpi_port_line_ends(uint16_t port, bool v6, char ret[DDPI_OWNER_ENDS])
{
    snprintf(ret, DDPI_OWNER_ENDS, ":%04X %0*d:0000 ", port, v6 ? 32 : 8, 0);
}

/* Parse the word at *@at as a decimal number, and advance past it. */
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

/* After the ends: state, two queues, timer, retransmissions, user, timeout, inode. */
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
