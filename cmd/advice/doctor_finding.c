/*
 * doctor_finding.c - writes the two texts of a finding.
 */
#include "doctor_finding.h"

#include <stdarg.h>
#include <stdio.h>

void doctor_found(struct doctor_finding *ret, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ret->value, sizeof ret->value, format, args);
    va_end(args);
}

void doctor_advise(struct doctor_finding *ret, enum doctor_verdict verdict, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ret->fix, sizeof ret->fix, format, args);
    va_end(args);
    ret->verdict = verdict;
}
