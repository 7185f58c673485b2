/*
 * dry_run.h - --dry-run: says what would be started.
 */
#ifndef CMD_DRY_RUN_H
#define CMD_DRY_RUN_H

#include "plan.h"
#include "scheduler.h"

/* Print the plan to standard output. @scheduled is what a scheduler has said. Returns the exit
 * code. */
int dry_run_print(const struct plan *plan, const struct ddprun_options *options,
                  const struct scheduler_job *scheduled);

/* Print where the values of options are from. */
void dry_run_print_sources(const struct ddprun_options *options);

/* Print a command as a shell would read it. */
void dry_run_print_command(char *const *words);

#endif
