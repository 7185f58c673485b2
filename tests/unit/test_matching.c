/*
 * test_matching.c - which receive takes which message: seeded sequences of receives and messages
 * against a model that looks at the whole history.
 */
#include "check_main.h"
#include "matching.h"

#include <stdlib.h>

enum { STEPS = 300, RUNS = 400, PEERS = 3, TAGS = 2, NONE = -1 };

/* A receive or a message of the history. */
struct event {
    struct ddpi_match match;
    bool is_receive;
    int partner; /* its index; NONE: it waits */
};

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (*seed >> 33) % below;
}

static struct ddpi_envelope draw_envelope(uint64_t *seed, bool is_receive)
{
    struct ddpi_envelope envelope = {.peer = (uint32_t)draw(seed, PEERS),
                                     .tag = (uint32_t)draw(seed, TAGS)};
    envelope.message_class = draw(seed, 4) == 0 ? DDPI_PIECE : DDPI_USER_MESSAGE;
    if (envelope.message_class == DDPI_PIECE)
        envelope.seq = draw(seed, 2);
    else if (is_receive && draw(seed, 4) == 0)
        envelope.peer = DDP_ANY_RANK;
    return envelope;
}

static bool model_fits(const struct event *receive, const struct event *message)
{
    const struct ddpi_envelope *a = &receive->match.envelope, *b = &message->match.envelope;
    return (a->peer == DDP_ANY_RANK || a->peer == b->peer) && a->tag == b->tag &&
           a->message_class == b->message_class && a->seq == b->seq;
}

/* The oldest event without a partner that fits to the last one. */
static int model_partner(const struct event *events, int last)
{
    for (int i = 0; i < last; i++) {
        if (events[i].partner != NONE || events[i].is_receive == events[last].is_receive)
            continue;
        if (events[last].is_receive ? model_fits(&events[last], &events[i])
                                    : model_fits(&events[i], &events[last]))
            return i;
    }
    return NONE;
}

static struct ddpi_match *add(struct ddpi_matching *matching, struct event *event)
{
    const struct ddpi_envelope *envelope = &event->match.envelope;
    struct ddpi_match *found = event->is_receive ? ddpi_matching_take_message(matching, envelope)
                                                 : ddpi_matching_take_receive(matching, envelope);
    if (found == NULL && event->is_receive)
        ddpi_matching_add_receive(matching, &event->match);
    else if (found == NULL)
        ddpi_matching_add_message(matching, &event->match);
    return found;
}

START_TEST(agrees_with_the_model)
{
    static struct event events[STEPS];
    for (uint64_t run = 0; run < RUNS; run++) {
        uint64_t seed = run;
        struct ddpi_matching matching;
        ddpi_matching_init(&matching);
        for (int i = 0; i < STEPS; i++) {
            bool is_receive = draw(&seed, 2) == 0;
            events[i] = (struct event){.is_receive = is_receive, .partner = NONE};
            ddpi_list_init(&events[i].match.link);
            events[i].match.envelope = draw_envelope(&seed, is_receive);
            int partner = model_partner(events, i);
            const struct ddpi_match *found = add(&matching, &events[i]);
            ck_assert_msg(found == (partner == NONE ? NULL : &events[partner].match),
                          "seed %llu, step %d", (unsigned long long)run, i);
            if (partner == NONE)
                continue;
            ck_assert(ddpi_list_empty(&events[partner].match.link));
            events[partner].partner = i;
            events[i].partner = partner;
        }
    }
}
END_TEST

START_TEST(envelopes_of_calls)
{
    struct ddpi_call call = {
        .operation = DDPI_SEND, .seq = 7, .tag = 3, .message_class = DDPI_USER_MESSAGE};
    struct ddpi_envelope envelope = ddpi_envelope_of(&call, 5);
    ck_assert_uint_eq(envelope.peer, 5);
    ck_assert_uint_eq(envelope.tag, 3);
    ck_assert_uint_eq(envelope.seq, 0); /* tags overtake, so numbers differ */
    call.message_class = DDPI_PIECE;
    ck_assert_uint_eq(ddpi_envelope_of(&call, 5).seq, 7);
    call.message_class = DDPI_GROUP_MAKING;
    ck_assert_uint_eq(ddpi_envelope_of(&call, 5).seq, 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("matching");
    TCase *tcase = tcase_create("order");
    tcase_add_test(tcase, agrees_with_the_model);
    tcase_add_test(tcase, envelopes_of_calls);
    suite_add_tcase(suite, tcase);
    return suite;
}
