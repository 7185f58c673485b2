/*
 * options.h - command lines and environment defaults from one table.
 *
 * Each program has one static const table. It feeds the parser, --help, the man page and the
 * environment defaults, so that they cannot disagree. A value is checked where it is read, so that
 * the sentence can say whether an option or a variable holds it. Long options may be written with
 * '-' or '_', and by any unambiguous beginning; the last one given wins.
 */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct option;

/* Parse @text into the field; the sentence says what was expected, the caller adds of whom. */
typedef ddp_status (*option_parse)(const struct option *option, const char *text, void *field,
                                   struct ddp_error *err);

struct option {
    const char *name;     /* long spelling, with '-' */
    char letter;          /* short spelling, 0 = none */
    const char *arg;      /* name of its value, NULL = a switch, parsed from "1" */
    const char *env;      /* its default may come from these variables: names, a blank between
                             them, the first that is set wins; NULL = none */
    const char *standard; /* default as a person reads it, NULL = none to speak of */
    const char *group;    /* heading in --help */
    const char *help;     /* what it does; for one that is refused: why, and what to do instead */
    option_parse parse;   /* NULL: known, but refused */
    size_t offset;        /* of its field in the configuration */
    int64_t min, max;     /* of whole numbers and durations, where they matter */
};

/* What another program calls so, and what to write here; by name only, no value is read. */
struct option_foreign {
    const char *word;    /* with its dashes; NULL: the end of a list */
    const char *of;      /* the programs */
    const char *instead; /* what to do, as a clause */
};

struct option_table {
    const char *program;
    const char *refused_heading; /* in --help, of the options without a parser; or NULL */
    const struct option *options;
    size_t count;
    const struct option_foreign *foreign; /* NULL: none */
};

/* Fields: const char *, bool, uint32_t, uint64_t milliseconds (a bare number is in seconds). */
ddp_status option_text(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_switch(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_u32(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_duration(const struct option *, const char *, void *, struct ddp_error *);
/* One of the words that @arg lists, with '|' between them: its index, into an enum or a uint32_t.
 */
ddp_status option_choice(const struct option *, const char *, void *, struct ddp_error *);
/* A switch (bool) that asks for a text, not for work: what stands behind it is not looked at, nor
 * is the environment. */
ddp_status option_show(const struct option *, const char *, void *, struct ddp_error *);

/*
 * Fill @config from the command line up to the first operand, whose index goes to *@ret_operand
 * (argc if there is none; "--" ends the options too, and so does an option_show), then from the
 * environment what the command line left open. Values point into argv and envp.
 *
 * DDP_E_INVALID: the sentence names the option or variable, the offending text and the remedy.
 */
DDP_MUST_CHECK ddp_status options_parse(const struct option_table *table, int argc, char **argv,
                                        char *const *envp, void *config, int *ret_operand,
                                        struct ddp_error *err);

/* All options, grouped, for --help; and as the OPTIONS section of a man page. */
void options_print_help(const struct option_table *table, FILE *out);
void options_print_man(const struct option_table *table, FILE *out);

#endif
