/*
 * death_watch.c - the page of life_slot.h, and one thread that waits for all its futexes at once.
 * Owns both. The thread reads the words and wakes the loop; it touches nothing else of the agent.
 */
#include "death_watch.h"

#include "life_slot.h"
#include "memory_file.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK_SIZE = 64 * 1024 };

static long wait_for_any(struct futex_waitv *waiters, unsigned count)
{
    return syscall(SYS_futex_waitv, waiters, count, 0, NULL, 0);
}

static void add_waiter(struct futex_waitv *waiter, const _Atomic uint32_t *word, uint32_t value,
                       uint32_t flags)
{
    *waiter =
        (struct futex_waitv){.val = value, .uaddr = (uintptr_t)word, .flags = FUTEX_32 | flags};
}

/* Note the slots whose owner has died since the last look. */
static void check_slots(struct death_watch *watch, uint32_t *words, struct futex_waitv *waiters)
{
    bool news = false;
    for (uint32_t i = 0; i < watch->count; i++) {
        uint32_t word = atomic_load(&watch->page[i].word);
        if ((word & FUTEX_OWNER_DIED) != 0 && (words[i] & FUTEX_OWNER_DIED) == 0) {
            atomic_store(&watch->hints[i], 1);
            news = true;
        }
        words[i] = word;
        add_waiter(&waiters[i], &watch->page[i].word, word, 0);
    }
    if (news)
        uv_async_send(&watch->news);
}

/* A worker can change its word, and wake this thread, at any rate: look at most once per ms. */
static void *death_watch_main(void *arg)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    struct death_watch *watch = arg;
    uint32_t words[DEATH_WATCH_MAX] = {0};
    struct futex_waitv waiters[DEATH_WATCH_MAX + 1];
    for (;;) {
        uint32_t changes = atomic_load(&watch->changes);
        if (atomic_load(&watch->over))
            return NULL;
        check_slots(watch, words, waiters);
        add_waiter(&waiters[watch->count], &watch->changes, changes, FUTEX_PRIVATE_FLAG);
        nanosleep(&pause, NULL);
        wait_for_any(waiters, watch->count + 1);
    }
}

static void wake_thread(struct death_watch *watch)
{
    atomic_fetch_add(&watch->changes, 1);
    syscall(SYS_futex, &watch->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void on_death_news(uv_async_t *async)
{
    struct death_watch *watch = async->data;
    for (uint32_t i = 0; i < watch->count; i++)
        if (atomic_exchange(&watch->hints[i], 0) != 0)
            watch->hint(watch->ctx, i);
}

/* Sealed in size and fully allocated, so that reading it cannot fail. */
static bool make_page(struct death_watch *watch, uint32_t count)
{
    watch->page_size = count * sizeof *watch->page;
    if (ddpi_memory_file_make("ddprun-life", watch->page_size, watch->page_size, DDPI_LIFE_SEALS,
                              &watch->fd, NULL) != DDP_OK)
        return false;
    void *page = mmap(NULL, watch->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, watch->fd, 0);
    watch->page = page != MAP_FAILED ? page : NULL;
    return watch->page != NULL;
}

static void drop_page(struct death_watch *watch)
{
    if (watch->page != NULL)
        munmap(watch->page, watch->page_size);
    if (watch->fd > 0)
        close(watch->fd);
    watch->page = NULL;
    watch->fd = 0;
}

void death_watch_open(struct death_watch *watch, uv_loop_t *loop, uint32_t count,
                      void (*hint)(void *ctx, uint32_t slot), void *ctx)
{
    *watch = (struct death_watch){.fd = -1,
                                  .count = count < DEATH_WATCH_MAX ? count : DEATH_WATCH_MAX,
                                  .hint = hint,
                                  .ctx = ctx};
    wait_for_any(NULL, 0);
    if (errno == ENOSYS || errno == EPERM)
        watch->count = 0;
    if (!make_page(watch, count) || uv_async_init(loop, &watch->news, on_death_news) != 0) {
        drop_page(watch);
        return;
    }
    watch->news.data = watch;
}

void death_watch_start(struct death_watch *watch)
{
    if (watch->page != NULL && watch->count > 0 && !watch->runs)
        watch->runs = ddpi_thread_start(&watch->thread, STACK_SIZE, death_watch_main, watch) == 0;
}

static size_t slots_of(const struct death_watch *watch)
{
    return watch->page != NULL ? watch->page_size / sizeof *watch->page : 0;
}

void death_watch_renew(struct death_watch *watch)
{
    for (size_t i = 0; i < slots_of(watch); i++)
        atomic_store(&watch->page[i].word, 0);
    if (watch->runs)
        wake_thread(watch);
}

void death_watch_set_fence(struct death_watch *watch, uint64_t at_ms)
{
    for (size_t i = 0; i < slots_of(watch); i++)
        atomic_store(&watch->page[i].fence_at_ms, at_ms);
}

void death_watch_close(struct death_watch *watch)
{
    if (watch->page == NULL)
        return;
    if (watch->runs) {
        atomic_store(&watch->over, true);
        wake_thread(watch);
        pthread_join(watch->thread, NULL);
    }
    uv_close((uv_handle_t *)&watch->news, NULL);
    drop_page(watch);
}
