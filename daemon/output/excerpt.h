/*
 * excerpt.h - finds a worker's recorded traceback in its stderr. Pure.
 */
#ifndef DAEMON_EXCERPT_H
#define DAEMON_EXCERPT_H

#include <stdbool.h>
#include <stddef.h>

/* A piece of a text: [from, to). */
struct excerpt {
    size_t from;
    size_t to;
};

/*
 * Find the lines of @traceback in @text. The result includes the frames before them, from the
 * "Traceback" heading on: the interpreter prints more of the outermost frames than are recorded.
 * PyTorch's "[rankN]: " before a line is ignored. false: not found.
 */
bool excerpt_find(const char *text, size_t len, const char *traceback, struct excerpt *ret);

#endif
