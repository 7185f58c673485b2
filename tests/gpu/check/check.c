/*
 * check.c - runs tests as Check does: each in a child process, so that it begins with nothing of
 * the one before, in a process group that ends with this program. A test that hangs says where its
 * threads are and is killed after two minutes, or $DDP_TEST_LIMIT_S, as no runner watches a machine
 * without Check. Prints a line for each that fails, and a count. DDP_TEST_ONLY names the one test
 * to run.
 */
#include "check.h"

#include "stacks.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024, LIMIT_S = 120, LOOK_MS = 5 };

struct test {
    const TTest *test;
    int first, end;
};

struct TCase {
    const char *name;
    struct test tests[MOST];
    int count;
};

struct Suite {
    const char *name;
    TCase *tcases[MOST];
    int count;
};

struct SRunner {
    Suite *suite;
    enum fork_status fork_status;
    int run, failed;
};

static void *make(size_t size)
{
    void *made = calloc(1, size);
    if (made == NULL)
        abort();
    return made;
}

Suite *suite_create(const char *name)
{
    Suite *suite = make(sizeof *suite);
    suite->name = name;
    return suite;
}

void suite_add_tcase(Suite *suite, TCase *tcase)
{
    if (suite->count == MOST)
        abort();
    suite->tcases[suite->count++] = tcase;
}

TCase *tcase_create(const char *name)
{
    TCase *tcase = make(sizeof *tcase);
    tcase->name = name;
    return tcase;
}

void check_add(TCase *tcase, const TTest *test, int first, int end)
{
    if (tcase->count == MOST)
        abort();
    tcase->tests[tcase->count++] = (struct test){test, first, end};
}

SRunner *srunner_create(Suite *suite)
{
    SRunner *runner = make(sizeof *runner);
    runner->suite = suite;
    return runner;
}

void srunner_set_fork_status(SRunner *runner, enum fork_status status)
{
    runner->fork_status = status;
}

int srunner_ntests_failed(SRunner *runner)
{
    return runner->failed;
}

void srunner_free(SRunner *runner)
{
    for (int i = 0; i < runner->suite->count; i++)
        free(runner->suite->tcases[i]);
    free(runner->suite);
    free(runner);
}

void check_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    fflush(NULL);
    _exit(EXIT_FAILURE);
}

static int limit_s(void)
{
    const char *text = getenv("DDP_TEST_LIMIT_S");
    long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    return seconds > 0 && seconds < LIMIT_S ? (int)seconds : LIMIT_S;
}

/* Whether the child has ended within its time; if not it is killed. */
static bool await_end(pid_t pid, int *ret_status)
{
    int most_s = limit_s();
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    while (waitpid(pid, ret_status, WNOHANG) == 0) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - began.tv_sec > most_s) {
            stacks_print(pid);
            kill(-pid, SIGKILL);
            waitpid(pid, ret_status, 0);
            return false;
        }
        poll(NULL, 0, LOOK_MS);
    }
    kill(-pid, SIGKILL); /* whatever it has left behind */
    return true;
}

static bool await(pid_t pid)
{
    int status = -1;
    bool in_time = await_end(pid, &status);
    if (!in_time)
        fprintf(stderr, "not done in %d s\n", limit_s());
    else if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
    return in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run_forked(const TTest *test, int i)
{
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* who kills this program's group does not reach ours */
        if (getppid() != parent)
            _exit(EXIT_FAILURE);
        test->run(i);
        fflush(NULL);
        _exit(EXIT_SUCCESS);
    }
    setpgid(pid, pid);
    return await(pid);
}

static void run_test(SRunner *runner, const TCase *tcase, const TTest *test, int i)
{
    bool good = true;
    if (runner->fork_status == CK_NOFORK)
        test->run(i); /* a failure ends the program */
    else
        good = run_forked(test, i);
    runner->run++;
    runner->failed += !good;
    if (!good)
        printf("FAILED: %s, %s, %s(%d)\n", runner->suite->name, tcase->name, test->name, i);
}

void srunner_run_all(SRunner *runner, enum print_output output)
{
    const char *only = getenv("DDP_TEST_ONLY");
    (void)output;
    for (int t = 0; t < runner->suite->count; t++) {
        const TCase *tcase = runner->suite->tcases[t];
        for (int k = 0; k < tcase->count; k++) {
            if (only != NULL && strcmp(only, tcase->tests[k].test->name) != 0)
                continue;
            for (int i = tcase->tests[k].first; i < tcase->tests[k].end; i++)
                run_test(runner, tcase, tcase->tests[k].test, i);
        }
    }
    printf("%s: %d tests, %d failed\n", runner->suite->name, runner->run, runner->failed);
}
