/*
 * excerpt.h - finds a traceback that was recorded again in what its worker wrote to stderr. Pure.
 */
#ifndef DAEMON_EXCERPT_H
#define DAEMON_EXCERPT_H

#include <stdbool.h>
#include <stddef.h>

/* A piece of a text: from, and up to. */
struct excerpt {
    size_t from;
    size_t to;
};

/*
 * Where the lines of @traceback stand in @text, with the frames in front of them, up to the heading
 * that says "Traceback": what the interpreter prints has more of the outermost frames than what is
 * recorded. PyTorch's "[rankN]: " before a line does not count. false: they are not there.
 */
bool excerpt_find(const char *text, size_t len, const char *traceback, struct excerpt *ret);

#endif
