/*
 * question.c - ranks that wait ask each other who is to blame, before the deadline. Owns nothing.
 *
 * The neighbour that a rank waits for need not be to blame: it may wait as well. So some time
 * before its deadline the rank asks it, over its control socket, and the neighbour asks in turn the
 * rank that it waits for. A rank that does not answer is stopped, or has not called the operation.
 * The rank that has asked it tells all others that it doubts that rank, and they pass this on. If
 * an answer comes later, the doubt is withdrawn. At the deadline each rank knows which one to name.
 * The rank whose deadline comes first fails, and the others fail with it.
 *
 * A busy machine delays answers, and lets ranks begin at different times: so the longer the
 * timeout, the earlier they ask.
 */
#include "wait.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>

enum {
    AHEAD_MAX_MS = 10000, /* ask half the timeout before the deadline, but not earlier than this */
    ANSWER_MS = 200,      /* a rank that runs answers within this; ask no more often */
};

static uint64_t ahead_ms(const struct ddpi_wait *wait)
{
    uint64_t half = (wait->deadline_ms - wait->started_ms) / 2;
    return half < AHEAD_MAX_MS ? half : AHEAD_MAX_MS;
}

uint64_t ddpi_question_begins_ms(const struct ddpi_wait *wait)
{
    return wait->deadline_ms - ahead_ms(wait);
}

static uint64_t answer_ms(const struct ddpi_wait *wait)
{
    return ahead_ms(wait) / 2 < ANSWER_MS ? ahead_ms(wait) / 2 : ANSWER_MS;
}

/* How long a peer may be silent before this rank doubts it. */
static uint64_t silence_ms(const struct ddpi_wait *wait)
{
    return ahead_ms(wait) / 4;
}

static void wake_by(uint64_t *wake_ms, uint64_t candidate)
{
    if (candidate < *wake_ms)
        *wake_ms = candidate;
}

/* ---- doubts ---- */

const char *ddpi_question_doubted(const struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    const struct ddpi_doubt *doubt = &comm->doubt;
    return doubt->text[0] != '\0' && doubt->noted_ms >= wait->started_ms ? doubt->text : NULL;
}

bool ddpi_question_is_about(const char *doubted, uint32_t rank)
{
    char name[16];
    int len = snprintf(name, sizeof name, "rank %u ", rank);
    return strncmp(doubted, name, (size_t)len) == 0;
}

/* Rank @origin says the same as before if @number is not higher; "" withdraws what it has said. */
static void note_doubt(struct ddp_comm *comm, const struct ddpi_edge *from, uint32_t origin,
                       uint32_t number, const char *text)
{
    struct ddpi_memo memo;
    struct ddpi_doubt *doubt = &comm->doubt;
    if (origin >= comm->world_size || (int32_t)(number - comm->doubts[origin]) <= 0)
        return;
    comm->doubts[origin] = number;
    if (*text != '\0' || doubt->origin == origin) {
        doubt->origin = origin;
        doubt->noted_ms = ddpi_monotonic_ms();
        snprintf(doubt->text, sizeof doubt->text, "%s", text);
    }
    ddpi_memo_fill(&memo, DDPI_NOTICE_DOUBT, (ddp_status)number, text);
    ddpi_memo_tag(&memo, origin);
    ddpi_edges_notify(&comm->edges, from, &memo);
}

void ddpi_question_take_doubt(struct ddp_comm *comm, const struct ddpi_edge *from,
                              const struct ddpi_memo *memo)
{
    note_doubt(comm, from, memo->tag, (uint32_t)memo->status, memo->text);
}

/* What is said of a peer that does not answer. */
static const char *silence(const struct ddpi_edge *edge)
{
    return edge->control.fd >= 0 ? "does not answer: it is stopped, or has not called the operation"
                                 : "does not accept connections: it is stopped, is in no "
                                   "operation, or is out of descriptors";
}

static void doubt_peer(struct ddp_comm *comm, struct ddpi_edge *edge)
{
    char text[DDPI_DOUBT_TEXT];
    snprintf(text, sizeof text, "%s %s", edge->peer_name, silence(edge));
    edge->doubted = true;
    note_doubt(comm, edge, comm->rank, comm->doubts[comm->rank] + 1, text);
}

static void withdraw_doubt(struct ddp_comm *comm, struct ddpi_edge *edge)
{
    edge->doubted = false;
    note_doubt(comm, NULL, comm->rank, comm->doubts[comm->rank] + 1, "");
}

/* ---- asking ---- */

/* A doubt that is left belongs to a question that bytes have answered. */
static void ask_peer(struct ddp_comm *comm, struct ddpi_edge *edge, uint64_t now)
{
    struct ddpi_memo memo;
    if (edge->doubted)
        withdraw_doubt(comm, edge);
    ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
    ddpi_control_send(&edge->control, &memo);
    edge->asked_ms = edge->question_ms = now;
    edge->answered = false;
}

/* Where bytes move, a question is forgotten; but peers are not asked all the time. */
static bool may_ask(const struct ddpi_edge *edge, uint64_t now)
{
    return edge->question_ms == 0 || now >= edge->question_ms + ANSWER_MS;
}

void ddpi_question_pass_on(struct ddp_comm *comm, struct ddpi_edge *edge, uint64_t now)
{
    if ((edge->asked_ms == 0 || edge->answered) && may_ask(edge, now))
        ask_peer(comm, edge, now);
}

void ddpi_question_take_answer(struct ddp_comm *comm, struct ddpi_edge *edge)
{
    edge->answered = true;
    if (edge->doubted)
        withdraw_doubt(comm, edge);
}

/* Whether the last question, of this operation, still tells something. An answer is true for some
 * time: meanwhile a rank that the peer waits for may have stopped. */
static bool was_asked(const struct ddpi_edge *edge, const struct ddpi_wait *wait, uint64_t now)
{
    bool old =
        edge->answered && now < wait->deadline_ms && now >= edge->asked_ms + silence_ms(wait);
    return edge->asked_ms != 0 && edge->asked_ms >= wait->started_ms && !old;
}

/* Ask in time. Returns whether the peer owes an answer; *@wake_ms is when to look again. */
static bool question_peer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                          struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    uint64_t begin_ms = ddpi_question_begins_ms(wait);
    bool asked = was_asked(edge, wait, now);
    if (!asked && now >= begin_ms && may_ask(edge, now)) {
        ask_peer(comm, edge, now);
        asked = true;
    } else if (!asked) {
        uint64_t free_ms = edge->question_ms + ANSWER_MS;
        wake_by(wake_ms, begin_ms > free_ms ? begin_ms : free_ms);
    }
    uint64_t doubt_ms = edge->asked_ms + silence_ms(wait);
    if (asked && edge->answered && now < doubt_ms)
        wake_by(wake_ms, doubt_ms);
    if (!asked || edge->answered)
        return false;
    if (now >= doubt_ms && !edge->doubted)
        doubt_peer(comm, edge);
    else if (!edge->doubted)
        wake_by(wake_ms, doubt_ms);
    return true;
}

/* ---- at the deadline ---- */

static ddp_status fail_timeout(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_edge *edge, const char *finding)
{
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    uint64_t elapsed = ddpi_monotonic_ms() - wait->started_ms;
    return ddpi_comm_fail(
        comm, NULL, DDP_E_TIMEOUT,
        "%s: rank %u has waited %llu.%llu s for %s, which %s; %llu of %llu bytes had %s", call,
        comm->rank, (unsigned long long)elapsed / 1000, (unsigned long long)elapsed % 1000 / 100,
        edge->peer_name, finding, (unsigned long long)wait->bytes_done,
        (unsigned long long)wait->bytes_wanted, wait->sends ? "been sent" : "arrived");
}

/* The peer has answered, or bytes move. */
static ddp_status fail_waiting(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_edge *edge)
{
    char finding[DDPI_DOUBT_TEXT + 32];
    size_t name_len = strlen(edge->peer_name);
    const char *doubted = ddpi_question_doubted(comm, wait);
    if (edge->asked_ms == 0) /* bytes have moved since the question */
        return fail_timeout(comm, wait, edge, "is too slow");
    if (doubted == NULL)
        return fail_timeout(comm, wait, edge, "waits for others itself");
    if (strncmp(doubted, edge->peer_name, name_len) == 0)
        return fail_timeout(comm, wait, edge, doubted + name_len + 1);
    snprintf(finding, sizeof finding, "waits as well, as %s", doubted);
    return fail_timeout(comm, wait, edge, finding);
}

ddp_status ddpi_question_pace(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_edge *edge)
{
    return ddpi_monotonic_ms() < wait->deadline_ms + ANSWER_MS
               ? DDP_OK
               : fail_timeout(comm, wait, edge, "is too slow");
}

/* At the deadline. A peer that was asked a moment ago, as this rank did not run before, or as bytes
 * have moved, may still answer. */
static ddp_status judge_peer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             struct ddpi_edge *edge, bool silent, uint64_t now, uint64_t *wake_ms)
{
    uint64_t answer_by_ms = edge->asked_ms + answer_ms(wait);
    if (silent && now < answer_by_ms) {
        wake_by(wake_ms, answer_by_ms);
        return DDP_OK;
    }
    return silent ? fail_timeout(comm, wait, edge, silence(edge)) : fail_waiting(comm, wait, edge);
}

ddp_status ddpi_question_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    bool silent = question_peer(comm, wait, edge, now, wake_ms);
    if (now >= wait->deadline_ms && !wait->names_missing)
        return judge_peer(comm, wait, edge, silent, now, wake_ms);
    if (now < wait->deadline_ms)
        wake_by(wake_ms, wait->deadline_ms);
    return DDP_OK;
}
