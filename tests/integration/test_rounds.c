/*
 * test_rounds.c - rounds from end to end: a real server and its members, each with a connection of
 * its own, on one loop. Members start and stop nothing: they say what an agent would.
 */
#include "check_main.h"
#include "raw.h"
#include "server.h"
#include "state.h"

#include <ddprun/round.h>
#include <ddprun/store.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MEMBERS = 8, LEASE_MS = 1200, SOON_MS = 5000, AT_ONCE_MS = LEASE_MS / 2 };

struct node {
    ddp_round *round;
    struct ddp_round_member says;
    struct ddp_round_seat seat;
    struct ddp_round_seat stop; /* the last order to stop */
    unsigned seats, stops, losses, connects;
    uint64_t contact_ms;
    bool deaf; /* does not do what it is told */
    bool left, closed;
};

static uv_loop_t loop;
static uv_timer_t guard;
static struct ddpi_server *server;
static struct ddpi_state *state;
static char endpoint[64], state_file[64], log_text[16384];
static struct node nodes[MEMBERS];
static ddp_store_uv *people;
static struct ddp_error why;
static uint16_t port;
static bool server_closed, people_closed, answered;
static ddp_status answer;
static char answer_text[1024];

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

#define UNTIL(condition)                \
    do {                                \
        while (!(condition))            \
            uv_run(&loop, UV_RUN_ONCE); \
    } while (0)

/* --- the server --- */

static void write_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)ctx;
    size_t used = strlen(log_text);
    if (level <= DDPI_LOG_INFO)
        snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static const struct ddpi_log test_log = {.write = write_log, .max_level = DDPI_LOG_DEBUG};

static void assert_logged(const char *words)
{
    ck_assert_msg(strstr(log_text, words) != NULL, "no '%s' in:\n%s", words, log_text);
}

static ddp_status take_mutation(void *ctx, const struct ddpi_mutation *mutation,
                                struct ddp_error *err)
{
    return ddpi_server_restore(ctx, mutation, err);
}

static void on_sink_failed(void *ctx, const struct ddp_error *err)
{
    (void)ctx;
    ck_abort_msg("%s", err->msg);
}

static void open_state(void)
{
    struct ddpi_mark mark;
    OK(ddpi_state_open(state_file, &state, &why));
    OK(ddpi_state_load(state, take_mutation, server, &mark, &why));
    ddpi_server_restore_mark(server, &mark);
    const struct ddpi_sink sink = ddpi_state_sink(state);
    ddpi_server_set_sink(server, &sink, on_sink_failed, NULL);
}

static void start_server(bool durable)
{
    const struct ddpi_server_options options = {.log = &test_log};
    OK(ddpi_server_create_deaf(&loop, &options, &server, &why));
    if (durable)
        open_state();
    OK(ddpi_server_listen(server, "127.0.0.1", port, NULL, &why));
    port = ddpi_server_port(server);
    snprintf(endpoint, sizeof endpoint, "localhost:%u", port);
}

static void on_server_closed(void *ctx)
{
    (void)ctx;
    server_closed = true;
}

static void stop_server(void)
{
    server_closed = false;
    ddpi_server_close(server, on_server_closed, NULL);
    UNTIL(server_closed);
    ddpi_state_close(state);
    state = NULL;
}

/* --- people --- */

static void on_answer(void *data, const struct ddp_store_result *result)
{
    (void)data;
    answered = true;
    answer = result->status;
    snprintf(answer_text, sizeof answer_text, "%s",
             result->status != DDP_OK ? result->message
             : result->value != NULL  ? (const char *)result->value
             : result->count > 0      ? result->keys[0]
                                      : "");
}

static ddp_status ask(struct ddp_store_request request)
{
    request.size = sizeof request;
    request.timeout_ms = SOON_MS;
    answered = false;
    OK(ddp_store_uv_submit(people, &request, on_answer, NULL, NULL, &why));
    UNTIL(answered);
    return answer;
}

static void set_key(const char *key, const char *value)
{
    ck_assert_msg(
        ask((struct ddp_store_request){
            .op = DDP_STORE_OP_SET, .key = key, .value = value, .value_len = strlen(value)}) ==
            DDP_OK,
        "%s", answer_text);
}

static const char *get_key(const char *key)
{
    ask((struct ddp_store_request){.op = DDP_STORE_OP_TRY_GET, .key = key});
    return answer == DDP_OK ? answer_text : NULL;
}

static bool listed(const char *prefix)
{
    ck_assert_int_eq(ask((struct ddp_store_request){.op = DDP_STORE_OP_LIST, .key = prefix}),
                     DDP_OK);
    return answer_text[0] != '\0';
}

/* --- members --- */

static void publish(struct node *node)
{
    OK(ddp_round_publish(node->round, &node->says, &why));
}

static void say(struct node *node, enum ddp_round_phase phase, uint64_t generation)
{
    node->says.phase = phase;
    node->says.generation = generation;
    publish(node);
}

static void on_seat(void *data, const struct ddp_round_seat *seat)
{
    struct node *node = data;
    node->seat = *seat;
    node->seats++;
    if (seat->order == DDP_ROUND_STOP) {
        node->stop = *seat;
        node->stops++;
    }
    if (node->deaf)
        return;
    if (seat->order == DDP_ROUND_RUN) {
        say(node, DDP_ROUND_STARTING, seat->generation);
        say(node, DDP_ROUND_RUNNING, seat->generation);
    } else if (seat->order == DDP_ROUND_STOP) {
        say(node, DDP_ROUND_IDLE, seat->generation);
    }
}

static void on_contact(void *data, uint64_t sent_ms)
{
    struct node *node = data;
    ck_assert_uint_ge(sent_ms, node->contact_ms);
    ck_assert_uint_le(sent_ms, raw_now_ms());
    node->contact_ms = sent_ms;
}

static void on_lost(void *data, const char *text)
{
    struct node *node = data;
    ck_assert_uint_gt(strlen(text), 0);
    node->losses++;
}

static void on_state(void *data, enum ddp_store_uv_state now, const char *text)
{
    struct node *node = data;
    (void)text;
    node->connects += now == DDP_STORE_UV_CONNECTED;
}

static struct node *join(size_t i, const char *name, struct ddp_round_terms terms)
{
    struct node *node = &nodes[i];
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .prefix = "nobody/sees/this/"};
    const struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                          .data = node,
                                          .seat = on_seat,
                                          .contact = on_contact,
                                          .lost = on_lost,
                                          .state = on_state};
    *node = (struct node){.says = {.nproc = 2, .node_rank = -1, .terms = terms}};
    snprintf(node->says.name, sizeof node->says.name, "%s", name);
    OK(ddp_round_join(&loop, &options, "train", LEASE_MS, &hooks, &node->round, &why));
    ck_assert_int_eq(ddp_round_socket(node->round), -1);
    publish(node);
    return node;
}

static void on_left(void *data)
{
    ((struct node *)data)->left = true;
}

static void leave(struct node *node)
{
    ddp_round_leave(node->round, SOON_MS, on_left, node);
    UNTIL(node->left);
}

static void on_closed(void *data)
{
    struct node *node = data;
    node->closed = true;
    node->round = NULL;
}

static void close_node(struct node *node)
{
    ddp_round_close(node->round, on_closed, node);
    UNTIL(node->closed);
}

/* The whole generation is seated, and each node says that it runs. */
static bool runs(uint64_t generation, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i].seat.order != DDP_ROUND_RUN || nodes[i].seat.generation != generation)
            return false;
    return true;
}

/* All that the server had to say so far has been read: who dies with some of it unread sends a RST.
 */
static bool reads_all(void)
{
    for (size_t i = 0; i < MEMBERS; i++)
        (void)get_key("k");
    return true;
}

static const struct ddp_round_terms two = {
    .min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .settle_ms = 60000};
static const struct ddp_round_terms elastic = {
    .min_nodes = 1, .max_nodes = 4, .max_restarts = 3, .settle_ms = 200};

/* --- the fixture --- */

static void on_guard(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("nothing came in time; the log:\n%s", log_text);
}

static void open_people(void)
{
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    OK(ddp_store_uv_open(&loop, &options, NULL, &people, &why));
}

static void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    uv_timer_init(&loop, &guard);
    uv_timer_start(&guard, on_guard, 4 * SOON_MS, 0);
    uv_unref((uv_handle_t *)&guard);
    memset(nodes, 0, sizeof nodes);
    log_text[0] = '\0';
    port = 0;
    start_server(false);
    open_people();
}

static void on_people_closed(void *data)
{
    (void)data;
    people_closed = true;
}

static void teardown(void)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (nodes[i].round != NULL)
            close_node(&nodes[i]);
    people_closed = false;
    ddp_store_uv_close(people, on_people_closed, NULL);
    UNTIL(people_closed);
    stop_server();
    uv_close((uv_handle_t *)&guard, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* --- forming --- */

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

START_TEST(others_are_waited_for)
{
    uint64_t start_ms = raw_now_ms();
    join(0, "a", elastic);
    join(1, "b", elastic);
    UNTIL(runs(1, 2));
    ck_assert_uint_ge(raw_now_ms() - start_ms, elastic.settle_ms);
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

/* --- rounds --- */

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
    ck_assert_str_eq(get_key("job/train/g2/k"), "2");
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
    assert_logged("job train: over: exit code 0");
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
    join(0, "a", elastic);
    join(1, "b", elastic);
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
    join(0, "a", elastic);
    join(1, "b/1", elastic);
    UNTIL(runs(1, 2));
    set_key("round/train/want/drain/b/1", "");
    UNTIL(nodes[1].seat.order == DDP_ROUND_END && runs(2, 1));
    ck_assert_uint_eq(nodes[0].seat.nodes, 1);
}
END_TEST

START_TEST(people_stop_and_scale)
{
    join(0, "a", elastic);
    join(1, "b", elastic);
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

/* --- being lost --- */

START_TEST(a_dead_member_is_missed_at_once)
{
    join(0, "a", elastic);
    join(1, "b", elastic);
    UNTIL(runs(1, 2));
    UNTIL(reads_all());
    uint64_t start_ms = raw_now_ms();
    close_node(&nodes[1]);
    UNTIL(runs(2, 1));
    ck_assert_uint_lt(raw_now_ms() - start_ms, AT_ONCE_MS);
    assert_logged("job train: stopping generation 1: node b");
}
END_TEST

START_TEST(a_reset_is_no_death)
{
    join(0, "a", elastic);
    join(1, "b", elastic);
    UNTIL(runs(1, 2));
    const struct linger now = {.l_onoff = 1};
    ck_assert_int_eq(
        setsockopt(ddp_round_socket(nodes[1].round), SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    uint64_t start_ms = raw_now_ms();
    close_node(&nodes[1]);
    UNTIL(runs(2, 1));
    ck_assert_msg(raw_now_ms() - start_ms >= AT_ONCE_MS, "%s", log_text);
}
END_TEST

START_TEST(a_new_connection_keeps_the_seat)
{
    join(0, "a", two);
    join(1, "b", two);
    UNTIL(runs(1, 2));
    for (unsigned i = 1; i <= 3; i++) {
        uint64_t before_ms = nodes[1].contact_ms;
        shutdown(ddp_round_socket(nodes[1].round), SHUT_RD);
        UNTIL(nodes[1].connects == i + 1 && nodes[1].contact_ms > before_ms);
    }
    uint64_t start_ms = raw_now_ms();
    UNTIL(raw_now_ms() - start_ms > LEASE_MS);
    ck_assert_uint_eq(nodes[0].stops + nodes[1].stops + nodes[1].losses, 0);
    say(&nodes[1], DDP_ROUND_DONE, 1); /* what is published still arrives */
    say(&nodes[0], DDP_ROUND_DONE, 1);
    UNTIL(nodes[1].seat.order == DDP_ROUND_END);
}
END_TEST

/* --- the server --- */

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
    struct ddp_round_terms three = elastic;
    three.min_nodes = 2;
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

/* --- what nobody means well by --- */

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
    struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                    .data = &nodes[0],
                                    .seat = on_seat,
                                    .contact = on_contact,
                                    .lost = on_lost,
                                    .state = on_state};
    ddp_round *round;
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a/b", 1, &hooks, &round, &why),
                     DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 0, &hooks, &round, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, NULL, "a", 1, &hooks, &round, &why), DDP_E_INVALID);
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 1, NULL, &round, &why), DDP_E_INVALID);
    hooks.seat = NULL;
    ck_assert_int_eq(ddp_round_join(&loop, &options, "a", 1, &hooks, &round, &why), DDP_E_INVALID);
    hooks.seat = on_seat;
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
    const TTest *const tests[] = {a_full_job_starts_at_once,
                                  others_are_waited_for,
                                  a_newcomer_is_seated,
                                  others_than_agreed_are_refused,
                                  a_failure_begins_a_new_round,
                                  it_is_over_when_all_are_done,
                                  who_leaves_is_done_without,
                                  who_is_drained_is_done_without,
                                  people_stop_and_scale,
                                  a_checkpoint_lets_others_in,
                                  a_dead_member_is_missed_at_once,
                                  a_reset_is_no_death,
                                  a_new_connection_keeps_the_seat,
                                  another_server_knows_nobody,
                                  a_durable_server_goes_on,
                                  nonsense_is_answered,
                                  bad_calls};
    Suite *suite = suite_create("rounds");
    TCase *tcase = tcase_create("real");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return suite;
}
