/*
 * error.h - filling struct ddp_error.
 *
 * The function where a failure is found sets the sentence; each layer above may add context in
 * front of it once ("store at 10.0.0.1:29400: ..."). Every function here takes a NULL @err.
 */
#ifndef DDPI_ERROR_H
#define DDPI_ERROR_H

#include <ddprun/status.h>
#include <stdarg.h>

/* Fill @err; returns @status, so that a caller can write `return ddpi_error_set(...)`. */
ddp_status ddpi_error_set(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* The same with the text of @sys_errno put behind the sentence; the status follows from it. */
ddp_status ddpi_error_sys(struct ddp_error *err, int sys_errno, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Put "context: " in front of the sentence that is there; returns @status, which is the one that
 * @err holds, but is known even where @err is NULL. */
ddp_status ddpi_error_wrap(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Put "; remedy" behind the sentence that is there: what the person should do. Returns @status. */
ddp_status ddpi_error_advise(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* DDP_E_NOMEM with the number of bytes that could not be had. */
ddp_status ddpi_error_nomem(struct ddp_error *err, unsigned long long bytes);

#endif
