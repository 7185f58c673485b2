/*
 * proc_stat.c - reads /proc/PID/stat. Owns nothing, allocates nothing.
 */
#include "proc_stat.h"

#include "parse.h"
#include "text_file.h"

#include <stdio.h>
#include <string.h>

enum {
    LINE_MAX_BYTES = 2048,
    /* Fields as proc(5) numbers them. */
    STATE_FIELD = 3,
    PARENT_FIELD = 4,
    SESSION_FIELD = 6,
    FLAGS_FIELD = 9,
    THREADS_FIELD = 20,
    PROCESSOR_FIELD = 39,
    EXIT_CODE_FIELD = 52, /* the last one since Linux 3.5 */
};

static void note_field(struct ddpi_proc_stat *stat, int field, const char *text)
{
    int64_t number = 0;
    (void)!ddpi_parse_int(text, 0, UINT32_MAX, &number, NULL);
    switch (field) {
    case STATE_FIELD:
        stat->state = text[0];
        break;
    case PARENT_FIELD:
        stat->parent = (pid_t)number;
        break;
    case SESSION_FIELD:
        stat->session = (pid_t)number;
        break;
    case FLAGS_FIELD:
        stat->flags = number;
        break;
    case THREADS_FIELD:
        stat->threads = number;
        break;
    case PROCESSOR_FIELD:
        stat->processor = number;
        break;
    case EXIT_CODE_FIELD:
        stat->exit_code = number;
        break;
    default:
        break;
    }
}

/* The name may contain anything, so the fields are counted from the last parenthesis. */
bool ddpi_proc_stat_parse(char *line, struct ddpi_proc_stat *ret)
{
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    if (open == NULL || close == NULL || close < open || close[1] != ' ')
        return false;
    *ret = (struct ddpi_proc_stat){0};
    snprintf(ret->name, sizeof ret->name, "%.*s", (int)(close - open) - 1, open + 1);
    char *rest = close + 2, *text;
    int field = STATE_FIELD;
    for (; (text = strsep(&rest, " \n")) != NULL && *text != '\0'; field++)
        note_field(ret, field, text);
    return field > EXIT_CODE_FIELD;
}

bool ddpi_proc_stat_read(pid_t pid, struct ddpi_proc_stat *ret)
{
    char path[32], line[LINE_MAX_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!ddpi_text_file_read(path, line, sizeof line) || !ddpi_proc_stat_parse(line, ret))
        return false;
    ret->pid = pid;
    return true;
}
