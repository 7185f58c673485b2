/*
 * line_filter.h - lines that are written a second time because they contain a word: torchrun's
 * --duplicate-stdout-filters and --duplicate-stderr-filters. Owns the words and the file.
 */
#ifndef DAEMON_LINE_FILTER_H
#define DAEMON_LINE_FILTER_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed, it is off. */
struct line_filter {
    char *words; /* one behind the other, each with a NUL; NULL: off */
    size_t len;
    int fd;        /* -1: nothing is written any more */
    int sys_errno; /* why, if it was an error */
};

/* Take @list: words separated by commas; two commas are one that belongs to a word. NULL or "" is
 * off; a word without letters is in every line. */
DDP_MUST_CHECK ddp_status line_filter_init(struct line_filter *filter, const char *list,
                                           struct ddp_error *err);
void line_filter_finish(struct line_filter *filter);

bool line_filter_is_on(const struct line_filter *filter);

/* Write to @fd from now on, which is taken over; what was written to before is closed. */
void line_filter_write_to(struct line_filter *filter, int fd);

/* Pure: the line contains one of the words. */
bool line_filter_matches(const struct line_filter *filter, const char *line, size_t len);

/* If it matches, write it behind @prefix, with an end. */
void line_filter_line(struct line_filter *filter, const char *prefix, const char *line, size_t len);

#endif
