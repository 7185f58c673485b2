/*
 * pointer.c - what kind of memory a pointer points to.
 */
#include "pointer.h"

#include "error.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

/* An address that neither the driver nor the kernel knows would crash the process when an operation
 * touches it. To ask the kernel takes one system call; pinned memory needs none. */
bool ddpi_pointer_readable(const void *address)
{
    char byte;
    struct iovec here = {.iov_base = &byte, .iov_len = 1};
    struct iovec there = {.iov_base = (void *)address, .iov_len = 1};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT;
}

ddp_status ddpi_pointer_look(const struct ddpi_cuda *cuda, const void *address, const char *what,
                             struct ddpi_pointer *ret_pointer, struct ddp_error *err)
{
    ddpi_cu_context context = NULL;
    unsigned type = 0;
    int managed = 0, ordinal = -1;
    unsigned attributes[] = {
        DDPI_CU_POINTER_ATTRIBUTE_CONTEXT, DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        DDPI_CU_POINTER_ATTRIBUTE_IS_MANAGED, DDPI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *values[] = {&context, &type, &managed, &ordinal};
    ddpi_cu_result result =
        cuda->pointer_get_attributes(sizeof attributes / sizeof *attributes, attributes, values,
                                     (ddpi_cu_deviceptr)(uintptr_t)address);
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(cuda, err, result, "ask what memory %s at %p is", what, address);
    if (managed)
        return ddpi_error_set(err, DDP_E_INVALID,
                              "%s at %p is managed memory, which cannot be shared with other "
                              "processes; use cudaMalloc",
                              what, address);
    if (type != DDPI_CU_MEMORYTYPE_DEVICE) {
        if (type != DDPI_CU_MEMORYTYPE_HOST && !ddpi_pointer_readable(address))
            return ddpi_error_set(err, DDP_E_INVALID,
                                  "%s at %p is neither memory of this process nor of its GPU; it "
                                  "may have been freed",
                                  what, address);
        *ret_pointer = (struct ddpi_pointer){0};
        return DDP_OK;
    }
    *ret_pointer = (struct ddpi_pointer){.device = true, .context = context, .ordinal = ordinal};
    return DDP_OK;
}

ddp_status ddpi_pointer_find_context(const struct ddpi_cuda *cuda, int ordinal,
                                     ddpi_cu_context *ret_context, bool *ret_retained,
                                     struct ddp_error *err)
{
    ddpi_cu_context context = NULL;
    ddpi_cu_device device;
    *ret_retained = false;
    (void)cuda->ctx_get_current(&context);
    if (context == NULL || cuda->ctx_get_device(&device) != DDPI_CU_SUCCESS || device != ordinal) {
        ddpi_cu_result result = cuda->device_primary_ctx_retain(&context, ordinal);
        if (result != DDPI_CU_SUCCESS)
            return ddpi_cuda_error(cuda, err, result, "use the primary context of GPU %d", ordinal);
        *ret_retained = true;
    }
    *ret_context = context;
    return DDP_OK;
}
