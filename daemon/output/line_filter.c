/*
 * line_filter.c - matches lines and writes them. A write error ends the filter, not the job.
 */
#include "line_filter.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

ddp_status line_filter_init(struct line_filter *filter, const char *list, struct ddp_error *err)
{
    *filter = (struct line_filter){.fd = -1};
    if (list == NULL || *list == '\0')
        return DDP_OK;
    filter->words = ddpi_calloc(strlen(list) + 1, 1);
    if (filter->words == NULL)
        return ddpi_error_nomem(err, strlen(list) + 1);
    for (; *list != '\0'; list++) {
        bool escaped = list[0] == ',' && list[1] == ',';
        list += escaped;
        filter->words[filter->len++] = (char)(*list == ',' && !escaped ? '\0' : *list);
    }
    filter->len++; /* the NUL of the last word */
    return DDP_OK;
}

void line_filter_finish(struct line_filter *filter)
{
    if (filter->words != NULL)
        line_filter_write_to(filter, -1);
    ddpi_free(filter->words);
    *filter = (struct line_filter){.fd = -1};
}

bool line_filter_is_on(const struct line_filter *filter)
{
    return filter->words != NULL;
}

void line_filter_write_to(struct line_filter *filter, int fd)
{
    if (filter->fd >= 0)
        close(filter->fd);
    filter->fd = fd;
}

bool line_filter_matches(const struct line_filter *filter, const char *line, size_t len)
{
    for (size_t at = 0, word; at < filter->len; at += word + 1) {
        word = strlen(filter->words + at);
        if (memmem(line, len, filter->words + at, word) != NULL)
            return true;
    }
    return false;
}

void line_filter_line(struct line_filter *filter, const char *prefix, const char *line, size_t len)
{
    if (filter->fd < 0 || !line_filter_matches(filter, line, len))
        return;
    bool ends = line[len - 1] == '\n';
    const struct iovec parts[] = {{(void *)(uintptr_t)prefix, strlen(prefix)},
                                  {(void *)(uintptr_t)line, len},
                                  {(void *)(uintptr_t) "\n", ends ? 0 : 1}};
    size_t whole = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    ssize_t written;
    do
        written = writev(filter->fd, parts, 3);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)whole)
        return;
    filter->sys_errno = written < 0 ? errno : ENOSPC;
    line_filter_write_to(filter, -1);
}
