/*
 * verbs.h - the verbs of ddpctl. Each has its own file and option table; main.c selects the verb.
 */
#ifndef CMD_VERBS_H
#define CMD_VERBS_H

#include "advice.h"
#include "ddpctl.h"

/* The last row has no name. */
extern const struct ddpctl_verb_row {
    const char *name;
    ddpctl_verb run;
    const struct option_table *table;
    const char *help;
} ddpctl_verbs[];

int ddpctl_store(int argc, char **argv);
extern const struct option_table ddpctl_store_table;
/* status, dump, stop, drain, admit and scale. */
int ddpctl_job(int argc, char **argv);
extern const struct option_table ddpctl_job_table;
int ddpctl_token(int argc, char **argv);
extern const struct option_table ddpctl_token_table;

#endif
