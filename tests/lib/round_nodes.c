/*
 * round_nodes.c - the server and the members of the tests of rounds.
 */
#include "round_nodes.h"

#include "sqlite_sink.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

uv_loop_t loop;
struct ddpi_server *server;
static struct ddpi_sqlite_sink *state;
char endpoint[64], state_file[64], log_text[16384];
struct node nodes[MEMBERS];
uint32_t lease_ms;
static ddp_store_uv *people;
struct ddp_error why;
uint16_t port;
static bool server_closed, people_closed, answered;
static ddp_status answer;
char answer_text[1024];
struct ddp_store_session people_session;

/* ---- the server ---- */

static void write_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)ctx;
    size_t used = strlen(log_text);
    if (level <= DDPI_LOG_INFO)
        snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static const struct ddpi_log test_log = {.write = write_log, .max_level = DDPI_LOG_DEBUG};

void assert_logged(const char *words)
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
    OK(ddpi_sqlite_sink_open(state_file, &state, &why));
    OK(ddpi_sqlite_sink_load(state, take_mutation, server, &mark, &why));
    ddpi_server_restore_mark(server, &mark);
    const struct ddpi_sink sink = ddpi_sqlite_sink_hooks(state);
    ddpi_server_set_sink(server, &sink, on_sink_failed, NULL);
}

void start_server(bool durable)
{
    const struct ddpi_server_options options = {.log = &test_log};
    OK(ddpi_server_create_unbound(&loop, &options, &server, &why));
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

void stop_server(void)
{
    server_closed = false;
    ddpi_server_close(server, on_server_closed, NULL);
    UNTIL(server_closed);
    ddpi_sqlite_sink_close(state);
    state = NULL;
}

/* ---- people ---- */

static void on_answer(void *data, const struct ddp_store_result *result)
{
    (void)data;
    answered = true;
    answer = result->status;
    if (result->session != NULL)
        people_session = *result->session;
    snprintf(answer_text, sizeof answer_text, "%s",
             result->status != DDP_OK ? result->message
             : result->value != NULL  ? (const char *)result->value
             : result->count > 0      ? result->keys[0]
                                      : "");
}

ddp_status ask(struct ddp_store_request request)
{
    request.size = sizeof request;
    request.timeout_ms = LONG_MS;
    answered = false;
    OK(ddp_store_uv_submit(people, &request, on_answer, NULL, NULL, &why));
    UNTIL(answered);
    return answer;
}

void set_key(const char *key, const char *value)
{
    ck_assert_msg(
        ask((struct ddp_store_request){
            .op = DDP_STORE_OP_SET, .key = key, .value = value, .value_len = strlen(value)}) ==
            DDP_OK,
        "%s", answer_text);
}

const char *get_key(const char *key)
{
    ask((struct ddp_store_request){.op = DDP_STORE_OP_TRY_GET, .key = key});
    return answer == DDP_OK ? answer_text : NULL;
}

bool listed(const char *prefix)
{
    ck_assert_int_eq(ask((struct ddp_store_request){.op = DDP_STORE_OP_LIST, .key = prefix}),
                     DDP_OK);
    return answer_text[0] != '\0';
}

/* ---- members ---- */

void publish(struct node *node)
{
    OK(ddp_round_publish(node->round, &node->says, &why));
}

void say(struct node *node, enum ddp_round_phase phase, uint64_t generation)
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

const struct ddp_round_hooks node_hooks = {.size = sizeof node_hooks,
                                           .seat = on_seat,
                                           .contact = on_contact,
                                           .lost = on_lost,
                                           .state = on_state};

struct node *join(size_t i, const char *name, struct ddp_round_terms terms)
{
    struct node *node = &nodes[i];
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .prefix = "nobody/sees/this/"};
    struct ddp_round_hooks hooks = node_hooks;
    hooks.data = node;
    *node = (struct node){.says = {.nproc = 2, .node_rank = -1, .terms = terms}};
    snprintf(node->says.name, sizeof node->says.name, "%s", name);
    OK(ddp_round_join(&loop, &options, "train", lease_ms, &hooks, &node->round, &why));
    ck_assert_int_eq(ddp_round_socket(node->round), -1);
    publish(node);
    return node;
}

void on_left(void *data)
{
    ((struct node *)data)->left = true;
}

void leave(struct node *node)
{
    ddp_round_leave(node->round, LONG_MS, on_left, node);
    UNTIL(node->left);
}

static void on_closed(void *data)
{
    struct node *node = data;
    node->closed = true;
    node->round = NULL;
}

void close_node(struct node *node)
{
    ddp_round_close(node->round, on_closed, node);
    UNTIL(node->closed);
}

bool runs(uint64_t generation, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (nodes[i].seat.order != DDP_ROUND_RUN || nodes[i].seat.generation != generation)
            return false;
    return true;
}

bool reads_all(void)
{
    for (size_t i = 0; i < MEMBERS; i++)
        (void)get_key("k");
    return true;
}

const struct ddp_round_terms two = {
    .min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .settle_ms = 60000};
const struct ddp_round_terms elastic = {
    .min_nodes = 1, .max_nodes = 4, .max_restarts = 3, .settle_ms = 200};
const struct ddp_round_terms shrinking = {
    .min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .settle_ms = 60000};

/* ---- the fixture ---- */

static void open_people(void)
{
    const struct ddp_store_options options = {.size = sizeof options, .endpoint = endpoint};
    OK(ddp_store_uv_open(&loop, &options, NULL, &people, &why));
}

void setup(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    memset(nodes, 0, sizeof nodes);
    log_text[0] = '\0';
    port = 0;
    lease_ms = LONG_LEASE_MS;
    start_server(false);
    open_people();
}

static void on_people_closed(void *data)
{
    (void)data;
    people_closed = true;
}

void teardown(void)
{
    for (size_t i = 0; i < MEMBERS; i++)
        if (nodes[i].round != NULL)
            close_node(&nodes[i]);
    people_closed = false;
    ddp_store_uv_close(people, on_people_closed, NULL);
    UNTIL(people_closed);
    stop_server();
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
