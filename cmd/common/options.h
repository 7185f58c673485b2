/*
 * options.h - command lines and environment defaults from one table.
 *
 * Each program has one static const table. It feeds the parser, --help, the man page and the
 * environment defaults, so that they cannot disagree. A value is checked where it is read, so that
 * an error can name the option or variable. Long options may be written with '-' or '_', by any
 * unambiguous prefix, and whole after a single dash; the last one given wins.
 */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct option;

/* Parse @text into the field. Errors say what was expected; the caller adds the option's name. */
typedef ddp_status (*option_parse)(const struct option *option, const char *text, void *field,
                                   struct ddp_error *err);

struct option {
    const char *name;     /* long name, with '-' */
    char letter;          /* short name, 0 = none */
    const char *arg;      /* name of its value; NULL = a switch, parsed from "1"; "[=NAME]" = a
                             switch that may have a value */
    const char *env;      /* variables for its default, separated by blanks; the first that is
                             set wins; NULL = none */
    const char *standard; /* default, as shown in --help; NULL = none */
    const char *group;    /* heading in --help; NULL = only programs give it */
    const char *help;     /* what it does; if refused: why, and what to do instead */
    option_parse parse;   /* NULL = known, but refused */
    size_t offset;        /* of its field in the configuration */
    int64_t min, max;     /* of whole numbers and durations */
};

/* The row of --help, whose field is a bool. */
#define OPTION_HELP(group, field)                                                                  \
    {                                                                                              \
        "help", 'h', NULL, NULL, NULL, group, "print this list and exit", option_show, field, 0, 0 \
    }

/* An option of other programs, and its replacement here. */
struct option_foreign {
    const char *word;    /* with its dashes; NULL: the end of a list */
    const char *of;      /* the programs */
    const char *instead; /* what to do instead, as a clause */
};

struct option_table {
    const char *program;
    const char *refused_heading; /* heading in --help of the refused options, or NULL */
    const struct option *options;
    size_t count;
    const struct option_foreign *foreign; /* NULL: none */
    bool runs_program;                    /* its first operand, which has options of its own */
    /* Called with each value that is taken, and the variable that it is from, of @len bytes; NULL:
     * the command line. NULL: nobody wants to know. */
    void (*taken)(void *config, const struct option *option, const char *variable, size_t len,
                  const char *text);
};

/* Whether an option with a text was given one, which an empty default is not. */
static inline bool option_given(const char *text)
{
    return text != NULL && *text != '\0';
}

/* Whether people may give it, and so --help, the man page and completions have it. */
static inline bool option_is_listed(const struct option *option)
{
    return option->parse != NULL && option->group != NULL;
}

/* Parsers of const char *, bool, uint32_t, uint64_t, a uint64_t of bytes (with a unit such as K),
 * and uint64_t milliseconds (bare numbers are seconds). */
ddp_status option_text(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_switch(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_u32(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_u64(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_size(const struct option *, const char *, void *, struct ddp_error *);
ddp_status option_duration(const struct option *, const char *, void *, struct ddp_error *);
/* One of the words in @arg, separated by '|': stores its index in an enum or a uint32_t. */
ddp_status option_choice(const struct option *, const char *, void *, struct ddp_error *);
/* A switch (bool) that only prints a text, such as --help: the rest of the command line and the
 * environment are ignored. */
ddp_status option_show(const struct option *, const char *, void *, struct ddp_error *);

/*
 * Fill @config from the command line up to the first operand (a negative number is one), whose
 * index goes to *@ret_operand (argc if there is none; "--" and an option_show also end the
 * options), then set the other options from the environment. Values point into argv and envp.
 *
 * DDP_E_INVALID: the error names the option or variable, the invalid text and the remedy.
 */
DDP_MUST_CHECK ddp_status options_parse(const struct option_table *table, int argc, char **argv,
                                        char *const *envp, void *config, int *ret_operand,
                                        struct ddp_error *err);

/* The option whose long name @word is, up to a '='; NULL: none. */
const struct option *options_find(const struct option_table *table, const char *word);

/* Print all options by group, for --help and as the OPTIONS section of a man page. */
void options_print_help(const struct option_table *table, FILE *out);
void options_print_man(const struct option_table *table, FILE *out);

#endif
