/*
 * job_top.c - the verb top: a job on the whole terminal, drawn again whenever it changes, until 'q'
 * or Ctrl-C. Owns the terminal's mode meanwhile, and gives it back on every way out.
 */
#include "clock.h"
#include "ddpctl_job.h"
#include "error.h"
#include "job_show.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 5000, KEY_MS = 100, CONTROL_C = 3 };

/* The alternate screen keeps what was there before. */
#define SCREEN_BEGIN "\033[?1049h\033[?25l"
#define SCREEN_END   "\033[?25h\033[?1049l"
#define SCREEN_HOME  "\033[H"
#define LINE_END     "\033[K\r\n"
#define SCREEN_REST  "\033[J"

static volatile sig_atomic_t top_ended;

static void on_end_signal(int sig)
{
    (void)sig;
    top_ended = 1;
}

/* Each key arrives at once, and Ctrl-C as a byte. */
static ddp_status take_terminal(struct termios *ret_before, struct ddp_error *err)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, ret_before) != 0)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "top needs a terminal; 'ddpctl status' prints the same once");
    struct termios raw = *ret_before;
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
    static const int ending[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    const struct sigaction end = {.sa_handler = on_end_signal};
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
        sigaction(ending[i], &end, NULL);
    fputs(SCREEN_BEGIN, stdout);
    return DDP_OK;
}

static void give_terminal_back(const struct termios *before)
{
    fputs(SCREEN_END, stdout);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, before);
}

static bool wants_to_end(void)
{
    char key;
    while (read(STDIN_FILENO, &key, 1) == 1)
        if (key == 'q' || key == CONTROL_C)
            top_ended = 1;
    return top_ended != 0;
}

/* ---- drawing ---- */

/* The bytes of the first @columns characters of the @len bytes at @line. */
static int cut_to(const char *line, size_t len, unsigned columns)
{
    size_t at = 0;
    for (unsigned shown = 0; at < len; at++)
        if (((unsigned char)line[at] & 0xc0) != 0x80 && shown++ == columns)
            break;
    return (int)at;
}

static void draw_lines(const char *text, const struct winsize *size)
{
    unsigned rows = size->ws_row > 1 ? size->ws_row : 24;
    unsigned columns = size->ws_col > 1 ? size->ws_col : 80;
    fputs(SCREEN_HOME, stdout);
    for (unsigned row = 1; *text != '\0' && row < rows; row++) {
        size_t len = strcspn(text, "\n");
        printf("%.*s" LINE_END, cut_to(text, len, columns), text);
        text += len + (text[len] == '\n');
    }
    fputs(SCREEN_REST, stdout);
    fflush(stdout);
}

static ddp_status draw(const struct ddpctl_job_call *call, struct ddp_error *err)
{
    struct winsize size = {0};
    char *text = NULL, clock[16];
    size_t len;
    time_t now = time(NULL);
    struct tm local;
    FILE *out = open_memstream(&text, &len);
    if (out == NULL)
        return ddpi_error_nomem(err, 1);
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
    fprintf(out, "%s  %s  (q: quit)\n\n", call->options->endpoint, clock);
    bool done = job_show_brief(&call->view, out);
    done &= fclose(out) == 0;
    if (done && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        draw_lines(text, &size);
    free(text);
    return done ? DDP_OK : ddpi_error_nomem(err, 1);
}

/* ---- the loop ---- */

/* Wait for a change, a key or the next second. */
static ddp_status await_news(struct ddpctl_job_call *call, struct ddp_error *err)
{
    uint64_t until_ms = ddpi_monotonic_ms() + 1000;
    while (!wants_to_end() && ddpi_monotonic_ms() < until_ms) {
        call->deadline_ms = ddpi_monotonic_ms() + LOOK_MS;
        ddp_status status = ddpctl_job_follow(call, KEY_MS, err);
        if (status != DDP_E_TIMEOUT)
            return status;
    }
    return DDP_OK;
}

static ddp_status show_until_end(struct ddpctl_job_call *call, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    while (status == DDP_OK && !wants_to_end()) {
        status = draw(call, err);
        if (status == DDP_OK)
            status = await_news(call, err);
    }
    return status;
}

ddp_status ddpctl_job_top(struct ddpctl_job_call *call, struct ddp_error *err)
{
    struct termios before;
    ddp_status status = ddpctl_job_watch(call, err);
    if (status == DDP_OK)
        status = take_terminal(&before, err);
    if (status != DDP_OK)
        return status;
    status = show_until_end(call, err);
    give_terminal_back(&before);
    return status;
}
