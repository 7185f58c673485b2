/*
 * arena.h - the memory that the ranks of a communicator share on one machine, and how they meet in
 * it: a line for each rank, counters of arrivals, and slots for data.
 *
 * An operation is a sequence of rounds. In a round a rank copies data in, arrives, waits until all
 * have arrived, and takes what it needs. Rounds alternate between two halves: a rank that copies
 * into a half for round k + 2 has seen all ranks arrive in round k + 1, so all have taken what they
 * needed of round k. Counters only grow.
 *
 * Every rank can write anything here. So a rank computes offsets and sizes by itself; it takes from
 * the others only counters, which it compares, data, and headers, which it checks.
 *
 * Nothing here sleeps for long or judges: the caller watches over deadlines, deaths and aborts.
 */
#ifndef DDPI_ARENA_H
#define DDPI_ARENA_H

#include "call_header.h"
#include "copy_choice.h"
#include "windows.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

struct ddpi_arena;

enum { DDPI_ARENA_RANKS = 256 }; /* the most ranks that meet in one */

/* Make the memory for @nranks; the ranks are threads of one process or of several. @crowded: they
 * outnumber the processors, so a waiting rank lets others run at once. DDP_E_SYSTEM:
 * the system has too little shared memory, or a limit forbids it. */
ddp_status ddpi_arena_create(uint32_t nranks, bool crowded, struct ddpi_arena **ret_arena,
                             struct ddp_error *err);

/* The same memory for another rank, from a descriptor of ddpi_arena_fd(); takes over @fd in any
 * case. DDP_E_PROTOCOL: it is not an arena for @nranks. */
ddp_status ddpi_arena_attach(int fd, uint32_t nranks, struct ddpi_arena **ret_arena,
                             struct ddp_error *err);
int ddpi_arena_fd(const struct ddpi_arena *arena);
void ddpi_arena_destroy(struct ddpi_arena *arena);

/* In a child of fork(), which does not have the memory: only destroy it afterwards. */
void ddpi_arena_disown(struct ddpi_arena *arena);

/* Which rank uses this mapping, in this process. */
void ddpi_arena_enter(struct ddpi_arena *arena, uint32_t rank);

/* The windows that this rank sees, which are made behind the arena from now on; without the call it
 * has none. */
void ddpi_arena_set_windows(struct ddpi_arena *arena, struct ddpi_windows *windows);
struct ddpi_windows *ddpi_arena_windows(const struct ddpi_arena *arena);
uint32_t ddpi_arena_rank(const struct ddpi_arena *arena);
uint32_t ddpi_arena_ranks(const struct ddpi_arena *arena);
bool ddpi_arena_is_crowded(const struct ddpi_arena *arena);

/* How ranks copy in, in operations of this kind; and the last operation, if it was timed. */
struct ddpi_copy_choice *ddpi_arena_copy_choice(struct ddpi_arena *arena,
                                                enum ddpi_operation operation);
struct ddpi_copy_timed *ddpi_arena_last_timed(struct ddpi_arena *arena);

/* Ranks read each other's memory by these (kernel_copy_op.c). The others read that of process @pid
 * after they have found @token in it. */
struct ddpi_arena_identity {
    pid_t pid;
    uint64_t token;                /* random; 0: there is none */
    bool refused;                  /* a rank could not read another one: the same on all ranks */
    pid_t known[DDPI_ARENA_RANKS]; /* of ranks whose token this one has read; else 0 */
};
struct ddpi_arena_identity *ddpi_arena_identity(struct ddpi_arena *arena);

/* The page of the words that show who lives (lives.h). */
void *ddpi_arena_lives(const struct ddpi_arena *arena);

/* ---- slots ---- */

/* A tiny slot lies in the cache line with which its rank arrives; there is none for the result. */
enum ddpi_slot_kind { DDPI_SLOT_TINY, DDPI_SLOT_SMALL, DDPI_SLOT_LARGE };

/* Bytes of a slot; but for tiny ones a multiple of 64. And how far apart those of two ranks lie,
 * one after the other. */
size_t ddpi_arena_slot_size(const struct ddpi_arena *arena, enum ddpi_slot_kind kind);
size_t ddpi_arena_slot_stride(const struct ddpi_arena *arena, enum ddpi_slot_kind kind);

/* The slot of @rank for round @round, or that of the result with @rank = ranks. */
uint8_t *ddpi_arena_slot(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                         enum ddpi_slot_kind kind);

/* Allocate what this rank's large slots need, once; before it arrives in a round with them. */
ddp_status ddpi_arena_grow(struct ddpi_arena *arena, struct ddp_error *err);

/* Where ranks outnumber the processors: show where this rank's thread is, and at each @every th
 * call look where the others are, and move the thread if it is one too many there (spread.h). */
void ddpi_arena_spread(struct ddpi_arena *arena, uint32_t every);

/* ---- rounds ---- */

/* The number of the next round of this rank, from 1; it increases it. */
uint64_t ddpi_arena_next_round(struct ddpi_arena *arena);

/* This rank has copied in its data for @round. */
void ddpi_arena_arrive(struct ddpi_arena *arena, uint64_t round);
bool ddpi_arena_has_arrived(const struct ddpi_arena *arena, uint64_t round, uint32_t rank);

/* Whether all ranks have arrived; asked after this one has, as it does not look at its own line. */
bool ddpi_arena_all_arrived(const struct ddpi_arena *arena, uint64_t round);

/* This rank has seen that all have arrived, so nobody reads any more what it had in the round
 * before: fetch the cache line with which it will arrive in the next one, while it does other
 * things. */
void ddpi_arena_fetch_next(const struct ddpi_arena *arena);

/* The same for the first ones of @len bytes from @at on of its small slot, if it will write those
 * in the next round. */
void ddpi_arena_fetch_slot(const struct ddpi_arena *arena, size_t at, size_t len);

/* This rank has seen that all have arrived: wake those that sleep. */
void ddpi_arena_tell_arrived(struct ddpi_arena *arena);

/* The work of @round, for the calls below; each rank asks once in a round that has work. It is
 * divided into @count shares, and ranks that run take them, so none waits for a rank that does not
 * run. */
uint64_t ddpi_arena_next_work(struct ddpi_arena *arena, uint64_t round);

/* Take the next share; false: all are taken. Each share that was taken has to be finished. */
bool ddpi_arena_claim(struct ddpi_arena *arena, uint64_t round, uint64_t work, uint32_t count,
                      uint32_t *ret_share);
void ddpi_arena_finish(struct ddpi_arena *arena, uint64_t round, uint64_t work, uint32_t count,
                       uint32_t share);
bool ddpi_arena_all_finished(const struct ddpi_arena *arena, uint64_t round, uint64_t work);

enum { DDPI_ARENA_SHARES = 1024 }; /* the most shares of a round */

/* This rank spent @ns on copies and reductions of an operation. It tells so with its arrival in the
 * next round. And the most that a rank has told with its arrival in @round. */
void ddpi_arena_tell_time(struct ddpi_arena *arena, uint64_t ns);
uint64_t ddpi_arena_longest_time(const struct ddpi_arena *arena, uint64_t round);

/* This rank could not read or map what others have: it tells so with its arrival in @round. And
 * whether any rank has. */
void ddpi_arena_refuse(struct ddpi_arena *arena, uint64_t round);
bool ddpi_arena_is_refused(const struct ddpi_arena *arena, uint64_t round);

/* ---- what others do ---- */

/* The call with which this rank arrives in @round, set before; and the header of that of @rank,
 * which has arrived. */
void ddpi_arena_set_call(struct ddpi_arena *arena, uint64_t round, const struct ddpi_call *call);
void ddpi_arena_get_header(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                           uint8_t ret_header[DDPI_CALL_WIRE_SIZE]);

/* A rank that has arrived in @round with another call than this one; false: there is none. */
bool ddpi_arena_odd_call(const struct ddpi_arena *arena, uint64_t round, uint32_t *ret_rank);

/* Where the buffers of a rank are that lie in windows. */
struct ddpi_arena_buffers {
    uint64_t round; /* in which it shows them */
    struct ddpi_window_spot send, recv;
    double factor; /* by which its elements are multiplied */
};

/* Those with which this rank arrives in @round, set before; and those of @rank, which has arrived.
 * false: it has shown none. */
void ddpi_arena_set_buffers(struct ddpi_arena *arena, uint64_t round,
                            const struct ddpi_arena_buffers *buffers);
bool ddpi_arena_get_buffers(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                            struct ddpi_arena_buffers *ret_buffers);

/* What they are for this rank: room for those of each rank, for the operation under way. */
struct ddpi_arena_view {
    const uint8_t *send;
    uint8_t *recv;
    double factor;
};
struct ddpi_arena_view *ddpi_arena_views(const struct ddpi_arena *arena);

/* This rank does shares of the work of @round from now on (0: it does none); whether @rank does. */
void ddpi_arena_set_busy(struct ddpi_arena *arena, uint64_t round);
bool ddpi_arena_is_busy(const struct ddpi_arena *arena, uint64_t round, uint32_t rank);

/* The result of @rank in @round has an inf or a NaN: noted by any rank before it finishes a share
 * of the work, and asked when all shares are finished. */
void ddpi_arena_note_non_finite(struct ddpi_arena *arena, uint64_t round, uint32_t rank);
bool ddpi_arena_is_non_finite(const struct ddpi_arena *arena, uint64_t round, uint32_t rank);

/* Whether this rank may succeed in its operation: no other rank has failed in it. What this rank
 * has read before it asks was the operation's then, as a rank that fails tells so before its call
 * returns. */
bool ddpi_arena_may_succeed(const struct ddpi_arena *arena);

/* This rank has succeeded in the operation of its last round. */
void ddpi_arena_succeed(struct ddpi_arena *arena);

enum { DDPI_ARENA_NOTE = 1100 };

/* This rank fails in the operation after the last one in which it has succeeded. The first rank to
 * fail leaves a note of @len bytes, which says why. */
void ddpi_arena_fail(struct ddpi_arena *arena, const void *note, size_t len);
bool ddpi_arena_has_failed(const struct ddpi_arena *arena, uint32_t rank);
bool ddpi_arena_has_note(const struct ddpi_arena *arena);
void ddpi_arena_get_note(const struct ddpi_arena *arena, void *ret_note, size_t len);

/* ---- sleep ---- */

/* Announce that this rank is about to sleep, look again, and then sleep until another rank makes
 * progress or rings, at most @most_us. */
uint32_t ddpi_arena_doze(struct ddpi_arena *arena);
void ddpi_arena_sleep(struct ddpi_arena *arena, uint32_t ticket, uint32_t most_us);
void ddpi_arena_awake(struct ddpi_arena *arena);

/* Wake all ranks that sleep. Async-signal-safe. */
void ddpi_arena_ring(struct ddpi_arena *arena);

#endif
