/*
 * check_main.c - the main() of a Check program. Exits 0 when every test passed, 1 otherwise.
 *
 * The time limit of a case is there for those that hang, so it is far from what a case takes, also
 * with a sanitizer on a machine that is busy: 60 seconds, where Check's own is 4, and three times
 * what a suite asks for. meson limits the whole program.
 */
#include "check_main.h"

#include <stdlib.h>

int main(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "20", 0);
    setenv("CK_TIMEOUT_MULTIPLIER", "3", 0); /* times the default, too */
    SRunner *runner = srunner_create(test_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
