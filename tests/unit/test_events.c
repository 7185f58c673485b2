/*
 * test_events.c - the log of events: a recovery, a membership change, an end, and a log that cannot
 * be written.
 */
#include "check_main.h"
#include "events.h"
#include "looptest.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_MAX = 256 * 1024, LINES_MAX = 32 };

static uv_loop_t loop;
static struct logmux mux;
static struct event_log event_log = {.fd = -1};
static struct events events;
static char dir[] = "/tmp/test_events_XXXXXX";
static char path[64];
static char shown[SHOWN_MAX];
static size_t shown_len;
static int reader; /* of the agent's stderr */
static json_t *lines[LINES_MAX];
static size_t nlines;

static void open_events(const char *where)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/events", dir);
    reader = looptest_capture(STDERR_FILENO);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    logmux_init(&mux, &loop);
    ck_assert_int_eq(event_log_open(&event_log, where != NULL ? where : path, NULL), DDP_OK);
    events_init(&events, &event_log, &mux, "train", "node1");
}

static void open_file(void)
{
    open_events(NULL);
}

static void open_console(void)
{
    open_events("-");
}

static void close_events(void)
{
    for (size_t i = 0; i < nlines; i++)
        json_decref(lines[i]);
    event_log_close(&event_log);
    logmux_close(&mux);
    looptest_close(&loop);
    logmux_finish(&mux);
    unlink(path);
    rmdir(dir);
}

static const char *on_console(void)
{
    looptest_read(reader, shown, sizeof shown - 1, &shown_len);
    shown[shown_len] = '\0';
    return shown;
}

/* Every line of @text is an object. */
static void parse(const char *text)
{
    while (*text != '\0') {
        const char *end = strchr(text, '\n');
        ck_assert_ptr_nonnull(end);
        ck_assert_uint_lt(nlines, LINES_MAX);
        json_error_t error;
        json_t *line = json_loadb(text, (size_t)(end - text), 0, &error);
        ck_assert_msg(json_is_object(line), "%s: %s", error.text, text);
        lines[nlines++] = line;
        text = end + 1;
    }
}

static void parse_file(void)
{
    static char text[SHOWN_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ssize_t len = read(fd, text, sizeof text - 1);
    ck_assert_int_ge(len, 0);
    text[len] = '\0';
    close(fd);
    parse(text);
}

static const char *text_at(size_t i, const char *field)
{
    return json_string_value(json_object_get(lines[i], field));
}

static long long number_at(size_t i, const char *field)
{
    const json_t *value = json_object_get(lines[i], field);
    ck_assert_msg(json_is_integer(value), "line %zu has no number '%s'", i, field);
    return json_integer_value(value);
}

static bool has(size_t i, const char *field)
{
    return json_object_get(lines[i], field) != NULL;
}

static void are(const char *const *wanted, size_t count)
{
    ck_assert_uint_eq(nlines, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_str_eq(text_at(i, "event"), wanted[i]);
}
#define ARE(...)                            \
    are((const char *const[]){__VA_ARGS__}, \
        sizeof(const char *[]){__VA_ARGS__} / sizeof(const char *))

static const struct ddp_round_seat first = {
    .order = DDP_ROUND_RUN, .generation = 1, .node_rank = 1, .nodes = 2, .world_size = 4};
static const struct ddp_round_seat second = {.order = DDP_ROUND_RUN,
                                             .generation = 2,
                                             .node_rank = 0,
                                             .nodes = 1,
                                             .world_size = 2,
                                             .restarts = 1};

static void run(const struct ddp_round_seat *seat)
{
    events_seated(&events, seat);
    events_started(&events);
}

START_TEST(a_recovery)
{
    events_meeting(&events);
    run(&first);
    events_failure(&events, "rank 1 failed");
    events_failure(&events, "the others say so, too");
    events_terminated(&events);
    events_meeting(&events);
    events_meeting(&events);
    run(&second);
    events_terminated(&events);
    events_over(&events, 0, "");
    parse_file();
    ARE("rendezvous_started", "rendezvous_completed", "worker_start_started",
        "worker_start_completed", "failure_detected", "worker_terminated", "rendezvous_started",
        "rendezvous_completed", "worker_start_started", "worker_start_completed",
        "worker_terminated", "job_ended");
    double since_ms = 0;
    for (size_t i = 0; i < nlines; i++) {
        ck_assert_int_eq(number_at(i, "schema"), 1);
        ck_assert_str_eq(text_at(i, "job"), "train");
        ck_assert_str_eq(text_at(i, "node"), "node1");
        ck_assert_int_gt(number_at(i, "time_unix_ms"), 1000000000000);
        if (i > 0)
            ck_assert_int_ge(number_at(i, "monotonic_us"), number_at(i - 1, "monotonic_us"));
        ck_assert_int_eq(number_at(i, "generation"), i == 0 ? 0 : i < 7 ? 1 : 2);
        ck_assert_int_eq(number_at(i, "restarts"), i < 7 ? 0 : 1);
        bool seated = i != 0 && i != 6, recovers = i >= 4 && i <= 9;
        ck_assert_int_eq(has(i, "world_size"), seated);
        ck_assert_int_eq(has(i, "node_rank"), seated);
        ck_assert_int_eq(has(i, "since_failure_ms"), recovers);
        ck_assert_int_eq(has(i, "reason"), i >= 4 && i <= 6);
        ck_assert_int_eq(has(i, "exit_code"), i == 11);
        if (!recovers)
            continue;
        double now_ms = json_number_value(json_object_get(lines[i], "since_failure_ms"));
        ck_assert(now_ms >= since_ms);
        since_ms = now_ms;
        if (i <= 6)
            ck_assert_str_eq(text_at(i, "reason"), "rank 1 failed");
    }
    ck_assert_int_eq(number_at(1, "node_rank"), 1);
    ck_assert_int_eq(number_at(9, "world_size"), 2);
    ck_assert_str_eq(on_console(), "");
}
END_TEST

START_TEST(a_change_of_members_is_no_failure)
{
    run(&first);
    events_ending(&events, "node2 has come");
    events_terminated(&events);
    events_meeting(&events);
    run(&second);
    parse_file();
    ARE("rendezvous_started", "rendezvous_completed", "worker_start_started",
        "worker_start_completed", "worker_terminated", "rendezvous_started", "rendezvous_completed",
        "worker_start_started", "worker_start_completed");
    for (size_t i = 0; i < nlines; i++)
        ck_assert(!has(i, "since_failure_ms"));
    ck_assert_str_eq(text_at(4, "reason"), "node2 has come");
    ck_assert(!has(7, "reason"));
}
END_TEST

START_TEST(an_end_in_a_recovery)
{
    run(&first);
    events_failure(&events, "rank 1 failed");
    events_terminated(&events);
    events_over(&events, 93, "a crash loop");
    parse_file();
    ck_assert_uint_eq(nlines, 7);
    ck_assert_str_eq(text_at(6, "event"), "job_ended");
    ck_assert_int_eq(number_at(6, "exit_code"), 93);
    ck_assert_str_eq(text_at(6, "reason"), "a crash loop");
    ck_assert(has(6, "since_failure_ms"));
}
END_TEST

START_TEST(any_bytes_become_json)
{
    events_over(&events, 1, "\"caf\xc3\xa9\"\n");
    events_over(&events, 1, "cut \xc3");
    parse_file();
    ck_assert_str_eq(text_at(0, "reason"), "\"caf\xc3\xa9\"\n");
    ck_assert_str_eq(text_at(1, "reason"), "cut ?");
}
END_TEST

START_TEST(what_happens_to_the_store)
{
    events_store(&events, EVENT_STORE_LEADER_CHANGED, "n2:1", "n2:1 leads");
    events_store(&events, EVENT_MEMBER_LOST, "n1:1", "n1:1 is missing");
    events_store(&events, EVENT_MEMBER_REPLACED, "n1:1", "n1:1 is a new member");
    events_store(&events, EVENT_MEMBER_RETURNED, "n1:1", "n1:1 is back");
    parse_file();
    ARE("store_leader_changed", "member_lost", "member_replaced", "member_returned");
    ck_assert_str_eq(text_at(0, "endpoint"), "n2:1");
    ck_assert_str_eq(text_at(1, "endpoint"), "n1:1");
    ck_assert_str_eq(text_at(1, "reason"), "n1:1 is missing");
    events_init(&events, NULL, &mux, "train", "node1");
    events_store(&events, EVENT_MEMBER_LOST, "n1:1", "no log");
}
END_TEST

START_TEST(a_file_is_appended_to)
{
    events_over(&events, 0, "");
    event_log_close(&event_log);
    ck_assert_int_eq(event_log_open(&event_log, path, NULL), DDP_OK);
    events_over(&events, 0, "");
    parse_file();
    ck_assert_uint_eq(nlines, 2);
}
END_TEST

/* Missing lines are reported once; the line after a partly written one is whole. */
START_TEST(a_full_disk_loses_lines)
{
    struct stat st;
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    events_over(&events, 1, "before");
    ck_assert_int_eq(stat(path, &st), 0);
    limit.rlim_cur = (rlim_t)st.st_size + 20;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    events_over(&events, 2, "torn");
    events_over(&events, 3, "lost");
    limit.rlim_cur = RLIM_INFINITY;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    events_over(&events, 4, "after");
    const char *said = strstr(on_console(), "--event-log");
    ck_assert_ptr_nonnull(said);
    ck_assert_ptr_null(strstr(said + 1, "--event-log"));
    static char text[SHOWN_MAX];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, text, sizeof text - 1);
    ck_assert_int_gt(len, st.st_size + 20);
    close(fd);
    ck_assert_int_eq(text[st.st_size + 20], '\n');
    text[len] = '\0';
    parse(text + st.st_size + 21);
    ck_assert_uint_eq(nlines, 1);
    ck_assert_str_eq(text_at(0, "reason"), "after");
}
END_TEST

START_TEST(a_slow_reader_of_a_fifo_loses_lines)
{
    struct ddp_error err;
    event_log_close(&event_log);
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(event_log_open(&event_log, path, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "start its reader first"));
    int fifo = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_eq(event_log_open(&event_log, path, &err), DDP_OK);
    for (int i = 0; i < 2000; i++) /* more than a pipe holds: none of them may block */
        events_over(&events, i, "again");
    ck_assert_ptr_nonnull(strstr(on_console(), "its reader is too slow"));
    size_t used = 0;
    looptest_read(fifo, shown, sizeof shown - 1, &used);
    shown[used] = '\0';
    ck_assert_uint_gt(used, 32 * 1024);
    ck_assert_int_eq(shown[used - 1], '\n'); /* whole lines only */
    close(fifo);
}
END_TEST

START_TEST(the_console_gets_whole_lines)
{
    logmux_say(&mux, "before");
    run(&first);
    logmux_say(&mux, "after");
    char text[SHOWN_MAX];
    snprintf(text, sizeof text, "%s", on_console());
    ck_assert_int_eq(strncmp(text, "ddprun: before\n{", 16), 0);
    char *last = strstr(text, "ddprun: after\n");
    ck_assert_ptr_nonnull(last);
    *last = '\0';
    parse(text + strlen("ddprun: before\n"));
    ck_assert_uint_eq(nlines, 4);
    mux.paused = true; /* the queue for its reader is full */
    events_over(&events, 0, "");
    ck_assert_ptr_null(strstr(on_console(), "job_ended"));
    mux.paused = false;
}
END_TEST

START_TEST(the_log_is_optional)
{
    events_init(&events, NULL, &mux, "train", "node1");
    run(&first);
    events_failure(&events, "rank 1 failed");
    events_over(&events, 1, "");
    parse_file();
    ck_assert_uint_eq(nlines, 0);
}
END_TEST

START_TEST(a_path_that_cannot_be_opened_is_named)
{
    struct event_log other;
    struct ddp_error err;
    ck_assert_int_eq(event_log_open(&other, "/nowhere/events", &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, "/nowhere/events"));
    event_log_close(&other);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("events");
    TCase *file = tcase_create("file");
    tcase_add_checked_fixture(file, open_file, close_events);
    ADD_TESTS(file, a_recovery, a_change_of_members_is_no_failure, an_end_in_a_recovery,
              any_bytes_become_json, what_happens_to_the_store, a_file_is_appended_to,
              a_full_disk_loses_lines, a_slow_reader_of_a_fifo_loses_lines, the_log_is_optional,
              a_path_that_cannot_be_opened_is_named);
    suite_add_tcase(suite, file);
    TCase *console = tcase_create("console");
    tcase_add_checked_fixture(console, open_console, close_events);
    tcase_add_test(console, the_console_gets_whole_lines);
    suite_add_tcase(suite, console);
    return suite;
}
