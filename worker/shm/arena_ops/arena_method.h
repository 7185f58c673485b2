/*
 * arena_method.h - how an operation is carried out in an arena. A method is a row of steps. Each
 * step runs once what the one before waits for has come; after the last one the first follows.
 *
 *   counts       tell each other the counts that only pairs of ranks know; another method follows
 *   short        copy in; reduce all for itself, and copy out
 *   slots        copy a range in; reduce shares of it; copy out; then the next range
 *   chunks       copy a range in; reduce a chunk of it; copy the others' out; the next range
 *   registered   show the buffers, which all ranks see; map what is new; work in them
 *   kernel copy  show where the buffers are; read those of others through the kernel
 *
 * Each is a file, which knows no other one. What ranks have called is compared when all have
 * arrived for the first time, whichever the method (arena_op.c).
 */
#ifndef DDPI_ARENA_METHOD_H
#define DDPI_ARENA_METHOD_H

#include "arena.h"
#include "task.h"

struct ddpi_arena_method;

/* What the next step waits for. */
enum ddpi_arena_stage {
    DDPI_ARENA_STAGE_GOES_ON, /* nothing */
    DDPI_ARENA_STAGE_ARRIVE,  /* all ranks have arrived */
    DDPI_ARENA_STAGE_WORK,    /* all shares of the work are finished */
    DDPI_ARENA_STAGE_OVER,
    DDPI_ARENA_STAGE_FAILS, /* a rank has failed in it: that one has said why */
};

/* Why a method was given up, as far as this rank knows. */
enum ddpi_arena_refusal {
    DDPI_ARENA_REFUSAL_NONE,
    DDPI_ARENA_REFUSAL_UNREADABLE, /* the kernel does not let it read the memory of a rank */
    DDPI_ARENA_REFUSAL_UNMAPPED,   /* it cannot map the registered buffers of others */
};

/* How an operation goes through the slots of the arena. */
struct ddpi_slots {
    enum ddpi_slot_kind kind;
    size_t size;           /* bytes of a slot that are used, a multiple of the element size */
    size_t block;          /* and of the part of each rank in it, for operations with such parts */
    size_t done;           /* bytes of the longest part, or of the buffer, in earlier rounds */
    struct ddpi_spot spot; /* of a list of buffers: where byte @done is */
};

struct ddpi_arena_op {
    struct ddpi_arena *arena;
    struct ddpi_task *task;
    const struct ddpi_arena_method *method;
    unsigned step; /* of the method: the next one */
    enum ddpi_arena_stage stage;
    bool checked;    /* all ranks have called the same */
    bool own_copied; /* what this rank has for itself is where it belongs */
    uint32_t odd;    /* after a mismatch: the rank that has called something else */
    size_t longest;  /* bytes of the longest part, or of the buffer */
    uint64_t round;  /* in which this rank has arrived, or will next */
    uint64_t work;   /* of that round */
    struct {
        enum ddpi_arena_refusal why;
        uint32_t rank; /* which cannot be read */
        int sys_errno; /* why not */
    } refusal;
    struct {
        struct ddpi_copy_way way; /* which bytes take from one rank to another */
        uint64_t met_ns;          /* if timed: when all had called it, less what was spent before */
        uint64_t spent_ns;        /* if timed: how long earlier steps have taken */
        uint64_t started_ns;      /* if timed: when this step began */
        uint64_t told_ns;         /* if timed: what it took, if that is known before its end */
    } copies;
    union { /* of the method */
        struct ddpi_slots slots;
        struct {
            struct ddpi_arena_buffers own; /* of this rank */
            bool maps; /* the round tells whether each could map what was new to it */
        } registered;
        struct {
            uint32_t reads_from; /* how many other ranks it has read from */
            size_t done;         /* bytes of the part that is read now */
        } kernel;
    };
};

enum ddpi_arena_step {
    DDPI_ARENA_STEP_NEXT,         /* the next step follows */
    DDPI_ARENA_STEP_AWAIT_ALL,    /* it follows when all have arrived */
    DDPI_ARENA_STEP_AWAIT_SHARES, /* it follows when all shares of the work are finished */
    DDPI_ARENA_STEP_AGAIN,        /* this one goes on, when others had a turn */
    DDPI_ARENA_STEP_OVER,         /* the operation is complete */
    DDPI_ARENA_STEP_SWITCH,   /* the operation begins again with the method that is possible now */
    DDPI_ARENA_STEP_MISMATCH, /* op->odd disagrees about the counts */
    DDPI_ARENA_STEP_NO_ROOM,  /* @err says why */
};

enum { DDPI_ARENA_METHOD_STEPS = 4 };

struct ddpi_arena_method {
    void (*begin)(struct ddpi_arena_op *op); /* NULL: there is nothing to prepare */
    enum ddpi_arena_step (*steps[DDPI_ARENA_METHOD_STEPS])(struct ddpi_arena_op *op,
                                                           struct ddp_error *err);
    bool wakes_late; /* ranks that sleep are woken by its last step, not when all have arrived */
};

extern const struct ddpi_arena_method ddpi_counts_method, ddpi_short_method, ddpi_slots_method,
    ddpi_chunks_method, ddpi_registered_method, ddpi_kernel_copy_method;

/* ---- whether an operation may be carried out so: the same on all ranks ---- */

/* So few bytes of all ranks that each reduces for itself: that takes less time than to share the
 * work, which is one more meeting. */
bool ddpi_short_is_chosen(const struct ddpi_arena_op *op);

/* Whether one that is not short goes in chunks. */
bool ddpi_chunks_are_chosen(const struct ddpi_arena_op *op);

/* Whether the call is of a kind that can work in registered buffers. And whether those of this rank
 * are registered, which may differ between ranks: their places go to op->registered. */
bool ddpi_registered_is_possible(const struct ddpi_arena_op *op);
bool ddpi_registered_find_own(struct ddpi_arena_op *op);

/* All have arrived in the first round: whether some rank shows registered buffers. */
bool ddpi_registered_is_shown(const struct ddpi_arena_op *op);

/* The tries of copy_way.h choose between this and the other ways. */
bool ddpi_kernel_copy_is_possible(const struct ddpi_arena_op *op);

/* ---- for steps ---- */

enum {
    DDPI_ARENA_LINE_OF_ALL = 0, /* what is true of a result of all is kept in the line of rank 0 */
    DDPI_ARENA_STREAM = 16 * 1024 * 1024, /* bytes of all beyond which results bypass the caches */
};

static inline const struct ddpi_shape *ddpi_arena_op_shape(const struct ddpi_arena_op *op)
{
    return ddpi_call_shape(&op->task->call);
}

/* Whether @who includes this rank. */
static inline bool ddpi_arena_op_includes(const struct ddpi_arena_op *op, enum ddpi_who who)
{
    return ddpi_call_includes(&op->task->call, who, ddpi_arena_rank(op->arena));
}

/* Whether it reduces to one result, not to a part for each rank. */
static inline bool ddpi_arena_op_has_one_result(const struct ddpi_arena_op *op)
{
    const struct ddpi_shape *shape = ddpi_arena_op_shape(op);
    return shape->reduces && !shape->sends_blocks;
}

/* To the next round: what this rank writes from now on the others see when it has arrived. */
void ddpi_arena_op_enter_round(struct ddpi_arena_op *op);
enum ddpi_arena_step ddpi_arena_op_arrive(struct ddpi_arena_op *op);

/* The same; the next step takes shares of the work. */
enum ddpi_arena_step ddpi_arena_op_arrive_for_work(struct ddpi_arena_op *op);

#endif
