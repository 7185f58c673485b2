/*
 * test_edge.c - both transports of an edge between two ends in one process, that through TCP also
 * by TLS, the control messages beside them, and what a hostile or dead peer can do.
 */
#include "call_header.h"
#include "check_main.h"
#include "data_tls.h"
#include "edge.h"
#include "peer_card.h"
#include "sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHM, TCP, TLS, SOCKETS, SOCKETS_TLS, TRANSPORTS, TOTAL = 3 * 1000 * 1000 + 17 };
enum { MANY = 3 }; /* sockets */

struct pair {
    struct ddpi_edge *a, *b;
    int bell_a, bell_b; /* who rings for a and b */
};

static struct ddpi_tls_engine *engine; /* NULL: this build has none */

static void setup(void)
{
    (void)!ddpi_tls_engine_create(&engine, NULL);
}

static void teardown(void)
{
    ddpi_tls_engine_destroy(engine);
}

/* Go on with the handshake of both, as far as that goes. */
static void shake_hands(const struct pair *pair)
{
    for (int turn = 0; turn < 4; turn++) {
        ck_assert_uint_eq(pair->a->ops->send(pair->a, "", 0), 0);
        ck_assert_uint_eq(pair->b->ops->send(pair->b, "", 0), 0);
    }
}

/* What both greetings have come to; on the other side if they were not the same connection. */
static void hide(const struct pair *pair, unsigned sockets, bool same)
{
    struct ddpi_seals ours, theirs;
    if (engine == NULL)
        return;
    memset(&ours.out, 1, sizeof ours.out);
    memset(&ours.in, 2, sizeof ours.in);
    theirs = (struct ddpi_seals){.in = ours.out, .out = ours.in};
    theirs.in.keys[0][0] ^= !same;
    for (unsigned i = 0; i < sockets; i++) {
        ck_assert_int_eq(ddpi_edge_tcp_hide(pair->a, i, engine, &ours, true, NULL), DDP_OK);
        ck_assert_int_eq(ddpi_edge_tcp_hide(pair->b, i, engine, &theirs, false, NULL), DDP_OK);
    }
    shake_hands(pair);
}

static struct pair pair_create(int transport)
{
    struct pair pair = {.bell_a = -1, .bell_b = -1};
    unsigned sockets = transport >= SOCKETS ? MANY : 1;
    int control[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, control), 0);
    if (transport != SHM) {
        int ends[2], a[MANY], b[MANY];
        for (unsigned i = 0; i < sockets; i++) {
            ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
            a[i] = ends[0];
            b[i] = ends[1];
        }
        pair.a = ddpi_edge_tcp(a, sockets, control[0], NULL);
        pair.b = ddpi_edge_tcp(b, sockets, control[1], NULL);
    } else {
        struct ddpi_shm_segment *ours, *theirs;
        ck_assert_int_eq(ddpi_shm_create(&ours, NULL), DDP_OK);
        ck_assert_int_eq(ddpi_shm_attach(dup(ddpi_shm_fd(ours)), &theirs, NULL), DDP_OK);
        pair.bell_a = eventfd(0, EFD_NONBLOCK);
        pair.bell_b = eventfd(0, EFD_NONBLOCK);
        pair.a = ddpi_edge_shm(ours, 0, dup(pair.bell_b), control[0], NULL);
        pair.b = ddpi_edge_shm(theirs, 1, dup(pair.bell_a), control[1], NULL);
    }
    ck_assert(pair.a != NULL && pair.b != NULL);
    if (transport == TLS || transport == SOCKETS_TLS)
        hide(&pair, sockets, true);
    return pair;
}

static void pair_destroy(struct pair *pair)
{
    ddpi_edge_destroy(pair->a);
    ddpi_edge_destroy(pair->b);
    if (pair->bell_a >= 0)
        close(pair->bell_a);
    if (pair->bell_b >= 0)
        close(pair->bell_b);
}

/* What @edge waits for; its bell is the last one. */
static bool arm(const struct pair *pair, struct ddpi_edge *edge, size_t recv_bytes, bool send,
                struct pollfd polls[DDPI_EDGE_POLLS + 1])
{
    for (unsigned i = 0; i < DDPI_EDGE_POLLS; i++)
        polls[i] = (struct pollfd){.fd = -1};
    polls[DDPI_EDGE_POLLS] =
        (struct pollfd){.fd = edge == pair->a ? pair->bell_a : pair->bell_b, .events = POLLIN};
    return edge->ops->arm(edge, recv_bytes, send, polls);
}

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 131 + i / 251);
}

static size_t send_pattern(struct ddpi_edge *edge, size_t from, size_t len)
{
    uint8_t bytes[5000];
    if (len > sizeof bytes)
        len = sizeof bytes;
    for (size_t i = 0; i < len; i++)
        bytes[i] = pattern(from + i);
    return edge->ops->send(edge, bytes, len);
}

static void check_pattern(const uint8_t *bytes, size_t from, size_t len)
{
    size_t wrong = 0;
    for (size_t i = 0; i < len; i++)
        wrong += bytes[i] != pattern(from + i);
    ck_assert_uint_eq(wrong, 0);
}

/* Bytes go through in order whatever their portions, by peeking and by receiving, both ways. */
START_TEST(bytes_arrive_in_order)
{
    struct pair pair = pair_create(_i % TRANSPORTS);
    bool turned = _i >= TRANSPORTS;
    struct ddpi_edge *from = turned ? pair.b : pair.a, *to = turned ? pair.a : pair.b;
    size_t sent = 0, got = 0;
    static uint8_t room[70000];
    for (unsigned turn = 0; got < TOTAL; turn++) {
        size_t want = 1 + turn * 977 % 5000;
        if (sent < TOTAL)
            sent += send_pattern(from, sent, want < TOTAL - sent ? want : TOTAL - sent);
        if (turn % 3 == 0)
            continue;
        if (turn % 2 == 0) {
            const uint8_t *bytes;
            size_t there = to->ops->peek(to, 8, &bytes);
            size_t take = there < want ? there : want;
            check_pattern(bytes, got, take);
            to->ops->consume(to, take);
            got += take;
        } else {
            size_t take = to->ops->recv(to, room, turn % 5 == 0 ? sizeof room : want);
            check_pattern(room, got, take);
            got += take;
        }
    }
    ck_assert_uint_eq(got, TOTAL);
    pair_destroy(&pair);
}
END_TEST

/* Every byte belongs to one socket; a part ends where the next socket's stripe begins. */
START_TEST(stripes_go_over_the_sockets_in_turn)
{
    unsigned sockets = (unsigned)_i;
    for (uint64_t at = 0, next = 0; at < 3 * DDPI_SOCKETS_MAX * DDPI_STRIPE_SIZE; at = next) {
        unsigned socket = ddpi_stripe_socket(at, sockets);
        size_t part = ddpi_stripe_part(at, DDPI_STRIPE_SIZE / 3 + 1, sockets);
        ck_assert_uint_lt(socket, sockets);
        ck_assert_uint_gt(part, 0);
        ck_assert_uint_le(part, DDPI_STRIPE_SIZE / 3 + 1);
        ck_assert_uint_eq(ddpi_stripe_socket(at + part - 1, sockets), socket);
        next = at + part;
        if (part < DDPI_STRIPE_SIZE / 3 + 1)
            ck_assert_uint_eq(ddpi_stripe_socket(next, sockets), (socket + 1) % sockets);
    }
}
END_TEST

START_TEST(a_full_link_takes_nothing_and_wakes_the_sender)
{
    struct pair pair = pair_create(_i);
    uint8_t bytes[4096] = {0};
    while (pair.a->ops->send(pair.a, bytes, sizeof bytes) > 0)
        continue;
    struct pollfd polls[3];
    ck_assert(!arm(&pair, pair.a, 0, true, polls));
    ck_assert_int_eq(poll(polls, 3, 0), 0);
    const uint8_t *there;
    size_t len;
    while ((len = pair.b->ops->peek(pair.b, 1, &there)) > 0)
        pair.b->ops->consume(pair.b, len);
    ck_assert_int_ge(poll(polls, 3, -1), 1);
    pair.a->ops->disarm(pair.a);
    ck_assert_uint_gt(pair.a->ops->send(pair.a, bytes, 1), 0);
    pair_destroy(&pair);
}
END_TEST

START_TEST(a_sleeping_receiver_is_woken)
{
    struct pair pair = pair_create(_i);
    struct pollfd polls[3];
    ck_assert(!arm(&pair, pair.b, 4, false, polls));
    ck_assert_int_eq(poll(polls, 3, 0), 0);
    ck_assert_uint_eq(pair.a->ops->send(pair.a, "1234", 4), 4);
    ck_assert_int_ge(poll(polls, 3, -1), 1);
    pair.b->ops->disarm(pair.b);
    const uint8_t *bytes;
    ck_assert_uint_eq(pair.b->ops->peek(pair.b, 4, &bytes), 4);
    ck_assert(arm(&pair, pair.b, 4, false, polls)); /* nothing to wait for */
    pair.b->ops->disarm(pair.b);
    if (_i == SHM) { /* nobody sleeps: no bell */
        uint64_t rings;
        ck_assert_int_eq(read(pair.bell_b, &rings, sizeof rings), sizeof rings);
        ck_assert_uint_eq(pair.a->ops->send(pair.a, "5678", 4), 4);
        ck_assert_int_eq(read(pair.bell_b, &rings, sizeof rings), -1);
    }
    pair_destroy(&pair);
}
END_TEST

START_TEST(impossible_positions_break_the_link)
{
    /* Any rank can write anything into the shared header, as here through another mapping. */
    int control[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, control), 0);
    struct ddpi_shm_segment *segment;
    ck_assert_int_eq(ddpi_shm_create(&segment, NULL), DDP_OK);
    uint8_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ddpi_shm_fd(segment), 0);
    ck_assert(page != MAP_FAILED);
    struct ddpi_edge *edge = ddpi_edge_shm(segment, 0, eventfd(0, 0), control[0], NULL);
    memset(page, 0x55, 4096);
    const uint8_t *bytes;
    ck_assert_uint_eq(edge->ops->peek(edge, 1, &bytes), 0);
    ck_assert_ptr_nonnull(edge->broken);
    ck_assert_uint_eq(edge->ops->send(edge, "x", 1), 0);
    ddpi_edge_destroy(edge);
    munmap(page, 4096);
    close(control[1]);
}
END_TEST

START_TEST(foreign_memory_is_refused)
{
    struct ddpi_shm_segment *segment;
    int unsealed = memfd_create("test", MFD_CLOEXEC);
    ck_assert_int_eq(ddpi_shm_attach(unsealed, &segment, NULL), DDP_E_PROTOCOL);
    int small = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    ck_assert_int_eq(ddpi_shm_attach(small, &segment, NULL), DDP_E_PROTOCOL);
    struct ddpi_shm_segment *own;
    ck_assert_int_eq(ddpi_shm_create(&own, NULL), DDP_OK);
    ck_assert_int_eq(ftruncate(ddpi_shm_fd(own), 0), -1); /* sealed */
    ddpi_shm_destroy(own);
}
END_TEST

START_TEST(control_messages_and_their_end)
{
    struct pair pair = pair_create(_i);
    struct ddpi_control *a = &pair.a->control, *b = &pair.b->control;
    struct ddpi_memo memo, got;
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_NONE);
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, DDP_E_PEER_DEAD, "rank 2\nis dead");
    ddpi_control_send(a, &memo);
    ddpi_memo_fill(&memo, DDPI_NOTICE_LEFT, DDP_OK, "");
    ddpi_control_send(a, &memo);
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
    ck_assert_uint_eq(got.notice, DDPI_NOTICE_FAILED);
    ck_assert_int_eq(got.status, DDP_E_PEER_DEAD);
    ck_assert_str_eq(got.text, "rank 2?is dead"); /* nothing that could garble a terminal */
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
    ck_assert_uint_eq(got.notice, DDPI_NOTICE_LEFT);
    memset(&memo, 'x', sizeof memo);
    ddpi_control_send(a, &memo);
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_GARBLED);
    ddpi_edge_destroy(pair.a);
    pair.a = NULL;
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_END);
    pair_destroy(&pair);
}
END_TEST

static ino_t file_of(int fd)
{
    struct stat info;
    ck_assert_int_eq(fstat(fd, &info), 0);
    return info.st_ino;
}

START_TEST(descriptors_are_handed_over_by_tag)
{
    struct pair pair = pair_create(_i);
    struct ddpi_control *a = &pair.a->control, *b = &pair.b->control;
    int files[] = {memfd_create("one", 0), memfd_create("two", 0)};
    struct ddpi_memo got;
    ck_assert_int_eq(ddpi_control_take_fd(b, 10), -1);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert(ddpi_control_pass_fd(a, 10 + i, files[i]));
    for (uint32_t i = 0; i < 2; i++) {
        ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
        ck_assert_uint_eq(got.notice, DDPI_NOTICE_HANDOVER);
    }
    for (uint32_t i = 2; i-- > 0;) { /* each by its tag, whatever came before */
        ck_assert(ddpi_control_has_fd(b, 10 + i));
        int fd = ddpi_control_take_fd(b, 10 + i);
        ck_assert(!ddpi_control_has_fd(b, 10 + i));
        ck_assert_int_eq(ddpi_control_take_fd(b, 10 + i), -1);
        ck_assert_uint_eq(file_of(fd), file_of(files[i]));
        ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
        close(fd);
    }
    /* What nobody takes is closed with the edge. */
    ck_assert(ddpi_control_pass_fd(a, 3, files[0]));
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
    int kept = b->handed[0].fd;
    pair_destroy(&pair);
    ck_assert_int_eq(fcntl(kept, F_GETFD), -1);
    close(files[0]);
    close(files[1]);
}
END_TEST

START_TEST(bad_handovers_are_garbage)
{
    struct pair pair = pair_create(SHM);
    struct ddpi_control *a = &pair.a->control, *b = &pair.b->control;
    struct ddpi_memo memo, got;
    if (_i == 0) { /* none comes along */
        ddpi_memo_fill(&memo, DDPI_NOTICE_HANDOVER, DDP_OK, "");
        ddpi_control_send(a, &memo);
    } else if (_i == 1) { /* one comes along with something else */
        ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
        const struct ddpi_sealed_memo sealed = {.memo = memo};
        ck_assert_int_eq(ddpi_send_fds(a->fd, &sealed, sizeof sealed, &pair.bell_a, 1, NULL),
                         DDP_OK);
    } else { /* more than anybody takes */
        for (uint32_t i = 0; i <= DDPI_HANDED_MAX; i++) {
            ck_assert(ddpi_control_pass_fd(a, i, pair.bell_a));
            if (i < DDPI_HANDED_MAX)
                ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
        }
    }
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_GARBLED);
    pair_destroy(&pair);
}
END_TEST

START_TEST(a_handover_that_finds_no_room_is_told_from_garbage)
{
    struct pair pair = pair_create(SHM);
    struct rlimit files, none;
    struct ddpi_memo got;
    ck_assert(ddpi_control_pass_fd(&pair.a->control, 1, pair.bell_a));
    int next = dup(pair.bell_a);
    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    none = files;
    none.rlim_cur = (rlim_t)next;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(ddpi_control_read(&pair.b->control, &got), DDPI_CONTROL_STARVED);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    pair_destroy(&pair);
}
END_TEST

static void seal_both(struct pair *pair)
{
    struct ddpi_handshake handshake = {.key = "of both"};
    struct ddpi_seals seals;
    ddpi_handshake_begin(&handshake);
    ddpi_seals_begin(&seals, &handshake, DDPI_SIDE_CLIENT);
    ddpi_control_seal(&pair->a->control, &seals);
    ddpi_seals_begin(&seals, &handshake, DDPI_SIDE_SERVER);
    ddpi_control_seal(&pair->b->control, &seals);
}

/* Between two that have agreed on keys: the same again, a changed one, none of theirs, and what the
 * other side has said itself. */
START_TEST(only_what_the_peer_has_sealed_is_taken)
{
    struct pair pair = pair_create(_i % TRANSPORTS);
    struct ddpi_control *a = &pair.a->control, *b = &pair.b->control;
    struct ddpi_sealed_memo wire;
    struct ddpi_memo memo, got;
    seal_both(&pair);
    ddpi_memo_fill(&memo, DDPI_NOTICE_FAILED, DDP_E_PEER_DEAD, "rank 2 is dead");
    ddpi_control_send(a, &memo);
    ck_assert_int_eq(recv(b->fd, &wire, sizeof wire, MSG_PEEK), (ssize_t)sizeof wire);
    ck_assert_int_eq(ddpi_control_read(b, &got), DDPI_CONTROL_MEMO);
    ck_assert_str_eq(got.text, "rank 2 is dead");
    struct ddpi_control *to = b, *from = a;
    switch (_i / TRANSPORTS) {
    case 0: /* as it was */
        break;
    case 1:
        wire.memo.text[5] ^= 1;
        wire.number = 1;
        break;
    case 2: /* merely another number */
        wire.number = 1;
        break;
    case 3:
        memset(wire.seal, 0, sizeof wire.seal);
        wire.number = 1;
        break;
    default: /* back to who has said it */
        to = a;
        from = b;
    }
    ck_assert_int_eq(send(from->fd, &wire, sizeof wire, 0), (ssize_t)sizeof wire);
    ck_assert_int_eq(ddpi_control_read(to, &got), DDPI_CONTROL_GARBLED);
    pair_destroy(&pair);
}
END_TEST

/* As when a signal handler sends while a message is being sent, and as when some were dropped. */
START_TEST(numbers_may_come_out_of_order)
{
    static const struct {
        uint64_t number;
        bool taken;
    } order[] = {{1, true},           {0, true},   {1, false},  {0, false},  {100, true},
                 {100, false},        {37, true},  {37, false}, {36, false}, {99, true},
                 {UINT64_MAX, false}, {101, true}, {500, true}, {101, false}};
    for (size_t end = 1; end <= sizeof order / sizeof *order; end++) {
        struct pair pair = pair_create(SHM);
        struct ddpi_memo memo, got;
        enum ddpi_control_event event = DDPI_CONTROL_NONE;
        seal_both(&pair);
        ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
        for (size_t i = 0; i < end; i++) {
            if (!order[i].taken && i + 1 < end)
                continue; /* garbage is the end of it */
            pair.a->control.sent = order[i].number;
            ddpi_control_send(&pair.a->control, &memo);
            event = ddpi_control_read(&pair.b->control, &got);
        }
        ck_assert_int_eq(event, order[end - 1].taken ? DDPI_CONTROL_MEMO : DDPI_CONTROL_GARBLED);
        pair_destroy(&pair);
    }
}
END_TEST

/* Two ends of a TCP connection whose buffers hold a few messages. */
static void small_tcp_pair(int ret[2])
{
    const int small = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    ret[0] = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(setsockopt(ret[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    ck_assert_int_eq(connect(ret[0], (struct sockaddr *)&at, sizeof at), 0);
    ret[1] = accept(listener, NULL, NULL);
    ck_assert_int_ge(ret[1], 0);
    close(listener);
}

/* TCP may take a part of a message. */
START_TEST(messages_are_dropped_whole)
{
    int fds[2];
    struct ddpi_control a, b;
    struct ddpi_memo memo, got;
    unsigned cut = 0, came = 0;
    small_tcp_pair(fds);
    ddpi_control_init(&a, fds[0]);
    ddpi_control_init(&b, fds[1]);
    ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
    for (unsigned turn = 0; turn < 200; turn++) {
        for (unsigned i = 0; i < 1 + turn % 17; i++) {
            ddpi_memo_tag(&memo, turn);
            ddpi_control_send(&a, &memo);
            cut += a.unsent > 0;
        }
        enum ddpi_control_event event;
        for (unsigned i = 0; i < 3; i++) /* not all of them */
            if ((event = ddpi_control_read(&b, &got)) != DDPI_CONTROL_NONE) {
                ck_assert_int_eq(event, DDPI_CONTROL_MEMO);
                ck_assert_uint_le(got.tag, turn);
                came++;
            }
    }
    ck_assert_uint_gt(cut, 0);
    ck_assert_uint_gt(came, 0);
    ddpi_control_finish(&a);
    ddpi_control_finish(&b);
}
END_TEST

START_TEST(descriptors_need_a_unix_socket)
{
    struct ddpi_control control;
    ddpi_control_init(&control, socket(AF_INET, SOCK_STREAM, 0));
    ck_assert(!control.local && !ddpi_control_pass_fd(&control, 0, 0));
    ddpi_control_finish(&control);
}
END_TEST

START_TEST(what_was_sent_before_the_end_arrives)
{
    struct pair pair = pair_create(_i);
    ck_assert_uint_eq(pair.a->ops->send(pair.a, "last", 4), 4);
    ddpi_edge_destroy(pair.a);
    pair.a = NULL;
    char text[8];
    ck_assert_uint_eq(pair.b->ops->recv(pair.b, text, sizeof text), 4);
    ck_assert_mem_eq(text, "last", 4);
    ck_assert_uint_eq(pair.b->ops->recv(pair.b, text, sizeof text), 0);
    if (_i == TCP)
        ck_assert_ptr_nonnull(pair.b->broken);
    pair_destroy(&pair);
}
END_TEST

START_TEST(calls_on_the_wire)
{
    struct ddpi_call call = {.operation = DDPI_ALL_REDUCE,
                             .seq = 1ULL << 40,
                             .count = 1ULL << 33,
                             .dtype = DDP_BFLOAT16,
                             .op = DDP_MAX,
                             .algorithm = DDP_ALGORITHM_DIRECT};
    uint8_t wire[DDPI_CALL_WIRE_SIZE];
    struct ddpi_call got;
    ddpi_call_encode(&call, wire);
    ck_assert(ddpi_call_decode(wire, &got));
    ck_assert(ddpi_call_same(&call, &got));
    got.count++;
    ck_assert(!ddpi_call_same(&call, &got));
    for (size_t i = 0; i < sizeof wire; i++) { /* whatever comes, describing it is safe */
        uint8_t bad[DDPI_CALL_WIRE_SIZE];
        memcpy(bad, wire, sizeof bad);
        bad[i] ^= 0xff;
        char text[DDPI_CALL_TEXT];
        if (ddpi_call_decode(bad, &got))
            ddpi_call_describe(&got, text);
        if (i < 8) /* magic, operation, type, reduction, algorithm */
            ck_assert(!ddpi_call_decode(bad, &got));
    }
}
END_TEST

/* Whichever bit of a header differs, the digest does. */
START_TEST(every_bit_of_a_call_is_in_its_digest)
{
    const struct ddpi_call call = {.operation = DDPI_ALL_REDUCE, .seq = 17, .count = 1000};
    uint8_t wire[DDPI_CALL_WIRE_SIZE];
    struct ddpi_call got;
    unsigned decoded = 0;
    ddpi_call_encode(&call, wire);
    for (size_t bit = 0; bit < 8 * sizeof wire; bit++) {
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (ddpi_call_decode(wire, &got)) {
            ck_assert_uint_ne(ddpi_call_digest(&got), ddpi_call_digest(&call));
            decoded++;
        }
        wire[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    ck_assert_uint_gt(decoded, 64 * 3 + 32 * 4); /* seq, count, bytes; root, parts, tag, buffers */
}
END_TEST

/* There is room for the longest description, whatever a header claims. */
START_TEST(the_longest_call)
{
    struct ddpi_call got, call = {.operation = DDPI_ALL_REDUCE,
                                  .seq = UINT64_MAX,
                                  .count = SIZE_MAX,
                                  .dtype = DDP_FLOAT8_E4M3,
                                  .op = DDP_AVERAGE_BEFORE,
                                  .algorithm = DDP_ALGORITHM_HIERARCHICAL,
                                  .parts = UINT32_MAX,
                                  .buffers = UINT32_MAX,
                                  .message_class = DDPI_USER_MESSAGE,
                                  .tag = UINT32_MAX,
                                  .finite_check = true,
                                  .on_device = true};
    uint8_t wire[DDPI_CALL_WIRE_SIZE];
    char text[DDPI_CALL_TEXT];
    ddpi_call_encode(&call, wire);
    ck_assert(ddpi_call_decode(wire, &got));
    ck_assert(ddpi_call_same(&call, &got));
    ddpi_call_describe(&got, text);
    ck_assert_ptr_nonnull(strstr(text, " with a finite check on a GPU"));
    got.finite_check = false;
    ck_assert(!ddpi_call_same(&call, &got));
}
END_TEST

START_TEST(cards_on_the_wire)
{
    struct ddpi_card card = {.world_size = 4, .shm = true, .local = "name"}, got;
    ck_assert_int_eq(ddpi_card_identify(&card, NULL), DDP_OK);
    card.tcp.ss_family = _i == 0 ? AF_INET : AF_INET6;
    card.sockets = DDPI_SOCKETS_MAX;
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, DDPI_CARD_WIRE_MAX);
    ck_assert(ddpi_card_encode(&card, &buf));
    size_t len = ddpi_buf_len(&buf);
    ck_assert(ddpi_card_decode(ddpi_buf_head(&buf), len, &got));
    ck_assert_uint_eq(got.world_size, 4);
    ck_assert_uint_eq(got.pid, card.pid);
    ck_assert_uint_eq(got.sockets, DDPI_SOCKETS_MAX);
    ck_assert_str_eq(got.local, "name");
    ck_assert_str_eq(got.machine, card.machine);
    ck_assert_mem_eq(got.id, card.id, sizeof got.id);
    ck_assert(ddpi_card_share_memory(&card, &got) && ddpi_card_same_machine(&card, &got));
    ddpi_card_set_host(&got, "another");
    ck_assert(!ddpi_card_share_memory(&card, &got) && ddpi_card_same_machine(&card, &got));
    got.machine[0] ^= 1;
    ck_assert(!ddpi_card_share_memory(&card, &got) && !ddpi_card_same_machine(&card, &got));
    got.machine[0] = card.machine[0] = '\0'; /* without /proc there are no names */
    ck_assert(!ddpi_card_same_machine(&card, &got));
    uint8_t slot[DDPI_CARD_SLOT] = {0};
    ck_assert(!ddpi_card_get(slot, &got)); /* an empty one */
    ck_assert(ddpi_card_put(&card, slot) && ddpi_card_get(slot, &got));
    ck_assert_mem_eq(got.id, card.id, sizeof got.id);
    memset(slot, 0xff, 2);
    ck_assert(!ddpi_card_get(slot, &got));
    for (size_t cut = 0; cut < len; cut++)
        ck_assert(!ddpi_card_decode(ddpi_buf_head(&buf), cut, &got));
    ddpi_buf_put_u8(&buf, 0);
    ck_assert(!ddpi_card_decode(ddpi_buf_head(&buf), len + 1, &got));
    ddpi_buf_finish(&buf);
}
END_TEST

/* The format and the release are the third and the fourth number of 16 bits. */
static const struct {
    uint16_t format, release;
    const char *said;
} foreign_cards[] = {
    {3, 3, "rank 2 uses a version before 0.2 of libddpcomm, and rank 7 version "},
    {4, 9 * 4, "rank 2 uses version 0.9 of libddpcomm, and rank 7 version "},
    {5, 1203 * 4 + 1, "rank 2 uses version 12.3 of libddpcomm, and rank 7 version "},
};

START_TEST(a_card_of_another_version_is_refused_and_both_are_named)
{
    struct ddpi_card card = {.world_size = 4, .sockets = 1, .tcp.ss_family = AF_INET}, got;
    uint8_t slot[DDPI_CARD_SLOT];
    struct ddp_error err;
    ck_assert(ddpi_card_put(&card, slot) && ddpi_card_get(slot, &got));
    ck_assert_int_eq(ddpi_card_refuse_slot(slot, 2, 7, &err), DDP_E_PROTOCOL);
    ck_assert_str_eq(err.msg, "rank 2 has sent an invalid card");
    const uint16_t format = htole16(foreign_cards[_i].format);
    const uint16_t release = htole16(foreign_cards[_i].release);
    memcpy(slot + 2 + 4, &format, sizeof format);
    memcpy(slot + 2 + 6, &release, sizeof release);
    ck_assert(!ddpi_card_get(slot, &got));
    ck_assert_int_eq(ddpi_card_refuse_slot(slot, 2, 7, &err), DDP_E_PROTOCOL);
    ck_assert_mem_eq(err.msg, foreign_cards[_i].said, strlen(foreign_cards[_i].said));
}
END_TEST

/* Two ends, and what lies between them. */
static struct pair plain_pair(int data[2])
{
    struct pair pair = {.bell_a = -1, .bell_b = -1};
    int control[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, control), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, data), 0);
    pair.a = ddpi_edge_tcp(&data[0], 1, control[0], NULL);
    pair.b = ddpi_edge_tcp(&data[1], 1, control[1], NULL);
    ck_assert(pair.a != NULL && pair.b != NULL);
    return pair;
}

START_TEST(nobody_between_reads_by_tls)
{
    static const char secret[] = "gradients that nobody sees";
    bool hidden = _i == 1;
    char seen[4096], got[sizeof secret];
    int data[2];
    if (hidden && engine == NULL)
        SKIP("TLS in this build");
    struct pair pair = plain_pair(data);
    if (hidden)
        hide(&pair, 1, true);
    ck_assert_uint_eq(pair.a->ops->send(pair.a, secret, sizeof secret), sizeof secret);
    ssize_t len = recv(data[1], seen, sizeof seen, MSG_PEEK);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(memmem(seen, (size_t)len, secret, sizeof secret) == NULL, hidden);
    ck_assert_uint_eq(pair.b->ops->recv(pair.b, got, sizeof got), sizeof got);
    ck_assert_str_eq(got, secret);
    pair_destroy(&pair);
}
END_TEST

/* Another connection's greeting, and so another key; one that hides nothing; a changed one. */
START_TEST(what_does_not_fit_breaks_the_edge)
{
    char got[16];
    int data[2];
    if (engine == NULL)
        SKIP("TLS in this build");
    struct pair pair = plain_pair(data);
    if (_i == 0) {
        hide(&pair, 1, false);
    } else {
        hide(&pair, 1, true);
        ck_assert_int_eq(send(data[0], "HEAD is in clear", 16, 0), 16);
    }
    ck_assert_uint_eq(pair.b->ops->recv(pair.b, got, sizeof got), 0);
    ck_assert_ptr_nonnull(pair.b->broken);
    ck_assert_ptr_nonnull(strstr(pair.b->broken, "DDPRUN_TLS_RANKS"));
    ck_assert_uint_eq(pair.b->ops->send(pair.b, "x", 1), 0);
    pair_destroy(&pair);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("edge");
    TCase *tcase = tcase_create("transports");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, bytes_arrive_in_order, 0, 2 * TRANSPORTS);
    tcase_add_loop_test(tcase, stripes_go_over_the_sockets_in_turn, 2, DDPI_SOCKETS_MAX + 1);
    tcase_add_loop_test(tcase, a_full_link_takes_nothing_and_wakes_the_sender, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, a_sleeping_receiver_is_woken, 0, TRANSPORTS);
    tcase_add_test(tcase, impossible_positions_break_the_link);
    tcase_add_test(tcase, foreign_memory_is_refused);
    tcase_add_loop_test(tcase, control_messages_and_their_end, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, descriptors_are_handed_over_by_tag, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, bad_handovers_are_garbage, 0, 3);
    tcase_add_test(tcase, a_handover_that_finds_no_room_is_told_from_garbage);
    tcase_add_loop_test(tcase, only_what_the_peer_has_sealed_is_taken, 0, 5 * TRANSPORTS);
    tcase_add_test(tcase, numbers_may_come_out_of_order);
    tcase_add_test(tcase, messages_are_dropped_whole);
    tcase_add_test(tcase, descriptors_need_a_unix_socket);
    tcase_add_loop_test(tcase, what_was_sent_before_the_end_arrives, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, nobody_between_reads_by_tls, 0, 2);
    tcase_add_loop_test(tcase, what_does_not_fit_breaks_the_edge, 0, 2);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("wire");
    ADD_TESTS(tcase, calls_on_the_wire, every_bit_of_a_call_is_in_its_digest, the_longest_call);
    tcase_add_loop_test(tcase, cards_on_the_wire, 0, 2);
    tcase_add_loop_test(tcase, a_card_of_another_version_is_refused_and_both_are_named, 0,
                        sizeof foreign_cards / sizeof *foreign_cards);
    suite_add_tcase(suite, tcase);
    return suite;
}
