/*
 * options.h - the command line of the training programs: one table, of which each program uses a
 * part.
 */
#ifndef EXAMPLES_OPTIONS_H
#define EXAMPLES_OPTIONS_H

#ifdef __cplusplus
extern "C" {
#endif

enum { MOST_THREADS = 64 };

struct options {
    long epochs, batch, limit, seed;
    double rate, momentum;
    const char *data; /* NULL: made-up images */
    const char *loss_log;
    long threads; /* 0: the process is one worker */
    const char *checkpoints;
    long every;
};

/* Options that a program takes besides those that all take. */
enum { OPTIONS_LOSS_LOG = 1, OPTIONS_THREADS = 2, OPTIONS_CHECKPOINTS = 4 };

struct options options_defaults(void);

/* Put what the command line says over what *@options has; --help, and what is wrong, end the
 * process. */
void options_parse(struct options *options, unsigned which, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
