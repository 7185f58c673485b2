/*
 * reducer.h - the state of a reducer, and what its files do for each other.
 *
 * Owns the copies of parameters, the plan, the buckets, and scratch memory for gradients that a
 * step does not use. Knows no transport: everything goes through <ddprun/comm.h>.
 */
#ifndef DDPI_REDUCER_H
#define DDPI_REDUCER_H

#include "bucket_pass.h"
#include "gradient_memory.h"

#include <ddprun/ddp_reducer.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum { DDPI_REDUCER_ROLES = 2 }; /* bytes that a rank tells of itself at the begin of a step */

struct ddpi_parameter {
    char *name;
    void *data;
    void *gradient;
    size_t count, rows;
    ddp_dtype dtype;
    uint32_t slot;     /* its place in the pieces of the buckets */
    uint32_t marks;    /* in this step */
    uint32_t expected; /* marks of each step of a static graph, after the first; 0: not used */
    bool used;         /* marked since the last synchronised step */
    bool parked;       /* this step reduces zeros in its place */
    void *scratch; /* as large as the gradient, in the same memory; NULL until a step does not use
                      it */
};

struct ddpi_bucket {
    struct ddp_bucket shown;       /* to a hook; gradients point into the pieces */
    const struct ddp_buffer *runs; /* the gradients, neighbours in memory as one buffer */
    size_t nruns;
    struct ddp_reducer *reducer;
    void *stream;         /* on which its last gradient was marked */
    bool has_stream;      /* one was marked since the last synchronised step */
    bool has_stream_work; /* the reducer has enqueued work there that nothing has waited for */
    ddp_request *request; /* the operation of this stage; NULL: none was started */
    uint32_t stage;       /* of the hook */
    bool more;            /* the hook has further stages */
    uint32_t non_finite;  /* set by the operation */
    bool announced;       /* the end of request was reported; under ends_lock */
    uint64_t first_ready_us, full_us, begin_us, end_us;
};

enum ddpi_reducer_state {
    DDPI_REDUCER_IDLE,
    DDPI_REDUCER_OPEN,   /* a step has begun */
    DDPI_REDUCER_CLOSED, /* ddp_reducer_finish() waits */
    DDPI_REDUCER_FAILED
};

struct ddp_reducer {
    ddp_comm *comm;
    uint32_t rank, world_size;
    struct ddp_reducer_options options; /* pointers in it are not the caller's, or not used */
    struct ddp_comm_hook hook;
    uint64_t *limits;
    uint32_t nlimits;

    struct ddpi_parameter *parameters, *buffers;
    uint32_t nparameters, nbuffers;
    struct ddpi_gradient_memory *memory; /* of gradients; NULL: the host's */
    void *views;    /* memory in which all gradients lie; NULL: each has the caller's own */
    uint8_t *roles; /* of all ranks in a step, with uneven inputs; else NULL */

    pthread_mutex_t lock; /* what follows, up to the blank line */
    enum ddpi_reducer_state state;
    bool sync;       /* this step is synchronised */
    bool want_sync;  /* later steps are */
    bool learning;   /* the first synchronised step of a static graph */
    bool shadowing;  /* this rank has joined, and contributes zeros */
    uint32_t active; /* ranks that have data */
    uint32_t owner;  /* the rank that broadcasts buffers */
    struct ddpi_bucket_pass pass;
    void *stream; /* of the last mark since the last synchronised step; NULL: none */
    struct ddp_error failure;

    struct ddpi_bucket_plan plan;
    struct ddpi_bucket *buckets;
    struct ddp_buffer *pieces, *runs; /* by slot */
    size_t *rows;                     /* by slot */
    bool rebuild_due, rebuilt;

    bool non_finite;          /* a result of this step has an inf or a NaN */
    uint8_t *used_map;        /* by parameter: 1 if some rank has used it */
    ddp_request *map_request; /* the reduction of used_map */
    bool static_map;          /* used_map holds for all later steps */

    pthread_mutex_t ends_lock;
    pthread_cond_t ended;

    uint64_t steps; /* synchronised ones that have ended */
    uint64_t begun; /* since the start, or since all ranks had joined, with data on this rank */
    uint64_t rebuilds;
    uint64_t step_begin_us, finish_us, step_end_us;
    FILE *trace;
    bool trace_has_slices;
    uint64_t trace_origin_us;
};

/* Whether gradients may have this type: floats and complex numbers. */
bool ddpi_reducer_takes(ddp_dtype dtype);

/* Names for sentences. */
enum { DDPI_PARAMETER_TEXT = 128 };
const char *ddpi_parameter_name(const struct ddp_reducer *reducer, uint32_t parameter,
                                char text[DDPI_PARAMETER_TEXT]);

/* Record a failure of the reducer, with its step in front of the sentence. Returns @status. */
ddp_status ddpi_reducer_fail(struct ddp_reducer *reducer, ddp_status status,
                             struct ddp_error *cause, struct ddp_error *err);

/* ---- reducer_match.c: are the ranks alike? ---- */

ddp_status ddpi_reducer_match(struct ddp_reducer *reducer, struct ddp_error *err);

/* ---- reducer_share.c: values of one rank for all ---- */

ddp_status ddpi_reducer_share(struct ddp_reducer *reducer, const struct ddpi_parameter *parameters,
                              uint32_t count, uint32_t root, struct ddp_error *err);

/* ---- reducer_views.c: gradients in one block of memory ---- */

ddp_status ddpi_views_make(struct ddp_reducer *reducer, struct ddp_error *err);
void ddpi_views_free(struct ddp_reducer *reducer);

/* ---- reducer_buckets.c: the plan, and buckets made of it ---- */

/* The plan of the first step; the plan from the order in which gradients came on rank 0. */
ddp_status ddpi_reducer_plan(struct ddp_reducer *reducer, struct ddp_error *err);
ddp_status ddpi_reducer_rebuild(struct ddp_reducer *reducer, struct ddp_error *err);
void ddpi_reducer_drop_buckets(struct ddp_reducer *reducer);

/* ---- bucket_reduction.c: the operations of a bucket ---- */

ddp_status ddpi_bucket_start(struct ddp_reducer *reducer, struct ddpi_bucket *bucket,
                             struct ddp_error *err);
/* Wait for the reductions of all buckets, with all stages of the hook. */
ddp_status ddpi_buckets_complete(struct ddp_reducer *reducer, struct ddp_error *err);
/* Wait for what was started, whatever its result. */
void ddpi_buckets_drain(struct ddp_reducer *reducer);
/* The stream of a bucket: that of its last mark, or of the last mark of any. */
void *ddpi_bucket_stream(const struct ddpi_bucket *bucket);
/* Wait for what the reducer itself has enqueued on the streams of buckets. */
ddp_status ddpi_buckets_settle(struct ddp_reducer *reducer, struct ddp_error *err);

/* ---- reducer_unused.c: gradients that a step does not use ---- */

/* Let zeros take part for @parameter, from ddpi_fill_parked() on; DDP_E_NOMEM: nothing changed. */
ddp_status ddpi_park(struct ddp_reducer *reducer, uint32_t parameter, struct ddp_error *err);
/* Before @bucket is reduced: make the zeros for its parked parameters. */
ddp_status ddpi_fill_parked(struct ddpi_bucket *bucket, struct ddp_error *err);
/* Begin to find out which parameters some rank has used; wait for it. */
ddp_status ddpi_used_map_start(struct ddp_reducer *reducer, struct ddp_error *err);
ddp_status ddpi_used_map_complete(struct ddp_reducer *reducer, struct ddp_error *err);
/* Give parked parameters their gradients back: the reduced one if some rank has used it, else the
 * one that it had. */
ddp_status ddpi_unpark_all(struct ddp_reducer *reducer, struct ddp_error *err);

/* ---- reducer_step.c ---- */

/* Begin a step of which this rank, as @shadowing says, has data or not; *@ret_others: whether any
 * rank has. */
ddp_status ddpi_step_begin(struct ddp_reducer *reducer, bool shadowing, bool *ret_others,
                           struct ddp_error *err);
ddp_status ddpi_step_finish(struct ddp_reducer *reducer, struct ddp_error *err);

/* ---- reducer_trace.c ---- */

ddp_status ddpi_trace_open(struct ddp_reducer *reducer, const char *path, struct ddp_error *err);
void ddpi_trace_step(struct ddp_reducer *reducer);
void ddpi_trace_close(struct ddp_reducer *reducer);

#endif
