/*
 * error.h - filling struct ddp_error.
 *
 * The function that finds a failure sets the sentence. A layer above may put context in front of it
 * once ("store at 10.0.0.1:29400: ..."). Every function here accepts @err == NULL.
 */
#ifndef DDPI_ERROR_H
#define DDPI_ERROR_H

#include <ddprun/status.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* Set @err. Returns @status, so that a caller can write `return ddpi_error_set(...)`. */
ddp_status ddpi_error_set(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Set @err to "sentence: text of @sys_errno". Returns the status that follows from @sys_errno. */
ddp_status ddpi_error_sys(struct ddp_error *err, int sys_errno, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Put "context: " in front of the sentence in @err. Returns @status, the one in @err, which is
 * known even if @err is NULL. */
ddp_status ddpi_error_wrap(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* Append "; advice" to the sentence in @err: what the user should do. Returns @status. */
ddp_status ddpi_error_advise(struct ddp_error *err, ddp_status status, const char *format, ...)
    DDP_PRINTF(3, 4);

/* If @err's errno means that file descriptors have run out, append which limit was reached and how
 * to raise it. Returns @status. */
ddp_status ddpi_error_advise_descriptors(struct ddp_error *err, ddp_status status);

/* Set @err to DDP_E_NOMEM, with the number of bytes that could not be allocated. */
ddp_status ddpi_error_nomem(struct ddp_error *err, unsigned long long bytes);

/* The text of @sys_errno, with the same advice on file descriptors. */
void ddpi_errno_describe(int sys_errno, char *text, size_t size);

/* @sys_errno means that this process or this machine has too many open files. */
bool ddpi_errno_lacks_descriptors(int sys_errno);

#endif
