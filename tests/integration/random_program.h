/*
 * random_program.h - programs of collectives that a seed decides, and what each call of one must
 * leave in its buffers.
 *
 * Pure: every rank derives the same program and computes what it expects by itself, element by
 * element and without any communicator. It must not call the library but for the size of types.
 */
#ifndef TESTS_RANDOM_PROGRAM_H
#define TESTS_RANDOM_PROGRAM_H

#include <ddprun/comm.h>
#include <stdbool.h>

enum { PROGRAM_RANKS = 8, PROGRAM_STEPS = 12, PROGRAM_LANES = 2, PROGRAM_GUARD = 16 };

/* What all ranks of a communicator do next. A message is DDP_KIND_SEND: from @root to @to. */
struct step {
    uint64_t seed;
    ddp_kind kind;
    ddp_dtype dtype;
    ddp_reduce_op op;
    size_t count;  /* even parts: of each; uneven parts: less than twice as many */
    uint32_t root; /* modulo the size of the communicator, as is @to */
    uint32_t to;
    uint32_t tag;
    bool in_place, uneven;
    bool any;   /* the receiver of a message takes it from any rank */
    bool child; /* on the communicator of the rank's group */
};

/* A lane is a thread of each rank, with communicators of its own. */
struct program {
    uint64_t seed;
    uint32_t nranks, nlanes;
    bool progress; /* communicators have threads */
    int32_t colors[PROGRAM_RANKS], keys[PROGRAM_RANKS];
    uint32_t nsteps[PROGRAM_LANES];
    struct step steps[PROGRAM_LANES][PROGRAM_STEPS];
};

/* The place of a rank in a communicator. */
struct place {
    uint32_t rank, nranks;
    uint64_t group; /* its elements differ from those of other groups */
};

/* Buffers of one call, as they are before it and must be after it. Parts of the operation point
 * into it: it does not move. */
struct call {
    struct ddp_operation operation;
    unsigned char *send, *recv, *want;   /* with a guard behind; NULL: none, or in place */
    size_t send_len, recv_len, want_len; /* with the guard */
    unsigned char *sent;                 /* what @send must be afterwards */
    size_t send_counts[PROGRAM_RANKS], send_offsets[PROGRAM_RANKS];
    size_t recv_counts[PROGRAM_RANKS], recv_offsets[PROGRAM_RANKS];
    uint32_t source; /* of a message: set by the library */
};

uint64_t random_draw(uint64_t *state);
uint64_t random_below(uint64_t *state, uint64_t bound);

void program_derive(struct program *program, uint64_t seed, uint32_t nranks);
struct place program_place(const struct program *program, uint32_t rank, bool child);

/* Fill @call with what the rank at @place has to do: a send and a receive are two calls, the
 * second with @receiving. false: nothing. Frees: call_free(). */
bool call_prepare(struct call *call, const struct step *step, struct place place, bool receiving);
/* Whether the buffers are as they must be; the place of the first byte that is not. */
bool call_is_right(const struct call *call, const char **ret_buffer, size_t *ret_at);
void call_free(struct call *call);

#endif
