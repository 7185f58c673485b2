/*
 * probe_memory.c - what the driver says of pointers, and what becomes of memory that another
 * process has opened: when it is freed, when its owner dies.
 */
#include "probe.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *probe_text(ddpi_cu_result result)
{
    static char text[4][16];
    static unsigned turn;
    char *at = text[turn++ % 4];
    snprintf(at, 16, "%d", (int)result);
    return at;
}

static char probe_first_byte(ddpi_cu_deviceptr at)
{
    MUST(probe_scene.cuda->memcpy_dtoh_async(probe_scene.pinned, at, 1, probe_scene.lanes[1]));
    MUST(probe_scene.cuda->stream_synchronize(probe_scene.lanes[1]));
    return (char)probe_scene.pinned[0];
}

void probe_pointers(int unused)
{
    struct ddpi_cuda cuda;
    struct ddp_error err = {0};
    ddpi_cu_context context = NULL;
    unsigned attribute = DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type = 77;
    void *value = &type, *host = malloc(100), *library = dlopen("libcuda.so.1", RTLD_NOW);
    ddpi_cu_result (*get_current)(ddpi_cu_context *) = NULL;
    (void)unused;
    void *symbol = dlsym(library, "cuCtxGetCurrent");
    memcpy(&get_current, &symbol, sizeof symbol);
    printf("pointers: cuCtxGetCurrent before cuInit: %s (3 is expected)\n",
           probe_text(get_current(&context)));
    if (ddpi_cuda_init(&cuda, &err) != DDP_OK) {
        printf("pointers: %s\n", err.msg);
        return;
    }
    ddpi_cu_result asked_result =
        cuda.pointer_get_attributes(1, &attribute, &value, (uintptr_t)host);
    printf("pointers: cuPointerGetAttributes of host memory, no context in the process: %s, type "
           "%u (0 and 0 are expected; anything else fails collectives on host memory)\n",
           probe_text(asked_result), type);
    probe_open();
    type = 77;
    asked_result = cuda.pointer_get_attributes(1, &attribute, &value, (uintptr_t)host);
    printf("pointers: the same with a context: %s, type %u\n", probe_text(asked_result), type);
    /* two pieces of physical memory in one range of addresses, as an expandable segment has them */
    const struct ddpi_cu_mem_prop prop = {.type = DDPI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requested_handle_types =
                                              DDPI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {.type = DDPI_CU_MEM_LOCATION_TYPE_DEVICE}};
    const struct ddpi_cu_mem_access access = {.location = prop.location,
                                              .flags = DDPI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t piece, size = 0;
    ddpi_cu_mem_handle handles[2], retained;
    ddpi_cu_deviceptr at, base = 0;
    MUST(cuda.mem_get_allocation_granularity(&piece, &prop, 0));
    MUST(cuda.mem_address_reserve(&at, 2 * piece, 0, 0, 0));
    for (unsigned i = 0; i < 2; i++) {
        MUST(cuda.mem_create(&handles[i], piece, &prop, 0));
        MUST(cuda.mem_map(at + i * piece, piece, 0, handles[i], 0));
        MUST(cuda.mem_set_access(at + i * piece, piece, &access, 1));
    }
    ddpi_cu_result range = cuda.mem_get_address_range(&base, &size, at + piece + 100);
    printf("pointers: cuMemGetAddressRange in the second of two mapped pieces of %zu KiB: %s, "
           "offset %lld, size %zu KiB\n",
           piece >> 10, probe_text(range), (long long)(at + piece + 100 - base), size >> 10);
    struct ddpi_cu_ipc_handle handle;
    printf("pointers: virtual memory: cuIpcGetMemHandle %s (not 0), retained handle %s (0)\n",
           probe_text(cuda.ipc_get_mem_handle(&handle, at)),
           probe_text(cuda.mem_retain_allocation_handle(&retained, (void *)(uintptr_t)at)));
    uint64_t types = 77, block = 77;
    unsigned asked[] = {DDPI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                        DDPI_CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID};
    void *answers[] = {&types, &block};
    (void)cuda.pointer_get_attributes(2, asked, answers, probe_scene.a);
    printf(
        "pointers: cuMemAlloc: handle types %llu, block %llu, retained handle %s (not 0)\n",
        (unsigned long long)types, (unsigned long long)block,
        probe_text(cuda.mem_retain_allocation_handle(&retained, (void *)(uintptr_t)probe_scene.a)));
    (void)cuda.pointer_get_attributes(2, asked, answers, at);
    printf("pointers: cuMemMap: handle types %llu, block %llu\n", (unsigned long long)types,
           (unsigned long long)block);
    printf(
        "pointers: copies and fills of 0 bytes: %s %s %s\n",
        probe_text(cuda.memcpy_htod_async(probe_scene.a, host, 0, probe_scene.device.stream)),
        probe_text(cuda.memcpy_async(probe_scene.a, probe_scene.b, 0, probe_scene.device.stream)),
        probe_text(cuda.memset_d8_async(probe_scene.a, 0, 0, probe_scene.device.stream)));
}

void probe_ipc(int unused)
{
    int line;
    struct probe_shown shown[PROBE_SHOWN], fresh;
    ddpi_cu_deviceptr at[4] = {0}, again = 0;
    (void)unused;
    pid_t owner = probe_start_owner(&line, shown);
    printf("ipc: small allocations at %+lld and %+lld of the first; sizes %zu, large %zu MiB\n",
           (long long)(shown[1].at - shown[0].at), (long long)(shown[2].at - shown[0].at),
           shown[0].size, shown[3].size >> 20);
    for (unsigned i = 0; i < 4; i++) {
        double began = probe_now_ms();
        ddpi_cu_result result = probe_open_shown(&shown[i], &at[i]);
        printf("ipc: open %s: %s in %.2f ms", i < 3 ? "a small one" : "the large one",
               probe_text(result), probe_now_ms() - began);
        if (result == DDPI_CU_SUCCESS)
            printf(", reads '%c' (%c is expected)",
                   probe_first_byte(at[i] + (shown[i].at - shown[i].base)), "abcL"[i]);
        printf("\n");
    }
    (void)!write(line, "f", 1);
    fresh = probe_take(line);
    printf("ipc: freed and allocated again, %s place; ",
           fresh.at == shown[1].at ? "same" : "other");
    ddpi_cu_result result = probe_open_shown(&fresh, &again);
    printf("open while the old mapping is there: %s", probe_text(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c' (N is expected)", probe_first_byte(again));
    MUST(probe_scene.cuda->ipc_close_mem_handle(at[1]));
    result = probe_open_shown(&fresh, &again);
    printf("; with only that one closed: %s", probe_text(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c'", probe_first_byte(again));
    MUST(probe_scene.cuda->ipc_close_mem_handle(at[0]));
    MUST(probe_scene.cuda->ipc_close_mem_handle(at[2]));
    result = probe_open_shown(&fresh, &again);
    printf("; with its neighbours closed: %s", probe_text(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c'", probe_first_byte(again));
    printf("\n");
    size_t before, after, total;
    MUST(probe_scene.cuda->mem_get_info(&before, &total));
    (void)!write(line, "l", 1);
    fresh = probe_take(line);
    MUST(probe_scene.cuda->mem_get_info(&after, &total));
    printf(
        "ipc: the owner has freed %d MiB that are mapped here, and allocated as many: the device "
        "has %lld MiB less (0: freed memory is given back at once)\n",
        BIG / MIB, ((long long)before - (long long)after) / MIB);
    printf("ipc: the large one anew, %s place; open: ", fresh.at == shown[3].at ? "same" : "other");
    printf("%s", probe_text(probe_open_shown(&fresh, &again)));
    double began = probe_now_ms();
    MUST(probe_scene.cuda->ipc_close_mem_handle(at[3]));
    printf("; close: %.2f ms", probe_now_ms() - began);
    printf("; open again: %s\n", probe_text(probe_open_shown(&fresh, &again)));
    kill(owner, SIGKILL);
}

/* The owner dies while kernels here read its memory. */
void probe_death(int unused)
{
    int line;
    struct probe_shown shown[PROBE_SHOWN];
    ddpi_cu_deviceptr at = 0;
    (void)unused;
    pid_t owner = probe_start_owner(&line, shown);
    MUST(probe_open_shown(&shown[3], &at));
    double end = probe_now_ms() + 1e6;
    for (int i = 0; probe_now_ms() < end; i++) { /* the driver blocks where its queue is full */
        probe_launch(probe_scene.lanes[0], probe_scene.b, at, BIG);
        if (i == 50) {
            kill(owner, SIGKILL);
            (void)waitpid(owner, NULL, 0);
            end = probe_now_ms() + 200;
        }
    }
    ddpi_cu_result result = probe_scene.cuda->stream_synchronize(probe_scene.lanes[0]);
    printf("death: kernels that read the memory of a process that is killed end with %s",
           probe_text(result));
    if (result == DDPI_CU_SUCCESS) {
        printf(", later it reads '%c' (L is expected)", probe_first_byte(at));
        printf("; close: %s", probe_text(probe_scene.cuda->ipc_close_mem_handle(at)));
        probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, MIB);
        printf("; the context after that: %s",
               probe_text(probe_scene.cuda->stream_synchronize(probe_scene.lanes[0])));
    }
    printf("\n");
}

/* Opening memory of others while a stream is held, with an idle thread only. */
void probe_opening(int unused)
{
    int line;
    struct probe_shown shown[PROBE_SHOWN];
    ddpi_cu_deviceptr at = 0;
    (void)unused;
    pid_t owner = probe_start_owner(&line, shown);
    probe_hold(probe_scene.device.stream, GATE, 1);
    double began = probe_now_ms();
    ddpi_cu_result result = probe_open_shown(&shown[3], &at);
    printf("opening: cuIpcOpenMemHandle while a stream is held: %s in %.2f ms\n",
           probe_text(result), probe_now_ms() - began);
    ddpi_words_set(&probe_scene.words, GATE, 1);
    kill(owner, SIGKILL);
}
