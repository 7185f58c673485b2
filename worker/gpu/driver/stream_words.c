/*
 * stream_words.c - words that streams and the host share.
 */
#include "stream_words.h"

#include <string.h>

ddp_status ddpi_words_init(struct ddpi_words *words, const struct ddpi_cuda *cuda, uint32_t count,
                           struct ddp_error *err)
{
    void *host;
    ddpi_cu_deviceptr device;
    size_t bytes = count * sizeof(uint32_t);
    ddp_status status = ddpi_cuda_alloc_mapped(cuda, bytes, &host, &device, err);
    if (status != DDP_OK)
        return status;
    memset(host, 0, bytes);
    *words = (struct ddpi_words){.cuda = cuda, .host = host, .device = device};
    return DDP_OK;
}

void ddpi_words_finish(struct ddpi_words *words)
{
    if (words->host != NULL)
        (void)words->cuda->mem_free_host((void *)words->host);
    words->host = NULL;
}

ddp_status ddpi_words_stamp(const struct ddpi_words *words, uint32_t index, uint32_t value,
                            ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_result result =
        words->cuda->stream_write_value32(stream, ddpi_words_address(words, index), value, 0);
    return result == DDPI_CU_SUCCESS
               ? DDP_OK
               : ddpi_cuda_error(words->cuda, err, result, "enqueue a write to the stream");
}

ddp_status ddpi_words_hold(const struct ddpi_words *words, uint32_t index, uint32_t value,
                           ddpi_cu_stream stream, struct ddp_error *err)
{
    ddpi_cu_result result = words->cuda->stream_wait_value32(
        stream, ddpi_words_address(words, index), value, DDPI_CU_STREAM_WAIT_VALUE_GEQ);
    return result == DDPI_CU_SUCCESS
               ? DDP_OK
               : ddpi_cuda_error(words->cuda, err, result, "enqueue a wait on the stream");
}
