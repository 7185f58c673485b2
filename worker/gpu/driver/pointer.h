/*
 * pointer.h - what kind of memory a pointer points to, as the driver says.
 */
#ifndef DDPI_POINTER_H
#define DDPI_POINTER_H

#include "driver.h"

#include <stdbool.h>

struct ddpi_pointer {
    bool device; /* false: host memory, and the rest is 0 */
    ddpi_cu_context context;
    int ordinal;
};

/* DDP_E_INVALID: memory that no operation can use (managed memory, an address that is not mapped,
 * perhaps freed); the sentence begins with @what, as in "the send buffer". */
ddp_status ddpi_pointer_look(const struct ddpi_cuda *cuda, const void *address, const char *what,
                             struct ddpi_pointer *ret_pointer, struct ddp_error *err);

/* Whether the kernel can read there, which it cannot in memory of a GPU. */
bool ddpi_pointer_readable(const void *address);

/* The context in which memory of GPU @ordinal without one, such as virtual memory, is used: the
 * current one, if it is of that GPU, else the primary one. *@ret_retained: give that one back with
 * cuDevicePrimaryCtxRelease(). */
ddp_status ddpi_pointer_find_context(const struct ddpi_cuda *cuda, int ordinal,
                                     ddpi_cu_context *ret_context, bool *ret_retained,
                                     struct ddp_error *err);

#endif
