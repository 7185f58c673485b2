/*
 * verbs.c - the verbs of ddpctl, for main() and for the completions of shells.
 */
#include "verbs.h"

const struct ddpctl_verb_row ddpctl_verbs[] = {
    {"status", ddpctl_job, &ddpctl_job_table, "show the jobs of a store, their nodes and workers"},
    {"top", ddpctl_job, &ddpctl_job_table, "show a job in the terminal as it changes"},
    {"dump", ddpctl_job, &ddpctl_job_table,
     "show which collective each rank of a job is in, and which ranks are behind"},
    {"stop", ddpctl_job, &ddpctl_job_table, "end a job"},
    {"drain", ddpctl_job, &ddpctl_job_table,
     "remove a node from a job, which continues without it"},
    {"admit", ddpctl_job, &ddpctl_job_table, "let a node of a job come back that was left out"},
    {"scale", ddpctl_job, &ddpctl_job_table, "change the number of nodes of a job"},
    {"store", ddpctl_store, &ddpctl_store_table, "read and change the keys of a store"},
    {"doctor", ddpctl_doctor, &ddpctl_doctor_table,
     "look at this machine for what jobs need, and say what to change"},
    {"explain", ddpctl_explain, &ddpctl_explain_table,
     "say what an exit code of ddprun means, and what to do"},
    {"template", ddpctl_template, &ddpctl_template_table,
     "print a manifest for Kubernetes to start from"},
    {"token", ddpctl_token, &ddpctl_token_table,
     "create a token, show its path, or derive keys from it"},
    {NULL, NULL, NULL, NULL},
};
