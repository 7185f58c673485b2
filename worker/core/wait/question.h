/*
 * question.h - which rank to name when the deadline of an operation passes.
 */
#ifndef DDPI_QUESTION_H
#define DDPI_QUESTION_H

#include "need.h"

/* When a rank that waits begins to ask the ranks that it needs whether they wait as well. */
uint64_t ddpi_question_begins_ms(const struct ddpi_wait *wait);

/* Another rank has asked this one, which needs the peer of @edge: ask that one, unless it was asked
 * lately. */
void ddpi_question_pass_on(struct ddp_comm *comm, struct ddpi_edge *edge, uint64_t now);

/* The peer of @edge has answered. */
void ddpi_question_take_answer(struct ddp_comm *comm, struct ddpi_edge *edge);

/* The peer of @edge is needed: ask it in time, and fail if the deadline has passed. *@wake_ms is
 * when to look again. */
ddp_status ddpi_question_judge(struct ddp_comm *comm, const struct ddpi_wait *wait,
                               struct ddpi_edge *edge, uint64_t now, uint64_t *wake_ms);

/* The peer of @from says, or passes on, which rank does not answer. */
void ddpi_question_take_doubt(struct ddp_comm *comm, const struct ddpi_edge *from,
                              const struct ddpi_memo *memo);

/* What was said last since the operation of @wait began: the name of a rank that does not answer,
 * and the rest of the sentence; NULL: nothing. And whether that is about @rank. */
const char *ddpi_question_doubted(const struct ddp_comm *comm, const struct ddpi_wait *wait);
bool ddpi_question_is_about(const char *doubted, uint32_t rank);

/* Bytes of @edge still move: fail if the deadline has passed for some time. */
ddp_status ddpi_question_pace(struct ddp_comm *comm, const struct ddpi_wait *wait,
                              const struct ddpi_edge *edge);

#endif
