/*
 * test_rounds_loss.c - rounds from end to end when members or the server are lost, and when what is
 * said makes no sense.
 */
#include "round_nodes.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- being lost ---- */

START_TEST(a_dead_member_is_missed_at_once)
{
    join(0, "a", shrinking); /* with leases that do not end */
    join(1, "b", shrinking);
    UNTIL(runs(1, 2));
    UNTIL(reads_all());
    close_node(&nodes[1]);
    UNTIL(runs(2, 1));
    assert_logged("job train: stopping generation 1: node b");
}
END_TEST

START_TEST(a_reset_is_no_death)
{
    join(0, "a", shrinking);
    lease_ms = LEASE_MS;
    join(1, "b", shrinking);
    UNTIL(runs(1, 2));
    const struct linger now = {.l_onoff = 1};
    ck_assert_int_eq(
        setsockopt(ddp_round_socket(nodes[1].round), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    uint64_t contact_ms = nodes[1].contact_ms;
    close_node(&nodes[1]);
    UNTIL(runs(2, 1));
    ck_assert_msg(raw_now_ms() + 2 >= contact_ms + LEASE_MS, "%s", log_text);
}
END_TEST

/* A member that finds itself refused may still have workers: its session stays for them. */
START_TEST(who_is_refused_counts_until_it_is_there_again)
{
    char seat[sizeof answer_text], old[sizeof answer_text];
    lease_ms = LEASE_MS;
    join(0, "a", elastic);
    UNTIL(runs(1, 1));
    ck_assert(listed("round/train/member/"));
    memcpy(old, answer_text, sizeof old);
    ck_assert(listed("round/train/seat/"));
    memcpy(seat, answer_text, sizeof seat);
    ask((struct ddp_store_request){.op = DDP_STORE_OP_DELETE, .key = seat});
    UNTIL(nodes[0].losses == 1);
    uint64_t start_ms = raw_now_ms();
    UNTIL(raw_now_ms() - start_ms > LEASE_MS + LEASE_MS / 2);
    ck_assert_ptr_nonnull(get_key(old));
    say(&nodes[0], DDP_ROUND_IDLE, 0);
    UNTIL(get_key(old) == NULL);
    UNTIL(runs(2, 1));
}
END_TEST

START_TEST(a_new_connection_keeps_the_seat)
{
    join(0, "a", two);
    lease_ms = LEASE_MS;
    join(1, "b", two);
    UNTIL(runs(1, 2));
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t before_ms = nodes[1].contact_ms;
        shutdown(ddp_round_socket(nodes[1].round), SHUT_RD);
        UNTIL(nodes[1].connects == i + 1 && nodes[1].contact_ms > before_ms);
    }
    uint64_t start_ms = raw_now_ms();
    UNTIL(raw_now_ms() - start_ms > LEASE_MS + LEASE_MS / 4);
    ck_assert_uint_eq(nodes[0].stops + nodes[1].stops + nodes[1].losses, 0);
    say(&nodes[1], DDP_ROUND_DONE, 1); /* what is published still arrives */
    say(&nodes[0], DDP_ROUND_DONE, 1);
    UNTIL(nodes[1].seat.order == DDP_ROUND_END);
}
END_TEST

/* ---- the server ---- */

START_TEST(another_server_knows_nobody)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    stop_server();
    start_server(false);
    UNTIL(nodes[0].losses == 1 && nodes[1].losses == 1);
    for (size_t i = 0; i < 2; i++) {
        nodes[i].seat = (struct ddp_round_seat){0};
        say(&nodes[i], DDP_ROUND_IDLE, 0);
    }
    UNTIL(runs(1, 2));
}
END_TEST

START_TEST(a_durable_server_goes_on)
{
    snprintf(state_file, sizeof state_file, "test_rounds.%d.state", (int)getpid());
    stop_server();
    start_server(true);
    struct ddp_round_terms three = shrinking;
    three.min_nodes = 2;
    three.max_nodes = 3;
    join(0, "a", three);
    join(1, "b", three);
    join(2, "c", three);
    UNTIL(runs(1, 3));
    uint16_t master_port = nodes[0].seat.master_port;
    UNTIL(get_key("round/train/state") != NULL && strstr(answer_text, "running_ms") != NULL);
    stop_server();
    log_text[0] = '\0';
    start_server(true);
    UNTIL(nodes[0].connects == 2 && nodes[1].connects == 2 && nodes[2].connects == 2);
    ck_assert_ptr_nonnull(get_key("round/train/state"));
    ck_assert_ptr_nonnull(
        strstr(answer_text, "state running\ngeneration 1\nmembers 3\nseated 3\n"));
    ck_assert_uint_eq(nodes[0].stops + nodes[0].losses, 0);
    ck_assert_str_eq(log_text, "");
    int fd = raw_try_connect(master_port);
    ck_assert_int_ge(fd, 0);
    close(fd);
    close_node(&nodes[2]);
    UNTIL(runs(2, 2));
    ck_assert_uint_eq(nodes[0].seat.nodes, 2);
    unlink(state_file);
}
END_TEST

/* ---- what nobody means well by ---- */

START_TEST(nonsense_is_answered)
{
    set_key("round/train/member/77", "name x\n");
    UNTIL(get_key("round/train/seat/77") != NULL);
    ck_assert_ptr_nonnull(strstr(answer_text, "order end\n"));
    ck_assert_ptr_nonnull(strstr(answer_text, "exit_code 78\n"));
    ck_assert_ptr_nonnull(strstr(answer_text, "text the server cannot read what this member says"));
    set_key("round/train/member/x", "");
    UNTIL(get_key("round/train/seat/x") != NULL);
    set_key("round/../member/1", "");
    set_key("round/train/member/", "");
    set_key("round/train/member", "");
    set_key("round/train", "");
    set_key("round/", "");
    ck_assert_uint_eq(ddpi_server_stats(server).jobs, 0);
    ck_assert_int_eq(
        ask((struct ddp_store_request){.op = DDP_STORE_OP_DELETE, .key = "round/train/member/77"}),
        DDP_OK);
    UNTIL(get_key("round/train/seat/77") == NULL);
}
END_TEST

START_TEST(bad_calls)
{
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    struct ddp_round_hooks hooks = node_hooks;
    hooks.data = &nodes[0];
    ddp_round *round;
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a/b", 1, &hooks, &round, &why),
                     DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 0, &hooks, &round, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, NULL, "a", 1, &hooks, &round, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 1, NULL, &round, &why), DDP_E_INVALID);
    hooks.seat = NULL;
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 1, &hooks, &round, &why), DDP_E_INVALID);
    hooks.seat = node_hooks.seat;
    OK(ddp_round_join(&loop, &options, "a", 1000, &hooks, &nodes[0].round, &why));
    struct ddp_round_member bad = {.name = "x", .nproc = 1, .node_rank = -1};
    ck_assert_int_eq(ddp_round_publish(nodes[0].round, &bad, &why), DDP_E_INVALID);
    ddp_round_leave(nodes[0].round, 0, on_left, &nodes[0]); /* before it was a member */
    ck_assert(!nodes[0].left);
    UNTIL(nodes[0].left);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rounds_loss");
    TCase *tcase = tcase_create("real");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_dead_member_is_missed_at_once, a_reset_is_no_death,
              who_is_refused_counts_until_it_is_there_again, a_new_connection_keeps_the_seat,
              another_server_knows_nobody, a_durable_server_goes_on, nonsense_is_answered,
              bad_calls);
    suite_add_tcase(suite, tcase);
    return suite;
}
