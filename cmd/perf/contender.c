/*
 * contender.c - starts a job of players (player.h), gives it orders through
 * FIFOs, and ends it. Owns the FIFOs and the process.
 */
#include "contender.h"

#include "clock.h"
#include "error.h"
#include "mem.h"
#include "parse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ANSWER_MS = 120 * 1000, END_MS = 10 * 1000, LINE = 128 };

/* ---- starting ---- */

/* Open for both directions: so neither end waits for the other one to be opened. */
static int make_fifo(const struct contender *contender, const char *end, struct ddp_error *err)
{
    char path[CONTENDER_PATH + 32];
    snprintf(path, sizeof path, "%s.%s", contender->fifos, end);
    int fd = mkfifo(path, 0600) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        ddpi_error_sys(err, errno, "make the FIFO '%s'", path);
    return fd;
}

static bool make_fifos(struct contender *contender, struct ddp_error *err)
{
    char end[32];
    contender->orders = ddpi_calloc(contender->ranks, sizeof *contender->orders);
    if (contender->orders == NULL)
        return ddpi_error_nomem(err, contender->ranks * sizeof *contender->orders) == DDP_OK;
    for (uint32_t rank = 0; rank < contender->ranks; rank++)
        contender->orders[rank] = -1;
    bool made = (contender->answer = make_fifo(contender, "answer", err)) >= 0;
    for (uint32_t rank = 0; rank < contender->ranks && made; rank++) {
        snprintf(end, sizeof end, "%u", rank);
        made = (contender->orders[rank] = make_fifo(contender, end, err)) >= 0;
    }
    return made;
}

/* In a process group of its own, so that an interrupt from the terminal ends this program first,
 * and without a terminal to read. */
static bool spawn_job(struct contender *contender, struct ddp_error *err)
{
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    setenv("DDP_PERF_TURNS", contender->fifos, 1);
    setenv("OMP_NUM_THREADS", "1", 0);
    if (contender->algorithm != NULL)
        setenv("DDP_ALGORITHM", contender->algorithm, 1);
    int error = posix_spawnp(&contender->pid, contender->words[0], &actions, &attributes,
                             (char *const *)(uintptr_t)contender->words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        contender->pid = 0;
        return ddpi_error_sys(err, error, "start '%s'", contender->words[0]) == DDP_OK;
    }
    contender->pidfd = pidfd_open(contender->pid, 0);
    return contender->pidfd >= 0 ||
           ddpi_error_sys(err, errno, "watch process %d", (int)contender->pid) == DDP_OK;
}

bool contender_start(struct contender *contender, const char *folder, struct ddp_error *err)
{
    contender->answer = contender->pidfd = -1;
    snprintf(contender->fifos, sizeof contender->fifos, "%s/%s", folder, contender->name);
    return make_fifos(contender, err) && spawn_job(contender, err);
}

/* ---- playing ---- */

static bool send_orders(const struct contender *contender, const char *line, struct ddp_error *err)
{
    size_t len = strlen(line);
    for (uint32_t rank = 0; rank < contender->ranks; rank++)
        if (write(contender->orders[rank], line, len) != (ssize_t)len)
            return ddpi_error_sys(err, errno, "write to a FIFO of %s", contender->name) == DDP_OK;
    return true;
}

/* One line of the answer, which a rank writes at once. */
static bool read_answer(const struct contender *contender, char line[LINE], struct ddp_error *err)
{
    struct pollfd fds[] = {{.fd = contender->answer, .events = POLLIN},
                           {.fd = contender->pidfd, .events = POLLIN}};
    int count = poll(fds, 2, ANSWER_MS);
    ssize_t got = count > 0 && fds[0].revents != 0 ? read(contender->answer, line, LINE - 1) : 0;
    if (got > 0) {
        line[got] = '\0';
        return true;
    }
    return ddpi_error_set(err, DDP_E_SYSTEM,
                          count > 0 ? "%s: the job has ended; what it wrote is above"
                                    : "%s: no answer within two minutes",
                          contender->name) == DDP_OK;
}

static bool parse_answer(const struct contender *contender, char *line, double *ret_us,
                         uint64_t *ret_wrong, struct ddp_error *err)
{
    int64_t nanoseconds, wrong;
    char *dot = strchr(line, '.'), *space = strchr(line, ' '), *end = strchr(line, '\n');
    bool fits = dot != NULL && space == dot + 4 && end != NULL && end > space;
    if (fits) { /* "12.345 0": without the dot, nanoseconds */
        memmove(dot, dot + 1, 3);
        dot[3] = *end = '\0';
        fits = ddpi_parse_int(line, 0, INT64_MAX, &nanoseconds, err) == DDP_OK &&
               ddpi_parse_int(space + 1, 0, INT64_MAX, &wrong, err) == DDP_OK;
    }
    if (!fits)
        return ddpi_error_set(err, DDP_E_PROTOCOL, "%s: the answer is not a time: %s",
                              contender->name, line) == DDP_OK;
    *ret_us = (double)nanoseconds / 1e3;
    *ret_wrong = (uint64_t)wrong;
    return true;
}

bool contender_play(struct contender *contender, const char *call, uint64_t bytes, uint64_t iters,
                    double *ret_us, struct ddp_error *err)
{
    char line[LINE];
    uint64_t wrong = 0;
    snprintf(line, sizeof line, "%s %llu %llu\n", call, (unsigned long long)bytes,
             (unsigned long long)iters);
    if (!send_orders(contender, line, err) || !read_answer(contender, line, err) ||
        !parse_answer(contender, line, ret_us, &wrong, err))
        return false;
    contender->wrong += wrong;
    return true;
}

/* ---- ending ---- */

static void remove_fifo(const struct contender *contender, const char *end, int fd)
{
    char path[CONTENDER_PATH + 32];
    if (fd < 0)
        return;
    close(fd);
    snprintf(path, sizeof path, "%s.%s", contender->fifos, end);
    unlink(path);
}

static void end_job(struct contender *contender)
{
    struct pollfd ended = {.fd = contender->pidfd, .events = POLLIN};
    struct ddp_error ignored;
    if (!send_orders(contender, "end 0 0\n", &ignored) || poll(&ended, 1, END_MS) != 1)
        kill(-contender->pid, SIGTERM);
    if (poll(&ended, 1, END_MS) != 1)
        kill(-contender->pid, SIGKILL);
    waitpid(contender->pid, NULL, 0);
    close(contender->pidfd);
}

void contender_end(struct contender *contender)
{
    char end[32];
    if (contender->orders == NULL)
        return;
    if (contender->pid > 0 && contender->pidfd >= 0)
        end_job(contender);
    remove_fifo(contender, "answer", contender->answer);
    for (uint32_t rank = 0; rank < contender->ranks; rank++) {
        snprintf(end, sizeof end, "%u", rank);
        remove_fifo(contender, end, contender->orders[rank]);
    }
    ddpi_free(contender->orders);
    contender->orders = NULL;
    perf_samples_finish(&contender->times);
}
