/*
 * rig.c - a rank with a GPU. Owns its context, its stream and the host's communicator.
 */
#include "rig.h"

#include "elements.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUARD = 256, POISON = 0xa5 };

static bool ask_for_host_driver(void)
{
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct ddpi_cuda cuda;
        char name[64] = "";
        bool is_host = ddpi_cuda_init(&cuda, NULL) == DDP_OK &&
                       cuda.device_get_name(name, sizeof name, 0) == DDPI_CU_SUCCESS &&
                       strcmp(name, "Host CUDA device") == 0;
        _exit(is_host ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool rig_driver_is_host(void)
{
    static enum { UNKNOWN, HOST, GPU } driver;
    if (driver == UNKNOWN)
        driver = ask_for_host_driver() ? HOST : GPU;
    return driver == HOST;
}

void rig_use(struct rig *rig, int ordinal, ddp_comm *device, ddp_comm *host)
{
    *rig = (struct rig){.device = device, .host = host};
    if (device != NULL) {
        rig->rank = ddp_comm_rank(device);
        rig->nranks = ddp_comm_world_size(device);
    }
    rig->random = now_us() ^ (uint64_t)rig->rank << 56;
    CHECK_OK(ddpi_cuda_init(&rig->cuda, err));
    int count;
    CU(rig->cuda.device_get_count(&count));
    rig->ordinal = ordinal % count;
    CU(rig->cuda.device_primary_ctx_retain(&rig->context, rig->ordinal));
    CU(rig->cuda.ctx_push_current(rig->context));
    CU(rig->cuda.stream_create(&rig->stream, DDPI_CU_STREAM_NON_BLOCKING));
}

bool rig_has_one_gpu(const struct rig *rig)
{
    int count;
    CU(rig->cuda.device_get_count(&count));
    return count == 1;
}

void rig_open(struct rig *rig, struct world *world, uint32_t rank, ddp_comm *comm)
{
    rig_use(rig, (int)rank, comm, NULL);
    struct ddp_comm_options options = world_options(world, rank);
    options.name = "host";
    CHECK_OK(ddp_comm_init(&options, &rig->host, err));
}

void rig_close(struct rig *rig)
{
    ddp_comm_destroy(rig->host);
    for (size_t i = 0; i < rig->kept_count; i++)
        CU(rig->cuda.mem_free(rig->kept[i]));
    free(rig->kept);
    CU(rig->cuda.stream_destroy(rig->stream));
    CU(rig->cuda.ctx_pop_current(NULL)); /* it lives on, as the communicator on the device may */
    ddpi_cuda_finish(&rig->cuda);
}

void rig_synchronize(struct rig *rig)
{
    CU(rig->cuda.stream_synchronize(rig->stream));
    CHECK_OK(ddp_comm_check(rig->device, err));
}

void *rig_alloc(struct rig *rig, size_t len)
{
    ddpi_cu_deviceptr address;
    CU(rig->cuda.mem_alloc(&address, len));
    return (void *)(uintptr_t)address;
}

void rig_free(struct rig *rig, void *address)
{
    if (!rig->keeps) {
        CU(rig->cuda.mem_free((uintptr_t)address));
        return;
    }
    rig->kept = realloc(rig->kept, (rig->kept_count + 1) * sizeof *rig->kept);
    CHECK(rig->kept != NULL);
    rig->kept[rig->kept_count++] = (uintptr_t)address;
}

size_t rig_free_memory(struct rig *rig)
{
    size_t free_bytes, total;
    CU(rig->cuda.mem_get_info(&free_bytes, &total));
    return free_bytes;
}

/* ---- the same buffer twice ---- */

void *twin_device(const struct twin *twin)
{
    return (void *)(uintptr_t)(twin->space + GUARD);
}

uint64_t rig_draw(struct rig *rig)
{
    rig->random += 0x9e3779b97f4a7c15U;
    uint64_t x = rig->random;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

void rig_upload(struct rig *rig, const struct twin *twin)
{
    CU(rig->cuda.memset_d8_async(twin->space, POISON, twin->len + 2 * GUARD, rig->stream));
    CU(rig->cuda.memcpy_htod_async(twin->space + GUARD, twin->host, twin->len, rig->stream));
}

static void map_space(struct rig *rig, struct twin *twin, size_t size)
{
    const struct ddpi_cu_mem_prop prop = {
        .type = DDPI_CU_MEM_ALLOCATION_TYPE_PINNED,
        .requested_handle_types = DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = DDPI_CU_MEM_LOCATION_TYPE_DEVICE, .id = rig->ordinal}};
    const struct ddpi_cu_mem_access access = {.location = prop.location,
                                              .flags = DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity;
    CU(rig->cuda.mem_get_allocation_granularity(&granularity, &prop,
                                                DDPI_CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    twin->mapped = (size + granularity - 1) / granularity * granularity;
    ddpi_cu_mem_handle handle;
    CU(rig->cuda.mem_create(&handle, twin->mapped, &prop, 0));
    CU(rig->cuda.mem_address_reserve(&twin->space, twin->mapped, 0, 0, 0));
    CU(rig->cuda.mem_map(twin->space, twin->mapped, 0, handle, 0));
    CU(rig->cuda.mem_set_access(twin->space, twin->mapped, &access, 1));
    CU(rig->cuda.mem_release(handle));
}

void twin_free(struct rig *rig, struct twin *twin)
{
    free(twin->host);
    if (twin->mapped == 0) {
        rig_free(rig, (void *)(uintptr_t)twin->space);
        return;
    }
    CU(rig->cuda.mem_unmap(twin->space, twin->mapped));
    CU(rig->cuda.mem_address_free(twin->space, twin->mapped));
}

struct twin rig_output(struct rig *rig, size_t len)
{
    struct twin twin = {.host = malloc(len + 1), .len = len};
    CHECK(twin.host != NULL);
    memset(twin.host, POISON, len);
    if (rig->virtual)
        map_space(rig, &twin, len + 2 * GUARD);
    else
        twin.space = (uintptr_t)rig_alloc(rig, len + 2 * GUARD);
    rig_upload(rig, &twin);
    return twin;
}

/* Random bits; NaNs are made one NaN, as which of several wins is up to the processor. */
struct twin rig_input(struct rig *rig, size_t count, ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    struct twin twin = rig_output(rig, count * size);
    for (size_t at = 0; at < twin.len; at += sizeof(uint64_t)) {
        uint64_t bits = rig_draw(rig);
        memcpy(twin.host + at, &bits, twin.len - at < sizeof bits ? twin.len - at : sizeof bits);
    }
    rig_upload(rig, &twin);
    return twin;
}

void rig_compare(struct rig *rig, struct twin *twin, ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    uint8_t *seen = malloc(twin->len + 2 * GUARD);
    CHECK(seen != NULL);
    CU(rig->cuda.stream_synchronize(rig->stream)); /* the copy would wait with the driver's lock */
    CU(rig->cuda.memcpy_dtoh_async(seen, twin->space, twin->len + 2 * GUARD, rig->stream));
    rig_synchronize(rig);
    for (size_t i = 0; i < GUARD; i++)
        CHECK(seen[i] == POISON && seen[GUARD + twin->len + i] == POISON);
    bool same = memcmp(seen + GUARD, twin->host, twin->len) == 0;
    for (size_t at = 0; at < twin->len && !same; at += size) {
        const uint8_t *device = seen + GUARD + at, *host = twin->host + at;
        CHECK(elements_agree(dtype, elements_get(device, 0, dtype), elements_get(host, 0, dtype)));
    }
    twin_free(rig, twin);
    free(seen);
}

/* ---- the calls ---- */

void rig_all_reduce(struct rig *rig, const struct problem *of)
{
    struct twin send = rig_input(rig, of->count, of->dtype);
    struct twin recv = rig_output(rig, send.len);
    struct twin *to = of->in_place ? &send : &recv;
    CHECK_OK(ddp_all_reduce(rig->device, twin_device(&send), twin_device(to), of->count, of->dtype,
                            of->op, rig->stream, err));
    CHECK_OK(
        ddp_all_reduce(rig->host, send.host, to->host, of->count, of->dtype, of->op, NULL, err));
    rig_compare(rig, &send, of->dtype);
    rig_compare(rig, &recv, of->dtype);
}

void rig_reduce(struct rig *rig, const struct problem *of)
{
    struct twin send = rig_input(rig, of->count, of->dtype);
    struct twin recv = rig_output(rig, send.len);
    struct twin *to = of->in_place ? &send : &recv;
    CHECK_OK(ddp_reduce(rig->device, twin_device(&send), twin_device(to), of->count, of->dtype,
                        of->op, of->root, rig->stream, err));
    CHECK_OK(ddp_reduce(rig->host, send.host, to->host, of->count, of->dtype, of->op, of->root,
                        NULL, err));
    rig_compare(rig, &send, of->dtype);
    rig_compare(rig, &recv, of->dtype);
}

void rig_reduce_scatter(struct rig *rig, const struct problem *of)
{
    struct twin send = rig_input(rig, of->count * rig->nranks, of->dtype);
    struct twin recv = rig_output(rig, send.len / rig->nranks);
    size_t own = rig->rank * recv.len;
    uint8_t *device = of->in_place ? (uint8_t *)twin_device(&send) + own : twin_device(&recv);
    uint8_t *host = of->in_place ? send.host + own : recv.host;
    CHECK_OK(ddp_reduce_scatter(rig->device, twin_device(&send), device, of->count, of->dtype,
                                of->op, rig->stream, err));
    CHECK_OK(
        ddp_reduce_scatter(rig->host, send.host, host, of->count, of->dtype, of->op, NULL, err));
    rig_compare(rig, &send, of->dtype);
    rig_compare(rig, &recv, of->dtype);
}

void rig_all_gather(struct rig *rig, const struct problem *of)
{
    struct twin send = rig_input(rig, of->count, of->dtype);
    struct twin recv = rig_input(rig, of->count * rig->nranks, of->dtype);
    size_t own = rig->rank * send.len;
    uint8_t *device = of->in_place ? (uint8_t *)twin_device(&recv) + own : twin_device(&send);
    uint8_t *host = of->in_place ? recv.host + own : send.host;
    CHECK_OK(ddp_all_gather(rig->device, device, twin_device(&recv), of->count, of->dtype,
                            rig->stream, err));
    CHECK_OK(ddp_all_gather(rig->host, host, recv.host, of->count, of->dtype, NULL, err));
    rig_compare(rig, &send, of->dtype);
    rig_compare(rig, &recv, of->dtype);
}

void rig_broadcast(struct rig *rig, const struct problem *of)
{
    struct twin buffer = rig_input(rig, of->count, of->dtype);
    CHECK_OK(ddp_broadcast(rig->device, twin_device(&buffer), of->count, of->dtype, of->root,
                           rig->stream, err));
    CHECK_OK(ddp_broadcast(rig->host, buffer.host, of->count, of->dtype, of->root, NULL, err));
    rig_compare(rig, &buffer, of->dtype);
}

void rig_all_calls(struct rig *rig, const struct problem *of)
{
    rig_all_reduce(rig, of);
    rig_reduce(rig, of);
    rig_reduce_scatter(rig, of);
    rig_all_gather(rig, of);
    rig_broadcast(rig, of);
}

void rig_shift(struct rig *rig, const struct problem *of)
{
    uint32_t next = (rig->rank + 1) % rig->nranks;
    uint32_t prev = (rig->rank + rig->nranks - 1) % rig->nranks;
    struct twin ours = rig_input(rig, of->count, of->dtype);
    struct twin theirs = rig_output(rig, ours.len);
    for (unsigned turn = 0; turn < 2; turn++)
        if (rig->rank % 2 == turn) {
            CHECK_OK(ddp_send(rig->device, twin_device(&ours), of->count, of->dtype, next,
                              rig->stream, err));
            CHECK_OK(ddp_send(rig->host, ours.host, of->count, of->dtype, next, NULL, err));
        } else {
            CHECK_OK(ddp_recv(rig->device, twin_device(&theirs), of->count, of->dtype, prev,
                              rig->stream, err));
            CHECK_OK(ddp_recv(rig->host, theirs.host, of->count, of->dtype, prev, NULL, err));
        }
    rig_compare(rig, &ours, of->dtype);
    rig_compare(rig, &theirs, of->dtype);
}
