/*
 * watchdog.c - reads requests with jansson, runs the countdowns, and signals. Owns the FIFO, its
 * handles, and the countdowns.
 *
 * A request is a line of JSON of at most PIPE_BUF bytes, so that concurrent writes do not mix:
 * {"version": 1, "pid": N, "scope_id": TEXT, "expiration_time": SECONDS, "signal": N}. The time is
 * wall-clock time; less than 0 cancels the countdown.
 */
#include "watchdog.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "signames.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FIFO_MODE = 0600, SCOPE_SHOWN = 200 };

static const double longest_ms = 1e12; /* 30 years: no countdown is longer */

/* ---- the FIFO ---- */

static bool is_own_fifo(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_uid == geteuid();
}

/* Opening a FIFO for writing succeeds only while a process reads it. */
static bool has_reader(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Opened for writing as well, so that it does not end when the last worker closes it. -1 with
 * errno: no FIFO was made, or it was removed again. */
static int make_fifo(const char *path)
{
    struct stat st;
    if (mkfifo(path, FIFO_MODE) != 0)
        return -1;
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) && st.st_uid == geteuid())
        return fd;
    int error = fd < 0 ? errno : EEXIST; /* another file has taken its place */
    if (fd >= 0)
        close(fd);
    else
        unlink(path);
    errno = error;
    return -1;
}

static char *new_name(const char *temporary)
{
    uint64_t number = 0;
    (void)!getrandom(&number, sizeof number, 0);
    return ddpi_asprintf("%s/watchdog_timer_%016llx", temporary, (unsigned long long)number);
}

static ddp_status take_name(struct watchdog_fifo *fifo, const char *path, struct ddp_error *err)
{
    if (is_own_fifo(path) && has_reader(path))
        return ddpi_error_set(err, DDP_E_INVALID,
                              "TORCHELASTIC_TIMER_FILE: '%s' is the timer file of another job that "
                              "is running; unset it, or name another path for this job",
                              path);
    if (is_own_fifo(path))
        unlink(path); /* left by a job that was killed */
    fifo->fd = make_fifo(path);
    if (fifo->fd >= 0)
        return DDP_OK;
    const char *advice =
        errno == EEXIST
            ? "remove that file, name a path that does not exist, or unset it"
            : "name a path in a directory that exists and that you may write to, or unset it";
    ddp_status status =
        ddpi_error_sys(err, errno, "TORCHELASTIC_TIMER_FILE: cannot make the FIFO '%s'", path);
    return ddpi_error_advise(err, status, "%s", advice);
}

ddp_status watchdog_fifo_make(struct watchdog_fifo *fifo, const char *path, const char *temporary,
                              struct ddp_error *err)
{
    *fifo = (struct watchdog_fifo){.fd = -1};
    char *own = path != NULL ? ddpi_strdup(path) : new_name(temporary);
    if (own == NULL)
        return ddpi_error_nomem(err, 256);
    ddp_status status = take_name(fifo, own, err);
    if (status == DDP_OK)
        fifo->path = own;
    else
        ddpi_free(own);
    return status;
}

void watchdog_fifo_remove(struct watchdog_fifo *fifo)
{
    if (fifo->path == NULL)
        return;
    struct stat there, ours;
    bool same = lstat(fifo->path, &there) == 0 && fstat(fifo->fd, &ours) == 0 &&
                there.st_dev == ours.st_dev && there.st_ino == ours.st_ino;
    if (same) /* else it is another job's */
        unlink(fifo->path);
    close(fifo->fd);
    ddpi_free(fifo->path);
    *fifo = (struct watchdog_fifo){.fd = -1};
}

/* ---- the end of a countdown ---- */

/* The running worker whose session has @pid; NULL: none. */
static const struct worker_proc *worker_of(const struct watchdog *watchdog, pid_t pid)
{
    pid_t session = getsid(pid);
    for (uint32_t i = 0; session > 0 && i < watchdog->nproc; i++)
        if (worker_proc_alive(&watchdog->workers[i]) && watchdog->workers[i].pid == session)
            return &watchdog->workers[i];
    return NULL;
}

static int signal_process(int pidfd, int sig)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

/* Open the pidfd first: then the process that is checked is the one that is signalled. */
static void end_process(struct watchdog *watchdog, const struct timer_entry *entry)
{
    char name[SIGNAME_MAX];
    int pidfd = (int)syscall(SYS_pidfd_open, entry->pid, 0);
    const struct worker_proc *worker = pidfd >= 0 ? worker_of(watchdog, entry->pid) : NULL;
    if (worker != NULL && entry->signal > 0)
        logmux_say(watchdog->mux,
                   "rank %u: its timer '%.*s' has expired: process %d is ended by %s", worker->rank,
                   SCOPE_SHOWN, entry->scope, (int)entry->pid, signame_of(entry->signal, name));
    else if (worker != NULL)
        logmux_say(watchdog->mux,
                   "rank %u: its timer '%.*s' has expired; it asks for no signal to process %d",
                   worker->rank, SCOPE_SHOWN, entry->scope, (int)entry->pid);
    else if (pidfd >= 0)
        logmux_say(watchdog->mux,
                   "a timer of process %d has expired, which is not a worker of this job: it was "
                   "not signalled",
                   (int)entry->pid);
    if (worker != NULL && entry->signal > 0 && signal_process(pidfd, entry->signal) != 0)
        logmux_say(watchdog->mux, "process %d cannot be ended: %s", (int)entry->pid,
                   strerrordesc_np(errno));
    if (pidfd >= 0)
        close(pidfd);
}

static void keep_time(struct watchdog *watchdog);

static void on_due(uv_timer_t *timer)
{
    struct watchdog *watchdog = timer->data;
    struct timer_entry entry;
    while (timers_take_due(&watchdog->timers, ddpi_monotonic_ms(), &entry)) {
        end_process(watchdog, &entry);
        ddpi_free(entry.scope);
    }
    keep_time(watchdog);
}

static void keep_time(struct watchdog *watchdog)
{
    uint64_t next_ms = timers_next_ms(&watchdog->timers);
    uint64_t now_ms = ddpi_monotonic_ms();
    if (next_ms == UINT64_MAX || watchdog->held)
        uv_timer_stop(&watchdog->timer);
    else
        uv_timer_start(&watchdog->timer, on_due, next_ms > now_ms ? next_ms - now_ms : 0, 0);
}

/* ---- requests ---- */

/* On the monotonic clock. */
static uint64_t due_ms(double expiration_s)
{
    double left_ms = expiration_s * 1e3 - (double)ddpi_now_real_ns() / 1e6;
    left_ms = left_ms < 0 ? 0 : left_ms > longest_ms ? longest_ms : left_ms;
    return ddpi_monotonic_ms() + (uint64_t)left_ms;
}

/* false: it is not a request. */
static bool take_request(struct watchdog *watchdog, const json_t *request)
{
    const json_t *pid = json_object_get(request, "pid");
    const json_t *time = json_object_get(request, "expiration_time");
    const json_t *sig = json_object_get(request, "signal");
    const char *scope = json_string_value(json_object_get(request, "scope_id"));
    json_int_t number = json_integer_value(pid);
    if (number < 1 || number > INT_MAX || scope == NULL || !json_is_number(time) ||
        !json_is_integer(sig))
        return false;
    json_int_t signum = json_integer_value(sig);
    int wanted = signum > 0 && signum < NSIG ? (int)signum : 0;
    if (json_number_value(time) < 0)
        timers_release(&watchdog->timers, (pid_t)number, scope);
    else if (!timers_set(&watchdog->timers, (pid_t)number, scope, due_ms(json_number_value(time)),
                         wanted) &&
             !watchdog->told_full) {
        watchdog->told_full = true;
        logmux_say(watchdog->mux,
                   "TORCHELASTIC_TIMER_FILE: a timer was ignored: the limit is %d; further ones "
                   "are ignored silently",
                   TIMERS_MAX);
    }
    return true;
}

static void take_request_line(struct watchdog *watchdog)
{
    json_t *request = json_loadb(watchdog->line, watchdog->used, 0, NULL);
    bool good = !watchdog->skipping && take_request(watchdog, request);
    json_decref(request);
    watchdog->used = 0;
    watchdog->skipping = false;
    if (good || watchdog->told_bad)
        return;
    watchdog->told_bad = true;
    logmux_say(watchdog->mux, "TORCHELASTIC_TIMER_FILE: a line that is not a timer request was "
                              "ignored; further ones are ignored silently");
}

static void take_fifo_bytes(struct watchdog *watchdog, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '\n')
            take_request_line(watchdog);
        else if (watchdog->used == sizeof watchdog->line)
            watchdog->skipping = true;
        else
            watchdog->line[watchdog->used++] = bytes[i];
    }
}

/* One read per turn of the loop, however much a worker writes. */
static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct watchdog *watchdog = poll->data;
    char bytes[PIPE_BUF];
    (void)events;
    ssize_t len = status == 0 ? read(watchdog->fd, bytes, sizeof bytes) : 0;
    if (len > 0)
        take_fifo_bytes(watchdog, bytes, (size_t)len);
    keep_time(watchdog);
}

ddp_status watchdog_open(struct watchdog *watchdog, uv_loop_t *loop, int fd,
                         const struct worker_proc *workers, uint32_t nproc, struct logmux *mux,
                         struct ddp_error *err)
{
    *watchdog = (struct watchdog){.fd = fd, .workers = workers, .nproc = nproc, .mux = mux};
    if (fd <= 0)
        return DDP_OK;
    int uv_status = uv_poll_init(loop, &watchdog->poll, fd);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch TORCHELASTIC_TIMER_FILE");
    uv_timer_init(loop, &watchdog->timer);
    watchdog->open = true;
    watchdog->poll.data = watchdog->timer.data = watchdog;
    uv_poll_start(&watchdog->poll, UV_READABLE, on_readable);
    return DDP_OK;
}

/* Discard what the FIFO holds now. */
static void empty_fifo(struct watchdog *watchdog)
{
    char bytes[PIPE_BUF];
    int left = 0;
    if (ioctl(watchdog->fd, FIONREAD, &left) != 0)
        return;
    for (ssize_t len; left > 0; left -= (int)len)
        if ((len = read(watchdog->fd, bytes, sizeof bytes)) <= 0)
            return;
}

void watchdog_hold(struct watchdog *watchdog)
{
    timers_clear(&watchdog->timers);
    watchdog->held = true;
    watchdog->used = 0;
    watchdog->skipping = watchdog->told_bad = watchdog->told_full = false;
    if (!watchdog->open)
        return;
    empty_fifo(watchdog);
    keep_time(watchdog);
}

void watchdog_go_on(struct watchdog *watchdog)
{
    watchdog->held = false;
    if (watchdog->open)
        keep_time(watchdog);
}

void watchdog_close(struct watchdog *watchdog)
{
    timers_clear(&watchdog->timers);
    if (!watchdog->open)
        return;
    watchdog->open = false;
    uv_close((uv_handle_t *)&watchdog->poll, NULL);
    uv_close((uv_handle_t *)&watchdog->timer, NULL);
}
