/*
 * test_host.c - what this machine answers: workers, ports, names.
 */
#include "check_main.h"
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ddp_error error;

START_TEST(numbers_of_workers)
{
    uint32_t nproc = 0;
    cpu_set_t cpus;
    ck_assert_int_eq(host_count_workers("8", &nproc, &error), DDP_OK);
    ck_assert_uint_eq(nproc, 8);
    ck_assert_int_eq(host_count_workers("cpu", &nproc, &error), DDP_OK);
    ck_assert_int_eq(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    ck_assert_uint_eq(nproc, (uint32_t)CPU_COUNT(&cpus));
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    ck_assert_int_eq(host_count_workers("auto", &nproc, &error), DDP_OK);
    ck_assert_uint_eq(nproc, (uint32_t)CPU_COUNT(&cpus));
}
END_TEST

START_TEST(what_is_no_number_of_workers)
{
    static const char *const texts[] = {"0", "-3", "4x", "99999999999", "", "4097", " 4", "CPU"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint32_t nproc = 77;
        char quoted[32];
        snprintf(quoted, sizeof quoted, "'%s'", texts[i]);
        ck_assert_int_eq(host_count_workers(texts[i], &nproc, &error), DDP_E_INVALID);
        ck_assert_uint_eq(nproc, 77);
        ck_assert_int_eq(host_check_workers(texts[i], &error), DDP_E_INVALID);
        ck_assert_ptr_nonnull(strstr(error.msg, quoted));
        ck_assert_ptr_nonnull(strstr(error.msg, "from 1 to 4096"));
    }
    uint32_t nproc;
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    ck_assert_int_eq(host_check_workers("gpu", &error), DDP_OK);
    ck_assert_int_eq(host_count_workers("gpu", &nproc, &error), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(error.msg, "'cpu'"));
}
END_TEST

static int bound_socket(uint16_t port)
{
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    return fd;
}

START_TEST(a_reserved_port_is_there_for_a_worker)
{
    int fd = -1;
    uint16_t port = 0;
    ck_assert_int_eq(host_reserve_port(0, &fd, &port, &error), DDP_OK);
    ck_assert_uint_gt(port, 0);
    int worker = bound_socket(port);

    /* While somebody listens it cannot be had, and the sentence says what to do. */
    int second = -1;
    ck_assert_int_ne(host_reserve_port(port, &second, &port, &error), DDP_OK);
    ck_assert_int_eq(error.sys_errno, EADDRINUSE);
    ck_assert_ptr_nonnull(strstr(error.msg, "; choose another --master-port"));
    ck_assert_int_eq(second, -1);
    close(worker);
    close(fd);
}
END_TEST

START_TEST(names)
{
    char host[256], first[HOST_UUID_SIZE], second[HOST_UUID_SIZE];
    host_name(host, sizeof host);
    ck_assert_uint_gt(strlen(host), 0);
    ck_assert_ptr_null(strchr(host, '.'));
    host_random_uuid(first);
    host_random_uuid(second);
    ck_assert_uint_eq(strlen(first), HOST_UUID_SIZE - 1);
    ck_assert_int_eq(first[14], '4'); /* the version */
    ck_assert_str_ne(first, second);
}
END_TEST

START_TEST(descriptors_that_were_closed)
{
    close(STDIN_FILENO);
    close(STDERR_FILENO);
    ck_assert_int_eq(host_ensure_stdio(), 0);
    ck_assert_int_gt(dup(STDIN_FILENO), STDERR_FILENO);
}
END_TEST

START_TEST(files_are_to_be_had_up_to_the_hard_limit)
{
    const struct rlimit small = {8, 20};
    struct rlimit before, now;
    uint32_t room = 0;
    for (int fd = 0; fd < 20; fd++)
        room += fcntl(fd, F_GETFD) < 0;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &small), 0);
    ck_assert_int_eq(host_need_files(room, &before, &error), DDP_OK);
    ck_assert_uint_eq(before.rlim_cur, 8);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &now), 0);
    ck_assert_uint_eq(now.rlim_cur, 20);
    int fd = dup(0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(host_need_files(room, NULL, &error), DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.msg, "the limit on open files, 20, leaves room for only"));
    close(fd);
    ck_assert_int_eq(host_need_files(room, NULL, &error), DDP_OK);
}
END_TEST

/* How many descriptors the kernel's table has room for. */
static unsigned long room_for_files(void)
{
    static const char label[] = "\nFDSize:";
    char text[4096] = "";
    FILE *status = fopen("/proc/self/status", "re");
    ck_assert_ptr_nonnull(status);
    (void)!fread(text, 1, sizeof text - 1, status);
    fclose(status);
    const char *at = strstr(text, label);
    ck_assert_ptr_nonnull(at);
    return strtoul(at + strlen(label), NULL, 10);
}

START_TEST(there_is_room_for_files)
{
    const unsigned long before = room_for_files();
    int next = dup(0);
    close(next);
    host_make_room_for_files((uint32_t)before);
    ck_assert_uint_gt(room_for_files(), before);
    ck_assert_int_eq(dup(0), next); /* and none is open */
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("host");
    TCase *tcase = tcase_create("host");
    ADD_TESTS(tcase, numbers_of_workers, what_is_no_number_of_workers,
              a_reserved_port_is_there_for_a_worker, names, descriptors_that_were_closed,
              files_are_to_be_had_up_to_the_hard_limit, there_is_room_for_files);
    suite_add_tcase(suite, tcase);
    return suite;
}
