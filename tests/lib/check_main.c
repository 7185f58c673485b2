/*
 * check_main.c - the main() of a Check program. Exits 0 when every test passed, 1 otherwise.
 */
#include "check_main.h"

#include <stdlib.h>

int main(void)
{
    SRunner *runner = srunner_create(test_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
