/*
 * probe_scene.c - a process with a context, and one whose memory it may open.
 */
#include "probe.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

double probe_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void probe_nap_ms(double ms)
{
    const struct timespec nap = {.tv_sec = (time_t)(ms / 1000),
                                 .tv_nsec = (long)(ms * 1e6) % 1000000000L};
    nanosleep(&nap, NULL);
}

struct probe_scene probe_scene;

void probe_launch(ddpi_cu_stream stream, ddpi_cu_deviceptr out, ddpi_cu_deviceptr in, size_t bytes)
{
    struct ddp_error err = {0};
    const struct ddpi_reduction work = {.in = {(const void *)(uintptr_t)in},
                                        .out = {(void *)(uintptr_t)out},
                                        .nin = 1,
                                        .nout = 1,
                                        .count = bytes / sizeof(int32_t),
                                        .dtype = DDP_INT32,
                                        .divisor = 1};
    if (ddpi_kernels_launch(&probe_scene.kernels, &work, stream, &err) != DDP_OK) {
        printf("launch: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

void probe_open(void)
{
    struct ddp_error err = {0};
    int least = 0, greatest = 0;
    void *pinned;
    device_open(&probe_scene.device);
    probe_scene.cuda = &probe_scene.device.cuda;
    ddpi_kernels_init(&probe_scene.kernels, probe_scene.cuda);
    if (ddpi_kernels_load(&probe_scene.kernels, &err) != DDP_OK ||
        ddpi_words_init(&probe_scene.words, probe_scene.cuda, WORDS, &err) != DDP_OK) {
        printf("%s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
    MUST(probe_scene.cuda->ctx_get_stream_priority_range(&least, &greatest));
    for (unsigned i = 0; i < 2; i++)
        MUST(probe_scene.cuda->stream_create_with_priority(&probe_scene.lanes[i],
                                                           DDPI_CU_STREAM_NON_BLOCKING, greatest));
    probe_scene.a = device_alloc(&probe_scene.device, BIG);
    probe_scene.b = device_alloc(&probe_scene.device, BIG);
    MUST(probe_scene.cuda->mem_host_alloc(&pinned, 8 * MIB, 0));
    probe_scene.pinned = pinned;
    probe_launch(probe_scene.device.stream, probe_scene.b, probe_scene.a, 4096);
    probe_launch(probe_scene.lanes[0], probe_scene.b, probe_scene.a, 4096);
    device_wait(&probe_scene.device);
    MUST(probe_scene.cuda->stream_synchronize(probe_scene.lanes[0]));
}

void probe_hold(ddpi_cu_stream stream, uint32_t word, uint32_t value)
{
    struct ddp_error err = {0};
    if (ddpi_words_hold(&probe_scene.words, word, value, stream, &err) != DDP_OK) {
        printf("hold: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

void probe_stamp(ddpi_cu_stream stream, uint32_t word, uint32_t value)
{
    struct ddp_error err = {0};
    if (ddpi_words_stamp(&probe_scene.words, word, value, stream, &err) != DDP_OK) {
        printf("stamp: %s\n", err.msg);
        fflush(NULL);
        _exit(1);
    }
}

/* ---- memory of another process ---- */

static void show(int line, ddpi_cu_deviceptr at)
{
    struct probe_shown shown = {.at = at};
    MUST(probe_scene.cuda->mem_get_address_range(&shown.base, &shown.size, at));
    MUST(probe_scene.cuda->ipc_get_mem_handle(&shown.handle, shown.base));
    (void)!write(line, &shown, sizeof shown);
}

/* Says what it has and does what it is told. */
_Noreturn static void own(int line)
{
    ddpi_cu_deviceptr small[3], large;
    char what;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    probe_open();
    for (unsigned i = 0; i < 3; i++) {
        MUST(probe_scene.cuda->mem_alloc(&small[i], 4000));
        MUST(probe_scene.cuda->memset_d8_async(small[i], (unsigned char)('a' + i), 4000,
                                               probe_scene.device.stream));
    }
    MUST(probe_scene.cuda->mem_alloc(&large, BIG));
    MUST(probe_scene.cuda->memset_d8_async(large, 'L', BIG, probe_scene.device.stream));
    device_wait(&probe_scene.device);
    for (unsigned i = 0; i < 3; i++)
        show(line, small[i]);
    show(line, large);
    while (read(line, &what, 1) == 1) {
        if (what == 'f') { /* free and allocate in the same place, with other content */
            MUST(probe_scene.cuda->mem_free(small[1]));
            MUST(probe_scene.cuda->mem_alloc(&small[1], 4000));
            MUST(probe_scene.cuda->memset_d8_async(small[1], 'N', 4000, probe_scene.device.stream));
        } else {
            MUST(probe_scene.cuda->mem_free(large));
            MUST(probe_scene.cuda->mem_alloc(&large, BIG));
            MUST(probe_scene.cuda->memset_d8_async(large, 'M', BIG, probe_scene.device.stream));
        }
        device_wait(&probe_scene.device);
        show(line, what == 'f' ? small[1] : large);
    }
    pause();
    _exit(0);
}

struct probe_shown probe_take(int line)
{
    struct probe_shown shown = {0};
    if (recv(line, &shown, sizeof shown, MSG_WAITALL) != sizeof shown) {
        printf("ipc: the owner has failed\n");
        fflush(NULL);
        _exit(1);
    }
    return shown;
}

ddpi_cu_result probe_open_shown(const struct probe_shown *shown, ddpi_cu_deviceptr *ret)
{
    return probe_scene.cuda->ipc_open_mem_handle(ret, shown->handle,
                                                 DDPI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

pid_t probe_start_owner(int *ret_line, struct probe_shown shown[PROBE_SHOWN])
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
    probe_open();
    for (unsigned i = 0; i < PROBE_SHOWN; i++)
        shown[i] = probe_take(line[0]);
    return owner;
}
