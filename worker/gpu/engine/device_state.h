/*
 * device_state.h - the state of a communicator on a GPU, and the ways of an operation there.
 *
 * It belongs to the communicator's thread, and to a caller that prepares for an operation while no
 * thread can execute one; what is under a lock belongs to both.
 */
#ifndef DDPI_DEVICE_STATE_H
#define DDPI_DEVICE_STATE_H

#include "gate_watch.h"
#include "kernel_launch.h"
#include "run.h"
#include "shared_buffer.h"
#include "stream_words.h"

#include <pthread.h>

/* Work of one kind goes into a lane: a stream of the library whose progress is a word. Copies from
 * and to the host and reductions have a lane each, so that they overlap. */
enum ddpi_lane_kind { DDPI_LANE_UPLOAD, DDPI_LANE_REDUCE, DDPI_LANE_DOWNLOAD, DDPI_LANES };

struct ddpi_lane {
    ddpi_cu_stream stream;
    uint32_t word;
    uint32_t launched; /* units ever enqueued; the word counts those that are complete */
};

enum {
    DDPI_GATED_MAX = 256, /* tickets (stream_gate.h) in the streams at a time */
    DDPI_HALVES = 2,      /* of the pinned memory of staged operations */

    DDPI_WORD_GATE = DDPI_GATED_MAX,
    DDPI_WORD_HALVES, /* how many slices were staged when the last one left each half */
    DDPI_WORD_LANES = DDPI_WORD_HALVES + DDPI_HALVES,
    DDPI_WORD_NON_FINITE = DDPI_WORD_LANES + DDPI_LANES, /* set by kernels that check results */
    DDPI_WORD_ALONE,                                     /* the same in a world of one, by ticket */
    DDPI_WORDS = DDPI_WORD_ALONE + DDPI_GATED_MAX,

    DDPI_SLOTS = 4,                    /* units of one edge in transit through the host */
    DDPI_STAGED_PIECE = 1024 * 1024,   /* bytes of a unit if a rank of the ring stages */
    DDPI_READ_PIECE = 8 * 1024 * 1024, /* and if none does */
    DDPI_SLOTS_SIZE = DDPI_SLOTS * DDPI_STAGED_PIECE,
    DDPI_PARTIALS_SIZE = 8 * 1024 * 1024, /* for layouts that need scratch */

    /* Offsets of the parts of scratch memory. */
    DDPI_PATTERN_SIZE = 256,
    DDPI_SCRATCH_SLOTS = 4096,
    DDPI_SCRATCH_PARTIALS = DDPI_SCRATCH_SLOTS + DDPI_SLOTS_SIZE,
    DDPI_SCRATCH_ALL = DDPI_SCRATCH_PARTIALS + DDPI_PARTIALS_SIZE,
};

/* The memory that a rank offers to readers; scratch stays the same for all operations. */
enum { DDPI_OFFER_SEND, DDPI_OFFER_RECV, DDPI_OFFER_SCRATCH, DDPI_OFFERS };

/* Which ranks read the memory of which; the same on all ranks. */
struct ddpi_ways {
    bool shared;    /* two ranks use one GPU, so all collectives are staged */
    uint8_t *reads; /* by rank: it reads the memory of the previous rank */
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
    int ordinal;
    struct ddpi_words words;
    struct ddpi_lane lanes[DDPI_LANES];
    struct ddpi_kernels kernels;
    struct ddpi_shares shares;
    struct ddpi_ways ways;
    char machine[DDPI_MACHINE_TEXT];
    ddpi_cu_deviceptr scratch; /* pattern, slots for units to reduce, partial results */
    struct ddpi_offer own_scratch;
    struct ddpi_offer previous_scratch; /* of the rank before, if this one reads its memory */
    uint8_t *slots_in;                  /* pinned: units on their way in */
    uint8_t *slots_out;                 /* pinned: units on their way out */
    struct ddpi_handed *handed;         /* see pass_descriptors.h */
    uint32_t handed_count;
    struct ddpi_staging staging; /* of those who enqueue */
    struct ddpi_offer *offers;   /* two of each rank, for the current operation */
    uint8_t *opens;              /* by rank: it can open what it has to read for that */
    struct ddpi_progress progress;
    struct ddpi_gate_watch watch;

    bool tuned, permitted;       /* the communicator's thread is prepared for this work */
    pthread_mutex_t submit_lock; /* held by a thread that enqueues, and before that prepares */
    bool equipped;               /* all of the above was made */
    ddp_status unfit;            /* DDP_OK: and is complete */
    bool met;                    /* the ranks have probed each other */
    pthread_mutex_t lock;        /* of what follows */
    pthread_cond_t changed;
    uint32_t submitted;             /* the last ticket that was given out */
    uint32_t completed;             /* and whose gate is open */
    bool enqueuing;                 /* a thread is enqueuing what belongs to a run in the queue */
    atomic_int refused;             /* not DDP_OK: the driver has refused to, for this reason */
    struct ddp_error refusal;       /* set once */
    uint64_t spent_us[DDPI_STAGES]; /* by all completed operations */
};

/* ---- probe_peers.c ---- */

/* Offer scratch memory, with a pattern by which readers recognize it. */
ddp_status ddpi_device_pattern(struct ddpi_device *device, struct ddp_error *err);

/* Find out together with all ranks which can read the memory of which; prints it with DDP_DEBUG. */
ddp_status ddpi_device_meet(struct ddpi_device *device, const struct ddpi_task *task);

/* ---- exchange_offers.c ---- */

/* Exchange the offers of all ranks for @run: all know which edges of the ring read. */
ddp_status ddpi_device_offer(struct ddpi_device *device, const struct ddpi_run *run);

/* ---- ring_run.c and pipeline.c ---- */

/* Where the units of a rank come from and go to. */
struct ddpi_ends {
    struct ddpi_edge *prev, *next;
    bool reads_prev,
        read_by_next; /* this rank reads its predecessor's memory; its successor reads its own */
    const struct ddpi_offer *theirs; /* DDPI_OFFERS of the previous rank, if this one reads them */
    size_t piece;                    /* bytes of a unit; the same on all ranks */
};

/* A task round task->ring, from neighbour to neighbour. */
ddp_status ddpi_pipeline_run(struct ddpi_device *device, struct ddpi_task *task,
                             const struct ddpi_ends *ends);

/* Whether @reader can read what the previous rank has offered. All ranks get the same answer. */
bool ddpi_ring_edge_reads(const struct ddpi_device *device, uint32_t reader);

/* Round the ring of all ranks. Offers have been exchanged. */
ddp_status ddpi_ring_run(struct ddpi_device *device, struct ddpi_task *task);

#endif
