/*
 * signames.c - signals by name, as the C library has them. Pure.
 */
#include "signames.h"

#include "error.h"
#include "parse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *signame_of(int sig, char name[SIGNAME_MAX])
{
    const char *abbreviation = sigabbrev_np(sig);
    if (abbreviation != NULL)
        snprintf(name, SIGNAME_MAX, "SIG%s", abbreviation);
    else if (sig >= SIGRTMIN && sig <= SIGRTMAX)
        snprintf(name, SIGNAME_MAX, "SIGRTMIN+%d", sig - SIGRTMIN);
    else
        snprintf(name, SIGNAME_MAX, "signal %d", sig);
    return name;
}

const char *signame_meaning(int sig)
{
    const char *description = sigdescr_np(sig);
    return description != NULL ? description : "unknown signal";
}

static int find_signal(const char *name, size_t len)
{
    if (len > 3 && strncasecmp(name, "SIG", 3) == 0) {
        name += 3;
        len -= 3;
    }
    for (int sig = 1; sig < NSIG; sig++) {
        const char *known = sigabbrev_np(sig);
        if (known != NULL && strlen(known) == len && strncasecmp(known, name, len) == 0)
            return sig;
    }
    return 0;
}

ddp_status signame_parse_list(const char *text, sigset_t *ret_set, struct ddp_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    const char *item;
    size_t len;
    for (const char *cursor = text; ddpi_parse_list_next(&cursor, ',', &item, &len);) {
        if (len == 0)
            continue;
        int sig = find_signal(item, len);
        if (sig == 0)
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "'%.*s' is not the name of a signal such as SIGTERM or SIGUSR1",
                                  (int)len, item);
        if (sig == SIGKILL || sig == SIGSTOP || sig == SIGCHLD)
            return ddpi_error_set(err, DDP_E_INVALID, "'%.*s' cannot be handled; leave it out",
                                  (int)len, item);
        sigaddset(&set, sig);
    }
    *ret_set = set;
    return DDP_OK;
}
