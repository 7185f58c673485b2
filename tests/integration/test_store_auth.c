/*
 * test_store_auth.c - which clients are admitted, on real sockets: proofs that are wrong, replayed,
 * early or never finished; roles; and TCPStore clients, which agents vouch for.
 */
#include "client_greet.h"
#include "client_store.h"
#include "dialect_tcpstore.h"
#include "store_fixture.h"
#include "token_file.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "thirty-two bytes that are secret"};
static const struct ddpi_credential other_token = {.is_token = true,
                                                   .secret = "thirty-two bytes that are others"};
static const struct ddpi_identity agent = {.role = DDPI_ROLE_AGENT};

static void restart_impatient(uint32_t handshake_ms)
{
    restart(&(struct ddpi_server_options){
        .token = &token, .auth = DDPI_SERVER_AUTH_ALWAYS, .handshake_ms = handshake_ms});
}

static void restart_strict(void)
{
    restart_impatient(LONG_MS);
}

static void await_denied(uint64_t wanted)
{
    AWAIT_SERVER(now.denied == wanted);
}

/* ---- clients of the library ---- */

/* A descriptor as an agent gives it to its workers: of the token, or the key of @identity. */
static int secret_fd(const struct ddpi_credential *credential, const struct ddpi_identity *identity)
{
    char line[DDPI_KEY_LINE];
    int fd = memfd_create("secret", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    if (identity != NULL) {
        ck_assert_int_eq(ddpi_token_key_line(credential, identity, line, NULL), DDP_OK);
    } else {
        sodium_bin2hex(line, sizeof line, credential->secret, DDPI_KEY_SIZE);
        line[2 * DDPI_KEY_SIZE] = '\n';
        line[2 * DDPI_KEY_SIZE + 1] = '\0';
    }
    ck_assert_int_eq(write(fd, line, strlen(line)), (ssize_t)strlen(line));
    return fd;
}

static ddp_status try_open(struct ddp_store_options options, ddp_store **ret)
{
    options.size = sizeof options;
    options.endpoint = store_thread_endpoint(server);
    options.connect_timeout_ms = LONG_MS;
    return ddp_store_connect(&options, ret, &why);
}

static ddp_store *open_with(struct ddp_store_options options)
{
    ddp_store *store = NULL;
    OK(try_open(options, &store));
    return store;
}

/* The number of the store for which keys are made. */
static uint64_t this_store(void)
{
    uint64_t number = 0;
    int fd = secret_fd(&token, NULL);
    ddp_store *store = open_with((struct ddp_store_options){.token_fd = fd});
    ck_assert(ddpi_store_met(store, &number));
    ddp_store_close(store);
    close(fd);
    return number;
}

START_TEST(a_token_opens_the_store)
{
    restart_strict();
    int fd = secret_fd(&token, NULL);
    ddp_store *one = open_with((struct ddp_store_options){.token_fd = fd});
    ddp_store *two = open_with((struct ddp_store_options){.token_fd = fd});
    assert_alive(one);
    assert_alive(two);
    size_t size = DDP_STORE_VALUE_MAX, len;
    char *sent = malloc(size), *got;
    for (size_t i = 0; i < size; i++)
        sent[i] = (char)(i * 31 >> 7);
    OK(ddp_store_set(one, "large", sent, size, LONG_MS, NULL, &why));
    OK(ddp_store_get(two, "large", LONG_MS, (void **)&got, &len, NULL, &why));
    ck_assert_uint_eq(len, size);
    ck_assert(memcmp(sent, got, size) == 0);
    ddp_store_free(got);
    free(sent);
    close(fd);
    ddp_store_close(one);
    ddp_store_close(two);
}
END_TEST

START_TEST(events_are_sealed_like_replies)
{
    restart_strict();
    int fd = secret_fd(&token, NULL);
    ddp_store *one = open_with((struct ddp_store_options){.token_fd = fd});
    ddp_store *two = open_with((struct ddp_store_options){.token_fd = fd});
    OK(ddp_store_watch(one, "", DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL, NULL, &why));
    for (int i = 0; i < 20; i++) {
        OK(ddp_store_set(two, "k", &i, sizeof i, LONG_MS, NULL, &why));
        if (i % 3 == 0)
            assert_alive(one);
    }
    for (int i = 0; i < 20;) {
        struct ddp_store_event *event;
        OK(ddp_store_next_event(one, LONG_MS, &event, &why));
        if (strcmp(event->key, "k") == 0)
            ck_assert_int_eq(memcmp(event->value, &(int){i++}, sizeof i), 0);
        ddp_store_free(event);
    }
    close(fd);
    ddp_store_close(one);
    ddp_store_close(two);
}
END_TEST

START_TEST(another_token_does_not)
{
    restart_strict();
    ddp_store *none = NULL;
    int fd = secret_fd(&other_token, NULL);
    uint64_t start_ms = raw_now_ms();
    ck_assert_int_eq(try_open((struct ddp_store_options){.token_fd = fd}, &none), DDP_E_DENIED);
    ck_assert_uint_ge(raw_now_ms() - start_ms, 50);
    ck_assert_ptr_null(none);
    ck_assert_ptr_nonnull(strstr(why.msg, ": denied"));
    await_denied(1);
    ck_assert_uint_eq(store_thread_stats(server).dismissed, 0);
    close(fd);
}
END_TEST

START_TEST(no_token_is_told_the_remedy)
{
    restart_strict();
    ddp_store *none = NULL;
    ck_assert_int_eq(try_open((struct ddp_store_options){0}, &none), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "--token-file"));
    await_denied(1);
    int fd = secret_fd(&token, NULL);
    ck_assert_int_eq(
        try_open((struct ddp_store_options){.auth = DDP_STORE_AUTH_NONE, .token_fd = fd}, &none),
        DDP_E_DENIED);
    await_denied(2);
    /* What is there is used on loopback, too. */
    ddp_store *store = open_with(
        (struct ddp_store_options){.auth = DDP_STORE_AUTH_BEYOND_LOOPBACK, .token_fd = fd});
    uint64_t number;
    ck_assert(ddpi_store_met(store, &number));
    ddp_store_close(store);
    close(fd);
}
END_TEST

START_TEST(options_that_make_no_sense)
{
    ddp_store *none = NULL;
    ck_assert_int_eq(try_open((struct ddp_store_options){.auth = DDP_STORE_AUTH_TOKEN}, &none),
                     DDP_E_INVALID);
    ck_assert_int_eq(try_open((struct ddp_store_options){.job = ".."}, &none), DDP_E_INVALID);
    ck_assert_int_eq(try_open((struct ddp_store_options){.role = (enum ddp_store_role)4}, &none),
                     DDP_E_INVALID);
    ck_assert_int_eq(try_open((struct ddp_store_options){.token_file = "/nowhere/token"}, &none),
                     DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "ddpctl token make"));
    /* On loopback there may be none. */
    ddp_store *store = open_with((struct ddp_store_options){.auth = DDP_STORE_AUTH_BEYOND_LOOPBACK,
                                                            .token_file = "/nowhere/token"});
    assert_alive(store);
    ddp_store_close(store);
}
END_TEST

/* The client insists: a server without the token is no server for it. */
START_TEST(a_server_without_a_token_is_refused)
{
    ddp_store *none = NULL;
    int fd = secret_fd(&token, NULL);
    ck_assert_int_eq(try_open((struct ddp_store_options){.token_fd = fd}, &none), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "has no token"));
    close(fd);
}
END_TEST

START_TEST(keys_take_their_role)
{
    restart_strict();
    struct ddpi_identity observer = {.role = DDPI_ROLE_OBSERVER},
                         worker = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2};
    observer.store = worker.store = this_store();
    int token_fd = secret_fd(&token, NULL), observer_fd = secret_fd(&token, &observer),
        worker_fd = secret_fd(&token, &worker);
    ddp_store *all = open_with((struct ddp_store_options){.token_fd = token_fd});
    OK(ddp_store_set(all, "k", "v", 1, LONG_MS, NULL, &why));

    ddp_store *reader = open_with((struct ddp_store_options){.token_fd = observer_fd});
    void *value;
    size_t len;
    OK(ddp_store_get(reader, "k", LONG_MS, &value, &len, NULL, &why));
    ddp_store_free(value);
    ck_assert_int_eq(ddp_store_set(reader, "k", "w", 1, LONG_MS, NULL, &why), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "'observer' may not ask for 'set'"));
    ck_assert_int_eq(ddp_store_barrier(reader, "b", 1, LONG_MS, &why), DDP_E_DENIED);
    OK(ddp_store_get(reader, "k", LONG_MS, &value, &len, NULL, &why)); /* it lives on */
    ck_assert(len == 1 && memcmp(value, "v", 1) == 0);
    ddp_store_free(value);

    /* A worker's keys are those of its job, whatever they are called. */
    ddp_store *limited = open_with((struct ddp_store_options){.token_fd = worker_fd});
    OK(ddp_store_set(limited, "g2/k", "w", 1, LONG_MS, NULL, &why));
    ck_assert_int_eq(ddp_store_set(limited, "g3/k", "w", 1, LONG_MS, NULL, &why), DDP_E_DENIED);
    ddp_store_close(limited);
    OK(ddp_store_get(all, "k", LONG_MS, &value, &len, NULL, &why));
    ck_assert(len == 1 && memcmp(value, "v", 1) == 0);
    ddp_store_free(value);
    OK(ddp_store_delete(all, "job/j/g2/k", LONG_MS, &why));

    /* The token can take the same role; its key cannot take another one. */
    limited = open_with((struct ddp_store_options){
        .token_fd = token_fd, .role = DDP_STORE_WORKER, .job = "j", .epoch = 2, .prefix = "g2/"});
    assert_alive(limited);
    ddp_store *none = NULL;
    ck_assert_int_eq(
        try_open((struct ddp_store_options){.token_fd = worker_fd, .job = "j", .epoch = 3}, &none),
        DDP_E_DENIED);
    ck_assert_uint_eq(store_thread_stats(server).denied, 0); /* the client knew it */
    ddp_store_close(limited);
    ddp_store_close(reader);
    ddp_store_close(all);
    close(token_fd);
    close(observer_fd);
    close(worker_fd);
}
END_TEST

/* A store that has begun anew is another one: the keys of workers of the old one are invalid. */
START_TEST(a_key_fits_one_store_only)
{
    restart_strict();
    struct ddpi_identity worker = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2};
    worker.store = this_store();
    int fd = secret_fd(&token, &worker);
    ddp_store *store = open_with((struct ddp_store_options){.token_fd = fd, .prefix = "g2/"});
    ddp_store *none = NULL;
    assert_alive(store);
    ddp_store_close(store);
    restart_strict();
    ck_assert_int_eq(try_open((struct ddp_store_options){.token_fd = fd}, &none), DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "begun anew"));
    close(fd);
}
END_TEST

/* Its reason is believed, as it is proven: at once, and not when all deadlines are over. */
START_TEST(a_worker_of_an_old_epoch_is_told)
{
    restart_strict();
    struct ddpi_identity worker = {.role = DDPI_ROLE_WORKER, .job = "j", .epoch = 2};
    worker.store = this_store();
    int worker_fd = secret_fd(&token, &worker), token_fd = secret_fd(&token, NULL);
    ddp_store *limited = open_with((struct ddp_store_options){.token_fd = worker_fd});
    ddp_store *all = open_with((struct ddp_store_options){.token_fd = token_fd});
    OK(ddp_store_fence(all, "j", 3, LONG_MS, NULL, &why));
    void *value;
    size_t len;
    ddp_status status;
    do /* the first may still find the connection that is being ended */
        status = ddp_store_get(limited, "k", DDP_STORE_FOREVER, &value, &len, NULL, &why);
    while (status == DDP_E_CLOSED);
    ck_assert_int_eq(status, DDP_E_DENIED);
    ck_assert_ptr_nonnull(strstr(why.msg, "epoch 2"));
    ddp_store_close(limited);
    ddp_store_close(all);
    close(worker_fd);
    close(token_fd);
}
END_TEST

/* ---- bare connections ---- */

static int connect_from(const char *source)
{
    struct sockaddr_in here = {.sin_family = AF_INET}, there = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(inet_pton(AF_INET, source, &here.sin_addr), 1);
    there.sin_port = htons(store_thread_port(server));
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&there, sizeof there), 0);
    return fd;
}

/* A whole handshake on @fd; what the client said goes to @said as well, if it is not NULL. */
static ddp_status greet_on(int fd, const struct ddpi_credential *credential,
                           const struct ddpi_identity *identity, struct ddpi_buf *said)
{
    const struct ddpi_greet_terms terms = {
        .identity = identity, .credential = credential, .random = ddpi_token_random};
    struct ddpi_greet greet;
    struct ddpi_buf in, out;
    size_t need = 1;
    ddpi_buf_init(&in, 65536);
    ddpi_buf_init(&out, 65536);
    ddp_status status = ddpi_greet_begin(&greet, &terms, &out, &why);
    while (status == DDP_OK && need > 0) {
        raw_send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out));
        if (said != NULL)
            ck_assert(ddpi_buf_append(said, ddpi_buf_head(&out), ddpi_buf_len(&out)));
        ddpi_buf_consume(&out, ddpi_buf_len(&out));
        status = ddpi_greet_take(&greet, &in, &out, &need, &why);
        if (status == DDP_OK && need > 0 && ddpi_buf_len(&out) == 0) {
            size_t more = need - ddpi_buf_len(&in);
            raw_receive(fd, ddpi_buf_reserve(&in, more), more);
            ddpi_buf_added(&in, more);
        }
    }
    ddpi_buf_finish(&in);
    ddpi_buf_finish(&out);
    return status;
}

/* The server's last word is BYE, and says no more than "denied", after a while. */
static void assert_denied(int fd, uint64_t since_ms)
{
    char payload[2048];
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    uint64_t version;
    struct ddpi_bytes text;
    ck_assert(frame.type == DDPI_FRAME_BYE && frame.status == DDP_E_DENIED);
    ck_assert(ddpi_refusal_get(payload, frame.payload_len, &version, &text));
    ck_assert(ddpi_bytes_equal(text, ddpi_bytes_of("denied", 6)));
    ck_assert_uint_ge(raw_now_ms() - since_ms + 1, 50);
    raw_until_closed(fd);
    close(fd);
}

START_TEST(a_recorded_handshake_is_denied)
{
    restart_strict();
    struct ddpi_buf said;
    char skipped[1024];
    ddpi_buf_init(&said, 65536);
    int fd = raw_connect(store_thread_port(server));
    ck_assert_int_eq(greet_on(fd, &token, &agent, &said), DDP_OK);
    close(fd);
    fd = raw_connect(store_thread_port(server));
    uint64_t start_ms = raw_now_ms();
    raw_send(fd, ddpi_buf_head(&said), ddpi_buf_len(&said));
    raw_receive(fd, skipped, DDPI_PREAMBLE_SIZE);
    ck_assert_int_eq(raw_frame(fd, skipped, sizeof skipped).type, DDPI_FRAME_CHALLENGE);
    assert_denied(fd, start_ms);
    await_denied(1);
    ddpi_buf_finish(&said);
}
END_TEST

START_TEST(a_frame_without_its_seal_is_denied)
{
    restart_strict();
    int fd = raw_connect(store_thread_port(server));
    ck_assert_int_eq(greet_on(fd, &token, &agent, NULL), DDP_OK);
    uint8_t zero[DDPI_SEAL_SIZE] = {0};
    uint64_t start_ms = raw_now_ms();
    raw_request(fd, &(struct ddpi_message){.op = DDPI_OP_SET, .key = {"k", 1}, .value = {"v", 1}});
    raw_send(fd, zero, sizeof zero);
    assert_denied(fd, start_ms);
    await_denied(1);
    ck_assert_uint_eq(store_thread_stats(server).keys, 0);
}
END_TEST

START_TEST(a_proof_before_the_challenge)
{
    restart_strict();
    struct ddpi_buf out;
    uint8_t proof[DDPI_PROOF_SIZE] = {0};
    struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    ddpi_buf_init(&out, 1024);
    ck_assert(ddpi_preamble_put(&out, &preamble) && ddpi_proof_put(&out, 0, proof));
    int fd = raw_connect(store_thread_port(server));
    raw_send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out));
    char payload[2048];
    raw_receive(fd, payload, DDPI_PREAMBLE_SIZE);
    ck_assert_int_eq(raw_frame(fd, payload, sizeof payload).status, DDP_E_PROTOCOL);
    raw_until_closed(fd);
    close(fd);
    ddpi_buf_finish(&out);
}
END_TEST

START_TEST(half_a_handshake_ends_at_the_deadline)
{
    restart_impatient(300);
    struct ddpi_buf out;
    struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    struct ddpi_hello hello = {.auth = DDPI_AUTH_HMAC};
    ddpi_buf_init(&out, 1024);
    ck_assert(ddpi_preamble_put(&out, &preamble) && ddpi_hello_put(&out, 0, &hello));
    uint64_t start_ms = raw_now_ms();
    int fd = raw_connect(store_thread_port(server));
    raw_send(fd, ddpi_buf_head(&out), ddpi_buf_len(&out));
    raw_until_closed(fd);
    ck_assert_uint_ge(raw_now_ms() - start_ms, 250);
    close(fd);
    ddpi_buf_finish(&out);
}
END_TEST

/* Denied clients do not delay others, and leave nothing behind. */
START_TEST(many_are_denied_at_once)
{
    enum { MANY = 60 };
    restart_strict();
    int fd = secret_fd(&token, NULL), fds[MANY];
    ddp_store *store = open_with((struct ddp_store_options){.token_fd = fd});
    for (int i = 0; i < MANY; i++) {
        struct ddpi_buf out;
        uint8_t proof[DDPI_PROOF_SIZE] = {0};
        struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
        struct ddpi_hello hello = {.auth = DDPI_AUTH_HMAC};
        ddpi_buf_init(&out, 1024);
        ck_assert(ddpi_preamble_put(&out, &preamble) && ddpi_hello_put(&out, 0, &hello) &&
                  ddpi_proof_put(&out, 0, proof));
        fds[i] = raw_connect(store_thread_port(server));
        raw_send(fds[i], ddpi_buf_head(&out), ddpi_buf_len(&out));
        ddpi_buf_finish(&out);
    }
    assert_alive(store);
    for (int i = 0; i < MANY; i++) {
        raw_until_closed(fds[i]);
        close(fds[i]);
    }
    await_denied(MANY);
    await_connections(1);
    close(fd);
    ddp_store_close(store);
}
END_TEST

/* ---- TCPStore clients ---- */

static bool torch_is_admitted(const char *source)
{
    char pong[4];
    int fd = connect_from(source);
    raw_send(fd, DDPI_TCPSTORE_HELLO "\x0dping", DDPI_TCPSTORE_HELLO_SIZE + 5);
    ssize_t got = recv(fd, pong, sizeof pong, MSG_WAITALL); /* the server has deadlines */
    close(fd);
    ck_assert(got <= 0 || (got == 4 && memcmp(pong, "ping", 4) == 0));
    return got == 4;
}

START_TEST(agents_vouch_for_their_hosts)
{
    restart_strict();
    const struct ddpi_identity worker = {.role = DDPI_ROLE_WORKER};
    ck_assert(!torch_is_admitted("127.0.0.1"));
    await_denied(1);
    int by_worker = connect_from("127.0.0.2");
    ck_assert_int_eq(greet_on(by_worker, &token, &worker, NULL), DDP_OK);
    ck_assert(!torch_is_admitted("127.0.0.2")); /* a worker cannot vouch */
    int one = connect_from("127.0.0.2"), two = connect_from("127.0.0.2");
    ck_assert_int_eq(greet_on(one, &token, &agent, NULL), DDP_OK);
    ck_assert_int_eq(greet_on(two, &token, &agent, NULL), DDP_OK);
    ck_assert(torch_is_admitted("127.0.0.2"));
    ck_assert(!torch_is_admitted("127.0.0.1") && !torch_is_admitted("127.0.0.3"));
    close(one);
    await_connections(2);
    ck_assert(torch_is_admitted("127.0.0.2"));
    close(two);
    await_connections(1);
    ck_assert(!torch_is_admitted("127.0.0.2"));
    close(by_worker);
}
END_TEST

START_TEST(on_loopback_everybody_is_admitted_by_default)
{
    restart(&(struct ddpi_server_options){.token = &token});
    ddp_store *store = open_with((struct ddp_store_options){0});
    assert_alive(store);
    ck_assert(torch_is_admitted("127.0.0.1"));
    int fd = secret_fd(&token, NULL);
    ddp_store *proven = open_with((struct ddp_store_options){.token_fd = fd});
    assert_alive(proven);
    close(fd);
    ddp_store_close(proven);
    ddp_store_close(store);
}
END_TEST

START_TEST(a_server_takes_no_key_for_a_token)
{
    uv_loop_t loop;
    struct ddpi_server *none = NULL;
    struct ddpi_credential key = {.identity = {.role = DDPI_ROLE_WORKER}};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(
        ddpi_server_create(&loop, &(struct ddpi_server_options){.token = &key}, &none, &why),
        DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(why.msg, "'worker'"));
    ck_assert_int_eq(
        ddpi_server_create(&loop, &(struct ddpi_server_options){.auth = DDPI_SERVER_AUTH_ALWAYS},
                           &none, &why),
        DDP_E_DENIED);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

Suite *test_suite(void)
{
    const TTest *const tests[] = {
        a_token_opens_the_store,
        events_are_sealed_like_replies,
        another_token_does_not,
        no_token_is_told_the_remedy,
        options_that_make_no_sense,
        a_server_without_a_token_is_refused,
        keys_take_their_role,
        a_key_fits_one_store_only,
        a_worker_of_an_old_epoch_is_told,
        a_recorded_handshake_is_denied,
        a_frame_without_its_seal_is_denied,
        a_proof_before_the_challenge,
        half_a_handshake_ends_at_the_deadline,
        many_are_denied_at_once,
        agents_vouch_for_their_hosts,
        on_loopback_everybody_is_admitted_by_default,
        a_server_takes_no_key_for_a_token,
    };
    return store_suite("store_auth", tests, sizeof tests / sizeof *tests);
}
