/*
 * ddpctl.h - helpers that all verbs of ddpctl share.
 */
#ifndef CMD_DDPCTL_H
#define CMD_DDPCTL_H

#include "exit_codes.h"
#include "options.h"

#include <ddprun/store.h>
#include <jansson.h>

/* Scripts depend on these codes. */
enum ddpctl_exit {
    DDPCTL_DONE = 0,
    DDPCTL_FAILED =
        EXIT_FAILED, /* no such key, wrong version, limit reached, wrong type of value */
    DDPCTL_USAGE = EXIT_USAGE,
    DDPCTL_UNREACHABLE = EXIT_UNREACHABLE,
    DDPCTL_TIMEOUT = EXIT_TRY_AGAIN,
    DDPCTL_DENIED = EXIT_REFUSED,
};

/* Run a verb; argv[0] is its name. Prints any error and returns the exit code. */
typedef int (*ddpctl_verb)(int argc, char **argv);

/* How to authenticate to a store. */
struct ddpctl_auth {
    const char *token_file;
    uint32_t token_fd; /* 0: not given */
    bool none;
    bool tls;
};

/* clang-format off */
/* Rows of an option table; @at is the offset of a struct ddpctl_auth. */
#define DDPCTL_AUTH_OPTIONS(group, at)                                                             \
    {"token-file", 0, "FILE", "DDPRUN_TOKEN_FILE",                                                 \
     "~/.config/ddprun/token; for a store on this machine only if it exists", group,               \
     "authenticate to the store, and the store to us, with the token in FILE or a key made by "    \
     "'ddpctl token derive'",                                                                      \
     option_text, (at) + offsetof(struct ddpctl_auth, token_file), 0, 0},                          \
    {"token-fd", 0, "N", "DDPRUN_TOKEN_FD", NULL, group,                                           \
     "read the token or key from the open descriptor N; overrides --token-file",                   \
     option_u32, (at) + offsetof(struct ddpctl_auth, token_fd), 3, INT32_MAX},                     \
    {"no-auth", 0, NULL, NULL, NULL, group, "do not authenticate, and trust any store",            \
     option_switch, (at) + offsetof(struct ddpctl_auth, none), 0, 0},                              \
    {"tls", 0, NULL, "DDPRUN_TLS", NULL, group,                                                    \
     "encrypt the connection to a store on another machine (TLS 1.3, keyed by the token or key)",  \
     option_switch, (at) + offsetof(struct ddpctl_auth, tls), 0, 0}
/* clang-format on */

/* The values of --role, in the order of enum ddp_store_role. */
#define DDPCTL_ROLES "agent|worker|observer"

enum ddpctl_exit ddpctl_exit_of(ddp_status status);

/* The end of a verb: flush standard output, print the message of @err unless @status is DDP_OK, and
 * return the exit code. */
int ddpctl_finish(ddp_status status, struct ddp_error *err);

/* Print any bytes in a form that is safe on a terminal, without a newline: control characters and
 * invalid UTF-8 as \xNN, \ as \\. */
void ddpctl_print_bytes(FILE *out, const void *bytes, size_t len);

/* Print @object on one line and release it. NULL means out of memory. */
ddp_status ddpctl_print_json(json_t *object, struct ddp_error *err);

/* If @options have neither a token nor an authentication mode, use this user's default token, which
 * stores on this machine do not require. The caller frees *@ret_home_token after @options. */
void ddpctl_choose_token(struct ddp_store_options *options, char **ret_home_token);

/* If @status, of connecting with @options, is that the store denies it, add to @err what to do.
 * Returns @status. */
ddp_status ddpctl_advise_token(const struct ddp_store_options *options, ddp_status status,
                               struct ddp_error *err);

#endif
