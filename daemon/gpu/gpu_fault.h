/*
 * gpu_fault.h - GPU errors that the driver reports, in words: Xids and ECC errors, their cause, and
 * what to do. Pure.
 *
 * An Xid is the number that NVIDIA's driver gives to an error and writes to the kernel's log. Some
 * report an error of a program, and some follow from another error, so not every Xid explains the
 * death of a worker.
 */
#ifndef DAEMON_GPU_FAULT_H
#define DAEMON_GPU_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_fault_kind { GPU_FAULT_XID, GPU_FAULT_ECC_DOUBLE, GPU_FAULT_ECC_SINGLE };

enum gpu_fault_blame {
    GPU_FAULT_OF_PROGRAM,  /* caused by the program, as far as the driver knows */
    GPU_FAULT_OF_HARDWARE, /* caused by the GPU or its links */
    GPU_FAULT_OF_DRIVER,
    GPU_FAULT_AFTERMATH, /* follows from something else: the end of a program, another fault */
    GPU_FAULT_NOTICE,    /* ends no program */
};

/* A fault, with the number of times it was seen. */
struct gpu_fault {
    enum gpu_fault_kind kind;
    uint32_t xid;
    uint32_t gpu; /* place in the list of GPUs */
    uint32_t times;
    uint64_t first_us;
    uint64_t last_us;
};

struct gpu_fault_meaning {
    enum gpu_fault_blame blame;
    const char *what;
    const char *advice;
};

/* Its meaning; an unknown fault has one too. */
struct gpu_fault_meaning gpu_fault_meaning(const struct gpu_fault *fault);

/* "Xid 79 (the GPU has fallen off the bus)", followed by "3 times" if it was seen again. */
void gpu_fault_name(const struct gpu_fault *fault, char *text, size_t size);

/* Whether it can explain the end of a worker. */
bool gpu_fault_explains(const struct gpu_fault *fault);

/* "the hardware's fault, not the program's". */
const char *gpu_fault_blames(enum gpu_fault_blame blame);

#endif
