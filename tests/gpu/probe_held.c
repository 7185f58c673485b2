/*
 * probe_held.c - one thread waits in the driver behind a stream that is held: which calls of other
 * threads go on meanwhile. The communicator's thread is such a thread. If a call that it needs does
 * not go on, and the stream waits for it, both wait for ever.
 */
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef ddpi_cu_result blocker(void);

static void *pageable;
static ddpi_cu_deviceptr spare, large_spare;
static void *spare_host;

static ddpi_cu_result dtoh_4(void)
{
    return probe_scene.cuda->memcpy_dtoh_async(pageable, probe_scene.a, 4,
                                               probe_scene.device.stream);
}
static ddpi_cu_result dtoh_64k(void)
{
    return probe_scene.cuda->memcpy_dtoh_async(pageable, probe_scene.a, 65536,
                                               probe_scene.device.stream);
}
static ddpi_cu_result dtoh_4m(void)
{
    return probe_scene.cuda->memcpy_dtoh_async(pageable, probe_scene.a, 4 * MIB,
                                               probe_scene.device.stream);
}
static ddpi_cu_result htod_4(void)
{
    return probe_scene.cuda->memcpy_htod_async(probe_scene.a, pageable, 4,
                                               probe_scene.device.stream);
}
static ddpi_cu_result htod_64k(void)
{
    return probe_scene.cuda->memcpy_htod_async(probe_scene.a, pageable, 65536,
                                               probe_scene.device.stream);
}
static ddpi_cu_result htod_4m(void)
{
    return probe_scene.cuda->memcpy_htod_async(probe_scene.a, pageable, 4 * MIB,
                                               probe_scene.device.stream);
}
static ddpi_cu_result dtoh_pinned(void)
{
    return probe_scene.cuda->memcpy_dtoh_async(probe_scene.pinned, probe_scene.a, 4 * MIB,
                                               probe_scene.device.stream);
}
static ddpi_cu_result dtoh_pinned_and_wait(void)
{
    ddpi_cu_result result = dtoh_pinned();
    return result != DDPI_CU_SUCCESS
               ? result
               : probe_scene.cuda->stream_synchronize(probe_scene.device.stream);
}
static ddpi_cu_result wait_for_stream(void)
{
    return probe_scene.cuda->stream_synchronize(probe_scene.device.stream);
}
static ddpi_cu_result wait_for_context(void)
{
    ddpi_cu_result (*synchronize)(void) = NULL;
    void *symbol = dlsym(probe_scene.cuda->library, "cuCtxSynchronize");
    memcpy(&synchronize, &symbol, sizeof symbol);
    return synchronize != NULL ? synchronize() : DDPI_CU_ERROR_NOT_FOUND;
}
static ddpi_cu_result free_small(void)
{
    return probe_scene.cuda->mem_free(spare);
}
static ddpi_cu_result free_large(void)
{
    return probe_scene.cuda->mem_free(large_spare);
}
static ddpi_cu_result free_pinned(void)
{
    return probe_scene.cuda->mem_free_host(spare_host);
}
static ddpi_cu_result alloc_small(void)
{
    return probe_scene.cuda->mem_alloc(&spare, 1000);
}
static ddpi_cu_result alloc_large(void)
{
    return probe_scene.cuda->mem_alloc(&large_spare, 256 * (size_t)MIB);
}
static ddpi_cu_result alloc_pinned(void)
{
    return probe_scene.cuda->mem_host_alloc(&spare_host, 4 * MIB, 0);
}
static ddpi_cu_result load_module(void)
{
    static struct ddpi_kernels other;
    ddpi_kernels_init(&other, probe_scene.cuda);
    return ddpi_kernels_load(&other, NULL) == DDP_OK ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_UNKNOWN;
}
static ddpi_cu_result make_stream(void)
{
    ddpi_cu_stream stream;
    return probe_scene.cuda->stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING);
}
static ddpi_cu_result many_launches(void)
{
    for (int i = 0; i < 4000; i++)
        probe_launch(probe_scene.device.stream, probe_scene.b, probe_scene.a, 1024);
    return DDPI_CU_SUCCESS;
}
static ddpi_cu_result many_memops(void)
{
    for (uint32_t i = 0; i < 4000; i++)
        probe_stamp(probe_scene.device.stream, SEEN + 1, i);
    return DDPI_CU_SUCCESS;
}

static const struct {
    const char *name;
    blocker *call;
} blockers[] = {
    {"DtoH pageable 4 B", dtoh_4},
    {"DtoH pageable 64 KiB", dtoh_64k},
    {"DtoH pageable 4 MiB", dtoh_4m},
    {"HtoD pageable 4 B", htod_4},
    {"HtoD pageable 64 KiB", htod_64k},
    {"HtoD pageable 4 MiB", htod_4m},
    {"DtoH pinned, then synchronize", dtoh_pinned_and_wait},
    {"cuStreamSynchronize", wait_for_stream},
    {"cuCtxSynchronize", wait_for_context},
    {"cuMemFree small", free_small},
    {"cuMemFree 256 MiB", free_large},
    {"cuMemFreeHost", free_pinned},
    {"cuMemAlloc small", alloc_small},
    {"cuMemAlloc 256 MiB", alloc_large},
    {"cuMemHostAlloc 4 MiB", alloc_pinned},
    {"cuModuleLoadData", load_module},
    {"cuStreamCreate", make_stream},
    {"4000 launches", many_launches},
    {"4000 stream memory operations", many_memops},
};
const int probe_held_calls = sizeof blockers / sizeof *blockers;

struct act {
    pthread_t thread;
    blocker *call;
    int step;       /* of a helper */
    _Atomic int at; /* 1: in the call; 2: after it */
    _Atomic int result;
};

static void enter(void)
{
    MUST(probe_scene.cuda->ctx_push_current(probe_scene.device.context));
}

static void *run_blocker(void *arg)
{
    struct act *act = arg;
    enter();
    act->at = 1;
    act->result = act->call();
    act->at = 2;
    return NULL;
}

/* What a thread of the library does while the program's thread is in the driver. */
enum step {
    ATTRIBUTES,
    RANGE,
    GET_HANDLE,
    OPEN_HANDLE,
    QUERY,
    LAUNCH,
    WRITE,
    COPY_DEVICE,
    COPY_OUT,
    COPY_IN,
    ALLOCATE,
    ALLOCATE_PINNED,
    MAKE_STREAM,
    END_OF_KERNEL,
    STEPS
};

static const char *const steps[] = {[ATTRIBUTES] = "pointer attributes",
                                    [RANGE] = "address range",
                                    [GET_HANDLE] = "get IPC handle",
                                    [OPEN_HANDLE] = "open IPC handle",
                                    [QUERY] = "query a stream",
                                    [LAUNCH] = "launch",
                                    [WRITE] = "write a word",
                                    [COPY_DEVICE] = "copy DtoD",
                                    [COPY_OUT] = "copy DtoH pinned",
                                    [COPY_IN] = "copy HtoD pinned",
                                    [ALLOCATE] = "allocate",
                                    [ALLOCATE_PINNED] = "allocate pinned",
                                    [MAKE_STREAM] = "make a stream",
                                    [END_OF_KERNEL] = "end of a kernel"};

static struct probe_shown foreign; /* memory of another process */

static void make_step(int step)
{
    const struct ddpi_cuda *cuda = probe_scene.cuda;
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr base;
    ddpi_cu_stream stream;
    size_t size;
    unsigned attribute = DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type;
    void *value = &type, *pinned;
    switch ((enum step)step) {
    case ATTRIBUTES:
        (void)cuda->pointer_get_attributes(1, &attribute, &value, probe_scene.a);
        break;
    case RANGE:
        (void)cuda->mem_get_address_range(&base, &size, probe_scene.a);
        break;
    case GET_HANDLE:
        (void)cuda->ipc_get_mem_handle(&handle, probe_scene.b);
        break;
    case OPEN_HANDLE:
        MUST(cuda->ipc_open_mem_handle(&base, foreign.handle,
                                       DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        break;
    case QUERY:
        (void)cuda->stream_query(probe_scene.lanes[0]);
        break;
    case LAUNCH:
        probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, 1 * MIB);
        probe_stamp(probe_scene.lanes[0], SEEN, 1);
        break;
    case WRITE:
        probe_stamp(probe_scene.lanes[1], SEEN + 2, 1);
        break;
    case COPY_DEVICE:
        (void)cuda->memcpy_async(probe_scene.b, probe_scene.a, MIB, probe_scene.lanes[1]);
        break;
    case COPY_OUT:
        (void)cuda->memcpy_dtoh_async(probe_scene.pinned + 4 * MIB, probe_scene.a, MIB,
                                      probe_scene.lanes[1]);
        break;
    case COPY_IN:
        (void)cuda->memcpy_htod_async(probe_scene.b, probe_scene.pinned + 6 * MIB, MIB,
                                      probe_scene.lanes[1]);
        break;
    case ALLOCATE:
        MUST(cuda->mem_alloc(&base, 3000));
        break;
    case ALLOCATE_PINNED:
        MUST(cuda->mem_host_alloc(&pinned, 8192, 0));
        break;
    case MAKE_STREAM:
        MUST(cuda->stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING));
        break;
    default: /* the end of what was launched */
        while (ddpi_words_get(&probe_scene.words, SEEN) != 1)
            probe_nap_ms(0.01);
    }
}

static void *run_helper(void *arg)
{
    struct act *act = arg;
    enter();
    act->at = 1;
    make_step(act->step);
    act->at = 2;
    return NULL;
}

static bool await(_Atomic int *at, int value, double ms)
{
    for (double end = probe_now_ms() + ms; *at < value && probe_now_ms() < end;)
        probe_nap_ms(0.5);
    return *at >= value;
}

/* Each helper is a thread, so that one that waits hides nothing of the others. */
static void print_waiting(struct act helpers[STEPS])
{
    const char *lead = "others ARE BLOCKED in ";
    for (int step = 0; step < STEPS; step++)
        if (helpers[step].at != 2) {
            printf("%s%s", lead, steps[step]);
            lead = ", ";
        }
    if (*lead != ',')
        printf("others GO ON");
}

void probe_held(int number)
{
    enum { HELD_MS = 700, AFTER_MS = 4000 };
    struct act first = {.call = blockers[number].call}, helpers[STEPS] = {0};
    int line;
    struct probe_shown shown[PROBE_SHOWN];
    pid_t owner = probe_start_owner(&line, shown);
    foreign = shown[PROBE_SHOWN - 1];
    pageable = malloc(8 * MIB);
    memset(pageable, 1, 8 * MIB);
    MUST(probe_scene.cuda->mem_alloc(&spare, 1000));
    MUST(probe_scene.cuda->mem_alloc(&large_spare, 256 * (size_t)MIB));
    MUST(probe_scene.cuda->mem_host_alloc(&spare_host, 4 * MIB, 0));
    if (strstr(blockers[number].name, "cuMemAlloc") != NULL) {
        MUST(probe_scene.cuda->mem_free(spare));
        MUST(probe_scene.cuda->mem_free(large_spare));
    }
    probe_hold(probe_scene.device.stream, GATE, 1);
    pthread_create(&first.thread, NULL, run_blocker, &first);
    await(&first.at, 1, 1000);
    probe_nap_ms(100);
    bool returned = first.at == 2;
    for (int step = 0; step < STEPS; step++) {
        helpers[step].step = step;
        pthread_create(&helpers[step].thread, NULL, run_helper, &helpers[step]);
    }
    for (int step = 0; step < STEPS; step++)
        await(&helpers[step].at, 2, HELD_MS / STEPS);
    printf("held: %-31s %s; ", blockers[number].name,
           returned        ? "returns at once     "
           : first.at != 2 ? "waits for the stream"
                           : "returns late        ");
    print_waiting(helpers);
    ddpi_words_set(&probe_scene.words, GATE, 1);
    if (!await(&first.at, 2, AFTER_MS))
        printf("; THE CALL NEVER ENDS");
    else if (first.result != 0)
        printf("; result %d", first.result);
    printf("\n");
    fflush(NULL);
    kill(owner, SIGKILL);
    _exit(0);
}
