/*
 * check_main.c - the main() of a Check program. Exits 0 when every test passed, 1 otherwise.
 *
 * A test has no time limit, as a machine may be slow or busy. The runner of the tests ends a
 * program that does nothing any more (tests/runner).
 */
#include "check_main.h"

#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void add_tests(TCase *tcase, const TTest *const *tests)
{
    for (; *tests != NULL; tests++)
        tcase_add_test(tcase, *tests);
}

/* Check's START_TEST() appends to a test's name. */
static int name_len(const char *test)
{
    static const char appended[] = "_fn";
    size_t len = strlen(test), more = sizeof appended - 1;
    return (int)(len > more && strcmp(test + len - more, appended) == 0 ? len - more : len);
}

void say_skip(const char *test, const char *lacks, ...)
{
    va_list args;
    va_start(args, lacks);
    printf("skipped: %.*s: ", name_len(test), test);
    vprintf(lacks, args);
    putchar('\n');
    fflush(stdout); /* the test may end without */
    va_end(args);
}

bool has_ipv6(void)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    return can;
}

int main(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "0", 1);
    SRunner *runner = srunner_create(test_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
