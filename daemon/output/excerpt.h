/*
 * excerpt.h - finds in a worker's stderr what Python has written of its end. Pure.
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

/*
 * Find the name of the last exception in @text, without its module: in "[rank1]: a.b.SomeError:
 * why" that is "SomeError". false: there is none.
 */
bool excerpt_last_exception(const char *text, size_t len, struct excerpt *ret);

#endif
