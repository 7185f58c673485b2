/*
 * doctor_checks.h - what 'ddpctl doctor' looks at, one row a check. Each looks at this machine
 * alone, changes nothing, and waits for nothing but the resolver.
 */
#ifndef CMD_DOCTOR_CHECKS_H
#define CMD_DOCTOR_CHECKS_H

#include <stddef.h>

enum doctor_verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

enum { DOCTOR_TEXT = 512 };

struct doctor_finding {
    enum doctor_verdict verdict;
    char value[DOCTOR_TEXT]; /* what was found */
    char fix[DOCTOR_TEXT];   /* what to do; "" with DOCTOR_OK */
};

/* The last row has no name. */
extern const struct doctor_check {
    const char *name;
    void (*look)(struct doctor_finding *ret);
} doctor_checks[];

#endif
