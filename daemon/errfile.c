/*
 * errfile.c - reads an error file with jansson; an outer edge. Owns nothing between calls.
 */
#include "errfile.h"

#include "error.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1024 * 1024 };

static ddp_status read_file(const char *path, char **ret_text, size_t *ret_len,
                            struct ddp_error *err)
{
    /* O_NONBLOCK: a worker may have put a FIFO there. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT
                   ? ddpi_error_set(err, DDP_E_NOT_FOUND, "there is no error file '%s'", path)
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

ddp_status errfile_read(const char *path, struct errfile *ret_file, struct ddp_error *err)
{
    char *text;
    size_t len;
    ddp_status status = read_file(path, &text, &len, err);
    if (status != DDP_OK)
        return status;
    json_error_t json_error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_error);
    ddpi_free(text);
    if (root == NULL)
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' is not JSON: %s", path, json_error.text);
    const json_t *message = json_object_get(root, "message");
    struct errfile file = {0};
    if (json_is_string(message)) {
        file.message = copy_string(message);
    } else {
        file.message = copy_string(json_object_get(message, "message"));
        file.traceback =
            copy_string(json_object_get(json_object_get(message, "extraInfo"), "py_callstack"));
    }
    json_decref(root);
    if (file.message == NULL) {
        errfile_finish(&file);
        return ddpi_error_set(err, DDP_E_INVALID, "'%s' has no message in it", path);
    }
    *ret_file = file;
    return DDP_OK;
}

void errfile_finish(struct errfile *file)
{
    ddpi_free(file->message);
    ddpi_free(file->traceback);
    *file = (struct errfile){0};
}
