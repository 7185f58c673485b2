/*
 * check_main.c - the main() of a Check program. Exits 0 when every test passed, 1 otherwise.
 *
 * A test has no time limit, as a machine may be slow or busy. The runner of the tests ends a
 * program that does nothing any more (tests/runner).
 */
#include "check_main.h"

#include <stdlib.h>

int main(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "0", 1);
    SRunner *runner = srunner_create(test_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
