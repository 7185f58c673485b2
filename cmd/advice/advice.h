/*
 * advice.h - the verbs of ddpctl that need no store: they say what to do.
 */
#ifndef CMD_ADVICE_H
#define CMD_ADVICE_H

#include "options.h"

/* Run the verb; argv[0] is its name. Print any error and return the exit code. */
int ddpctl_doctor(int argc, char **argv);
extern const struct option_table ddpctl_doctor_table;
int ddpctl_explain(int argc, char **argv);
extern const struct option_table ddpctl_explain_table;
int ddpctl_template(int argc, char **argv);
extern const struct option_table ddpctl_template_table;

#endif
