/*
 * life_lock.c - the thread that holds this process's slot, and ends the process when its time is
 * over. Owns the mapping of the page, not the descriptor. The thread has a robust futex list of its
 * own with this one futex; nothing of the list is in the page, where another process could write.
 *
 * A forked child has no such thread, and the kernel's list belongs to the thread: the end of a
 * child shows nothing.
 */
#include "life_lock.h"

#include "clock.h"
#include "life_slot.h"
#include "mem.h"
#include "memory_file.h"
#include "thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK_SIZE = 64 * 1024 };

struct ddpi_life {
    pthread_t thread;
    pid_t pid; /* the process of the thread */
    struct ddpi_life_slot *page;
    size_t page_size;
    struct ddpi_life_slot *slot;
    _Atomic uint32_t users; /* communicators */
    _Atomic uint32_t over;
    struct robust_list entry;
    struct robust_list_head head;
};

static void wake_agent(const struct ddpi_life *life)
{
    syscall(SYS_futex, &life->slot->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* As the guard would have done it. A process may not kill itself if it is the first one of its
 * namespace. */
static void end_process(void)
{
    kill(getpid(), SIGKILL);
    syscall(SYS_exit_group, 128 + SIGKILL);
}

/* Nobody wakes this thread when the time is moved on: it finds that when the old one has come. */
static void wait_for_release(struct ddpi_life *life)
{
    while (atomic_load(&life->over) == 0) {
        uint64_t at_ms = atomic_load(&life->slot->fence_at_ms);
        const struct timespec at = {.tv_sec = (time_t)(at_ms / 1000),
                                    .tv_nsec = (long)(at_ms % 1000) * 1000000};
        if (at_ms != 0 && ddpi_monotonic_ms() >= at_ms)
            end_process();
        syscall(SYS_futex, &life->over, FUTEX_WAIT_BITSET_PRIVATE, 0, at_ms != 0 ? &at : NULL, NULL,
                FUTEX_BITSET_MATCH_ANY);
    }
}

/* Another communicator of this process may hold the slot: wait until it is released, or until this
 * one is over. false: this one does not hold it. */
static bool take_slot(struct ddpi_life *life, uint32_t mine)
{
    _Atomic uint32_t *word = &life->slot->word;
    for (;;) {
        uint32_t other = 0;
        if (atomic_compare_exchange_strong(word, &other, mine))
            return true;
        struct futex_waitv waiters[] = {
            {.val = other, .uaddr = (uintptr_t)word, .flags = FUTEX_32},
            {.uaddr = (uintptr_t)&life->over, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG},
        };
        long woken = syscall(SYS_futex_waitv, waiters, 2, 0, NULL, 0);
        bool failed = woken < 0 && errno != EAGAIN && errno != EINTR;
        if (failed || atomic_load(&life->over) != 0)
            return false;
    }
}

static void *life_thread(void *arg)
{
    struct ddpi_life *life = arg;
    _Atomic uint32_t *word = &life->slot->word;
    uint32_t mine = (uint32_t)gettid() | FUTEX_WAITERS;
    life->head.list.next = &life->entry;
    life->entry.next = &life->head.list;
    life->head.futex_offset = (intptr_t)word - (intptr_t)&life->entry;
    if (syscall(SYS_set_robust_list, &life->head, sizeof life->head) != 0 || !take_slot(life, mine))
        return NULL;
    wake_agent(life);
    wait_for_release(life);
    life->head.list.next = &life->head.list;
    atomic_compare_exchange_strong(word, &mine, 0);
    wake_agent(life);
    return NULL;
}

/* Small, unless the program has so much thread-local data that this is not enough. */
static bool life_start(struct ddpi_life *life)
{
    return ddpi_thread_start(&life->thread, STACK_SIZE, life_thread, life) == 0 ||
           ddpi_thread_start(&life->thread, 0, life_thread, life) == 0;
}

static bool map_page(struct ddpi_life *life, int fd, uint32_t slot)
{
    struct stat page;
    if (!ddpi_memory_file_has(fd, 1, DDPI_LIFE_SEALS) || fstat(fd, &page) != 0)
        return false;
    life->page_size = (size_t)page.st_size;
    if (slot >= life->page_size / sizeof *life->page)
        return false;
    void *mapped = mmap(NULL, life->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return false;
    life->page = mapped;
    life->slot = &life->page[slot];
    return true;
}

struct ddpi_life *ddpi_life_hold(int fd, uint32_t slot)
{
    struct ddpi_life *life = fd >= 0 ? ddpi_calloc(1, sizeof *life) : NULL;
    if (life == NULL)
        return NULL;
    life->pid = getpid();
    life->users = 1;
    if (!map_page(life, fd, slot))
        goto no_page;
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* not for programs that this one starts */
    if (!life_start(life))
        goto no_thread;
    return life;
no_thread:
    munmap(life->page, life->page_size);
no_page:
    ddpi_free(life);
    return NULL;
}

struct ddpi_life *ddpi_life_share(struct ddpi_life *life)
{
    if (life != NULL)
        atomic_fetch_add(&life->users, 1);
    return life;
}

void ddpi_life_release(struct ddpi_life *life)
{
    if (life == NULL || atomic_fetch_sub(&life->users, 1) > 1)
        return;
    if (life->pid == getpid()) {
        atomic_store(&life->over, 1);
        syscall(SYS_futex, &life->over, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        pthread_join(life->thread, NULL);
    }
    munmap(life->page, life->page_size);
    ddpi_free(life);
}
