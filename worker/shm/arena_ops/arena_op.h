/*
 * arena_op.h - an operation of all ranks through an arena. It never blocks: it is advanced.
 *
 * A method (arena_method.h) carries it out, in steps: short, through slots, in chunks, in
 * registered buffers, or with the kernel's copies. All ranks choose the same one from what they all
 * know. A method that is refused gives way to another one, and the operation begins again.
 *
 * The numeric rules are the same for all methods: elements are reduced in the order of ranks with
 * one rounding, so the bits depend neither on sizes nor on who runs when.
 */
#ifndef DDPI_ARENA_OP_H
#define DDPI_ARENA_OP_H

#include "arena.h"
#include "task.h"

struct ddpi_arena_method;

/* What the next step waits for. */
enum ddpi_arena_stage {
    DDPI_ARENA_GOES_ON, /* nothing */
    DDPI_ARENA_ARRIVE,  /* all ranks have arrived */
    DDPI_ARENA_WORK,    /* all shares of the work are finished */
    DDPI_ARENA_OVER,
    DDPI_ARENA_FAILS, /* is done, but a rank has failed in it: waits until that one has said why */
};

/* Why a method was given up, as far as this rank knows. */
enum ddpi_arena_refusal {
    DDPI_NOT_REFUSED,
    DDPI_UNREADABLE, /* the kernel does not let it read the memory of a rank */
    DDPI_UNMAPPED,   /* it cannot map the registered buffers of others */
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

enum ddpi_arena_result {
    DDPI_ARENA_WAITS, /* for other ranks */
    DDPI_ARENA_COMPLETE,
    DDPI_ARENA_FAILED,   /* another rank has, and its note is there */
    DDPI_ARENA_MISMATCH, /* @odd has called something else, or this with another count */
    DDPI_ARENA_NO_ROOM,  /* shared memory is exhausted: @err has the sentence */
};

void ddpi_arena_begin(struct ddpi_arena_op *op, struct ddpi_arena *arena, struct ddpi_task *task);

/* The same for @op that has carried out a task with the same call, whose counts all ranks know:
 * what was computed of few bytes is used again. */
void ddpi_arena_begin_again(struct ddpi_arena_op *op, struct ddpi_task *task);

/* Go on as far as possible. */
enum ddpi_arena_result ddpi_arena_advance(struct ddpi_arena_op *op, struct ddp_error *err);

/* Whether the operation can go on. */
bool ddpi_arena_is_ready(const struct ddpi_arena_op *op);

/* Whether it waits for @rank: that has not arrived in the current round, or has not finished its
 * shares, or has failed. If it waits for none, all have come since. */
bool ddpi_arena_misses(const struct ddpi_arena_op *op, uint32_t rank);

#endif
