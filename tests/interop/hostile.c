/*
 * hostile.c - thousands of clients that mean harm, from one thread and one epoll: what
 * test_hostile_load.py lets loose on a store while others work.
 *
 *   hostile PORT SECONDS KEYS [TOKEN_FILE]
 *
 * Connections of all kinds below are opened at an even pace for so many seconds, each kind as often
 * as its row says; what the server does not close stays open to the end. One more connection sets
 * KEYS keys meanwhile. At the end a line for each kind: how many were opened, and closed by the
 * server; then the keys are deleted. Without a token file only what PyTorch's own server
 * understands is sent.
 */
#include "dialect_tcpstore.h"
#include "error.h"
#include "proto.h"
#include "token_file.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 1,
    TURN_MAX_MS = 50,
    EVENTS = 256,
    MAX_CONNS = 32768,
    HALF_FRAME = 100 * 1024,
    SMALL_BUFFER = 4096,
    CHALLENGE_SIZE = DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE + DDPI_CHALLENGE_SIZE,
    KEYS_AT_ONCE = 256,
};

enum manner {
    SAYS_ALL = 0, /* and reads what comes */
    DRIPS = 1,    /* a byte a second */
    DEAF = 2,     /* never reads */
    PROVES = 4,   /* says the rest when the challenge has come */
};

struct kind {
    const char *name;
    unsigned count;
    unsigned manner;
    bool native;
    void (*say)(struct ddpi_buf *out);
    struct ddpi_buf bytes;
    unsigned opened;
    unsigned closed;
};

struct conn {
    struct kind *kind; /* NULL: closed */
    int fd;
    size_t said;
    size_t heard;
    uint64_t next_ms; /* of one who drips */
};

struct attack {
    struct sockaddr_in server;
    int epoll_fd;
    struct conn *conns;
    size_t nconns;
    struct ddpi_buf recorded; /* a good proof, used once before */
    int keys_fd;
    uint64_t keys, keys_set;
    struct ddpi_buf keys_out;
};

static struct attack attack = {.keys_fd = -1};

static void die(const char *what)
{
    fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- what they say ---- */

static void put(struct ddpi_buf *out, const void *bytes, size_t len)
{
    if (!ddpi_buf_append(out, bytes, len))
        die("no memory");
}

static void say_noise(struct ddpi_buf *out)
{
    uint8_t noise[512];
    if (getrandom(noise, sizeof noise, 0) != (ssize_t)sizeof noise)
        die("getrandom");
    noise[0] |= 0x80; /* begins no protocol */
    put(out, noise, sizeof noise);
}

static void say_tls(struct ddpi_buf *out)
{
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    put(out, hello, sizeof hello - 1);
}

static void say_http(struct ddpi_buf *out)
{
    static const char get[] = "GET / HTTP/1.1\r\nHost: store\r\n\r\n";
    put(out, get, sizeof get - 1);
}

static void say_nothing(struct ddpi_buf *out)
{
    (void)out;
}

static void say_torch(struct ddpi_buf *out, uint8_t type, uint64_t number)
{
    put(out, DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE);
    if (!ddpi_buf_put_u8(out, type) || !ddpi_buf_put_u64(out, number))
        die("no memory");
}

static void say_2_40(struct ddpi_buf *out)
{
    say_torch(out, DDPI_TCPSTORE_SET, UINT64_C(1) << 40);
}

static void say_2_64(struct ddpi_buf *out)
{
    say_torch(out, DDPI_TCPSTORE_GET, UINT64_MAX);
}

static void say_wait_2_60(struct ddpi_buf *out)
{
    say_torch(out, DDPI_TCPSTORE_WAIT, UINT64_C(1) << 60);
}

static void say_unknown(struct ddpi_buf *out)
{
    say_torch(out, 200, 0);
}

static void say_half(struct ddpi_buf *out)
{
    static const char zeroes[HALF_FRAME];
    say_torch(out, DDPI_TCPSTORE_SET, 1);
    put(out, "k", 1);
    if (!ddpi_buf_put_u64(out, 8 * 1024 * 1024 - 1))
        die("no memory");
    put(out, zeroes, sizeof zeroes);
}

static void say_greeting(struct ddpi_buf *out, uint32_t auth)
{
    const struct ddpi_preamble preamble = {DDPI_VERSION_MIN, DDPI_VERSION_MAX};
    const struct ddpi_hello hello = {.auth = auth};
    if (!ddpi_preamble_put(out, &preamble) || !ddpi_hello_put(out, 0, &hello))
        die("no memory");
}

static void say_drip(struct ddpi_buf *out)
{
    say_greeting(out, DDPI_AUTH_NONE);
}

static void say_unknown_native(struct ddpi_buf *out)
{
    static const uint8_t header[DDPI_FRAME_HEADER_SIZE] = {[4] = 250};
    say_greeting(out, DDPI_AUTH_NONE);
    put(out, header, sizeof header);
}

static void say_4g(struct ddpi_buf *out)
{
    static const uint8_t header[DDPI_FRAME_HEADER_SIZE] = {0xff, 0xff, 0xff, 0xff, 16};
    say_greeting(out, DDPI_AUTH_NONE);
    put(out, header, sizeof header);
}

static void say_watch(struct ddpi_buf *out)
{
    const struct ddpi_message watch = {.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX};
    say_greeting(out, DDPI_AUTH_NONE);
    if (!ddpi_request_put(out, &watch))
        die("no memory");
}

static void say_wrong_token(struct ddpi_buf *out)
{
    uint8_t proof[DDPI_PROOF_SIZE] = {42};
    say_greeting(out, DDPI_AUTH_HMAC);
    if (!ddpi_proof_put(out, 0, proof))
        die("no memory");
}

static void say_recorded(struct ddpi_buf *out)
{
    put(out, ddpi_buf_head(&attack.recorded), ddpi_buf_len(&attack.recorded));
}

static struct kind kinds[] = {
    {"noise", 400, SAYS_ALL, false, say_noise, {0}, 0, 0},
    {"tls", 400, SAYS_ALL, false, say_tls, {0}, 0, 0},
    {"http", 400, SAYS_ALL, false, say_http, {0}, 0, 0},
    {"half-frame", 200, SAYS_ALL, false, say_half, {0}, 0, 0},
    {"length-2^40", 300, SAYS_ALL, false, say_2_40, {0}, 0, 0},
    {"length-2^64-1", 300, SAYS_ALL, false, say_2_64, {0}, 0, 0},
    {"wait-2^60", 300, SAYS_ALL, false, say_wait_2_60, {0}, 0, 0},
    {"unknown-op", 300, SAYS_ALL, false, say_unknown, {0}, 0, 0},
    {"half-open", 10000, SAYS_ALL, false, say_nothing, {0}, 0, 0},
    {"byte-a-second", 100, DRIPS, true, say_drip, {0}, 0, 0},
    {"unknown-native", 300, SAYS_ALL, true, say_unknown_native, {0}, 0, 0},
    {"length-2^32-1", 300, SAYS_ALL, true, say_4g, {0}, 0, 0},
    {"deaf-watcher", 8, DEAF, true, say_watch, {0}, 0, 0},
    {"wrong-token", 300, PROVES, true, say_wrong_token, {0}, 0, 0},
    {"replay", 300, PROVES, true, say_recorded, {0}, 0, 0},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- a handshake to be replayed ---- */

static void receive(int fd, void *bytes, size_t len)
{
    if (recv(fd, bytes, len, MSG_WAITALL) != (ssize_t)len)
        die("the handshake that was to be recorded");
}

static int dial(int flags)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        die("socket");
    if (connect(fd, (struct sockaddr *)&attack.server, sizeof attack.server) != 0 &&
        errno != EINPROGRESS)
        die("connect");
    return fd;
}

/* Say all of it once, as a client that has the token. */
static void record(const char *token_file)
{
    struct ddpi_credential token;
    struct ddpi_handshake handshake;
    struct ddpi_challenge challenge;
    struct ddp_error err;
    struct ddpi_identity agent = {.role = DDPI_ROLE_AGENT};
    struct ddpi_buf *out = &attack.recorded;
    uint8_t heard[CHALLENGE_SIZE], proof[DDPI_PROOF_SIZE];
    if (ddpi_token_read(token_file, &token, &err) != DDP_OK) {
        fprintf(stderr, "hostile: %s\n", err.msg);
        exit(EXIT_FAILURE);
    }
    int fd = dial(0);
    say_greeting(out, DDPI_AUTH_HMAC);
    if (send(fd, ddpi_buf_head(out), ddpi_buf_len(out), MSG_NOSIGNAL) < 0)
        die("send");
    receive(fd, heard, sizeof heard);
    if (!ddpi_challenge_get(heard + DDPI_PREAMBLE_SIZE + DDPI_FRAME_HEADER_SIZE,
                            DDPI_CHALLENGE_SIZE, &challenge))
        die("a malformed challenge");
    agent.store = challenge.store;
    if (ddpi_credential_key(&token, &agent, handshake.key, &err) != DDP_OK)
        die(err.msg);
    const uint8_t *said = ddpi_buf_head(out);
    ddpi_handshake_begin(&handshake);
    ddpi_handshake_add(&handshake, said, DDPI_PREAMBLE_SIZE);
    ddpi_handshake_add(&handshake, heard, DDPI_PREAMBLE_SIZE);
    ddpi_handshake_add(&handshake, said + DDPI_PREAMBLE_SIZE,
                       ddpi_buf_len(out) - DDPI_PREAMBLE_SIZE);
    ddpi_handshake_add(&handshake, heard + DDPI_PREAMBLE_SIZE, sizeof heard - DDPI_PREAMBLE_SIZE);
    ddpi_handshake_prove(&handshake, DDPI_SIDE_CLIENT, proof);
    size_t before = ddpi_buf_len(out);
    if (!ddpi_proof_put(out, 0, proof))
        die("no memory");
    if (send(fd, ddpi_buf_head(out) + before, ddpi_buf_len(out) - before, MSG_NOSIGNAL) < 0)
        die("send");
    receive(fd, heard, DDPI_FRAME_HEADER_SIZE);
    if (heard[4] != DDPI_FRAME_HELLO || heard[5] != 0)
        die("the server does not take a good proof");
    close(fd);
}

/* ---- connections ---- */

static void close_conn(struct conn *conn)
{
    conn->kind->closed++;
    close(conn->fd);
    conn->kind = NULL;
}

/* How much of it may be said by now. */
static size_t may_say(const struct conn *conn)
{
    const struct kind *kind = conn->kind;
    size_t len = ddpi_buf_len(&kind->bytes);
    if (kind->manner & DRIPS)
        return conn->said + (conn->said < len && now_ms() >= conn->next_ms);
    if ((kind->manner & PROVES) && conn->heard < CHALLENGE_SIZE)
        return len - DDPI_FRAME_HEADER_SIZE - DDPI_PROOF_SIZE;
    return len;
}

static void say(struct conn *conn)
{
    size_t most = may_say(conn);
    if (most == conn->said)
        return;
    ssize_t sent = send(conn->fd, ddpi_buf_head(&conn->kind->bytes) + conn->said, most - conn->said,
                        MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != ENOTCONN) {
        close_conn(conn);
        return;
    }
    conn->said += sent > 0 ? (size_t)sent : 0;
    conn->next_ms = now_ms() + 1000;
}

static void hear(struct conn *conn)
{
    static char dropped[65536];
    ssize_t got = recv(conn->fd, dropped, sizeof dropped, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        close_conn(conn);
    else
        conn->heard += got > 0 ? (size_t)got : 0;
}

static void open_conn(struct kind *kind)
{
    if (attack.nconns == MAX_CONNS)
        return;
    struct conn *conn = &attack.conns[attack.nconns++];
    *conn = (struct conn){.kind = kind, .fd = dial(SOCK_NONBLOCK)};
    if (kind->manner & DEAF)
        setsockopt(conn->fd, SOL_SOCKET, SO_RCVBUF, &(int){SMALL_BUFFER}, sizeof(int));
    struct epoll_event event = {.events = (kind->manner & DEAF ? 0 : EPOLLIN) | EPOLLOUT | EPOLLET,
                                .data = {.ptr = conn}};
    if (epoll_ctl(attack.epoll_fd, EPOLL_CTL_ADD, conn->fd, &event) != 0)
        die("epoll_ctl");
    kind->opened++;
}

/* ---- keys ---- */

static void put_key(uint8_t type, uint64_t index)
{
    char key[32];
    size_t len = (size_t)snprintf(key, sizeof key, "hostile/%llu", (unsigned long long)index);
    struct ddpi_buf *out = &attack.keys_out;
    if (!ddpi_buf_put_u8(out, type) || !ddpi_buf_put_u64(out, len) ||
        !ddpi_buf_append(out, key, len))
        die("no memory");
}

static void put_value(void)
{
    static const char value[32];
    if (!ddpi_buf_put_u64(&attack.keys_out, sizeof value) ||
        !ddpi_buf_append(&attack.keys_out, value, sizeof value))
        die("no memory");
}

/* As many as are due after @share of the time; with MSG_DONTWAIT in @flags as far as the server
 * takes them now. */
static void set_keys(double share, int flags)
{
    uint64_t due = (uint64_t)((double)attack.keys * share);
    struct ddpi_buf *out = &attack.keys_out;
    while (attack.keys_fd >= 0 && (attack.keys_set < due || ddpi_buf_len(out) > 0)) {
        for (int i = 0; i < KEYS_AT_ONCE && ddpi_buf_len(out) < 8192 && attack.keys_set < due;
             i++) {
            put_key(DDPI_TCPSTORE_SET, attack.keys_set++);
            put_value();
        }
        ssize_t sent =
            send(attack.keys_fd, ddpi_buf_head(out), ddpi_buf_len(out), MSG_NOSIGNAL | flags);
        if (sent < 0 && errno != EAGAIN) { /* there are as many as there may be */
            close(attack.keys_fd);
            attack.keys_fd = -1;
        } else if (sent < 0) {
            return;
        } else {
            ddpi_buf_consume(out, (size_t)sent);
        }
    }
}

/* A set has no answer: until the server has taken all of them, or has closed the connection. */
static void await_keys(void)
{
    char ignored[64];
    if (attack.keys_fd < 0)
        return;
    shutdown(attack.keys_fd, SHUT_WR);
    while (recv(attack.keys_fd, ignored, sizeof ignored, 0) > 0)
        continue;
    close(attack.keys_fd);
    attack.keys_fd = -1;
}

static void delete_keys(void)
{
    struct ddpi_buf *out = &attack.keys_out;
    uint8_t answers[8 * KEYS_AT_ONCE];
    uint64_t deleted = 0;
    int fd = dial(0);
    ddpi_buf_consume(out, ddpi_buf_len(out));
    put(out, DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE);
    for (uint64_t at = 0; at < attack.keys_set;) {
        size_t count = 0;
        for (; count < KEYS_AT_ONCE && at < attack.keys_set; count++)
            put_key(DDPI_TCPSTORE_DELETE_KEY, at++);
        if (send(fd, ddpi_buf_head(out), ddpi_buf_len(out), MSG_NOSIGNAL) < 0)
            die("deleting keys");
        ddpi_buf_consume(out, ddpi_buf_len(out));
        if (recv(fd, answers, 8 * count, MSG_WAITALL) != (ssize_t)(8 * count))
            die("deleting keys");
        for (size_t i = 0; i < count; i++)
            deleted += answers[8 * i];
    }
    close(fd);
    printf("keys %llu %llu\n", (unsigned long long)attack.keys_set, (unsigned long long)deleted);
}

/* ---- the attack ---- */

static void open_due(double share, bool native)
{
    for (size_t i = 0; i < KINDS; i++)
        while ((native || !kinds[i].native) && kinds[i].opened < share * kinds[i].count)
            open_conn(&kinds[i]);
}

static void drip(void)
{
    for (size_t i = 0; i < attack.nconns; i++)
        if (attack.conns[i].kind != NULL && (attack.conns[i].kind->manner & DRIPS))
            say(&attack.conns[i]);
}

static void take_events(int timeout_ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(attack.epoll_fd, events, EVENTS, timeout_ms);
    for (int i = 0; i < count; i++) {
        struct conn *conn = events[i].data.ptr;
        if (conn->kind != NULL && !(conn->kind->manner & DEAF))
            hear(conn);
        if (conn->kind != NULL && (conn->kind->manner & DEAF) &&
            (events[i].events & (EPOLLHUP | EPOLLERR)))
            close_conn(conn);
        if (conn->kind != NULL)
            say(conn);
    }
}

static void run(uint64_t duration_ms, bool native)
{
    uint64_t before_ms = now_ms(), tick_ms = before_ms, passed = 0;
    for (; passed < duration_ms; before_ms = now_ms()) {
        if (now_ms() >= tick_ms) {
            tick_ms = now_ms() + TICK_MS;
            open_due((double)passed / (double)duration_ms, native);
            set_keys((double)passed / (double)duration_ms, MSG_DONTWAIT);
            drip();
        }
        take_events(1);
        uint64_t turn_ms = now_ms() - before_ms; /* what a machine lets us wait for is not lost */
        passed += turn_ms < TURN_MAX_MS ? turn_ms : TURN_MAX_MS;
    }
    set_keys(1, 0); /* the rest, however busy the server is */
    await_keys();
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fputs("usage: hostile PORT SECONDS KEYS [TOKEN_FILE]\n", stderr);
        return EXIT_FAILURE;
    }
    bool native = argc > 4;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    attack.server = (struct sockaddr_in){.sin_family = AF_INET,
                                         .sin_port = htons((uint16_t)strtoul(argv[1], NULL, 10)),
                                         .sin_addr = {htonl(INADDR_LOOPBACK)}};
    attack.keys = strtoull(argv[3], NULL, 10);
    attack.conns = calloc(MAX_CONNS, sizeof *attack.conns);
    attack.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    ddpi_buf_init(&attack.recorded, 4096);
    ddpi_buf_init(&attack.keys_out, 1 << 20);
    if (native)
        record(argv[4]);
    for (size_t i = 0; i < KINDS; i++) {
        ddpi_buf_init(&kinds[i].bytes, 1 << 20);
        if (native || !kinds[i].native)
            kinds[i].say(&kinds[i].bytes);
    }
    attack.keys_fd = dial(0);
    put(&attack.keys_out, DDPI_TCPSTORE_HELLO, DDPI_TCPSTORE_HELLO_SIZE);
    run(strtoull(argv[2], NULL, 10) * 1000, native);
    for (size_t i = 0; i < KINDS; i++)
        if (kinds[i].opened > 0)
            printf("%s %u %u\n", kinds[i].name, kinds[i].opened, kinds[i].closed);
    fflush(stdout);
    /* Nobody else is to have his hands on the store while the keys go. */
    for (size_t i = 0; i < attack.nconns; i++)
        if (attack.conns[i].kind != NULL)
            close(attack.conns[i].fd);
    delete_keys();
    return EXIT_SUCCESS;
}
