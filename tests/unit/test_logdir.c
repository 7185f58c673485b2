/*
 * test_logdir.c - the tree of log files: layout, permissions, removal, and obstacles.
 */
#include "check_main.h"
#include "failmem.h"
#include "logdir.h"
#include "mem.h"
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char base[] = "/tmp/test_logdir_XXXXXX";

static void make_base(void)
{
    ck_assert_ptr_nonnull(mkdtemp(base));
    setenv("TMPDIR", base, 1);
}

static void remove_base(void)
{
    tree_remove(base);
}

static void has_mode(const char *path, mode_t mode)
{
    struct stat st;
    ck_assert_msg(stat(path, &st) == 0, "there is no '%s'", path);
    ck_assert_uint_eq(st.st_mode & 0777, mode);
}

static void open_ok(struct logdir *logs, const char *log_dir, const char *run_id, bool keep)
{
    struct ddp_error error = {0};
    ck_assert_msg(logdir_open(logs, log_dir, run_id, keep, &error) == DDP_OK, "%s", error.msg);
}

static char *error_file_of(const struct logdir *logs, uint32_t attempt, uint32_t local_rank)
{
    char *path = NULL;
    struct ddp_error error = {0};
    ck_assert_msg(logdir_worker(logs, attempt, local_rank, &path, &error) == DDP_OK, "%s",
                  error.msg);
    return path;
}

START_TEST(the_tree_is_torchruns)
{
    struct logdir logs;
    char wanted[128], *path = NULL;
    int fd = -1;
    snprintf(wanted, sizeof wanted, "%s/a/b", base);
    open_ok(&logs, wanted, "job.1", false);
    ck_assert_uint_eq(strlen(logs.path), strlen(wanted) + strlen("/job.1_XXXXXX"));
    snprintf(wanted, sizeof wanted, "%s/a/b/job.1_", base);
    ck_assert_int_eq(strncmp(logs.path, wanted, strlen(wanted)), 0);
    has_mode(logs.path, 0700);

    char *error_file = error_file_of(&logs, 2, 11);
    snprintf(wanted, sizeof wanted, "%s/attempt_2/11/error.json", logs.path);
    ck_assert_str_eq(error_file, wanted);
    ck_assert_int_ne(access(error_file, F_OK), 0);
    ddpi_free(error_file);
    snprintf(wanted, sizeof wanted, "%s/attempt_2/11", logs.path);
    has_mode(wanted, 0700);

    static const char *const names[] = {"stdout.log", "stderr.log"};
    for (int stream = 0; stream < 2; stream++) {
        ck_assert_int_eq(logdir_stream(&logs, 2, 11, stream, &path, &fd, NULL), DDP_OK);
        snprintf(wanted, sizeof wanted, "%s/attempt_2/11/%s", logs.path, names[stream]);
        ck_assert_str_eq(path, wanted);
        has_mode(path, 0600);
        ck_assert_int_ne(fcntl(fd, F_GETFL) & O_APPEND, 0);
        ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
        close(fd);
        ddpi_free(path);
    }
    ddpi_free(error_file_of(&logs, 2, 11)); /* it exists the second time */
    snprintf(wanted, sizeof wanted, "%s", logs.path);
    logdir_close(&logs);
    ck_assert_ptr_null(logs.path);
    has_mode(wanted, 0700); /* kept */
}
END_TEST

START_TEST(two_jobs_of_one_name_do_not_meet)
{
    struct logdir first, second;
    open_ok(&first, base, "same", false);
    open_ok(&second, base, "same", false);
    ck_assert_str_ne(first.path, second.path);
    logdir_close(&first);
    logdir_close(&second);
}
END_TEST

/* A new job below @base; false: "latest" there does not lead to its directory. */
static bool is_latest(void)
{
    struct logdir logs;
    struct stat latest, job;
    char link[64];
    snprintf(link, sizeof link, "%s/latest", base);
    open_ok(&logs, base, "job", false);
    ck_assert_int_eq(stat(logs.path, &job), 0);
    bool leads = stat(link, &latest) == 0 && latest.st_ino == job.st_ino;
    logdir_close(&logs);
    return leads;
}

static unsigned count_entries(void)
{
    unsigned count = 0;
    DIR *dir = opendir(base);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count - 2; /* without . and .. */
}

static void make_link(const char *target, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", base, name);
    (void)!unlink(path);
    ck_assert_int_eq(symlink(target, path), 0);
}

START_TEST(latest_leads_to_the_last_job)
{
    ck_assert(is_latest());
    ck_assert(is_latest());
    make_link("gone", "latest");
    ck_assert(is_latest());
    ck_assert_uint_eq(count_entries(), 4); /* three jobs, and nothing beside the link */
}
END_TEST

START_TEST(what_else_is_called_latest_stays)
{
    char path[64];
    snprintf(path, sizeof path, "%s/latest", base);
    make_link("/etc", "latest");
    ck_assert(!is_latest());
    make_link("../x", "latest");
    ck_assert(!is_latest());
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!is_latest());
    ck_assert_int_eq(rmdir(path), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(!is_latest());
    has_mode(path, 0600);
    ck_assert_uint_eq(count_entries(), 5);
}
END_TEST

START_TEST(a_trailing_slash_is_harmless)
{
    struct logdir logs;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s//x//", base);
    open_ok(&logs, wanted, "", false);
    has_mode(logs.path, 0700);
    logdir_close(&logs);
}
END_TEST

START_TEST(the_temporary_directory_goes_away)
{
    struct logdir logs;
    open_ok(&logs, NULL, "job/with/slashes", false);
    ck_assert_int_eq(strncmp(logs.path, base, strlen(base)), 0);
    has_mode(logs.path, 0700);
    char *path = strdup(logs.path);
    logdir_close(&logs);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(the_temporary_directory_goes_away_with_error_files)
{
    struct logdir logs;
    open_ok(&logs, NULL, "job", false);
    char *path = strdup(logs.path);
    for (uint32_t rank = 0; rank < 3; rank++)
        for (uint32_t attempt = 0; attempt < 2; attempt++) {
            char *error_file = error_file_of(&logs, attempt, rank);
            ck_assert_int_eq(strncmp(error_file, path, strlen(path)), 0);
            int fd = open(error_file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            ck_assert_int_ge(fd, 0); /* each attempt has a file of its own */
            close(fd);
            ddpi_free(error_file);
        }
    logdir_close(&logs);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(a_temporary_directory_with_logs_is_kept)
{
    struct logdir logs;
    open_ok(&logs, NULL, "job", true);
    char *path = strdup(logs.path);
    char *error_file = error_file_of(&logs, 0, 0);
    ck_assert_ptr_nonnull(strstr(error_file, "/attempt_0/0/error.json"));
    ddpi_free(error_file);
    logdir_close(&logs);
    ck_assert_int_eq(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(an_empty_log_dir_is_none)
{
    struct logdir logs;
    open_ok(&logs, "", "job", false);
    ck_assert_int_eq(strncmp(logs.path, base, strlen(base)), 0);
    char *path = strdup(logs.path);
    logdir_close(&logs);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}
END_TEST

START_TEST(dev_null_writes_nothing)
{
    struct logdir logs;
    open_ok(&logs, "/dev/null", "a/b", true);
    ck_assert_ptr_null(logs.path);
    char *error_file = error_file_of(&logs, 0, 0);
    ck_assert_str_eq(error_file, "");
    ddpi_free(error_file);
    logdir_close(&logs);
}
END_TEST

static void refused(const char *log_dir, const char *run_id, const char *in_sentence)
{
    struct logdir logs;
    struct ddp_error error = {0};
    ck_assert_int_ne(logdir_open(&logs, log_dir, run_id, false, &error), DDP_OK);
    ck_assert_msg(strstr(error.msg, in_sentence) != NULL, "'%s' lacks '%s'", error.msg,
                  in_sentence);
    ck_assert_msg(strstr(error.msg, "; ") != NULL, "'%s' lacks a remedy", error.msg);
    logdir_close(&logs);
}

START_TEST(what_cannot_be_made_is_named)
{
    char file[64], below[80];
    snprintf(file, sizeof file, "%s/file", base);
    snprintf(below, sizeof below, "%s/deeper", file);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    refused(file, "job", file);
    refused(below, "job", below);
    refused("/proc/1/logs", "job", "/proc/1/logs");
    refused(base, "a/b", "'a/b'");
    char long_id[300];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = '\0';
    refused(base, long_id, base);
    setenv("TMPDIR", below, 1);
    refused(NULL, "job", below);
}
END_TEST

START_TEST(a_tree_that_vanished_is_an_error)
{
    struct logdir logs;
    struct ddp_error error = {0};
    char *path = NULL;
    int fd = -1;
    open_ok(&logs, base, "job", false);
    ck_assert_int_eq(rmdir(logs.path), 0);
    ck_assert_int_ne(logdir_worker(&logs, 0, 0, &path, &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "attempt_0"));
    ck_assert_int_ne(logdir_stream(&logs, 0, 0, 1, &path, &fd, &error), DDP_OK);
    ck_assert_ptr_nonnull(strstr(error.msg, "stderr.log"));
    ck_assert_ptr_null(path);
    ck_assert_int_eq(fd, -1);
    logdir_close(&logs);
}
END_TEST

START_TEST(without_memory_nothing_is_left)
{
    bool complete = false;
    for (unsigned successes = 0; !complete; successes++) {
        struct logdir logs;
        char *error_file = NULL, *path = NULL;
        int fd = -1;
        failmem_start(successes);
        ddp_status status = logdir_open(&logs, NULL, "job", false, NULL);
        if (status == DDP_OK)
            status = logdir_worker(&logs, 0, 0, &error_file, NULL);
        if (status == DDP_OK) {
            status = logdir_stream(&(struct logdir){.path = base}, 0, 0, 0, &path, &fd, NULL);
            ck_assert_int_ne(status, DDP_OK); /* there is no such directory */
        }
        complete = !failmem_stop();
        if (!complete)
            ck_assert_int_eq(status, DDP_E_NOMEM);
        logdir_close(&logs);
        ddpi_free(error_file);
        ck_assert_ptr_null(path);
    }
    ck_assert_int_eq(rmdir(base), 0); /* so it is empty */
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("logdir");
    TCase *tcase = tcase_create("logdir");
    tcase_add_checked_fixture(tcase, make_base, remove_base);
    ADD_TESTS(tcase, the_tree_is_torchruns, two_jobs_of_one_name_do_not_meet,
              latest_leads_to_the_last_job, what_else_is_called_latest_stays,
              a_trailing_slash_is_harmless, the_temporary_directory_goes_away,
              the_temporary_directory_goes_away_with_error_files,
              a_temporary_directory_with_logs_is_kept, an_empty_log_dir_is_none,
              dev_null_writes_nothing, what_cannot_be_made_is_named,
              a_tree_that_vanished_is_an_error, without_memory_nothing_is_left);
    suite_add_tcase(suite, tcase);
    return suite;
}
