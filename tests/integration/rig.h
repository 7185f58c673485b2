/*
 * rig.h - a rank with a GPU, for tests of the collectives on device memory: a context, a stream, a
 * communicator for calls on device memory and one for the same calls on host memory, and buffers
 * that exist on both sides. Runs on whatever libcuda.so.1 there is: a GPU's, or that of tests/cuda.
 *
 * The parent of ranks must not use the driver itself: what was forked after that cannot.
 */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include "driver.h"
#include "world.h"

#define CU(call) CHECK((call) == DDPI_CU_SUCCESS)

struct rig {
    struct ddpi_cuda cuda;
    int ordinal; /* of the device */
    ddpi_cu_context context;
    ddpi_cu_stream stream;
    ddp_comm *device; /* calls on device memory */
    ddp_comm *host;   /* the same on host memory, by the algorithm that @device comes to use */
    uint32_t rank, nranks;
    bool virtual; /* buffers are virtual memory (cuMemCreate), as PyTorch may use it */
    bool keeps;   /* freed memory until the end: the driver would wait for siblings, who wait */
    ddpi_cu_deviceptr *kept;
    size_t kept_count;
    uint64_t random;
};

/* Whether the driver is that of tests/cuda, whose devices follow the environment. Asks in a process
 * of its own, once: ranks that are forked after the first call have its answer. */
bool rig_driver_is_host(void);

/* The device @ordinal (modulo how many there are) becomes current, @device and @host are set; NULL:
 * the test has no use for that one. */
void rig_use(struct rig *rig, int ordinal, ddp_comm *device, ddp_comm *host);

/* The rank of a world: its device follows from the rank, and @host is made. */
void rig_open(struct rig *rig, struct world *world, uint32_t rank, ddp_comm *comm);
/* Destroys @host; @device is for who made it. */
void rig_close(struct rig *rig);

/* Until the stream is done; @device must be well. */
void rig_synchronize(struct rig *rig);

uint64_t rig_draw(struct rig *rig);

/* Whether there is one device only. */
bool rig_has_one_gpu(const struct rig *rig);

void *rig_alloc(struct rig *rig, size_t len);
void rig_free(struct rig *rig, void *address);
size_t rig_free_memory(struct rig *rig);

/* The same buffer on the host and, with guards around it, on the device. */
struct twin {
    uint8_t *host;
    ddpi_cu_deviceptr space;
    size_t mapped; /* bytes of virtual memory; 0: plain memory */
    size_t len;
};

struct twin rig_output(struct rig *rig, size_t len);                   /* poison */
struct twin rig_input(struct rig *rig, size_t count, ddp_dtype dtype); /* random bits */
void *twin_device(const struct twin *twin);
void rig_upload(struct rig *rig, const struct twin *twin); /* enqueue: as the host has it */
void twin_free(struct rig *rig, struct twin *twin);
/* The device has what the host has, and nothing beyond. Frees both. */
void rig_compare(struct rig *rig, struct twin *twin, ddp_dtype dtype);

/* A call, on both kinds of memory, with fresh inputs; the results must agree. */
struct problem {
    size_t count;
    ddp_dtype dtype;
    ddp_reduce_op op;
    uint32_t root;
    bool in_place;
};

void rig_all_reduce(struct rig *rig, const struct problem *of);
void rig_reduce(struct rig *rig, const struct problem *of);
void rig_reduce_scatter(struct rig *rig, const struct problem *of);
void rig_all_gather(struct rig *rig, const struct problem *of);
void rig_broadcast(struct rig *rig, const struct problem *of);
void rig_all_calls(struct rig *rig, const struct problem *of);
void rig_shift(struct rig *rig, const struct problem *of); /* round the ring, even ranks first */

#endif
