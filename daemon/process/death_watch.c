/*
 * death_watch.c - the page of life_slot.h, and the one thread that waits for all its words at once.
 * Owns both. The thread reads words and wakes the loop; it touches nothing else of the agent.
 */
#include "death_watch.h"

#include "life_slot.h"
#include "thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK_SIZE = 64 * 1024 };

static long wait_for_any(struct futex_waitv *waiters, unsigned count)
{
    return syscall(SYS_futex_waitv, waiters, count, 0, NULL, 0);
}

static void add(struct futex_waitv *waiter, const _Atomic uint32_t *word, uint32_t value,
                uint32_t flags)
{
    *waiter =
        (struct futex_waitv){.val = value, .uaddr = (uintptr_t)word, .flags = FUTEX_32 | flags};
}

/* Note whose owner has died since the last look. */
static void look(struct life *life, uint32_t *words, struct futex_waitv *waiters)
{
    bool news = false;
    for (uint32_t i = 0; i < life->count; i++) {
        uint32_t word = atomic_load(&life->page[i].word);
        if ((word & FUTEX_OWNER_DIED) != 0 && (words[i] & FUTEX_OWNER_DIED) == 0) {
            atomic_store(&life->hints[i], 1);
            news = true;
        }
        words[i] = word;
        add(&waiters[i], &life->page[i].word, word, 0);
    }
    if (news)
        uv_async_send(&life->news);
}

/* Words may be changed, and we be woken, as often as a worker likes: not more than once in a
 * millisecond is anything done about it. */
static void *watch(void *arg)
{
    static const struct timespec pause = {.tv_nsec = 1000000};
    struct life *life = arg;
    uint32_t words[LIFE_WATCHED] = {0};
    struct futex_waitv waiters[LIFE_WATCHED + 1];
    for (;;) {
        uint32_t changes = atomic_load(&life->changes);
        if (atomic_load(&life->over))
            return NULL;
        look(life, words, waiters);
        add(&waiters[life->count], &life->changes, changes, FUTEX_PRIVATE_FLAG);
        nanosleep(&pause, NULL);
        wait_for_any(waiters, life->count + 1);
    }
}

static void wake_thread(struct life *life)
{
    atomic_fetch_add(&life->changes, 1);
    syscall(SYS_futex, &life->changes, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void on_news(uv_async_t *async)
{
    struct life *life = async->data;
    for (uint32_t i = 0; i < life->count; i++)
        if (atomic_exchange(&life->hints[i], 0) != 0)
            life->hint(life->ctx, i);
}

/* Of a size that nobody can change, and with memory behind all of it: reading it cannot fail. */
static bool make_page(struct life *life, uint32_t count)
{
    life->page_size = count * sizeof *life->page;
    int fd = memfd_create("ddprun-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return false;
    life->fd = fd;
    if (fallocate(life->fd, 0, 0, (off_t)life->page_size) == 0 &&
        fcntl(life->fd, F_ADD_SEALS, DDPI_LIFE_SEALS) == 0) {
        void *page = mmap(NULL, life->page_size, PROT_READ | PROT_WRITE, MAP_SHARED, life->fd, 0);
        life->page = page != MAP_FAILED ? page : NULL;
    }
    return life->page != NULL;
}

static void drop_page(struct life *life)
{
    if (life->page != NULL)
        munmap(life->page, life->page_size);
    if (life->fd > 0)
        close(life->fd);
    life->page = NULL;
    life->fd = 0;
}

void life_open(struct life *life, uv_loop_t *loop, uint32_t count,
               void (*hint)(void *ctx, uint32_t slot), void *ctx)
{
    *life = (struct life){
        .fd = -1, .count = count < LIFE_WATCHED ? count : LIFE_WATCHED, .hint = hint, .ctx = ctx};
    wait_for_any(NULL, 0);
    if (errno == ENOSYS || errno == EPERM || !make_page(life, count) ||
        uv_async_init(loop, &life->news, on_news) != 0) {
        drop_page(life);
        return;
    }
    life->news.data = life;
    if (ddpi_thread_start(&life->thread, STACK_SIZE, watch, life) != 0) {
        uv_close((uv_handle_t *)&life->news, NULL);
        drop_page(life);
    }
}

void life_renew(struct life *life)
{
    if (life->page == NULL)
        return;
    for (uint32_t i = 0; i < life->count; i++)
        atomic_store(&life->page[i].word, 0);
    wake_thread(life);
}

void life_close(struct life *life)
{
    if (life->page == NULL)
        return;
    atomic_store(&life->over, true);
    wake_thread(life);
    pthread_join(life->thread, NULL);
    uv_close((uv_handle_t *)&life->news, NULL);
    drop_page(life);
}
