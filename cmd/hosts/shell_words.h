/*
 * shell_words.h - command lines for a remote shell. Pure.
 */
#ifndef CMD_SHELL_WORDS_H
#define CMD_SHELL_WORDS_H

#include "buf.h"

#include <ddprun/status.h>

/* Append @word to @line, after a blank if there is something before it, so that any shell of Unix
 * reads it as one word. False: memory is short. */
DDP_MUST_CHECK bool shell_words_add(struct ddpi_buf *line, const char *word);

/* Split @text, which is changed, at blanks into a NULL-terminated array of at most @max words. The
 * number of words; @max + 1: there are more. */
size_t shell_words_split(char *text, char **words, size_t max);

#endif
