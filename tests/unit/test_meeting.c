/*
 * test_meeting.c - two ranks that look for each other, step by step in one process: who connects,
 * both at once, peers that are gone, strangers, and what is left when all is over.
 */
#include "attempt.h"
#include "check_main.h"
#include "descriptors.h"
#include "meeting.h"
#include "route.h"
#include "sockets.h"
#include "stranger.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SHM, TCP, SOCKETS, TRANSPORTS };

static struct ddpi_rank_key key;
static struct ddpi_meeting ranks[2];
static int bells[2];
static unsigned descriptors; /* before */

/* Those that rank @rank wants for an edge; the fewer count. */
static uint8_t sockets_of(int transport, uint32_t rank)
{
    return transport != SOCKETS ? 0 : rank == 0 ? 3 : DDPI_SOCKETS_MAX;
}

static void open_ranks(int transport)
{
    struct sockaddr_storage address;
    descriptors = open_descriptors();
    ddpi_rank_key_random(&key);
    ck_assert_int_eq(ddpi_source_address("127.0.0.1", 1, &address, NULL), DDP_OK);
    for (uint32_t i = 0; i < 2; i++) {
        bells[i] = eventfd(0, EFD_NONBLOCK);
        const struct ddpi_meeting_options options = {
            .address = &address, .use_shm = transport == SHM, .sockets = sockets_of(transport, i)};
        ck_assert_int_eq(ddpi_meeting_init(&ranks[i], i, 2, bells[i], &key, &options, NULL),
                         DDP_OK);
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

static unsigned count_incoming(const struct ddpi_meeting *meeting)
{
    unsigned count = 0;
    ddpi_list_for_each (at, &meeting->incoming)
        count++;
    return count;
}

static int connect_to(const struct ddpi_meeting *meeting, int transport)
{
    int fd;
    int error = transport == SHM ? ddpi_begin_local(meeting->card.local, &fd)
                                 : ddpi_begin_tcp(&meeting->card.tcp, &fd);
    ck_assert(error == 0 || error == EINPROGRESS);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1), 1);
    return fd;
}

/* Rank 1, who greets rank 0 by hand. */
static struct ddpi_greeting greet_by_hand(int transport, struct ddpi_hello hello,
                                          const struct ddpi_rank_key *with)
{
    struct ddpi_greeting greeting;
    static const uint8_t unknown[DDPI_CARD_ID];
    const struct ddpi_greeting_terms terms = {
        with, hello.link == DDPI_LINK_JOIN ? unknown : ranks[1].card.id, ranks[0].card.id};
    ddpi_greeting_clear(&greeting);
    greeting.fd = connect_to(&ranks[0], transport);
    greeting.local = transport == SHM;
    ck_assert_int_eq(ddpi_greeting_begin(&greeting, &hello, &terms, NULL), DDP_OK);
    return greeting;
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
        poll(NULL, 0, turn > 500 ? 10 : 1);
}

/* Until rank 0 has challenged @greeting and has its answer; the edge that came of it, if any. */
static struct ddpi_arrival prove_by_hand(struct ddpi_greeting *greeting)
{
    struct ddpi_arrival arrival = {0};
    enum ddpi_greeting_news news;
    for (int turn = 0; (news = ddpi_greeting_read(greeting)) == DDPI_GREETING_MORE; turn++) {
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ck_assert_int_eq(news, DDPI_GREETING_READY);
    ck_assert(ddpi_greeting_is_proven(greeting));
    ck_assert_int_eq(ddpi_greeting_reply(greeting, NULL, 0, NULL), DDP_OK);
    for (int turn = 0; ranks[0].unauthenticated > 0; turn++) {
        arrival = advance(0);
        be_patient(turn);
    }
    return arrival;
}

/* Rank 0 sends @greeting away. */
static void expect_sent_away(struct ddpi_greeting *greeting)
{
    enum ddpi_greeting_news news;
    for (int turn = 0; (news = ddpi_greeting_read(greeting)) == DDPI_GREETING_MORE; turn++) {
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ck_assert_int_eq(news, DDPI_GREETING_ENDED);
    ck_assert_uint_eq(count_incoming(&ranks[0]), 0);
    ck_assert_uint_eq(ranks[0].unauthenticated, 0);
}

/* Until both have one; each may have more to do after it. */
static void meet(struct ddpi_arrival arrivals[2])
{
    for (int turn = 0; !arrivals[0].edge || !arrivals[1].edge; turn++) {
        for (uint32_t rank = 0; rank < 2; rank++)
            if (arrivals[rank].edge == NULL)
                arrivals[rank] = advance(rank);
        be_patient(turn);
    }
}

static void try_and_close(struct ddpi_arrival arrivals[2])
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct ddpi_edge *from = arrivals[rank].edge, *to = arrivals[1 - rank].edge;
        char text[8] = "";
        ck_assert_uint_eq(from->peer, 1 - rank);
        ck_assert_uint_eq(from->ops->send(from, "hello", 5), 5);
        while (to->ops->recv(to, text, 5) == 0)
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
            ck_assert_uint_eq(count_incoming(&ranks[rank]), 0);
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

/* All but the answer has passed. */
static bool has_said_all(const struct ddpi_attempt *attempt)
{
    for (unsigned i = 0; i < attempt->data_count; i++)
        if (attempt->data[i].stage != DDPI_GREETING_OVER)
            return false;
    return attempt->main.stage == DDPI_GREETING_ANSWER;
}

/* Rank 1 has made the edge, and rank 0, which has asked for it, leaves before it hears so. */
START_TEST(who_leaves_in_the_middle_of_an_attempt_says_so)
{
    struct ddpi_arrival arrival = {0};
    struct ddpi_edge *none;
    struct ddpi_memo memo;
    open_ranks(_i);
    ask(0, DDPI_LINK_PEER);
    for (int turn = 0; arrival.edge == NULL; turn++) {
        if (!has_said_all(&ranks[0].attempt))
            ck_assert_int_eq(ddpi_attempt_push(&ranks[0], &none, NULL), DDP_OK);
        arrival = advance(1);
        be_patient(turn);
    }
    ddpi_memo_fill(&memo, DDPI_NOTICE_LEFT, DDP_OK, "");
    ddpi_attempt_tell(&ranks[0], &memo, 1);
    ddpi_meeting_finish(&ranks[0]);
    struct ddpi_control *control = &arrival.edge->control;
    for (int turn = 0; ddpi_control_read(control, &memo) != DDPI_CONTROL_MEMO; turn++) {
        be_patient(turn);
    }
    ck_assert_int_eq((int)memo.notice, DDPI_NOTICE_LEFT);
    ddpi_edge_destroy(arrival.edge);
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
    for (int turn = 0; turn < 1000 || edges < 4; turn++) {
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

/* Rank 0 wants the edge to its next rank, which wants the same edge, to its previous one. */
START_TEST(both_ends_of_a_ring_edge_may_ask_for_it)
{
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i % TRANSPORTS);
    uint32_t early = (uint32_t)(_i / TRANSPORTS);
    ask(early, early == 0 ? DDPI_LINK_RING : DDPI_LINK_BACK);
    arrivals[early] = advance(early);
    ask(1 - early, early == 0 ? DDPI_LINK_BACK : DDPI_LINK_RING);
    meet(arrivals);
    for (uint32_t rank = 0; rank < 2; rank++) {
        bool is_back = arrivals[rank].asked == (rank == 1);
        ck_assert_int_eq(arrivals[rank].link, is_back ? DDPI_LINK_BACK : DDPI_LINK_RING);
        ck_assert_int_eq(ranks[rank].attempt.stage, DDPI_ATTEMPT_NONE);
        ck_assert(ranks[rank].next_stands == (rank == 0));
        ck_assert(ranks[rank].prev_stands == (rank == 1));
    }
    try_and_close(arrivals);
    close_ranks();
}
END_TEST

/* Half of what rank 1 brings for its edge is here when our own edge, to the same rank, is done. */
START_TEST(one_edge_of_a_ring_of_two_leaves_the_other_alone)
{
    struct ddpi_arrival arrival = {0}, ignored;
    open_ranks(TCP);
    const struct ddpi_hello control = {.kind = DDPI_GREET_CONTROL,
                                       .link = DDPI_LINK_RING,
                                       .from = 1},
                            data = {.kind = DDPI_GREET_DATA, .link = DDPI_LINK_RING, .from = 1};
    struct ddpi_greeting halves[] = {greet_by_hand(TCP, control, &key), {.fd = -1}};
    prove_by_hand(&halves[0]);
    ask(0, DDPI_LINK_RING);
    for (int turn = 0; arrival.edge == NULL; turn++) {
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
    ck_assert_uint_eq(count_incoming(&ranks[0]), 1);
    halves[1] = greet_by_hand(TCP, data, &key);
    arrival = prove_by_hand(&halves[1]);
    for (int turn = 0; arrival.edge == NULL; turn++) {
        be_patient(turn);
        arrival = advance(0);
    }
    ck_assert(arrival.edge != NULL && !arrival.asked);
    ddpi_edge_destroy(arrival.edge);
    ddpi_greeting_drop(&halves[0]);
    ddpi_greeting_drop(&halves[1]);
    close_ranks();
}
END_TEST

START_TEST(an_attempt_sees_that_its_peer_is_gone)
{
    bool in_line = _i / TRANSPORTS != 0; /* it has connected before that */
    open_ranks(_i % TRANSPORTS);
    ask(0, DDPI_LINK_PEER);
    for (int turn = 0; in_line && ranks[0].attempt.stage != DDPI_ATTEMPT_ANSWER; turn++) {
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ddpi_meeting_finish(&ranks[1]);
    for (int turn = 0; ranks[0].attempt.stage != DDPI_ATTEMPT_GONE; turn++) {
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
    for (int turn = 0; ranks[1].attempt.stage != DDPI_ATTEMPT_GONE; turn++) {
        ck_assert_ptr_null(advance(1).edge);
        be_patient(turn);
    }
    ck_assert_ptr_nonnull(strstr(ranks[1].attempt.edge.peer_name, "rank 0 ("));
    ck_assert_str_eq(ranks[1].attempt.edge.broken, "has died or has left the communicator");
    close_ranks();
}
END_TEST

/* Greetings that nobody expects: of no rank of this world, of ourselves, for another, for nothing
 * that there is, in the way that the cards do not say, of somebody who is not before us in the
 * ring. */
START_TEST(who_is_not_expected_is_turned_away)
{
    open_ranks(_i);
    uint32_t right = _i == SHM ? DDPI_GREET_SHM : DDPI_GREET_CONTROL;
    uint32_t wrong = _i == SHM ? DDPI_GREET_CONTROL : DDPI_GREET_SHM;
    const struct ddpi_hello hellos[] = {
        {.kind = right, .link = DDPI_LINK_PEER, .from = 2},
        {.kind = right, .link = DDPI_LINK_PEER, .from = 0},
        {.kind = right, .link = DDPI_LINK_PEER, .from = 1, .to = 1},
        {.kind = right, .link = DDPI_LINK_LINKS, .from = 1},
        {.kind = DDPI_GREET_JOIN, .link = DDPI_LINK_JOIN, .from = 1}, /* nobody gathers */
        {.kind = wrong, .link = DDPI_LINK_PEER, .from = 1},
        {.kind = 0, .link = DDPI_LINK_PEER, .from = 1},
        {.kind = DDPI_GREET_JOIN, .link = DDPI_LINK_PEER, .from = 1},
        {.kind = 5, .link = DDPI_LINK_PEER, .from = 1},
        {.kind = right, .link = DDPI_LINK_PEER, .from = 1, .socket = 1},
        {.kind = DDPI_GREET_DATA, .link = DDPI_LINK_PEER, .from = 1, .socket = 3},
    };
    for (size_t i = 0; i < sizeof hellos / sizeof *hellos; i++) {
        struct ddpi_greeting greeting = greet_by_hand(_i, hellos[i], &key);
        expect_sent_away(&greeting);
        ddpi_greeting_drop(&greeting);
    }
    close_ranks();
}
END_TEST

/* Whoever it says it is, with the key; nothing is known of it before. */
START_TEST(who_joins_is_let_in_while_rank_0_gathers)
{
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i);
    ranks[0].takes_joiners = true;
    memset(ddpi_meeting_slot(&ranks[0], 1), 0, DDPI_CARD_SLOT);
    ask(1, DDPI_LINK_JOIN);
    meet(arrivals);
    ck_assert_int_eq(arrivals[0].link, DDPI_LINK_JOIN);
    ck_assert_uint_eq(arrivals[0].edge->peer, 1);
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_STANDS, DDP_OK, "");
    ddpi_control_send(&arrivals[1].edge->control, &memo);
    for (int turn = 0; ddpi_control_read(&arrivals[0].edge->control, &memo) != DDPI_CONTROL_MEMO;
         turn++) {
        be_patient(turn);
    }
    ck_assert_uint_eq(memo.notice, DDPI_NOTICE_STANDS);
    const struct ddpi_hello hellos[] = {
        {.kind = DDPI_GREET_JOIN, .link = DDPI_LINK_JOIN, .from = 0},
        {.kind = DDPI_GREET_JOIN, .link = DDPI_LINK_JOIN, .from = 1, .to = 1},
        {.kind = DDPI_GREET_SHM, .link = DDPI_LINK_JOIN, .from = 1},
    };
    for (size_t i = 0; i < sizeof hellos / sizeof *hellos; i++) {
        struct ddpi_greeting greeting = greet_by_hand(_i, hellos[i], &key);
        expect_sent_away(&greeting);
        ddpi_greeting_drop(&greeting);
    }
    ddpi_edge_destroy(arrivals[0].edge);
    ddpi_edge_destroy(arrivals[1].edge);
    close_ranks();
}
END_TEST

/* Somebody with another key learns that from the challenge, and cannot prove anything; nor can who
 * answers with what was proven elsewhere. */
START_TEST(who_proves_nothing_is_turned_away)
{
    open_ranks(_i);
    const struct ddpi_hello hello = {
        .kind = _i == SHM ? DDPI_GREET_SHM : DDPI_GREET_CONTROL, .link = DDPI_LINK_PEER, .from = 1};
    struct ddpi_rank_key other;
    ddpi_rank_key_random(&other);
    for (int turn = 0; turn < 2; turn++) {
        struct ddpi_greeting greeting = greet_by_hand(_i, hello, turn == 0 ? &other : &key);
        for (int n = 0; ddpi_greeting_read(&greeting) == DDPI_GREETING_MORE; n++) {
            ck_assert_ptr_null(advance(0).edge);
            be_patient(n);
        }
        ck_assert_int_eq(ddpi_greeting_is_proven(&greeting), turn != 0);
        if (turn == 0)
            ck_assert_int_eq(ddpi_greeting_reply(&greeting, NULL, 0, NULL), DDP_OK);
        else /* its own proof, sent back */
            ck_assert_int_eq(send(greeting.fd, greeting.inbox.challenge.proof, DDPI_PROOF_SIZE, 0),
                             DDPI_PROOF_SIZE);
        expect_sent_away(&greeting);
        ddpi_greeting_drop(&greeting);
    }
    close_ranks();
}
END_TEST

/* Another key, none here, none there: the one who connects says which, and what to do. */
START_TEST(who_has_another_key_is_told_so)
{
    static const char *const texts[] = {"its key differs from ours", "it has no key; start",
                                        "it has a key, and we have none"};
    struct ddp_error error = {0};
    struct ddpi_arrival arrival;
    open_ranks(_i % TRANSPORTS);
    int how = _i / TRANSPORTS;
    struct ddpi_meeting *changed = &ranks[how == 1 ? 0 : 1];
    if (how == 0)
        ddpi_rank_key_random(&changed->key);
    else
        ddpi_rank_key_none(&changed->key);
    changed->card.keyed = how == 0;
    ck_assert(ddpi_card_put(&changed->card,
                            ddpi_meeting_slot(&ranks[how == 1 ? 1 : 0], how == 1 ? 0 : 1)));
    ask(1, DDPI_LINK_PEER);
    for (int turn = 0; ddpi_meeting_advance(&ranks[1], &arrival, &error) == DDP_OK; turn++) {
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    ck_assert_int_eq(error.status, DDP_E_DENIED);
    ck_assert_msg(strstr(error.msg, texts[how]) != NULL, "%s", error.msg);
    ck_assert_ptr_nonnull(strstr(error.msg, "rank 0 (pid "));
    close_ranks();
}
END_TEST

/* Not even by a rank that has proven itself. */
START_TEST(a_ring_that_stands_takes_nobody_else)
{
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i);
    ask(1, DDPI_LINK_RING);
    meet(arrivals);
    unsigned open = open_descriptors();
    for (int turn = 0; turn < 20; turn++) {
        struct ddpi_greeting again = greet_by_hand(
            _i,
            (struct ddpi_hello){
                .kind = DDPI_GREET_SHM + (_i != SHM), .link = DDPI_LINK_RING, .from = 1},
            &key);
        expect_sent_away(&again);
        ddpi_greeting_drop(&again);
    }
    ck_assert_uint_eq(open_descriptors(), open);
    try_and_close(arrivals);
    close_ranks();
}
END_TEST

/* Each descriptor is taken; when some are free again, ranks are accepted again. */
START_TEST(a_rank_without_descriptors_goes_on)
{
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i);
    ask(1, DDPI_LINK_PEER);
    arrivals[1] = advance(1);
    ck_assert_ptr_null(arrivals[1].edge);
    int spare = dup(0), ballast[1024];
    size_t count = 0;
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit low = {.rlim_cur = 200, .rlim_max = limit.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (count < 1024 && (ballast[count] = dup(spare)) >= 0)
        count++;
    for (int turn = 0; ranks[0].paused_until_ms == 0; turn++) {
        ck_assert_ptr_null(advance(0).edge);
        be_patient(turn);
    }
    /* It does not look at its listeners all the time, but it will. */
    ck_assert(ddpi_meeting_wake_ms(&ranks[0]) != UINT64_MAX);
    ck_assert_int_eq(
        poll(&(struct pollfd){.fd = ddpi_meeting_wait_fd(&ranks[0]), .events = POLLIN}, 1, 0), 0);
    while (count > 0)
        close(ballast[--count]);
    close(spare);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    meet(arrivals);
    try_and_close(arrivals);
    close_ranks();
}
END_TEST

START_TEST(silent_strangers_give_way)
{
    enum { STRANGERS = DDPI_UNAUTHENTICATED_MAX + 34 };
    int fds[STRANGERS];
    struct ddpi_arrival arrivals[2] = {0};
    open_ranks(_i);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = connect_to(&ranks[0], _i);
        ck_assert_ptr_null(advance(0).edge);
    }
    ck_assert_uint_eq(count_incoming(&ranks[0]), DDPI_UNAUTHENTICATED_MAX);
    ck_assert_uint_eq(ranks[0].unauthenticated, DDPI_UNAUTHENTICATED_MAX);
    char byte; /* the oldest have given way, and nobody else */
    for (int i = 0; i < STRANGERS; i++)
        ck_assert_int_eq(recv(fds[i], &byte, 1, MSG_DONTWAIT) == 0,
                         i < STRANGERS - DDPI_UNAUTHENTICATED_MAX);
    ask(1, DDPI_LINK_PEER);
    meet(arrivals);
    try_and_close(arrivals);
    for (int i = 0; i < STRANGERS; i++)
        close(fds[i]);
    close_ranks();
}
END_TEST

/* As on a kernel that cannot keep him from leaving one there: nobody waits for it. */
START_TEST(what_a_stranger_leaves_behind_is_closed_elsewhere)
{
    int pair[2], one = 1;
    struct sockaddr_storage address;
    const struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    ck_assert_int_eq(ddpi_source_address("127.0.0.1", 1, &address, NULL), DDP_OK);
    int listener, sender;
    ck_assert_int_eq(ddpi_listen_tcp(&address, &listener, NULL), DDP_OK);
    ck_assert_int_eq(ddpi_begin_tcp(&address, &sender), EINPROGRESS);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = sender, .events = POLLOUT}, 1, -1), 1);
    static char noise[1 << 16];
    while (send(sender, noise, sizeof noise, MSG_DONTWAIT) > 0)
        ;
    ck_assert_int_eq(setsockopt(sender, SOL_SOCKET, SO_LINGER, &hour, sizeof hour), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ddpi_pass_rights(pair[0], true);
    ck_assert_int_eq(ddpi_send_fds(pair[1], &one, sizeof one, &sender, 1, NULL), DDP_OK);
    close(sender);
    ddpi_close_stranger(pair[0]);
    ck_assert_int_eq(fcntl(pair[0], F_GETFD), -1);
    close(pair[1]);
    close(listener);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("meeting");
    TCase *tcase = tcase_create("meeting");
    tcase_add_loop_test(tcase, whoever_asks_the_other_accepts, 0, 2 * TRANSPORTS);
    tcase_add_loop_test(tcase, when_both_ask_one_edge_comes_of_it, 0, 2 * TRANSPORTS);
    tcase_add_loop_test(tcase, who_leaves_in_the_middle_of_an_attempt_says_so, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, a_ring_of_two_has_two_edges, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, both_ends_of_a_ring_edge_may_ask_for_it, 0, 2 * TRANSPORTS);
    tcase_add_test(tcase, one_edge_of_a_ring_of_two_leaves_the_other_alone);
    tcase_add_loop_test(tcase, an_attempt_sees_that_its_peer_is_gone, 0, 2 * TRANSPORTS);
    tcase_add_test(tcase, a_peer_that_asked_too_is_gone);
    tcase_add_loop_test(tcase, who_is_not_expected_is_turned_away, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, who_joins_is_let_in_while_rank_0_gathers, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, who_proves_nothing_is_turned_away, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, who_has_another_key_is_told_so, 0, 3 * TRANSPORTS);
    tcase_add_loop_test(tcase, a_ring_that_stands_takes_nobody_else, 0, TRANSPORTS);
    tcase_add_loop_test(tcase, a_rank_without_descriptors_goes_on, 0, TRANSPORTS);
    tcase_add_test(tcase, what_a_stranger_leaves_behind_is_closed_elsewhere);
    tcase_add_loop_test(tcase, silent_strangers_give_way, 0, TRANSPORTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
