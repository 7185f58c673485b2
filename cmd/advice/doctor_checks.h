/*
 * doctor_checks.h - what 'ddpctl doctor' looks at, one row a check. Each looks at this machine
 * alone, changes nothing, and waits for nothing but the resolver and Python.
 */
#ifndef CMD_DOCTOR_CHECKS_H
#define CMD_DOCTOR_CHECKS_H

#include "doctor_finding.h"

/* The last row has no name. */
extern const struct doctor_check {
    const char *name;
    void (*look)(struct doctor_finding *ret);
} doctor_checks[];

#endif
