/*
 * lives.c - a thread that holds the word of a rank, and one that watches that of the next rank.
 * Owns the threads and the robust list; nothing of the list is in shared memory, where another
 * process could write.
 *
 * The kernel wakes a single waiter of a word. That thread counts the death in the page and so wakes
 * the watchers of all ranks; each looks at all words. A rank whose successor has left or died
 * watches the next but one, so every living rank is watched, in whatever order ranks die.
 *
 * Why two threads: the holder may be the last thread of its process, which frees the memory. The
 * watcher that it wakes there runs at once only if its slices of time are shorter than the
 * holder's, as a kernel without preemption waits for a clock tick otherwise. The first death is all
 * that a rank wants to know: it fails the communicator, and the watcher watches no more.
 *
 * Which process a rank is stands in the page as well. Another rank may have written there, so
 * nothing is done to a process that is not dying (dying.h).
 *
 * What is in a word:
 *
 *   0                       the rank has not joined yet
 *   thread id and WAITERS   it lives
 *   OWNER_DIED set          the kernel has found the holder dead
 *   LEFT                    it has left
 */
#include "lives.h"

#include "dying.h"
#include "mem.h"
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

enum {
    STACK_SIZE = 64 * 1024,
    LEFT = FUTEX_TID_MASK,    /* no thread has this id */
    NONE = UINT16_MAX,        /* no rank */
    LOOK_AGAIN_US = 2 * 1000, /* where one cannot wait for several words */
    ASIDES = 7,               /* how often a dying process is told to step aside */
    FIRST_ASIDE_US = 100,
    HELPERS = 4, /* so many of the first ranks that notice a death do that */
};

struct life_word {
    _Alignas(64) _Atomic uint32_t word; /* a cache line each */
    _Atomic pid_t process;              /* of the rank */
};

struct page {
    _Alignas(64) _Atomic uint32_t deaths; /* that were noticed; it only grows */
    struct life_word ranks[];
};

struct ddpi_lives {
    pthread_t holder, watcher;
    pid_t pid; /* the process of the threads */
    struct page *page;
    uint32_t nranks, rank;
    void (*on_death)(void *arg);
    void *arg;
    uint32_t known_deaths; /* the value of page->deaths of which on_death() knows */
    bool no_waitv;
    unsigned asides;        /* so many times more the dead are to step aside */
    _Atomic uint32_t first; /* the first rank whose death was noticed, or NONE */
    _Atomic uint32_t begun; /* the thread holds the word, or cannot */
    _Atomic uint32_t over;
    struct robust_list entry;
    struct robust_list_head head;
};

/* As linux/futex.h has it from Linux 5.16 on. */
struct watched_word {
    uint64_t value, address;
    uint32_t flags, reserved;
};
enum { WATCH_32_BITS = 2, WATCH_PRIVATE = WATCH_32_BITS | FUTEX_PRIVATE_FLAG };

static void wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* For this long at most. */
static void wait_until_over(struct ddpi_lives *lives, uint32_t most_us)
{
    const struct timespec time = {.tv_nsec = (long)most_us * 1000};
    syscall(SYS_futex, &lives->over, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
}

/* ---- looking ---- */

/* The next rank after this one that has not died and not left, and what its word is; NONE: there is
 * no other. */
static uint32_t next_to_watch(const struct ddpi_lives *lives, uint32_t *ret_word)
{
    for (uint32_t i = 1; i < lives->nranks; i++) {
        uint32_t rank = (lives->rank + i) % lives->nranks;
        *ret_word = atomic_load(&lives->page->ranks[rank].word);
        if (*ret_word != LEFT && (*ret_word & FUTEX_OWNER_DIED) == 0)
            return rank;
    }
    return NONE;
}

static uint32_t find_dead(const struct ddpi_lives *lives)
{
    for (uint32_t rank = 0; rank < lives->nranks; rank++)
        if ((atomic_load(&lives->page->ranks[rank].word) & FUTEX_OWNER_DIED) != 0)
            return rank;
    return NONE;
}

/* Notice a death, tell the other ranks if this one is the first to see it, and tell the caller. */
static void look(struct ddpi_lives *lives)
{
    uint32_t none = NONE, deaths = atomic_load(&lives->page->deaths), dead = find_dead(lives);
    if (dead != NONE && atomic_compare_exchange_strong(&lives->first, &none, dead)) {
        uint32_t before = lives->known_deaths;
        deaths = atomic_fetch_add(&lives->page->deaths, 1) + 1;
        wake_all(&lives->page->deaths);
        lives->on_death(lives->arg);
        lives->asides = deaths - before <= HELPERS ? ASIDES : 0;
    }
    lives->known_deaths = deaths;
}

/* Until the word of @next changes from @value, deaths are counted, or this rank leaves. */
static void watch(struct ddpi_lives *lives, uint32_t next, uint32_t value)
{
    struct watched_word words[] = {
        {.address = (uintptr_t)&lives->over, .flags = WATCH_PRIVATE},
        {.value = lives->known_deaths,
         .address = (uintptr_t)&lives->page->deaths,
         .flags = WATCH_32_BITS},
        {.value = value, .flags = WATCH_32_BITS},
    };
    if (next != NONE)
        words[2].address = (uintptr_t)&lives->page->ranks[next].word;
    if (!lives->no_waitv &&
        syscall(SYS_futex_waitv, words, next != NONE ? 3 : 2, 0, NULL, CLOCK_MONOTONIC) < 0)
        lives->no_waitv = errno != EAGAIN && errno != EINTR;
    if (lives->no_waitv)
        wait_until_over(lives, LOOK_AGAIN_US);
}

static void watch_for_a_death(struct ddpi_lives *lives)
{
    while (atomic_load(&lives->over) == 0 && atomic_load(&lives->first) == NONE) {
        uint32_t value = 0, next = next_to_watch(lives, &value);
        look(lives);
        if (atomic_load(&lives->first) == NONE)
            watch(lives, next, value);
    }
}

/* ---- after a death ---- */

static void all_dead_step_aside(const struct ddpi_lives *lives)
{
    for (uint32_t rank = 0; rank < lives->nranks; rank++)
        if ((atomic_load(&lives->page->ranks[rank].word) & FUTEX_OWNER_DIED) != 0)
            ddpi_dying_step_aside(atomic_load(&lives->page->ranks[rank].process));
}

/* Not only at once: when the kernel has marked a word, the process has its memory for some moments
 * more, or another thread of it is still to end. And a survivor that sleeps for a moment may wake
 * up behind it again. So 100 us later once more, then after 200 us, and so on. */
static void let_survivors_first(struct ddpi_lives *lives)
{
    uint32_t pause_us = FIRST_ASIDE_US;
    for (; lives->asides > 0 && atomic_load(&lives->over) == 0; lives->asides--) {
        all_dead_step_aside(lives);
        wait_until_over(lives, pause_us);
        pause_us *= 2;
    }
}

/* ---- holding ---- */

static _Atomic uint32_t *own_word(const struct ddpi_lives *lives)
{
    return &lives->page->ranks[lives->rank].word;
}

/* The kernel looks for the whole word, WAITERS included, to wake the one that waits. */
static void hold(struct ddpi_lives *lives)
{
    lives->head.list.next = &lives->entry;
    lives->entry.next = &lives->head.list;
    lives->head.futex_offset = (intptr_t)own_word(lives) - (intptr_t)&lives->entry;
    atomic_store(&lives->page->ranks[lives->rank].process, lives->pid);
    if (syscall(SYS_set_robust_list, &lives->head, sizeof lives->head) == 0)
        atomic_store(own_word(lives), (uint32_t)gettid() | FUTEX_WAITERS);
    wake_all(own_word(lives));
    atomic_store(&lives->begun, 1);
    syscall(SYS_futex, &lives->begun, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void let_go(struct ddpi_lives *lives)
{
    lives->head.list.next = &lives->head.list;
    atomic_store(own_word(lives), LEFT);
    wake_all(own_word(lives));
}

static void *hold_life(void *arg)
{
    struct ddpi_lives *lives = arg;
    hold(lives);
    while (atomic_load(&lives->over) == 0)
        syscall(SYS_futex, &lives->over, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    let_go(lives);
    return NULL;
}

static void *watch_lives(void *arg)
{
    struct ddpi_lives *lives = arg;
    ddpi_thread_ask_short_slices();
    watch_for_a_death(lives);
    let_survivors_first(lives);
    return NULL;
}

/* A small stack, unless the program has so much thread-local data that it is not enough. */
static bool start(pthread_t *ret_thread, void *(*run)(void *arg), struct ddpi_lives *lives)
{
    return ddpi_thread_start(ret_thread, STACK_SIZE, run, lives) == 0 ||
           ddpi_thread_start(ret_thread, 0, run, lives) == 0;
}

static void stop(struct ddpi_lives *lives)
{
    atomic_store(&lives->over, 1);
    syscall(SYS_futex, &lives->over, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool lives_start(struct ddpi_lives *lives)
{
    if (!start(&lives->holder, hold_life, lives))
        return false;
    if (start(&lives->watcher, watch_lives, lives))
        return true;
    stop(lives);
    pthread_join(lives->holder, NULL);
    return false;
}

/* ---- outside ---- */

size_t ddpi_lives_size(uint32_t nranks)
{
    return sizeof(struct page) + nranks * sizeof(struct life_word);
}

struct ddpi_lives *ddpi_lives_join(void *page, uint32_t nranks, uint32_t rank,
                                   void (*on_death)(void *arg), void *arg)
{
    struct ddpi_lives *lives = ddpi_calloc(1, sizeof *lives);
    if (lives == NULL)
        return NULL;
    lives->pid = getpid();
    lives->page = page;
    lives->nranks = nranks;
    lives->rank = rank;
    lives->on_death = on_death;
    lives->arg = arg;
    atomic_init(&lives->first, NONE);
    if (!lives_start(lives)) {
        ddpi_free(lives);
        return NULL;
    }
    while (atomic_load(&lives->begun) == 0)
        syscall(SYS_futex, &lives->begun, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return lives;
}

bool ddpi_lives_first_death(const struct ddpi_lives *lives, uint32_t *ret_rank)
{
    *ret_rank = atomic_load_explicit(&lives->first, memory_order_acquire);
    return *ret_rank != NONE;
}

void ddpi_lives_leave(struct ddpi_lives *lives)
{
    if (lives == NULL || lives->pid != getpid())
        return; /* in a child it is a copy of what the parent's thread uses: it stays */
    stop(lives);
    pthread_join(lives->watcher, NULL);
    pthread_join(lives->holder, NULL);
    ddpi_free(lives);
}
