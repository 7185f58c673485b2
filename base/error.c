/*
 * error.c - filling struct ddp_error. Owns nothing, allocates nothing; a sentence that does not
 * fit ends in "...".
 */
#include "error.h"

#include "status.h"

#include <stdio.h>
#include <string.h>

static void mark_cut(char *text, size_t size, int wanted)
{
    if (wanted >= 0 && (size_t)wanted >= size)
        memcpy(text + size - 4, "...", 4);
}

static void format_msg(struct ddp_error *err, const char *format, va_list args)
{
    int wanted = vsnprintf(err->msg, sizeof err->msg, format, args);
    mark_cut(err->msg, sizeof err->msg, wanted);
}

ddp_status ddpi_error_set(struct ddp_error *err, ddp_status status, const char *format, ...)
{
    if (err == NULL)
        return status;
    err->status = status;
    err->sys_errno = 0;
    va_list args;
    va_start(args, format);
    format_msg(err, format, args);
    va_end(args);
    return status;
}

ddp_status ddpi_error_sys(struct ddp_error *err, int sys_errno, const char *format, ...)
{
    ddp_status status = ddpi_status_from_errno(sys_errno);
    if (err == NULL)
        return status;
    err->status = status;
    err->sys_errno = sys_errno;
    va_list args;
    va_start(args, format);
    format_msg(err, format, args);
    va_end(args);
    size_t used = strlen(err->msg);
    const char *text = strerrordesc_np(sys_errno);
    int wanted = snprintf(err->msg + used, sizeof err->msg - used, ": %s",
                          text ? text : "unknown system error");
    mark_cut(err->msg + used, sizeof err->msg - used, used + 4 < sizeof err->msg ? wanted : -1);
    return status;
}

ddp_status ddpi_error_wrap(struct ddp_error *err, const char *format, ...)
{
    if (err == NULL)
        return DDP_E_INTERNAL;
    char inner[DDP_ERROR_TEXT];
    memcpy(inner, err->msg, sizeof inner);
    va_list args;
    va_start(args, format);
    format_msg(err, format, args);
    va_end(args);
    size_t used = strlen(err->msg);
    int wanted = snprintf(err->msg + used, sizeof err->msg - used, ": %s", inner);
    mark_cut(err->msg + used, sizeof err->msg - used, used + 4 < sizeof err->msg ? wanted : -1);
    return err->status;
}

ddp_status ddpi_error_nomem(struct ddp_error *err, unsigned long long bytes)
{
    return ddpi_error_set(err, DDP_E_NOMEM, "out of memory: %llu bytes could not be had", bytes);
}
