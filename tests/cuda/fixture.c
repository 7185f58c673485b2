/*
 * fixture.c - see fixture.h. Owns the table that the tests of a program call through.
 */
#include "fixture.h"

#include <stdint.h>
#include <stdlib.h>

struct ddpi_cuda cuda;
ddpi_cu_context contexts[4];

void start(const char *devices)
{
    struct ddp_error err = {0};
    int count = 0;
    setenv("DDP_HOST_CUDA_DEVICES", devices, 1);
    ck_assert_msg(ddpi_cuda_init(&cuda, &err) == DDP_OK, "%s", err.msg);
    CU(cuda.device_get_count(&count));
    for (int i = 0; i < count; i++)
        CU(cuda.device_primary_ctx_retain(&contexts[i], i));
    CU(cuda.ctx_push_current(contexts[0]));
}

ddpi_cu_deviceptr allocate(size_t size)
{
    ddpi_cu_deviceptr pointer = 0;
    CU(cuda.mem_alloc(&pointer, size));
    return pointer;
}

ddpi_cu_stream create_stream(void)
{
    ddpi_cu_stream stream = NULL;
    CU(cuda.stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING));
    return stream;
}

_Atomic uint32_t *create_word(uint32_t value)
{
    void *word = NULL;
    CU(cuda.mem_host_alloc(&word, sizeof(uint32_t), DDPI_CU_MEMHOSTALLOC_PORTABLE));
    *(_Atomic uint32_t *)word = value;
    return word;
}

void upload(ddpi_cu_deviceptr dst, const void *src, size_t size)
{
    ddpi_cu_stream stream = create_stream();
    CU(cuda.memcpy_htod_async(dst, src, size, stream));
    CU(cuda.stream_synchronize(stream));
    CU(cuda.stream_destroy(stream));
}

void download(void *dst, ddpi_cu_deviceptr src, size_t size)
{
    ddpi_cu_stream stream = create_stream();
    CU(cuda.memcpy_dtoh_async(dst, src, size, stream));
    CU(cuda.stream_synchronize(stream));
    CU(cuda.stream_destroy(stream));
}

void gate(ddpi_cu_stream stream, const _Atomic uint32_t *word, uint32_t value)
{
    CU(cuda.stream_wait_value32(stream, (uintptr_t)word, value, DDPI_CU_STREAM_WAIT_VALUE_GEQ));
}
