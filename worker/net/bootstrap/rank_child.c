/*
 * rank_child.c - what a process that ddp_spawn() has forked does: it ends with its parent, runs the
 * function, and leaves what that has said. Owns nothing. The only file of the library that exits: a
 * process of its own making.
 */
#include "config.h"
#include "private_fds.h"
#include "rank_process.h"
#include "unique_id.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Rank 0 listens, and nobody else: so the others see its death. */
static void settle_listener(const struct ddp_unique_id *unique_id, uint32_t rank)
{
    struct ddpi_id id;
    if (rank != 0) {
        ddp_drop_unique_id(unique_id);
    } else if (ddpi_id_read(unique_id, &id, NULL) == DDP_OK) {
        ddpi_private_begin();
        (void)ddpi_private_add(ddpi_id_listener(&id)); /* children of rank 0 are no ranks */
        ddpi_private_end();
        ddpi_wipe(&id, sizeof id);
    }
}

/* Not before the handler is gone that the parent may have: a rank can be ended at any time. */
static void receive_signals(const sigset_t *mask)
{
    sigset_t wanted = *mask;
    signal(SIGTERM, SIG_DFL);
    sigdelset(&wanted, SIGTERM);
    pthread_sigmask(SIG_SETMASK, &wanted, NULL);
}

static void leave_words(struct ddpi_rank_words *words, ddp_status status,
                        const struct ddp_error *said)
{
    words->status = status;
    memcpy(words->text, said->msg, sizeof words->text);
    atomic_store(&words->said, true);
}

_Noreturn void ddpi_rank_be(const struct ddpi_rank_task *task, uint32_t rank, pid_t parent,
                            const sigset_t *mask)
{
    struct ddp_error said = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(EXIT_FAILURE); /* it has died already */
    receive_signals(mask);
    settle_listener(&task->id, rank);
    ddp_status status = ddpi_config_enter_rank(rank, task->nprocs, &task->id, &said);
    if (status == DDP_OK)
        status = task->function(rank, task->nprocs, task->arg, &said);
    leave_words(&task->words[rank], status, &said);
    fflush(NULL);
    _exit(status == DDP_OK ? EXIT_SUCCESS : EXIT_FAILURE);
}
