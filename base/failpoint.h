/*
 * failpoint.h - points in the code where a test can make the program fail or die.
 *
 * Compiled in only with -Dfailpoints=true; otherwise a point is the constant 0 and costs nothing.
 * The environment variable DDPRUN_FAILPOINTS selects actions: a list of NAME=ACTION or
 * NAME=ACTION@N (only the Nth time that this process reaches the point), separated by ';'. Actions:
 *     error:ERRNO   skip the system call after the point, and act as if it failed with this errno
 *     kill          send SIGKILL to this process
 *
 * A point is written  if ((sys_errno = DDPI_FAILPOINT("spawn.clone")) == 0) ... ; tests/fault
 * lists all names.
 */
#ifndef DDPI_FAILPOINT_H
#define DDPI_FAILPOINT_H

#ifdef DDP_FAILPOINTS
#define DDPI_FAILPOINT(name) ddpi_failpoint(name)
#else
#define DDPI_FAILPOINT(name) 0
#endif

/* Returns the errno to simulate, or 0. */
int ddpi_failpoint(const char *name);

/* The action in @spec for the @hit-th time that @name is reached: 0 for none, -1 for kill, else an
 * errno. Ignores malformed entries. Pure. */
int ddpi_failpoint_action(const char *spec, const char *name, unsigned hit);

#endif
