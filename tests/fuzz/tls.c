/*
 * tls.c - fuzzes the first bytes of a connection to the store's server: which protocol they begin,
 * what TLS makes of them, and by which name a key is asked for. Each input comes in pieces and at
 * once, and both must come to the same; nothing in it can prove a key, so nobody is ever served.
 *
 * The first byte of the input has the server's side: its lowest bits are OPTIONS, the others how
 * many bytes arrive at once, at most.
 */
#include "conn.h"
#include "error.h"
#include "fuzz.h"
#include "mem.h"
#include "parse.h"
#include "tls_key.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HAS_TLS = 1, FROM_ELSEWHERE = 2, OPTIONS = 2 /* bits */ };
enum { ANSWER_MAX = 64 * 1024, INPUT_MAX = 16 * 1024 /* always fits the socket */ };

static const struct ddpi_credential token = {.is_token = true,
                                             .secret = "the token of all fuzzers here!!"};

#define STORE UINT64_C(0xfedcba9876543210)

/* A connection, and what its server does about it: nothing. */
struct player {
    uv_loop_t loop;
    struct ddpi_conn_env env;
    struct ddpi_stream_shared shared;
    struct ddpi_log log;
    struct ddpi_conn *conn; /* NULL: it is closed */
    int peer;
};

static void no_random(void *bytes, size_t len)
{
    memset(bytes, 7, len);
}

/* ---- the server's hooks ---- */

static ddp_status on_admit(void *owner, struct ddpi_conn *conn, struct ddp_error *err)
{
    (void)owner;
    HOLDS(conn->client.tcpstore); /* all others have proven something */
    return ddpi_error_set(err, DDP_E_DENIED, "nobody vouches for it");
}

static bool on_request(void *owner, struct ddpi_conn *conn, const struct ddpi_message *request)
{
    (void)owner, (void)conn, (void)request;
    fuzz_violated(__FILE__, __LINE__, "nobody is served");
    return true;
}

static void on_ahead(void *owner, struct ddpi_conn *conn, const struct ddpi_bytes *keys,
                     size_t count)
{
    (void)owner, (void)conn, (void)keys, (void)count;
    fuzz_violated(__FILE__, __LINE__, "nobody is served");
}

static bool on_fault(void *owner, const struct ddpi_conn *conn)
{
    (void)owner, (void)conn;
    return true;
}

static void on_nothing(void *owner, struct ddpi_conn *conn)
{
    (void)owner, (void)conn;
}

static void on_settle(void *owner)
{
    (void)owner;
}

static void on_closed(void *owner, struct ddpi_conn *conn)
{
    struct player *player = owner;
    HOLDS(player->conn == conn);
    player->conn = NULL;
    ddpi_free(conn);
}

static void on_log(void *ctx, enum ddpi_log_level level, const char *line)
{
    (void)ctx, (void)level;
    HOLDS(*line != '\0');
}

/* ---- one connection ---- */

/* NULL: in a build without TLS. */
static struct ddpi_tls_engine *engine(void)
{
    static struct ddpi_tls_engine *only;
    static bool asked;
    if (!asked)
        HOLDS(ddpi_tls_engine_create(&only, NULL) == DDP_OK || only == NULL);
    asked = true;
    return only;
}

static void start(struct player *player, unsigned options)
{
    const struct ddpi_conn_peer peer = {.elsewhere = (options & FROM_ELSEWHERE) != 0,
                                        .must_authenticate = true};
    int fds[2];
    *player = (struct player){.log = {.write = on_log, .max_level = DDPI_LOG_DEBUG}};
    player->shared.loop = &player->loop;
    player->shared.tls = (options & HAS_TLS) != 0 ? engine() : NULL;
    player->shared.input.limit = player->shared.output.limit = SIZE_MAX / 2;
    player->env = (struct ddpi_conn_env){.limits = ddpi_conn_limits_default,
                                         .kv_limits = ddpi_kv_limits_default,
                                         .gate = {.token = &token, .random = no_random},
                                         .shared = &player->shared,
                                         .incarnation = STORE,
                                         .log = &player->log,
                                         .owner = player,
                                         .admit = on_admit,
                                         .ahead = on_ahead,
                                         .fault = on_fault,
                                         .request = on_request,
                                         .dirty = on_nothing,
                                         .settle = on_settle,
                                         .gone = on_nothing,
                                         .closed = on_closed};
    HOLDS(uv_loop_init(&player->loop) == 0);
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    player->peer = fds[1];
    HOLDS(ddpi_conn_create(&player->env, fds[0], &peer, &player->conn, NULL) == DDP_OK);
}

static bool serves(const struct player *player)
{
    return player->conn != NULL && ddpi_conn_serving(player->conn);
}

static bool has_unread(const struct player *player)
{
    char byte;
    uv_os_fd_t fd;
    return uv_fileno((const uv_handle_t *)&player->conn->stream.tcp, &fd) == 0 &&
           recv(fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* @len bytes arrive, and are read in as many turns of the loop as that takes. */
static void arrive(struct player *player, const uint8_t *bytes, size_t len)
{
    HOLDS(send(player->peer, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
    while (serves(player) && has_unread(player)) {
        player->shared.turn++;
        uv_run(&player->loop, UV_RUN_NOWAIT);
        if (player->conn != NULL)
            ddpi_conn_flush(player->conn);
    }
}

static void end(struct player *player)
{
    if (player->conn != NULL)
        ddpi_conn_drop(player->conn, "the fuzzer goes");
    uv_run(&player->loop, UV_RUN_DEFAULT);
    HOLDS(player->conn == NULL);
    HOLDS(player->shared.input.held == 0 && player->shared.output.held == 0);
    HOLDS(uv_loop_close(&player->loop) == 0);
    close(player->peer);
}

/* ---- what holds ---- */

/* Of TLS there are whole records, of a kind that is said before a key is proven. */
static void check_records(const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        HOLDS(len >= DDPI_TLS_HEADER_SIZE);
        HOLDS(bytes[0] >= 20 && bytes[0] <= 23 && bytes[1] == 3);
        size_t record = DDPI_TLS_HEADER_SIZE + ((size_t)bytes[3] << 8 | bytes[4]);
        HOLDS(len >= record);
        bytes += record;
        len -= record;
    }
}

static void check_answer(const struct player *player, uint8_t first_byte)
{
    static uint8_t bytes[ANSWER_MAX];
    ssize_t got = recv(player->peer, bytes, sizeof bytes, 0);
    size_t len = got > 0 ? (size_t)got : 0;
    if (first_byte != DDPI_TLS_FIRST_BYTE)
        return;
    if (player->shared.tls != NULL)
        check_records(bytes, len);
    else
        HOLDS(len == sizeof ddpi_tls_refusal && memcmp(bytes, ddpi_tls_refusal, len) == 0);
}

static void check_state(const struct player *player, uint8_t first_byte, size_t arrived)
{
    const struct ddpi_conn *conn = player->conn;
    const struct ddpi_tls_engine *ours = player->shared.tls;
    bool by_tls = first_byte == DDPI_TLS_FIRST_BYTE;
    if (conn == NULL)
        return;
    HOLDS(!conn->dialect_state.open && !conn->dialect_state.identity.proven);
    const struct ddpi_tls *tls = conn->stream.tls;
    HOLDS(tls == NULL || (by_tls && ours != NULL));
    HOLDS(tls == NULL || (conn->dialect == NULL && !ddpi_tls_is_open(tls)));
    HOLDS(!by_tls || !serves(player) || (ours != NULL && arrived <= DDPI_TLS_HANDSHAKE_MAX));
}

/* Whether more would be listened to. */
static bool play(const uint8_t *bytes, size_t len, unsigned options, size_t at_once)
{
    struct player player;
    start(&player, options);
    for (size_t at = 0; at < len && serves(&player); at += at_once) {
        at_once = at_once < len - at ? at_once : len - at;
        arrive(&player, bytes + at, at_once);
        check_state(&player, bytes[0], at + at_once);
    }
    bool serving = serves(&player);
    check_answer(&player, bytes[0]);
    end(&player);
    return serving;
}

/* The identity that the @len bytes name, which ours is if its own name is the same again. */
static struct ddpi_identity read_name(const uint8_t *name, size_t len)
{
    struct ddpi_identity who = {0};
    int64_t epoch;
    char *text = fuzz_text(name, len), *rest = text;
    HOLDS(strlen(text) == len);
    const char *words[6];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        HOLDS((words[i] = strsep(&rest, " ")) != NULL);
    HOLDS(rest == NULL && ddpi_role_of_name(words[2], &who.role));
    HOLDS(ddpi_parse_int(words[4], 0, INT64_MAX, &epoch, NULL) == DDP_OK);
    HOLDS(strlen(words[3]) <= DDPI_JOB_MAX);
    if (strcmp(words[3], "-") != 0)
        memcpy(who.job, words[3], strlen(words[3]));
    who.epoch = (uint64_t)epoch;
    who.store = strcmp(words[5], "0") != 0 ? STORE : 0;
    free(text);
    return who;
}

/* A name that has a key is that of one identity, whose key it is. */
static void look_up(const uint8_t *name, size_t len)
{
    uint8_t secret[DDPI_TLS_KEY_SIZE];
    struct ddpi_tls_key key;
    uint8_t *exact = fuzz_copy(name, len);
    bool found = ddpi_tls_key_find(&token, STORE, exact, len, secret);
    free(exact);
    if (!found)
        return;
    struct ddpi_credential own = {.identity = read_name(name, len)};
    HOLDS(ddpi_credential_key(&token, &own.identity, own.secret, NULL) == DDP_OK);
    HOLDS(ddpi_tls_key_make(&own, &own.identity, &key, NULL) == DDP_OK);
    HOLDS(key.identity_len == len && memcmp(key.identity, name, len) == 0);
    HOLDS(memcmp(secret, key.secret, sizeof secret) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > INPUT_MAX)
        return 0;
    unsigned options = data[0] & ((1U << OPTIONS) - 1);
    size_t at_once = 1U + (data[0] >> OPTIONS);
    look_up(data + 1, size - 1);
    HOLDS(play(data + 1, size - 1, options, at_once) == play(data + 1, size - 1, options, size));
    return 0;
}
