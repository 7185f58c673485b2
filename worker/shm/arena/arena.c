/*
 * arena.c - the shared memory of an arena: its file, its counters, and waiting. Owns the file and
 * the mapping.
 *
 * The part that every operation needs is allocated at once, and that of large operations before the
 * first one, so a shortage is an error and no SIGBUS.
 *
 * A counter of a half is never reset: use number g of a half is complete when its counter is g
 * times what one use adds.
 */
#include "arena.h"

#include "error.h"
#include "lives.h"
#include "mem.h"
#include "memory_file.h"
#include "spread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PAGE = 64 * 1024, /* a multiple of every page size */
    HALVES = 2,
    TINY = 48,         /* bytes of a slot */
    SMALL = 16 * 1024, /* the same */
    MANY_RANKS = 4,    /* with more, slots are smaller */
    CROWD_RANKS = 16,
    FETCH = 1024, /* bytes of a slot that are fetched ahead: a processor can wait for few lines */
    SPREAD_MOST = 128, /* ranks: with more, one look at where they are takes too long */
    FEW_RANKS = 16,    /* so few look at each other's lines, more count who has arrived */
};

/* Each word that several ranks write has a cache line of its own. */
struct half {
    _Alignas(64) _Atomic uint64_t arrived;
    _Alignas(64) _Atomic uint64_t claimed;
    _Alignas(64) _Atomic uint64_t finished;
};

/* One cache line: with the round comes what a short operation needs. */
struct arrival {
    _Alignas(64) _Atomic uint64_t round; /* of this half, in which the rank has arrived last */
    uint64_t digest;                     /* of the call */
    uint8_t slot[TINY];
};
_Static_assert(sizeof(struct arrival) == 64, "an arrival is one cache line");

struct line {
    struct arrival arrivals[HALVES];
    _Alignas(64) uint8_t headers[HALVES][64];               /* read only if digests differ */
    _Alignas(64) struct ddpi_arena_buffers buffers[HALVES]; /* of the round in each half */
    _Alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleeps;
    _Alignas(64) _Atomic uint64_t busy;  /* the round of which it does shares now; 0: of none */
    _Atomic uint64_t non_finite[HALVES]; /* the last round whose result is; written by any rank */
    _Atomic uint64_t spent_ns[HALVES];   /* on the last operation that was timed and told here */
    _Atomic uint64_t refused[HALVES];    /* the last round in which it has told a refusal */
    _Atomic uint32_t failed;             /* whether it has */
    _Alignas(64) _Atomic uint16_t place; /* if crowded: its last processor, plus 1 */
};

enum note_state { NOTE_NONE, NOTE_BEGUN, NOTE_STANDS };

struct shared {
    struct half halves[HALVES];
    _Alignas(64) _Atomic uint32_t sleepers;
    _Alignas(64) bool crowded; /* as rank 0 sees it: all ranks have to agree */
    _Atomic uint64_t windows;  /* bytes of the file behind the arena that ranks have taken */
    _Atomic uint64_t failed;   /* the first round of an operation in which a rank failed; 0: none */
    _Atomic uint32_t note_state;
    uint8_t note[DDPI_ARENA_NOTE]; /* of the first rank that failed */
    struct line lines[];
};

struct ddpi_arena {
    int fd;
    uint32_t nranks, rank;
    bool crowded, grown;
    uint64_t round;
    uint64_t succeeded;     /* the last round of the last operation in which this rank has */
    uint32_t operations;    /* that have asked where ranks are */
    uint64_t digest;        /* of this rank's call */
    uint64_t works[HALVES]; /* rounds in each half that had work to share */
    size_t lives_at, small_at, large_at, large, file_size;
    uint8_t *map;
    struct shared *shared;
    struct ddpi_windows *windows;  /* NULL: none */
    struct ddpi_arena_view *views; /* by rank */
    struct ddpi_copy_choice copy_choices[DDPI_OPERATIONS];
    struct ddpi_copy_timed last_timed;
    struct ddpi_arena_identity identity;
};

/* ---- the file ---- */

static void set_sizes(struct ddpi_arena *arena, uint32_t nranks)
{
    size_t slots = (size_t)HALVES * (nranks + 1);
    arena->nranks = nranks;
    arena->large = nranks <= MANY_RANKS    ? 1024 * 1024
                   : nranks <= CROWD_RANKS ? 256 * 1024
                                           : 64 * 1024;
    arena->lives_at = sizeof(struct shared) + nranks * sizeof(struct line);
    arena->small_at = ddpi_round_up(arena->lives_at + ddpi_lives_size(nranks), PAGE);
    arena->large_at = arena->small_at + ddpi_round_up(slots * SMALL, PAGE);
    arena->file_size = arena->large_at + slots * arena->large;
}

static ddp_status map_file(struct ddpi_arena *arena, struct ddp_error *err)
{
    ddp_status status = ddpi_memory_file_map(arena->fd, 0, arena->file_size, &arena->map, err);
    arena->shared = (struct shared *)(void *)arena->map;
    if (status == DDP_OK && madvise(arena->map, arena->file_size, MADV_DONTFORK) != 0)
        return ddpi_error_sys(err, errno, "keep shared memory from children");
    return status;
}

static struct ddpi_arena *arena_new(uint32_t nranks, struct ddp_error *err)
{
    struct ddpi_arena *arena = ddpi_calloc(1, sizeof *arena);
    if (arena == NULL) {
        (void)ddpi_error_nomem(err, sizeof *arena);
        return NULL;
    }
    arena->fd = -1;
    set_sizes(arena, nranks);
    arena->views = ddpi_calloc(nranks, sizeof *arena->views);
    if (arena->views == NULL) {
        (void)ddpi_error_nomem(err, nranks * sizeof *arena->views);
        ddpi_arena_destroy(arena);
        return NULL;
    }
    return arena;
}

ddp_status ddpi_arena_create(uint32_t nranks, bool crowded, struct ddpi_arena **ret_arena,
                             struct ddp_error *err)
{
    struct ddpi_arena *arena = arena_new(nranks, err);
    if (arena == NULL)
        return DDP_E_NOMEM;
    ddp_status status = ddpi_memory_file_make("ddprun-arena", arena->file_size, arena->large_at,
                                              DDPI_SEALS_GROWING, &arena->fd, err);
    if (status == DDP_OK)
        status = map_file(arena, err);
    if (status != DDP_OK) {
        ddpi_arena_destroy(arena);
        return status;
    }
    arena->shared->crowded = arena->crowded = crowded;
    *ret_arena = arena;
    return DDP_OK;
}

ddp_status ddpi_arena_attach(int fd, uint32_t nranks, struct ddpi_arena **ret_arena,
                             struct ddp_error *err)
{
    struct ddpi_arena *arena = arena_new(nranks, err);
    if (arena == NULL) {
        close(fd);
        return DDP_E_NOMEM;
    }
    arena->fd = fd;
    char what[32];
    snprintf(what, sizeof what, "%u ranks", nranks);
    ddp_status status = ddpi_memory_file_check(fd, arena->file_size, what, err);
    if (status == DDP_OK)
        status = map_file(arena, err);
    if (status != DDP_OK) {
        ddpi_arena_destroy(arena);
        return status;
    }
    arena->crowded = arena->shared->crowded;
    *ret_arena = arena;
    return DDP_OK;
}

int ddpi_arena_fd(const struct ddpi_arena *arena)
{
    return arena->fd;
}

void ddpi_arena_destroy(struct ddpi_arena *arena)
{
    if (arena == NULL)
        return;
    if (arena->map != NULL)
        munmap(arena->map, arena->file_size);
    if (arena->fd >= 0)
        close(arena->fd);
    ddpi_free(arena->views);
    ddpi_free(arena);
}

void ddpi_arena_disown(struct ddpi_arena *arena)
{
    if (arena != NULL)
        arena->map = NULL;
}

void ddpi_arena_enter(struct ddpi_arena *arena, uint32_t rank)
{
    struct ddpi_arena_identity *own = &arena->identity;
    arena->rank = rank;
    own->pid = getpid();
    if (getrandom(&own->token, sizeof own->token, 0) != (ssize_t)sizeof own->token)
        own->token = 0;
}

void ddpi_arena_set_windows(struct ddpi_arena *arena, struct ddpi_windows *windows)
{
    const struct ddpi_window_file file = {arena->fd, arena->file_size, &arena->shared->windows};
    arena->windows = windows;
    ddpi_windows_open(windows, &file);
}

struct ddpi_windows *ddpi_arena_windows(const struct ddpi_arena *arena)
{
    return arena->windows;
}

uint32_t ddpi_arena_rank(const struct ddpi_arena *arena)
{
    return arena->rank;
}

uint32_t ddpi_arena_ranks(const struct ddpi_arena *arena)
{
    return arena->nranks;
}

bool ddpi_arena_is_crowded(const struct ddpi_arena *arena)
{
    return arena->crowded;
}

struct ddpi_copy_choice *ddpi_arena_copy_choice(struct ddpi_arena *arena,
                                                enum ddpi_operation operation)
{
    return &arena->copy_choices[operation];
}

struct ddpi_copy_timed *ddpi_arena_last_timed(struct ddpi_arena *arena)
{
    return &arena->last_timed;
}

struct ddpi_arena_identity *ddpi_arena_identity(struct ddpi_arena *arena)
{
    return &arena->identity;
}

void *ddpi_arena_lives(const struct ddpi_arena *arena)
{
    return arena->map + arena->lives_at;
}

/* ---- slots ---- */

size_t ddpi_arena_slot_size(const struct ddpi_arena *arena, enum ddpi_slot_kind kind)
{
    return kind == DDPI_SLOT_TINY ? TINY : kind == DDPI_SLOT_SMALL ? SMALL : arena->large;
}

size_t ddpi_arena_slot_stride(const struct ddpi_arena *arena, enum ddpi_slot_kind kind)
{
    return kind == DDPI_SLOT_TINY ? sizeof(struct line) : ddpi_arena_slot_size(arena, kind);
}

static size_t slot_at(const struct ddpi_arena *arena, uint64_t half, uint32_t rank, bool large)
{
    size_t index = (size_t)half * (arena->nranks + 1) + rank;
    return large ? arena->large_at + index * arena->large : arena->small_at + index * SMALL;
}

uint8_t *ddpi_arena_slot(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                         enum ddpi_slot_kind kind)
{
    if (kind == DDPI_SLOT_TINY)
        return arena->shared->lines[rank].arrivals[round % HALVES].slot;
    return arena->map + slot_at(arena, round % HALVES, rank, kind == DDPI_SLOT_LARGE);
}

/* The last rank also allocates the slots of results. */
ddp_status ddpi_arena_grow(struct ddpi_arena *arena, struct ddp_error *err)
{
    size_t len = arena->rank + 1 == arena->nranks ? 2 * arena->large : arena->large;
    for (uint64_t half = 0; half < HALVES && !arena->grown; half++) {
        ddp_status status =
            ddpi_memory_file_allocate(arena->fd, slot_at(arena, half, arena->rank, true), len, err);
        if (status != DDP_OK)
            return status;
    }
    arena->grown = true;
    return DDP_OK;
}

/* ---- rounds ---- */

/* How often the half of @round has been used, this time included; round 1 is the first. */
static uint64_t use_of(uint64_t round)
{
    return (round + 1) / HALVES;
}

static struct half *half_of(const struct ddpi_arena *arena, uint64_t round)
{
    return &arena->shared->halves[round % HALVES];
}

/* The places that others have shown may be old; then a rank moves in vain, and again later. */
static void look_where_ranks_are(struct ddpi_arena *arena)
{
    uint16_t at[SPREAD_MOST];
    cpu_set_t allowed;
    for (uint32_t rank = 0; rank < arena->nranks; rank++) /* UINT16_MAX: not shown yet */
        at[rank] = (uint16_t)(atomic_load_explicit(&arena->shared->lines[rank].place,
                                                   memory_order_relaxed) -
                              1);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    int processor = ddpi_spread_target(at, arena->nranks, arena->rank, &allowed);
    if (processor != DDPI_SPREAD_NOWHERE)
        ddpi_spread_move(processor);
}

void ddpi_arena_spread(struct ddpi_arena *arena, uint32_t every)
{
    if (!arena->crowded || arena->nranks > SPREAD_MOST)
        return;
    int processor = sched_getcpu();
    atomic_store_explicit(&arena->shared->lines[arena->rank].place, (uint16_t)(processor + 1),
                          memory_order_relaxed);
    if (processor >= 0 && ++arena->operations % every == 0)
        look_where_ranks_are(arena);
}

uint64_t ddpi_arena_next_round(struct ddpi_arena *arena)
{
    return ++arena->round;
}

bool ddpi_arena_has_arrived(const struct ddpi_arena *arena, uint64_t round, uint32_t rank)
{
    const struct arrival *arrival = &arena->shared->lines[rank].arrivals[round % HALVES];
    return atomic_load_explicit(&arrival->round, memory_order_acquire) >= round;
}

static bool every_line_shows(const struct ddpi_arena *arena, uint64_t round)
{
    for (uint32_t rank = 0; rank < arena->nranks; rank++)
        if (rank != arena->rank && !ddpi_arena_has_arrived(arena, round, rank))
            return false;
    return true;
}

/* Ranks with processors of their own look at the lines of others: an arrival is one cache line
 * that travels. Others count, so that one look tells whether all are there. */
static bool counts_arrivals(const struct ddpi_arena *arena)
{
    return arena->crowded || arena->nranks > FEW_RANKS;
}

/* Where arrivals are counted, the last rank rings; else whoever sees that all are there: a fence
 * here would wait until the other processors have seen the arrival. The digest is written only now:
 * a rank that looks at the line takes it away, and so each store that comes late waits for it.
 *
 * The count comes before the line. A rank that dies between the two is counted, and all go on. If
 * the line came first, the count would wait for the rank, and its line would say that it is
 * here. */
void ddpi_arena_arrive(struct ddpi_arena *arena, uint64_t round)
{
    struct arrival *arrival = &arena->shared->lines[arena->rank].arrivals[round % HALVES];
    bool last = false;
    arrival->digest = arena->digest;
    if (counts_arrivals(arena))
        last = atomic_fetch_add_explicit(&half_of(arena, round)->arrived, 1, memory_order_acq_rel) +
                   1 ==
               use_of(round) * arena->nranks;
    atomic_store_explicit(&arrival->round, round, memory_order_release);
    if (last)
        ddpi_arena_ring(arena);
}

/* Let the processor have the cache line of @address for itself, ahead of a store. */
static void fetch_to_write(const void *address)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)address)); /* where unknown, a no-op */
#else
    __builtin_prefetch(address, 1);
#endif
}

void ddpi_arena_fetch_next(const struct ddpi_arena *arena)
{
    fetch_to_write(&arena->shared->lines[arena->rank].arrivals[(arena->round + 1) % HALVES]);
}

void ddpi_arena_fetch_slot(const struct ddpi_arena *arena, size_t at, size_t len)
{
    const uint8_t *slot =
        ddpi_arena_slot(arena, arena->round + 1, arena->rank, DDPI_SLOT_SMALL) + at;
    for (size_t done = 0; done < len && done < FETCH; done += 64)
        fetch_to_write(slot + done);
}

bool ddpi_arena_all_arrived(const struct ddpi_arena *arena, uint64_t round)
{
    if (!counts_arrivals(arena))
        return every_line_shows(arena, round);
    return atomic_load_explicit(&half_of(arena, round)->arrived, memory_order_acquire) >=
           use_of(round) * arena->nranks;
}

void ddpi_arena_tell_arrived(struct ddpi_arena *arena)
{
    if (!counts_arrivals(arena))
        ddpi_arena_ring(arena);
}

uint64_t ddpi_arena_next_work(struct ddpi_arena *arena, uint64_t round)
{
    return arena->works[round % HALVES]++ * DDPI_ARENA_SHARES;
}

/* All work adds DDPI_ARENA_SHARES, however many shares it has: the last one adds those that are
 * missing. */
bool ddpi_arena_claim(struct ddpi_arena *arena, uint64_t round, uint64_t work, uint32_t count,
                      uint32_t *ret_share)
{
    _Atomic uint64_t *claimed = &half_of(arena, round)->claimed;
    uint64_t next = atomic_load_explicit(claimed, memory_order_relaxed);
    while (next >= work && next < work + count) {
        uint64_t then = next + 1 == work + count ? work + DDPI_ARENA_SHARES : next + 1;
        if (!atomic_compare_exchange_weak_explicit(claimed, &next, then, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        *ret_share = (uint32_t)(next - work);
        return true;
    }
    return false;
}

void ddpi_arena_finish(struct ddpi_arena *arena, uint64_t round, uint64_t work, uint32_t count,
                       uint32_t share)
{
    uint64_t more = share + 1 == count ? DDPI_ARENA_SHARES - count + 1 : 1;
    uint64_t before =
        atomic_fetch_add_explicit(&half_of(arena, round)->finished, more, memory_order_acq_rel);
    if (before + more == work + DDPI_ARENA_SHARES)
        ddpi_arena_ring(arena);
}

bool ddpi_arena_all_finished(const struct ddpi_arena *arena, uint64_t round, uint64_t work)
{
    return atomic_load_explicit(&half_of(arena, round)->finished, memory_order_acquire) >=
           work + DDPI_ARENA_SHARES;
}

/* Those of the round before are in the other half, where a slow rank may still read them. */
void ddpi_arena_tell_time(struct ddpi_arena *arena, uint64_t ns)
{
    atomic_store_explicit(&arena->shared->lines[arena->rank].spent_ns[(arena->round + 1) % HALVES],
                          ns, memory_order_relaxed);
}

uint64_t ddpi_arena_longest_time(const struct ddpi_arena *arena, uint64_t round)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < arena->nranks; rank++) {
        uint64_t ns = atomic_load_explicit(&arena->shared->lines[rank].spent_ns[round % HALVES],
                                           memory_order_relaxed);
        most = ns > most ? ns : most;
    }
    return most;
}

/* ---- what others do ---- */

static struct arrival *arrival_of(const struct ddpi_arena *arena, uint64_t round, uint32_t rank)
{
    return &arena->shared->lines[rank].arrivals[round % HALVES];
}

void ddpi_arena_set_call(struct ddpi_arena *arena, uint64_t round, const struct ddpi_call *call)
{
    arena->digest = ddpi_call_digest(call);
    ddpi_call_encode(call, arena->shared->lines[arena->rank].headers[round % HALVES]);
}

void ddpi_arena_get_header(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                           uint8_t ret_header[DDPI_CALL_WIRE_SIZE])
{
    memcpy(ret_header, arena->shared->lines[rank].headers[round % HALVES], DDPI_CALL_WIRE_SIZE);
}

bool ddpi_arena_odd_call(const struct ddpi_arena *arena, uint64_t round, uint32_t *ret_rank)
{
    for (uint32_t rank = 0; rank < arena->nranks; rank++) {
        *ret_rank = rank;
        if (arrival_of(arena, round, rank)->digest != arena->digest)
            return true;
    }
    return false;
}

void ddpi_arena_set_buffers(struct ddpi_arena *arena, uint64_t round,
                            const struct ddpi_arena_buffers *buffers)
{
    struct ddpi_arena_buffers *shown = &arena->shared->lines[arena->rank].buffers[round % HALVES];
    *shown = *buffers;
    shown->round = round;
}

bool ddpi_arena_get_buffers(const struct ddpi_arena *arena, uint64_t round, uint32_t rank,
                            struct ddpi_arena_buffers *ret_buffers)
{
    *ret_buffers = *(const volatile struct ddpi_arena_buffers *)&arena->shared->lines[rank]
                        .buffers[round % HALVES];
    return ret_buffers->round == round;
}

void ddpi_arena_refuse(struct ddpi_arena *arena, uint64_t round)
{
    atomic_store_explicit(&arena->shared->lines[arena->rank].refused[round % HALVES], round,
                          memory_order_relaxed);
}

bool ddpi_arena_is_refused(const struct ddpi_arena *arena, uint64_t round)
{
    for (uint32_t rank = 0; rank < arena->nranks; rank++)
        if (atomic_load_explicit(&arena->shared->lines[rank].refused[round % HALVES],
                                 memory_order_relaxed) == round)
            return true;
    return false;
}

struct ddpi_arena_view *ddpi_arena_views(const struct ddpi_arena *arena)
{
    return arena->views;
}

void ddpi_arena_set_busy(struct ddpi_arena *arena, uint64_t round)
{
    atomic_store_explicit(&arena->shared->lines[arena->rank].busy, round, memory_order_release);
}

bool ddpi_arena_is_busy(const struct ddpi_arena *arena, uint64_t round, uint32_t rank)
{
    return atomic_load_explicit(&arena->shared->lines[rank].busy, memory_order_acquire) == round;
}

/* What is stored here is seen with the shares: to finish one releases, to see it acquires. No rank
 * writes for the next round of this half before all have left this one. */
void ddpi_arena_note_non_finite(struct ddpi_arena *arena, uint64_t round, uint32_t rank)
{
    atomic_store_explicit(&arena->shared->lines[rank].non_finite[round % HALVES], round,
                          memory_order_relaxed);
}

bool ddpi_arena_is_non_finite(const struct ddpi_arena *arena, uint64_t round, uint32_t rank)
{
    return atomic_load_explicit(&arena->shared->lines[rank].non_finite[round % HALVES],
                                memory_order_relaxed) == round;
}

/* The fences are a pair: who has read what the caller of a failed rank has written since sees that
 * the rank has failed. */
bool ddpi_arena_may_succeed(const struct ddpi_arena *arena)
{
    atomic_thread_fence(memory_order_acquire);
    uint64_t failed = atomic_load_explicit(&arena->shared->failed, memory_order_relaxed);
    return failed == 0 || failed > arena->round;
}

void ddpi_arena_succeed(struct ddpi_arena *arena)
{
    arena->succeeded = arena->round;
}

static void leave_note(struct shared *shared, const void *note, size_t len)
{
    uint32_t none = NOTE_NONE;
    if (!atomic_compare_exchange_strong(&shared->note_state, &none, NOTE_BEGUN))
        return;
    memcpy(shared->note, note, len);
    atomic_store_explicit(&shared->note_state, NOTE_STANDS, memory_order_release);
}

/* The arrival stays, as counters only grow; the word makes it worthless. */
void ddpi_arena_fail(struct ddpi_arena *arena, const void *note, size_t len)
{
    _Atomic uint64_t *failed = &arena->shared->failed;
    uint64_t round = arena->succeeded + 1, first = 0;
    leave_note(arena->shared, note, len);
    atomic_store_explicit(&arena->shared->lines[arena->rank].failed, 1, memory_order_relaxed);
    while ((first == 0 || round < first) && !atomic_compare_exchange_weak(failed, &first, round))
        ;
    atomic_thread_fence(memory_order_seq_cst);
}

bool ddpi_arena_has_failed(const struct ddpi_arena *arena, uint32_t rank)
{
    return atomic_load_explicit(&arena->shared->lines[rank].failed, memory_order_relaxed) != 0;
}

bool ddpi_arena_has_note(const struct ddpi_arena *arena)
{
    return atomic_load_explicit(&arena->shared->note_state, memory_order_acquire) == NOTE_STANDS;
}

void ddpi_arena_get_note(const struct ddpi_arena *arena, void *ret_note, size_t len)
{
    memcpy(ret_note, arena->shared->note, len);
}

/* ---- sleep ---- */

/* The fence pairs with the one in ddpi_arena_ring(): either this rank sees the progress when it
 * looks again, or the other one sees that it sleeps. */
uint32_t ddpi_arena_doze(struct ddpi_arena *arena)
{
    struct line *line = &arena->shared->lines[arena->rank];
    uint32_t ticket = atomic_load_explicit(&line->bell, memory_order_relaxed);
    atomic_store_explicit(&line->sleeps, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&arena->shared->sleepers, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
    return ticket;
}

void ddpi_arena_sleep(struct ddpi_arena *arena, uint32_t ticket, uint32_t most_us)
{
    const struct timespec most = {.tv_nsec = (long)most_us * 1000};
    syscall(SYS_futex, &arena->shared->lines[arena->rank].bell, FUTEX_WAIT, ticket, &most, NULL, 0);
}

void ddpi_arena_awake(struct ddpi_arena *arena)
{
    atomic_store_explicit(&arena->shared->lines[arena->rank].sleeps, 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&arena->shared->sleepers, 1, memory_order_relaxed);
}

void ddpi_arena_ring(struct ddpi_arena *arena)
{
    int saved_errno = errno;
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&arena->shared->sleepers, memory_order_relaxed) == 0)
        return;
    for (uint32_t rank = 0; rank < arena->nranks; rank++) {
        struct line *line = &arena->shared->lines[rank];
        if (atomic_load_explicit(&line->sleeps, memory_order_relaxed) == 0)
            continue;
        atomic_fetch_add_explicit(&line->bell, 1, memory_order_relaxed);
        syscall(SYS_futex, &line->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    errno = saved_errno;
}
