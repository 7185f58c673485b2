/*
 * worker_pty.h - terminals that workers write to in the place of pipes (--pty).
 *
 * It changes no byte of what is written to it, and echoes nothing: answers come by standard input,
 * which is ddprun's own. It controls no session: Ctrl-C is for ddprun alone, and whoever asks for
 * /dev/tty has none, as below torchrun.
 */
#ifndef DAEMON_WORKER_PTY_H
#define DAEMON_WORKER_PTY_H

#include <ddprun/status.h>
#include <stddef.h>
#include <sys/ioctl.h>

/* Make one: *@ret_ours is read, *@ret_theirs is the worker's. Both are close-on-exec. */
DDP_MUST_CHECK ddp_status worker_pty_open(int *ret_ours, int *ret_theirs, struct ddp_error *err);

/* The size that a terminal has for lines behind a prefix of @prefix columns, where that of ours is
 * @of, a descriptor; 24 rows of 80 columns if it is no terminal. */
struct winsize worker_pty_size(int of, size_t prefix);

void worker_pty_resize(int ours, struct winsize size);

#endif
