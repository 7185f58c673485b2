/*
 * test_report.c - the failure report, word for word.
 */
#include "check_main.h"
#include "failmem.h"
#include "report.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Wait statuses, as the kernel makes them. */
#define EXITED(code) ((code) << 8)
#define KILLED(sig)  (sig)
#define DUMPED(sig)  ((sig) | 0x80)

static const struct report_worker plain_root = {
    .rank = 3,
    .local_rank = 1,
    .pid = 4242,
    .wait_status = EXITED(7),
    .ran_us = 12345678,
};

static char *text_of(const struct report_worker *root, const struct report_worker *others,
                     size_t others_count)
{
    const struct report report = {
        .host = "node1", .root = root, .others = others, .others_count = others_count};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024 * 1024);
    ck_assert(report_failure(&report, &out));
    char *text = strndup((const char *)ddpi_buf_head(&out), ddpi_buf_len(&out));
    ddpi_buf_finish(&out);
    return text;
}

static void reports(const struct report_worker *root, const char *expected)
{
    char *text = text_of(root, NULL, 0);
    ck_assert_str_eq(text, expected);
    free(text);
}

static void cause_is(int wait_status, bool oom, const char *expected)
{
    char text[160];
    const struct report_worker worker = {.wait_status = wait_status, .oom = oom};
    report_cause(&worker, text, sizeof text);
    ck_assert_str_eq(text, expected);
}

START_TEST(causes)
{
    cause_is(EXITED(0), false, "exit code 0");
    cause_is(EXITED(255), false, "exit code 255");
    cause_is(KILLED(SIGKILL), false, "killed by SIGKILL (Killed)");
    cause_is(KILLED(SIGKILL), true, "killed by the kernel's out-of-memory killer (SIGKILL)");
    cause_is(KILLED(SIGTERM), true, "killed by SIGTERM (Terminated)");
    cause_is(EXITED(1), true, "exit code 1");
    cause_is(DUMPED(SIGSEGV), false, "killed by SIGSEGV (Segmentation fault), core dumped");
    cause_is(KILLED(SIGABRT), false, "killed by SIGABRT (Aborted)");
    cause_is(KILLED(40), false, "killed by SIGRTMIN+6 (unknown signal)");
}
END_TEST

START_TEST(a_silent_exit)
{
    reports(&plain_root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                         " (local rank 1, pid 4242, host node1)\n"
                         "  it wrote nothing to stderr\n"
                         "  its log: not kept; '--log-dir=DIR --tee=3' keeps one per rank\n");
}
END_TEST

START_TEST(colours_are_in_the_first_line_only)
{
    const struct report report = {.host = "node1", .root = &plain_root, .colours = true};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024 * 1024);
    ck_assert(report_failure(&report, &out) && ddpi_buf_put_u8(&out, '\0'));
    ck_assert_str_eq((const char *)ddpi_buf_head(&out),
                     "\033[1;31mddprun: rank 3 failed first: exit code 7\033[0m, after 12.3 s"
                     " (local rank 1, pid 4242, host node1)\n"
                     "  it wrote nothing to stderr\n"
                     "  its log: not kept; '--log-dir=DIR --tee=3' keeps one per rank\n");
    ddpi_buf_finish(&out);
}
END_TEST

START_TEST(times_have_a_fitting_unit)
{
    static const struct {
        uint64_t us;
        const char *text;
    } times[] = {{0, "after 0 us "},
                 {999, "after 999 us "},
                 {1000, "after 1.0 ms "},
                 {999900, "after 999.9 ms "},
                 {1000000, "after 1.0 s "},
                 {UINT64_C(3599) * 1000000, "after 3599.0 s "},
                 {UINT64_C(3600) * 1000000, "after 1 h 00 min "},
                 {UINT64_C(93784) * 1000000, "after 26 h 03 min "}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct report_worker root = plain_root;
        root.ran_us = times[i].us;
        char *text = text_of(&root, NULL, 0);
        ck_assert_msg(strstr(text, times[i].text) != NULL, "'%s' is not in: %s", times[i].text,
                      text);
        free(text);
    }
}
END_TEST

START_TEST(stderr_and_logs)
{
    static const char tail[] = "Traceback:\n  File \"x.py\"\nValueError: no\n";
    struct report_worker root = plain_root;
    root.wait_status = DUMPED(SIGSEGV);
    root.stderr_tail = tail;
    root.stderr_tail_len = sizeof tail - 1;
    root.stderr_log = "/logs/1/stderr.log";
    root.stdout_log = "/logs/1/stdout.log";
    reports(&root, "ddprun: rank 3 failed first: killed by SIGSEGV (Segmentation fault), core"
                   " dumped, after 12.3 s (local rank 1, pid 4242, host node1)\n"
                   "  its last lines of stderr:\n"
                   "  | Traceback:\n"
                   "  |   File \"x.py\"\n"
                   "  | ValueError: no\n"
                   "  its log: /logs/1/stderr.log\n"
                   "  its log: /logs/1/stdout.log\n");
    root.stderr_log = NULL;
    root.stderr_tail_len = 0;
    reports(&root, "ddprun: rank 3 failed first: killed by SIGSEGV (Segmentation fault), core"
                   " dumped, after 12.3 s (local rank 1, pid 4242, host node1)\n"
                   "  it wrote nothing to stderr\n"
                   "  its log: /logs/1/stdout.log\n");
}
END_TEST

/* The report of @root, with @tail as its last stderr, has @hint in it; NULL: no hint. */
static void hints(int wait_status, const char *tail, const char *interpreter, const char *hint)
{
    struct report_worker root = plain_root;
    root.wait_status = wait_status;
    root.stderr_tail = tail;
    root.stderr_tail_len = strlen(tail);
    const struct report report = {.host = "node1", .interpreter = interpreter, .root = &root};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024 * 1024);
    ck_assert(report_failure(&report, &out));
    char *text = strndup((const char *)ddpi_buf_head(&out), ddpi_buf_len(&out));
    ddpi_buf_finish(&out);
    const char *found = strstr(text, "  hint: ");
    if (hint == NULL)
        ck_assert_ptr_null(found);
    else
        ck_assert_msg(found != NULL && strstr(found, hint) != NULL, "'%s' lacks '%s'", text, hint);
    free(text);
}

START_TEST(what_an_end_most_likely_means)
{
    static const char terminate[] = "terminate called without an active exception\n";
    static const char module[] = "ModuleNotFoundError: No module named 'torch'\n";
    hints(KILLED(SIGABRT), terminate, NULL, "destroy_process_group()");
    hints(DUMPED(SIGABRT), terminate, "/usr/bin/python3", "destroy_process_group()");
    hints(KILLED(SIGSEGV), terminate, NULL, NULL);
    hints(KILLED(SIGABRT), "terminate called after throwing", NULL, NULL);
    hints(EXITED(1), module, "/usr/bin/python3", "this one was /usr/bin/python3\n");
    hints(EXITED(1), module, NULL, NULL);
    hints(KILLED(SIGKILL), module, "/usr/bin/python3", NULL);
    hints(EXITED(1), "", "/usr/bin/python3", NULL);
}
END_TEST

START_TEST(what_is_known_of_gpus_comes_first)
{
    static const char faults[] = "  Xid 79\n  Xid 45\n";
    struct report_worker root = plain_root;
    root.gpus = "GPU 3 (NVIDIA H200, GPU-8a56a4bc)";
    const struct report report = {
        .host = "node1", .root = &root, .gpu_faults = faults, .gpu_faults_len = sizeof faults - 1};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024 * 1024);
    ck_assert(report_failure(&report, &out));
    char *text = strndup((const char *)ddpi_buf_head(&out), ddpi_buf_len(&out));
    ddpi_buf_finish(&out);
    ck_assert_ptr_nonnull(strstr(text, "host node1)\n"
                                       "  its GPU: GPU 3 (NVIDIA H200, GPU-8a56a4bc)\n"
                                       "  Xid 79\n"
                                       "  Xid 45\n"
                                       "  it wrote nothing to stderr\n"));
    free(text);
}
END_TEST

START_TEST(the_traceback_is_preferred_to_the_message)
{
    struct report_worker root = plain_root;
    root.error_message = "ValueError: no";
    root.stdout_log = "log";
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  the error that it recorded:\n"
                   "  | ValueError: no\n"
                   "  it wrote nothing to stderr\n"
                   "  its log: log\n");
    root.error_traceback = "Traceback:\nValueError: no";
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  the error that it recorded:\n"
                   "  | Traceback:\n"
                   "  | ValueError: no\n"
                   "  it wrote nothing to stderr\n"
                   "  its log: log\n");
}
END_TEST

/* The interpreter has printed it, too. */
START_TEST(a_traceback_is_shown_once)
{
    static const char tail[] = "a warning\n"
                               "[rank3]: Traceback (most recent call last):\n"
                               "[rank3]:   outside\n"
                               "[rank3]:   inside\n"
                               "[rank3]: ValueError: no\n"
                               "bye\n";
    struct report_worker root = plain_root;
    root.error_traceback = "Traceback (most recent call last):\n  inside\nValueError: no\n";
    root.error_message = "ValueError: no";
    root.stdout_log = "log";
    root.stderr_tail = tail;
    root.stderr_tail_len = sizeof tail - 1;
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  the error that it recorded:\n"
                   "  | Traceback (most recent call last):\n"
                   "  |   inside\n"
                   "  | ValueError: no\n"
                   "  its last lines of stderr, without that:\n"
                   "  | a warning\n"
                   "  | bye\n"
                   "  its log: log\n");
    root.stderr_tail = tail + strlen("a warning\n");
    root.stderr_tail_len = sizeof tail - 1 - strlen("a warning\n") - strlen("bye\n");
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  the error that it recorded:\n"
                   "  | Traceback (most recent call last):\n"
                   "  |   inside\n"
                   "  | ValueError: no\n"
                   "  its log: log\n");
}
END_TEST

/* What a worker wrote cannot move the cursor, colour the screen or rewrite lines. */
static void quotes(const char *tail, size_t len, const char *quoted)
{
    struct report_worker root = plain_root;
    root.stderr_tail = tail;
    root.stderr_tail_len = len;
    char *text = text_of(&root, NULL, 0);
    char *begin = strstr(text, "  | ");
    char *end = strstr(text, "  its log");
    ck_assert_ptr_nonnull(begin);
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    ck_assert_str_eq(begin, quoted);
    free(text);
}

START_TEST(control_characters_are_spelled_out)
{
    quotes("\x1b[31mred\x07\n", 9, "  | \\x1b[31mred\\x07\n");
    quotes("a\0b\x7f", 4, "  | a\\x00b\\x7f\n");
    quotes("tab\tstays\r\n", 11, "  | tab\tstays\n");
    quotes("50%\r60%\n", 8, "  | 50%60%\n");
    quotes("gr\xc3\xbc\xc3\x9f\n", 7, "  | gr\xc3\xbc\xc3\x9f\n");
    quotes("csi\xc2\x9b"
           "31m nel\xc2\x85"
           "nbsp\xc2\xa0.\xc2",
           22, "  | csi\\x9b31m nel\\x85nbsp\xc2\xa0.\xc2\n");
    quotes("csi\x9b"
           "31m dash\xe2\x80\x94.",
           16, "  | csi\\x9b31m dash\xe2\x80\x94.\n");
    quotes("\n\n", 2, "  | \n  | \n");
}
END_TEST

START_TEST(the_note_cannot_drive_the_terminal)
{
    struct report_worker root = plain_root;
    root.error_file_note = "'e.json' is not JSON: invalid token near '\x1b'";
    root.stdout_log = "log";
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  note: 'e.json' is not JSON: invalid token near '\\x1b'\n"
                   "  it wrote nothing to stderr\n"
                   "  its log: log\n");
}
END_TEST

START_TEST(a_full_disk_may_have_taken_the_words)
{
    struct report_worker root = plain_root;
    root.stderr_log = "log";
    root.log_full = true;
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  what it wrote to stderr may be lost: the file system of its log has no space "
                   "left\n"
                   "  its log: log\n");
    root.stderr_tail = "some\n";
    root.stderr_tail_len = 5;
    char *text = text_of(&root, NULL, 0);
    ck_assert_ptr_nonnull(strstr(text, "no space left\n  its last lines of stderr:\n  | some\n"));
    free(text);
}
END_TEST

START_TEST(a_child_may_have_had_no_memory)
{
    struct report_worker root = plain_root;
    root.oom_others = 1;
    reports(&root, "ddprun: rank 3 failed first: exit code 7, after 12.3 s"
                   " (local rank 1, pid 4242, host node1)\n"
                   "  the kernel's out-of-memory killer has killed 1 other process since the "
                   "start, perhaps one of this rank\n"
                   "  it wrote nothing to stderr\n"
                   "  its log: not kept; '--log-dir=DIR --tee=3' keeps one per rank\n");
}
END_TEST

START_TEST(only_the_last_lines_are_shown)
{
    char tail[30 * 3], expected[30 * 7];
    size_t len = 0, shown = 0;
    for (int i = 0; i < 30; i++) {
        char line[4] = {(char)('0' + i / 10), (char)('0' + i % 10), '\n', '\0'};
        memcpy(tail + len, line, 3);
        len += 3;
        if (i >= 10) {
            memcpy(expected + shown, "  | ", 4);
            memcpy(expected + shown + 4, line, 3);
            shown += 7;
        }
    }
    expected[shown] = '\0';
    quotes(tail, len, expected);
}
END_TEST

START_TEST(a_very_long_line_is_cut)
{
    static char tail[2500];
    memset(tail, 'x', sizeof tail);
    struct report_worker root = plain_root;
    root.stderr_tail = tail;
    root.stderr_tail_len = sizeof tail;
    char *text = text_of(&root, NULL, 0);
    ck_assert_ptr_nonnull(strstr(text, "xxx ... (2100 bytes more)\n"));
    ck_assert_uint_lt(strlen(text), 700);
    free(text);
}
END_TEST

/* A path may have PATH_MAX bytes; the next text still begins on a line of its own. */
START_TEST(a_very_long_path_keeps_its_end)
{
    char path[4000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct report_worker root = plain_root;
    root.stderr_log = path;
    char *text = text_of(&root, NULL, 0);
    ck_assert_ptr_nonnull(strstr(text, path));
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    free(text);
}
END_TEST

START_TEST(consequences_follow_in_the_order_given)
{
    const struct report_worker others[] = {
        {.rank = 2, .pid = 12, .wait_status = EXITED(1), .after_root_us = 800},
        {.rank = 0,
         .pid = 10,
         .wait_status = KILLED(SIGTERM),
         .by_us = true,
         .after_root_us = 1500},
        {.rank = 1,
         .pid = 11,
         .wait_status = KILLED(SIGKILL),
         .by_us = true,
         .forced = true,
         .after_root_us = 30000000},
    };
    struct report_worker root = plain_root;
    root.wait_status = KILLED(SIGKILL);
    root.oom = true;
    char *text = text_of(&root, others, 3);
    ck_assert_str_eq(text,
                     "ddprun: rank 3 failed first: killed by the kernel's out-of-memory killer"
                     " (SIGKILL), after 12.3 s (local rank 1, pid 4242, host node1)\n"
                     "  it wrote nothing to stderr\n"
                     "  its log: not kept; '--log-dir=DIR --tee=3' keeps one per rank\n"
                     "  then rank 2: exited by itself, exit code 1, 800 us later (pid 12)\n"
                     "  then rank 0: stopped by ddprun, killed by SIGTERM (Terminated), 1.5 ms"
                     " later (pid 10)\n"
                     "  then rank 1: did not stop in time, killed by SIGKILL (Killed), 30.0 s"
                     " later (pid 11)\n");
    free(text);
}
END_TEST

/* The others may have waited for one that was done. */
START_TEST(who_ended_well_before_is_named)
{
    const struct report_worker earlier[] = {{.rank = 1, .pid = 11, .before_root_us = 3100},
                                            {.rank = 0, .pid = 10, .before_root_us = 2000000}};
    const struct report_worker other = {.rank = 2, .pid = 12, .wait_status = EXITED(1)};
    const struct report report = {.host = "node1",
                                  .root = &plain_root,
                                  .earlier = earlier,
                                  .earlier_count = 2,
                                  .others = &other,
                                  .others_count = 1};
    struct ddpi_buf out;
    ddpi_buf_init(&out, 1024 * 1024);
    ck_assert(report_failure(&report, &out) && ddpi_buf_put_u8(&out, '\0'));
    ck_assert_ptr_nonnull(
        strstr((const char *)ddpi_buf_head(&out),
               "keeps one per rank\n"
               "  before that rank 1 ended with exit code 0, 3.1 ms earlier (pid 11)\n"
               "  before that rank 0 ended with exit code 0, 2.0 s earlier (pid 10)\n"
               "  then rank 2: exited by itself, exit code 1, 0 us later (pid 12)\n"));
    ddpi_buf_finish(&out);
}
END_TEST

START_TEST(of_many_the_rest_is_counted)
{
    struct report_worker others[64] = {{.rank = 0}};
    for (uint32_t i = 0; i < 64; i++)
        others[i] = (struct report_worker){.rank = i, .wait_status = EXITED(1)};
    char *text = text_of(&plain_root, others, 8);
    ck_assert_ptr_nonnull(
        strstr(text, "  then rank 7: exited by itself, exit code 1, 0 us later (pid 0)\n"));
    ck_assert_ptr_null(strstr(text, "others"));
    free(text);
    text = text_of(&plain_root, others, 64);
    ck_assert_ptr_nonnull(
        strstr(text, "  then rank 6: exited by itself, exit code 1, 0 us later (pid 0)\n"
                     "  and 57 others\n"));
    ck_assert_ptr_null(strstr(text, "then rank 7:"));
    free(text);
}
END_TEST

START_TEST(without_memory_it_says_so)
{
    static const char tail[] = "a line\nanother\n";
    struct report_worker root = plain_root;
    root.stderr_tail = tail;
    root.stderr_tail_len = sizeof tail - 1;
    const struct report report = {.host = "node1", .root = &root};
    bool complete = false;
    for (unsigned successes = 0; !complete; successes++) {
        struct ddpi_buf out;
        ddpi_buf_init(&out, 1024 * 1024);
        failmem_start(successes);
        bool ok = report_failure(&report, &out);
        complete = !failmem_stop();
        ck_assert_int_eq(ok, complete);
        ddpi_buf_finish(&out);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("report");
    TCase *tcase = tcase_create("report");
    ADD_TESTS(tcase, causes, a_silent_exit, colours_are_in_the_first_line_only,
              times_have_a_fitting_unit, stderr_and_logs, what_an_end_most_likely_means,
              what_is_known_of_gpus_comes_first, a_traceback_is_shown_once,
              the_traceback_is_preferred_to_the_message, control_characters_are_spelled_out,
              the_note_cannot_drive_the_terminal, a_full_disk_may_have_taken_the_words,
              a_child_may_have_had_no_memory, only_the_last_lines_are_shown,
              a_very_long_line_is_cut, a_very_long_path_keeps_its_end,
              consequences_follow_in_the_order_given, who_ended_well_before_is_named,
              of_many_the_rest_is_counted, without_memory_it_says_so);
    suite_add_tcase(suite, tcase);
    return suite;
}
