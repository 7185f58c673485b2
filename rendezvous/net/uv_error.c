/*
 * uv_error.c - libuv's error codes. Those that are an errno use the errno table of base; the
 * others, which libuv numbers from -3000 and -4095, are translated here.
 */
#include "uv_error.h"

#include "error.h"
#include "status.h"

#include <uv.h>

ddp_status ddpi_uv_status(int uv_err)
{
    switch (uv_err) {
    case UV_EOF:
        return DDP_E_CLOSED;
    case UV_ECANCELED:
        return DDP_E_ABORTED;
    case UV_EAI_MEMORY:
        return DDP_E_NOMEM;
    case UV_EAI_AGAIN:
    case UV_EAI_FAIL:
    case UV_EAI_NODATA:
    case UV_EAI_NONAME:
        return DDP_E_UNREACHABLE;
    default:
        return ddpi_status_from_errno(-uv_err);
    }
}

ddp_status ddpi_uv_error(struct ddp_error *err, int uv_err, const char *what)
{
    char text[128];
    ddp_status status = ddpi_uv_status(uv_err);
    ddpi_error_set(err, status, "%s: %s", what, uv_strerror_r(uv_err, text, sizeof text));
    if (err != NULL && uv_err > UV__EAI_ADDRFAMILY)
        err->sys_errno = -uv_err;
    return status;
}
