/*
 * text_file.c - reads a small text file. Owns nothing, allocates nothing.
 */
#include "text_file.h"

#include <fcntl.h>
#include <unistd.h>

bool ddpi_text_file_read(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t used = 0;
    ssize_t len;
    while (used + 1 < size && (len = read(fd, text + used, size - 1 - used)) > 0)
        used += (size_t)len;
    close(fd);
    text[used] = '\0';
    return used > 0;
}
