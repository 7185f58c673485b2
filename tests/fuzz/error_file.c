/*
 * error_file.c - fuzzes the error file that a worker leaves behind. What was read reads the same in
 * the copy that is passed on; what is refused leaves nothing to free.
 */
#include "error_file.h"

#include "fuzz.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ddp_status read_bytes(const void *bytes, size_t len, struct error_file *ret_file)
{
    char path[] = "/tmp/fuzz_error_file_XXXXXX";
    struct ddp_error err;
    int fd = mkstemp(path);
    HOLDS(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    close(fd);
    ddp_status status = error_file_read(path, -9, ret_file, &err);
    unlink(path);
    if (status != DDP_OK)
        fuzz_check_error(&err, status);
    return status;
}

static bool same(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* jansson takes UTF-8 only. */
static bool is_utf8(const char *text)
{
    json_t *value = json_string(text);
    json_decref(value);
    return value != NULL;
}

static void check_again(const struct error_file *file)
{
    struct error_file again;
    HOLDS(file->copy != NULL);
    HOLDS(read_bytes(file->copy, strlen(file->copy), &again) == DDP_OK);
    HOLDS(!is_utf8(file->message) || same(file->message, again.message));
    HOLDS(same(file->traceback, again.traceback));
    error_file_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error_file file = {0};
    ddp_status status = read_bytes(data, size, &file);
    HOLDS((file.message != NULL) == (status == DDP_OK));
    HOLDS(file.traceback == NULL || status == DDP_OK);
    if (status == DDP_OK)
        check_again(&file);
    error_file_finish(&file);
    return 0;
}
