/*
 * ddpctl.c - exit codes, safe output of bytes on a terminal and as JSON, and the choice of a token.
 * Owns nothing.
 */
#include "ddpctl.h"
#include "error.h"
#include "mem.h"
#include "token_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum ddpctl_exit ddpctl_exit_of(ddp_status status)
{
    switch (status) {
    case DDP_OK:
        return DDPCTL_DONE;
    case DDP_E_INVALID:
        return DDPCTL_USAGE;
    case DDP_E_UNREACHABLE:
    case DDP_E_CLOSED:
    case DDP_E_PROTOCOL:
        return DDPCTL_UNREACHABLE;
    case DDP_E_TIMEOUT:
        return DDPCTL_TIMEOUT;
    case DDP_E_DENIED:
        return DDPCTL_DENIED;
    default:
        return DDPCTL_FAILED;
    }
}

int ddpctl_finish(ddp_status status, struct ddp_error *err)
{
    if (status == DDP_OK && fflush(stdout) != 0)
        status = ddpi_error_sys(err, errno, "cannot write to standard output");
    if (status != DDP_OK) {
        fputs("ddpctl: ", stderr);
        ddpctl_print_bytes(stderr, err->msg, strlen(err->msg)); /* may quote the store's text */
        putc('\n', stderr);
    }
    return (int)ddpctl_exit_of(status);
}

/* A user without a home directory has no default token. */
void ddpctl_choose_token(struct ddp_store_options *options, char **ret_home_token)
{
    if (options->auth != DDP_STORE_AUTH_DEFAULT || options->token_file != NULL ||
        options->token_fd != 0 ||
        ddpi_token_default_path(getenv("XDG_CONFIG_HOME"), getenv("HOME"), ret_home_token, NULL) !=
            DDP_OK)
        return;
    options->auth = DDP_STORE_AUTH_BEYOND_LOOPBACK;
    options->token_file = *ret_home_token;
}

ddp_status ddpctl_advise_token(const struct ddp_store_options *options, ddp_status status,
                               struct ddp_error *err)
{
    /* Without a token the store says by itself what to do. */
    if (status != DDP_E_DENIED || strstr(err->msg, ": denied") == NULL)
        return status;
    if (options->token_fd != 0)
        return ddpi_error_advise(err, status, "the key of descriptor %d is not one for this store",
                                 options->token_fd);
    return ddpi_error_advise(err, status,
                             "most likely its token differs from %s: copy the file that 'ddpctl "
                             "token show-path' names on the store's machine over that one",
                             options->token_file);
}

/* ---- output ---- */

/* Length of the printable UTF-8 character at @at; 0: invalid UTF-8 or a control character. */
static size_t printable_length(const unsigned char *at, size_t len)
{
    static const struct {
        unsigned char first, last, next_min, next_max;
        size_t len;
    } forms[] = {{0x20, 0x7e, 0, 0, 1},       {0xc2, 0xc2, 0xa0, 0xbf, 2},
                 {0xc3, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
                 {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                 {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
                 {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (*at < forms[i].first || *at > forms[i].last)
            continue;
        if (forms[i].len > len)
            return 0;
        if (forms[i].len > 1 && (at[1] < forms[i].next_min || at[1] > forms[i].next_max))
            return 0;
        for (size_t k = 2; k < forms[i].len; k++)
            if ((at[k] & 0xc0) != 0x80)
                return 0;
        return forms[i].len;
    }
    return 0;
}

void ddpctl_print_bytes(FILE *out, const void *bytes, size_t len)
{
    for (const unsigned char *at = bytes; len > 0;) {
        size_t taken = printable_length(at, len);
        if (taken == 0)
            fprintf(out, "\\x%02x", *at);
        else if (*at == '\\')
            fputs("\\\\", out);
        else
            fwrite(at, 1, taken, out);
        taken = taken != 0 ? taken : 1;
        at += taken;
        len -= taken;
    }
}

ddp_status ddpctl_print_json(json_t *object, struct ddp_error *err)
{
    if (object == NULL)
        return ddpi_error_nomem(err, sizeof *object);
    int failed = json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    if (failed != 0)
        return ddpi_error_set(err, DDP_E_SYSTEM, "cannot write the answer as JSON");
    putchar('\n');
    return DDP_OK;
}
