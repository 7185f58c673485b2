/*
 * watchdog.h - the FIFO through which PyTorch's FileTimerClient asks for a countdown, in case the
 * worker hangs (TORCHELASTIC_ENABLE_FILE_TIMER, TORCHELASTIC_TIMER_FILE), and the end of
 * countdowns.
 *
 * The FIFO's content is not trusted. Only a process in the session of a running worker is
 * signalled, and the console reports it. Lines that are no request, and countdowns beyond the
 * limit, are ignored; the first of each generation is reported.
 */
#ifndef DAEMON_WATCHDOG_H
#define DAEMON_WATCHDOG_H

#include "timers.h"
#include "worker_proc.h"

#include <limits.h>

/* Made before guard and agent split; the last of them removes it. */
struct watchdog_fifo {
    char *path; /* NULL: there is none */
    int fd;
};

/* Make it at @path, where it replaces an unused FIFO of this user; NULL: at a new name in the
 * directory @temporary. @err names it. */
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
    bool held;      /* countdowns do not end */
    bool skipping;  /* the rest of a line that is too long */
    bool told_bad;  /* a bad line has been reported */
    bool told_full; /* a full list has been reported */
};

/* Read @fd, 0 for none. All pointers stay valid until the handles are closed. */
DDP_MUST_CHECK ddp_status watchdog_open(struct watchdog *watchdog, uv_loop_t *loop, int fd,
                                        const struct worker_proc *workers, uint32_t nproc,
                                        struct logmux *mux, struct ddp_error *err);

/* A generation is about to begin: drop all countdowns and unread requests, whose processes are
 * gone. Until watchdog_go_on() no countdown ends: new workers may ask for one before their pids are
 * known here. */
void watchdog_hold(struct watchdog *watchdog);
void watchdog_go_on(struct watchdog *watchdog);

/* The handles close while the loop turns. */
void watchdog_close(struct watchdog *watchdog);

#endif
