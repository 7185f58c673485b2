/*
 * test_endpoint_mark.c - marks in the directories that the environment names: for which addresses
 * they count, and for how long.
 */
#include "check_main.h"
#include "endpoint_mark.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PORT = 29999 };

static char dir[] = "/tmp/test_endpoint_mark_XXXXXX";
static char path[ENDPOINT_MARK_PATH];
static struct ddp_error err;

static void make_dir(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    unsetenv("RUNTIME_DIRECTORY");
    unsetenv("XDG_STATE_HOME");
    setenv("HOME", dir, 1);
    setenv("XDG_RUNTIME_DIR", dir, 1);
}

static void remove_dir(void)
{
    char command[128];
    static const char *const names[] = {"store-127.0.0.1:29999", "store-0.0.0.0:29999",
                                        "store-[::]:29999", "store-[::1]:29999"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command, "%s/ddprun/%s", dir, names[i]);
        unlink(command);
    }
    snprintf(command, sizeof command, "%s/ddprun", dir);
    rmdir(command);
    rmdir(dir);
}

START_TEST(it_is_found_until_it_is_removed)
{
    ck_assert(!endpoint_mark_find("127.0.0.1", PORT, path));
    ck_assert_msg(endpoint_mark_leave("127.0.0.1", PORT, &err) == DDP_OK, "%s", err.msg);
    ck_assert_int_eq(endpoint_mark_leave("127.0.0.1", PORT, &err), DDP_OK); /* again */
    ck_assert(endpoint_mark_find("127.0.0.1", PORT, path));
    ck_assert_ptr_nonnull(strstr(path, "/ddprun/store-127.0.0.1:29999"));
    ck_assert(!endpoint_mark_find("127.0.0.1", PORT + 1, path));
    ck_assert(!endpoint_mark_find("127.0.0.2", PORT, path));
    ck_assert(!endpoint_mark_find("::1", PORT, path));
    endpoint_mark_remove("127.0.0.1", PORT);
    ck_assert(!endpoint_mark_find("127.0.0.1", PORT, path));
}
END_TEST

START_TEST(everywhere_is_there_too)
{
    ck_assert_int_eq(endpoint_mark_leave("0.0.0.0", PORT, &err), DDP_OK);
    ck_assert(endpoint_mark_find("127.0.0.1", PORT, path));
    ck_assert(endpoint_mark_find("10.1.2.3", PORT, path));
    ck_assert(!endpoint_mark_find("::1", PORT, path));
    ck_assert_int_eq(endpoint_mark_leave("::", PORT, &err), DDP_OK);
    ck_assert(endpoint_mark_find("::1", PORT, path));
    ck_assert_ptr_nonnull(strstr(path, "/store-[::]:29999"));
}
END_TEST

START_TEST(what_is_anywhere_is_in_the_way_of_everywhere)
{
    static const char *const hosts[] = {"127.0.0.1", "::1", "0.0.0.0"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        ck_assert(!endpoint_mark_find("0.0.0.0", PORT, path));
        ck_assert_int_eq(endpoint_mark_leave(hosts[i], PORT, &err), DDP_OK);
        ck_assert(endpoint_mark_find("0.0.0.0", PORT, path));
        ck_assert_ptr_nonnull(strstr(path, hosts[i]));
        ck_assert(endpoint_mark_find("::", PORT, path));
        ck_assert(!endpoint_mark_find("0.0.0.0", PORT - 1, path));
        endpoint_mark_remove(hosts[i], PORT);
    }
}
END_TEST

START_TEST(what_is_no_mark_does_not_count)
{
    static const char *const texts[] = {"", "another start of the machine\n"};
    ck_assert_int_eq(endpoint_mark_leave("127.0.0.1", PORT, &err), DDP_OK);
    ck_assert(endpoint_mark_find("127.0.0.1", PORT, path));
    for (size_t i = 0; i < 2; i++) {
        int fd = open(path, O_WRONLY | O_TRUNC);
        ck_assert_int_eq(write(fd, texts[i], strlen(texts[i])), (ssize_t)strlen(texts[i]));
        close(fd);
        char found[ENDPOINT_MARK_PATH];
        ck_assert(!endpoint_mark_find("127.0.0.1", PORT, found));
    }
}
END_TEST

START_TEST(a_directory_that_cannot_be_made)
{
    setenv("XDG_RUNTIME_DIR", "/proc/nowhere", 1);
    ck_assert_int_eq(endpoint_mark_leave("127.0.0.1", PORT, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "/proc/nowhere"));
    ck_assert(!endpoint_mark_find("127.0.0.1", PORT, path));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("endpoint_mark");
    TCase *tcase = tcase_create("endpoint_mark");
    tcase_add_checked_fixture(tcase, make_dir, remove_dir);
    ADD_TESTS(tcase, it_is_found_until_it_is_removed, everywhere_is_there_too,
              what_is_anywhere_is_in_the_way_of_everywhere, what_is_no_mark_does_not_count,
              a_directory_that_cannot_be_made);
    suite_add_tcase(suite, tcase);
    return suite;
}
