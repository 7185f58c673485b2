/*
 * pmi_words.h - a line of PMI-1: words "name=value" with blanks between them. Pure.
 */
#ifndef DAEMON_PMI_WORDS_H
#define DAEMON_PMI_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Copy the value of the first word called @name to @value, of @size bytes. false, with @value
 * unchanged: there is no such word, or it is too long, or holds a NUL or a control character. */
bool pmi_words_get(const char *line, size_t len, const char *name, char *value, size_t size);

/* The same for a decimal number within int's range. */
bool pmi_words_number(const char *line, size_t len, const char *name, int *ret);

#endif
