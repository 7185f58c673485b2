/*
 * judge.c - see wait.h. Owns nothing.
 *
 * A peer that is gone matters only to a rank that needs something from it: a rank that has
 * completed its last operation may leave while others still read what it sent. A failure that a
 * peer reports matters at once and is passed on, so that all survivors return with the first cause.
 * Before a rank names a peer that is gone, it looks at all others: a peer that has left, or may
 * have, can have done so because another one died.
 *
 * Before the deadline ranks find out which of them to name when it passes (question.c).
 */
#include "wait.h"

#include "clock.h"
#include "dying.h"
#include "verdict.h"

/* ---- gone ---- */

ddp_status ddpi_judge_gone(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge)
{
    ddp_status status = ddpi_notices_read_all(comm);
    if (status != DDP_OK)
        return status;
    edge = ddpi_verdict_culprit(&comm->edges, edge);
    const struct ddpi_verdict verdict = ddpi_verdict_of(edge);
    char call[DDPI_CALL_TEXT];
    ddpi_call_name(wait->call, call);
    return ddpi_comm_fail(comm, edge, verdict.status, "%s %s; rank %u noticed it in %s",
                          edge->peer_name, verdict.words, comm->rank, call);
}

/* ---- dead ---- */

bool ddpi_judge_finds_death(const struct ddp_comm *comm, uint32_t *ret_rank)
{
    uint32_t index;
    if (comm->lives == NULL || !ddpi_lives_first_death(comm->lives, &index))
        return false;
    *ret_rank = ddpi_node_first(&comm->edges.nodes) + index;
    return true;
}

/* To call exec ends the thread that shows a rank's life, which looks like death. Such a process
 * still has a program, so it is not dying; its sockets will tell what becomes of it. */
bool ddpi_judge_is_dead(const struct ddp_comm *comm, uint32_t rank)
{
    struct ddpi_card card;
    return ddpi_card_get(ddpi_meeting_slot(&comm->edges.meeting, rank), &card) &&
           ddpi_is_dying((pid_t)card.pid);
}

ddp_status ddpi_judge_death(struct ddp_comm *comm, const struct ddpi_needs *needs, uint64_t now,
                            uint64_t *wake_ms)
{
    uint32_t rank;
    struct ddpi_edge *edge =
        ddpi_judge_finds_death(comm, &rank) ? ddpi_edges_peer(&comm->edges, rank) : NULL;
    if (edge == NULL || edge->gone_ms != 0)
        return DDP_OK;
    if (!ddpi_judge_is_dead(comm, rank)) { /* it has called exec, or does not look dead yet */
        ddpi_wake_by(wake_ms, now + 1);
        return DDP_OK;
    }
    ddp_status status = ddpi_notices_read(comm, edge, needs);
    if (status != DDP_OK || edge->gone_ms != 0)
        return status;
    edge->gone_ms = now;
    edge->fate = DDPI_FATE_DEAD;
    ddpi_edges_unwatch(&comm->edges, edge);
    return DDP_OK;
}

/* ---- what an operation needs ---- */

/* An edge has a path for data (`broken`) and a control socket (`gone`). When one has ended, the
 * other may still tell the cause for linger_ms; when both have, fail now. *@wake_ms is when to look
 * again. */
static ddp_status judge_life(struct ddp_comm *comm, const struct ddpi_wait *wait,
                             struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms)
{
    if (edge->broken != NULL && edge->broken_ms == 0)
        edge->broken_ms = now;
    if (edge->gone_ms == 0 && edge->broken_ms == 0)
        return DDP_OK;
    if (edge->gone_ms != 0 && (edge->broken_ms != 0 || edge->ops->linger_ms == 0))
        return ddpi_judge_gone(comm, wait, edge);
    uint64_t until = (edge->gone_ms != 0 ? edge->gone_ms : edge->broken_ms) + edge->ops->linger_ms;
    if (now >= until)
        return ddpi_judge_gone(comm, wait, edge);
    ddpi_wake_by(wake_ms, until);
    return DDP_OK;
}

/* A need that is optional ends the sleep but cannot fail: only the deadline counts for it. */
ddp_status ddpi_judge_need(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           const struct ddpi_need *need, uint64_t now, uint64_t *wake_ms)
{
    if (need->optional && now < wait->deadline_ms)
        ddpi_wake_by(wake_ms, wait->deadline_ms);
    if (!ddpi_need_counts(need))
        return DDP_OK;
    ddp_status status = judge_life(comm, wait, need->edge, now, wake_ms);
    return status == DDP_OK ? ddpi_question_judge(comm, wait, need->edge, now, wake_ms) : status;
}

ddp_status ddpi_judge_peer(struct ddp_comm *comm, const struct ddpi_wait *wait,
                           struct ddpi_edge *edge, uint64_t now)
{
    const struct ddpi_need need = {.edge = edge, .recv_bytes = 1};
    return ddpi_judge_awake(comm, wait, &need, false, now);
}

ddp_status ddpi_judge_awake(struct ddp_comm *comm, const struct ddpi_wait *wait,
                            const struct ddpi_need *need, bool move, uint64_t now)
{
    uint64_t wake_ms = UINT64_MAX;
    if (move)
        return ddpi_need_counts(need) ? ddpi_question_pace(comm, wait, need->edge) : DDP_OK;
    return ddpi_judge_need(comm, wait, need, now, &wake_ms);
}
