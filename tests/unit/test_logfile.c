/*
 * test_logfile.c - lines as they are written, the rate, a pipe or a FIFO that nobody reads, and
 * opening the file again.
 */
#include "check_main.h"
#include "logfile.h"

#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t now_us;
static char folder[] = "/tmp/test_logfile_XXXXXX";
static char path[64];
static char text[256 * 1024];
static struct logfile file;

static uint64_t test_now(void *ctx)
{
    (void)ctx;
    return now_us;
}

static const struct ddpi_clock test_clock = {.now_us = test_now};

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    ck_assert_int_eq(logfile_open(&file, path, DDPI_LOG_INFO, &test_clock, NULL), DDP_OK);
}

static void teardown(void)
{
    logfile_close(&file);
    unlink(path);
    rmdir(folder);
}

static void read_log(const char *name)
{
    FILE *in = fopen(name, "r");
    ck_assert_ptr_nonnull(in);
    size_t len = fread(text, 1, sizeof text - 1, in);
    text[len] = '\0';
    fclose(in);
}

static size_t count_lines(void)
{
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    return lines;
}

START_TEST(a_line)
{
    ddpi_log(&file.log, DDPI_LOG_WARN, "refused %d", 7);
    ddpi_log(&file.log, DDPI_LOG_DEBUG, "below the level");
    read_log(path);
    regex_t wanted;
    ck_assert_int_eq(regcomp(&wanted,
                             "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                             "warning: refused 7\n$",
                             REG_EXTENDED | REG_NOSUB),
                     0);
    ck_assert_msg(regexec(&wanted, text, 0, NULL, 0) == 0, "%s", text);
    regfree(&wanted);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07, 0); /* not for everybody */
}
END_TEST

START_TEST(the_longest_line_stays_one)
{
    char words[3000];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    ddpi_log(&file.log, DDPI_LOG_INFO, "%s", words);
    read_log(path);
    ck_assert_uint_eq(count_lines(), 1);
    ck_assert_uint_gt(strlen(text), 1023);
}
END_TEST

START_TEST(the_rate_is_bounded)
{
    for (int i = 0; i < 3 * LOGFILE_BURST; i++)
        ddpi_log(&file.log, DDPI_LOG_INFO, "line");
    read_log(path);
    ck_assert_uint_eq(count_lines(), LOGFILE_BURST);
    ddpi_log(&file.log, DDPI_LOG_ERROR, "an error");
    read_log(path);
    ck_assert_ptr_nonnull(strstr(text, "warning: 400 lines of the log were left out\n"));
    ck_assert_ptr_nonnull(strstr(text, "error: an error\n"));

    now_us += 1000000;
    for (int i = 0; i < 3 * LOGFILE_RATE; i++)
        ddpi_log(&file.log, DDPI_LOG_INFO, "line");
    read_log(path);
    ck_assert_uint_eq(count_lines(), LOGFILE_BURST + 2 + LOGFILE_RATE);

    now_us += UINT64_C(3600) * 1000000; /* no more is saved up than a burst */
    for (int i = 0; i < 3 * LOGFILE_BURST; i++)
        ddpi_log(&file.log, DDPI_LOG_INFO, "line");
    read_log(path);
    ck_assert_uint_eq(count_lines(), LOGFILE_BURST + 2 + LOGFILE_RATE + 1 + LOGFILE_BURST);
    logfile_close(&file);
    read_log(path);
    ck_assert_ptr_nonnull(strstr(text, "400 lines of the log were left out\n"));
}
END_TEST

START_TEST(a_file_that_was_moved_away)
{
    char moved[80];
    snprintf(moved, sizeof moved, "%s.1", path);
    ddpi_log(&file.log, DDPI_LOG_INFO, "one");
    ck_assert_int_eq(rename(path, moved), 0);
    ddpi_log(&file.log, DDPI_LOG_INFO, "two");
    ck_assert_int_eq(logfile_reopen(&file, NULL), DDP_OK);
    ddpi_log(&file.log, DDPI_LOG_INFO, "three");
    read_log(moved);
    ck_assert_uint_eq(count_lines(), 2);
    read_log(path);
    ck_assert_uint_eq(count_lines(), 1);
    ck_assert_ptr_nonnull(strstr(text, "three"));
    unlink(moved);
}
END_TEST

START_TEST(a_file_that_cannot_be_opened_again)
{
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    struct ddp_error err;
    ck_assert_int_eq(logfile_reopen(&file, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    int fd = file.fd;
    ddpi_log(&file.log, DDPI_LOG_INFO, "still there");
    ck_assert_uint_eq(file.left_out, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
    rmdir(path);
}
END_TEST

START_TEST(a_pipe_that_nobody_reads)
{
    int ends[2], saved = dup(STDERR_FILENO);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    struct logfile pipe_log;
    ck_assert_int_eq(logfile_open(&pipe_log, NULL, DDPI_LOG_INFO, &test_clock, NULL), DDP_OK);
    char words[1000];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    for (int i = 0; i < LOGFILE_BURST; i++) /* three times what a pipe holds; it must not block */
        ddpi_log(&pipe_log.log, DDPI_LOG_INFO, "%s", words);
    ck_assert_uint_gt(pipe_log.left_out, 0);
    ck_assert_int_gt(read(ends[0], text, sizeof text), 0);
    ddpi_log(&pipe_log.log, DDPI_LOG_ERROR, "last");
    ck_assert_uint_eq(pipe_log.left_out, 0);
    ssize_t len = read(ends[0], text, sizeof text - 1);
    ck_assert_int_gt(len, 0);
    text[len] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "were left out"));
    ck_assert_int_eq(logfile_reopen(&pipe_log, NULL), DDP_OK);
    logfile_close(&pipe_log);
    dup2(saved, STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    close(saved);
}
END_TEST

/* Nothing of it waits: neither to be opened, at first or again, nor to be written. */
START_TEST(a_fifo_that_nobody_reads)
{
    char name[80];
    snprintf(name, sizeof name, "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(name, 0600), 0);
    struct logfile fifo;
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(logfile_open(&fifo, name, DDPI_LOG_INFO, &test_clock, NULL), DDP_OK);
    ddpi_log(&fifo.log, DDPI_LOG_INFO, "lost");
    ck_assert_int_eq(logfile_reopen(&fifo, NULL), DDP_OK);
    ddpi_log(&fifo.log, DDPI_LOG_INFO, "lost");
    ck_assert_uint_eq(fifo.left_out, 2);

    for (int reader = 0; reader < 2; reader++) {
        int end = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        ck_assert_int_ge(end, 0);
        ddpi_log(&fifo.log, DDPI_LOG_INFO, "seen");
        ssize_t len = read(end, text, sizeof text - 1);
        ck_assert_int_gt(len, 0);
        text[len] = '\0';
        ck_assert_ptr_nonnull(strstr(text, reader == 0 ? "2 lines" : "1 lines"));
        ck_assert_ptr_nonnull(strstr(text, "info: seen\n"));
        ck_assert_int_eq(logfile_reopen(&fifo, NULL), DDP_OK); /* it has a reader */
        close(end);
        ddpi_log(&fifo.log, DDPI_LOG_INFO, "lost");
        ck_assert_uint_eq(fifo.left_out, 1);
    }
    logfile_close(&fifo);
    unlink(name);
}
END_TEST

START_TEST(a_file_in_no_directory)
{
    struct logfile none = {.fd = 77};
    struct ddp_error err;
    ck_assert_int_eq(logfile_open(&none, "/no/such/folder/log", DDPI_LOG_INFO, &test_clock, &err),
                     DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "'/no/such/folder/log'"));
    ck_assert_int_eq(none.fd, 77);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("logfile");
    TCase *tcase = tcase_create("lines");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_line, the_longest_line_stays_one, the_rate_is_bounded,
              a_file_that_was_moved_away, a_file_that_cannot_be_opened_again,
              a_pipe_that_nobody_reads, a_fifo_that_nobody_reads, a_file_in_no_directory);
    suite_add_tcase(suite, tcase);
    return suite;
}
