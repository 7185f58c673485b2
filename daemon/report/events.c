/*
 * events.c - builds and writes the lines of the log of events. Owns no descriptor: the opener of
 * the log closes it.
 */
#include "events.h"

#include "clock.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA = 1, STDERR_CONSOLE = 1, LINE_ROOM = 8192 };

#define FORMAT (JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12))

static const char *const names[] = {
#define EVENT_NAME(symbol, name) #name,
    EVENTS(EVENT_NAME)
#undef EVENT_NAME
};

/* ---- the file ---- */

ddp_status event_log_open(struct event_log *log, const char *path, struct ddp_error *err)
{
    *log = (struct event_log){.fd = -1, .console = strcmp(path, "-") == 0};
    if (log->console)
        return DDP_OK;
    /* O_NONBLOCK: do not wait for the reader of a FIFO. */
    log->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    if (log->fd >= 0)
        return DDP_OK;
    if (errno == ENXIO)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "--event-log: the FIFO '%s' has no reader; start its reader first",
                              path);
    return ddpi_error_sys(err, errno, "--event-log: cannot open '%s'", path);
}

void event_log_close(struct event_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}

/* ---- one line ---- */

/* A reason may contain invalid UTF-8, or be cut inside a character. */
static json_t *text_of(const char *text)
{
    json_t *value = json_string(text);
    char ascii[DDP_ROUND_TEXT_SIZE];
    if (value != NULL)
        return value;
    snprintf(ascii, sizeof ascii, "%s", text);
    for (char *at = ascii; *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    return json_string(ascii);
}

static void say_missing(struct events *events, const char *why)
{
    if (!events->told)
        logmux_say(events->mux, "--event-log: events are missing from now on: %s", why);
    events->told = true;
}

/* A partly written line gets a newline before the next one. */
static void write_event_file(struct events *events, char *line, size_t len)
{
    line[0] = '\n';
    char *from = events->torn ? line : line + 1;
    size_t left = len - (size_t)(from - line);
    ssize_t written;
    do {
        written = write(events->log->fd, from, left);
    } while (written < 0 && errno == EINTR);
    if (written < 0) {
        say_missing(events, errno == EAGAIN ? "its reader is too slow" : strerrordesc_np(errno));
        return;
    }
    events->torn = (size_t)written < left;
    if (events->torn)
        say_missing(events, "no room for a whole line");
}

/* The first byte of @line is room for write_event_file(). */
static void write_event_line(struct events *events, char *line, size_t len)
{
    if (!events->log->console)
        write_event_file(events, line, len);
    else if (events->mux->paused)
        say_missing(events, "its reader is too slow");
    else
        logmux_print(events->mux, STDERR_CONSOLE, line + 1, len - 1);
}

static void dump(struct events *events, const json_t *object)
{
    char line[LINE_ROOM];
    size_t len = json_dumpb(object, line + 1, sizeof line - 2, FORMAT);
    if (len == 0 || len > sizeof line - 2) {
        say_missing(events, len == 0 ? "no memory" : "a line is too long");
        return;
    }
    line[len + 1] = '\n';
    write_event_line(events, line, len + 2);
}

static double milliseconds_since(uint64_t from_us, uint64_t now_us)
{
    return (double)(now_us - from_us) / 1e3;
}

static json_t *describe_event(const struct events *events, enum event event, const char *reason)
{
    uint64_t now_us = ddpi_monotonic_us();
    const struct ddp_round_seat *seat = &events->seat;
    json_t *object = json_pack(
        "{s:i, s:s, s:I, s:I, s:o, s:o, s:I, s:I}", "schema", SCHEMA, "event", names[event],
        "time_unix_ms", (json_int_t)(ddpi_now_real_ns() / 1000000), "monotonic_us",
        (json_int_t)now_us, "job", text_of(events->job), "node", text_of(events->node),
        "generation", (json_int_t)seat->generation, "restarts", (json_int_t)seat->restarts);
    if (object == NULL)
        return NULL;
    if (seat->generation > 0 && !events->meeting) {
        json_object_set_new(object, "node_rank", json_integer(seat->node_rank));
        json_object_set_new(object, "world_size", json_integer(seat->world_size));
    }
    if (events->failing)
        json_object_set_new(object, "since_failure_ms",
                            json_real(milliseconds_since(events->failure_us, now_us)));
    if (*reason != '\0')
        json_object_set_new(object, "reason", text_of(reason));
    return object;
}

static void put_field(struct events *events, json_t *object)
{
    if (object == NULL)
        say_missing(events, "no memory");
    else
        dump(events, object);
    json_decref(object);
}

static void write_event(struct events *events, enum event event, const char *reason)
{
    if (events->log != NULL)
        put_field(events, describe_event(events, event, reason));
}

/* ---- what happens ---- */

void events_init(struct events *events, const struct event_log *log, struct logmux *mux,
                 const char *job, const char *node)
{
    *events = (struct events){.log = log, .mux = mux, .job = job, .node = node};
}

void events_failure(struct events *events, const char *why)
{
    if (events->failing)
        return;
    events->failing = true;
    events->failure_us = ddpi_monotonic_us();
    events_ending(events, why);
    write_event(events, EVENT_FAILURE_DETECTED, why);
}

void events_ending(struct events *events, const char *why)
{
    snprintf(events->reason, sizeof events->reason, "%s", why);
}

void events_terminated(struct events *events)
{
    write_event(events, EVENT_WORKER_TERMINATED, events->reason);
}

void events_meeting(struct events *events)
{
    if (events->meeting)
        return;
    events->meeting = true;
    write_event(events, EVENT_RENDEZVOUS_STARTED, events->reason);
}

void events_seated(struct events *events, const struct ddp_round_seat *seat)
{
    events_meeting(events);
    events->meeting = false;
    events->reason[0] = '\0';
    events->seat = *seat;
    write_event(events, EVENT_RENDEZVOUS_COMPLETED, "");
    write_event(events, EVENT_WORKER_START_STARTED, "");
}

void events_started(struct events *events)
{
    write_event(events, EVENT_WORKER_START_COMPLETED, "");
    events->failing = false;
}

void events_checked(struct events *events, const char *why)
{
    write_event(events, EVENT_HEALTH_CHECK_COMPLETED, why);
}

void events_left_out(struct events *events, const char *why)
{
    write_event(events, EVENT_NODE_LEFT_OUT, why);
}

void events_store(struct events *events, enum event event, const char *endpoint, const char *why)
{
    if (events->log == NULL)
        return;
    json_t *object = describe_event(events, event, why);
    json_object_set_new(object, "endpoint", text_of(endpoint));
    put_field(events, object);
}

void events_over(struct events *events, int exit_code, const char *why)
{
    if (events->log == NULL)
        return;
    json_t *object = describe_event(events, EVENT_JOB_ENDED, why);
    json_object_set_new(object, "exit_code", json_integer(exit_code));
    put_field(events, object);
}
