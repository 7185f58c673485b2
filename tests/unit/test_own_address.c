/*
 * test_own_address.c - which address a rank listens on: lists of interfaces in NCCL's syntax, the
 * order of families, and what there is to choose from on this machine.
 */
#include "check_main.h"
#include "own_address.h"
#include "sockets.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *list, *name;
    bool meant;
} meanings[] = {
    {"eth", "eth0", true},
    {"eth", "ethernet", true},
    {"eth", "meth0", false},
    {"eth0", "eth0", true},
    {"eth0", "eth01", true},
    {"eth0", "eth", false},
    {"eth,ib", "ib1", true},
    {"eth,ib", "lo", false},
    {"=eth0", "eth0", true},
    {"=eth0", "eth01", false},
    {"=eth0,ib1", "ib1", true},
    {"=eth0,ib1", "ib", false},
    {"^docker", "docker0", false},
    {"^docker", "eth0", true},
    {"^docker,lo", "lo", false},
    {"^=docker", "docker0", true},
    {"^=docker0", "docker0", false},
    {"^=lo,eth0", "eth0", false},
    {",eth", "eth0", true},
    {",", "eth0", false},
    {"^", "eth0", true},
};

START_TEST(lists_mean_names)
{
    ck_assert_msg(ddpi_interface_is_meant(meanings[_i].list, meanings[_i].name) ==
                      meanings[_i].meant,
                  "'%s' and '%s'", meanings[_i].list, meanings[_i].name);
}
END_TEST

/* An interface: v4 or v6 address, or NULL for none. */
struct interface {
    struct ifaddrs entry;
    struct sockaddr_storage address;
    char name[16];
};

static struct ifaddrs *add(struct interface *at, struct ifaddrs *next, const char *name,
                           const char *address, unsigned flags)
{
    struct sockaddr_in *v4 = (void *)&at->address;
    struct sockaddr_in6 *v6 = (void *)&at->address;
    *at = (struct interface){.entry = {.ifa_next = next, .ifa_flags = flags}};
    snprintf(at->name, sizeof at->name, "%s", name);
    at->entry.ifa_name = at->name;
    if (address == NULL)
        return &at->entry;
    at->entry.ifa_addr = (struct sockaddr *)&at->address;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1)
        v4->sin_family = AF_INET;
    else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1)
        v6->sin6_family = AF_INET6;
    return &at->entry;
}

static void expect(const struct ifaddrs *list, const char *names, const char *text)
{
    struct sockaddr_storage found;
    char got[DDPI_ADDRESS_TEXT];
    if (text == NULL) {
        ck_assert(!ddpi_interface_address(list, names, &found));
        return;
    }
    ck_assert(ddpi_interface_address(list, names, &found));
    ddpi_address_text(&found, got);
    ck_assert_str_eq(got, text);
}

START_TEST(the_first_that_is_up_is_taken)
{
    struct interface all[6];
    struct ifaddrs *list = add(&all[0], NULL, "eth2", "10.0.2.1", IFF_UP);
    list = add(&all[1], list, "eth1", "10.0.1.1", 0); /* down */
    list = add(&all[2], list, "eth0", "fd00::1", IFF_UP);
    list = add(&all[3], list, "eth0", "fe80::1", IFF_UP); /* link-local */
    list = add(&all[4], list, "tun0", NULL, IFF_UP);      /* without an address */
    list = add(&all[5], list, "lo", "127.0.0.1", IFF_UP);
    expect(list, "eth", "10.0.2.1:0"); /* IPv4 first */
    expect(list, "eth0", "[fd00::1]:0");
    expect(list, "eth1", NULL);
    expect(list, "tun", NULL);
    expect(list, "lo", "127.0.0.1:0");
    expect(list, "^lo", "10.0.2.1:0");
    expect(list, "^lo,eth2", "[fd00::1]:0");
    expect(list, "=lo", "127.0.0.1:0");
}
END_TEST

START_TEST(a_name_comes_before_the_route)
{
    struct sockaddr_storage found;
    struct ddp_error err;
    char text[DDPI_ADDRESS_TEXT];
    ck_assert_int_eq(ddpi_own_address("=lo", "192.0.2.1", 1, &found, &err), DDP_OK);
    ddpi_address_text(&found, text);
    ck_assert_str_eq(text, "127.0.0.1:0");
    ck_assert_int_eq(ddpi_own_address(NULL, "127.0.0.1", 1, &found, &err), DDP_OK);
    ddpi_address_text(&found, text);
    ck_assert_str_eq(text, "127.0.0.1:0"); /* any port: not one that the kernel chose for a query */
    ck_assert_int_eq(ddpi_own_address("", "", 0, &found, &err), DDP_OK);
    ck_assert_int_eq(ddpi_own_address("=nonsense", "", 0, &found, &err), DDP_E_INVALID);
    ck_assert_msg(strstr(err.msg, "'=nonsense'") != NULL && strstr(err.msg, " lo") != NULL, "%s",
                  err.msg);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("own address");
    TCase *tcase = tcase_create("choice");
    tcase_add_loop_test(tcase, lists_mean_names, 0, sizeof meanings / sizeof *meanings);
    tcase_add_test(tcase, the_first_that_is_up_is_taken);
    tcase_add_test(tcase, a_name_comes_before_the_route);
    suite_add_tcase(suite, tcase);
    return suite;
}
