/*
 * doctor_finding.h - what a check of 'ddpctl doctor' has found, and what to do about it.
 */
#ifndef CMD_DOCTOR_FINDING_H
#define CMD_DOCTOR_FINDING_H

#include "status.h"

#include <stddef.h>

/* FAIL: jobs do not run here. WARN: they may be slower, or fail in a case that is named. */
enum doctor_verdict { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

enum { DOCTOR_TEXT = 512 };

struct doctor_finding {
    enum doctor_verdict verdict;
    char value[DOCTOR_TEXT]; /* what was found */
    char fix[DOCTOR_TEXT];   /* what to do; "" with DOCTOR_OK */
};

void doctor_found(struct doctor_finding *ret, const char *format, ...) DDP_PRINTF(2, 3);
void doctor_advise(struct doctor_finding *ret, enum doctor_verdict verdict, const char *format, ...)
    DDP_PRINTF(3, 4);

#endif
