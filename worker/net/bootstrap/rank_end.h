/*
 * rank_end.h - how the processes of ranks have ended, and which of them to name. Pure.
 */
#ifndef DDPI_RANK_END_H
#define DDPI_RANK_END_H

#include <ddprun/spawn.h>
#include <stdbool.h>

/* What a rank has left in memory that it shares with its parent; hostile until checked. */
struct ddpi_rank_words {
    _Atomic bool said; /* written last */
    ddp_status status;
    char text[DDP_ERROR_TEXT];
};

/* A process that has ended. */
struct ddpi_rank_end {
    uint32_t rank;
    int pid;
    uint32_t turn; /* the first has 0 */
    bool known;    /* false: another part of the program has taken the exit status */
    int exit_code; /* -1: by a signal */
    int signal;    /* 0: none */
    bool said;     /* the function has returned @status */
    ddp_status status;
    bool asked;  /* it had been sent SIGTERM */
    bool killed; /* and SIGKILL */
};

bool ddpi_rank_failed(const struct ddpi_rank_end *end);

/* Whether the failure @end may follow from that of another rank, not known to have ended. */
bool ddpi_rank_end_follows(const struct ddpi_rank_end *end);

/* Whether to name @a rather than @b. */
bool ddpi_rank_end_before(const struct ddpi_rank_end *a, const struct ddpi_rank_end *b);

/* Set @err to DDP_E_PEER_DEAD, with a sentence about @end; @text is what the function has said. */
ddp_status ddpi_rank_end_describe(const struct ddpi_rank_end *end, const char *text,
                                  struct ddp_error *err);

#endif
