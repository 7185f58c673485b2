/*
 * perf_coll_memory.h - the buffers of a benchmark's rank, on the host or on a GPU, and the stream.
 *
 * On a GPU: through the driver alone, in the primary context of the device, which is what PyTorch
 * and the CUDA runtime use too. One thread.
 */
#ifndef CMD_PERF_COLL_MEMORY_H
#define CMD_PERF_COLL_MEMORY_H

#include "driver.h"
#include "perf_coll_math.h"

struct coll_memory {
    bool cuda;
    struct ddpi_cuda driver;
    int device;
    ddpi_cu_context context;
    ddpi_cu_stream stream;
    char name[64]; /* of the device */
    char bus[16];
    uint8_t uuid[16];
    void *chunk; /* host memory of COLL_CHUNK bytes, for what is on its way, */
    void *check; /* and to compare that with */
};

enum { COLL_CHUNK = 4 * 1024 * 1024 };

/* The devices that this process sees; 0 without a driver. */
int coll_devices(void);

/* Of rank @local of this machine: on device @local modulo their number, if @cuda. */
bool coll_memory_open(struct coll_memory *memory, bool cuda, uint32_t local, struct ddp_error *err);
void coll_memory_close(struct coll_memory *memory);

/* Bytes, 0 of them too; to be given back. */
bool coll_memory_alloc(struct coll_memory *memory, size_t len, uint8_t **ret,
                       struct ddp_error *err);
void coll_memory_free(struct coll_memory *memory, uint8_t *buffer);

/* Elements [@first, @first + @count) of @pattern at @buffer; bytes that are none of them. */
bool coll_memory_fill(struct coll_memory *memory, const struct coll_pattern *pattern,
                      uint64_t first, size_t count, uint8_t *buffer, struct ddp_error *err);
bool coll_memory_poison(struct coll_memory *memory, uint8_t *buffer, size_t len,
                        struct ddp_error *err);

/* Add to *@wrong how many elements at @buffer are not those of @pattern. */
bool coll_memory_check(struct coll_memory *memory, const struct coll_pattern *pattern,
                       uint64_t first, size_t count, const uint8_t *buffer, uint64_t *wrong,
                       struct ddp_error *err);

/* Wait for all that is in the stream. */
bool coll_memory_sync(struct coll_memory *memory, struct ddp_error *err);

/* Microseconds that copying @len bytes within the device takes, over @iters copies. */
bool coll_memory_time_copy(struct coll_memory *memory, uint8_t *to, const uint8_t *from, size_t len,
                           uint32_t iters, double *ret_us, struct ddp_error *err);

/* The argument for calls of ddprun/comm.h. */
void *coll_memory_stream(const struct coll_memory *memory);

#endif
