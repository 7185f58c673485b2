/*
 * worker_status.c - writes and reads the lines of worker_status.h. Owns nothing.
 */
#include "worker_status.h"

#include "parse.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {[WORKER_STATUS_RUNNING] = "running",
                                    [WORKER_STATUS_STOPPED] = "stopped",
                                    [WORKER_STATUS_STOPPING] = "stopping",
                                    [WORKER_STATUS_EXITED] = "exited",
                                    [WORKER_STATUS_KILLED] = "killed"};
enum { STATES = sizeof names / sizeof *names };

const char *worker_status_state_name(enum worker_status_state state)
{
    return names[state];
}

bool worker_status_put(struct ddpi_buf *buf, const struct worker_status *worker)
{
    char line[WORKER_STATUS_LINE_MAX], code[8] = "";
    const char *how = worker->state == WORKER_STATUS_KILLED ? worker->signal : code;
    if (worker->state == WORKER_STATUS_EXITED)
        snprintf(code, sizeof code, "%u", worker->exit_code);
    int len = snprintf(line, sizeof line, "%u %u %d %s%s%s\n", worker->local_rank, worker->rank,
                       worker->pid, names[worker->state], *how != '\0' ? " " : "", how);
    return ddpi_buf_append(buf, line, (size_t)len);
}

/* ---- reading ---- */

/* Cut the first word off *@line. */
static const char *status_word(char **line)
{
    char *word = *line, *blank = strchr(word, ' ');
    *line = blank != NULL ? blank + 1 : word + strlen(word);
    if (blank != NULL)
        *blank = '\0';
    return word;
}

static bool status_number(char **line, int64_t max, int64_t *ret)
{
    return ddpi_parse_int(status_word(line), 0, max, ret, NULL) == DDP_OK;
}

static bool status_state(char **line, enum worker_status_state *ret)
{
    const char *word = status_word(line);
    for (unsigned i = 0; i < STATES; i++)
        if (strcmp(word, names[i]) == 0) {
            *ret = (enum worker_status_state)i;
            return true;
        }
    return false;
}

static bool is_printable(const char *text)
{
    for (; *text >= ' ' && *text <= '~'; text++)
        ;
    return *text == '\0';
}

static bool parse_line(char *line, struct worker_status *ret)
{
    int64_t local_rank, rank, pid, exit_code = 0;
    struct worker_status worker = {0};
    if (!is_printable(line) || !status_number(&line, UINT32_MAX, &local_rank) ||
        !status_number(&line, UINT32_MAX, &rank) || !status_number(&line, INT32_MAX, &pid) ||
        !status_state(&line, &worker.state))
        return false;
    if (worker.state == WORKER_STATUS_EXITED && !status_number(&line, UINT8_MAX, &exit_code))
        return false;
    if (worker.state == WORKER_STATUS_KILLED) {
        size_t len = strlen(line);
        if (len == 0 || len >= sizeof worker.signal)
            return false;
        memcpy(worker.signal, line, len + 1);
        line += len;
    }
    worker.local_rank = (uint32_t)local_rank;
    worker.rank = (uint32_t)rank;
    worker.pid = (int32_t)pid;
    worker.exit_code = (uint8_t)exit_code;
    *ret = worker;
    return *line == '\0';
}

bool worker_status_next(const char **text, size_t *left, struct worker_status *ret)
{
    while (*left > 0) {
        char line[WORKER_STATUS_LINE_MAX];
        const char *at = *text, *newline = memchr(at, '\n', *left);
        size_t len = newline != NULL ? (size_t)(newline - at) : *left;
        size_t step = newline != NULL ? len + 1 : len;
        *text += step;
        *left -= step;
        if (len >= sizeof line || memchr(at, '\0', len) != NULL)
            continue;
        memcpy(line, at, len);
        line[len] = '\0';
        if (parse_line(line, ret))
            return true;
    }
    return false;
}
