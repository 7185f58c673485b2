/*
 * memory.c - records of memory, of devices and of the host: which addresses belong to what.
 *
 * Each memory of a device is a memfd, so that another process can map it, filled with noise, so
 * that nobody is helped by zeros. Its address in this process comes out of one range that is used
 * once from front to end: what was freed stays unmapped, and no address comes back as something
 * else. With DDP_HOST_CUDA_REUSE=1 the last address that was freed is given out again, as a GPU's
 * driver does.
 */
#include "host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define TAG (1ULL << 62) /* no address of x86-64 or arm64 user space has it */

enum { GRANULE = 64 << 10 };
static const size_t ARENA_BYTES = 64ULL << 30;

static char *arena;
static size_t arena_used;
static struct ddpi_list memories = {&memories, &memories}; /* host_memory::link */
static uint64_t last_id;

bool host_is_tagged(ddpi_cu_deviceptr pointer)
{
    return (pointer & TAG) != 0;
}

bool host_is_foreign(ddpi_cu_deviceptr pointer)
{
    return !host_is_tagged(pointer) && (arena == NULL || pointer - (uintptr_t)arena >= ARENA_BYTES);
}

ddpi_cu_deviceptr host_tag(const char *bytes)
{
    return (uintptr_t)bytes | TAG;
}

char *host_untag(ddpi_cu_deviceptr pointer)
{
    return (char *)(uintptr_t)(pointer & ~TAG);
}

static size_t round_up(size_t size)
{
    return (size + GRANULE - 1) / GRANULE * GRANULE;
}

/* Under the lock: ranges that were freed, the last one behind. */
enum { FREED_MAX = 64 };
static struct range {
    char *bytes;
    size_t size;
} freed[FREED_MAX];
static unsigned freed_count;

static void give_back(char *bytes, size_t size)
{
    if (host_settings()->reuses && freed_count < FREED_MAX)
        freed[freed_count++] = (struct range){bytes, round_up(size)};
}

static char *take_back(size_t size)
{
    for (unsigned i = freed_count; i-- > 0;)
        if (freed[i].size == round_up(size)) {
            char *bytes = freed[i].bytes;
            memmove(&freed[i], &freed[i + 1], (--freed_count - i) * sizeof *freed);
            return bytes;
        }
    return NULL;
}

char *host_range_take(size_t size)
{
    char *again = take_back(size);
    if (again != NULL)
        return again;
    if (arena == NULL) {
        void *mapped =
            mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED)
            return NULL;
        arena = mapped;
    }
    if (size > ARENA_BYTES || round_up(size) + GRANULE > ARENA_BYTES - arena_used)
        return NULL;
    char *range = arena + arena_used;
    arena_used +=
        round_up(size) + GRANULE; /* the last one stays free: a step too far hits nothing */
    return range;
}

void host_range_clear(char *range, size_t size)
{
    mmap(range, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void host_fill_with_noise(void *bytes, size_t size)
{
    uint64_t state = 0;
    if (getrandom(&state, sizeof state, 0) != (ssize_t)sizeof state)
        state = 1;
    for (size_t at = 0; at < size; at += sizeof state) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        uint64_t word = state ^ state >> 29;
        memcpy((char *)bytes + at, &word, size - at < sizeof word ? size - at : sizeof word);
    }
}

int host_memfd(int device, size_t size, uint64_t *ret_nonce)
{
    uint64_t nonce = 0;
    char name[64];
    if (getrandom(&nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return -1;
    snprintf(name, sizeof name, "host-cuda-%d-%016llx", host_settings()->physical[device],
             (unsigned long long)nonce);
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    void *bytes = MAP_FAILED;
    if (ftruncate(fd, (off_t)size) == 0)
        bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        close(fd);
        return -1;
    }
    host_fill_with_noise(bytes, size);
    munmap(bytes, size);
    *ret_nonce = nonce;
    return fd;
}

bool host_memfd_name(const char *fd_path, int *ret_physical_device, uint64_t *ret_nonce)
{
    static const char prefix[] = "/memfd:host-cuda-";
    char target[128];
    ssize_t len = readlink(fd_path, target, sizeof target - 1);
    if (len < 0)
        return false;
    target[len] = '\0';
    if (strncmp(target, prefix, sizeof prefix - 1) != 0)
        return false;
    char *end = NULL;
    long device = strtol(target + sizeof prefix - 1, &end, 10);
    if (*end != '-' || device < 0 || device >= HOST_DEVICES_MAX)
        return false;
    *ret_physical_device = (int)device;
    *ret_nonce = strtoull(end + 1, NULL, 16);
    return true;
}

struct host_memory *host_memory_add(enum host_memory_kind kind, struct host_context *context,
                                    int device, size_t size)
{
    struct host_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL)
        return NULL;
    memory->kind = kind;
    memory->context = context;
    memory->device = device;
    memory->size = size;
    memory->fd = -1;
    memory->id = ++last_id;
    ddpi_list_append(&memories, &memory->link);
    return memory;
}

static bool is_charged(const struct host_memory *memory)
{
    return memory->kind == HOST_MEMORY_DEVICE || memory->kind == HOST_MEMORY_MANAGED;
}

bool host_memory_charge(struct host_context *context, size_t size)
{
    size_t total = host_settings()->memory_bytes;
    if (size > total || round_up(size) > total - context->used_bytes)
        return false;
    context->used_bytes += round_up(size);
    return true;
}

void host_memory_discharge(struct host_context *context, size_t size)
{
    context->used_bytes -= round_up(size);
}

void host_memory_remove(struct host_memory *memory)
{
    if (memory->bytes != NULL)
        host_range_clear(memory->bytes, memory->size);
    if (memory->bytes != NULL && memory->kind == HOST_MEMORY_DEVICE)
        give_back(memory->bytes, memory->size);
    if (memory->fd >= 0)
        close(memory->fd);
    if (is_charged(memory))
        host_memory_discharge(memory->context, memory->size);
    if (memory->physical != NULL)
        host_physical_drop(memory->physical);
    ddpi_list_remove(&memory->link);
    free(memory);
}

void host_memory_remove_all(const struct host_context *context)
{
    ddpi_list_for_each_safe (node, &memories) {
        struct host_memory *memory = ddpi_container_of(node, struct host_memory, link);
        if (memory->context == context)
            host_memory_remove(memory);
    }
}

struct host_memory *host_memory_find(ddpi_cu_deviceptr pointer)
{
    ddpi_list_for_each (node, &memories) {
        struct host_memory *memory = ddpi_container_of(node, struct host_memory, link);
        if (pointer >= memory->base && pointer - memory->base < memory->size)
            return memory;
    }
    return NULL;
}

struct host_memory *host_memory_find_shared(const struct host_context *context, uint64_t nonce)
{
    ddpi_list_for_each (node, &memories) {
        struct host_memory *memory = ddpi_container_of(node, struct host_memory, link);
        if (memory->kind == HOST_MEMORY_SHARED && memory->context == context &&
            memory->nonce == nonce)
            return memory;
    }
    return NULL;
}

bool host_memory_overlaps(const struct host_context *context, int owner_pid,
                          ddpi_cu_deviceptr owner_base, size_t size)
{
    ddpi_list_for_each (node, &memories) {
        const struct host_memory *memory = ddpi_container_of(node, struct host_memory, link);
        if (memory->kind == HOST_MEMORY_SHARED && memory->context == context &&
            memory->owner_pid == owner_pid && memory->owner_base < owner_base + size &&
            owner_base < memory->owner_base + memory->size)
            return true;
    }
    return false;
}

static bool may_reach(const struct host_memory *memory, int device)
{
    switch (memory->kind) {
    case HOST_MEMORY_PINNED:
    case HOST_MEMORY_MANAGED:
        return true;
    case HOST_MEMORY_DEVICE:
        return memory->device == device || host_device_context(device)->peers[memory->device];
    case HOST_MEMORY_SHARED:
    case HOST_MEMORY_VIRTUAL:
        return memory->access[device];
    }
    return false;
}

/* Under the lock. */
static char *reach(const struct host_memory *memory, ddpi_cu_deviceptr pointer, size_t size)
{
    size_t offset = pointer - memory->base;
    return size <= memory->size - offset ? memory->bytes + offset : NULL;
}

void *host_memory_reach(ddpi_cu_deviceptr pointer, size_t size, int device)
{
    void *bytes = NULL;
    host_lock();
    const struct host_memory *memory = host_memory_find(pointer);
    if (memory != NULL && may_reach(memory, device))
        bytes = reach(memory, pointer, size);
    host_unlock();
    return bytes;
}

void *host_memory_reach_any(ddpi_cu_deviceptr pointer, size_t size)
{
    void *bytes = NULL;
    host_lock();
    const struct host_memory *memory = host_memory_find(pointer);
    if (memory != NULL)
        bytes = reach(memory, pointer, size);
    else if (host_is_foreign(pointer))
        bytes = (void *)(uintptr_t)pointer;
    host_unlock();
    return bytes;
}

char *host_map_new(size_t size, int fd)
{
    char *range = host_range_take(size);
    if (range == NULL)
        return NULL;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
    void *bytes = mmap(range, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    return bytes != MAP_FAILED ? bytes : NULL;
}
