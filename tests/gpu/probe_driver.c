/*
 * probe_driver.c - what libddpcomm takes for granted of the CUDA driver, tried out one by one on
 * the driver that the process finds. Prints a line for each; ends with 0 whatever it has seen.
 *
 *   probe_driver [NAME...]      only the probes whose names begin so
 *
 * Each probe is a child with a time limit, killed at its end, so nothing that hangs costs more.
 * The parent never calls the driver. "others": another thread of the process, as the
 * communicator's thread is one, makes the calls that an operation needs while the first thread is
 * in the driver behind a stream that is held. If it cannot, an operation whose stream is held
 * deadlocks with that thread until the timeout.
 */
#include "device.h"
#include "kernel_launch.h"
#include "stream_words.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MIB = 1 << 20, WORDS = 256, BIG = 64 * MIB, MANY_STREAMS = 40 };
enum { GATE, SEEN, STAMPS = 64 };

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void nap_ms(double ms)
{
    const struct timespec nap = {.tv_sec = (time_t)(ms / 1000),
                                 .tv_nsec = (long)(ms * 1e6) % 1000000000L};
    nanosleep(&nap, NULL);
}

/* ---- a process with a context, as a rank has one ---- */

struct scene {
    struct device device; /* its stream is the user's */
    const struct ddpi_cuda *cuda;
    struct ddpi_kernels kernels;
    struct ddpi_words words;
    ddpi_cu_stream lanes[2]; /* of the highest priority, as the library's */
    ddpi_cu_deviceptr a, b;
    uint8_t *pinned;
};

static struct scene scene;

#define MUST(call)                                                        \
    do {                                                                  \
        ddpi_cu_result result_ = (call);                                  \
        if (result_ != DDPI_CU_SUCCESS) {                                 \
            printf("%s: %d; the probe ends here\n", #call, (int)result_); \
            fflush(NULL);                                                 \
            _exit(1);                                                     \
        }                                                                 \
    } while (0)

static void launch(ddpi_cu_stream stream, ddpi_cu_deviceptr out, ddpi_cu_deviceptr in, size_t bytes)
{
    struct ddp_error err = {0};
    const struct ddpi_reduction work = {.in = {(const void *)(uintptr_t)in},
                                        .out = {(void *)(uintptr_t)out},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = bytes / sizeof(int32_t),
                                        .dtype = DDP_INT32,
                                        .divisor = 1};
    if (ddpi_kernels_launch(&scene.kernels, &work, stream, &err) != DDP_OK) {
        printf("launch: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

static void open_scene(void)
{
    struct ddp_error err = {0};
    int least = 0, greatest = 0;
    void *pinned;
    device_open(&scene.device);
    scene.cuda = &scene.device.cuda;
    ddpi_kernels_init(&scene.kernels, scene.cuda);
    if (ddpi_kernels_load(&scene.kernels, &err) != DDP_OK ||
        ddpi_words_init(&scene.words, scene.cuda, WORDS, &err) != DDP_OK) {
        printf("%s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
    MUST(scene.cuda->ctx_get_stream_priority_range(&least, &greatest));
    for (unsigned i = 0; i < 2; i++)
        MUST(scene.cuda->stream_create_with_priority(&scene.lanes[i], DDPI_CU_STREAM_NON_BLOCKING,
                                                     greatest));
    scene.a = device_alloc(&scene.device, BIG);
    scene.b = device_alloc(&scene.device, BIG);
    MUST(scene.cuda->mem_host_alloc(&pinned, 8 * MIB, 0));
    scene.pinned = pinned;
    launch(scene.device.stream, scene.b, scene.a, 4096);
    launch(scene.lanes[0], scene.b, scene.a, 4096);
    device_wait(&scene.device);
    MUST(scene.cuda->stream_synchronize(scene.lanes[0]));
}

static void hold(ddpi_cu_stream stream, uint32_t word, uint32_t value)
{
    struct ddp_error err = {0};
    if (ddpi_words_hold(&scene.words, word, value, stream, &err) != DDP_OK) {
        printf("hold: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

static void stamp(ddpi_cu_stream stream, uint32_t word, uint32_t value)
{
    struct ddp_error err = {0};
    if (ddpi_words_stamp(&scene.words, word, value, stream, &err) != DDP_OK) {
        printf("stamp: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

struct shown {
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr at, base;
    size_t size;
};

/* ---- one thread in the driver behind a held stream, and another that needs the driver ---- */

typedef ddpi_cu_result blocker(void);

static void *pageable;
static ddpi_cu_deviceptr spare, large_spare;
static void *spare_host;

static ddpi_cu_result dtoh_4(void)
{
    return scene.cuda->memcpy_dtoh_async(pageable, scene.a, 4, scene.device.stream);
}
static ddpi_cu_result dtoh_64k(void)
{
    return scene.cuda->memcpy_dtoh_async(pageable, scene.a, 65536, scene.device.stream);
}
static ddpi_cu_result dtoh_4m(void)
{
    return scene.cuda->memcpy_dtoh_async(pageable, scene.a, 4 * MIB, scene.device.stream);
}
static ddpi_cu_result htod_4(void)
{
    return scene.cuda->memcpy_htod_async(scene.a, pageable, 4, scene.device.stream);
}
static ddpi_cu_result htod_64k(void)
{
    return scene.cuda->memcpy_htod_async(scene.a, pageable, 65536, scene.device.stream);
}
static ddpi_cu_result htod_4m(void)
{
    return scene.cuda->memcpy_htod_async(scene.a, pageable, 4 * MIB, scene.device.stream);
}
static ddpi_cu_result dtoh_pinned(void)
{
    return scene.cuda->memcpy_dtoh_async(scene.pinned, scene.a, 4 * MIB, scene.device.stream);
}
static ddpi_cu_result dtoh_pinned_and_wait(void)
{
    ddpi_cu_result result = dtoh_pinned();
    return result != DDPI_CU_SUCCESS ? result : scene.cuda->stream_synchronize(scene.device.stream);
}
static ddpi_cu_result wait_for_stream(void)
{
    return scene.cuda->stream_synchronize(scene.device.stream);
}
static ddpi_cu_result wait_for_context(void)
{
    ddpi_cu_result (*synchronize)(void) = NULL;
    void *symbol = dlsym(scene.cuda->library, "cuCtxSynchronize");
    memcpy(&synchronize, &symbol, sizeof symbol);
    return synchronize != NULL ? synchronize() : DDPI_CU_ERROR_NOT_FOUND;
}
static ddpi_cu_result free_small(void)
{
    return scene.cuda->mem_free(spare);
}
static ddpi_cu_result free_large(void)
{
    return scene.cuda->mem_free(large_spare);
}
static ddpi_cu_result free_pinned(void)
{
    return scene.cuda->mem_free_host(spare_host);
}
static ddpi_cu_result alloc_small(void)
{
    return scene.cuda->mem_alloc(&spare, 1000);
}
static ddpi_cu_result alloc_large(void)
{
    return scene.cuda->mem_alloc(&large_spare, 256 * (size_t)MIB);
}
static ddpi_cu_result alloc_pinned(void)
{
    return scene.cuda->mem_host_alloc(&spare_host, 4 * MIB, 0);
}
static ddpi_cu_result load_module(void)
{
    static struct ddpi_kernels other;
    ddpi_kernels_init(&other, scene.cuda);
    return ddpi_kernels_load(&other, NULL) == DDP_OK ? DDPI_CU_SUCCESS : DDPI_CU_ERROR_UNKNOWN;
}
static ddpi_cu_result make_stream(void)
{
    ddpi_cu_stream stream;
    return scene.cuda->stream_create(&stream, DDPI_CU_STREAM_NON_BLOCKING);
}
static ddpi_cu_result many_launches(void)
{
    for (int i = 0; i < 4000; i++)
        launch(scene.device.stream, scene.b, scene.a, 1024);
    return DDPI_CU_SUCCESS;
}
static ddpi_cu_result many_memops(void)
{
    for (uint32_t i = 0; i < 4000; i++)
        stamp(scene.device.stream, SEEN + 1, i);
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
enum { BLOCKERS = sizeof blockers / sizeof *blockers };

struct act {
    pthread_t thread;
    blocker *call;
    int step;       /* of a helper */
    _Atomic int at; /* 1: in the call; 2: after it */
    _Atomic int result;
};

static void enter(void)
{
    MUST(scene.cuda->ctx_push_current(scene.device.context));
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

static struct shown foreign; /* memory of another process */

static void make_step(int step)
{
    const struct ddpi_cuda *cuda = scene.cuda;
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr base;
    ddpi_cu_stream stream;
    size_t size;
    unsigned attribute = DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, type;
    void *value = &type, *pinned;
    switch ((enum step)step) {
    case ATTRIBUTES:
        (void)cuda->pointer_get_attributes(1, &attribute, &value, scene.a);
        break;
    case RANGE:
        (void)cuda->mem_get_address_range(&base, &size, scene.a);
        break;
    case GET_HANDLE:
        (void)cuda->ipc_get_mem_handle(&handle, scene.b);
        break;
    case OPEN_HANDLE:
        MUST(cuda->ipc_open_mem_handle(&base, foreign.handle,
                                       DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        break;
    case QUERY:
        (void)cuda->stream_query(scene.lanes[0]);
        break;
    case LAUNCH:
        launch(scene.lanes[0], scene.b, scene.a, 1 * MIB);
        stamp(scene.lanes[0], SEEN, 1);
        break;
    case WRITE:
        stamp(scene.lanes[1], SEEN + 2, 1);
        break;
    case COPY_DEVICE:
        (void)cuda->memcpy_async(scene.b, scene.a, MIB, scene.lanes[1]);
        break;
    case COPY_OUT:
        (void)cuda->memcpy_dtoh_async(scene.pinned + 4 * MIB, scene.a, MIB, scene.lanes[1]);
        break;
    case COPY_IN:
        (void)cuda->memcpy_htod_async(scene.b, scene.pinned + 6 * MIB, MIB, scene.lanes[1]);
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
        while (ddpi_words_get(&scene.words, SEEN) != 1)
            nap_ms(0.01);
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
    for (double end = now_ms() + ms; *at < value && now_ms() < end;)
        nap_ms(0.5);
    return *at >= value;
}

/* ---- queues of the hardware ---- */

/* Stamps of streams that are each held after theirs: a stamp that does not come is behind the hold
 * of another stream, in one queue. So would be the arrival of an operation. */
static void queues(int connections)
{
    static const int counts[] = {4, 8, 12, 16, 24, 32, MANY_STREAMS};
    ddpi_cu_stream streams[MANY_STREAMS];
    if (connections > 0) { /* 1, as Megatron-LM sets it, and the most that there are */
        char text[16];
        snprintf(text, sizeof text, "%d", connections);
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 1);
        printf("queues: CUDA_DEVICE_MAX_CONNECTIONS=%d:\n", connections);
    }
    open_scene();
    for (int i = 0; i < MANY_STREAMS; i++)
        MUST(scene.cuda->stream_create(&streams[i], DDPI_CU_STREAM_NON_BLOCKING));
    for (unsigned k = 0; k < (connections == 1 ? 1 : sizeof counts / sizeof *counts); k++) {
        uint32_t turn = k + 1;
        int arrived = 0;
        for (int i = 0; i < counts[k]; i++) {
            stamp(streams[i], (uint32_t)(STAMPS + i), turn);
            hold(streams[i], GATE, turn);
        }
        nap_ms(100);
        for (int i = 0; i < counts[k]; i++)
            arrived += ddpi_words_get(&scene.words, (uint32_t)(STAMPS + i)) == turn;
        launch(scene.lanes[0], scene.b, scene.a, MIB);
        stamp(scene.lanes[0], SEEN, turn);
        nap_ms(50);
        bool lane = ddpi_words_get(&scene.words, SEEN) == turn;
        printf(
            "queues: %2d streams stamped and held: %2d stamps came%s; a kernel in a stream of the "
            "highest priority %s\n",
            counts[k], arrived, arrived < counts[k] ? " (THE OTHERS ARE BEHIND A HOLD)" : "",
            lane ? "ran" : "DID NOT RUN");
        ddpi_words_set(&scene.words, GATE, turn);
        for (int i = 0; i < counts[k]; i++)
            MUST(scene.cuda->stream_synchronize(streams[i]));
        MUST(scene.cuda->stream_synchronize(scene.lanes[0]));
    }
}

/* Copies of the program behind its holds, then those of the library. */
static void copies(int way)
{
    static const char *const names[] = {"DtoH", "HtoD", "DtoD"};
    static const int counts[] = {1, 4, 8, 16, 32};
    ddpi_cu_stream streams[MANY_STREAMS];
    open_scene();
    for (int i = 0; i < MANY_STREAMS; i++)
        MUST(scene.cuda->stream_create(&streams[i], DDPI_CU_STREAM_NON_BLOCKING));
    for (unsigned k = 0; k < sizeof counts / sizeof *counts; k++) {
        uint32_t turn = k + 1;
        for (int i = 0; i <= counts[k]; i++) {
            bool ours = i == counts[k];
            ddpi_cu_stream stream = ours ? scene.lanes[1] : streams[i];
            uint8_t *host = scene.pinned + i * 8192;
            ddpi_cu_deviceptr at = scene.a + (unsigned)i * 8192;
            if (!ours)
                hold(stream, GATE, turn);
            MUST(way == 0   ? scene.cuda->memcpy_dtoh_async(host, at, 4096, stream)
                 : way == 1 ? scene.cuda->memcpy_htod_async(at, host, 4096, stream)
                            : scene.cuda->memcpy_async(at + MIB, at, 4096, stream));
        }
        stamp(scene.lanes[1], SEEN, turn);
        nap_ms(100);
        printf("copies: %s copies behind %2d held streams; the library's %s copy %s\n", names[way],
               counts[k], names[way],
               ddpi_words_get(&scene.words, SEEN) == turn ? "ran" : "IS BEHIND THEM");
        ddpi_words_set(&scene.words, GATE, turn);
        for (int i = 0; i < counts[k]; i++)
            MUST(scene.cuda->stream_synchronize(streams[i]));
        MUST(scene.cuda->stream_synchronize(scene.lanes[1]));
    }
}

/* ---- what calls cost ---- */

#define COST(text, times, call)                                                      \
    do {                                                                             \
        double began_ = now_ms();                                                    \
        for (int i_ = 0; i_ < (times); i_++) {                                       \
            call;                                                                    \
        }                                                                            \
        printf("cost: %-44s %8.2f us\n", text, (now_ms() - began_) * 1e3 / (times)); \
    } while (0)

static void costs(int unused)
{
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr base, small;
    size_t size, before, after, total;
    unsigned capturing;
    (void)unused;
    double began = now_ms();
    open_scene();
    printf("cost: %-44s %8.1f ms\n", "context, module, streams, memory", now_ms() - began);
    const struct ddpi_cuda *cuda = scene.cuda;
    unsigned attributes[] = {
        DDPI_CU_POINTER_ATTRIBUTE_CONTEXT, DDPI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        DDPI_CU_POINTER_ATTRIBUTE_IS_MANAGED, DDPI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        DDPI_CU_POINTER_ATTRIBUTE_BUFFER_ID};
    ddpi_cu_context context;
    unsigned type;
    int managed, ordinal;
    unsigned long long buffer;
    void *values[] = {&context, &type, &managed, &ordinal, &buffer};
    MUST(cuda->mem_alloc(&small, 1000));
    COST("cuPointerGetAttributes, 5 of them", 1000,
         MUST(cuda->pointer_get_attributes(5, attributes, values, scene.a)));
    COST("cuPointerGetAttributes, of the host", 1000,
         (void)cuda->pointer_get_attributes(5, attributes, values, (uintptr_t)&scene));
    COST("cuMemGetAddressRange", 1000, MUST(cuda->mem_get_address_range(&base, &size, scene.a)));
    COST("cuIpcGetMemHandle, the first time", 1, MUST(cuda->ipc_get_mem_handle(&handle, scene.a)));
    COST("cuIpcGetMemHandle, again", 200, MUST(cuda->ipc_get_mem_handle(&handle, scene.a)));
    COST("cuIpcGetMemHandle, small, again", 200, MUST(cuda->ipc_get_mem_handle(&handle, small)));
    COST("cuCtxPushCurrent and cuCtxPopCurrent", 1000, {
        MUST(cuda->ctx_push_current(scene.device.context));
        MUST(cuda->ctx_pop_current(NULL));
    });
    COST("cuStreamIsCapturing", 1000,
         MUST(cuda->stream_is_capturing(scene.device.stream, &capturing)));
    COST("cuStreamQuery", 1000, (void)cuda->stream_query(scene.device.stream));
    COST("cuStreamWriteValue32", 500, stamp(scene.lanes[0], SEEN, 1));
    MUST(cuda->stream_synchronize(scene.lanes[0]));
    COST("cuStreamWaitValue32, met already", 500, hold(scene.lanes[0], GATE, 0));
    MUST(cuda->stream_synchronize(scene.lanes[0]));
    COST("cuLaunchKernel", 500, launch(scene.lanes[0], scene.b, scene.a, 4096));
    MUST(cuda->stream_synchronize(scene.lanes[0]));
    static uint32_t turn;
    COST("stamp, seen by the host", 500, {
        stamp(scene.lanes[0], SEEN, ++turn);
        while (ddpi_words_get(&scene.words, SEEN) != turn)
            ;
    });
    COST("launch and stamp, seen by the host", 500, {
        launch(scene.lanes[0], scene.b, scene.a, 4096);
        stamp(scene.lanes[0], SEEN, ++turn);
        while (ddpi_words_get(&scene.words, SEEN) != turn)
            ;
    });
    uint32_t gate = 0;
    COST("stamp, hold, opened by the host, stamp", 500, {
        stamp(scene.device.stream, SEEN, ++turn);
        hold(scene.device.stream, GATE, ++gate);
        stamp(scene.device.stream, SEEN + 1, turn);
        while (ddpi_words_get(&scene.words, SEEN) != turn)
            ;
        ddpi_words_set(&scene.words, GATE, gate);
        while (ddpi_words_get(&scene.words, SEEN + 1) != turn)
            ;
    });
    MUST(cuda->mem_get_info(&before, &total));
    MUST(cuda->mem_free(small));
    MUST(cuda->mem_get_info(&after, &total));
    printf("cost: memory of the device: %zu of %zu MiB free with this context\n", before >> 20,
           total >> 20);
    began = now_ms();
    device_close(&scene.device);
    printf("cost: %-44s %8.1f ms\n", "end of the context", now_ms() - began);
}

/* Several processes, each with a stream that is stamped and held again and again: how long the
 * hardware takes to look at a word when it has more than one context. */
static void turns(int processes)
{
    enum { TURNS = 300 };
    int line[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        _exit(1);
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            char byte = 0;
            double us[TURNS], sum = 0, worst = 0;
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            open_scene();
            (void)!write(line[1], "r", 1);
            (void)!recv(line[1], &byte, 1, 0);
            for (uint32_t k = 1; k <= TURNS; k++) {
                double began = now_ms();
                stamp(scene.device.stream, SEEN, k);
                hold(scene.device.stream, GATE, k);
                stamp(scene.device.stream, SEEN + 1, k);
                while (ddpi_words_get(&scene.words, SEEN) != k)
                    ;
                ddpi_words_set(&scene.words, GATE, k);
                while (ddpi_words_get(&scene.words, SEEN + 1) != k)
                    ;
                us[k - 1] = (now_ms() - began) * 1e3;
                sum += us[k - 1];
                worst = us[k - 1] > worst ? us[k - 1] : worst;
            }
            if (i == 0)
                printf(
                    "turns: %d processes: stamp, hold, opened, stamp: %.1f us on average, %.1f at "
                    "most\n",
                    processes, sum / TURNS, worst);
            fflush(NULL);
            _exit(0);
        }
    char byte;
    for (int i = 0; i < processes; i++)
        (void)!read(line[0], &byte, 1);
    for (int i = 0; i < processes; i++)
        (void)!write(line[0], "g", 1);
    while (wait(NULL) > 0)
        continue;
}

/* ---- pointers ---- */

static const char *text_of(ddpi_cu_result result)
{
    static char text[4][16];
    static unsigned turn;
    char *at = text[turn++ % 4];
    snprintf(at, 16, "%d", (int)result);
    return at;
}

static void pointers(int unused)
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
           text_of(get_current(&context)));
    if (ddpi_cuda_init(&cuda, &err) != DDP_OK) {
        printf("pointers: %s\n", err.msg);
        return;
    }
    ddpi_cu_result asked_result =
        cuda.pointer_get_attributes(1, &attribute, &value, (uintptr_t)host);
    printf("pointers: cuPointerGetAttributes of host memory, no context in the process: %s, type "
           "%u (0 and 0 are expected; anything else fails collectives on host memory)\n",
           text_of(asked_result), type);
    open_scene();
    type = 77;
    asked_result = cuda.pointer_get_attributes(1, &attribute, &value, (uintptr_t)host);
    printf("pointers: the same with a context: %s, type %u\n", text_of(asked_result), type);
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
           piece >> 10, text_of(range), (long long)(at + piece + 100 - base), size >> 10);
    struct ddpi_cu_ipc_handle handle;
    printf("pointers: virtual memory: cuIpcGetMemHandle %s (not 0), retained handle %s (0)\n",
           text_of(cuda.ipc_get_mem_handle(&handle, at)),
           text_of(cuda.mem_retain_allocation_handle(&retained, (void *)(uintptr_t)at)));
    uint64_t types = 77, block = 77;
    unsigned asked[] = {DDPI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                        DDPI_CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID};
    void *answers[] = {&types, &block};
    (void)cuda.pointer_get_attributes(2, asked, answers, scene.a);
    printf("pointers: cuMemAlloc: handle types %llu, block %llu, retained handle %s (not 0)\n",
           (unsigned long long)types, (unsigned long long)block,
           text_of(cuda.mem_retain_allocation_handle(&retained, (void *)(uintptr_t)scene.a)));
    (void)cuda.pointer_get_attributes(2, asked, answers, at);
    printf("pointers: cuMemMap: handle types %llu, block %llu\n", (unsigned long long)types,
           (unsigned long long)block);
    printf("pointers: copies and fills of 0 bytes: %s %s %s\n",
           text_of(cuda.memcpy_htod_async(scene.a, host, 0, scene.device.stream)),
           text_of(cuda.memcpy_async(scene.a, scene.b, 0, scene.device.stream)),
           text_of(cuda.memset_d8_async(scene.a, 0, 0, scene.device.stream)));
}

/* ---- memory of another process ---- */

static void show(int line, ddpi_cu_deviceptr at)
{
    struct shown shown = {.at = at};
    MUST(scene.cuda->mem_get_address_range(&shown.base, &shown.size, at));
    MUST(scene.cuda->ipc_get_mem_handle(&shown.handle, shown.base));
    (void)!write(line, &shown, sizeof shown);
}

/* Says what it has and does what it is told. */
_Noreturn static void own(int line)
{
    ddpi_cu_deviceptr small[3], large;
    char what;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    open_scene();
    for (unsigned i = 0; i < 3; i++) {
        MUST(scene.cuda->mem_alloc(&small[i], 4000));
        MUST(scene.cuda->memset_d8_async(small[i], (unsigned char)('a' + i), 4000,
                                         scene.device.stream));
    }
    MUST(scene.cuda->mem_alloc(&large, BIG));
    MUST(scene.cuda->memset_d8_async(large, 'L', BIG, scene.device.stream));
    device_wait(&scene.device);
    for (unsigned i = 0; i < 3; i++)
        show(line, small[i]);
    show(line, large);
    while (read(line, &what, 1) == 1) {
        if (what == 'f') { /* free and allocate in the same place, with other content */
            MUST(scene.cuda->mem_free(small[1]));
            MUST(scene.cuda->mem_alloc(&small[1], 4000));
            MUST(scene.cuda->memset_d8_async(small[1], 'N', 4000, scene.device.stream));
        } else {
            MUST(scene.cuda->mem_free(large));
            MUST(scene.cuda->mem_alloc(&large, BIG));
            MUST(scene.cuda->memset_d8_async(large, 'M', BIG, scene.device.stream));
        }
        device_wait(&scene.device);
        show(line, what == 'f' ? small[1] : large);
    }
    pause();
    _exit(0);
}

static struct shown take(int line)
{
    struct shown shown = {0};
    if (recv(line, &shown, sizeof shown, MSG_WAITALL) != sizeof shown) {
        printf("ipc: the owner has failed\n");
        fflush(NULL);
        _exit(1);
    }
    return shown;
}

static ddpi_cu_result open_shown(const struct shown *shown, ddpi_cu_deviceptr *ret)
{
    return scene.cuda->ipc_open_mem_handle(ret, shown->handle,
                                           DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

static char first_byte(ddpi_cu_deviceptr at)
{
    MUST(scene.cuda->memcpy_dtoh_async(scene.pinned, at, 1, scene.lanes[1]));
    MUST(scene.cuda->stream_synchronize(scene.lanes[1]));
    return (char)scene.pinned[0];
}

static pid_t start_owner(int *ret_line)
{
    int line[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        _exit(1);
    pid_t owner = fork();
    if (owner == 0) {
        close(line[0]);
        own(line[1]);
    }
    close(line[1]);
    *ret_line = line[0];
    return owner;
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

static void held(int number)
{
    enum { HELD_MS = 700, AFTER_MS = 4000 };
    struct act first = {.call = blockers[number].call}, helpers[STEPS] = {0};
    int line;
    pid_t owner = start_owner(&line);
    open_scene();
    for (unsigned i = 0; i < 4; i++)
        foreign = take(line);
    pageable = malloc(8 * MIB);
    memset(pageable, 1, 8 * MIB);
    MUST(scene.cuda->mem_alloc(&spare, 1000));
    MUST(scene.cuda->mem_alloc(&large_spare, 256 * (size_t)MIB));
    MUST(scene.cuda->mem_host_alloc(&spare_host, 4 * MIB, 0));
    if (strstr(blockers[number].name, "cuMemAlloc") != NULL) {
        MUST(scene.cuda->mem_free(spare));
        MUST(scene.cuda->mem_free(large_spare));
    }
    hold(scene.device.stream, GATE, 1);
    pthread_create(&first.thread, NULL, run_blocker, &first);
    await(&first.at, 1, 1000);
    nap_ms(100);
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
    ddpi_words_set(&scene.words, GATE, 1);
    if (!await(&first.at, 2, AFTER_MS))
        printf("; THE CALL NEVER ENDS");
    else if (first.result != 0)
        printf("; result %d", first.result);
    printf("\n");
    fflush(NULL);
    kill(owner, SIGKILL);
    _exit(0);
}

static void ipc(int unused)
{
    int line;
    struct shown shown[4], fresh;
    ddpi_cu_deviceptr at[4] = {0}, again = 0;
    (void)unused;
    pid_t owner = start_owner(&line);
    open_scene();
    for (unsigned i = 0; i < 4; i++)
        shown[i] = take(line);
    printf("ipc: small allocations at %+lld and %+lld of the first; sizes %zu, large %zu MiB\n",
           (long long)(shown[1].at - shown[0].at), (long long)(shown[2].at - shown[0].at),
           shown[0].size, shown[3].size >> 20);
    for (unsigned i = 0; i < 4; i++) {
        double began = now_ms();
        ddpi_cu_result result = open_shown(&shown[i], &at[i]);
        printf("ipc: open %s: %s in %.2f ms", i < 3 ? "a small one" : "the large one",
               text_of(result), now_ms() - began);
        if (result == DDPI_CU_SUCCESS)
            printf(", reads '%c' (%c is expected)",
                   first_byte(at[i] + (shown[i].at - shown[i].base)), "abcL"[i]);
        printf("\n");
    }
    (void)!write(line, "f", 1);
    fresh = take(line);
    printf("ipc: freed and allocated again, %s place; ",
           fresh.at == shown[1].at ? "same" : "other");
    ddpi_cu_result result = open_shown(&fresh, &again);
    printf("open while the old mapping is there: %s", text_of(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c' (N is expected)", first_byte(again));
    MUST(scene.cuda->ipc_close_mem_handle(at[1]));
    result = open_shown(&fresh, &again);
    printf("; with only that one closed: %s", text_of(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c'", first_byte(again));
    MUST(scene.cuda->ipc_close_mem_handle(at[0]));
    MUST(scene.cuda->ipc_close_mem_handle(at[2]));
    result = open_shown(&fresh, &again);
    printf("; with its neighbours closed: %s", text_of(result));
    if (result == DDPI_CU_SUCCESS)
        printf(", reads '%c'", first_byte(again));
    printf("\n");
    size_t before, after, total;
    MUST(scene.cuda->mem_get_info(&before, &total));
    (void)!write(line, "l", 1);
    fresh = take(line);
    MUST(scene.cuda->mem_get_info(&after, &total));
    printf(
        "ipc: the owner has freed %d MiB that are mapped here, and allocated as many: the device "
        "has %lld MiB less (0: freed memory is given back at once)\n",
        BIG / MIB, ((long long)before - (long long)after) / MIB);
    printf("ipc: the large one anew, %s place; open: ", fresh.at == shown[3].at ? "same" : "other");
    printf("%s", text_of(open_shown(&fresh, &again)));
    double began = now_ms();
    MUST(scene.cuda->ipc_close_mem_handle(at[3]));
    printf("; close: %.2f ms", now_ms() - began);
    printf("; open again: %s\n", text_of(open_shown(&fresh, &again)));
    kill(owner, SIGKILL);
}

/* The owner dies while kernels here read its memory. */
static void death(int unused)
{
    int line;
    struct shown shown[4];
    ddpi_cu_deviceptr at = 0;
    (void)unused;
    pid_t owner = start_owner(&line);
    open_scene();
    for (unsigned i = 0; i < 4; i++)
        shown[i] = take(line);
    MUST(open_shown(&shown[3], &at));
    double end = now_ms() + 1e6;
    for (int i = 0; now_ms() < end; i++) { /* the driver blocks where its queue is full */
        launch(scene.lanes[0], scene.b, at, BIG);
        if (i == 50) {
            kill(owner, SIGKILL);
            (void)waitpid(owner, NULL, 0);
            end = now_ms() + 200;
        }
    }
    ddpi_cu_result result = scene.cuda->stream_synchronize(scene.lanes[0]);
    printf("death: kernels that read the memory of a process that is killed end with %s",
           text_of(result));
    if (result == DDPI_CU_SUCCESS) {
        printf(", later it reads '%c' (L is expected)", first_byte(at));
        printf("; close: %s", text_of(scene.cuda->ipc_close_mem_handle(at)));
        launch(scene.lanes[0], scene.b, scene.a, MIB);
        printf("; the context after that: %s",
               text_of(scene.cuda->stream_synchronize(scene.lanes[0])));
    }
    printf("\n");
}

/* Opening memory of others while a stream is held, with an idle thread only. */
static void opening(int unused)
{
    int line;
    struct shown shown[4];
    ddpi_cu_deviceptr at = 0;
    (void)unused;
    pid_t owner = start_owner(&line);
    open_scene();
    for (unsigned i = 0; i < 4; i++)
        shown[i] = take(line);
    hold(scene.device.stream, GATE, 1);
    double began = now_ms();
    ddpi_cu_result result = open_shown(&shown[3], &at);
    printf("opening: cuIpcOpenMemHandle while a stream is held: %s in %.2f ms\n", text_of(result),
           now_ms() - began);
    ddpi_words_set(&scene.words, GATE, 1);
    kill(owner, SIGKILL);
}

static void blocking_launches(int unused)
{
    (void)unused;
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    open_scene();
    double began = now_ms();
    hold(scene.device.stream, GATE, 1);
    double held_ms = now_ms() - began;
    began = now_ms();
    launch(scene.lanes[0], scene.b, scene.a, MIB);
    printf("blocking: CUDA_LAUNCH_BLOCKING=1: the hold returns in %.2f ms, a launch in a lane in "
           "%.2f ms\n",
           held_ms, now_ms() - began);
    ddpi_words_set(&scene.words, GATE, 1);
}

/* A program that returns from main() with a stream that is held. */
static void leaving(int unused)
{
    (void)unused;
    open_scene();
    hold(scene.device.stream, GATE, 1);
    launch(scene.device.stream, scene.b, scene.a, MIB);
    printf("leaving: exit() with a held stream begins at %.1f ms", now_ms());
    fflush(NULL);
    exit(0);
}

/* ---- all of it ---- */

static const struct {
    const char *name;
    void (*run)(int argument);
    int argument, limit_s;
} probes[] = {
    {"pointers", pointers, 0, 10},
    {"costs", costs, 0, 15},
    {"queues", queues, 0, 10},
    {"queues", queues, 1, 10},
    {"queues", queues, 32, 10},
    {"copies", copies, 0, 10},
    {"copies", copies, 1, 10},
    {"copies", copies, 2, 10},
    {"blocking", blocking_launches, 0, 6},
    {"ipc", ipc, 0, 12},
    {"opening", opening, 0, 10},
    {"leaving", leaving, 0, 8},
    {"death", death, 0, 12},
    {"turns", turns, 1, 8},
    {"turns", turns, 2, 8},
    {"turns", turns, 4, 10},
    {"turns", turns, 8, 12},
};

static void run_child(const char *name, void (*run)(int), int argument, int limit_s)
{
    fflush(NULL);
    pid_t pid = fork();
    int status = -1;
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setvbuf(stdout, NULL, _IOLBF, 0);
        run(argument);
        fflush(NULL);
        _exit(0);
    }
    setpgid(pid, pid);
    for (double end = now_ms() + limit_s * 1e3; waitpid(pid, &status, WNOHANG) == 0; nap_ms(5))
        if (now_ms() > end) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            printf("%s %d: NOT DONE in %d s\n", name, argument, limit_s);
            break;
        }
    kill(-pid, SIGKILL);
    if (run == leaving)
        printf(" and has ended at %.1f ms, status %#x\n", now_ms(), (unsigned)status);
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        printf("%s %d: ended by signal %d\n", name, argument, WTERMSIG(status));
}

/* Several at a time: contexts of other processes have nothing to do with what is asked. */
static void run_all_held(void)
{
    enum { AT_A_TIME = 4 };
    for (int runner = 0; runner < AT_A_TIME; runner++)
        if (fork() == 0) {
            setvbuf(stdout, NULL, _IOLBF, 0);
            for (int i = runner; i < BLOCKERS; i += AT_A_TIME)
                run_child("held", held, i, 12);
            fflush(NULL);
            _exit(0);
        }
    while (wait(NULL) > 0)
        continue;
}

static bool wanted(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    double began = now_ms();
    if (wanted(argc, argv, "held"))
        run_all_held();
    for (unsigned i = 0; i < sizeof probes / sizeof *probes; i++)
        if (wanted(argc, argv, probes[i].name))
            run_child(probes[i].name, probes[i].run, probes[i].argument, probes[i].limit_s);
    printf("all probes: %.1f s\n", (now_ms() - began) / 1e3);
    return 0;
}
