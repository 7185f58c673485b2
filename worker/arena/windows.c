/*
 * windows.c - the memory of windows, and finding buffers in them. Owns the mappings.
 *
 * A file has no name and is sealed against resizing. Each rank allocates its own part at once, so
 * a shortage is an error and no SIGBUS, and what a dead rank had stays until all have unmapped it.
 * The mapping needs no descriptor. Children of fork() do not get it: else they would keep gigabytes
 * alive after the death of a rank, and write to memory of other ranks.
 */
#include "windows.h"

#include "error.h"
#include "mem.h"
#include "memory_file.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

struct ddpi_window {
    struct ddpi_list link;
    uint32_t number, nranks, rank;
    bool shared;
    size_t size;         /* bytes of all parts */
    uint8_t *map, *part; /* all parts, or this rank's alone; and this rank's */
    struct {
        size_t at, size;
    } parts[];
};

/* ---- one window ---- */

/* false: beyond any memory. A rank that asks for nothing has an address as well. */
static bool add_part(struct ddpi_window *window, uint32_t rank, uint64_t size)
{
    uint64_t most = PTRDIFF_MAX - DDPI_WINDOW_UNIT;
    if (size > most - window->size)
        return false;
    uint64_t room = size > 0 ? size : 1;
    window->parts[rank].at = window->size;
    window->parts[rank].size = size;
    window->size += (room + DDPI_WINDOW_UNIT - 1) / DDPI_WINDOW_UNIT * DDPI_WINDOW_UNIT;
    return window->size <= most;
}

/* Bytes that this rank's part takes. */
static size_t own_room(const struct ddpi_window *window)
{
    size_t end =
        window->rank + 1 < window->nranks ? window->parts[window->rank + 1].at : window->size;
    return end - window->parts[window->rank].at;
}

ddp_status ddpi_window_plan(const uint64_t *sizes, uint32_t nranks, uint32_t rank,
                            struct ddpi_window **ret_window, struct ddp_error *err)
{
    size_t len = sizeof(struct ddpi_window) + nranks * sizeof(((struct ddpi_window *)0)->parts[0]);
    struct ddpi_window *window = ddpi_calloc(1, len);
    if (window == NULL)
        return ddpi_error_nomem(err, len);
    window->nranks = nranks;
    window->rank = rank;
    for (uint32_t i = 0; i < nranks; i++)
        if (!add_part(window, i, sizes[i])) {
            ddpi_free(window);
            return ddpi_error_set(err, DDP_E_NOMEM,
                                  "rank %u asks for %llu bytes, which with those of ranks below it "
                                  "are more than any address space has",
                                  i, (unsigned long long)sizes[i]);
        }
    *ret_window = window;
    return DDP_OK;
}

ddp_status ddpi_window_make(const struct ddpi_window *window, int *ret_fd, struct ddp_error *err)
{
    return ddpi_memory_file_make("ddprun-window", window->size, 0, ret_fd, err);
}

ddp_status ddpi_window_map(struct ddpi_window *window, int fd, struct ddp_error *err)
{
    size_t at = window->parts[window->rank].at;
    ddp_status status = ddpi_memory_file_check(fd, window->size, "this window", err);
    if (status != DDP_OK)
        return status;
    status = ddpi_memory_file_allocate(fd, at, own_room(window), err);
    if (status == DDP_OK)
        status = ddpi_memory_file_map(fd, window->size, &window->map, err);
    if (status != DDP_OK)
        return status;
    window->shared = true;
    window->part = window->map + at;
    if (madvise(window->map, window->size, MADV_DONTFORK) != 0)
        return ddpi_error_sys(err, errno, "keep %zu bytes of shared memory from children",
                              window->size);
    return DDP_OK;
}

/* Each rank works on all parts: without this it would take a fault for each page of each of them,
 * in its first operations. A kernel that does not know the advice lets it. */
void ddpi_window_settle(struct ddpi_window *window)
{
    (void)madvise(window->map, window->size, MADV_POPULATE_WRITE);
}

ddp_status ddpi_window_map_own(struct ddpi_window *window, struct ddp_error *err)
{
    size_t len = own_room(window);
    uint8_t *map = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return ddpi_error_nomem(err, len);
    window->map = window->part = map;
    window->size = len;
    if (madvise(map, len, MADV_DONTFORK) != 0)
        return ddpi_error_sys(err, errno, "keep %zu bytes of memory from children", len);
    return DDP_OK;
}

void *ddpi_window_own(const struct ddpi_window *window)
{
    return window->part;
}

uint32_t ddpi_window_number(const struct ddpi_window *window)
{
    return window->number;
}

void ddpi_window_free(struct ddpi_window *window)
{
    if (window != NULL && window->map != NULL)
        munmap(window->map, window->size);
    ddpi_free(window);
}

/* ---- those of a communicator ---- */

void ddpi_windows_init(struct ddpi_windows *windows)
{
    pthread_mutex_init(&windows->lock, NULL);
    ddpi_list_init(&windows->list);
    windows->made = 0;
    atomic_init(&windows->shared, 0);
}

void ddpi_windows_finish(struct ddpi_windows *windows, bool is_child)
{
    ddpi_list_for_each_safe (node, &windows->list) {
        struct ddpi_window *window = ddpi_container_of(node, struct ddpi_window, link);
        if (is_child)
            window->map = NULL;
        ddpi_list_remove(node);
        ddpi_window_free(window);
    }
    pthread_mutex_destroy(&windows->lock);
}

void ddpi_windows_add(struct ddpi_windows *windows, struct ddpi_window *window)
{
    pthread_mutex_lock(&windows->lock);
    window->number = ++windows->made;
    ddpi_list_append(&windows->list, &window->link);
    windows->shared += window->shared;
    pthread_mutex_unlock(&windows->lock);
}

struct ddpi_window *ddpi_windows_find(struct ddpi_windows *windows, const void *address)
{
    struct ddpi_window *found = NULL;
    pthread_mutex_lock(&windows->lock);
    ddpi_list_for_each_safe (node, &windows->list) {
        struct ddpi_window *window = ddpi_container_of(node, struct ddpi_window, link);
        if (window->part == address)
            found = window;
    }
    pthread_mutex_unlock(&windows->lock);
    return found;
}

void ddpi_windows_remove(struct ddpi_windows *windows, struct ddpi_window *window)
{
    pthread_mutex_lock(&windows->lock);
    ddpi_list_remove(&window->link);
    windows->shared -= window->shared;
    pthread_mutex_unlock(&windows->lock);
}

/* Whether @len bytes at @offset are in the part of @rank. */
static bool is_inside(const struct ddpi_window *window, uint32_t rank, uint64_t offset, size_t len)
{
    size_t size = window->parts[rank].size;
    return window->shared && offset <= size && len <= size - offset;
}

struct ddpi_window_spot ddpi_windows_spot(struct ddpi_windows *windows, const void *address,
                                          size_t len)
{
    struct ddpi_window_spot spot = {.window = 0};
    pthread_mutex_lock(&windows->lock);
    ddpi_list_for_each (node, &windows->list) {
        const struct ddpi_window *window = ddpi_container_of(node, struct ddpi_window, link);
        uint64_t offset = (uintptr_t)address - (uintptr_t)window->part;
        if (is_inside(window, window->rank, offset, len))
            spot = (struct ddpi_window_spot){.window = window->number, .offset = offset};
    }
    pthread_mutex_unlock(&windows->lock);
    return spot;
}

uint8_t *ddpi_windows_at(struct ddpi_windows *windows, uint32_t rank,
                         const struct ddpi_window_spot *spot, size_t len)
{
    uint8_t *address = NULL;
    pthread_mutex_lock(&windows->lock);
    ddpi_list_for_each (node, &windows->list) {
        const struct ddpi_window *window = ddpi_container_of(node, struct ddpi_window, link);
        if (window->number == spot->window && rank < window->nranks &&
            is_inside(window, rank, spot->offset, len))
            address = window->map + window->parts[rank].at + spot->offset;
    }
    pthread_mutex_unlock(&windows->lock);
    return address;
}
