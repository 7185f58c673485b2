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
#include <sys/file.h>
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

static char *make_error_file(const struct logdir *logs, uint32_t attempt, uint32_t local_rank)
{
    char *path = error_file_of(logs, attempt, local_rank);
    ck_assert_int_eq(strncmp(path, logs->path, strlen(logs->path)), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0); /* no other attempt, rank or job has it */
    close(fd);
    return path;
}

START_TEST(error_files_go_away)
{
    struct logdir logs;
    char folder[64], other[80];
    snprintf(folder, sizeof folder, "%s/ddprun-%u", base, (unsigned)geteuid());
    open_ok(&logs, NULL, "job/with/slashes", false);
    ck_assert_str_eq(logs.path, folder);
    has_mode(folder, 0700);
    snprintf(other, sizeof other, "%s/other", folder);
    close(open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    for (uint32_t rank = 0; rank < 3; rank++)
        for (uint32_t attempt = 0; attempt < 2; attempt++)
            ddpi_free(make_error_file(&logs, attempt, rank));
    logdir_close(&logs);
    ck_assert_int_eq(unlink(other), 0);
    ck_assert_int_eq(rmdir(folder), 0); /* so it is empty */
}
END_TEST

START_TEST(jobs_of_one_user_share_a_folder)
{
    struct logdir first, second;
    open_ok(&first, NULL, "job", false);
    open_ok(&second, NULL, "job", false);
    ck_assert_str_eq(first.path, second.path);
    ddpi_free(make_error_file(&first, 0, 0));
    char *path = make_error_file(&second, 0, 0);
    logdir_close(&first);
    ck_assert_int_eq(access(path, F_OK), 0);
    logdir_close(&second);
    ck_assert_int_ne(access(path, F_OK), 0);
    ddpi_free(path);
}
END_TEST

static void uses_another_folder(const char *taken)
{
    struct logdir logs;
    open_ok(&logs, NULL, "job", false);
    ck_assert_str_ne(logs.path, taken);
    has_mode(logs.path, 0700);
    char *path = strdup(logs.path);
    ddpi_free(make_error_file(&logs, 0, 0));
    logdir_close(&logs);
    ck_assert_int_ne(access(path, F_OK), 0);
    free(path);
}

START_TEST(a_folder_that_others_may_read_is_not_used)
{
    char name[32], path[64];
    snprintf(name, sizeof name, "ddprun-%u", (unsigned)geteuid());
    snprintf(path, sizeof path, "%s/%s", base, name);
    make_link("/etc", name);
    uses_another_folder(path);
    ck_assert_int_eq(unlink(path), 0);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    uses_another_folder(path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    uses_another_folder(path);
    ck_assert_int_eq(chmod(path, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(path, 12345, 12345), 0);
        uses_another_folder(path);
        ck_assert_int_eq(chown(path, 0, 0), 0);
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0); /* systemd-tmpfiles does so before it removes it */
    uses_another_folder(path);
    close(fd);
    struct logdir logs;
    open_ok(&logs, NULL, "job", false);
    ck_assert_str_eq(logs.path, path);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ne(flock(fd, LOCK_EX | LOCK_NB), 0); /* systemd-tmpfiles sees that it is in use */
    close(fd);
    logdir_close(&logs);
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
    ck_assert_int_eq(logs.end, LOGDIR_CLEARED);
    logdir_close(&logs);
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
    char folder[64];
    snprintf(folder, sizeof folder, "%s/ddprun-%u", base, (unsigned)geteuid());
    ck_assert_int_eq(rmdir(folder), 0); /* so it is empty */
    ck_assert_int_eq(rmdir(base), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("logdir");
    TCase *tcase = tcase_create("logdir");
    tcase_add_checked_fixture(tcase, make_base, remove_base);
    ADD_TESTS(tcase, the_tree_is_torchruns, two_jobs_of_one_name_do_not_meet,
              latest_leads_to_the_last_job, what_else_is_called_latest_stays,
              a_trailing_slash_is_harmless, error_files_go_away, jobs_of_one_user_share_a_folder,
              a_folder_that_others_may_read_is_not_used, a_temporary_directory_with_logs_is_kept,
              an_empty_log_dir_is_none, dev_null_writes_nothing, what_cannot_be_made_is_named,
              a_tree_that_vanished_is_an_error, without_memory_nothing_is_left);
    suite_add_tcase(suite, tcase);
    return suite;
}
