/*
 * timeline.c - writes events as they come; rows are kept to know their numbers.
 */
#include "timeline.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct ddpi_timeline_row {
    struct ddpi_timeline_row *next;
    uint32_t number; /* from 1 */
    char name[];
};

ddp_status ddpi_timeline_open(struct ddpi_timeline *timeline, const char *path, uint32_t rank,
                              struct ddp_error *err)
{
    *timeline = (struct ddpi_timeline){.fd = -1, .rank = rank};
    if (path == NULL)
        return DDP_OK;
    timeline->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (timeline->fd < 0)
        return ddpi_error_set(err, DDP_E_INVALID, "timeline \"%s\": %s", path, strerror(errno));
    timeline->text[timeline->used++] = '[';
    return DDP_OK;
}

/* What a full disk does not take is lost. */
static void write_out(struct ddpi_timeline *timeline)
{
    size_t written = 0;
    while (written < timeline->used) {
        ssize_t n = write(timeline->fd, timeline->text + written, timeline->used - written);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        written += (size_t)n;
    }
    timeline->used = 0;
}

static void add_text(struct ddpi_timeline *timeline, const char *text)
{
    size_t len = strlen(text);
    if (len > sizeof timeline->text - timeline->used)
        write_out(timeline);
    memcpy(timeline->text + timeline->used, text, len);
    timeline->used += len;
}

static void begin_event(struct ddpi_timeline *timeline)
{
    add_text(timeline, timeline->nevents++ > 0 ? ",\n" : "\n");
}

/* Names have no control characters, but may have all others; what is not ASCII could be no UTF-8,
 * and becomes the code point of that byte. */
static void add_name(struct ddpi_timeline *timeline, const char *name)
{
    for (; *name != '\0'; name++) {
        char text[8] = {*name};
        if (*name == '"' || *name == '\\')
            snprintf(text, sizeof text, "\\%c", *name);
        else if ((unsigned char)*name >= 0x80)
            snprintf(text, sizeof text, "\\u00%02x", (unsigned char)*name);
        add_text(timeline, text);
    }
}

static struct ddpi_timeline_row *add_row(struct ddpi_timeline *timeline, uint32_t set,
                                         const char *tensor)
{
    size_t bytes = strlen(tensor) + 1;
    struct ddpi_timeline_row *row = ddpi_calloc(1, sizeof *row + bytes);
    if (row == NULL)
        return NULL;
    memcpy(row->name, tensor, bytes);
    if (!ddpi_name_table_add(&timeline->rows, set, row->name, row)) {
        ddpi_free(row);
        return NULL;
    }
    row->number = ++timeline->nrows;
    row->next = timeline->first;
    timeline->first = row;
    char text[128];
    begin_event(timeline);
    snprintf(text, sizeof text,
             "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %" PRIu32 ", \"tid\": %" PRIu32
             ", \"args\": {\"name\": \"",
             timeline->rank, row->number);
    add_text(timeline, text);
    add_name(timeline, tensor);
    add_text(timeline, "\"}}");
    return row;
}

void ddpi_timeline_event(struct ddpi_timeline *timeline, uint32_t set, const char *tensor,
                         const char *what, uint64_t begin_us, uint64_t end_us)
{
    char text[256];
    if (timeline->fd < 0)
        return;
    struct ddpi_timeline_row *row = ddpi_name_table_find(&timeline->rows, set, tensor);
    if (row == NULL)
        row = add_row(timeline, set, tensor);
    if (row == NULL)
        return;
    begin_event(timeline);
    snprintf(text, sizeof text,
             "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %" PRIu32 ", \"tid\": %" PRIu32
             ", \"ts\": %" PRIu64 ", \"dur\": %" PRIu64 "}",
             what, timeline->rank, row->number, begin_us, end_us - begin_us);
    add_text(timeline, text);
}

void ddpi_timeline_close(struct ddpi_timeline *timeline, bool is_child)
{
    for (struct ddpi_timeline_row *row = timeline->first, *next; row != NULL; row = next) {
        next = row->next;
        ddpi_free(row);
    }
    ddpi_name_table_finish(&timeline->rows);
    if (timeline->fd < 0)
        return;
    if (!is_child) {
        add_text(timeline, "\n]\n");
        write_out(timeline);
    }
    close(timeline->fd);
}
