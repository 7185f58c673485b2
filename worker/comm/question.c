/*
 * question.c - ranks that wait ask each other who is to blame, before the deadline. Owns nothing.
 *
 * The neighbour that a rank waits for need not be to blame: it may wait as well. So some time
 * before its deadline the rank asks it, over its control socket, and the neighbour asks in turn the
 * rank that it waits for. A rank that does not answer is stopped, or has not called the operation;
 * who has asked it tells all others, and they pass that on. At the deadline each rank knows whom to
 * name. The rank whose deadline comes first fails, and the others with it.
 *
 * A busy machine delays answers, and lets ranks begin at different times: so the longer the
 * timeout, the earlier they ask.
 */
#include "question.h"

#include "clock.h"

#include <stdio.h>
#include <string.h>

enum {
    AHEAD_MAX_MS = 10000, /* ask half the timeout before the deadline, but not earlier than this */
    AGAIN_MS = 200,       /* an answer is true for so long */
    DOUBT_MS = 1000,      /* so long no other doubt is passed on */
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

/* ---- asking ---- */

static void ask_peer(struct ddpi_edge *edge, uint64_t now)
{
    struct ddpi_memo memo;
    ddpi_memo_fill(&memo, DDPI_NOTICE_ASK, DDP_OK, "");
    ddpi_control_send(&edge->control, &memo);
    edge->asked_ms = now;
    edge->answered = edge->doubted = false;
}

void ddpi_question_pass_on(struct ddpi_edge *edge, uint64_t now)
{
    if (edge->asked_ms == 0 || (edge->answered && now >= edge->asked_ms + AGAIN_MS))
        ask_peer(edge, now);
}

static bool was_asked_since(const struct ddpi_edge *edge, uint64_t begin_ms)
{
    return edge->asked_ms != 0 && (edge->asked_ms >= begin_ms || !edge->answered);
}

/* ---- doubts ---- */

const char *ddpi_question_doubted(const struct ddp_comm *comm, const struct ddpi_wait *wait)
{
    return comm->doubt.noted_ms >= wait->started_ms && comm->doubt.text[0] != '\0'
               ? comm->doubt.text
               : NULL;
}

/* The first doubt of several comes from next to the culprit. It goes round once. It may be about
 * this rank. */
static void note_doubt(struct ddp_comm *comm, const struct ddpi_edge *from, const char *text)
{
    struct ddpi_memo memo;
    uint64_t now = ddpi_now_ms(&ddpi_clock_monotonic);
    bool lately = comm->doubt.text[0] != '\0' && now < comm->doubt.noted_ms + DOUBT_MS;
    if (lately)
        return;
    comm->doubt.noted_ms = now;
    snprintf(comm->doubt.text, sizeof comm->doubt.text, "%s", text);
    ddpi_memo_fill(&memo, DDPI_NOTICE_DOUBT, DDP_OK, comm->doubt.text);
    ddpi_edges_notify(&comm->edges, from, &memo);
}

void ddpi_question_take_doubt(struct ddp_comm *comm, const struct ddpi_edge *from,
                              const struct ddpi_memo *memo)
{
    note_doubt(comm, from, memo->text);
}

/* What is said of a peer that does not answer. */
static const char *silence(const struct ddpi_edge *edge)
{
    return edge->control.fd >= 0
               ? "does not answer: it is stopped, or has not called the operation"
               : "does not accept connections: it is stopped, is in no operation, or is out of "
                 "descriptors";
}

static void doubt_peer(struct ddp_comm *comm, struct ddpi_edge *edge)
{
    char text[DDPI_DOUBT_TEXT];
    snprintf(text, sizeof text, "%s %s", edge->peer_name, silence(edge));
    edge->doubted = true;
    note_doubt(comm, edge, text);
}

/* ---- at the deadline ---- */

static ddp_status fail_timeout(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_edge *edge, const char *finding)
{
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    uint64_t elapsed = ddpi_now_ms(&ddpi_clock_monotonic) - wait->started_ms;
    return ddpi_comm_fail(
        comm, NULL, DDP_E_TIMEOUT,
        "%s: rank %u has waited %llu.%llu s for %s, which %s; %llu of %llu bytes had %s", call,
        comm->rank, (unsigned long long)elapsed / 1000, (unsigned long long)elapsed % 1000 / 100,
        edge->peer_name, finding, (unsigned long long)wait->bytes_done,
        (unsigned long long)wait->bytes_wanted, wait->sends ? "been sent" : "arrived");
}

static ddp_status fail_waiting(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               const struct ddpi_edge *edge)
{
    char finding[DDPI_DOUBT_TEXT + 32];
    const char *doubted = ddpi_question_doubted(comm, wait);
    if (doubted == NULL)
        return fail_timeout(comm, wait, edge, "waits for others itself");
    snprintf(finding, sizeof finding, "waits as well, as %s", doubted);
    return fail_timeout(comm, wait, edge, finding);
}

ddp_status ddpi_question_pace(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_edge *edge)
{
    return ddpi_now_ms(&ddpi_clock_monotonic) < wait->deadline_ms
               ? DDP_OK
               : fail_timeout(comm, wait, edge, "is too slow");
}

static void wake_by(uint64_t *wake_ms, uint64_t candidate)
{
    if (candidate < *wake_ms)
        *wake_ms = candidate;
}

ddp_status ddpi_question_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    uint64_t begin_ms = ddpi_question_begins_ms(wait);
    if (now >= begin_ms && !was_asked_since(edge, begin_ms))
        ask_peer(edge, now);
    uint64_t doubt_ms = edge->asked_ms + ahead_ms(wait) / 2;
    bool silent = edge->asked_ms != 0 && !edge->answered;
    if (silent && now >= doubt_ms && !edge->doubted)
        doubt_peer(comm, edge);
    if (now >= wait->deadline_ms && !wait->names_missing)
        return silent ? fail_timeout(comm, wait, edge, silence(edge))
                      : fail_waiting(comm, wait, edge);
    wake_by(wake_ms, now < begin_ms ? begin_ms : wait->deadline_ms);
    if (silent && !edge->doubted)
        wake_by(wake_ms, doubt_ms);
    return DDP_OK;
}
