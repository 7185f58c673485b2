/*
 * pointer.h - what kind of memory a caller's pointer is, asked of the driver.
 */
#ifndef DDPI_POINTER_H
#define DDPI_POINTER_H

#include "driver.h"

#include <stdbool.h>

struct ddpi_pointer {
    bool device; /* the rest is 0 for memory of the host */
    ddpi_cu_context context;
    int ordinal;
    unsigned long long buffer; /* tells an allocation apart from all earlier ones of this process */
};

/* DDP_E_INVALID: memory that no collective can use (managed memory, an address that is not mapped
 * because it was freed); the sentence begins with @what, as in "the send buffer". */
ddp_status ddpi_pointer_look(const struct ddpi_cuda *cuda, const void *address, const char *what,
                             struct ddpi_pointer *ret_pointer, struct ddp_error *err);

#endif
