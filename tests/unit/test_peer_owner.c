/*
 * test_peer_owner.c - whose the other end of a connection is: what is asked and answered, byte by
 * byte, and what the kernel of this machine says, both ways in which it can be asked.
 */
#include "check_main.h"
#include "peer_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGER = 65534, NUMBER = 42 };

static struct ddpi_end end_at(const char *text, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return ddpi_end_of((struct sockaddr *)&v4);
    ck_assert_int_eq(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return ddpi_end_of((struct sockaddr *)&v6);
}

/* ---- messages ---- */

static struct {
    struct nlmsghdr header;
    struct inet_diag_msg body;
} reply;

static void answer_to_nobody(uint8_t state, uint32_t owner, uint32_t inode)
{
    memset(&reply, 0, sizeof reply);
    reply.header = (struct nlmsghdr){
        .nlmsg_len = sizeof reply, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_seq = NUMBER};
    reply.body =
        (struct inet_diag_msg){.idiag_state = state, .idiag_uid = owner, .idiag_inode = inode};
}

/* What the kernel says of the socket that @request asks for. */
static void answer_to(const uint8_t *request, uint8_t state, uint32_t owner, uint32_t inode)
{
    struct inet_diag_req_v2 body;
    memcpy(&body, request + NLMSG_HDRLEN, sizeof body);
    answer_to_nobody(state, owner, inode);
    reply.body.idiag_family = body.sdiag_family;
    reply.body.id = body.id;
}

static const char *const pairs[][2] = {
    {"127.0.0.1", "127.0.0.2"}, {"::1", "::1"}, {"::ffff:127.0.0.1", "::ffff:127.0.0.1"}};

START_TEST(answers)
{
    struct ddpi_end one = end_at(pairs[_i][0], 1000), two = end_at(pairs[_i][1], 2000);
    uint8_t request[DDPI_OWNER_REQUEST_MAX];
    struct ddpi_owner_answer got;
    struct inet_diag_req_v2 asked;
    ck_assert_uint_eq(ddpi_owner_request(&one, &two, NUMBER, request), NLMSG_HDRLEN + sizeof asked);
    memcpy(&asked, request + NLMSG_HDRLEN, sizeof asked);
    ck_assert_int_eq(asked.sdiag_family, _i == 1 ? AF_INET6 : AF_INET);
    answer_to(request, TCP_ESTABLISHED, 1000, 7);
    ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
    ck_assert(got.found && got.open && got.owner == 1000);
    for (size_t cut = 0; cut < sizeof reply; cut++)
        ck_assert(!ddpi_owner_reply(&reply, cut, &one, &two, NUMBER, &got));
    ck_assert(!ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER + 1, &got));

    /* No process has it open any more; the kernel then reports user 0. */
    answer_to(request, TCP_FIN_WAIT2, 0, 0);
    ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
    ck_assert(got.found && !got.open);
    /* A listener on the peer's port, which is found where there is no connection. */
    answer_to(request, TCP_LISTEN, 0, 7);
    reply.body.id.idiag_dport = 0;
    ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
    ck_assert(!got.found && !got.open);
    /* "No". */
    reply.header.nlmsg_type = NLMSG_ERROR;
    ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
    ck_assert(!got.found && !got.open);
    reply.header.nlmsg_type = NLMSG_DONE;
    reply.header.nlmsg_len = NLMSG_HDRLEN;
    ck_assert(!ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
}
END_TEST

START_TEST(other_ends)
{
    struct ddpi_end one = end_at(pairs[_i][0], 1000), two = end_at(pairs[_i][1], 2000);
    struct ddpi_end others[] = {one, one};
    uint8_t request[DDPI_OWNER_REQUEST_MAX];
    struct ddpi_owner_answer got;
    others[0].port++;
    others[1].address.ip[15] ^= 8;
    for (size_t i = 0; i < 2; i++) {
        ddpi_owner_request(&others[i], &two, NUMBER, request);
        answer_to(request, TCP_ESTABLISHED, 1000, 7);
        ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
        ck_assert(!got.found);
        ddpi_owner_request(&one, &others[i], NUMBER, request);
        answer_to(request, TCP_ESTABLISHED, 1000, 7);
        ck_assert(ddpi_owner_reply(&reply, sizeof reply, &one, &two, NUMBER, &got));
        ck_assert(!got.found);
    }
}
END_TEST

/* ---- lines ---- */

START_TEST(lines_of_the_table)
{
    struct ddpi_end one = end_at("127.0.0.1", 0x1f90), two = end_at("127.0.0.2", 0xab);
    char ends[DDPI_OWNER_ENDS];
    struct ddpi_owner_answer got;
    ddpi_owner_line_ends(&one, &two, false, ends);
    if (htonl(1) != 1) /* numbers of this machine */
        ck_assert_str_eq(ends, "0100007F:1F90 0200007F:00AB ");
    char line[256];
    snprintf(line, sizeof line,
             "  12: %s01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4",
             ends);
    ck_assert(ddpi_owner_line(line, ends, &got));
    ck_assert(got.found && got.open && got.owner == 1000);
    snprintf(line, sizeof line,
             "  12: %s06 00000000:00000000 03:00001760 00000000     0        0 0 3", ends);
    ck_assert(ddpi_owner_line(line, ends, &got));
    ck_assert(got.found && !got.open);
    ddpi_owner_line_ends(&two, &one, false, ends);
    ck_assert(!ddpi_owner_line(line, ends, &got));
    snprintf(line, sizeof line, "  12: %s01 0:0", ends); /* no such thing is written */
    ck_assert(ddpi_owner_line(line, ends, &got));
    ck_assert(!got.open);
    one = end_at("::ffff:127.0.0.1", 1);
    ddpi_owner_line_ends(&one, &one, true, ends);
    if (htonl(1) != 1)
        ck_assert_str_eq(ends, "0000000000000000FFFF00000100007F:0001 "
                               "0000000000000000FFFF00000100007F:0001 ");
}
END_TEST

/* ---- the kernel ---- */

struct connection {
    int client, server;
    struct ddpi_end peer, here; /* as the server sees it */
};

static int listen_on(int family, struct sockaddr_storage *ret, socklen_t *ret_len)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    int bound = family == AF_INET ? bind(fd, (struct sockaddr *)&v4, sizeof v4)
                                  : bind(fd, (struct sockaddr *)&v6, sizeof v6);
    ck_assert_int_eq(bound, 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    *ret_len = sizeof *ret;
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)ret, ret_len), 0);
    return fd;
}

/* 0: IPv4; 1: IPv6; 2: IPv4 to a socket of both. */
static struct connection connect_as(int way, uid_t user)
{
    struct connection made = {0};
    struct sockaddr_storage at, peer = {0}, here = {0};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len;
    int listener = listen_on(way == 0 ? AF_INET : AF_INET6, &at, &len);
    if (way == 1)
        ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_loopback;
    v4.sin_port = ((struct sockaddr_in *)&at)->sin_port; /* stands at one place in both */
    ck_assert_int_eq(seteuid(user), 0);
    made.client = socket(way == 1 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert_int_ge(made.client, 0);
    int connected = way == 1 ? connect(made.client, (struct sockaddr *)&at, len)
                             : connect(made.client, (struct sockaddr *)&v4, sizeof v4);
    ck_assert_int_eq(connected, 0);
    len = sizeof peer;
    made.server = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_CLOEXEC);
    ck_assert_int_ge(made.server, 0);
    len = sizeof here;
    ck_assert_int_eq(getsockname(made.server, (struct sockaddr *)&here, &len), 0);
    made.peer = ddpi_end_of((struct sockaddr *)&peer);
    made.here = ddpi_end_of((struct sockaddr *)&here);
    close(listener);
    return made;
}

/* By the diagnosis and by the table. */
START_TEST(what_the_kernel_says)
{
    struct ddpi_owners owners;
    int way = _i / 2;
    uint32_t owner;
    bool known;
    if (way > 0 && !has_ipv6())
        SKIP("IPv6");
    ddpi_owners_init(&owners);
    owners.has_none = _i % 2 == 1;
    struct connection own = connect_as(way, getuid());
    ck_assert(ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert(known && owner == geteuid());
    if (geteuid() == 0 && owners.whole) {
        struct connection other = connect_as(way, STRANGER);
        ck_assert(!ddpi_owners_ours(&owners, &other.peer, &other.here, &owner, &known));
        ck_assert(known && owner == STRANGER);
        close(other.client); /* it says user 0 from now on */
        ck_assert(!ddpi_owners_ours(&owners, &other.peer, &other.here, &owner, &known));
        ck_assert(!known);
        close(other.server);
    } else {
        say_skip(__func__, "root and all user ids");
    }
    close(own.client);
    ck_assert(!ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    close(own.server);
    own.peer.port = 1;
    ck_assert(!ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert(!known);
    ddpi_owners_finish(&owners);
}
END_TEST

/* The end of such a connection is in no list, ours neither: that is no reason to read the table for
 * all who come later. */
START_TEST(the_first_peer_has_reset_its_connection)
{
    static const struct linger at_once = {.l_onoff = 1};
    struct ddpi_owners owners, fresh;
    uint32_t owner;
    bool known;
    ddpi_owners_init(&owners);
    ddpi_owners_init(&fresh);
    struct connection gone = connect_as(0, getuid()), own = connect_as(0, getuid());
    ck_assert(ddpi_owners_ours(&fresh, &own.peer, &own.here, &owner, &known));
    if (fresh.has_none)
        SKIP("the socket diagnosis");
    ck_assert_int_eq(setsockopt(gone.client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(gone.client);
    ck_assert(!ddpi_owners_ours(&owners, &gone.peer, &gone.here, &owner, &known));
    ck_assert(!known && !owners.has_none && owners.works);
    ck_assert(ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert(known && owner == geteuid() && !owners.has_none);
    close(gone.server);
    close(own.client);
    close(own.server);
    ddpi_owners_finish(&owners);
    ddpi_owners_finish(&fresh);
}
END_TEST

/* ---- a port ---- */

static size_t put_socket(uint8_t *bytes, uint8_t state, uint16_t port, uint32_t owner,
                         uint32_t inode)
{
    answer_to_nobody(state, owner, inode);
    reply.body.id.idiag_sport = htons(port);
    memcpy(bytes, &reply, sizeof reply);
    return sizeof reply;
}

START_TEST(lists_of_sockets)
{
    enum { PORT = 29500 };
    static const struct {
        uint8_t state;
        uint16_t port;
        uint32_t owner, inode;
        enum ddpi_port_news news;
    } rows[] = {{TCP_LISTEN, PORT, 1000, 7, DDPI_PORT_SOCKET},
                {TCP_CLOSE, PORT, 1001, 7, DDPI_PORT_SOCKET},
                {TCP_LISTEN, PORT, 1002, 0, DDPI_PORT_OTHER},
                {TCP_LISTEN, PORT + 1, 1003, 7, DDPI_PORT_OTHER}};
    enum { ROWS = sizeof rows / sizeof *rows };
    uint8_t bytes[(ROWS + 1) * sizeof reply];
    size_t len = 0;
    for (size_t i = 0; i < ROWS; i++)
        len += put_socket(bytes + len, rows[i].state, rows[i].port, rows[i].owner, rows[i].inode);
    for (size_t cut = 0; cut <= len; cut++) {
        const uint8_t *at = bytes;
        size_t left = cut;
        for (size_t i = 0; i < cut / sizeof reply; i++) {
            uint32_t owner = 0;
            ck_assert_int_eq(ddpi_port_next(&at, &left, PORT, NUMBER, &owner), rows[i].news);
            ck_assert_uint_eq(owner, rows[i].news == DDPI_PORT_SOCKET ? rows[i].owner : 0);
        }
        enum ddpi_port_news last = ddpi_port_next(&at, &left, PORT, NUMBER, &(uint32_t){0});
        ck_assert_int_eq(last, cut % sizeof reply < sizeof reply.header ? DDPI_PORT_MORE
                                                                        : DDPI_PORT_ERROR);
    }
    const uint8_t *at = bytes;
    size_t left = len;
    ck_assert_int_eq(ddpi_port_next(&at, &left, PORT, NUMBER + 1, &(uint32_t){0}), DDPI_PORT_OTHER);
    for (int type = NLMSG_ERROR; type <= NLMSG_DONE; type++) {
        reply.header.nlmsg_type = (uint16_t)type;
        at = (const uint8_t *)&reply;
        left = sizeof reply;
        ck_assert_int_eq(ddpi_port_next(&at, &left, PORT, NUMBER, &(uint32_t){0}),
                         type == NLMSG_DONE ? DDPI_PORT_END : DDPI_PORT_ERROR);
    }
}
END_TEST

/* A socket of @user on a free port, at which it listens or not. */
static int take_port(int family, uid_t user, bool listens, uint16_t *ret)
{
    struct sockaddr_storage at = {.ss_family = (sa_family_t)family};
    socklen_t len = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    ck_assert_int_eq(seteuid(user), 0);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, len), 0);
    ck_assert(!listens || listen(fd, 1) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *ret = ddpi_end_of((struct sockaddr *)&at).port;
    return fd;
}

static bool tells_of_bound_ones(void)
{
    struct utsname name;
    return uname(&name) == 0 && strverscmp(name.release, "6.8") >= 0;
}

/* By the diagnosis and by the table, which has listeners only; IPv4 and IPv6. Kernels before Linux
 * 6.8 do not report bound sockets. */
START_TEST(strangers_on_a_port)
{
    struct ddpi_owners owners;
    bool by_table = _i % 2 == 1, v6 = _i / 2 % 2 == 1, listens = _i / 4 == 0;
    uint16_t port;
    uint32_t owner = 0;
    if (v6 && !has_ipv6())
        SKIP("IPv6");
    ddpi_owners_init(&owners);
    owners.has_none = by_table;
    int own = take_port(v6 ? AF_INET6 : AF_INET, getuid(), listens, &port);
    ck_assert(!ddpi_owners_stranger_on(&owners, port, !listens, &owner));
    close(own);
    ck_assert(!ddpi_owners_stranger_on(&owners, port, !listens, &owner));
    if (geteuid() != 0 || !owners.whole)
        SKIP("root and all user ids");
    int other = take_port(v6 ? AF_INET6 : AF_INET, STRANGER, listens, &port);
    bool found = ddpi_owners_stranger_on(&owners, port, !listens, &owner);
    ck_assert(found == (listens || (!by_table && tells_of_bound_ones())));
    ck_assert(!found || owner == STRANGER);
    ck_assert(listens || !ddpi_owners_stranger_on(&owners, port, false, &owner));
    ck_assert(!ddpi_owners_stranger_on(&owners, (uint16_t)(port ^ 1), true, &owner));
    close(other);
    ck_assert(!ddpi_owners_stranger_on(&owners, port, !listens, &owner));
}
END_TEST

/* A listener of @user at @address and *@port; 0: a free one. */
static int take_address(uint32_t address, uid_t user, uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t len = sizeof at;
    at.sin_addr.s_addr = htonl(address);
    ck_assert_int_eq(seteuid(user), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(seteuid(getuid()), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* By the diagnosis and by the table, in which one of the two comes first as the port has it: hence
 * several ports. */
START_TEST(a_stranger_beside_us_on_a_port)
{
    struct ddpi_owners owners;
    uint16_t port = 0;
    uint32_t owner = 0;
    ddpi_owners_init(&owners);
    owners.has_none = _i % 2 == 1;
    if (geteuid() != 0 || !owners.whole)
        SKIP("root and all user ids");
    int own = take_address(INADDR_LOOPBACK, getuid(), &port);
    int other = take_address(INADDR_LOOPBACK + 1, STRANGER, &port);
    ck_assert(ddpi_owners_stranger_on(&owners, port, false, &owner));
    ck_assert_uint_eq(owner, STRANGER);
    close(other);
    ck_assert(!ddpi_owners_stranger_on(&owners, port, false, &owner));
    close(own);
}
END_TEST

/* The first question cannot be asked for want of a descriptor: later ones are asked nevertheless,
 * and the table is not read instead. */
START_TEST(no_descriptor_to_ask_with)
{
    struct ddpi_owners owners;
    struct rlimit limit, none;
    uint32_t owner;
    bool known;
    ddpi_owners_init(&owners);
    struct connection own = connect_as(0, getuid());
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert(!ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(!known && !owners.has_none && !owners.works);
    ck_assert(ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert(known && owner == geteuid());
    close(own.client);
    close(own.server);
    ddpi_owners_finish(&owners);
}
END_TEST

/* If the namespace does not map all user ids, the overflow id is not a particular user. */
START_TEST(users_without_a_number)
{
    struct ddpi_owners owners;
    uint32_t owner;
    bool known;
    ddpi_owners_init(&owners);
    struct connection own = connect_as(0, getuid());
    owners.whole = false;
    owners.nobody = geteuid();
    ck_assert(!ddpi_owners_ours(&owners, &own.peer, &own.here, &owner, &known));
    ck_assert(!known);
    close(own.client);
    close(own.server);
    ddpi_owners_finish(&owners);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("peer_owner");
    TCase *wire = tcase_create("wire");
    tcase_add_loop_test(wire, answers, 0, 3);
    tcase_add_loop_test(wire, other_ends, 0, 3);
    tcase_add_test(wire, lines_of_the_table);
    tcase_add_test(wire, lists_of_sockets);
    suite_add_tcase(suite, wire);
    TCase *kernel = tcase_create("kernel");
    tcase_add_loop_test(kernel, what_the_kernel_says, 0, 6);
    tcase_add_test(kernel, no_descriptor_to_ask_with);
    tcase_add_test(kernel, the_first_peer_has_reset_its_connection);
    tcase_add_test(kernel, users_without_a_number);
    tcase_add_loop_test(kernel, strangers_on_a_port, 0, 8);
    tcase_add_loop_test(kernel, a_stranger_beside_us_on_a_port, 0, 16);
    suite_add_tcase(suite, kernel);
    return suite;
}
