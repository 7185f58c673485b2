/*
 * error_file.c - reads and writes error files with jansson. Owns nothing between calls.
 */
#include "error_file.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 1024 * 1024 };

static ddp_status read_error_file(const char *path, char **ret_text, size_t *ret_len,
                                  struct ddp_error *err)
{
    /* O_NONBLOCK: a worker may have put a FIFO there. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT
                   ? ddpi_error_set(err, DDP_E_NOT_FOUND, "the error file '%s' does not exist",
                                    path)
                   : ddpi_error_sys(err, errno, "cannot open the error file '%s'", path);
    struct stat st;
    ddp_status status = DDP_OK;
    char *text = NULL;
    size_t used = 0;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        status = ddpi_error_set(err, DDP_E_INVALID,
                                "'%s' is not a regular file of at most %d bytes", path, FILE_MAX);
    else if ((text = ddpi_calloc((size_t)st.st_size + 1, 1)) == NULL)
        status = ddpi_error_nomem(err, (unsigned long long)st.st_size);
    while (status == DDP_OK && used < (size_t)st.st_size) {
        ssize_t len = read(fd, text + used, (size_t)st.st_size - used);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0)
            break;
        used += (size_t)len;
    }
    close(fd);
    *ret_text = text;
    *ret_len = used;
    return status;
}

static char *copy_string(const json_t *value)
{
    return json_is_string(value) ? ddpi_strndup(json_string_value(value), json_string_length(value))
                                 : NULL;
}

/* A JSON string of any bytes. */
static json_t *text_value(const char *text)
{
    json_t *value = json_string(text);
    char *ascii = value == NULL ? ddpi_strdup(text) : NULL;
    for (char *at = ascii; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    if (ascii != NULL)
        value = json_string(ascii);
    ddpi_free(ascii);
    return value;
}

/* Take the message of @root, in either form; false: it has none. */
static bool take_recorded_message(const json_t *root, struct error_file *file)
{
    const json_t *message = json_object_get(root, "message");
    const json_t *extra = json_object_get(message, "extraInfo");
    file->message =
        copy_string(json_is_string(message) ? message : json_object_get(message, "message"));
    if (file->message != NULL)
        file->traceback = copy_string(json_object_get(extra, "py_callstack"));
    return file->message != NULL;
}

/* The form that @record writes. */
static json_t *wrap_text(const char *text)
{
    char now[24];
    snprintf(now, sizeof now, "%lld", (long long)time(NULL));
    return json_pack("{s:{s:o,s:{s:s}}}", "message", "message", text_value(text), "extraInfo",
                     "timestamp", now);
}

/* As torchrun does, only if the message is an object. */
static char *copy_with_code(json_t *root, int exit_code)
{
    json_t *message = json_object_get(root, "message");
    if (json_is_object(message))
        json_object_set_new(message, "errorCode", json_integer(exit_code));
    return root != NULL ? json_dumps(root, JSON_ENSURE_ASCII) : NULL;
}

ddp_status error_file_read(const char *path, int exit_code, struct error_file *ret_file,
                           struct ddp_error *err)
{
    char *text = NULL;
    size_t len = 0;
    ddp_status status = read_error_file(path, &text, &len, err);
    if (status != DDP_OK)
        return status;
    if (len == 0) {
        ddpi_free(text);
        return ddpi_error_set(err, DDP_E_NOT_FOUND, "the error file '%s' is empty", path);
    }
    struct error_file file = {0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    if (!take_recorded_message(root, &file)) { /* plain text */
        for (size_t i = 0; i < len; i++)
            text[i] = text[i] == '\0' ? ' ' : text[i];
        json_decref(root);
        root = wrap_text(text);
        file.message = text;
        text = NULL;
    }
    file.copy = copy_with_code(root, exit_code);
    json_decref(root);
    ddpi_free(text);
    *ret_file = file;
    return DDP_OK;
}

/* Truncate an existing file rather than replace it: it may be a mount. */
static int open_own(const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    int fd = open(path, flags, 0666);
    if (fd >= 0 || unlink(path) != 0)
        return fd;
    return open(path, flags | O_EXCL, 0666);
}

ddp_status error_file_write(const char *path, const char *copy, struct ddp_error *err)
{
    size_t len = strlen(copy), used = 0;
    int fd = open_own(path);
    if (fd < 0)
        return ddpi_error_sys(err, errno, "cannot open the error file '%s'", path);
    ssize_t written = 0;
    for (; used < len && (written >= 0 || errno == EINTR);
         used += written > 0 ? (size_t)written : 0)
        written = write(fd, copy + used, len - used);
    int sys_errno = errno;
    close(fd);
    return used == len ? DDP_OK
                       : ddpi_error_sys(err, sys_errno, "cannot write the error file '%s'", path);
}

void error_file_finish(struct error_file *file)
{
    ddpi_free(file->message);
    ddpi_free(file->traceback);
    free(file->copy); /* jansson's */
    *file = (struct error_file){0};
}
