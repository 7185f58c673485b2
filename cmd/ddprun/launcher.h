/*
 * launcher.h - what ddprun does with a plan: it shows it, carries it out here, or hands it on.
 */
#ifndef CMD_LAUNCHER_H
#define CMD_LAUNCHER_H

#include "guard.h"
#include "plan.h"
#include "scheduler.h"

/* ---- ddprun's own messages (print_message.c) ---- */

/* Print one line on stderr. Control characters are masked: names and values come from outside, and
 * must not drive the terminal. */
__attribute__((format(printf, 1, 2))) void print_message(const char *format, ...);

/* ---- --dry-run: what would be started (dry_run.c) ---- */

/* Print the plan to standard output. @scheduled is what a scheduler has said. Returns the exit
 * code. */
int dry_run_print(const struct plan *plan, const struct ddprun_options *options,
                  const struct scheduler_job *scheduled);

/* Print where the values of options are from. */
void dry_run_print_sources(const struct ddprun_options *options);

/* Print a command as a shell would read it. */
void dry_run_print_command(char *const *words);

/* ---- the agent's process, from the split until the job is over (run_agent.c) ---- */

/* Returns the exit code. *@ret_waiting: a thread is still blocked in a name look-up, a GPU driver
 * or the start of a program; only the end of the process can end it. */
int run_agent(struct plan *plan, const struct guard_agent *split, bool *ret_waiting);

/* ---- a job on hosts that are started from this one, by the head (launch_hosts.c) ---- */

/* Run the job. @words are the options as given, and @operands the program and its arguments.
 * Returns the exit code of ddprun. */
int launch_hosts(const struct ddprun_options *options, char **words, size_t nwords,
                 char **operands);

/* ---- the scheduler's own command, which starts ddprun on each node (node_starter.c) ---- */

/* Execute srun, with this program and @argv for each node of @job, which is an allocation. Returns
 * only if that fails; @err says why. */
ddp_status node_starter_exec(const struct scheduler_job *job, char **argv, struct ddp_error *err);

#endif
