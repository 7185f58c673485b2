/*
 * test_keeper_ready.c - who may say that the keeper beside an agent is ready.
 */
#include "check_main.h"
#include "replicate.h"

#include <fcntl.h>
#include <grp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGER = 65534 };

static struct replicate replicate;
static char folder[] = "/tmp/ddprun_test_keeper_ready.XXXXXX", program[64], *path;

/* An empty ddprund in PATH: nothing starts it here. */
static void setup(void)
{
    struct ddprun_options options;
    struct ddpi_endpoints endpoints;
    const struct spawn_request *request;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(program, sizeof program, "%s/ddprund", folder);
    int fd = open(program, O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
    ck_assert_int_ge(fd, 0);
    close(fd);
    path = strdup(getenv("PATH"));
    ck_assert_int_eq(setenv("PATH", folder, 1), 0);
    ddprun_options_init(&options);
    options.replicate = true;
    ck_assert_int_eq(ddpi_parse_endpoints("a,b,c", &endpoints, NULL), DDP_OK);
    ck_assert_int_eq(replicate_plan(&replicate, &options, &endpoints, "job", NULL), DDP_OK);
    ck_assert_int_eq(replicate_open(&replicate, &request, NULL), DDP_OK);
    ck_assert_ptr_nonnull(request);
}

static void teardown(void)
{
    replicate_finish(&replicate);
    setenv("PATH", path, 1);
    free(path);
    unlink(program);
    rmdir(folder);
    memcpy(strrchr(folder, '.') + 1, "XXXXXX", 6);
}

/* As sd_notify(3) does. */
static void say(const char *text)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const char *at = strchr(replicate.notify_word, '@') + 1;
    memcpy(name.sun_path + 1, at, strlen(at));
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(at));
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sendto(fd, text, strlen(text), 0, (struct sockaddr *)&name, size) != (ssize_t)strlen(text))
        _exit(1);
    close(fd);
}

static void say_as_stranger(const char *text)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0)
            _exit(2);
        say(text);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}

START_TEST(a_process_of_this_user_says_it)
{
    ck_assert(!replicate_hears_ready(replicate.notify));
    say("READY=1");
    ck_assert(replicate_hears_ready(replicate.notify));
    ck_assert(!replicate_hears_ready(replicate.notify));
}
END_TEST

START_TEST(other_words_do_not_count)
{
    static const char *const words[] = {"", "READY=", "READY=0", "READY=1\n", "STATUS=READY=1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        say(words[i]);
        ck_assert(!replicate_hears_ready(replicate.notify));
    }
}
END_TEST

START_TEST(another_user_does_not_count)
{
    if (geteuid() != 0)
        SKIP("only root can become another user");
    say_as_stranger("READY=1");
    ck_assert(!replicate_hears_ready(replicate.notify));
    say("READY=1");
    ck_assert(replicate_hears_ready(replicate.notify));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("keeper_ready");
    TCase *tcase = tcase_create("keeper_ready");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_process_of_this_user_says_it, other_words_do_not_count,
              another_user_does_not_count);
    suite_add_tcase(suite, tcase);
    return suite;
}
