/*
 * error.c - filling struct ddp_error. Owns nothing, allocates nothing; a sentence that does not
 * fit ends in "...".
 */
#include "error.h"

#include "status.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

static void mark_cut(struct ddp_error *err, size_t wanted)
{
    if (wanted >= sizeof err->msg)
        memcpy(err->msg + sizeof err->msg - 4, "...", 4);
}

DDP_PRINTF(2, 0)
static void format_msg(struct ddp_error *err, const char *format, va_list args)
{
    int wanted = vsnprintf(err->msg, sizeof err->msg, format, args);
    mark_cut(err, wanted > 0 ? (size_t)wanted : 0);
    ddpi_text_mask(err->msg); /* names and values in it come from outside */
}

static void append_part(struct ddp_error *err, const char *joint, const char *part)
{
    size_t used = strlen(err->msg);
    snprintf(err->msg + used, sizeof err->msg - used, "%s%s", joint, part);
    mark_cut(err, used + strlen(joint) + strlen(part));
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
    const char *text = strerrordesc_np(sys_errno);
    append_part(err, ": ", text != NULL ? text : "unknown system error");
    return status;
}

ddp_status ddpi_error_wrap(struct ddp_error *err, ddp_status status, const char *format, ...)
{
    if (err == NULL)
        return status;
    char inner[DDP_ERROR_TEXT];
    memcpy(inner, err->msg, sizeof inner);
    va_list args;
    va_start(args, format);
    format_msg(err, format, args);
    va_end(args);
    append_part(err, ": ", inner);
    return status;
}

ddp_status ddpi_error_advise(struct ddp_error *err, ddp_status status, const char *format, ...)
{
    if (err == NULL)
        return status;
    char remedy[DDP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(remedy, sizeof remedy, format, args);
    va_end(args);
    append_part(err, "; ", remedy);
    return status;
}

ddp_status ddpi_error_nomem(struct ddp_error *err, unsigned long long bytes)
{
    return ddpi_error_set(err, DDP_E_NOMEM, "out of memory: %llu bytes could not be had", bytes);
}
