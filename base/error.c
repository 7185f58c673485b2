/*
 * error.c - filling struct ddp_error. Owns nothing, allocates nothing; a sentence that does not
 * fit ends in "...".
 */
#include "error.h"

#include "status.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

static const char *errno_text(int sys_errno)
{
    const char *text = strerrordesc_np(sys_errno);
    return text != NULL ? text : "unknown system error";
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
    append_part(err, ": ", errno_text(sys_errno));
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
    char advice[DDP_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(advice, sizeof advice, format, args);
    va_end(args);
    append_part(err, "; ", advice);
    return status;
}

ddp_status ddpi_error_nomem(struct ddp_error *err, unsigned long long bytes)
{
    return ddpi_error_set(err, DDP_E_NOMEM, "out of memory: cannot allocate %llu bytes", bytes);
}

/* ---- running out of file descriptors ---- */

bool ddpi_errno_lacks_descriptors(int sys_errno)
{
    return sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ETOOMANYREFS;
}

/* False: there is no advice. */
static bool descriptor_advice(int sys_errno, char *text, size_t size)
{
    struct rlimit files;
    if (!ddpi_errno_lacks_descriptors(sys_errno) || getrlimit(RLIMIT_NOFILE, &files) != 0)
        return false;
    if (sys_errno == ENFILE)
        snprintf(text, size,
                 "this machine has reached its limit on open files: raise /proc/sys/fs/file-max, "
                 "or end programs that have many files open");
    else
        snprintf(text, size,
                 "process %d may have %llu open files (RLIMIT_NOFILE): raise the limit with "
                 "'ulimit -n' (here to at most %llu), or close files",
                 getpid(), (unsigned long long)files.rlim_cur, (unsigned long long)files.rlim_max);
    return true;
}

ddp_status ddpi_error_advise_descriptors(struct ddp_error *err, ddp_status status)
{
    char advice[DDP_ERROR_TEXT / 2];
    if (status != DDP_OK && err != NULL && descriptor_advice(err->sys_errno, advice, sizeof advice))
        append_part(err, "; ", advice);
    return status;
}

void ddpi_errno_describe(int sys_errno, char *text, size_t size)
{
    char advice[DDP_ERROR_TEXT / 2];
    bool advised = descriptor_advice(sys_errno, advice, sizeof advice);
    snprintf(text, size, "%s%s%s", errno_text(sys_errno), advised ? "; " : "",
             advised ? advice : "");
}
