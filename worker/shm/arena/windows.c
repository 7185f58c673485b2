/*
 * windows.c - see windows.h. Owns the mappings; the file is the arena's.
 *
 * A rank allocates its window at once, so a shortage is an error and no SIGBUS. What a dead rank
 * had stays until all have closed the file. Children of fork() get neither the mappings nor the
 * file: else they would keep gigabytes in use, and write to memory of other ranks.
 *
 * A place in the file keeps its size for ever: who has mapped it once sees what is made there
 * later. Sizes are rounded up to one of few, so that places are used again.
 */
#include "windows.h"

#include "error.h"
#include "mem.h"
#include "memory_file.h"

#include <errno.h>
#include <search.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define MOST (PTRDIFF_MAX / 2) /* bytes of a file */

enum {
    UNIT = 64 * 1024, /* a multiple of every page size */
    STEPS = 8,        /* sizes between a power of two and the next one */
};

struct window {
    struct ddpi_list link;
    uint64_t at; /* in the file, never 0; 0: it is in no file */
    size_t room; /* bytes there, and of the mapping */
    size_t size; /* what the caller has asked for */
    uint8_t *map;
    bool own;
    bool busy;    /* a thread gives it memory, or takes it away */
    bool settles; /* all ranks are about to know it */
    enum ddpi_window_standing standing;
};

static struct window *window_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct window, link);
}

void ddpi_windows_init(struct ddpi_windows *windows)
{
    pthread_mutex_init(&windows->lock, NULL);
    ddpi_list_init(&windows->list);
    windows->by_place = windows->by_address = NULL;
    windows->own_end = 0;
    windows->refused = false;
    atomic_init(&windows->is_open, false);
    atomic_init(&windows->shared, 0);
}

void ddpi_windows_open(struct ddpi_windows *windows, const struct ddpi_window_file *file)
{
    windows->file = *file;
    atomic_store_explicit(&windows->is_open, true, memory_order_release);
}

bool ddpi_windows_are_open(const struct ddpi_windows *windows)
{
    return atomic_load_explicit(&windows->is_open, memory_order_acquire);
}

/* ---- finding them ---- */

static int compare_places(const void *left, const void *right)
{
    const struct window *a = left, *b = right;
    return (a->at > b->at) - (a->at < b->at);
}

/* Windows do not overlap, so two that do are the same, or one is an address in the other. */
static int compare_addresses(const void *left, const void *right)
{
    const struct window *a = left, *b = right;
    return (a->map >= b->map + b->room) - (a->map + a->room <= b->map);
}

/* NULL: there is none. Call these under the lock. */
static struct window *window_at(const struct ddpi_windows *windows, uint64_t at)
{
    const struct window key = {.at = at};
    struct window *const *found = tfind(&key, &windows->by_place, compare_places);
    return found != NULL ? *found : NULL;
}

static struct window *window_around(const struct ddpi_windows *windows, const void *address)
{
    const struct window key = {.map = (uint8_t *)(uintptr_t)address, .room = 1};
    struct window *const *found = tfind(&key, &windows->by_address, compare_addresses);
    return found != NULL ? *found : NULL;
}

/* NULL: there is no memory for it. */
static struct window *add_window(struct ddpi_windows *windows, uint64_t at, size_t room)
{
    struct window *window = ddpi_calloc(1, sizeof *window);
    if (window == NULL)
        return NULL;
    window->at = at;
    window->room = room;
    if (at != 0 && tsearch(window, &windows->by_place, compare_places) == NULL) {
        ddpi_free(window);
        return NULL;
    }
    ddpi_list_append(&windows->list, &window->link);
    return window;
}

/* From now on the addresses of @window are in none. */
static void take_address(struct ddpi_windows *windows, struct window *window)
{
    if (window->own && window->map != NULL)
        (void)tdelete(window, &windows->by_address, compare_addresses);
}

static void unmap(struct window *window)
{
    if (window->map != NULL)
        munmap(window->map, window->room);
    window->map = NULL;
}

static void forget(struct ddpi_windows *windows, struct window *window)
{
    if (window->at != 0)
        (void)tdelete(window, &windows->by_place, compare_places);
    ddpi_list_remove(&window->link);
    ddpi_free(window);
}

/* A child's addresses have other memory, or none. Other ranks may have the file open for longer. */
void ddpi_windows_finish(struct ddpi_windows *windows, bool is_child)
{
    ddpi_list_for_each_safe (node, &windows->list) {
        struct window *window = window_of(node);
        take_address(windows, window);
        if (is_child)
            window->map = NULL;
        else if (window->own && window->map != NULL && window->at != 0)
            (void)ddpi_memory_file_release(windows->file.fd, window->at, window->room);
        unmap(window);
        forget(windows, window);
    }
    pthread_mutex_destroy(&windows->lock);
}

static ddp_status keep_from_children(const struct window *window, struct ddp_error *err)
{
    if (madvise(window->map, window->room, MADV_DONTFORK) != 0)
        return ddpi_error_sys(err, errno, "keep %zu bytes of memory from children", window->room);
    return DDP_OK;
}

/* ---- those of this rank ---- */

/* 0: beyond any memory. */
static size_t room_for(size_t size)
{
    if (size > MOST / 2)
        return 0;
    size_t room = ddpi_round_up(size > 0 ? size : 1, UNIT), step = UNIT;
    while (step * 2 * STEPS <= room)
        step *= 2;
    return ddpi_round_up(room, step);
}

/* Take @room bytes of the file for ever; that there is memory for them is checked before. 0: no
 * file has so many, or another rank has moved the end back. */
static uint64_t take_place(struct ddpi_windows *windows, size_t room)
{
    const struct ddpi_window_file *file = &windows->file;
    uint64_t unit = room >= DDPI_HUGE_PAGE ? DDPI_HUGE_PAGE : UNIT, at;
    uint64_t taken = atomic_load_explicit(file->taken, memory_order_relaxed);
    do {
        if (taken > MOST - file->from - unit - room)
            return 0;
        at = ddpi_round_up(file->from + taken, unit);
    } while (!atomic_compare_exchange_weak_explicit(file->taken, &taken, at + room - file->from,
                                                    memory_order_relaxed, memory_order_relaxed));
    if (at < windows->own_end)
        return 0;
    windows->own_end = at + room;
    return at;
}

/* A window of this rank in the file that nobody uses. Call under the lock. */
static struct window *find_free(struct ddpi_windows *windows, size_t room)
{
    ddpi_list_for_each (node, &windows->list) {
        struct window *window = window_of(node);
        if (window->own && window->at != 0 && !window->busy && window->map == NULL &&
            window->room == room)
            return window;
    }
    return NULL;
}

/* Its last bytes as well, so that the file has them all. */
static ddp_status allocate(const struct window *window, int fd, struct ddp_error *err)
{
    size_t used = ddpi_round_up(window->size > 0 ? window->size : 1, UNIT);
    ddp_status status = ddpi_memory_file_allocate(fd, window->at, used, err);
    if (status == DDP_OK && used < window->room)
        status = ddpi_memory_file_allocate(fd, window->at + window->room - UNIT, UNIT, err);
    return status;
}

/* Enter the pages of @len bytes at @offset into this process's table, where each would cost a fault
 * in the first operation. A kernel that does not know the advice lets it. */
static void populate(uint8_t *map, size_t offset, size_t len)
{
    size_t before = offset % UNIT;
    if (len > 0)
        (void)madvise(map + offset - before, before + len, MADV_POPULATE_WRITE);
}

/* Let the window lie in huge pages: so the processor looks up few entries where all ranks work on
 * it. A kernel that does not know the advice, or has no such page, lets it. */
static void use_huge_pages(const struct window *window)
{
    size_t len = window->size / DDPI_HUGE_PAGE * DDPI_HUGE_PAGE;
    if (len > 0)
        (void)madvise(window->map, len, MADV_COLLAPSE);
}

static ddp_status map_shared(struct window *window, int fd, struct ddp_error *err)
{
    ddp_status status = allocate(window, fd, err);
    if (status == DDP_OK)
        status = ddpi_memory_file_map(fd, window->at, window->room, &window->map, err);
    if (status == DDP_OK)
        status = keep_from_children(window, err);
    if (status != DDP_OK)
        return status;
    use_huge_pages(window);
    populate(window->map, 0, window->size);
    return DDP_OK;
}

static ddp_status map_private(struct window *window, struct ddp_error *err)
{
    void *map =
        mmap(NULL, window->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ddpi_error_nomem(err, window->room);
    window->map = map;
    return keep_from_children(window, err);
}

/* A place in the file, 0 if there is none. */
static uint64_t find_room(struct ddpi_windows *windows, size_t room, struct ddp_error *err)
{
    uint64_t taken = atomic_load_explicit(windows->file.taken, memory_order_relaxed);
    if (taken <= MOST - windows->file.from - room &&
        ddpi_memory_file_may_allocate(windows->file.from + taken, room, err) != DDP_OK)
        return 0;
    uint64_t at = take_place(windows, room);
    if (at == 0)
        (void)ddpi_error_nomem(err, room);
    return at;
}

/* NULL: there is none. Call under the lock. */
static struct window *new_window(struct ddpi_windows *windows, size_t room, struct ddp_error *err)
{
    bool is_open = ddpi_windows_are_open(windows);
    uint64_t at = is_open ? find_room(windows, room, err) : 0;
    if (is_open && at == 0)
        return NULL;
    struct window *window = add_window(windows, at, room);
    if (window == NULL)
        (void)ddpi_error_nomem(err, sizeof *window);
    return window;
}

/* A new window, or one that was freed: it has no memory, and is busy. NULL: there is none. */
static struct window *find_place(struct ddpi_windows *windows, size_t size, struct ddp_error *err)
{
    size_t room = room_for(size);
    if (room == 0) {
        (void)ddpi_error_nomem(err, size);
        return NULL;
    }
    pthread_mutex_lock(&windows->lock);
    struct window *window = ddpi_windows_are_open(windows) ? find_free(windows, room) : NULL;
    if (window == NULL)
        window = new_window(windows, room, err);
    if (window != NULL) {
        window->own = window->busy = true;
        window->size = size;
    }
    pthread_mutex_unlock(&windows->lock);
    return window;
}

/* Of a busy window, which no address is in. A place whose memory the kernel keeps stays busy, as it
 * may not have zeros. */
static void give_back(struct ddpi_windows *windows, struct window *window)
{
    unmap(window);
    bool clean =
        window->at == 0 || ddpi_memory_file_release(windows->file.fd, window->at, window->room);
    pthread_mutex_lock(&windows->lock);
    window->busy = !clean;
    if (window->at == 0)
        forget(windows, window);
    pthread_mutex_unlock(&windows->lock);
}

/* The window of a busy one is there: let it be found. */
static ddp_status publish(struct ddpi_windows *windows, struct window *window,
                          struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    pthread_mutex_lock(&windows->lock);
    if (tsearch(window, &windows->by_address, compare_addresses) == NULL) {
        status = ddpi_error_nomem(err, sizeof *window);
    } else {
        window->busy = false;
        windows->shared += window->at != 0;
    }
    pthread_mutex_unlock(&windows->lock);
    return status;
}

ddp_status ddpi_windows_make(struct ddpi_windows *windows, size_t size, void **ret,
                             struct ddp_error *err)
{
    struct window *window = find_place(windows, size, err);
    if (window == NULL)
        return err->status;
    ddp_status status =
        window->at != 0 ? map_shared(window, windows->file.fd, err) : map_private(window, err);
    if (status == DDP_OK) {
        *ret = window->map;
        status = publish(windows, window, err);
    }
    if (status != DDP_OK)
        give_back(windows, window);
    return status;
}

bool ddpi_windows_free(struct ddpi_windows *windows, const void *address)
{
    pthread_mutex_lock(&windows->lock);
    struct window *window = window_around(windows, address);
    bool found = window != NULL && window->map == address;
    if (found) {
        window->busy = true;
        windows->shared -= window->at != 0;
        take_address(windows, window);
    }
    pthread_mutex_unlock(&windows->lock);
    if (found)
        give_back(windows, window);
    return found;
}

/* Its place stays busy. */
bool ddpi_windows_detach(struct ddpi_windows *windows, const void *address, size_t *ret_room)
{
    pthread_mutex_lock(&windows->lock);
    struct window *window = window_around(windows, address);
    bool found = window != NULL && window->map == address;
    if (found) {
        windows->shared -= window->at != 0;
        take_address(windows, window);
        *ret_room = window->room;
        window->busy = true;
        window->map = NULL;
        if (window->at == 0)
            forget(windows, window);
    }
    pthread_mutex_unlock(&windows->lock);
    return found;
}

bool ddpi_windows_spot(struct ddpi_windows *windows, const void *address, size_t len,
                       struct ddpi_window_spot *ret_spot)
{
    if (atomic_load_explicit(&windows->shared, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&windows->lock);
    const struct window *window = window_around(windows, address);
    bool found = window != NULL && window->at != 0 && !windows->refused;
    size_t offset = found ? (size_t)((uintptr_t)address - (uintptr_t)window->map) : 0;
    found = found && offset <= window->size && len <= window->size - offset;
    if (found)
        *ret_spot = (struct ddpi_window_spot){window->at, window->room, offset};
    pthread_mutex_unlock(&windows->lock);
    return found;
}

/* ---- those that ranks have shown ---- */

enum ddpi_window_standing ddpi_windows_standing(struct ddpi_windows *windows,
                                                const struct ddpi_window_spot *spot, size_t len)
{
    enum ddpi_window_standing standing = DDPI_WINDOW_UNKNOWN;
    if (spot->offset > spot->room || len > spot->room - spot->offset)
        return DDPI_WINDOW_UNUSABLE;
    pthread_mutex_lock(&windows->lock);
    const struct window *window = window_at(windows, spot->at);
    if (window != NULL)
        standing = window->room == spot->room ? window->standing : DDPI_WINDOW_UNUSABLE;
    pthread_mutex_unlock(&windows->lock);
    return standing;
}

/* Call under the lock. */
static bool map_foreign(struct window *window, const struct ddpi_window_file *file)
{
    struct ddp_error err;
    bool is_place = window->at >= file->from && window->at % UNIT == 0 &&
                    window->room % UNIT == 0 && window->room > 0 && window->at <= MOST &&
                    window->room <= MOST;
    if (!is_place ||
        !ddpi_memory_file_has(file->fd, window->at + window->room, DDPI_SEALS_GROWING) ||
        ddpi_memory_file_map(file->fd, window->at, window->room, &window->map, &err) != DDP_OK)
        return false;
    bool kept = keep_from_children(window, &err) == DDP_OK;
    if (!kept)
        unmap(window);
    return kept;
}

bool ddpi_windows_map(struct ddpi_windows *windows, const struct ddpi_window_spot *spot, size_t len)
{
    pthread_mutex_lock(&windows->lock);
    struct window *window = window_at(windows, spot->at);
    if (window == NULL)
        window = add_window(windows, spot->at, spot->room);
    bool mapped = window != NULL;
    if (mapped) {
        window->settles = true;
        mapped = window->map != NULL || (!window->own && map_foreign(window, &windows->file));
    }
    if (mapped)
        populate(window->map, spot->offset, len);
    pthread_mutex_unlock(&windows->lock);
    return mapped;
}

void ddpi_windows_settle(struct ddpi_windows *windows, bool usable)
{
    pthread_mutex_lock(&windows->lock);
    windows->refused = windows->refused || !usable;
    ddpi_list_for_each (node, &windows->list) {
        struct window *window = window_of(node);
        if (window->settles)
            window->standing = DDPI_WINDOW_KNOWN;
        window->settles = false;
        if (windows->refused && !window->own)
            unmap(window);
    }
    pthread_mutex_unlock(&windows->lock);
}

uint8_t *ddpi_windows_at(struct ddpi_windows *windows, const struct ddpi_window_spot *spot)
{
    pthread_mutex_lock(&windows->lock);
    const struct window *window = window_at(windows, spot->at);
    uint8_t *address = window != NULL && window->map != NULL ? window->map + spot->offset : NULL;
    pthread_mutex_unlock(&windows->lock);
    return address;
}
