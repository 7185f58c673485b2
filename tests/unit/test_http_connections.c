/*
 * test_http_connections.c - which connection is shut down, and when. One that waits for the owner
 * never is.
 */
#include "check_main.h"
#include "http_connections.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 4, LIMIT_MS = 1000 };

static struct http_connections all;
static struct http_connection *some[MOST];
static int clients[MOST];

static void make_connections(void)
{
    http_connections_init(&all, MOST, LIMIT_MS);
    for (unsigned i = 0; i < MOST; i++) {
        int ends[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        some[i] = http_connections_add(&all, ends[0], 10 * i);
        clients[i] = ends[1];
        ck_assert_ptr_nonnull(some[i]);
    }
    ck_assert_uint_eq(all.count, MOST);
}

static void remove_connections(void)
{
    for (unsigned i = 0; i < MOST; i++) {
        close(some[i]->fd);
        close(clients[i]);
        http_connections_remove(&all, some[i]);
    }
    ck_assert_uint_eq(all.count, 0);
}

/* As many bits as there are connections: those that are shut down. */
static unsigned shut(void)
{
    unsigned bits = 0;
    for (unsigned i = 0; i < MOST; i++) {
        struct pollfd client = {.fd = clients[i], .events = POLLIN};
        bits |= (unsigned)(poll(&client, 1, 0) == 1) << i;
    }
    return bits;
}

START_TEST(a_newcomer_takes_the_place_of_the_oldest)
{
    ck_assert(http_connections_make_room(&all));
    ck_assert_uint_eq(shut(), 1);
    http_connection_await(&all, some[1], 50); /* it has had an answer, so it is the youngest */
    ck_assert(http_connections_make_room(&all));
    ck_assert_uint_eq(shut(), 1 | 4);
}
END_TEST

START_TEST(nobody_goes_while_there_is_a_place)
{
    all.most = MOST + 1;
    ck_assert(!http_connections_make_room(&all));
    ck_assert_uint_eq(shut(), 0);
}
END_TEST

START_TEST(one_that_waits_for_the_owner_stays)
{
    for (unsigned i = 0; i < MOST - 1; i++)
        http_connection_pause(some[i]);
    ck_assert(http_connections_make_room(&all));
    ck_assert_uint_eq(shut(), 8);
    ck_assert(!http_connections_make_room(&all));
    ck_assert_uint_eq(http_connections_expire(&all, 100 * LIMIT_MS), UINT64_MAX);
    ck_assert_uint_eq(shut(), 8);
    http_connection_await(&all, some[0], 100 * LIMIT_MS);
    ck_assert_uint_eq(http_connections_expire(&all, 100 * LIMIT_MS + 1), LIMIT_MS - 1);
}
END_TEST

START_TEST(one_that_takes_too_long_goes)
{
    ck_assert_uint_eq(http_connections_expire(&all, LIMIT_MS - 1), 1);
    ck_assert_uint_eq(shut(), 0);
    ck_assert_uint_eq(http_connections_expire(&all, LIMIT_MS + 10), 10);
    ck_assert_uint_eq(shut(), 1 | 2);
    http_connection_await(&all, some[2], LIMIT_MS + 15);
    ck_assert_uint_eq(http_connections_expire(&all, LIMIT_MS + 30), LIMIT_MS - 15);
    ck_assert_uint_eq(shut(), 1 | 2 | 8);
    ck_assert_uint_eq(http_connections_expire(&all, 2 * LIMIT_MS + 15), UINT64_MAX);
    ck_assert_uint_eq(shut(), 15);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("http_connections");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, make_connections, remove_connections);
    ADD_TESTS(tcase, a_newcomer_takes_the_place_of_the_oldest, nobody_goes_while_there_is_a_place,
              one_that_waits_for_the_owner_stays, one_that_takes_too_long_goes);
    suite_add_tcase(suite, tcase);
    return suite;
}
