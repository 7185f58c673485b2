/*
 * gpu_fault.h - what the driver reports of a GPU that is in trouble, in words: Xids and errors of
 * its memory, whose fault they are, and what to do. Pure.
 *
 * An Xid is the number that the driver of NVIDIA gives to an error and writes to the kernel's log.
 * Not every one explains the death of a worker: some only say that a program did something wrong,
 * and some follow from another.
 */
#ifndef DAEMON_GPU_FAULT_H
#define DAEMON_GPU_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_fault_kind { GPU_FAULT_XID, GPU_FAULT_ECC_DOUBLE, GPU_FAULT_ECC_SINGLE };

enum gpu_fault_blame {
    GPU_FAULT_OF_PROGRAM,  /* it was the program's own doing, as far as the driver can say */
    GPU_FAULT_OF_HARDWARE, /* the GPU, or what it is connected to */
    GPU_FAULT_OF_DRIVER,
    GPU_FAULT_AFTERMATH, /* of something else: the end of a program, another fault */
    GPU_FAULT_NOTICE,    /* nothing that ends a program */
};

/* One that was seen; the same one again is counted. */
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

/* What is known of it; there is an answer for those that are not, too. */
struct gpu_fault_meaning gpu_fault_meaning(const struct gpu_fault *fault);

/* "Xid 79 (the GPU has fallen off the bus)", with "3 times" behind it if that is so. */
void gpu_fault_name(const struct gpu_fault *fault, char *text, size_t size);

/* Whether it can be why a worker ended. */
bool gpu_fault_explains(const struct gpu_fault *fault);

/* Whose it is: "the hardware or the machine, not the program". */
const char *gpu_fault_blames(enum gpu_fault_blame blame);

#endif
