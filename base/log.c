/*
 * log.c - formats a line and passes it to the sink. Owns nothing; cuts lines at 1 KiB.
 */
#include "log.h"

#include "text.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void ddpi_log(const struct ddpi_log *log, enum ddpi_log_level level, const char *format, ...)
{
    if (log == NULL || log->write == NULL || level > log->max_level)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ddpi_text_mask(line);
    log->write(log->ctx, level, line);
}

const char *ddpi_log_level_name(enum ddpi_log_level level)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    return (unsigned)level < sizeof names / sizeof *names ? names[level] : "unknown";
}
