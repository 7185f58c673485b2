/*
 * completion.h - completions for shells, from the option tables that also make --help and the
 * manual pages.
 */
#ifndef CMD_COMPLETION_H
#define CMD_COMPLETION_H

#include "options.h"

enum completion_shell { COMPLETION_BASH, COMPLETION_ZSH, COMPLETION_FISH, COMPLETION_NONE };

/* A verb of a program that has some, each with options of its own. */
struct completion_verb {
    const char *name;
    const struct option_table *table;
};

enum { COMPLETION_VERBS_MAX = 32 };

/* A program: its own options, or verbs. */
struct completion {
    const char *program;
    const struct option_table *table;    /* NULL: it has verbs */
    const struct completion_verb *verbs; /* the last one has no name; NULL: none */
};

/* Print what the shell reads. */
void completion_print(const struct completion *completion, enum completion_shell shell, FILE *out);

#endif
