/*
 * test_meeting.c - two ranks that look for each other, step by step in one process: who connects,
 * both at once, peers that are gone, strangers, and what is left when all is over.
 */
#include "check_main.h"
#include "descriptors.h"
#include "handshake.h"
#include "sockets.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SHM, TCP, TRANSPORTS, TURNS = 20000 /* of a millisecond or less */ };

static struct ddpi_meeting ranks[2];
static int bells[2];
static unsigned descriptors; /* before */

static void open_ranks(int transport)
{
    struct sockaddr_storage address;
    descriptors = open_descriptors();
    ck_assert_int_eq(ddpi_source_address("127.0.0.1", 1, &address, NULL), DDP_OK);
    for (uint32_t i = 0; i < 2; i++) {
        bells[i] = eventfd(0, EFD_NONBLOCK);
        ck_assert_int_eq(
            ddpi_meeting_init(&ranks[i], i, 2, bells[i], &address, transport == SHM, NULL), DDP_OK);
    }
    for (uint32_t i = 0; i < 2; i++)
        memcpy(ddpi_meeting_slot(&ranks[i], 1 - i), ddpi_meeting_slot(&ranks[1 - i], 1 - i),
               DDPI_CARD_SLOT);
}

static void close_ranks(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        ddpi_meeting_finish(&ranks[i]);
        close(bells[i]);
    }
    ck_assert_uint_eq(open_descriptors(), descriptors);
}

static int connect_to(const struct ddpi_meeting *meeting, int transport)
{
    int fd;
    int error = transport == SHM ? ddpi_begin_local(meeting->card.local, &fd)
                                 : ddpi_begin_tcp(&meeting->card.tcp, &fd);
    ck_assert(error == 0 || error == EINPROGRESS);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, TURNS), 1);
    return fd;
}

static struct ddpi_arrival advance(uint32_t rank)
{
    struct ddpi_arrival arrival;
    struct ddp_error error = {0};
    ck_assert_msg(ddpi_meeting_advance(&ranks[rank], &arrival, &error) == DDP_OK, "%s", error.msg);
    return arrival;
}

static void ask(uint32_t rank, enum ddpi_link link)
{
    ck_assert_int_eq(ddpi_meeting_ask(&ranks[rank], 1 - rank, link, NULL), DDP_OK);
}

/* The kernel carries what is sent when it gets to it. */
static void be_patient(int turn)
{
    if (turn > 50)
        poll(NULL, 0, 1);
}

/* Until both have one; each may have more to do after it. */
static void meet(struct ddpi_arrival arrivals[2])
{
    for (int turn = 0; turn < TURNS && (!arrivals[0].edge || !arrivals[1].edge); turn++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            if (arrivals[rank].edge == NULL)
                arrivals[rank] = advance(rank);
        be_patient(turn);
    }
    ck_assert(arrivals[0].edge != NULL && arrivals[1].edge != NULL);
}

static void try_and_close(struct ddpi_arrival arrivals[2])
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct ddpi_edge *from = arrivals[rank].edge, *to = arrivals[1 - rank].edge;
        char text[8] = "";
        ck_assert_uint_eq(from->peer, 1 - rank);
        ck_assert_uint_eq(from->ops->send(from, "hello", 5), 5);
        for (int turn = 0; turn < TURNS && to->ops->recv(to, text, 5) == 0; turn++)
            poll(NULL, 0, 1);
        ck_assert_str_eq(text, "hello");
    }
    ddpi_edge_destroy(arrivals[0].edge);
    ddpi_edge_destroy(arrivals[1].edge);
}

/* Nothing more comes of it, whatever is still in line. */
static void expect_quiet(void)
{
    for (int turn = 0; turn < 5; turn++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            ck_assert_ptr_null(advance(rank).edge);
            ck_assert_uint_eq(ranks[rank].visitor_count, 0);
            ck_assert_int_eq(ranks[rank].attempt.stage, DDPI_ATTEMPT_NONE);
        }
}

START_TEST(whoever_asks_the_other_accepts)
{
    uint32_t asks = (uint32_t)_i / TRANSPORTS;
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i % TRANSPORTS);
    ask(asks, DDPI_LINK_PEER);
    meet(arrivals);
    ck_assert(arrivals[asks].asked && !arrivals[1 - asks].asked);
    ck_assert_str_eq(arrivals[0].edge->ops->name, _i % TRANSPORTS == SHM ? "shared memory" : "TCP");
    try_and_close(arrivals);
    expect_quiet();
    close_ranks();
}
END_TEST

/* Each has connected before either looks: one edge comes of it, asked for by the lower rank. */
START_TEST(when_both_ask_one_edge_comes_of_it)
{
    uint32_t first = (uint32_t)_i / TRANSPORTS;
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i % TRANSPORTS);
    ask(0, DDPI_LINK_PEER);
    ask(1, DDPI_LINK_PEER);
    struct ddpi_edge *none;
    for (int turn = 0; turn < 3; turn++) { /* TCP takes a moment to connect */
        ck_assert_int_eq(ddpi_attempt_push(&ranks[first], &none, NULL), DDP_OK);
        ck_assert_int_eq(ddpi_attempt_push(&ranks[1 - first], &none, NULL), DDP_OK);
        ck_assert_ptr_null(none);
    }
    ck_assert_int_eq(ranks[0].attempt.stage, DDPI_ATTEMPT_ANSWER);
    ck_assert_int_eq(ranks[1].attempt.stage, DDPI_ATTEMPT_ANSWER);
    if (first == 1)
        arrivals[1] = advance(1);
    meet(arrivals);
    ck_assert(arrivals[0].asked && !arrivals[1].asked);
    try_and_close(arrivals);
    expect_quiet();
    close_ranks();
}
END_TEST

/* In a ring of two there is an edge each way; none of them counts for the other. */
START_TEST(a_ring_of_two_has_two_edges)
{
    struct ddpi_arrival arrivals[2][2] = {0};
    open_ranks(_i);
    ask(0, DDPI_LINK_RING);
    ask(1, DDPI_LINK_RING);
    int edges = 0;
    for (int turn = 0; turn < 1000 || (turn < TURNS && edges < 4); turn++) {
        for (uint32_t rank = 0; rank < 2; rank++) {
            struct ddpi_arrival arrival = advance(rank);
            if (arrival.edge == NULL)
                continue;
            ck_assert_int_eq(arrival.link, DDPI_LINK_RING);
            ck_assert_ptr_null(arrivals[arrival.asked ? rank : 1 - rank][rank].edge);
            arrivals[arrival.asked ? rank : 1 - rank][rank] = arrival;
            edges++;
        }
        be_patient(edges < 4 ? turn : 0);
    }
    ck_assert_int_eq(edges, 4);
    try_and_close(arrivals[0]);
    try_and_close(arrivals[1]);
    close_ranks();
}
END_TEST

/* Half of what rank 1 brings for its edge is here when our own edge, to the same rank, is done. */
START_TEST(one_edge_of_a_ring_of_two_leaves_the_other_alone)
{
    struct ddpi_arrival arrival = {0}, ignored;
    open_ranks(TCP);
    int fds[] = {connect_to(&ranks[0], TCP), connect_to(&ranks[0], TCP)};
    ck_assert_int_eq(
        ddpi_greet(fds[0], DDPI_GREET_CONTROL, DDPI_LINK_RING, 1, &ranks[0].card, NULL, 0, NULL),
        DDP_OK);
    ask(0, DDPI_LINK_RING);
    for (int turn = 0; arrival.edge == NULL || ranks[0].visitor_count < 2; turn++) {
        ck_assert_int_lt(turn, TURNS);
        ignored = advance(1);
        if (ignored.edge != NULL)
            ddpi_edge_destroy(ignored.edge);
        if (arrival.edge == NULL)
            arrival = advance(0);
        else
            ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ck_assert(arrival.asked);
    ddpi_edge_destroy(arrival.edge);
    ck_assert_int_eq(
        ddpi_greet(fds[1], DDPI_GREET_DATA, DDPI_LINK_RING, 1, &ranks[0].card, NULL, 0, NULL),
        DDP_OK);
    arrival.edge = NULL;
    for (int turn = 0; arrival.edge == NULL && turn < TURNS; turn++) {
        be_patient(turn);
        arrival = advance(0);
    }
    ck_assert(arrival.edge != NULL && !arrival.asked);
    ddpi_edge_destroy(arrival.edge);
    close(fds[0]);
    close(fds[1]);
    close_ranks();
}
END_TEST

START_TEST(an_attempt_sees_that_its_peer_is_gone)
{
    bool in_line = _i / TRANSPORTS != 0; /* it has connected before that */
    open_ranks(_i % TRANSPORTS);
    ask(0, DDPI_LINK_PEER);
    for (int turn = 0; in_line && ranks[0].attempt.stage != DDPI_ATTEMPT_ANSWER; turn++) {
        ck_assert_int_lt(turn, TURNS);
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ddpi_meeting_finish(&ranks[1]);
    for (int turn = 0; ranks[0].attempt.stage != DDPI_ATTEMPT_GONE; turn++) {
        ck_assert_int_lt(turn, TURNS);
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ck_assert_ptr_nonnull(strstr(ranks[0].attempt.edge.peer_name, "rank 1 ("));
    ck_assert_str_eq(ranks[0].attempt.edge.broken, "has died or has left the communicator");
    close_ranks();
}
END_TEST

/* It has asked as well, and its attempt would have counted. */
START_TEST(a_peer_that_asked_too_is_gone)
{
    open_ranks(SHM);
    ask(0, DDPI_LINK_PEER);
    ask(1, DDPI_LINK_PEER);
    struct ddpi_edge *none;
    for (uint32_t rank = 0; rank < 2; rank++)
        ck_assert_int_eq(ddpi_attempt_push(&ranks[rank], &none, NULL), DDP_OK);
    ddpi_meeting_finish(&ranks[0]);
    for (int turn = 0; turn < 5; turn++)
        ck_assert_ptr_null(advance(1).edge);
    ck_assert_int_eq(ranks[1].attempt.stage, DDPI_ATTEMPT_GONE);
    ck_assert_ptr_nonnull(strstr(ranks[1].attempt.edge.peer_name, "rank 0 ("));
    ck_assert_str_eq(ranks[1].attempt.edge.broken, "has died or has left the communicator");
    close_ranks();
}
END_TEST

/* Greetings that nobody expects: of no rank of this world, of ourselves, for nothing that there is,
 * in the way that the cards do not say, without the token, from a rank that has an edge. */
START_TEST(who_is_not_expected_is_turned_away)
{
    open_ranks(_i);
    struct ddpi_card wrong = ranks[0].card;
    wrong.token[3] ^= 1;
    const struct {
        enum ddpi_greeting_kind kind;
        uint32_t link, rank;
        const struct ddpi_card *card;
    } greetings[] = {
        {DDPI_GREET_CONTROL, DDPI_LINK_PEER, 2, &ranks[0].card},
        {DDPI_GREET_CONTROL, DDPI_LINK_PEER, 0, &ranks[0].card},
        {DDPI_GREET_CONTROL, 2, 1, &ranks[0].card},
        {_i == SHM ? DDPI_GREET_CONTROL : DDPI_GREET_SHM, DDPI_LINK_PEER, 1, &ranks[0].card},
        {DDPI_GREET_SHM, DDPI_LINK_PEER, 1, &ranks[0].card}, /* without memory, or without need */
        {DDPI_GREET_ANSWER, DDPI_LINK_PEER, 1, &ranks[0].card},
        {DDPI_GREET_CONTROL, DDPI_LINK_PEER, 1, &wrong},
    };
    for (size_t i = 0; i < sizeof greetings / sizeof *greetings; i++) {
        int fd = connect_to(&ranks[0], _i);
        ck_assert_int_eq(ddpi_greet(fd, greetings[i].kind, (enum ddpi_link)greetings[i].link,
                                    greetings[i].rank, greetings[i].card, NULL, 0, NULL),
                         DDP_OK);
        struct pollfd end = {.fd = fd, .events = POLLIN};
        for (int turn = 0; poll(&end, 1, 1) == 0; turn++) {
            ck_assert_int_lt(turn, TURNS);
            ck_assert_ptr_null(advance(0).edge);
        }
        char byte;
        ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
        ck_assert_uint_eq(ranks[0].visitor_count, 0);
        close(fd);
    }
    close_ranks();
}
END_TEST

START_TEST(silent_strangers_give_way)
{
    enum { STRANGERS = 50 };
    int fds[STRANGERS];
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_to(&ranks[0], _i);
        ck_assert_ptr_null(advance(0).edge);
    }
    ck_assert_uint_eq(ranks[0].visitor_count, 20); /* two for each rank, and sixteen */
    ask(1, DDPI_LINK_PEER);
    meet(arrivals);
    try_and_close(arrivals);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    close_ranks();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("meeting");
    TCase *tcase = tcase_create("meeting");
    tcase_add_loop_test(tcase, whoever_asks_the_other_accepts, 0, 2 * TRANSPORTS);
    tcase_add_loop_test(tcase, when_both_ask_one_edge_comes_of_it, 0, 2 * TRANSPORTS);
    tcase_add_loop_test(tcase, a_ring_of_two_has_two_edges, 0, TRANSPORTS);
    tcase_add_test(tcase, one_edge_of_a_ring_of_two_leaves_the_other_alone);
    tcase_add_loop_test(tcase, an_attempt_sees_that_its_peer_is_gone, 0, 2 * TRANSPORTS);
    tcase_add_test(tcase, a_peer_that_asked_too_is_gone);
    tcase_add_loop_test(tcase, who_is_not_expected_is_turned_away, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, silent_strangers_give_way, 0, TRANSPORTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
