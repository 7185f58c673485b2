/*
 * pmi_words.h - a line of PMI-1: words "name=value", separated by blanks. Pure.
 */
#ifndef DAEMON_PMI_WORDS_H
#define DAEMON_PMI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Copy the value of the first word @name to @value, of @size bytes. false, with @value unchanged:
 * not found, too long, or with a NUL or a control character in it. */
bool pmi_words_get(const char *line, size_t len, const char *name, char *value, size_t size);

/* The same for a decimal number in the range of int. */
bool pmi_words_number(const char *line, size_t len, const char *name, int *ret);

#endif
