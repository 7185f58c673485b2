/*
 * probe.h - what the probes of the driver have in common: a process with a context, as a rank has
 * one, and another process whose memory it may open. What the driver refuses ends the process with
 * a line.
 */
#ifndef TESTS_GPU_PROBE_H
#define TESTS_GPU_PROBE_H

#include "device.h"
#include "kernel_launch.h"
#include "stream_words.h"

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

enum { MIB = 1 << 20, WORDS = 256, BIG = 64 * MIB, MANY_STREAMS = 40 };
enum { GATE, SEEN, STAMPS = 64 }; /* words */

struct probe_scene {
    struct device device; /* its stream is the user's */
    const struct ddpi_cuda *cuda;
    struct ddpi_kernels kernels;
    struct ddpi_words words;
    ddpi_cu_stream lanes[2]; /* of the highest priority, as the library's */
    ddpi_cu_deviceptr a, b;  /* BIG bytes each */
    uint8_t *pinned;         /* 8 MIB */
};

extern struct probe_scene probe_scene;

#define MUST(call)                                                        \
    do {                                                                  \
        ddpi_cu_result result_ = (call);                                  \
        if (result_ != DDPI_CU_SUCCESS) {                                 \
            printf("%s: %d; the probe ends here\n", #call, (int)result_); \
            fflush(NULL);                                                 \
            _exit(1);                                                     \
        }                                                                 \
    } while (0)

double probe_now_ms(void);
void probe_nap_ms(double ms);

void probe_open(void);
void probe_launch(ddpi_cu_stream stream, ddpi_cu_deviceptr out, ddpi_cu_deviceptr in, size_t bytes);
void probe_hold(ddpi_cu_stream stream, uint32_t word, uint32_t value);
void probe_stamp(ddpi_cu_stream stream, uint32_t word, uint32_t value);

/* Memory of another process: three small pieces, of 'a', 'b' and 'c', and BIG bytes of 'L'. It
 * allocates a small one anew, of 'N', when it is sent an 'f', and the large one, of 'M', for
 * anything else. */
enum { PROBE_SHOWN = 4 };

struct probe_shown {
    struct ddpi_cu_ipc_handle handle;
    ddpi_cu_deviceptr at, base;
    size_t size;
};

/* Start that process, open this scene, and take what is shown. Before any call of the driver. */
pid_t probe_start_owner(int *ret_line, struct probe_shown shown[PROBE_SHOWN]);
struct probe_shown probe_take(int line);
ddpi_cu_result probe_open_shown(const struct probe_shown *shown, ddpi_cu_deviceptr *ret);

/* ---- probe_held.c, probe_memory.c ---- */

/* One thread in the driver behind a held stream, and others that need the driver: call @number. */
extern const int probe_held_calls;
void probe_held(int number);

void probe_pointers(int unused);
void probe_ipc(int unused);
void probe_death(int unused);
void probe_opening(int unused);

#endif
