/*
 * rights.h - what a test that root runs may do.
 */
#ifndef TESTS_RIGHTS_H
#define TESTS_RIGHTS_H

#include <stdbool.h>

/* Whether this process may signal those of others from now on; false: that cannot be changed. */
bool may_kill_others(bool on);

#endif
