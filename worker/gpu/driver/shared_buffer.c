/*
 * shared_buffer.c - device memory that other ranks may read.
 */
#include "shared_buffer.h"

#include "error.h"
#include "mem.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The same for all communicators of a process, different for all other processes of the machine, in
 * whatever container. */
static uint64_t name_process(void)
{
    struct stat space;
    uint64_t inode = stat("/proc/self/ns/pid", &space) == 0 ? space.st_ino : 0;
    return inode << 32 | (uint32_t)getpid();
}

void ddpi_shares_init(struct ddpi_shares *shares, const struct ddpi_cuda *cuda,
                      ddpi_cu_context context, uint32_t ranks)
{
    memset(shares, 0, sizeof *shares);
    shares->cuda = cuda;
    shares->context = context;
    shares->most = DDPI_SHARES_PER_RANK * (ranks < DDPI_SHARES_RANKS ? DDPI_SHARES_RANKS : ranks);
    shares->process = name_process();
}

static void share_unmap(const struct ddpi_cuda *cuda, const struct ddpi_share *share)
{
    if (share->mapped == 0) {
        (void)cuda->ipc_close_mem_handle(share->base);
        return;
    }
    (void)cuda->mem_unmap(share->base, share->mapped);
    (void)cuda->mem_address_free(share->base, share->mapped);
}

void ddpi_shares_tidy(struct ddpi_shares *shares)
{
    for (uint32_t i = shares->count; i-- > 0;) {
        if (!shares->open[i].stale)
            continue;
        share_unmap(shares->cuda, &shares->open[i]);
        shares->open[i] = shares->open[--shares->count];
    }
    shares->stale = 0;
    shares->refused = 0;
}

static void make_stale(struct ddpi_shares *shares, struct ddpi_share *share)
{
    shares->stale += !share->stale;
    share->stale = true;
}

void ddpi_shares_finish(struct ddpi_shares *shares)
{
    for (uint32_t i = 0; i < shares->count; i++)
        make_stale(shares, &shares->open[i]);
    ddpi_shares_tidy(shares);
    ddpi_free(shares->open);
    ddpi_free(shares->known);
}

/* Memory pools claim to be exportable, too, but not this way. */
static bool is_virtual(const struct ddpi_cuda *cuda, ddpi_cu_deviceptr address)
{
    ddpi_cu_mem_handle handle;
    return cuda->mem_retain_allocation_handle(&handle, (void *)(uintptr_t)address) ==
               DDPI_CU_SUCCESS &&
           cuda->mem_release(handle) == DDPI_CU_SUCCESS;
}

/* Different for virtual memory that was mapped at this place before; 0: unknown. */
static uint64_t block_of(const struct ddpi_cuda *cuda, ddpi_cu_deviceptr address)
{
    uint64_t block = 0;
    unsigned attribute = DDPI_CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID;
    void *value = &block;
    if (cuda->pointer_get_attributes(1, &attribute, &value, address) != DDPI_CU_SUCCESS)
        return 0;
    return block;
}

/* Memory of cuMemCreate() that its owner made exportable. */
static bool is_exportable(const struct ddpi_cuda *cuda, ddpi_cu_deviceptr address)
{
    uint64_t types = 0;
    unsigned attribute = DDPI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES;
    void *value = &types;
    return cuda->pointer_get_attributes(1, &attribute, &value, address) == DDPI_CU_SUCCESS &&
           (types & DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 &&
           is_virtual(cuda, address);
}

static struct ddpi_known *known_find(const struct ddpi_shares *shares,
                                     const struct ddpi_offer *offer)
{
    for (uint32_t i = 0; i < shares->known_count; i++)
        if (shares->known[i].base == offer->address - offer->offset)
            return &shares->known[i];
    return NULL;
}

void ddpi_share_known(struct ddpi_shares *shares, const struct ddpi_offer *offer)
{
    struct ddpi_known *known = known_find(shares, offer);
    if (offer->way != DDPI_SHARE_IPC)
        return;
    if (known == NULL) {
        size_t count = shares->known_count + (size_t)1;
        known = ddpi_realloc(shares->known, count, sizeof *known);
        if (known == NULL)
            return; /* they will try again */
        shares->known = known;
        known = &known[shares->known_count++];
        *known = (struct ddpi_known){.base = offer->address - offer->offset};
    }
    known->allocation = offer->allocation;
}

void ddpi_share_offer(const struct ddpi_shares *shares, uint32_t rank, const void *address,
                      size_t len, uint64_t allocation, struct ddpi_offer *ret_offer)
{
    const struct ddpi_cuda *cuda = shares->cuda;
    *ret_offer = (struct ddpi_offer){.process = shares->process,
                                     .address = (uintptr_t)address,
                                     .context = (uintptr_t)shares->context,
                                     .allocation = allocation,
                                     .rank = rank,
                                     .known = 1};
    ddpi_cu_deviceptr base;
    size_t size;
    if (address == NULL ||
        cuda->mem_get_address_range(&base, &size, ret_offer->address) != DDPI_CU_SUCCESS ||
        ret_offer->address + len > base + size)
        return;
    ret_offer->offset = ret_offer->address - base;
    ret_offer->size = size;
    struct ddpi_cu_ipc_handle handle;
    _Static_assert(sizeof handle == sizeof ret_offer->handle, "the ABI's size");
    if (cuda->ipc_get_mem_handle(&handle, base) == DDPI_CU_SUCCESS) {
        memcpy(ret_offer->handle, &handle, sizeof handle);
        ret_offer->way = DDPI_SHARE_IPC;
        const struct ddpi_known *known = known_find(shares, ret_offer);
        ret_offer->known = known != NULL && known->allocation == allocation;
    } else if (is_exportable(cuda, base)) {
        if (ret_offer->allocation == 0)
            ret_offer->allocation = block_of(cuda, base);
        ret_offer->way = ret_offer->allocation != 0 ? DDPI_SHARE_FD : DDPI_SHARE_NONE;
    }
}

ddp_status ddpi_share_export(const struct ddpi_shares *shares, const struct ddpi_offer *offer,
                             int *ret_fd, struct ddp_error *err)
{
    const struct ddpi_cuda *cuda = shares->cuda;
    ddpi_cu_mem_handle handle;
    ddpi_cu_result result = cuda->mem_retain_allocation_handle(
        &handle, (void *)(uintptr_t)(offer->address - offer->offset));
    if (result == DDPI_CU_SUCCESS) {
        result = cuda->mem_export_to_shareable_handle(
            ret_fd, handle, DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        (void)cuda->mem_release(handle);
    }
    return result == DDPI_CU_SUCCESS
               ? DDP_OK
               : ddpi_cuda_error(cuda, err, result, "export GPU memory to another process");
}

/* Peer access within a process covers memory of cuMemAlloc(), not virtual memory, nor pools. */
bool ddpi_offer_suits(const struct ddpi_offer *offer, const struct ddpi_offer *reader)
{
    if (offer->address == 0)
        return true;
    if (offer->process != reader->process)
        return offer->way != DDPI_SHARE_NONE;
    return offer->context == reader->context || offer->way == DDPI_SHARE_IPC;
}

static struct ddpi_share *share_find(struct ddpi_shares *shares, const struct ddpi_offer *offer)
{
    for (uint32_t i = 0; i < shares->count; i++)
        if (shares->open[i].process == offer->process && !shares->open[i].stale &&
            shares->open[i].allocation == offer->allocation &&
            shares->open[i].owner_base == offer->address - offer->offset)
            return &shares->open[i];
    return NULL;
}

/* Allocations at the place of a new one were freed; only the mapping holds them. */
static void drop_freed(struct ddpi_shares *shares, const struct ddpi_offer *offer)
{
    uint64_t begin = offer->address - offer->offset, end = begin + offer->size;
    for (uint32_t i = 0; i < shares->count; i++) {
        struct ddpi_share *open = &shares->open[i];
        if (open->process == offer->process && open->owner_base < end &&
            begin < open->owner_base + open->size)
            make_stale(shares, open);
    }
}

/* Not one that came with a descriptor: its owner does not send that again. */
static void drop_least_used(struct ddpi_shares *shares)
{
    struct ddpi_share *oldest = NULL;
    for (uint32_t i = 0; i < shares->count; i++)
        if (!shares->open[i].stale && shares->open[i].mapped == 0 &&
            (oldest == NULL || shares->open[i].used < oldest->used))
            oldest = &shares->open[i];
    if (oldest != NULL)
        make_stale(shares, oldest);
}

static bool has_room(struct ddpi_shares *shares)
{
    if (shares->count < shares->capacity)
        return true;
    uint32_t capacity = shares->capacity * 2 + 16;
    struct ddpi_share *open = ddpi_realloc(shares->open, capacity, sizeof *open);
    if (open == NULL)
        return false;
    shares->open = open;
    shares->capacity = capacity;
    return true;
}

/* A place for @offer, which the caller fills and counts; NULL: out of memory. */
static struct ddpi_share *share_add(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                                    struct ddp_error *err)
{
    drop_freed(shares, offer);
    if (shares->count - shares->stale >= shares->most)
        drop_least_used(shares);
    if (!has_room(shares)) {
        (void)ddpi_error_nomem(err, shares->capacity * sizeof *shares->open);
        return NULL;
    }
    struct ddpi_share *share = &shares->open[shares->count];
    *share = (struct ddpi_share){.process = offer->process,
                                 .allocation = offer->allocation,
                                 .owner_base = offer->address - offer->offset,
                                 .size = offer->size};
    return share;
}

/* NULL: the driver refuses. */
static struct ddpi_share *open_share(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                                     struct ddp_error *err)
{
    struct ddpi_share *share = share_add(shares, offer, err);
    if (share == NULL)
        return NULL;
    struct ddpi_cu_ipc_handle handle;
    memcpy(&handle, offer->handle, sizeof handle);
    ddpi_cu_result result = shares->cuda->ipc_open_mem_handle(
        &share->base, handle, DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != DDPI_CU_SUCCESS) {
        (void)ddpi_cuda_error(shares->cuda, err, result, "open the GPU memory of rank %u",
                              offer->rank);
        shares->refused++;
        return NULL;
    }
    shares->count++;
    return share;
}

bool ddpi_share_awaits(struct ddpi_shares *shares, const struct ddpi_offer *offer)
{
    return offer->way == DDPI_SHARE_FD && offer->process != shares->process &&
           share_find(shares, offer) == NULL;
}

static ddpi_cu_result map_import(const struct ddpi_cuda *cuda, ddpi_cu_mem_handle handle,
                                 size_t size, ddpi_cu_deviceptr *ret_base)
{
    struct ddpi_cu_mem_access access = {.location = {.type = DDPI_CU_MEM_LOCATION_TYPE_DEVICE},
                                        .flags = DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    ddpi_cu_deviceptr base;
    ddpi_cu_result result = cuda->ctx_get_device(&access.location.id);
    if (result == DDPI_CU_SUCCESS)
        result = cuda->mem_address_reserve(&base, size, 0, 0, 0);
    if (result != DDPI_CU_SUCCESS)
        return result;
    result = cuda->mem_map(base, size, 0, handle, 0);
    if (result != DDPI_CU_SUCCESS) {
        (void)cuda->mem_address_free(base, size);
        return result;
    }
    result = cuda->mem_set_access(base, size, &access, 1);
    if (result == DDPI_CU_SUCCESS)
        *ret_base = base;
    else
        share_unmap(cuda, &(const struct ddpi_share){.base = base, .mapped = size});
    return result;
}

ddp_status ddpi_share_import(struct ddpi_shares *shares, const struct ddpi_offer *offer, int fd,
                             struct ddp_error *err)
{
    struct ddpi_share *share = share_add(shares, offer, err);
    if (share == NULL)
        return DDP_E_NOMEM;
    ddpi_cu_mem_handle handle;
    ddpi_cu_result result = shares->cuda->mem_import_from_shareable_handle(
        &handle, (void *)(intptr_t)fd, DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == DDPI_CU_SUCCESS) {
        result = map_import(shares->cuda, handle, offer->size, &share->base);
        (void)shares->cuda->mem_release(handle);
    }
    if (result != DDPI_CU_SUCCESS)
        return ddpi_cuda_error(shares->cuda, err, result, "map the GPU memory of rank %u",
                               offer->rank);
    share->mapped = offer->size;
    shares->count++;
    return DDP_OK;
}

/* Memory of another GPU in the same process needs no mapping, but this GPU needs peer access. */
static ddp_status reach_sibling(const struct ddpi_shares *shares, const struct ddpi_offer *offer,
                                struct ddp_error *err)
{
    if (offer->context == (uintptr_t)shares->context)
        return DDP_OK;
    ddpi_cu_context theirs = (ddpi_cu_context)(uintptr_t)offer->context;
    ddpi_cu_result result = shares->cuda->ctx_enable_peer_access(theirs, 0);
    if (result == DDPI_CU_SUCCESS || result == DDPI_CU_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        return DDP_OK;
    return ddpi_cuda_error(shares->cuda, err, result, "reach the GPU of rank %u", offer->rank);
}

ddp_status ddpi_share_open(struct ddpi_shares *shares, const struct ddpi_offer *offer,
                           ddpi_cu_deviceptr *ret_address, struct ddp_error *err)
{
    if (offer->process == shares->process) {
        *ret_address = offer->address;
        return reach_sibling(shares, offer, err);
    }
    struct ddpi_share *share = share_find(shares, offer);
    if (share == NULL)
        share = open_share(shares, offer, err);
    if (share == NULL)
        return DDP_E_CUDA;
    share->used = ++shares->uses;
    *ret_address = share->base + offer->offset;
    return DDP_OK;
}
