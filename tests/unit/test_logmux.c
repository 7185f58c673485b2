/*
 * test_logmux.c - from pipes to console, files and tails: whole lines, nothing lost, memory
 * bounded. The tests hold both the workers' ends of the pipes and the reader's end of the console.
 */
#include "check_main.h"
#include "failmem.h"
#include "logmux.h"
#include "looptest.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHOWN_MAX = 16 * 1024 * 1024 };

static uv_loop_t loop;
static struct logmux mux;
static int readers[2]; /* of the console: stdout, stderr */
static char *shown[2]; /* what the console showed */
static size_t shown_len[2];

/* Time stands still until a test moves it. */
static uint64_t now_us;

static uint64_t fake_now(void *ctx)
{
    (void)ctx;
    return now_us;
}

static const struct ddpi_clock fake_clock = {.now_us = fake_now};

static void open_mux(void)
{
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    for (int i = 0; i < 2; i++) {
        readers[i] = looptest_capture(STDOUT_FILENO + i);
        shown[i] = malloc(SHOWN_MAX);
        ck_assert_ptr_nonnull(shown[i]);
        shown_len[i] = 0;
    }
    logmux_init(&mux, &loop);
    mux.clock = &fake_clock;
}

static void close_mux(void)
{
    logmux_close(&mux);
    looptest_close(&loop);
    logmux_finish(&mux);
    free(shown[0]);
    free(shown[1]);
}

static void read_console(void)
{
    for (int i = 0; i < 2; i++)
        if (readers[i] >= 0)
            looptest_read(readers[i], shown[i], SHOWN_MAX, &shown_len[i]);
}

static bool all_ended(void *ctx)
{
    (void)ctx;
    read_console();
    return logmux_streams_ended(&mux) && logmux_flushed(&mux);
}

static void run_to_the_end(void)
{
    looptest_run_until(&loop, all_ended, NULL);
    read_console();
}

static void console_shows(int i, const char *text, size_t len)
{
    read_console();
    ck_assert_uint_eq(shown_len[i], len);
    ck_assert_int_eq(memcmp(shown[i], text, len), 0);
}

/* A stream to the stdout of the console; returns the worker's end of its pipe. */
static int open_stream(struct logmux_stream *stream, const struct logmux_sink *sink)
{
    int fd = -1;
    struct ddp_error error = {0};
    *stream = (struct logmux_stream){0};
    ck_assert_msg(logmux_open(&mux, stream, sink, &fd, &error) == DDP_OK, "%s", error.msg);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0); /* a worker's stdout blocks */
    return fd;
}

static void put(int fd, const char *text, size_t len)
{
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
}

static void put_text(int fd, const char *text)
{
    put(fd, text, strlen(text));
}

static bool nothing_to_read(void *ctx)
{
    int queued;
    const int *fd = ctx;
    read_console();
    return ioctl(*fd, FIONREAD, &queued) == 0 && queued == 0;
}

static const struct logmux_sink to_stdout = {.prefix = "[0]:", .console = 0, .file_fd = -1};
static const struct logmux_sink to_stderr = {
    .prefix = "[1]:", .console = 1, .file_fd = -1, .keep_tail = true};
static const struct logmux_sink hidden = {
    .prefix = "[2]:", .console = -1, .file_fd = -1, .keep_tail = true};

START_TEST(lines_are_whole_and_prefixed)
{
    struct logmux_stream a, b;
    struct logmux_sink other = to_stdout;
    other.prefix = "[1]:";
    int a_fd = open_stream(&a, &to_stdout), b_fd = open_stream(&b, &other);
    put_text(a_fd, "half of ");
    looptest_run_until(&loop, nothing_to_read, &a_fd);
    put_text(b_fd, "one\ntwo\n");
    looptest_run_until(&loop, nothing_to_read, &b_fd);
    console_shows(0, "[1]:one\n[1]:two\n", 16);
    put_text(a_fd, "it\n\nno end");
    close(a_fd);
    close(b_fd);
    run_to_the_end();
    static const char text[] = "[1]:one\n[1]:two\n[0]:half of it\n[0]:\n[0]:no end\n";
    console_shows(0, text, sizeof text - 1);
    console_shows(1, "", 0);
    logmux_stream_finish(&a);
    logmux_stream_finish(&b);
}
END_TEST

static void let_pass(uint64_t ms)
{
    now_us += ms * 1000;
    logmux_show_unfinished(&mux);
    read_console();
}

static void put_and_read(int fd, const char *text)
{
    put_text(fd, text);
    looptest_run_until(&loop, nothing_to_read, &fd);
}

START_TEST(an_unfinished_line_is_shown_and_continued)
{
    struct logmux_stream a, b;
    struct logmux_sink other = to_stdout;
    other.prefix = "[1]:";
    int a_fd = open_stream(&a, &to_stdout), b_fd = open_stream(&b, &other);
    put_and_read(a_fd, "name");
    let_pass(LOGMUX_HOLD_MS / 2);
    put_and_read(a_fd, "? ");
    let_pass(LOGMUX_HOLD_MS / 2 - 1);
    console_shows(0, "", 0);
    let_pass(1);
    console_shows(0, "[0]:name? ", 10);
    put_and_read(a_fd, "J"); /* at once: the line is its own */
    console_shows(0, "[0]:name? J", 11);
    put_and_read(b_fd, "half");
    put_and_read(a_fd, "o\n");
    let_pass(LOGMUX_HOLD_MS);
    console_shows(0, "[0]:name? Jo\n[1]:half", 21);
    put_and_read(a_fd, "bye\n");
    put_and_read(b_fd, " more");
    let_pass(LOGMUX_HOLD_MS);
    logmux_print(&mux, 0, "ddprun: a word\n", 15);
    close(a_fd);
    close(b_fd);
    run_to_the_end();
    static const char text[] = "[0]:name? Jo\n[1]:half\n[0]:bye\n[1]: more\nddprun: a word\n";
    console_shows(0, text, sizeof text - 1);
    logmux_stream_finish(&a);
    logmux_stream_finish(&b);
}
END_TEST

/* The end of the line is in the pipe, and a delayed loop has not read it yet. */
START_TEST(a_line_whose_end_has_come_is_not_torn)
{
    struct logmux_stream a;
    int fd = open_stream(&a, &to_stdout);
    put_and_read(fd, "one ");
    put_text(fd, "two\n");
    let_pass(LOGMUX_HOLD_MS);
    console_shows(0, "", 0);
    close(fd);
    run_to_the_end();
    console_shows(0, "[0]:one two\n", 12);
    logmux_stream_finish(&a);
}
END_TEST

static bool shows_prompt(void *ctx)
{
    (void)ctx;
    read_console();
    return shown_len[0] > 0;
}

/* With the real timer and clock. */
START_TEST(the_loop_shows_an_unfinished_line)
{
    struct logmux_stream a;
    mux.clock = &ddpi_clock_monotonic;
    int fd = open_stream(&a, &to_stdout);
    put_text(fd, "> ");
    looptest_run_until(&loop, shows_prompt, NULL);
    console_shows(0, "[0]:> ", 6);
    close(fd);
    run_to_the_end();
    console_shows(0, "[0]:> \n", 7);
    logmux_stream_finish(&a);
}
END_TEST

START_TEST(streams_find_their_console_and_tail)
{
    struct logmux_stream out, err, none;
    char tail[TAIL_SIZE];
    int out_fd = open_stream(&out, &to_stdout), err_fd = open_stream(&err, &to_stderr),
        none_fd = open_stream(&none, &hidden);
    put_text(out_fd, "out\n");
    put_text(err_fd, "err\n");
    put_text(none_fd, "none\n");
    close(out_fd);
    close(err_fd);
    close(none_fd);
    run_to_the_end();
    console_shows(0, "[0]:out\n", 8);
    console_shows(1, "[1]:err\n", 8);
    ck_assert_uint_eq(tail_copy(&out.tail, tail), 0);
    ck_assert_uint_eq(tail_copy(&err.tail, tail), 4);
    ck_assert_mem_eq(tail, "err\n", 4);
    ck_assert_uint_eq(tail_copy(&none.tail, tail), 5);
    ck_assert_mem_eq(tail, "none\n", 5);
    logmux_stream_finish(&out);
    logmux_stream_finish(&err);
    logmux_stream_finish(&none);
}
END_TEST

static int make_file(char *path)
{
    int fd = mkostemp(path, O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void file_holds(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    char *held = malloc(len + 1);
    ck_assert_ptr_nonnull(held);
    size_t used = 0;
    for (ssize_t got; used < len + 1 && (got = read(fd, held + used, len + 1 - used)) > 0;)
        used += (size_t)got;
    ck_assert_uint_eq(used, len);
    ck_assert_int_eq(memcmp(held, text, len), 0);
    free(held);
    close(fd);
}

START_TEST(a_file_gets_the_bytes_untouched)
{
    static const char text[] = "\0bin\0ary\n\r\x1b[0mno end\xff";
    static const char on_console[] = "[0]:\0bin\0ary\n[0]:\r\x1b[0mno end\xff\n";
    char path[] = "/tmp/test_logmux_XXXXXX";
    struct logmux_sink sink = to_stdout;
    struct logmux_stream stream;
    sink.file_fd = make_file(path);
    int fd = open_stream(&stream, &sink);
    put(fd, text, sizeof text - 1);
    close(fd);
    run_to_the_end();
    ck_assert_int_eq(stream.file_errno, 0);
    ck_assert_int_eq(fcntl(sink.file_fd, F_GETFD), -1); /* owned and closed by the stream */
    file_holds(path, text, sizeof text - 1);
    console_shows(0, on_console, sizeof on_console - 1);
    logmux_stream_finish(&stream);
    unlink(path);
}
END_TEST

START_TEST(a_full_disk_is_noted_and_the_console_goes_on)
{
    struct logmux_sink sink = to_stdout;
    struct logmux_stream stream;
    sink.file_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(sink.file_fd, 0);
    int fd = open_stream(&stream, &sink);
    put_text(fd, "one\n");
    looptest_run_until(&loop, nothing_to_read, &fd);
    put_text(fd, "two\n");
    close(fd);
    run_to_the_end();
    ck_assert_int_eq(stream.file_errno, ENOSPC);
    console_shows(0, "[0]:one\n[0]:two\n", 16);
    logmux_stream_finish(&stream);
}
END_TEST

/* A worker that writes @total bytes as fast as its pipe takes them. */
struct producer {
    int fd;
    const char *bytes;
    size_t total;
    size_t written;
};

static void produce(struct producer *producer)
{
    while (producer->fd >= 0) {
        size_t left = producer->total - producer->written;
        ssize_t len = left > 0 ? write(producer->fd, producer->bytes + producer->written, left) : 0;
        if (len < 0) {
            ck_assert_int_eq(errno, EAGAIN);
            return;
        }
        producer->written += (size_t)len;
        if (producer->written == producer->total) {
            close(producer->fd);
            producer->fd = -1;
        }
    }
}

static bool produced_and_shown(void *ctx)
{
    struct producer *producer = ctx;
    produce(producer);
    read_console();
    return producer->fd < 0 && logmux_streams_ended(&mux) && logmux_flushed(&mux);
}

/* Everything is written, and the pipes are read again. */
static bool produced_and_flowing(void *ctx)
{
    struct producer *producer = ctx;
    produce(producer);
    read_console();
    return producer->fd < 0 && !mux.paused && logmux_flushed(&mux);
}

/* Now nothing moves until the console is read. */
static bool producer_waits(void *ctx)
{
    produce(ctx);
    return mux.paused;
}

static void start_producer(struct producer *producer, struct logmux_stream *stream,
                           const char *bytes, size_t total)
{
    *producer =
        (struct producer){.fd = open_stream(stream, &to_stdout), .bytes = bytes, .total = total};
    ck_assert_int_eq(fcntl(producer->fd, F_SETFL, O_NONBLOCK), 0);
}

START_TEST(a_line_of_ten_megabytes_stays_one)
{
    enum { LINE = 10 * 1024 * 1024 };
    char *line = malloc(LINE + 4);
    ck_assert_ptr_nonnull(line);
    memcpy(line, "[0]:", 4);
    for (size_t i = 4; i < LINE + 3; i++)
        line[i] = (char)('a' + i % 23);
    line[LINE + 3] = '\n';
    struct logmux_stream stream;
    struct producer producer;
    start_producer(&producer, &stream, line + 4, LINE);
    looptest_run_until(&loop, produced_and_shown, &producer);
    console_shows(0, line, LINE + 4);
    logmux_stream_finish(&stream);
    free(line);
}
END_TEST

/* Numbered lines of 16 bytes, with the prefix in front: @text without, *@ret_shown with. */
static char *number_lines(uint32_t lines, char **ret_shown)
{
    char *text = malloc(lines * 16 + 1), *with = malloc(lines * 20 + 1);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(with);
    for (uint32_t i = 0; i < lines; i++) {
        snprintf(text + i * 16, 17, "%015u\n", i);
        snprintf(with + i * 20, 21, "[0]:%015u\n", i);
    }
    *ret_shown = with;
    return text;
}

START_TEST(a_slow_reader_makes_workers_wait_and_loses_nothing)
{
    enum { LINES = 256 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream;
    struct producer producer;
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    /* Queue, one read, the line buffer and two pipes: less than the whole output. */
    ck_assert_uint_lt(producer.written, 2 * 1024 * 1024);
    ck_assert_uint_lt(ddpi_buf_len(&mux.consoles[0].queue), 2 * 1024 * 1024);
    looptest_run_until(&loop, produced_and_shown, &producer);
    console_shows(0, on_console, LINES * 20);
    logmux_stream_finish(&stream);
    free(text);
    free(on_console);
}
END_TEST

/* While reading is paused the end of a line may be in a pipe; afterwards its hold time restarts. */
START_TEST(an_unfinished_line_is_held_while_the_reader_is_slow)
{
    enum { LINES = 128 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream, other;
    struct producer producer;
    int fd = open_stream(&other, &to_stderr);
    put_and_read(fd, "half");
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    let_pass(LOGMUX_HOLD_MS);
    console_shows(1, "", 0);
    looptest_run_until(&loop, produced_and_flowing, &producer);
    let_pass(LOGMUX_HOLD_MS - 1);
    console_shows(1, "", 0);
    let_pass(1);
    console_shows(1, "[1]:half", 8);
    close(fd);
    run_to_the_end();
    console_shows(0, on_console, LINES * 20);
    logmux_stream_finish(&stream);
    logmux_stream_finish(&other);
    free(text);
    free(on_console);
}
END_TEST

START_TEST(a_stream_that_is_opened_meanwhile_waits_too)
{
    enum { LINES = 128 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream, late;
    struct producer producer;
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    int fd = open_stream(&late, &to_stderr);
    ck_assert(!late.reading);
    put_text(fd, "late\n");
    close(fd);
    looptest_run_until(&loop, produced_and_shown, &producer);
    console_shows(0, on_console, LINES * 20);
    console_shows(1, "[1]:late\n", 9);
    logmux_stream_finish(&stream);
    logmux_stream_finish(&late);
    free(text);
    free(on_console);
}
END_TEST

static bool streams_ended(void *ctx)
{
    (void)ctx;
    return logmux_streams_ended(&mux);
}

/* Streams that are opened later wait for the reader as before. */
START_TEST(the_rest_is_taken_without_a_reader)
{
    enum { LINES = 128 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream, late;
    struct producer producer;
    logmux_take_rest(&mux); /* without streams nothing changes */
    ck_assert(!mux.taking_rest);
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    close(producer.fd);
    producer.fd = -1;
    logmux_take_rest(&mux);
    looptest_run_until(&loop, streams_ended, NULL);
    ck_assert(mux.paused);
    int fd = open_stream(&late, &to_stdout);
    ck_assert(!late.reading);
    put_text(fd, "late\n");
    close(fd);
    looptest_run_until(&loop, produced_and_shown, &producer);
    static const char last[] = "\n[0]:late\n"; /* after the last line, which was cut */
    size_t cut = producer.written % 16;
    size_t len = producer.written / 16 * 20 + (cut > 0 ? 4 + cut : 0) - (cut == 0);
    memcpy(on_console + len, last, sizeof last - 1);
    console_shows(0, on_console, len + sizeof last - 1);
    logmux_stream_finish(&stream);
    logmux_stream_finish(&late);
    free(text);
    free(on_console);
}
END_TEST

START_TEST(when_the_reader_goes_the_workers_go_on)
{
    enum { LINES = 256 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream;
    struct producer producer;
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    close(readers[0]);
    readers[0] = -1;
    looptest_run_until(&loop, produced_and_shown, &producer);
    ck_assert_uint_eq(producer.written, LINES * 16);
    logmux_stream_finish(&stream);
    free(text);
    free(on_console);
}
END_TEST

/* One of our own messages may be the first write to find the reader closed. */
START_TEST(a_reader_found_gone_by_a_message_pauses_no_pipe)
{
    enum { LINES = 256 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream;
    struct producer producer;
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    close(readers[0]);
    readers[0] = -1;
    logmux_print(&mux, 0, "a message\n", 10);
    looptest_run_until(&loop, produced_and_shown, &producer);
    logmux_stream_finish(&stream);
    free(text);
    free(on_console);
}
END_TEST

START_TEST(discarding_the_console_lets_workers_go_on)
{
    enum { LINES = 256 * 1024 };
    char *on_console, *text = number_lines(LINES, &on_console);
    struct logmux_stream stream;
    struct producer producer;
    start_producer(&producer, &stream, text, LINES * 16);
    looptest_run_until(&loop, producer_waits, &producer);
    logmux_discard(&mux);
    ck_assert(logmux_flushed(&mux));
    looptest_run_until(&loop, produced_and_shown, &producer);
    logmux_stream_finish(&stream);
    free(text);
    free(on_console);
}
END_TEST

START_TEST(an_abandoned_stream_shows_what_has_arrived)
{
    struct logmux_stream stream;
    int fd = open_stream(&stream, &to_stdout);
    put_text(fd, "one\nhalf");
    looptest_run_until(&loop, nothing_to_read, &fd);
    logmux_abandon(&stream);
    logmux_abandon(&stream);
    run_to_the_end(); /* although the writer is still there */
    console_shows(0, "[0]:one\n[0]:half\n", 17);
    logmux_abandon(&stream);
    logmux_stream_finish(&stream);
    close(fd);
}
END_TEST

static void count_call(void *ctx)
{
    unsigned *calls = ctx;
    ++*calls;
}

START_TEST(the_end_of_a_stream_is_told)
{
    struct logmux_stream stream;
    unsigned calls = 0;
    mux.idle = count_call;
    mux.ctx = &calls;
    int fd = open_stream(&stream, &hidden);
    close(fd);
    run_to_the_end();
    ck_assert_uint_eq(calls, 1);
    logmux_stream_finish(&stream);
}
END_TEST

START_TEST(a_stream_can_be_used_again)
{
    struct logmux_stream stream = {.mux = NULL};
    logmux_stream_finish(&stream); /* never opened */
    int before = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 1) /* after the loop's own allocations */
            before = looptest_open_fds();
        int fd = open_stream(&stream, &to_stderr);
        put_text(fd, "again\n");
        close(fd);
        run_to_the_end();
        logmux_stream_finish(&stream);
        logmux_stream_finish(&stream);
    }
    console_shows(1, "[1]:again\n[1]:again\n[1]:again\n[1]:again\n", 40);
    ck_assert_int_eq(looptest_open_fds(), before);
}
END_TEST

START_TEST(without_descriptors_it_is_an_error)
{
    struct rlimit limit, low;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    struct logmux_sink sink = to_stdout;
    sink.file_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int before = looptest_open_fds(), write_fd = -1;
    low = limit;
    low.rlim_cur = (rlim_t)sink.file_fd + 2; /* room for one end of a pipe */
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    struct logmux_stream stream = {.mux = NULL};
    struct ddp_error error = {0};
    ck_assert_int_ne(logmux_open(&mux, &stream, &sink, &write_fd, &error), DDP_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_ptr_nonnull(strstr(error.msg, "ulimit -n"));
    ck_assert_int_eq(write_fd, -1);
    ck_assert(logmux_streams_ended(&mux));
    ck_assert_int_eq(looptest_open_fds(), before); /* the caller keeps the file */
    close(sink.file_fd);
    logmux_stream_finish(&stream);
}
END_TEST

START_TEST(without_memory_the_file_is_complete)
{
    static const char text[] = "first line\nsecond line\nthird";
    bool complete = false;
    for (unsigned successes = 0; !complete; successes++) {
        char path[] = "/tmp/test_logmux_XXXXXX";
        struct logmux_sink sink = to_stderr;
        struct logmux_stream stream;
        sink.file_fd = make_file(path);
        int fd = open_stream(&stream, &sink);
        failmem_start(successes);
        for (size_t i = 0; i < sizeof text - 1; i += 5) {
            size_t left = sizeof text - 1 - i;
            put(fd, text + i, left < 5 ? left : 5);
            looptest_run_until(&loop, nothing_to_read, &fd);
        }
        close(fd);
        run_to_the_end();
        complete = !failmem_stop();
        file_holds(path, text, sizeof text - 1);
        logmux_stream_finish(&stream);
        unlink(path);
    }
    static const char end[] = "[1]:first line\n[1]:second line\n[1]:third\n";
    ck_assert_uint_ge(shown_len[1], sizeof end - 1);
    ck_assert_mem_eq(shown[1] + shown_len[1] - (sizeof end - 1), end, sizeof end - 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("logmux");
    TCase *tcase = tcase_create("logmux");
    tcase_add_checked_fixture(tcase, open_mux, close_mux);
    ADD_TESTS(tcase, lines_are_whole_and_prefixed, an_unfinished_line_is_shown_and_continued,
              a_line_whose_end_has_come_is_not_torn, the_loop_shows_an_unfinished_line,
              streams_find_their_console_and_tail, a_file_gets_the_bytes_untouched,
              a_full_disk_is_noted_and_the_console_goes_on, a_line_of_ten_megabytes_stays_one,
              a_slow_reader_makes_workers_wait_and_loses_nothing,
              an_unfinished_line_is_held_while_the_reader_is_slow,
              a_stream_that_is_opened_meanwhile_waits_too, the_rest_is_taken_without_a_reader,
              when_the_reader_goes_the_workers_go_on,
              a_reader_found_gone_by_a_message_pauses_no_pipe,
              discarding_the_console_lets_workers_go_on, an_abandoned_stream_shows_what_has_arrived,
              the_end_of_a_stream_is_told, a_stream_can_be_used_again,
              without_descriptors_it_is_an_error, without_memory_the_file_is_complete);
    suite_add_tcase(suite, tcase);
    return suite;
}
