/*
 * uv_error.h - translates libuv's error codes to ddp_status.
 */
#ifndef DDPI_UV_ERROR_H
#define DDPI_UV_ERROR_H

#include <ddprun/status.h>

/* @uv_err is 0 or a negative UV_E* code. */
ddp_status ddpi_uv_status(int uv_err);

/* Fill @err with "@what: the text of @uv_err"; returns the status. */
ddp_status ddpi_uv_error(struct ddp_error *err, int uv_err, const char *what);

#endif
