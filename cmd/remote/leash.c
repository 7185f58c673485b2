/*
 * leash.c - see leash.h. Owns the descriptor of the leash and that of the token.
 */
#include "leash.h"

#include "clock.h"
#include "error.h"
#include "head_command.h"
#include "leash_text.h"
#include "memory_file.h"
#include "proof.h"
#include "version.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GO_MS = 60000, CHUNK = 64 * 1024 };

bool leash_is_given(int argc, char *const *argv)
{
    return argc > 1 && strcmp(argv[1], "--leash") == 0;
}

/* ---- up to "go" ---- */

static ddp_status keep_token(struct leash *leash, char *hex, struct ddp_error *err)
{
    size_t len = strlen(hex);
    if (len == 0)
        return DDP_OK;
    hex[len] = '\n';
    int fd = ddpi_memory_file_keep("ddprun-token", hex, len + 1);
    bool ok = fd >= 0 && dup3(fd, HEAD_TOKEN_FD, O_CLOEXEC) == HEAD_TOKEN_FD;
    ddp_status status = ok ? DDP_OK : ddpi_error_sys(err, errno, "cannot keep the token");
    if (fd >= 0 && fd != HEAD_TOKEN_FD)
        close(fd);
    ddpi_wipe(hex, len + 1);
    if (ok)
        leash->token_fd = HEAD_TOKEN_FD;
    return status;
}

/* putenv() needs memory that stays: it is freed with the process. */
static ddp_status set_variable(char *entry, struct ddp_error *err)
{
    char *value = strchr(entry, '=');
    *value++ = '\0';
    return setenv(entry, value, 1) == 0 ? DDP_OK
                                        : ddpi_error_sys(err, errno, "cannot set %s", entry);
}

static ddp_status carry_out(struct leash *leash, const struct leash_line *line,
                            struct ddp_error *err)
{
    switch (line->kind) {
    case LEASH_TOKEN:
        return keep_token(leash, line->text, err);
    case LEASH_VARIABLE:
        return set_variable(line->text, err);
    case LEASH_SIGNAL:
        leash->told = line->sig;
        kill(getpid(), line->sig);
        return DDP_OK;
    case LEASH_GREETING:
    case LEASH_GO:
        break;
    }
    return DDP_OK;
}

/* Carry out the first whole line of the input; false: there is none. */
static bool take_line(struct leash *leash, enum leash_kind *ret_kind, ddp_status *ret_status,
                      struct ddp_error *err)
{
    struct leash_line line;
    char *text = (char *)leash->input.data + leash->input.head;
    size_t left = ddpi_buf_len(&leash->input);
    char *end = left > 0 ? memchr(text, '\n', left) : NULL;
    if (end == NULL)
        return false;
    *end = '\0';
    *ret_status = strlen(text) == (size_t)(end - text)
                      ? leash_parse(text, &line, err)
                      : ddpi_error_set(err, DDP_E_INVALID, "the leash has a NUL byte");
    if (*ret_status == DDP_OK) {
        *ret_kind = line.kind;
        *ret_status = carry_out(leash, &line, err);
    }
    ddpi_buf_consume(&leash->input, (size_t)(end + 1 - text));
    return true;
}

/* Read what is there. DDP_E_CLOSED: the end. */
static ddp_status read_some(struct leash *leash, struct ddp_error *err)
{
    uint8_t *room = ddpi_buf_reserve(&leash->input, CHUNK);
    if (room == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "the leash has a line that is too long");
    ssize_t len = read(leash->fd, room, CHUNK);
    if (len > 0)
        ddpi_buf_added(&leash->input, (size_t)len);
    else if (len < 0 && (errno == EINTR || errno == EAGAIN))
        return DDP_OK;
    return len > 0 ? DDP_OK
                   : ddpi_error_set(err, DDP_E_CLOSED,
                                    "the launcher is gone: standard input ended before 'go'");
}

static ddp_status await_input(const struct leash *leash, uint64_t until_ms, struct ddp_error *err)
{
    uint64_t now_ms = ddpi_monotonic_ms();
    struct pollfd input = {.fd = leash->fd, .events = POLLIN};
    if (now_ms < until_ms && poll(&input, 1, (int)(until_ms - now_ms)) != 0)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_TIMEOUT,
                          "no launcher has written to standard input within %d s; --leash is for "
                          "the agents that ddprun itself starts on other hosts",
                          GO_MS / 1000);
}

static ddp_status read_to_go(struct leash *leash, struct ddp_error *err)
{
    uint64_t until_ms = ddpi_monotonic_ms() + GO_MS;
    enum leash_kind kind = LEASH_GREETING;
    ddp_status status = DDP_OK;
    while (status == DDP_OK && kind != LEASH_GO) {
        if (take_line(leash, &kind, &status, err))
            continue;
        status = await_input(leash, until_ms, err);
        if (status == DDP_OK)
            status = read_some(leash, err);
    }
    return status;
}

ddp_status leash_take(struct leash *leash, struct ddp_error *err)
{
    ddpi_buf_init(&leash->input, LEASH_TEXT_MAX);
    leash->fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, HEAD_TOKEN_FD + 1);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (leash->fd < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return ddpi_error_sys(err, errno, "cannot take standard input for the leash");
    close(nothing);
    return read_to_go(leash, err);
}

void leash_forget(struct leash *leash)
{
    if (leash->fd >= 0)
        close(leash->fd);
    if (leash->token_fd >= 0)
        close(leash->token_fd);
    leash->fd = leash->token_fd = -1;
    if (leash->input.data != NULL)
        ddpi_wipe(leash->input.data, leash->input.size);
    ddpi_buf_finish(&leash->input);
}

void leash_say_hello(void)
{
    static const char hello[] = LEASH_HELLO DDPRUN_VERSION "\n";
    (void)!write(STDOUT_FILENO, hello, sizeof hello - 1); /* its failure is the launcher's end */
}

/* ---- later ---- */

static void on_input(uv_poll_t *watch, int uv_status, int events)
{
    struct leash *leash = watch->data;
    enum leash_kind kind;
    (void)uv_status;
    (void)events;
    ddp_status status = read_some(leash, NULL), line = DDP_OK;
    while (status == DDP_OK && take_line(leash, &kind, &line, NULL))
        status = line;
    if (status == DDP_OK)
        return;
    uv_poll_stop(watch);
    leash->gone(leash->ctx);
}

ddp_status leash_watch(struct leash *leash, uv_loop_t *loop, void (*gone)(void *ctx), void *ctx,
                       struct ddp_error *err)
{
    int uv_status = uv_poll_init(loop, &leash->watch, leash->fd);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch the leash");
    leash->watch.data = leash;
    leash->gone = gone;
    leash->ctx = ctx;
    uv_poll_start(&leash->watch, UV_READABLE, on_input);
    return DDP_OK;
}

void leash_close(struct leash *leash)
{
    if (leash->gone == NULL)
        return;
    leash->gone = NULL;
    uv_close((uv_handle_t *)&leash->watch, NULL);
}

void leash_finish(struct leash *leash)
{
    ddpi_buf_finish(&leash->input);
}
