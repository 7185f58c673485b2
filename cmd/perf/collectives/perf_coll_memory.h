/*
 * perf_coll_memory.h - the buffers of a rank, in host memory or on a GPU, and its stream. One
 * thread uses them.
 *
 * On a GPU it uses only the driver, in the primary context of the device, as PyTorch and the CUDA
 * runtime do.
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
    void *chunk; /* host memory of COLL_CHUNK bytes: data to upload, or expected data */
    void *check; /* as much: data downloaded, to compare with it */
};

enum { COLL_CHUNK = 4 * 1024 * 1024 };

/* The number of devices that this process sees; 0 without a driver. */
int coll_devices(void);

/* @local: the rank's number on this machine. @cuda: use device @local modulo their number. */
bool coll_memory_open(struct coll_memory *memory, bool cuda, uint32_t local, struct ddp_error *err);
void coll_memory_close(struct coll_memory *memory);

/* Allocate @len bytes, which may be 0. The caller frees them with coll_memory_free(). */
bool coll_memory_alloc(struct coll_memory *memory, size_t len, uint8_t **ret,
                       struct ddp_error *err);
void coll_memory_free(struct coll_memory *memory, uint8_t *buffer);

/* Write elements [@first, @first + @count) of @pattern; poison: write bytes that no pattern has. */
bool coll_memory_fill(struct coll_memory *memory, const struct coll_pattern *pattern,
                      uint64_t first, size_t count, uint8_t *buffer, struct ddp_error *err);
bool coll_memory_poison(struct coll_memory *memory, uint8_t *buffer, size_t len,
                        struct ddp_error *err);

/* Add to *@wrong the number of elements at @buffer that differ from those of @pattern. */
bool coll_memory_check(struct coll_memory *memory, const struct coll_pattern *pattern,
                       uint64_t first, size_t count, const uint8_t *buffer, uint64_t *wrong,
                       struct ddp_error *err);

/* Wait for all work in the stream. */
bool coll_memory_sync(struct coll_memory *memory, struct ddp_error *err);

/* The average time of copying @len bytes within the device, or the host, over @iters copies. */
bool coll_memory_time_copy(struct coll_memory *memory, uint8_t *to, const uint8_t *from, size_t len,
                           uint32_t iters, double *ret_us, struct ddp_error *err);

/* The stream argument for calls of <ddprun/comm.h>. */
void *coll_memory_stream(const struct coll_memory *memory);

#endif
