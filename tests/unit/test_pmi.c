/*
 * test_pmi.c - sockets of the process manager: one that ends, and one with a rank that asks but
 * does not read. test_pmi_node.c tests the answers.
 */
#include "check_main.h"
#include "failmem.h"
#include "looptest.h"
#include "pmi.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 2, TURNS = 50, VALUE = 1000 };

static uv_loop_t loop;
static struct pmi pmi;
static int ranks[RANKS]; /* their ends */
static bool unplugged[RANKS];

static void on_say(void *ctx, const char *line)
{
    (void)ctx;
    (void)line;
}

static void on_aborted(void *ctx, uint32_t local_rank, int exit_code)
{
    (void)ctx;
    (void)local_rank;
    (void)exit_code;
}

static void on_unplugged(void *ctx, uint32_t local_rank)
{
    (void)ctx;
    unplugged[local_rank] = true;
    pmi_rank_gone(&pmi, local_rank);
}

static void prepare(void)
{
    const struct pmi_hooks hooks = {NULL, on_say, on_aborted, on_unplugged};
    const struct pmi_place place = {.nproc = RANKS, .world_size = RANKS, .nodes = 1};
    struct ddp_error error;
    signal(SIGPIPE, SIG_IGN); /* as the agent does */
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    pmi_init(&pmi, &loop, NULL, &hooks);
    ck_assert_int_eq(pmi_begin(&pmi, &place, &error), DDP_OK);
    for (uint32_t i = 0; i < RANKS; i++) {
        ck_assert_int_eq(pmi_connect(&pmi, i, &ranks[i], &error), DDP_OK);
        ck_assert_int_eq(fcntl(ranks[i], F_SETFL, O_NONBLOCK), 0);
    }
}

static void finish(void)
{
    for (uint32_t i = 0; i < RANKS; i++)
        close(ranks[i]);
    pmi_end(&pmi);
    looptest_close(&loop);
}

/* Socket data arrives at once: a few turns of the loop process everything. */
static void settle(void)
{
    for (int i = 0; i < TURNS; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
}

static void say(uint32_t rank, const char *line)
{
    ck_assert_int_eq(write(ranks[rank], line, strlen(line)), (ssize_t)strlen(line));
    settle();
}

static void hear(uint32_t rank, const char *expected)
{
    char text[4096];
    ssize_t len = read(ranks[rank], text, sizeof text - 1);
    ck_assert_int_ge(len, 0);
    text[len] = '\0';
    ck_assert_str_eq(text, expected);
}

static void hear_the_end(uint32_t rank)
{
    char text[4096];
    ck_assert_int_eq(read(ranks[rank], text, sizeof text), 0);
}

static void hear_nothing(uint32_t rank)
{
    char text[4096];
    ck_assert_int_eq(read(ranks[rank], text, sizeof text), -1);
    ck_assert_int_eq(errno, EAGAIN);
}

static void unplug(uint32_t rank)
{
    close(ranks[rank]);
    ranks[rank] = -1;
    settle();
}

static void init_all(void)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        say(i, "cmd=init pmi_version=1 pmi_subversion=1\n");
        hear(i, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    }
}

START_TEST(a_socket_that_ends_ends_the_barrier)
{
    init_all();
    say(1, "cmd=barrier_in\n");
    hear_nothing(1);
    unplug(0);
    ck_assert(unplugged[0] && !unplugged[1]);
    hear_the_end(1);
}
END_TEST

START_TEST(a_finalized_rank_may_close_it)
{
    init_all();
    say(0, "cmd=finalize\n");
    hear(0, "cmd=finalize_ack\n");
    unplug(0);
    say(1, "cmd=get key=a\n");
    hear(1, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    say(1, "cmd=finalize\n");
    hear(1, "cmd=finalize_ack\n");
}
END_TEST

START_TEST(an_answer_without_memory_ends_the_socket)
{
    init_all();
    say(1, "cmd=barrier_in\n");
    failmem_start_some(0, 1);
    say(0, "cmd=get_appnum\n");
    ck_assert(failmem_stop());
    ck_assert(unplugged[0]);
    hear_the_end(0);
    hear_the_end(1);
}
END_TEST

static void put_a_long_value(void)
{
    char line[VALUE + 64];
    snprintf(line, sizeof line, "cmd=put key=a value=%0*d\n", VALUE, 0);
    say(0, line);
    hear(0, "cmd=put_result rc=0 msg=success\n");
}

/* Send as many requests as rank 0's socket takes; returns their bytes. */
static size_t flood(void)
{
    enum { ALIKE = 100 };
    static const char question[] = "cmd=get key=a\n";
    char lines[ALIKE * (sizeof question - 1)];
    size_t sent = 0;
    for (int i = 0; i < ALIKE; i++)
        memcpy(lines + (size_t)i * (sizeof question - 1), question, sizeof question - 1);
    for (ssize_t len; (len = write(ranks[0], lines, sizeof lines)) > 0; settle()) {
        ck_assert_int_eq(len, sizeof lines);
        sent += (size_t)len;
    }
    ck_assert_int_eq(errno, EAGAIN);
    return sent;
}

/* An answer is seventy times as long as its request. */
START_TEST(a_rank_that_does_not_read_is_not_read_from)
{
    enum { READ = 40 };
    char text[VALUE];
    init_all();
    put_a_long_value();
    flood();
    size_t more = 0;
    for (int i = 0; i < READ; i++) {
        ck_assert_int_eq(read(ranks[0], text, sizeof text), sizeof text);
        settle();
        more += flood();
    }
    ck_assert_uint_le(more, 2 * PMI_LINE_MAX);
    while (read(ranks[0], text, sizeof text) > 0) /* and is read again afterwards */
        settle();
    ck_assert_uint_gt(flood(), 0);
}
END_TEST

START_TEST(a_rank_that_does_not_read_and_ends_is_noticed)
{
    init_all();
    put_a_long_value();
    say(1, "cmd=barrier_in\n");
    flood();
    unplug(0);
    ck_assert(unplugged[0]);
    hear_the_end(1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pmi");
    TCase *tcase = tcase_create("pmi");
    tcase_add_checked_fixture(tcase, prepare, finish);
    ADD_TESTS(tcase, a_socket_that_ends_ends_the_barrier, a_finalized_rank_may_close_it,
              an_answer_without_memory_ends_the_socket, a_rank_that_does_not_read_is_not_read_from,
              a_rank_that_does_not_read_and_ends_is_noticed);
    suite_add_tcase(suite, tcase);
    return suite;
}
