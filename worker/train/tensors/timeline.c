/*
 * timeline.c - writes events as they come; rows are kept to know their numbers.
 */
#include "timeline.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct ddpi_timeline_row {
    struct ddpi_timeline_row *next;
    uint32_t number; /* from 1 */
    char name[];
};

ddp_status ddpi_timeline_open(struct ddpi_timeline *timeline, const char *path, uint32_t rank,
                              struct ddp_error *err)
{
    *timeline = (struct ddpi_timeline){.rank = rank};
    if (path == NULL)
        return DDP_OK;
    timeline->file = fopen(path, "we");
    if (timeline->file == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "timeline \"%s\": %s", path, strerror(errno));
    fputc('[', timeline->file);
    return DDP_OK;
}

static void begin_event(struct ddpi_timeline *timeline)
{
    fputs(timeline->nevents++ > 0 ? ",\n" : "\n", timeline->file);
}

/* Names have no control characters, but may have all others; what is not ASCII could be no UTF-8,
 * and becomes the code point of that byte. */
static void write_text(FILE *file, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text >= 0x80)
            fprintf(file, "\\u00%02x", (unsigned char)*text);
        else
            fputc(*text, file);
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
    begin_event(timeline);
    fprintf(timeline->file,
            "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %" PRIu32 ", \"tid\": %" PRIu32
            ", \"args\": {\"name\": \"",
            timeline->rank, row->number);
    write_text(timeline->file, tensor);
    fputs("\"}}", timeline->file);
    return row;
}

void ddpi_timeline_event(struct ddpi_timeline *timeline, uint32_t set, const char *tensor,
                         const char *what, uint64_t begin_us, uint64_t end_us)
{
    if (timeline->file == NULL)
        return;
    struct ddpi_timeline_row *row = ddpi_name_table_find(&timeline->rows, set, tensor);
    if (row == NULL)
        row = add_row(timeline, set, tensor);
    if (row == NULL)
        return;
    begin_event(timeline);
    fprintf(timeline->file,
            "{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %" PRIu32 ", \"tid\": %" PRIu32
            ", \"ts\": %" PRIu64 ", \"dur\": %" PRIu64 "}",
            what, timeline->rank, row->number, begin_us, end_us - begin_us);
}

void ddpi_timeline_close(struct ddpi_timeline *timeline)
{
    for (struct ddpi_timeline_row *row = timeline->first, *next; row != NULL; row = next) {
        next = row->next;
        ddpi_free(row);
    }
    ddpi_name_table_finish(&timeline->rows);
    if (timeline->file == NULL)
        return;
    fputs("\n]\n", timeline->file);
    fclose(timeline->file);
}
