/*
 * device_state.h - the state of a communicator on a GPU, and the ways of an operation there.
 *
 * It belongs to the communicator's thread, and to a caller that prepares for an operation while no
 * thread can execute one; what is under a lock belongs to both.
 */
#ifndef DDPI_DEVICE_STATE_H
#define DDPI_DEVICE_STATE_H

#include "kernel_launch.h"
#include "run.h"
#include "stream_words.h"

#include <pthread.h>

enum {
    DDPI_GATED_MAX = 256, /* tickets (stream_gate.h) in the streams at a time */
    DDPI_HALVES = 2,      /* of the pinned memory of staged operations */

    DDPI_WORD_GATE = DDPI_GATED_MAX,
    DDPI_WORD_HALVES, /* how many slices were staged when the last one left each half */
    DDPI_WORD_ALONE = DDPI_WORD_HALVES + DDPI_HALVES, /* inf or NaN in a world of one, by ticket */
    DDPI_WORDS = DDPI_WORD_ALONE + DDPI_GATED_MAX,
};

/* The stages of an operation; see ddp_comm_stats. */
enum ddpi_stage {
    DDPI_STAGE_STREAM,
    DDPI_STAGE_EXCHANGE,
    DDPI_STAGE_WORK,
    DDPI_STAGE_COMPLETION,
    DDPI_STAGES
};

struct ddpi_progress {
    uint64_t at_us; /* when the current stage began */
    uint64_t spent_us[DDPI_STAGES];
};

/* The state of a run (run.h) of this type. */
struct ddpi_gated {
    uint32_t first, last; /* tickets */
    uint32_t first_turn;  /* of its first slice, if it is staged */
    uint64_t enqueued_us;
};
DDPI_RUN_STATE_FITS(struct ddpi_gated);

/* Pinned memory for staged operations: what goes out, then what comes in; DDPI_HALVES of each. */
struct ddpi_staging {
    uint8_t *host;
    ddpi_cu_deviceptr device;
    uint32_t turn; /* slices ever staged */
};

struct ddpi_device {
    struct ddpi_memory memory;
    struct ddp_comm *comm;
    struct ddpi_cuda cuda;
    ddpi_cu_context context;
    bool retained; /* the primary one, by this communicator */
    int ordinal;
    struct ddpi_words words;
    struct ddpi_kernels kernels;
    ddpi_cu_stream probe;        /* empty: the driver says of it whether the GPU has failed */
    uint8_t *arrived;            /* a byte of each rank, where all meet */
    struct ddpi_staging staging; /* of those who enqueue */
    struct ddpi_progress progress;

    bool tuned;                  /* the pauses of the communicator's thread are short */
    pthread_mutex_t submit_lock; /* held by a thread that enqueues, and before that prepares */
    bool equipped;               /* all of the above was made */
    ddp_status unfit;            /* DDP_OK: and is complete */
    bool met;                    /* so have all ranks that are threads */
    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t changed;
    uint32_t submitted;             /* the last ticket that was given out */
    uint32_t completed;             /* and whose gate is open */
    bool enqueuing;                 /* a thread is enqueuing what belongs to a run in the queue */
    atomic_int refused;             /* not DDP_OK: the driver has refused to, for this reason */
    struct ddp_error refusal;       /* set once */
    uint64_t spent_us[DDPI_STAGES]; /* by all completed operations */
};

#endif
