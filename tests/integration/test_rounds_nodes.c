/*
 * test_rounds_nodes.c - rounds from end to end, as long as nobody is lost: how jobs form, what ends
 * a generation, and what people want of them.
 */
#include "round_nodes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- forming ---- */

START_TEST(a_full_job_starts_at_once)
{
    struct node *b = join(0, "b", two), *a = join(1, "a", two);
    UNTIL(runs(1, 2));
    ck_assert(a->seat.node_rank == 0 && a->seat.first_rank == 0);
    ck_assert(b->seat.node_rank == 1 && b->seat.first_rank == 2);
    ck_assert(a->seat.nodes == 2 && a->seat.world_size == 4 && a->seat.restarts == 0);
    ck_assert_str_eq(a->seat.master_address, "localhost");
    ck_assert_uint_ne(a->seat.master_port, 0);
    ck_assert_uint_ne(a->seat.master_port, port);
    ck_assert_uint_eq(a->seat.master_port, b->seat.master_port);
    int fd = raw_try_connect(a->seat.master_port);
    ck_assert_int_ge(fd, 0);
    close(fd);
    assert_logged("job train: generation 1 with 2 nodes, 4 workers");
    struct ddpi_server_stats stats = ddpi_server_stats(server);
    ck_assert(stats.jobs == 1 && stats.members == 2);
    ck_assert_str_eq(get_key("epoch/train"), "1");
    UNTIL(get_key("round/train/state") != NULL && strstr(answer_text, "state running\n") != NULL);
    ck_assert_ptr_nonnull(strstr(answer_text, "seated 2\n"));
    OK(ddp_round_describe(a->round, "worker 0: pid 7\n", &why));
    UNTIL(listed("round/train/node/"));
    char key[sizeof answer_text];
    snprintf(key, sizeof key, "%s", answer_text);
    ck_assert_str_eq(get_key(key), "worker 0: pid 7\n");
    UNTIL(listed("round/train/member/"));
    snprintf(key, sizeof key, "%s", answer_text);
    ck_assert_ptr_nonnull(get_key(key));
    ck_assert_ptr_nonnull(strstr(answer_text, "address 127.0.0.1\n"));
}
END_TEST

/* Clients open data ports up to the limit. The port of the generation is not one of these. */
START_TEST(data_ports_of_clients_keep_no_job_from_beginning)
{
    enum { MOST = 256 };
    ddp_status status;
    unsigned count = 0;
    ck_assert_int_eq(
        ask((struct ddp_store_request){.op = DDP_STORE_OP_SESSION_OPEN, .lease_ms = LONG_LEASE_MS}),
        DDP_OK);
    const struct ddp_store_request open_port = {
        .op = DDP_STORE_OP_OPEN_PORT, .key = "other", .session = &people_session};
    while ((status = ask(open_port)) == DDP_OK)
        count++;
    ck_assert_int_eq(status, DDP_E_LIMIT);
    ck_assert_uint_eq(count, MOST);
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(nodes[0].seats > 0 && nodes[0].seat.order != DDP_ROUND_WAIT);
    ck_assert_int_eq(nodes[0].seat.order, DDP_ROUND_RUN);
    int fd = raw_try_connect(nodes[0].seat.master_port);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(ask(open_port), DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(answer_text, "opened 256 data ports"));
}
END_TEST

START_TEST(others_are_waited_for)
{
    struct ddp_round_terms patient = elastic;
    patient.settle_ms = 4000; /* node b may be kept from coming for a while */
    uint64_t start_ms = raw_now_ms();
    join(0, "a", patient);
    join(1, "b", patient);
    UNTIL(runs(1, 2));
    ck_assert_uint_ge(raw_now_ms() - start_ms, patient.settle_ms);
    ck_assert_uint_eq(nodes[0].seat.nodes, 2);
}
END_TEST

START_TEST(a_newcomer_is_seated)
{
    join(0, "a", elastic);
    UNTIL(runs(1, 1));
    join(1, "b", elastic);
    UNTIL(runs(2, 2));
    ck_assert_uint_eq(nodes[0].stops, 1);
    ck_assert(!nodes[0].stop.failed);
    ck_assert_uint_eq(nodes[0].seat.node_rank, 0);
    assert_logged("job train: stopping generation 1: node b joins");
}
END_TEST

START_TEST(others_than_agreed_are_refused)
{
    struct ddp_round_terms other = two;
    other.max_restarts = 9;
    join(0, "a", two);
    UNTIL(nodes[0].seats > 0);
    join(1, "b", other);
    UNTIL(nodes[1].seat.order == DDP_ROUND_END);
    ck_assert_int_eq(nodes[1].seat.exit_code, 78);
    ck_assert_int_eq(nodes[0].seat.order, DDP_ROUND_WAIT);
}
END_TEST

/* ---- rounds ---- */

START_TEST(a_failure_begins_a_new_round)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    uint16_t old_port = nodes[0].seat.master_port;
    set_key("job/train/g1/k", "1");
    set_key("job/train/g2/k", "2");
    set_key("job/train/gradient/k", "mine");
    set_key("job/train/tcp/k", "1");
    nodes[1].deaf = true;
    nodes[0].says.failure = (struct ddp_round_failure){
        .generation = 1, .rank = 1, .exit_code = 3, .ran_ms = 5, .text = "rank 1 has failed"};
    publish(&nodes[0]);
    UNTIL(nodes[0].stops == 1 && nodes[1].stops == 1);
    ck_assert(nodes[1].stop.failed);
    ck_assert_ptr_nonnull(strstr(nodes[1].stop.text, "rank 1 has failed"));
    ck_assert(get_key("job/train/g1/k") != NULL); /* as long as node b may be running */
    ck_assert_uint_eq(nodes[0].seat.generation, 1);
    nodes[1].deaf = false;
    say(&nodes[1], DDP_ROUND_IDLE, 1);
    UNTIL(runs(2, 2));
    ck_assert_uint_eq(nodes[0].seat.restarts, 1);
    ck_assert_ptr_null(get_key("job/train/g1/k"));
    ck_assert_ptr_null(get_key("job/train/tcp/k"));
    ck_assert_ptr_null(get_key("job/train/g2/k")); /* it was there before its generation */
    ck_assert_str_eq(get_key("job/train/gradient/k"), "mine");
    ck_assert_str_eq(get_key("epoch/train"), "2");
    ck_assert_int_eq(raw_try_connect(old_port), -1);
    assert_logged("job train: stopping generation 1: ");
}
END_TEST

START_TEST(it_is_over_when_all_are_done)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    uint16_t old_port = nodes[0].seat.master_port;
    say(&nodes[0], DDP_ROUND_DONE, 1);
    say(&nodes[1], DDP_ROUND_DONE, 1);
    UNTIL(nodes[0].seat.order == DDP_ROUND_END && nodes[1].seat.order == DDP_ROUND_END);
    ck_assert_int_eq(nodes[0].seat.exit_code, 0);
    assert_logged("job train: ended: exit code 0");
    set_key("round/train/want/drain/x", "");
    leave(&nodes[0]);
    ck_assert(listed("round/train/"));
    leave(&nodes[1]);
    UNTIL(!listed("round/train/"));
    ck_assert_uint_eq(ddpi_server_stats(server).jobs, 0);
    ck_assert_int_eq(raw_try_connect(old_port), -1);
    ck_assert_int_eq(ddp_round_publish(nodes[0].round, &nodes[0].says, &why), DDP_E_CLOSED);
    for (size_t i = 0; i < 2; i++)
        close_node(&nodes[i]);
    join(0, "a", two); /* the next job of that name goes on counting */
    join(1, "b", two);
    UNTIL(runs(2, 2));
}
END_TEST

START_TEST(who_leaves_is_done_without)
{
    join(0, "a", shrinking);
    join(1, "b", shrinking);
    UNTIL(runs(1, 2));
    nodes[1].deaf = true;
    nodes[1].says.leaving = true;
    publish(&nodes[1]);
    UNTIL(nodes[0].stops == 1);
    leave(&nodes[1]);
    UNTIL(runs(2, 1));
    ck_assert_uint_eq(nodes[0].seat.nodes, 1);
    ck_assert_uint_eq(nodes[1].losses, 0);
}
END_TEST

START_TEST(who_is_drained_is_done_without)
{
    join(0, "a", shrinking);
    join(1, "b/1", shrinking);
    UNTIL(runs(1, 2));
    set_key("round/train/want/drain/b/1", "");
    UNTIL(nodes[1].seat.order == DDP_ROUND_END && runs(2, 1));
    ck_assert_uint_eq(nodes[0].seat.nodes, 1);
}
END_TEST

/* The generations of a job that is fenced while it runs come after its epoch. */
START_TEST(a_fence_ends_no_job)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    OK(ask((struct ddp_store_request){.op = DDP_STORE_OP_FENCE, .key = "train", .number = 9}));
    leave(&nodes[1]);
    close_node(&nodes[1]);
    join(1, "b", two);
    UNTIL(runs(10, 2));
    ck_assert_str_eq(get_key("epoch/train"), "10");
}
END_TEST

/* Started again while one of the old nodes is still there. */
START_TEST(a_job_after_the_job)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    say(&nodes[0], DDP_ROUND_DONE, 1);
    say(&nodes[1], DDP_ROUND_DONE, 1);
    UNTIL(nodes[0].seat.order == DDP_ROUND_END && nodes[1].seat.order == DDP_ROUND_END);
    leave(&nodes[0]);
    close_node(&nodes[0]);
    join(0, "a", two);
    join(2, "c", two);
    UNTIL(nodes[0].seats > 0 && nodes[2].seats > 0);
    ck_assert_int_eq(nodes[0].seat.order, DDP_ROUND_WAIT);
    ck_assert_ptr_nonnull(strstr(nodes[0].seat.text, "the job before this one to leave"));
    leave(&nodes[1]);
    UNTIL(nodes[0].seat.order == DDP_ROUND_RUN && nodes[2].seat.order == DDP_ROUND_RUN);
    ck_assert(nodes[2].seat.generation == 2 && nodes[2].seat.nodes == 2);
    assert_logged("job train: its last node has left; it begins anew");
}
END_TEST

START_TEST(people_stop_and_scale)
{
    join(0, "a", shrinking);
    join(1, "b", shrinking);
    UNTIL(runs(1, 2));
    set_key("round/train/want/size", "nonsense");
    set_key("round/train/want/size", "1:1");
    UNTIL(runs(2, 1) && nodes[1].seat.order != DDP_ROUND_RUN);
    assert_logged("want/size is not MIN:MAX");
    set_key("round/train/want/stop", "");
    UNTIL(nodes[0].seat.order == DDP_ROUND_END);
    ck_assert_int_eq(nodes[0].seat.exit_code, 143);
}
END_TEST

START_TEST(a_checkpoint_lets_others_in)
{
    struct ddp_round_terms patient = elastic;
    patient.join = DDP_ROUND_JOIN_CHECKPOINT;
    join(0, "a", patient);
    UNTIL(runs(1, 1));
    join(1, "b", patient);
    UNTIL(nodes[1].seat.order == DDP_ROUND_WAIT && nodes[1].seats > 0);
    set_key("job/train/g1/unrelated", "");
    set_key("job/other/ddprun/checkpoint", "");
    ck_assert_uint_eq(nodes[0].stops, 0);
    set_key("job/train/g1/ddprun/checkpoint", "100");
    UNTIL(runs(2, 2));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds");
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_full_job_starts_at_once, data_ports_of_clients_keep_no_job_from_beginning,
              others_are_waited_for, a_newcomer_is_seated, others_than_agreed_are_refused,
              a_failure_begins_a_new_round, it_is_over_when_all_are_done,
              who_leaves_is_done_without, who_is_drained_is_done_without, a_fence_ends_no_job,
              a_job_after_the_job, people_stop_and_scale, a_checkpoint_lets_others_in);
    suite_add_tcase(suite, tcase);
    return suite;
}
