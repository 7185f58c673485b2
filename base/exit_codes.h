/*
 * exit_codes.h - the codes with which ddprun, ddprund and ddpctl end, next to a worker's own code
 * and 128+N for its signal. docs/man/ddprun.1.in promises them to schedulers and scripts. The
 * numbers from 64 to 78 have the meaning that sysexits.h gives them.
 */
#ifndef BASE_EXIT_CODES_H
#define BASE_EXIT_CODES_H

enum {
    EXIT_FAILED = 1, /* no better code is known */
    EXIT_USAGE = 2,
    EXIT_UNREACHABLE = 69, /* a store, a host, the launcher */
    EXIT_TRY_AGAIN = 75,   /* too few nodes in time: the same may succeed later */
    EXIT_REFUSED = 77,     /* the token is another one */
    EXIT_CONFIG = 78,      /* the job cannot run on this machine */
    EXIT_CRASH_LOOP = 93,
    EXIT_LEFT = 130,    /* as by SIGINT */
    EXIT_STOPPED = 143, /* as by SIGTERM */
};

#endif
