/*
 * status.h - ddp_status inside the project: the public list plus the translation from errno.
 */
#ifndef DDPI_STATUS_H
#define DDPI_STATUS_H

#include <ddprun/status.h>

/* The status that stands for @sys_errno; 0 gives DDP_OK, an errno without a row DDP_E_SYSTEM. */
ddp_status ddpi_status_from_errno(int sys_errno);

#endif
