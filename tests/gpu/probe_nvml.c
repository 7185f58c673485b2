/*
 * probe_nvml.c - what daemon/gpu takes for granted of NVML: that it lists the GPU, sees a process
 * on it with its memory, tells of a kernel's fault, and when the memory is free again. Ends with 77
 * where there is no NVML.
 */
#include "device.h"
#include "gpu_fault.h"
#include "gpu_look.h"
#include "kernel_launch.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

/* A worker: memory, then a kernel that reads where nothing is. */
_Noreturn static void work(int line)
{
    struct device device;
    struct ddpi_kernels kernels;
    char byte;
    device_open(&device);
    ddpi_kernels_init(&kernels, &device.cuda);
    ddpi_cu_deviceptr memory = device_alloc(&device, (size_t)1 << 30);
    const struct ddpi_reduction fault = {.in = {(const void *)16},
                                         .out = {(void *)(uintptr_t)memory},
                                         .nin = 1,
                                         .nout = 1,
                                         .count = 1,
                                         .dtype = DDP_INT32,
                                         .divisor = 1};
    if (ddpi_kernels_load(&kernels, NULL) != DDP_OK)
        _exit(1);
    (void)!write(line, "r", 1);
    (void)!read(line, &byte, 1);
    if (ddpi_kernels_launch(&kernels, &fault, device.stream, NULL) == DDP_OK)
        printf("nvml: the fault ends with %d (700 is expected)\n",
               (int)device.cuda.stream_synchronize(device.stream));
    fflush(NULL);
    pause();
    _exit(0);
}

int main(void)
{
    static struct gpu_look look;
    struct ddp_error err = {0};
    int line[2];
    char byte, label[GPU_LABEL], size[GPU_SIZE_TEXT], text[GPU_HOLDERS_TEXT];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        return 1;
    pid_t worker = fork();
    if (worker == 0)
        work(line[1]);
    if (gpu_look_open(&look, getenv("CUDA_VISIBLE_DEVICES"), &err) != DDP_OK) {
        printf("nvml: %s\n", err.msg);
        kill(worker, SIGKILL);
        return SKIPPED;
    }
    for (uint32_t i = 0; i < look.count; i++) {
        gpu_label(&look.gpus[i], label);
        printf("nvml: %s, split %d, %u instances, watched %d, unlisted %llu MiB\n", label,
               look.gpus[i].split, look.gpus[i].instances, look.watched[i],
               (unsigned long long)(look.unlisted[i] >> 20));
    }
    nvml_library_event_set set;
    unsigned long long served = 0;
    int types = look.nvml.get_event_types(look.devices[0], &served);
    int made = look.nvml.create_event_set(&set);
    int registered = look.nvml.register_events(look.devices[0], served & 0xb, set);
    printf("nvml: events: %d, served %#llx, set %d, registered %d (0 are expected)\n", types,
           served, made, registered);
    (void)!read(line[0], &byte, 1);
    gpu_look_take(&look, &worker, 1);
    for (uint32_t i = 0; i < look.uses_count; i++) {
        gpu_size(look.uses[i].bytes, size);
        printf("nvml: worker %u, pid %d (%d is expected), uses %s of GPU %u\n",
               look.uses[i].local_rank, (int)look.uses[i].pid, (int)worker,
               look.uses[i].bytes == NVML_LIBRARY_UNKNOWN ? "unknown" : size, look.uses[i].gpu);
    }
    if (look.uses_count == 0)
        printf("nvml: NO PROCESS IS SEEN on the GPU\n");
    (void)!write(line[0], "f", 1);
    struct nvml_library_event event = {0};
    int seen = look.nvml.wait_event(set, &event, 3000);
    const struct gpu_fault fault = {.kind = GPU_FAULT_XID, .xid = (uint32_t)event.data, .times = 1};
    gpu_fault_name(&fault, text, sizeof text);
    printf("nvml: event: %d, type %#llx, %s (Xid 31 is expected)\n", seen, event.type, text);
    printf("nvml: free while the worker lives: %d (0)\n", gpu_look_is_free(&look, &worker, 1));
    kill(worker, SIGKILL);
    waitpid(worker, NULL, 0);
    int waited = 0;
    while (!gpu_look_is_free(&look, &worker, 1) && waited < 5000) {
        poll(NULL, 0, 20);
        waited += 20;
    }
    gpu_look_holders(&look, &worker, 1, text);
    printf("nvml: free %d ms after its end; %s\n", waited,
           text[0] != '\0' ? text : "nobody holds any");
    return 0;
}
