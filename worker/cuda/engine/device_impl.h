/*
 * device_impl.h - the device engine inside: what the files of this folder share.
 *
 * Everything but the queue belongs to the communicator's thread, and to the caller during the
 * first call, before that thread exists.
 */
#ifndef DDPI_DEVICE_IMPL_H
#define DDPI_DEVICE_IMPL_H

#include "device.h"
#include "kernel_launch.h"
#include "shared_buffer.h"
#include "stream_words.h"

#include <pthread.h>

/* Work of one kind goes into a lane: a stream of our own whose progress is a word. Copies from and
 * to the host and reductions have a lane each, so that they overlap. */
enum ddpi_lane_kind { DDPI_LANE_UPLOAD, DDPI_LANE_REDUCE, DDPI_LANE_DOWNLOAD, DDPI_LANES };

struct ddpi_lane {
    ddpi_cu_stream stream;
    uint32_t word;
    uint32_t launched; /* units, ever; the word counts those that are complete */
};

enum {
    DDPI_QUEUE_MAX = 256, /* operations enqueued at a time */
    DDPI_WORD_GATE = DDPI_QUEUE_MAX,
    DDPI_WORD_LANES,
    DDPI_WORDS = DDPI_WORD_LANES + DDPI_LANES,

    DDPI_SLOTS = 4,                    /* units of one edge under way through the host */
    DDPI_STAGED_PIECE = 1024 * 1024,   /* bytes of a unit when a rank of the ring stages */
    DDPI_READ_PIECE = 8 * 1024 * 1024, /* and when none does */
    DDPI_SLOTS_SIZE = DDPI_SLOTS * DDPI_STAGED_PIECE,
    DDPI_PARTIALS_SIZE = 8 * 1024 * 1024, /* for layouts that need scratch */

    /* Scratch: where its parts begin. */
    DDPI_PATTERN_SIZE = 256,
    DDPI_SCRATCH_SLOTS = 4096,
    DDPI_SCRATCH_PARTIALS = DDPI_SCRATCH_SLOTS + DDPI_SLOTS_SIZE,
    DDPI_SCRATCH_ALL = DDPI_SCRATCH_PARTIALS + DDPI_PARTIALS_SIZE,
};

/* What a rank offers for an operation, and what it keeps between two of them. */
enum { DDPI_OFFER_SEND, DDPI_OFFER_RECV, DDPI_OFFER_SCRATCH, DDPI_OFFERS };

/* What this rank knows of its way to the messages of another one. */
enum ddpi_peer_way { DDPI_PEER_UNKNOWN, DDPI_PEER_READ, DDPI_PEER_NOT_READ };

struct ddpi_peer {
    enum ddpi_peer_way memory; /* whether it can be read */
    enum ddpi_peer_way told;   /* what DDP_DEBUG was told last */
};

/* Who reads whose memory, as became clear when the ranks met: the same on all of them. */
struct ddpi_ways {
    bool one_gpu; /* all ranks use one GPU, and rank 0 can open the memory of all */
    bool *reads;  /* by rank: the memory of the one before */
};

/* What an operation goes through; see ddp_comm_stats. */
enum ddpi_stage {
    DDPI_STAGE_STREAM,
    DDPI_STAGE_OFFERS,
    DDPI_STAGE_WORK,
    DDPI_STAGE_NEWS,
    DDPI_STAGES
};

struct ddpi_progress {
    uint64_t at_us; /* when the stage at hand began */
    uint64_t spent_us[DDPI_STAGES];
};

/* An operation in the queue. */
struct ddpi_errand {
    struct ddpi_job job;
    uint32_t ticket;
    uint64_t enqueued_us;
    uint64_t send_allocation; /* of its buffers; see ddpi_pointer */
    uint64_t recv_allocation;
};

struct ddpi_device {
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
    ddpi_cu_deviceptr scratch; /* a pattern, slots for what is to be reduced, partial results */
    struct ddpi_offer own_scratch;
    struct ddpi_offer *scratches; /* by rank: those that this one may read */
    struct ddpi_peer *peers;      /* by rank */
    uint8_t *slots_in;            /* pinned: units on their way in */
    uint8_t *slots_out;           /* pinned: units on their way out */
    struct ddpi_handed *handed;   /* see pass_descriptors.h */
    uint32_t handed_count;
    struct ddpi_offer *offers; /* two of each rank, for the operation at hand */
    uint8_t *opens;            /* by rank: it can open what it is to read for that */
    struct ddpi_progress progress;

    bool equipped; /* all of the above is there, or its failure is the communicator's */
    bool met;      /* and so is what all ranks found out together */
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool ending;
    uint32_t submitted;
    uint32_t completed;
    bool failed;                              /* why is in the communicator */
    uint64_t spent_us[DDPI_STAGES];           /* on all that is completed */
    struct ddpi_errand queue[DDPI_QUEUE_MAX]; /* by ticket */
};

/* ---- device.c ---- */

/* The table of the driver, which is needed to ask what memory is; the rest comes with the first
 * operation. */
ddp_status ddpi_device_create(struct ddp_comm *comm);

/* Whether @job is between two ranks only. */
bool ddpi_is_message(const struct ddpi_job *job);

/* A capture in another thread of the program forbids calls of the driver to all threads but those
 * that say that they know what they do. Returns what the mode of this thread was; what a caller's
 * thread does in between gives that back afterwards. */
unsigned ddpi_device_capture_mode(const struct ddpi_device *device, unsigned mode);

/* Enqueue @errand, after having got ready for it; in the communicator's context. */
ddp_status ddpi_device_submit(struct ddpi_device *device, struct ddpi_errand *errand,
                              ddpi_cu_stream stream, struct ddp_error *err);

/* From the arrival of its stream to its end. Anything but DDP_OK has made the communicator fail. */
ddp_status ddpi_device_carry_out(struct ddpi_device *device, struct ddpi_errand *errand);

/* ---- op_queue.c ---- */

ddp_status ddpi_queue_start(struct ddpi_device *device, struct ddp_error *err);

/* With the context current. Not under the lock: the driver blocks while the stream is full, until
 * the thread opens the gate, for which it takes the lock. */
ddp_status ddpi_queue_put(struct ddpi_device *device, struct ddpi_errand *errand,
                          ddpi_cu_stream stream, struct ddp_error *err);

/* ---- device.c, for the paths ---- */

/* The operation that waits, and when it gives up. */
struct ddpi_wait ddpi_device_wait(const struct ddpi_job *job);

/* All ranks learn the record of @size bytes that each has put at its place in @records. */
ddp_status ddpi_device_gather(struct ddpi_device *device, const struct ddpi_job *job, void *records,
                              size_t size);

/* Wait until the GPU has brought the word to @value, and meanwhile hear what peers have to say. */
ddp_status ddpi_device_await(struct ddpi_device *device, const struct ddpi_wait *wait,
                             uint32_t word, uint32_t value);

/* How long one has been waiting for the GPU, which cannot wake a thread: it is looked at first
 * without pause, then in ever longer ones. Starts zeroed, and again when something has moved. */
struct ddpi_patience {
    uint32_t looks;
    uint32_t nap_us;
    uint64_t since_ms; /* of the first nap; 0: none yet */
    bool for_arrival;  /* of the caller's stream; or for what was enqueued in lanes */
};

/* Before the next look; meanwhile hear what peers have to say, and wake when @needs are met. */
ddp_status ddpi_device_pause(struct ddpi_device *device, struct ddpi_patience *patience,
                             const struct ddpi_wait *wait, const struct ddpi_need *needs,
                             unsigned count);

/* What was enqueued last in a lane is one more unit. */
ddp_status ddpi_lane_stamp(struct ddpi_device *device, enum ddpi_lane_kind kind,
                           struct ddp_error *err);

/* The operation at hand has come to the end of this stage. */
void ddpi_device_stage(struct ddpi_device *device, enum ddpi_stage stage);

/* Make the communicator fail with what @err says. */
ddp_status ddpi_device_fail(struct ddpi_device *device, ddp_status status,
                            const struct ddp_error *err);

/* ---- probe_peers.c ---- */

/* Offer scratch, with a pattern in it by which others see that it is this that they read. */
ddp_status ddpi_device_pattern(struct ddpi_device *device, struct ddp_error *err);

/* Whether this rank can read the scratch memory that @offer is; tells DDP_DEBUG why not. */
bool ddpi_device_reads(struct ddpi_device *device, const struct ddpi_offer *offer);

/* Find out with all ranks who can reach whose memory how, and tell DDP_DEBUG. */
ddp_status ddpi_device_meet(struct ddpi_device *device, const struct ddpi_job *job);

/* ---- exchange_offers.c ---- */

/* All ranks learn all offers for @errand, and whether one kernel of rank 0 can do it; if not, whose
 * edges of the ring read. */
ddp_status ddpi_device_offer(struct ddpi_device *device, const struct ddpi_errand *errand,
                             bool *ret_direct);

/* ---- one_gpu.c, ring_run.c, message_run.c, and pipeline.c for the last two ---- */

/* One kernel of rank 0 for all ranks; through scratch memory where that cannot open all buffers.
 * Offers are there. */
ddp_status ddpi_direct_run(struct ddpi_device *device, struct ddpi_job *job);

/* Where a rank's units come from and go to. */
struct ddpi_ends {
    struct ddpi_edge *prev, *next;
    bool reads_prev, read_by_next;   /* the memory of who is before; ours, by who is next */
    const struct ddpi_offer *theirs; /* DDPI_OFFERS of the rank before, if this one reads it */
    size_t piece;                    /* bytes of a unit; the same on all ranks */
};

/* A job round job->ring, neighbour to neighbour. */
ddp_status ddpi_pipeline_run(struct ddpi_device *device, struct ddpi_job *job,
                             const struct ddpi_ends *ends);

/* Whether @reader gets at what the rank before it has offered. All ranks come to the same answer.
 */
bool ddpi_ring_edge_reads(const struct ddpi_device *device, uint32_t reader);

/* Round the ring of all ranks. Offers are there. */
ddp_status ddpi_ring_run(struct ddpi_device *device, struct ddpi_job *job);

/* ddp_send() and ddp_recv(). */
ddp_status ddpi_device_message(struct ddpi_device *device, struct ddpi_errand *errand);

#endif
