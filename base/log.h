/*
 * log.h - logging through a sink that the program provides. Libraries never print.
 */
#ifndef DDPI_LOG_H
#define DDPI_LOG_H

#include <ddprun/status.h>

enum ddpi_log_level { DDPI_LOG_ERROR, DDPI_LOG_WARN, DDPI_LOG_INFO, DDPI_LOG_DEBUG };

/* @write gets one line without its newline; it must not keep the pointer. Control characters except
 * tabs are replaced by '?'. A zeroed struct is a sink that drops every line. */
struct ddpi_log {
    void (*write)(void *ctx, enum ddpi_log_level level, const char *line);
    void *ctx;
    enum ddpi_log_level max_level;
};

void ddpi_log(const struct ddpi_log *log, enum ddpi_log_level level, const char *format, ...)
    DDP_PRINTF(3, 4);

/* "error", "warning", "info", "debug". */
const char *ddpi_log_level_name(enum ddpi_log_level level);

#endif
