/*
 * signames.h - signals by name, both ways.
 */
#ifndef DAEMON_SIGNAMES_H
#define DAEMON_SIGNAMES_H

#include <ddprun/status.h>
#include <signal.h>

enum { SIGNAME_MAX = 32 };

/* "SIGTERM"; "signal 99" for a number without a name. @name is filled and returned. */
const char *signame_of(int sig, char name[SIGNAME_MAX]);

/* Its usual meaning, for the report ("segmentation fault"). */
const char *signame_meaning(int sig);

/* Parse a comma list of names into a set. "SIG" may be missing, case does not matter
 * ("SIGTERM,int"). Signals that cannot be caught are an error. */
DDP_MUST_CHECK ddp_status signame_parse_list(const char *text, sigset_t *ret_set,
                                             struct ddp_error *err);

#endif
