/*
 * line_filter.h - copies lines that contain one of several words to a file: torchrun's
 * --duplicate-stdout-filters and --duplicate-stderr-filters. Owns the words and the file.
 */
#ifndef DAEMON_LINE_FILTER_H
#define DAEMON_LINE_FILTER_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed, it is off. */
struct line_filter {
    char *words; /* one after the other, each with a NUL; NULL: off */
    size_t len;
    int fd;        /* -1: nothing is written */
    int sys_errno; /* the error that ended writing; 0: none */
};

/* Take the words of @list, separated by commas; two commas stand for one inside a word. NULL or "":
 * off. An empty word matches every line. */
DDP_MUST_CHECK ddp_status line_filter_init(struct line_filter *filter, const char *list,
                                           struct ddp_error *err);
void line_filter_finish(struct line_filter *filter);

bool line_filter_is_on(const struct line_filter *filter);

/* Take over @fd and write to it from now on; an earlier descriptor is closed. */
void line_filter_write_to(struct line_filter *filter, int fd);

/* The line contains one of the words. Pure. */
bool line_filter_matches(const struct line_filter *filter, const char *line, size_t len);

/* If the line matches, write @prefix, the line, and a newline if it has none. */
void line_filter_line(struct line_filter *filter, const char *prefix, const char *line, size_t len);

#endif
