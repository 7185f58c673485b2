/*
 * text_file.c - reads a small text file. Owns nothing, allocates nothing.
 */
#include "text_file.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Read at most @size - 1 bytes; false: with an error, after *@ret_len of them. */
static bool read_text(int fd, char *text, size_t size, size_t *ret_len)
{
    size_t used = 0;
    ssize_t len = 0;
    while (used + 1 < size && (len = read(fd, text + used, size - 1 - used)) > 0)
        used += (size_t)len;
    text[used] = '\0';
    *ret_len = used;
    return len >= 0;
}

bool ddpi_text_file_read(const char *path, char *text, size_t size)
{
    text[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t used;
    (void)read_text(fd, text, size, &used); /* what there is of it */
    close(fd);
    return used > 0;
}

/* As an error of the caller, who has named the file. */
static ddp_status refuse_file(const char *path, int error, struct ddp_error *err)
{
    return ddpi_error_set(err, DDP_E_INVALID, "'%s' cannot be read: %s", path,
                          strerrordesc_np(error));
}

static ddp_status load_text(int fd, const char *path, char *text, size_t size, size_t *ret_len,
                            struct ddp_error *err)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return refuse_file(path, errno, err);
    if (!S_ISREG(found.st_mode))
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is no regular file", path);
    if (!read_text(fd, text, size, ret_len))
        return refuse_file(path, errno, err);
    if (*ret_len + 1 == size)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' has more than %zu bytes", path, size - 2);
    return DDP_OK;
}

ddp_status ddpi_text_file_load(const char *path, char *text, size_t size, size_t *ret_len,
                               struct ddp_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse_file(path, errno, err);
    ddp_status status = load_text(fd, path, text, size, ret_len, err);
    close(fd);
    return status;
}
