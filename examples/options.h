/*
 * options.h - the command line of the training programs: one table; each program uses a subset of
 * it.
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
    const char *data; /* NULL: generated images */
    const char *loss_log;
    long threads; /* 0: the process is one worker */
    const char *checkpoints;
    long every;
};

/* Options that only some programs take. */
enum { OPTIONS_LOSS_LOG = 1, OPTIONS_THREADS = 2, OPTIONS_CHECKPOINTS = 4 };

struct options options_defaults(void);

/* Override *@options with the options of the command line. --help, and any error, end the
 * process. */
void options_parse(struct options *options, unsigned which, int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
