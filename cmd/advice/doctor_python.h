/*
 * doctor_python.h - the check of the Python that would run a script, and of its PyTorch.
 */
#ifndef CMD_DOCTOR_PYTHON_H
#define CMD_DOCTOR_PYTHON_H

#include "doctor_finding.h"

/* Starts that Python, and waits half a minute at most for what it says. */
void doctor_look_at_python(struct doctor_finding *ret);

/* The first number of the driver's version in /proc/driver/nvidia/version; 0: there is none. */
unsigned doctor_driver_of(const char *text);

/* Advise if a PyTorch for the release @cuda ("none": for none) and the driver do not go together.
 * @driver: the first number of its version; 0: there is none. */
void doctor_compare_driver(struct doctor_finding *ret, const char *cuda, unsigned driver);

#endif
