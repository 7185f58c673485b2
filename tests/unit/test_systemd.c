/*
 * test_systemd.c - sockets handed over: the two variables; notifications: what arrives, and where
 * nobody listens.
 */
#include "check_main.h"
#include "systemd.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

START_TEST(descriptors)
{
    static const struct {
        const char *pid, *count;
        uint32_t expected;
    } rows[] = {
        {NULL, NULL, 0}, {"42", NULL, 0},  {NULL, "3", 0},  {"42", "3", 3},         {"43", "3", 0},
        {"42", "0", 0},  {"42", "64", 64}, {"43", "64", 0}, {"2147483647", "1", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t count = 99;
        ck_assert_int_eq(systemd_listen_fds(rows[i].pid, rows[i].count, 42, &count, NULL), DDP_OK);
        ck_assert_uint_eq(count, rows[i].expected);
    }
}
END_TEST

START_TEST(malformed_variables)
{
    static const struct {
        const char *pid, *count, *named;
    } rows[] = {
        {"", "1", "LISTEN_PID"},
        {"x", "1", "LISTEN_PID"},
        {"0", "1", "LISTEN_PID"},
        {"-42", "1", "LISTEN_PID"},
        {"42", "", "LISTEN_FDS"},
        {"42", "-1", "LISTEN_FDS"},
        {"42", "65", "LISTEN_FDS"},
        {"42", "1 ", "LISTEN_FDS"},
        {"99999999999999999999", "1", "LISTEN_PID"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint32_t count = 99;
        struct ddp_error err;
        ck_assert_int_eq(systemd_listen_fds(rows[i].pid, rows[i].count, 42, &count, &err),
                         DDP_E_INVALID);
        ck_assert_msg(strstr(err.msg, rows[i].named) != NULL, "%s", err.msg);
        ck_assert_uint_eq(count, 99);
    }
}
END_TEST

/* A manager that listens on @path, whose first byte is NUL for an abstract name. */
static int manager(const char *path, size_t len)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
                     0);
    return fd;
}

static void assert_received(int fd, const char *expected)
{
    char text[256] = "";
    ck_assert_int_eq(recv(fd, text, sizeof text, 0), (int)strlen(expected));
    ck_assert_str_eq(text, expected);
}

START_TEST(notifications_arrive)
{
    char folder[] = "/tmp/test_systemd_XXXXXX", path[64], name[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/notify", folder);
    int fd = manager(path, strlen(path));
    ck_assert_int_eq(systemd_notify(path, "READY=1", NULL), DDP_OK);
    assert_received(fd, "READY=1");
    close(fd);
    unlink(path);
    rmdir(folder);

    int len = snprintf(name, sizeof name, "@test_systemd_%d", getpid());
    name[0] = '\0';
    fd = manager(name, (size_t)len);
    name[0] = '@';
    ck_assert_int_eq(systemd_notify(name, "A=1\nB=2", NULL), DDP_OK);
    assert_received(fd, "A=1\nB=2");
    close(fd);
}
END_TEST

START_TEST(nobody_to_notify)
{
    ck_assert_int_eq(systemd_notify(NULL, "READY=1", NULL), DDP_OK);
    ck_assert_int_eq(systemd_notify("", "READY=1", NULL), DDP_OK);
    char longest[200];
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    static const char *const bad[] = {"relative", "/no/such/socket", "@nobody-is-there"};
    struct ddp_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_ne(systemd_notify(bad[i], "READY=1", &err), DDP_OK);
        ck_assert_msg(strstr(err.msg, bad[i]) != NULL, "%s", err.msg);
    }
    ck_assert_int_eq(systemd_notify(longest, "READY=1", &err), DDP_E_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("systemd");
    TCase *tcase = tcase_create("protocols");
    ADD_TESTS(tcase, descriptors, malformed_variables, notifications_arrive, nobody_to_notify);
    suite_add_tcase(suite, tcase);
    return suite;
}
