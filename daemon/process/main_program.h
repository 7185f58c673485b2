/*
 * main_program.h - finds the process of a worker that does its work. Stop signals are meant for it:
 * it saves its state, and needs its helpers for that.
 */
#ifndef DAEMON_MAIN_PROGRAM_H
#define DAEMON_MAIN_PROGRAM_H

#include <sys/types.h>

/* Who gets a signal that is meant for a worker. */
enum signal_scope {
    SIGNAL_MAIN,  /* its main program */
    SIGNAL_GROUP, /* its process group: helpers, such as those of a DataLoader, too */
};

/* The process that @sig is meant for: @leader itself, a child of ours, unless @sig would end it
 * while it only waits for its one child, as a shell that runs a command does. Then it is that
 * child, of which the same holds. Allocates nothing. */
pid_t main_program_of(pid_t leader, int sig);

#endif
