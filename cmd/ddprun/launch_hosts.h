/*
 * launch_hosts.h - a job on hosts that are started from this one: from the options to the head
 * (head.h).
 */
#ifndef CMD_LAUNCH_HOSTS_H
#define CMD_LAUNCH_HOSTS_H

#include "ddprun_options.h"

/* Run the job. @words are the options as given, and @operands the program and its arguments.
 * Returns the exit code of ddprun. */
int launch_hosts(const struct ddprun_options *options, char **words, size_t nwords,
                 char **operands);

#endif
