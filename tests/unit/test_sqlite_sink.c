/*
 * test_sqlite_sink.c - what only the sink of SQLite has: whose file it is, and what is refused with
 * a sentence as it is no state. Cases of every sink are in test_sinks.c.
 */
#include "check_main.h"
#include "sink_fixture.h"
#include "sqlite_sink.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct ddp_error why;

START_TEST(an_incarnation_belongs_to_the_file)
{
    sink_begin(&ddpi_kv_limits_default);
    uint64_t first = sink_restored.incarnation;
    sink_end();
    ck_assert_int_eq(unlink(sink_file), 0);
    sink_begin(&ddpi_kv_limits_default);
    ck_assert_uint_ne(sink_restored.incarnation, first);
    sink_end();
}
END_TEST

/* ---- what is refused ---- */

static void assert_refused(ddp_status status, const char *text)
{
    struct ddpi_sqlite_sink *none = NULL;
    ck_assert_int_eq(ddpi_sqlite_sink_open(sink_file, &none, &why), status);
    ck_assert_ptr_null(none);
    ck_assert_msg(strstr(why.msg, sink_file) != NULL && strstr(why.msg, text) != NULL, "%s",
                  why.msg);
}

static void write_file(const char *text, size_t len)
{
    int fd = open(sink_file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, len), (int)len);
    close(fd);
}

static void execute(const char *text)
{
    sqlite3 *db;
    char *message = NULL;
    ck_assert_int_eq(sqlite3_open(sink_file, &db), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(db, text, NULL, NULL, &message) == SQLITE_OK, "%s", message);
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

START_TEST(what_is_no_state_is_refused)
{
    char garbage[4096];
    memset(garbage, 'x', sizeof garbage);
    write_file(garbage, sizeof garbage);
    assert_refused(DDP_E_PROTOCOL, "is damaged, or something else");
    write_file(garbage, 1);
    assert_refused(DDP_E_PROTOCOL, "has a single byte");
    unlink(sink_file);
    execute("CREATE TABLE t (a)");
    assert_refused(DDP_E_PROTOCOL, "no state of a ddprun store");
    unlink(sink_file);
    sink_begin(&ddpi_kv_limits_default);
    sink_end();
    execute("PRAGMA user_version = 99");
    assert_refused(DDP_E_PROTOCOL, "has the format 99");
    unlink(sink_file);
    ck_assert_int_eq(mkdir(sink_file, 0700), 0);
    assert_refused(DDP_E_SYSTEM, "directory");
    ck_assert_int_eq(rmdir(sink_file), 0);
    ck_assert_int_eq(mkfifo(sink_file, 0600), 0);
    assert_refused(DDP_E_INVALID, "not a regular file");
    ck_assert_int_eq(unlink(sink_file), 0);
    ck_assert_int_eq(symlink("/dev/null", sink_file), 0);
    assert_refused(DDP_E_SYSTEM, "cannot open");
}
END_TEST

START_TEST(an_emptied_file_is_told_from_a_new_one)
{
    struct ddpi_sqlite_sink *state = NULL;
    for (unsigned i = 0; i < 3; i++) {
        if (i == 1)
            write_file("", 0);
        ck_assert_msg(ddpi_sqlite_sink_open(sink_file, &state, &why) == DDP_OK, "%s", why.msg);
        ck_assert(ddpi_sqlite_sink_was_emptied(state) == (i == 1));
        ddpi_sqlite_sink_close(state);
    }
}
END_TEST

/* A child opens a fresh file, and is killed when it writes beyond @most bytes of any file. True: it
 * has opened it. */
static bool open_up_to(rlim_t most)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct ddpi_sqlite_sink *state = NULL;
        signal(SIGXFSZ, SIG_DFL);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){most, most});
        _exit(ddpi_sqlite_sink_open(sink_file, &state, &why) == DDP_OK ? 0 : 1);
    }
    int how;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFSIGNALED(how) ? WTERMSIG(how) == SIGXFSZ : WEXITSTATUS(how) == 0);
    return WIFEXITED(how);
}

START_TEST(a_first_start_that_is_killed_is_no_damage)
{
    unsigned killed = 0;
    bool opened = false;
    for (rlim_t most = 512; !opened; most += 1024) {
        struct ddpi_sqlite_sink *state = NULL;
        opened = open_up_to(most);
        ddp_status status = ddpi_sqlite_sink_open(sink_file, &state, &why);
        ck_assert_msg(status == DDP_OK, "after %llu bytes: %s", (unsigned long long)most, why.msg);
        ddpi_sqlite_sink_close(state);
        ck_assert_int_eq(unlink(sink_file), 0); /* nothing else is left */
        killed += !opened;
    }
    ck_assert_uint_gt(killed, 8); /* the file has more pages than one */
}
END_TEST

START_TEST(one_process_at_a_time)
{
    sink_begin(&ddpi_kv_limits_default);
    struct ddpi_sqlite_sink *second = NULL;
    ck_assert_int_eq(ddpi_sqlite_sink_open(sink_file, &second, &why), DDP_E_DENIED);
    ck_assert_msg(strstr(why.msg, "another process") != NULL, "%s", why.msg);
    sink_end();
}
END_TEST

START_TEST(only_its_owner_may_read_it)
{
    struct stat status;
    mode_t old = umask(0);
    sink_begin(&ddpi_kv_limits_default);
    set("a", "1");
    sink_commit();
    umask(old);
    ck_assert_int_eq(stat(sink_file, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    sink_end();
}
END_TEST

START_TEST(damaged_rows_are_refused)
{
    static const char *const damages[] = {
        "DELETE FROM meta WHERE name = 'version'",
        "UPDATE keys SET version = 0",
        "INSERT INTO sessions VALUES (5, x'00', 10)",
        "INSERT INTO sessions VALUES (5, zeroblob(24), 10)",
        "INSERT INTO changes VALUES (3, 99, x'61', x'61')",
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        sink_begin(&ddpi_kv_limits_default);
        set("a", "1");
        sink_commit();
        sink_end();
        execute(damages[i]);
        ddp_status status = sink_try_begin(&ddpi_kv_limits_default, &why);
        ck_assert_msg(status == DDP_E_PROTOCOL, "%s: %d", damages[i], status);
        ck_assert_msg(strstr(why.msg, sink_file) != NULL, "%s", why.msg);
        sink_end();
        ck_assert_int_eq(unlink(sink_file), 0);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sqlite_sink");
    TCase *tcase = tcase_create("file");
    tcase_add_checked_fixture(tcase, sink_in_sqlite.setup, sink_in_sqlite.teardown);
    ADD_TESTS(tcase, an_incarnation_belongs_to_the_file, what_is_no_state_is_refused,
              an_emptied_file_is_told_from_a_new_one, a_first_start_that_is_killed_is_no_damage,
              one_process_at_a_time, only_its_owner_may_read_it, damaged_rows_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
