/*
 * check_main.h - the main() of a Check program: it runs the suite that the test file returns.
 */
#ifndef TESTS_CHECK_MAIN_H
#define TESTS_CHECK_MAIN_H

#include <check.h>

/* Each test program defines it; the runner frees the suite. */
Suite *test_suite(void);

#endif
