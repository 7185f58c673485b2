/*
 * check_main.h - the main() of a Check program: it runs the suite that the test file returns. Also
 * what a test says that cannot run on this machine.
 */
#ifndef TESTS_CHECK_MAIN_H
#define TESTS_CHECK_MAIN_H

#include <check.h>
#include <stdbool.h>

/* Each test program defines it; the runner frees the suite. */
Suite *test_suite(void);

/* Instead of Check's own, which each assertion calls that holds: see passed.c. */
#define _mark_point passed_point

void passed_point(const char *file, int line);

/* Add each of the tests to @tcase. */
#define ADD_TESTS(tcase, ...) add_tests(tcase, (const TTest *const[]){__VA_ARGS__, NULL})

void add_tests(TCase *tcase, const TTest *const *tests);

/* Leave a test whose machine lacks something, which is named as by printf. */
#define SKIP(...)                        \
    do {                                 \
        say_skip(__func__, __VA_ARGS__); \
        return;                          \
    } while (0)

/* The same for the rest of a test: it says so and goes on. */
void say_skip(const char *test, const char *lacks, ...) __attribute__((format(printf, 2, 3)));

bool has_ipv6(void);

#endif
