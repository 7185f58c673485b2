/*
 * expand_vars.h - variables in the arguments of a worker and in the prefix of its lines. Pure.
 */
#ifndef DAEMON_EXPAND_VARS_H
#define DAEMON_EXPAND_VARS_H

struct text_var {
    const char *name;
    const char *value;
};

/* @text with ${name} and $name replaced by the value of that variable of @vars. "$$" stands for
 * "$"; unknown names stay as they are. The result is the caller's to ddpi_free(); NULL: no
 * memory. */
char *expand_vars(const char *text, const struct text_var *vars, unsigned count);

#endif
