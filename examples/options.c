/*
 * options.c - see options.h. --help prints the defaults of the calling program.
 */
#define _GNU_SOURCE 1 /* program_invocation_short_name */
#include "options.h"

#include "trainer.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { WHOLE, REAL, TEXT, NO_TEXT, HELP };

static const struct known {
    const char *name, *argument, *what;
    unsigned which; /* 0: all programs take it */
    enum kind kind;
    size_t field;
    long min, max;
} table[] = {
#define FIELD(name) offsetof(struct options, name)
    {"checkpoints", "DIR", "a folder that all nodes share", OPTIONS_CHECKPOINTS, TEXT,
     FIELD(checkpoints), 0, 0},
    {"every", "N", "steps between checkpoints", OPTIONS_CHECKPOINTS, WHOLE, FIELD(every), 1,
     1000000000},
    {"threads", "N", "run N workers, each in a thread of this process", OPTIONS_THREADS, WHOLE,
     FIELD(threads), 1, MOST_THREADS},
    {"epochs", "N", "passes over the training images", 0, WHOLE, FIELD(epochs), 1, 100000},
    {"batch", "N", "images per step, over all workers", 0, WHOLE, FIELD(batch), 1, 1000000},
    {"lr", "X", "initial learning rate; decreases linearly to 0", 0, REAL, FIELD(rate), 0, 100},
    {"momentum", "X", "momentum", 0, REAL, FIELD(momentum), 0, 1},
    {"seed", "N", "seed of the weights and the image order", 0, WHOLE, FIELD(seed), 0, 1000000000},
    {"data", "DIR", "folder of the data set", 0, TEXT, FIELD(data), 0, 0},
    {"synthetic", NULL, "train on generated images instead", 0, NO_TEXT, FIELD(data), 0, 0},
    {"limit", "N", "use only the first N training images", 0, WHOLE, FIELD(limit), 1, 10000000},
    {"loss-log", "FILE", "write step and loss of each step (rank 0)", OPTIONS_LOSS_LOG, TEXT,
     FIELD(loss_log), 0, 0},
    {"help", NULL, "print this help", 0, HELP, 0, 0, 0},
#undef FIELD
};
enum { KNOWN = sizeof table / sizeof *table };

struct options options_defaults(void)
{
    return (struct options){.epochs = 3,
                            .batch = 128,
                            .seed = 1,
                            .rate = 0.1,
                            .momentum = 0.9,
                            .data = "/usr/share/datasets/fashion-mnist",
                            .every = 100};
}

static bool has(unsigned which, const struct known *known)
{
    return known->which == 0 || (known->which & which) != 0;
}

static void print_usage(FILE *file, const struct options *options, unsigned which)
{
    fprintf(file, "Usage: %s [options]\n", program_invocation_short_name);
    for (const struct known *known = table; known < table + KNOWN; known++) {
        if (!has(which, known))
            continue;
        const char *argument = known->argument != NULL ? known->argument : "";
        const char *field = (const char *)options + known->field;
        fprintf(file, "  --%-11s %-4s  %s", known->name, argument, known->what);
        if (known->kind == WHOLE && *(const long *)field != 0)
            fprintf(file, " (%ld)", *(const long *)field);
        if (known->kind == REAL)
            fprintf(file, " (%g)", *(const double *)field);
        if (known->kind == TEXT && *(const char *const *)field != NULL)
            fprintf(file, " (%s)", *(const char *const *)field);
        fputc('\n', file);
    }
}

static void take(struct options *options, const struct known *known, const char *text)
{
    char *field = (char *)options + known->field;
    if (known->kind == WHOLE)
        *(long *)field = whole_number(known->name, text, known->min, known->max);
    else if (known->kind == REAL)
        *(double *)field = real_number(known->name, text, (double)known->max);
    else
        *(const char **)field = known->kind == TEXT ? text : NULL;
}

void options_parse(struct options *options, unsigned which, int argc, char **argv)
{
    const struct options defaults = *options;
    struct option names[KNOWN + 1] = {0};
    size_t count = 0;
    for (int i = 0; i < KNOWN; i++)
        if (has(which, &table[i]))
            names[count++] = (struct option){
                table[i].name, table[i].argument != NULL ? required_argument : no_argument, NULL,
                i};
    int found;
    while ((found = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (found >= KNOWN || table[found].kind == HELP) {
            print_usage(found >= KNOWN ? stderr : stdout, &defaults, which);
            exit(found >= KNOWN ? EXIT_USAGE : EXIT_SUCCESS);
        }
        take(options, &table[found], optarg);
    }
    if (optind < argc)
        die(EXIT_USAGE, "'%s' is not an option; see --help", argv[optind]);
}
