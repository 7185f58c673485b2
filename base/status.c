/*
 * status.c - the table of ddprun/status.h, and the project's only translation from errno.
 * Owns nothing; must not allocate.
 */
#include "status.h"

#include <errno.h>
#include <stddef.h>

struct row {
    ddp_status status;
    const char *name;
    const char *text;
    int retry;
};

static const struct row rows[] = {
#define ROW(symbol, value, name, text, retry) {symbol, name, text, retry},
    DDP_STATUS_MAP(ROW)
#undef ROW
};

static const struct row *find_status_row(ddp_status status)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            return &rows[i];
    return NULL;
}

const char *ddp_status_name(ddp_status status)
{
    const struct row *row = find_status_row(status);
    return row ? row->name : "unknown";
}

const char *ddp_status_text(ddp_status status)
{
    const struct row *row = find_status_row(status);
    return row ? row->text : "unknown status";
}

int ddp_status_retryable(ddp_status status)
{
    const struct row *row = find_status_row(status);
    return row ? row->retry : 0;
}

ddp_status ddpi_status_from_errno(int sys_errno)
{
    switch (sys_errno) {
    case 0:
        return DDP_OK;
    case ENOMEM:
        return DDP_E_NOMEM;
    case EINVAL:
        return DDP_E_INVALID;
    case ETIMEDOUT:
        return DDP_E_TIMEOUT;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ENOTCONN:
        return DDP_E_CLOSED;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
        return DDP_E_UNREACHABLE;
    default:
        return DDP_E_SYSTEM;
    }
}
