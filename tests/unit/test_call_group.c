/*
 * test_call_group.c - the order in which the calls of a group begin: random groups of ranks that
 * wait for each other in each message must all come to their end.
 */
#include "call_group.h"
#include "check_main.h"

enum { RANKS = 6, MESSAGES = 60, ROUNDS = 300 };

static const struct ddpi_memory_type host_type = {.name = "host"};
static const struct ddpi_memory_type device_type = {.name = "device", .enqueues = true};
static struct ddpi_memory host = {.type = &host_type}, device = {.type = &device_type};

static struct ddpi_call_group groups[RANKS];
static struct ddpi_grouped_call calls[2 * MESSAGES];
static uint32_t random_state = 1;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % below;
}

/* The sequence number of a call tells messages with the same ends apart. */
static struct ddpi_grouped_call call_of(enum ddpi_operation operation, uint32_t peer, uint32_t tag,
                                        uint64_t seq, struct ddpi_memory *memory)
{
    return (struct ddpi_grouped_call){
        .memory = memory,
        .run.task.call = {.operation = operation, .root = peer, .tag = tag, .seq = seq}};
}

struct message {
    uint32_t from, to, tag;
};

/* Add one end of each message of which @rank is an end, such that those alike keep their order. */
static void note_ends(const struct message *messages, uint32_t rank, unsigned *used)
{
    unsigned order[MESSAGES];
    for (unsigned i = 0; i < MESSAGES; i++)
        order[i] = i;
    for (unsigned i = MESSAGES; i-- > 1;) {
        const struct message *a = &messages[order[i]], *b = &messages[order[i - 1]];
        bool alike = a->from == b->from && a->to == b->to && a->tag == b->tag;
        if (!alike && draw(2) == 0) {
            unsigned other = order[i];
            order[i] = order[i - 1];
            order[i - 1] = other;
        }
    }
    for (unsigned i = 0; i < MESSAGES; i++) {
        const struct message *at = &messages[order[i]];
        if (at->from != rank && at->to != rank)
            continue;
        bool sends = at->from == rank;
        calls[*used] = call_of(sends ? DDPI_SEND : DDPI_RECV, sends ? at->to : at->from, at->tag,
                               order[i], &device);
        ddpi_call_group_add(&groups[rank], &calls[(*used)++], rank);
    }
}

/* A rank waits at its next call until the peer is at the other end of the same message. */
static unsigned run_all(void)
{
    struct ddpi_grouped_call *next[RANKS];
    unsigned met = 0;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        next[rank] = ddpi_call_group_take(&groups[rank]);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            uint32_t peer = next[rank] != NULL ? next[rank]->run.task.call.root : rank;
            if (peer == rank || next[peer] == NULL || next[peer]->run.task.call.root != rank)
                continue;
            const struct ddpi_call *ours = &next[rank]->run.task.call;
            const struct ddpi_call *theirs = &next[peer]->run.task.call;
            ck_assert_int_ne(ours->operation, theirs->operation);
            ck_assert_uint_eq(ours->tag, theirs->tag);
            next[rank] = ddpi_call_group_take(&groups[rank]);
            next[peer] = ddpi_call_group_take(&groups[peer]);
            moved = true;
            met++;
        }
    }
    return met;
}

START_TEST(ranks_that_wait_for_each_other_all_end)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct message messages[MESSAGES];
        unsigned used = 0;
        for (unsigned i = 0; i < MESSAGES; i++) {
            uint32_t from = draw(RANKS);
            messages[i] = (struct message){
                .from = from, .to = (from + 1 + draw(RANKS - 1)) % RANKS, .tag = draw(3)};
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            ddpi_call_group_init(&groups[rank]);
            note_ends(messages, rank, &used);
        }
        ck_assert_uint_eq(used, 2 * MESSAGES);
        ck_assert_uint_eq(run_all(), MESSAGES);
    }
}
END_TEST

START_TEST(a_message_to_oneself_is_sent_first)
{
    struct ddpi_grouped_call noted[] = {call_of(DDPI_RECV, 1, 0, 1, &device),
                                        call_of(DDPI_SEND, 1, 0, 2, &device),
                                        call_of(DDPI_SEND, 0, 0, 3, &device)};
    static const uint64_t expected[] = {3, 2, 1};
    struct ddpi_call_group group;
    ddpi_call_group_init(&group);
    for (unsigned i = 0; i < 3; i++)
        ddpi_call_group_add(&group, &noted[i], 1);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(ddpi_call_group_take(&group)->run.task.call.seq, expected[i]);
}
END_TEST

START_TEST(messages_come_first_and_collectives_keep_their_order)
{
    static const uint64_t expected[] = {2, 5, 6, 4, 1, 3};
    struct ddpi_grouped_call noted[] = {
        call_of(DDPI_ALL_REDUCE, 0, 0, 1, &device), call_of(DDPI_SEND, 3, 0, 2, &host),
        call_of(DDPI_BARRIER, 0, 0, 3, &host),      call_of(DDPI_SEND, 2, 0, 4, &device),
        call_of(DDPI_RECV, 1, 0, 5, &host),         call_of(DDPI_RECV, 0, 0, 6, &device)};
    struct ddpi_call_group group, moved;
    ddpi_call_group_init(&group);
    ddpi_call_group_init(&moved);
    for (unsigned i = 0; i < 6; i++)
        ddpi_call_group_add(&group, &noted[i], 1);
    ddpi_call_group_move(&moved, &group);
    ck_assert_ptr_null(ddpi_call_group_take(&group));
    for (unsigned i = 0; i < 6; i++)
        ck_assert_uint_eq(ddpi_call_group_take(&moved)->run.task.call.seq, expected[i]);
    ck_assert_ptr_null(ddpi_call_group_take(&moved));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("call_group");
    TCase *tcase = tcase_create("order");
    tcase_add_test(tcase, ranks_that_wait_for_each_other_all_end);
    tcase_add_test(tcase, a_message_to_oneself_is_sent_first);
    tcase_add_test(tcase, messages_come_first_and_collectives_keep_their_order);
    suite_add_tcase(suite, tcase);
    return suite;
}
