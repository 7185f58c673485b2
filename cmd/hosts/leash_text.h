/*
 * leash_text.h - what a launcher writes to the standard input of an agent that it has started on
 * another host: a greeting, the token, variables of the environment, "go"; later, signals. Lines of
 * text. The end of the input means that the launcher is gone. Nothing of it is on a command line,
 * which other users can read. Pure.
 *
 *   ddprun leash 1
 *   token 0123...          64 hexadecimal digits; "token -": none
 *   env NAME=VALUE         with \n for a newline, \\ for a backslash
 *   go
 *   signal TERM
 */
#ifndef CMD_LEASH_TEXT_H
#define CMD_LEASH_TEXT_H

#include "buf.h"

#include <ddprun/status.h>

/* More than the environment of a process may have on Linux by default, each byte escaped. */
enum { LEASH_TEXT_MAX = 8 * 1024 * 1024 };

/* What the agent writes to its standard output before anything else; its version follows, and a
 * newline. */
#define LEASH_HELLO "ddprun agent "

/* Append the lines before "go", or all. False: memory is short, or there is too much. */
DDP_MUST_CHECK bool leash_put_greeting(struct ddpi_buf *text, const char *token_hex);
DDP_MUST_CHECK bool leash_put_variable(struct ddpi_buf *text, const char *entry);
DDP_MUST_CHECK bool leash_put_go(struct ddpi_buf *text);
DDP_MUST_CHECK bool leash_put_signal(struct ddpi_buf *text, int sig);

/* A line that was read, without its newline; its text is changed, and @text points into it. */
enum leash_kind { LEASH_GREETING, LEASH_TOKEN, LEASH_VARIABLE, LEASH_GO, LEASH_SIGNAL };
struct leash_line {
    enum leash_kind kind;
    char *text; /* the token, "" for none; or NAME=VALUE */
    int sig;
};

/* DDP_E_INVALID: it is none of these lines; DDP_E_UNSUPPORTED: a greeting of another version. */
DDP_MUST_CHECK ddp_status leash_parse(char *line, struct leash_line *ret, struct ddp_error *err);

/* Append the variables of @envp that a job needs on every host, and those that @exports names:
 * NAME, or NAME=VALUE. A variable that is named and not set is left out. */
DDP_MUST_CHECK bool leash_put_environment(struct ddpi_buf *text, char *const *envp,
                                          const char *const *exports, size_t count);

#endif
