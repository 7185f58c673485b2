/*
 * test_tf_cluster.c - the ports that a node keeps for its workers, and TensorFlow's cluster of
 * them.
 */
#include "check_main.h"
#include "tf_cluster.h"
#include "worker_ports.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ddp_error err;

/* As the servers of gRPC do it. */
static int listen_at(uint16_t port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

START_TEST(workers_can_listen_on_each_port)
{
    struct worker_ports ports;
    int fds[5];
    worker_ports_init(&ports, 5);
    worker_ports_renew(&ports, 0);
    ck_assert_uint_ne(ports.first, 0);
    for (uint16_t i = 0; i < 5; i++)
        fds[i] = listen_at((uint16_t)(ports.first + i));
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    worker_ports_close(&ports);
}
END_TEST

/* Those of the last one may be in use still. */
START_TEST(each_generation_has_ports_of_its_own)
{
    struct worker_ports ports;
    worker_ports_init(&ports, 2);
    worker_ports_renew(&ports, 0);
    uint16_t first = ports.first;
    worker_ports_renew(&ports, 0);
    ck_assert_uint_eq(ports.first, first);
    worker_ports_keep(&ports, 1);
    worker_ports_renew(&ports, 1);
    ck_assert_uint_eq(ports.first, first);
    int fd = listen_at(first);
    worker_ports_renew(&ports, 2);
    ck_assert_uint_ne(ports.first, 0);
    ck_assert(ports.first + 1 < first || ports.first > first);
    close(fd);
    worker_ports_close(&ports);
}
END_TEST

START_TEST(more_ports_than_there_are_in_a_row)
{
    struct worker_ports ports;
    worker_ports_init(&ports, 65536);
    worker_ports_renew(&ports, 0);
    ck_assert_uint_eq(ports.first, 0);
    worker_ports_close(&ports);
}
END_TEST

static struct ddp_round_member a = {.name = "a",
                                    .address = "10.0.0.1",
                                    .nproc = 2,
                                    .first_port = 40000,
                                    .terms.worker_ports = true};
static struct ddp_round_member b = {
    .name = "b", .address = "fe80::1", .nproc = 1, .first_port = 65535, .terms.worker_ports = true};
static struct tf_cluster cluster;

static ddp_status make_cluster(void)
{
    const struct ddp_round_member *const nodes[] = {&a, &b};
    return tf_cluster_make(&cluster, nodes, 2, &err);
}

START_TEST(every_rank_has_an_address)
{
    for (int i = 0; i < 2; i++)
        ck_assert_msg(make_cluster() == DDP_OK, "%s", err.msg);
    ck_assert_str_eq(cluster.text, "\"cluster\":{\"worker\":[\"10.0.0.1:40000\",\"10.0.0.1:40001\","
                                   "\"[fe80::1]:65535\"]}}");
}
END_TEST

START_TEST(what_a_node_says_is_not_trusted)
{
    memcpy(a.address, "a\"],\"x", sizeof "a\"],\"x");
    ck_assert_int_eq(make_cluster(), DDP_OK);
    ck_assert_ptr_nonnull(strstr(cluster.text, "[\"a\\\"],\\\"x:40000\","));
    b.nproc = 2;
    ck_assert_int_eq(make_cluster(), DDP_E_INVALID);
    ck_assert_ptr_null(cluster.text);
}
END_TEST

START_TEST(a_node_without_the_option_is_named)
{
    b.terms.worker_ports = false;
    ck_assert_int_eq(make_cluster(), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "node b runs without --tf-config"));
}
END_TEST

START_TEST(a_node_without_ports_is_named)
{
    a.first_port = 0;
    ck_assert_int_eq(make_cluster(), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "node a has found no 2 free ports in a row"));
}
END_TEST

START_TEST(more_workers_than_a_variable_can_name)
{
    a.first_port = 1;
    a.nproc = 20000;
    ck_assert_int_eq(make_cluster(), DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(err.msg, "20001 workers"));
}
END_TEST

static char why_not[256];
static int results;

static void on_done(void *ctx, const struct ddp_round_seat *seat, const char *why)
{
    (void)ctx;
    ck_assert_ptr_eq(seat, &cluster.seat);
    snprintf(why_not, sizeof why_not, "%s", why != NULL ? why : "");
    results++;
}

/* The store has @value at @key, or the reading has failed with @status; then it is over. */
static void read_all(const char *key, const char *value, ddp_status status)
{
    const struct job_keys_hooks *hooks = &cluster.keys.hooks;
    tf_cluster_open(&cluster, NULL, "train", on_done, NULL);
    cluster.seat = (struct ddp_round_seat){.order = DDP_ROUND_RUN, .generation = 1, .nodes = 2};
    cluster.keys.status = status;
    results = 0;
    hooks->value(hooks->ctx, key, 1, value, strlen(value));
    hooks->over(hooks->ctx);
    job_view_finish(&cluster.view);
}

START_TEST(what_cannot_be_read_is_an_error)
{
    read_all("round/train/member/1", "nonsense", DDP_OK);
    ck_assert_int_eq(results, 1);
    ck_assert_ptr_nonnull(strstr(why_not, "a record of a node that this ddprun cannot read"));
    read_all("round/train/seat/1", "nonsense", DDP_OK);
    ck_assert_int_eq(results, 1);
    read_all("round/train/none", "", DDP_E_NOMEM);
    ck_assert_int_eq(results, 1);
    ck_assert_ptr_nonnull(strstr(why_not, "cannot be read: "));
}
END_TEST

START_TEST(nothing_is_said_of_a_generation_that_is_over)
{
    read_all("round/train/none", "", DDP_OK);
    ck_assert_int_eq(results, 0);
}
END_TEST

static void finish_cluster(void)
{
    tf_cluster_finish(&cluster);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("tf_cluster");
    TCase *tcase = tcase_create("tf_cluster");
    tcase_add_checked_fixture(tcase, NULL, finish_cluster);
    ADD_TESTS(tcase, workers_can_listen_on_each_port, each_generation_has_ports_of_its_own,
              more_ports_than_there_are_in_a_row, every_rank_has_an_address,
              what_a_node_says_is_not_trusted, a_node_without_the_option_is_named,
              a_node_without_ports_is_named, more_workers_than_a_variable_can_name,
              what_cannot_be_read_is_an_error, nothing_is_said_of_a_generation_that_is_over);
    suite_add_tcase(suite, tcase);
    return suite;
}
