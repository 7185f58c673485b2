/*
 * rank_end.c - see rank_end.h. Owns nothing.
 */
#include "rank_end.h"

#include "error.h"

#include <signal.h>
#include <string.h>

bool ddpi_rank_failed(const struct ddpi_rank_end *end)
{
    if (!end->known)
        return !end->said || end->status != DDP_OK;
    return end->exit_code != 0;
}

bool ddpi_rank_end_follows(const struct ddpi_rank_end *end)
{
    return end->said && (end->status == DDP_E_PEER_DEAD || end->status == DDP_E_CLOSED ||
                         end->status == DDP_E_ABORTED || end->status == DDP_E_TIMEOUT);
}

/* How likely @end is a consequence: of what was done to it, or of another failure. */
static int class_of(const struct ddpi_rank_end *end)
{
    enum { OWN, OWN_LATER, FOLLOWS, EXITED_LATER, ENDED };
    if ((end->asked && end->signal == SIGTERM) || (end->killed && end->signal == SIGKILL))
        return ENDED;
    if (ddpi_rank_end_follows(end))
        return FOLLOWS;
    if (!end->asked)
        return OWN;
    return end->signal != 0 || end->said ? OWN_LATER : EXITED_LATER;
}

bool ddpi_rank_end_before(const struct ddpi_rank_end *a, const struct ddpi_rank_end *b)
{
    int class_a = class_of(a), class_b = class_of(b);
    return class_a != class_b ? class_a < class_b : a->turn < b->turn;
}

ddp_status ddpi_rank_end_describe(const struct ddpi_rank_end *end, const char *text,
                                  struct ddp_error *err)
{
    if (end->said && end->status != DDP_OK)
        return ddpi_error_set(err, DDP_E_PEER_DEAD, "rank %u (pid %d) failed: %s", end->rank,
                              end->pid, text[0] != '\0' ? text : ddp_status_text(end->status));
    if (!end->known)
        return ddpi_error_set(err, DDP_E_PEER_DEAD,
                              "rank %u (pid %d) has ended, and another part of this program has "
                              "taken its exit status",
                              end->rank, end->pid);
    if (end->signal != 0)
        return ddpi_error_set(err, DDP_E_PEER_DEAD, "rank %u (pid %d) was ended by signal %d (%s)",
                              end->rank, end->pid, end->signal,
                              sigdescr_np(end->signal) != NULL ? sigdescr_np(end->signal) : "?");
    return ddpi_error_set(err, DDP_E_PEER_DEAD, "rank %u (pid %d) has exited with code %d",
                          end->rank, end->pid, end->exit_code);
}
