/*
 * test_etcd_client.c - calls that wait for the login of a user, or need another one, with a gateway
 * of this test in place of etcd's, which answers or closes the connection.
 */
#include "check_main.h"
#include "etcd_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uv_loop_t loop;
static uv_tcp_t listener;
static struct ddpi_etcd_client *client;
static bool away, forgets; /* all that it does, and the token at the next call: it is away then */
static const char *next_answers; /* to calls: 'f': it has forgotten the token, 'c': it closes */
static unsigned logins;

/* ---- the gateway ---- */

struct visitor {
    uv_tcp_t tcp;
    uv_write_t write;
    size_t len;
    char text[2048];
    char answer[256];
};

static void on_visitor_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_written(uv_write_t *write, int uv_err)
{
    (void)uv_err;
    uv_close((uv_handle_t *)write->handle, on_visitor_closed);
}

static void answer(struct visitor *visitor, int status, const char *body)
{
    snprintf(visitor->answer, sizeof visitor->answer,
             "HTTP/1.1 %d X\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", status,
             strlen(body), body);
    uv_buf_t buf = uv_buf_init(visitor->answer, (unsigned)strlen(visitor->answer));
    uv_read_stop((uv_stream_t *)&visitor->tcp);
    ck_assert_int_eq(uv_write(&visitor->write, (uv_stream_t *)&visitor->tcp, &buf, 1, on_written),
                     0);
}

static void judge(struct visitor *visitor)
{
    bool login = strstr(visitor->text, " /v3/auth/authenticate ") != NULL;
    char scripted = !login && *next_answers != '\0' ? *next_answers++ : '\0';
    logins += login;
    if (scripted == 'f' || (!login && forgets)) {
        away |= forgets;
        forgets = false;
        answer(visitor, 401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}");
    } else if (away || scripted == 'c') {
        uv_close((uv_handle_t *)&visitor->tcp, on_visitor_closed);
    } else {
        answer(visitor, 200, login ? "{\"token\":\"t\"}" : "{}");
    }
}

static bool is_whole(const struct visitor *visitor)
{
    const char *end = strstr(visitor->text, "\r\n\r\n");
    const char *length = strcasestr(visitor->text, "Content-Length:");
    return end != NULL &&
           (length == NULL || strlen(end + 4) >= strtoul(strchr(length, ':') + 1, NULL, 10));
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct visitor *visitor = handle->data;
    (void)suggested;
    *ret = uv_buf_init(visitor->text + visitor->len,
                       (unsigned)(sizeof visitor->text - 1 - visitor->len));
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct visitor *visitor = stream->data;
    (void)buf;
    if (nread < 0) {
        uv_close((uv_handle_t *)stream, on_visitor_closed);
        return;
    }
    visitor->len += (size_t)nread;
    if (is_whole(visitor))
        judge(visitor);
}

static void on_visitor(uv_stream_t *stream, int uv_err)
{
    struct visitor *visitor = calloc(1, sizeof *visitor);
    ck_assert_int_eq(uv_err, 0);
    ck_assert_ptr_nonnull(visitor);
    uv_tcp_init(&loop, &visitor->tcp);
    visitor->tcp.data = visitor;
    ck_assert_int_eq(uv_accept(stream, (uv_stream_t *)&visitor->tcp), 0);
    ck_assert_int_eq(uv_read_start((uv_stream_t *)&visitor->tcp, on_alloc, on_read), 0);
}

static uint16_t listen_here(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int len = sizeof at;
    uv_tcp_init(&loop, &listener);
    ck_assert_int_eq(uv_tcp_bind(&listener, (struct sockaddr *)&at, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&listener, 8, on_visitor), 0);
    ck_assert_int_eq(uv_tcp_getsockname(&listener, (struct sockaddr *)&at, &len), 0);
    return ntohs(at.sin_port);
}

/* ---- calls ---- */

struct ask {
    struct ddpi_etcd_call call;
    bool ended;
    ddp_status status;
};

static void on_done(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ask *ask = call->ctx;
    ask->ended = true;
    ask->status = outcome->status;
}

static void begin(struct ask *ask, uint32_t total_ms)
{
    *ask = (struct ask){.ended = false};
    ddpi_etcd_call_init(&ask->call);
    ask->call.path = "/v3/anything";
    ask->call.total_ms = total_ms;
    ask->call.done = on_done;
    ask->call.ctx = ask;
    ddpi_etcd_call_begin(client, &ask->call);
}

static void await(const struct ask *ask, ddp_status wanted)
{
    while (!ask->ended)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(ask->status, wanted);
}

static void gateway_setup(void)
{
    struct ddpi_etcd_address address;
    struct ddpi_etcd_client_options options = {
        .address = &address, .user = "root", .password = "secret"};
    struct ddp_error err;
    char text[64];
    away = forgets = false;
    next_answers = "";
    logins = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    snprintf(text, sizeof text, "etcd://127.0.0.1:%u/p", listen_here());
    ck_assert_int_eq(ddpi_etcd_address_parse(text, &address, &err), DDP_OK);
    ck_assert_int_eq(ddpi_etcd_client_create(&loop, &options, &client, &err), DDP_OK);
}

static void gateway_teardown(void)
{
    ddpi_etcd_client_destroy(client);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* Each waits as long as it may, not as long as one login; the first one, and one that renews the
 * token. */
START_TEST(a_login_that_nobody_answers)
{
    enum { HOUR_MS = 3600 * 1000, SOON_MS = 30 };
    struct ask first, patient, hasty;
    away = _i == 0;
    if (_i == 1) {
        begin(&first, HOUR_MS);
        await(&first, DDP_OK);
        ddpi_etcd_call_finish(client, &first.call);
        ck_assert_uint_eq(logins, 1);
        forgets = true;
    }
    begin(&patient, HOUR_MS);
    begin(&hasty, SOON_MS);
    await(&hasty, DDP_E_TIMEOUT);
    ck_assert(!patient.ended);
    unsigned before = logins;
    while (logins < before + 2) /* it goes on */
        uv_run(&loop, UV_RUN_ONCE);
    away = false;
    await(&patient, DDP_OK);
    ddpi_etcd_call_finish(client, &patient.call);
    ddpi_etcd_call_finish(client, &hasty.call);
}
END_TEST

/* Etcd may start again more than once while a call waits; but a token that is refused at once will
 * not do the next time either. */
START_TEST(a_token_that_is_forgotten_again)
{
    static const struct {
        const char *answers;
        ddp_status status;
        unsigned logins;
    } rows[] = {{"fcf", DDP_OK, 3},
                {"fccfcfcf", DDP_OK, 5},
                {"ff", DDP_E_DENIED, 2},
                {"fcff", DDP_E_DENIED, 3}};
    struct ask ask;
    next_answers = rows[_i].answers;
    begin(&ask, 3600 * 1000);
    await(&ask, rows[_i].status);
    ck_assert_str_eq(next_answers, "");
    ck_assert_uint_eq(logins, rows[_i].logins);
    ddpi_etcd_call_finish(client, &ask.call);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("etcd_client");
    TCase *group = tcase_create("users");
    tcase_add_checked_fixture(group, gateway_setup, gateway_teardown);
    tcase_add_loop_test(group, a_login_that_nobody_answers, 0, 2);
    tcase_add_loop_test(group, a_token_that_is_forgotten_again, 0, 4);
    suite_add_tcase(suite, group);
    return suite;
}
