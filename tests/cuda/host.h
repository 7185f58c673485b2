/*
 * host.h - a CUDA driver that runs on the host: what its parts know of each other.
 *
 * Streams are threads, device memory is memfds, kernels are C functions. Addresses of device memory
 * carry a bit that no address of the host has, so that code which dereferences one crashes.
 *
 * One lock guards all state; work of streams runs outside it. It is a driver, so unlike in the
 * libraries its state is the process's.
 */
#ifndef TESTS_CUDA_HOST_H
#define TESTS_CUDA_HOST_H

#include "driver.h"
#include "list.h"

#include <pthread.h>
#include <stdatomic.h>

enum { HOST_DEVICES_MAX = 16 };

/* ---- settings.c: the environment, read once by cuInit ---- */

struct host_settings {
    int devices;                                    /* DDP_HOST_CUDA_DEVICES, default 1 */
    int physical[HOST_DEVICES_MAX];                 /* by ordinal; CUDA_VISIBLE_DEVICES chooses */
    bool peers[HOST_DEVICES_MAX][HOST_DEVICES_MAX]; /* by physical number; DDP_HOST_CUDA_PEERS */
    size_t memory_bytes;                            /* DDP_HOST_CUDA_MEMORY, of each device */
    unsigned delay_us;                              /* DDP_HOST_CUDA_DELAY_US, at most, each work */
    int version;                                    /* DDP_HOST_CUDA_VERSION */
    bool reuses;                                    /* DDP_HOST_CUDA_REUSE: addresses */
};

const struct host_settings *host_settings(void);

/* Whether kernels on the device @ordinal can be let into the memory of @peer. */
bool host_can_access(int ordinal, int peer);

/* The ordinal by which this process knows a device, -1: it does not see it. */
int host_ordinal(int physical_device);

/* ---- calls.c: what every function does first ---- */

enum host_call {
#define HOST_CALL(member, name, version, parameters) HOST_##name,
    DDPI_CUDA_FUNCTION_MAP(HOST_CALL)
#undef HOST_CALL
        HOST_CALLS,
};

struct host_context;

/* Counts the call and lets it fail where DDP_HOST_CUDA_FAIL says so; fails before cuInit and in a
 * process that was forked after it. */
ddpi_cu_result host_enter(enum host_call call);

/* The same for functions that need a current context, whose earlier failure they also return. */
ddpi_cu_result host_enter_context(enum host_call call, struct host_context **ret_context);

const char *host_call_name(enum host_call call);

/* ---- device.c: devices and contexts ---- */

/* The primary context of a device; there are no others. Everything in it is under the lock. */
struct host_context {
    int device;                   /* ordinal */
    unsigned retained;            /* 0: it does not exist */
    ddpi_cu_result error;         /* the first failure of its work; it stays */
    atomic_bool stopped;          /* it failed or ends: its work is dropped, what waits gives up */
    bool peers[HOST_DEVICES_MAX]; /* ordinals into whose memory its kernels may reach */
    size_t used_bytes;            /* of the memory of the device, by this process */
    struct ddpi_list streams;     /* host_stream::link */
    struct host_stream *legacy;   /* the default stream; also in streams */
    unsigned drains;              /* threads in a function that waits for all its work */
    pthread_t drainer;            /* the last of them */
};

void host_lock(void);
void host_unlock(void);
/* Wait until something changed under the lock, or for @timeout_ms. */
void host_wait(unsigned timeout_ms);
void host_changed(void);

/* The context of the device @ordinal, or NULL where there is no such device. */
struct host_context *host_device_context(int ordinal);
/* The one on top of this thread's stack of contexts, or NULL. */
struct host_context *host_current(void);

/* ---- memory.c: what is where ---- */

enum host_memory_kind {
    HOST_MEMORY_DEVICE,  /* cuMemAlloc */
    HOST_MEMORY_MANAGED, /* cuMemAllocManaged: also the host reaches it, under the same address */
    HOST_MEMORY_PINNED,  /* cuMemHostAlloc: likewise */
    HOST_MEMORY_SHARED,  /* cuIpcOpenMemHandle */
    HOST_MEMORY_VIRTUAL, /* cuMemMap */
};

struct host_physical;

struct host_memory {
    struct ddpi_list link;
    enum host_memory_kind kind;
    struct host_context *context;
    int device; /* ordinal of the device that has it */
    ddpi_cu_deviceptr base;
    char *bytes; /* where this process has it mapped */
    size_t size;
    int fd; /* -1: none */
    uint64_t id;
    uint64_t nonce;  /* SHARED, DEVICE: part of the name of the memfd */
    unsigned opened; /* SHARED: how often */
    int owner_pid;   /* SHARED: where it is the owner's */
    ddpi_cu_deviceptr owner_base;
    struct host_physical *physical; /* VIRTUAL: a reference */
    bool access[HOST_DEVICES_MAX];  /* VIRTUAL, SHARED: ordinals whose kernels may reach it */
};

/* Under the lock: the memory that has the byte at @pointer, or NULL. */
struct host_memory *host_memory_find(ddpi_cu_deviceptr pointer);

/* Under the lock: what @context opened of the memory with @nonce of another process, or NULL. */
struct host_memory *host_memory_find_shared(const struct host_context *context, uint64_t nonce);

/* Under the lock: whether @context has opened other memory of that process at those addresses. */
bool host_memory_overlaps(const struct host_context *context, int owner_pid,
                          ddpi_cu_deviceptr owner_base, size_t size);

/* Take and give the lock: where this process has the @size bytes at @pointer; NULL where they are
 * not all of one memory, or kernels on @device may not reach them. */
DDP_API void *host_memory_reach(ddpi_cu_deviceptr pointer, size_t size, int device);

/* The same for a copy, which reaches all memory, also what only the host knows. */
void *host_memory_reach_any(ddpi_cu_deviceptr pointer, size_t size);

/* Whether no function of this driver gave it out, so that it is the host's own. */
bool host_is_foreign(ddpi_cu_deviceptr pointer);
bool host_is_tagged(ddpi_cu_deviceptr pointer);

/* Addresses for @size bytes, never given out before; NULL when there are none left. Under the lock.
 * They are mapped to nothing, and host_range_clear() makes that so again. */
char *host_range_take(size_t size);
void host_range_clear(char *range, size_t size);
/* The same with @fd mapped there, or fresh pages for -1. */
char *host_map_new(size_t size, int fd);
void host_fill_with_noise(void *bytes, size_t size);
ddpi_cu_deviceptr host_tag(const char *bytes);
char *host_untag(ddpi_cu_deviceptr pointer);

/* A memfd of @size bytes of noise, named for the device and @ret_nonce; -1 when there is none. */
int host_memfd(int device, size_t size, uint64_t *ret_nonce);
/* What host_memfd() called @fd_path, a path in /proc; false if it is no such file. */
bool host_memfd_name(const char *fd_path, int *ret_physical_device, uint64_t *ret_nonce);

/* Under the lock: a new record of memory, in the list; NULL without memory. And its end, which
 * unmaps it, closes its file and gives back what it used. */
struct host_memory *host_memory_add(enum host_memory_kind kind, struct host_context *context,
                                    int device, size_t size);
void host_memory_remove(struct host_memory *memory);
void host_memory_remove_all(const struct host_context *context);
/* Charge @size bytes to the device; false when it has no more. */
bool host_memory_charge(struct host_context *context, size_t size);
void host_memory_discharge(struct host_context *context, size_t size);

/* vmm.c */
void host_physical_drop(struct host_physical *physical);
uint64_t host_physical_retain(struct host_physical *physical);
unsigned host_physical_handle_types(const struct host_physical *physical);
/* Stays the same where it is mapped again. */
uint64_t host_physical_id(const struct host_physical *physical);

/* ---- stream.c: order ---- */

struct host_stream;

/* A piece of work; the first member of what it needs, malloc'd. Freed once done or dropped. */
struct host_work {
    struct ddpi_list link;
    uint64_t ticket; /* its place in the order of all work of the process */
    struct host_stream *stream;
    /* On the stream's thread, without the lock; a failure stays in the context. */
    ddpi_cu_result (*run)(struct host_work *work);
};

/* Under the lock: the stream that @handle means in @context (which it replaces by its own), or
 * NULL. */
struct host_stream *host_stream_find(ddpi_cu_stream handle, struct host_context **context);
struct host_context *host_stream_context(const struct host_stream *stream);

/* Put @work (NULL: there was no memory for it) behind what @handle was given before. */
ddpi_cu_result host_stream_submit(struct host_context *context, ddpi_cu_stream handle,
                                  struct host_work *work);

/* Under the lock: wait until all work of @context is done, as some functions do. Says on stderr
 * when that takes long, since with the real driver that is where a program hangs. */
void host_context_drain(struct host_context *context, const char *who);
/* Drop what the streams have, end them and forget them. */
void host_streams_end(struct host_context *context);

/* Take and give the lock: wait until all is done that was given to @handle so far. */
ddpi_cu_result host_stream_wait(struct host_context *context, ddpi_cu_stream handle);

/* On a stream's thread: a while that differs each time, where the settings want that. */
void host_delay(void);

/* Whether a capture that is under way forbids this thread what might disturb it. */
bool host_capture_forbids(void);

/* ---- module.c, twins.c: kernels ---- */

/* What a kernel does, in C. Each takes one parameter, by value. */
struct host_kernel {
    const char *name;
    size_t parameter_size;
    /* @parameter is a copy from the time of the launch. */
    ddpi_cu_result (*run)(const struct host_kernel *kernel, const void *parameter, int device);
    int dtype, op; /* of one that reduces, multiplies, or casts from it */
    size_t bytes;  /* of an element of one that copies */
};

const struct host_kernel *host_kernel_find(const char *name);

#define HOST_DECLARE(member, name, version, parameters) ddpi_cu_result name parameters;
DDPI_CUDA_FUNCTION_MAP(HOST_DECLARE)
#undef HOST_DECLARE

#endif
