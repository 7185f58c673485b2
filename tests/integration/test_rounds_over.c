/*
 * test_rounds_over.c - a store that is for one job: it says once that the job is over, and then
 * serves nobody.
 */
#include "round_nodes.h"

#include <stdio.h>
#include <unistd.h>

static unsigned overs;

static void on_over(void *ctx)
{
    (void)ctx;
    overs++;
}

static void over_setup(void)
{
    overs = 0;
    setup();
    ddpi_server_end_with(server, "train", on_over, NULL);
}

/* Both of the job's nodes have its result, and are still there. */
static void close_job(void)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    say(&nodes[0], DDP_ROUND_DONE, 1);
    say(&nodes[1], DDP_ROUND_DONE, 1);
    UNTIL(nodes[0].seat.order == DDP_ROUND_END && nodes[1].seat.order == DDP_ROUND_END);
}

static void leave_and_close(struct node *node)
{
    leave(node);
    close_node(node);
}

START_TEST(it_is_over_when_the_last_node_has_left)
{
    ck_assert_ptr_null(get_key("closed/train"));
    close_job();
    leave_and_close(&nodes[0]);
    ck_assert_ptr_null(get_key("closed/train"));
    ck_assert_uint_eq(overs, 0);
    leave(&nodes[1]);
    UNTIL(overs == 1);
    assert_logged("job train is over, and so is its store");
    UNTIL(ddpi_server_stats(server).connections == 0); /* people are sent away, too */
    join(2, "c", two);
    UNTIL(ddpi_server_stats(server).accepted >= 5);
    UNTIL(ddpi_server_stats(server).connections == 0);
    ck_assert(nodes[2].seats == 0 && overs == 1);
}
END_TEST

START_TEST(nodes_that_wait_are_another_job)
{
    close_job();
    join(2, "a", two);
    join(3, "b", two);
    UNTIL(nodes[2].seats > 0 && nodes[3].seats > 0);
    set_key("closed/train", "1"); /* of an earlier job of that name */
    leave_and_close(&nodes[0]);
    leave_and_close(&nodes[1]);
    UNTIL(nodes[2].seat.order == DDP_ROUND_RUN && nodes[3].seat.order == DDP_ROUND_RUN);
    ck_assert_uint_eq(overs, 0);
    ck_assert_ptr_null(get_key("closed/train"));
}
END_TEST

START_TEST(another_job_is_not_meant)
{
    ddpi_server_end_with(server, "other", on_over, NULL);
    close_job();
    leave_and_close(&nodes[0]);
    leave_and_close(&nodes[1]);
    UNTIL(!listed("round/train/"));
    ck_assert_ptr_null(get_key("closed/train"));
    ck_assert_uint_eq(overs, 0);
}
END_TEST

static void start_again(void)
{
    stop_server();
    start_server(true);
    ddpi_server_end_with(server, "train", on_over, NULL);
}

/* As the next leader, when the first has died with what it knew. */
START_TEST(a_server_that_starts_again_knows_it)
{
    snprintf(state_file, sizeof state_file, "test_rounds_over.%d.state", (int)getpid());
    start_again();
    close_job();
    leave_and_close(&nodes[0]);
    start_again();
    UNTIL(get_key("round/train/state") != NULL);
    ck_assert_uint_eq(overs, 0); /* a node has not left yet */
    leave_and_close(&nodes[1]);
    UNTIL(overs == 1);
    start_again();
    UNTIL(overs == 2);
    unlink(state_file);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_over");
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, over_setup, teardown);
    ADD_TESTS(tcase, it_is_over_when_the_last_node_has_left, nodes_that_wait_are_another_job,
              another_job_is_not_meant, a_server_that_starts_again_knows_it);
    suite_add_tcase(suite, tcase);
    return suite;
}
