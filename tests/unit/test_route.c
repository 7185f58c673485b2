/*
 * test_route.c - from where this machine reaches an address, and what it cannot reach.
 */
#include "check_main.h"
#include "route.h"

#include <netinet/in.h>
#include <string.h>

START_TEST(this_machine_reaches_itself_by_loopback)
{
    struct sockaddr_storage own, there;
    struct ddp_error err;
    const struct sockaddr_in *from = (const void *)&own, *to = (const void *)&there;
    ck_assert_int_eq(ddpi_source_address("127.0.0.2", 9, &own, &err), DDP_OK);
    ck_assert_int_eq(from->sin_family, AF_INET);
    ck_assert_uint_eq(ntohl(from->sin_addr.s_addr) >> 24, IN_LOOPBACKNET);
    ck_assert_int_eq(ddpi_target_address("127.0.0.2", 9, &there, &err), DDP_OK);
    ck_assert_uint_eq(ntohl(to->sin_addr.s_addr), INADDR_LOOPBACK + 1);
    ck_assert_uint_eq(ntohs(to->sin_port), 9);
}
END_TEST

START_TEST(a_place_without_a_route_is_a_sentence)
{
    struct sockaddr_storage own;
    struct ddp_error err;
    ck_assert_int_ne(ddpi_source_address("255.255.255.255", 9, &own, &err), DDP_OK);
    ck_assert_ptr_nonnull(strstr(err.msg, "find a route to '255.255.255.255': "));
}
END_TEST

/* A machine need not have a default route. */
START_TEST(the_way_to_the_world_is_of_ipv4)
{
    struct sockaddr_storage own;
    if (ddpi_source_address(DDPI_THE_WORLD, 9, &own, NULL) == DDP_OK)
        ck_assert_int_eq(own.ss_family, AF_INET);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("route");
    TCase *tcase = tcase_create("route");
    ADD_TESTS(tcase, this_machine_reaches_itself_by_loopback, a_place_without_a_route_is_a_sentence,
              the_way_to_the_world_is_of_ipv4);
    suite_add_tcase(suite, tcase);
    return suite;
}
