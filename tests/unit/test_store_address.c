/*
 * test_store_address.c - whose name a name is, and which of its addresses a node takes that is to
 * host the store.
 */
#include "check_main.h"
#include "store_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

static const struct {
    const char *name, *own_name;
    bool is_own;
} names[] = {
    {"host1", "host1", true},
    {"HOST1", "host1", true},
    {"host1", "Host1.cluster.example", true},
    {"host1.cluster.example", "host1", true},
    {"host1.a.example", "host1.b.example", false},
    {"host1", "host10", false},
    {"host10", "host1", false},
    {"host2", "host1", false},
    {"host1", "", false},
    {"localhost", "localhost", false},
    {"LocalHost", "localhost.localdomain", false},
    {"localhost.localdomain", "localhost.localdomain", false},
    {"run7.localhost", "run7", false},
    {"ip6-localhost", "ip6-localhost", false},
    {"ip6-loopback", "ip6-loopback", false},
    {"localhost1", "localhost1", true},
    {"ip6-router", "ip6-router", true},
    {"10.0.0.1", "10", false},
    {"127.0.1.1", "127.0.1.1", false},
    {"127.1", "127", false},
    {"::1", "::1", false},
    {"fe80::1%eth0", "fe80::1%eth0", false},
};

START_TEST(whose_name_it_is)
{
    ck_assert_msg(store_address_is_own_name(names[_i].name, names[_i].own_name) == names[_i].is_own,
                  "'%s' on '%s'", names[_i].name, names[_i].own_name);
}
END_TEST

enum { ADDRESSES_MAX = 3 };

/* A list of addresses, as of a resolver and of the interfaces. */
struct addresses {
    struct sockaddr_storage at[ADDRESSES_MAX];
    struct addrinfo infos[ADDRESSES_MAX];
    struct ifaddrs interfaces[ADDRESSES_MAX];
};

static void fill(struct addresses *list, const char *const texts[ADDRESSES_MAX])
{
    memset(list, 0, sizeof *list);
    for (int i = 0; i < ADDRESSES_MAX && texts[i] != NULL; i++) {
        struct sockaddr_in *v4 = (void *)&list->at[i];
        struct sockaddr_in6 *v6 = (void *)&list->at[i];
        bool is_v4 = inet_pton(AF_INET, texts[i], &v4->sin_addr) == 1;
        if (!is_v4)
            ck_assert_int_eq(inet_pton(AF_INET6, texts[i], &v6->sin6_addr), 1);
        list->at[i].ss_family = is_v4 ? AF_INET : AF_INET6;
        list->infos[i].ai_addr = list->interfaces[i].ifa_addr = (struct sockaddr *)&list->at[i];
        list->infos[i].ai_addrlen = is_v4 ? sizeof *v4 : sizeof *v6;
        if (i > 0) {
            list->infos[i - 1].ai_next = &list->infos[i];
            list->interfaces[i - 1].ifa_next = &list->interfaces[i];
        }
    }
}

/* On host1, which has 127.0.0.1, 10.0.0.1 and fd00::1. */
static const struct {
    const char *name, *resolved[ADDRESSES_MAX], *host;
    bool ours, is_loopback, is_own_name;
} choices[] = {
    {"host1", {"10.0.0.1"}, "10.0.0.1", true, false, true},
    {"host1", {"127.0.1.1"}, "127.0.1.1", true, true, true},
    {"host1", {"127.0.1.1", "10.0.0.1"}, "127.0.1.1", true, true, true},
    {"host1", {"10.0.9.9", "127.0.1.1"}, "127.0.1.1", true, true, true},
    {"host1", {"10.0.9.9"}, "10.0.9.9", false, false, true},
    {"host1", {NULL}, "", false, false, true},
    {"host2", {"10.0.0.2"}, "10.0.0.2", false, false, false},
    {"host2", {"10.0.0.2", "fd00::1"}, "fd00::1", true, false, false},
    {"host2", {"127.0.0.1"}, "127.0.0.1", true, true, false},
    {"localhost", {"::1", "127.0.0.1"}, "::1", true, true, false},
    {"::", {"::"}, "::", false, false, false},
    {"0.0.0.0", {"0.0.0.0"}, "0.0.0.0", false, false, false},
    {"store", {NULL}, "", false, false, false},
};

START_TEST(which_address_it_takes)
{
    static const char *const own[ADDRESSES_MAX] = {"127.0.0.1", "10.0.0.1", "fd00::1"};
    struct addresses resolved, here;
    struct ifaddrs bare = {.ifa_next = here.interfaces}; /* no address: a tunnel */
    struct sockaddr packet = {.sa_family = AF_PACKET};   /* as each Ethernet has */
    struct ifaddrs first = {.ifa_next = &bare, .ifa_addr = &packet};
    fill(&resolved, choices[_i].resolved);
    fill(&here, own);
    struct store_address address =
        store_address_choose(choices[_i].name, "host1",
                             resolved.infos[0].ai_addr != NULL ? resolved.infos : NULL, &first);
    ck_assert_str_eq(address.host, choices[_i].host);
    ck_assert_int_eq(address.ours, choices[_i].ours);
    ck_assert_int_eq(address.is_loopback, choices[_i].is_loopback);
    ck_assert_int_eq(address.is_own_name, choices[_i].is_own_name);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_address");
    TCase *tcase = tcase_create("store_address");
    tcase_add_loop_test(tcase, whose_name_it_is, 0, sizeof names / sizeof *names);
    tcase_add_loop_test(tcase, which_address_it_takes, 0, sizeof choices / sizeof *choices);
    suite_add_tcase(suite, tcase);
    return suite;
}
