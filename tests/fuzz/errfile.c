/*
 * errfile.c - fuzzes the error file that a worker leaves behind. What was read, written down as
 * JSON again, reads the same; what is refused leaves nothing to free.
 */
#include "errfile.h"

#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ddp_status read_bytes(const void *bytes, size_t len, struct errfile *ret_file)
{
    char path[] = "/tmp/fuzz_errfile_XXXXXX";
    struct ddp_error err;
    int fd = mkstemp(path);
    HOLDS(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
    ddp_status status = errfile_read(path, ret_file, &err);
    unlink(path);
    if (status != DDP_OK)
        fuzz_check_error(&err, status);
    return status;
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void check_again(const struct errfile *file)
{
    struct errfile again;
    json_t *root = json_pack("{s:{s:s,s:{s:s*}}}", "message", "message", file->message, "extraInfo",
                             "py_callstack", file->traceback);
    char *text = root != NULL ? json_dumps(root, 0) : NULL;
    HOLDS(text != NULL);
    HOLDS(read_bytes(text, strlen(text), &again) == DDP_OK);
    HOLDS(same(file->message, again.message) && same(file->traceback, again.traceback));
    errfile_finish(&again);
    free(text);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct errfile file = {0};
    ddp_status status = read_bytes(data, size, &file);
    HOLDS((file.message != NULL) == (status == DDP_OK));
    HOLDS(file.traceback == NULL || status == DDP_OK);
    if (status == DDP_OK)
        check_again(&file);
    errfile_finish(&file);
    return 0;
}
