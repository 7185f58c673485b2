/*
 * failpoint.h - places where a test makes the program fail or die.
 *
 * Compiled in only with -Dfailpoints=true; otherwise a point is the constant 0 and costs nothing.
 * The environment variable DDPRUN_FAILPOINTS says what happens: a list of NAME=ACTION or
 * NAME=ACTION@N (only the Nth time that this process gets there), separated by ';'. Actions:
 *     error:ERRNO   pretend that the system call behind the point failed with this number
 *     kill          SIGKILL to this process
 *
 * A point is written  if ((sys_errno = DDPI_FAILPOINT("spawn.clone")) == 0) ... ; tests/fault
 * holds the list of all names.
 */
#ifndef DDPI_FAILPOINT_H
#define DDPI_FAILPOINT_H

#ifdef DDP_FAILPOINTS
#define DDPI_FAILPOINT(name) ddpi_failpoint(name)
#else
#define DDPI_FAILPOINT(name) 0
#endif

/* The errno to pretend, or 0. */
int ddpi_failpoint(const char *name);

/* The action of @name in @spec when it is reached for the @hit-th time: 0 none, -1 kill, else an
 * errno. A malformed entry counts as none. Pure. */
int ddpi_failpoint_action(const char *spec, const char *name, unsigned hit);

#endif
