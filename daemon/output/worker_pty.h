/*
 * worker_pty.h - terminals that workers write to instead of pipes (--pty).
 *
 * They pass bytes unchanged and echo nothing: standard input is ddprun's own. They control no
 * session: Ctrl-C goes to ddprun alone, and workers cannot open /dev/tty, as below torchrun.
 */
#ifndef DAEMON_WORKER_PTY_H
#define DAEMON_WORKER_PTY_H

#include <ddprun/status.h>
#include <stddef.h>
#include <sys/ioctl.h>

/* Make one: we read *@ret_ours, the worker gets *@ret_theirs. Both are close-on-exec. */
DDP_MUST_CHECK ddp_status worker_pty_open(int *ret_ours, int *ret_theirs, struct ddp_error *err);

/* The size of the terminal @of, a descriptor, less a prefix of @prefix columns; 24 rows of 80
 * columns if @of is no terminal. */
struct winsize worker_pty_size(int of, size_t prefix);

void worker_pty_resize(int ours, struct winsize size);

#endif
