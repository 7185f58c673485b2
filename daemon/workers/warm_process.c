/*
 * warm_process.c - see warm_process.h. Owns the process, the socket to it and the thread that
 * starts it. Reads the socket until the process is ready; from then on only warm_fork.c does. Does
 * not wait for the process: the agent, which waits for all its children, calls
 * warm_process_exited().
 */
#include "warm_process.h"

#include "error.h"
#include "mem.h"
#include "parse.h"
#include "signames.h"
#include "warm_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

DDPI_SM_DEFINE(warm, WARM_STATES);

/* Its first message is its program, the second one the names of variables. ps shows the script and
 * its arguments. */
static char boot[] = "import os; exec(os.read(3, 65536))";
static char unbuffered[] = "-u", command[] = "-c";

enum { FIRST_OPERAND = 2, OWN_WORDS = 5 }; /* of a worker's argv; python3 -u -c BOOT MODULES */

DDP_PRINTF(2, 3) static void warm_say(const struct warm_process *warm, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    warm->hooks.say(warm->hooks.ctx, line);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A process may be begun again when nothing is left of the last one. */
static void settle(struct warm_process *warm)
{
    if (warm->sm.state == WARM_ENDING && warm->pid == 0 && !warm->polled)
        ddpi_sm_move(&warm->sm, WARM_ABSENT);
}

static void on_news_closed(uv_handle_t *handle)
{
    struct warm_process *warm = handle->data;
    warm->polled = false;
    settle(warm);
}

static void stop_reading(struct warm_process *warm)
{
    if (warm->polled && !uv_is_closing((uv_handle_t *)&warm->news))
        uv_close((uv_handle_t *)&warm->news, on_news_closed);
}

static void kill_it(struct warm_process *warm)
{
    if (warm->pid > 0)
        kill(warm->pid, SIGKILL); /* not reaped yet, so the pid is its own */
}

/* ---- its messages ---- */

static void refuse(struct warm_process *warm, const char *why)
{
    ddpi_sm_move(&warm->sm, WARM_REFUSED);
    warm_say(warm,
             "cannot preload '%s': %s; workers start without it, as they do without --preload",
             warm->config.modules, why);
}

/* "MILLISECONDS NAMES"; changes @text. */
static bool take_ready(struct warm_process *warm, char *text)
{
    char *names = strchr(text, ' ');
    int64_t spent_ms;
    if (names == NULL)
        return false;
    *names++ = '\0';
    if (ddpi_parse_int(text, 0, INT64_MAX, &spent_ms, NULL) != DDP_OK)
        return false;
    warm->import_ms = (uint64_t)spent_ms;
    snprintf(warm->names, sizeof warm->names, "%s", names);
    ddpi_sm_move(&warm->sm, WARM_READY);
    return true;
}

/* "ready MILLISECONDS NAMES" or "failed WHY". Its modules are not trusted to leave it alone. */
static void take_message(struct warm_process *warm, char *text)
{
    if (strncmp(text, "ready ", 6) == 0 && take_ready(warm, text + 6))
        return;
    refuse(warm, strncmp(text, "failed ", 7) == 0
                     ? text + 7
                     : "the process that imports it has sent something unexpected");
    kill_it(warm);
}

static void on_news(uv_poll_t *poll, int status, int events)
{
    struct warm_process *warm = poll->data;
    char text[512];
    (void)status;
    (void)events;
    ssize_t len = recv(warm->socket, text, sizeof text - 1, MSG_DONTWAIT);
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    stop_reading(warm);
    if (len <= 0)
        return; /* it has ended; why follows when it is reaped */
    text[len] = '\0';
    take_message(warm, text);
}

/* ---- start ---- */

static char **make_argv(const struct warm_config *config)
{
    size_t count = 0;
    while (config->argv[count] != NULL)
        count++;
    char **argv = ddpi_calloc(count - FIRST_OPERAND + OWN_WORDS + 1, sizeof *argv);
    if (argv == NULL)
        return NULL;
    char *const own[OWN_WORDS] = {config->argv[0], unbuffered, command, boot,
                                  (char *)config->modules};
    memcpy(argv, own, sizeof own);
    memcpy(argv + OWN_WORDS, config->argv + FIRST_OPERAND, (count - FIRST_OPERAND) * sizeof *argv);
    return argv;
}

/* What is needed only until the process runs. */
static void drop_start(struct warm_process *warm)
{
    ddpi_free(warm->argv);
    warm->argv = NULL;
    close_fd(&warm->null_fd);
    close_fd(&warm->its_socket);
}

static ddp_status prepare(struct warm_process *warm, struct ddp_error *err)
{
    int ends[2];
    warm->argv = make_argv(&warm->config);
    if (warm->argv == NULL)
        return ddpi_error_nomem(err, OWN_WORDS * sizeof *warm->argv);
    warm->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (warm->null_fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return ddpi_error_sys(err, errno, "cannot make its socket");
    warm->socket = ends[0];
    warm->its_socket = ends[1];
    if (send(warm->socket, warm_source, warm_source_len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ||
        send(warm->socket, warm->config.own, strlen(warm->config.own),
             MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return ddpi_error_sys(err, errno, "cannot send its program");
    return DDP_OK;
}

/* Descriptors 4 to 6 are placeholders, so that no module takes numbers that workers need. */
static void hand_over(struct warm_process *warm)
{
    int null_fd = warm->null_fd;
    warm->task = (struct spawner_task){.request = {.path = warm->config.program,
                                                   .argv = warm->argv,
                                                   .envp = warm->config.envp,
                                                   .stdio = {0, null_fd, null_fd},
                                                   .key_fd = warm->its_socket,
                                                   .life_fd = null_fd,
                                                   .pmi_fd = null_fd,
                                                   .flight_fd = null_fd,
                                                   .nofile = warm->config.nofile}};
    spawner_start(&warm->spawner, &warm->task);
}

void warm_process_begin(struct warm_process *warm)
{
    struct ddp_error error;
    if (warm->config.modules == NULL || warm->sm.state != WARM_ABSENT)
        return;
    ddpi_sm_move(&warm->sm, WARM_STARTING);
    if (prepare(warm, &error) == DDP_OK) {
        hand_over(warm);
        return;
    }
    refuse(warm, error.msg);
    drop_start(warm);
    close_fd(&warm->socket);
}

static ddp_status watch(struct warm_process *warm, struct ddp_error *err)
{
    int uv_status = uv_poll_init(warm->loop, &warm->news, warm->socket);
    if (uv_status == 0) {
        warm->polled = true;
        warm->news.data = warm;
        uv_status = uv_poll_start(&warm->news, UV_READABLE | UV_DISCONNECT, on_news);
    }
    return uv_status == 0 ? DDP_OK : ddpi_error_sys(err, -uv_status, "cannot watch its socket");
}

static void on_spawned(void *ctx, struct spawner_task *task)
{
    struct warm_process *warm = ctx;
    drop_start(warm);
    if (task->status == DDP_OK) {
        close(task->child.pidfd);
        warm->pid = task->child.pid;
        ddpi_sm_move(&warm->sm, WARM_IMPORTING);
        task->status = watch(warm, &task->error);
    }
    if (task->status != DDP_OK)
        refuse(warm, task->error.msg);
    if (task->status != DDP_OK || warm->over)
        kill_it(warm);
    warm->hooks.settled(warm->hooks.ctx);
}

/* ---- use ---- */

bool warm_process_is_ready(const struct warm_process *warm)
{
    return warm->sm.state == WARM_READY;
}

int warm_process_socket(const struct warm_process *warm)
{
    if (!warm_process_is_ready(warm))
        return 0;
    int fd = fcntl(warm->socket, F_DUPFD_CLOEXEC, SPAWN_FREE_FD);
    return fd > 0 ? fd : 0;
}

void warm_process_failed(struct warm_process *warm, const char *why)
{
    if (warm->sm.state != WARM_READY)
        return;
    ddpi_sm_move(&warm->sm, WARM_ENDING);
    warm_say(warm, "%s; workers start without it", why);
    kill_it(warm);
}

pid_t warm_process_pid(const struct warm_process *warm)
{
    return warm->pid;
}

bool warm_process_busy(const struct warm_process *warm)
{
    return warm->sm.state == WARM_STARTING;
}

/* ---- end ---- */

static void say_end(const struct warm_process *warm, int wait_status)
{
    char name[SIGNAME_MAX], how[64];
    if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof how, "was killed by %s", signame_of(WTERMSIG(wait_status), name));
    else
        snprintf(how, sizeof how, "exited with code %d", WEXITSTATUS(wait_status));
    warm_say(warm,
             "the process that has '%s' imported %s; the next one starts with the next workers",
             warm->config.modules, how);
}

bool warm_process_exited(struct warm_process *warm, pid_t pid, int wait_status)
{
    if (pid != warm->pid || pid == 0)
        return false;
    warm->pid = 0;
    if (warm->sm.state == WARM_IMPORTING) /* it may have said why, and not be heard yet */
        on_news(&warm->news, 0, UV_READABLE);
    stop_reading(warm);
    close_fd(&warm->socket);
    if (!warm->over && ddpi_sm_allowed(&warm->sm, WARM_ENDING)) {
        say_end(warm, wait_status);
        ddpi_sm_move(&warm->sm, WARM_ENDING);
    }
    settle(warm);
    return true;
}

void warm_process_end(struct warm_process *warm)
{
    warm->over = true;
    kill_it(warm);
}

ddp_status warm_process_open(struct warm_process *warm, uv_loop_t *loop,
                             const struct warm_config *config, const struct warm_hooks *hooks,
                             struct ddp_error *err)
{
    *warm = (struct warm_process){.config = *config,
                                  .hooks = *hooks,
                                  .loop = loop,
                                  .null_fd = -1,
                                  .its_socket = -1,
                                  .socket = -1};
    ddpi_sm_init(&warm->sm, &warm_sm);
    return config->modules != NULL ? spawner_open(&warm->spawner, loop, 1, on_spawned, warm, err)
                                   : DDP_OK;
}

void warm_process_close(struct warm_process *warm)
{
    if (warm->sm.table == NULL || warm->config.modules == NULL)
        return; /* never opened */
    warm_process_end(warm);
    stop_reading(warm);
    spawner_close(&warm->spawner);
    if (!warm->spawner.left) /* else its thread still uses them */
        drop_start(warm);
    close_fd(&warm->socket);
}
