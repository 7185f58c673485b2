/*
 * watchdog.h - the FIFO by which PyTorch's FileTimerClient asks for a countdown, in case it hangs
 * (TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE), and what is done when one is over.
 *
 * Whatever comes through the FIFO is a worker's word: a process is signalled only if it is of the
 * session of a worker that runs, which is said, and a line that is no request is ignored. Of those,
 * and of timers for which there is no room, the first of each generation is said.
 */
#ifndef DAEMON_WATCHDOG_H
#define DAEMON_WATCHDOG_H

#include "timers.h"
#include "worker_proc.h"

#include <limits.h>

/* Made before guard and agent part: whoever is left removes it. */
struct watchdog_fifo {
    char *path; /* NULL: there is none */
    int fd;
};

/* Make it at @path, in the place of a FIFO of this user that nobody reads; NULL: at a new name in
 * the directory @temporary. The sentence names it. */
DDP_MUST_CHECK ddp_status watchdog_fifo_make(struct watchdog_fifo *fifo, const char *path,
                                             const char *temporary, struct ddp_error *err);
void watchdog_fifo_remove(struct watchdog_fifo *fifo);

struct watchdog {
    const struct worker_proc *workers;
    uint32_t nproc;
    struct logmux *mux;
    int fd;
    uv_poll_t poll;
    uv_timer_t timer;
    bool open;
    struct timers timers;
    char line[PIPE_BUF + 1]; /* the beginning of a request */
    size_t used;
    bool held;      /* no countdown is over now */
    bool skipping;  /* to the end of a line that is too long */
    bool told_bad;  /* that something was no request */
    bool told_full; /* that there are too many */
};

/* Read @fd, 0 for none. All pointers stay until the handles are closed. */
DDP_MUST_CHECK ddp_status watchdog_open(struct watchdog *watchdog, uv_loop_t *loop, int fd,
                                        const struct worker_proc *workers, uint32_t nproc,
                                        struct logmux *mux, struct ddp_error *err);

/* A generation is about to begin: forget all countdowns, and what the FIFO has, whole requests or
 * half of one, as those who asked are gone. Until watchdog_go_on() no countdown is over, as new
 * workers may ask for one before it is known here which processes they are. */
void watchdog_hold(struct watchdog *watchdog);
void watchdog_go_on(struct watchdog *watchdog);

/* The handles close while the loop turns. */
void watchdog_close(struct watchdog *watchdog);

#endif
