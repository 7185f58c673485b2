/*
 * windows.h - buffers that the ranks of a communicator have in memory that all of them see: where
 * they are, and where the buffers of other ranks are.
 *
 * All ranks make a window together, and give it up together, so all have the same windows at the
 * same operation, under the same numbers. A window has a part for each rank, one after the other in
 * one memory file, which every rank maps at an address of its own. What another rank says about its
 * buffer is checked against the part of that rank before it is used.
 *
 * Where ranks do not share memory, a window is this rank's part alone: memory like any other.
 */
#ifndef DDPI_WINDOWS_H
#define DDPI_WINDOWS_H

#include "list.h"

#include <ddprun/comm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A part begins at a multiple of this, which is one of every page size. */
enum { DDPI_WINDOW_UNIT = 64 * 1024 };

struct ddpi_window;

/* ---- one window ---- */

/* Plan a window in which rank r has @sizes[r] bytes, of which this is @rank; it has no memory yet.
 * Frees nothing on failure. DDP_E_NOMEM: no address space has so many bytes. */
ddp_status ddpi_window_plan(const uint64_t *sizes, uint32_t nranks, uint32_t rank,
                            struct ddpi_window **ret_window, struct ddp_error *err);

/* The memory file of @window, for all ranks; the caller closes it. */
ddp_status ddpi_window_make(const struct ddpi_window *window, int *ret_fd, struct ddp_error *err);

/* Map the file @fd, which stays the caller's, and allocate this rank's part. DDP_E_PROTOCOL: it is
 * not the file of such a window. */
ddp_status ddpi_window_map(struct ddpi_window *window, int fd, struct ddp_error *err);

/* All ranks have mapped it: let this rank reach every part without a page fault. */
void ddpi_window_settle(struct ddpi_window *window);

/* Give @window memory for this rank alone. */
ddp_status ddpi_window_map_own(struct ddpi_window *window, struct ddp_error *err);

/* This rank's part. */
void *ddpi_window_own(const struct ddpi_window *window);
uint32_t ddpi_window_number(const struct ddpi_window *window);

/* Unmap it. NULL is allowed. */
void ddpi_window_free(struct ddpi_window *window);

/* ---- those of a communicator ---- */

struct ddpi_windows {
    pthread_mutex_t lock;
    struct ddpi_list list;
    uint32_t made;           /* the number of the latest one */
    _Atomic uint32_t shared; /* how many of them all ranks see */
};

void ddpi_windows_init(struct ddpi_windows *windows);

/* Free all; in a forked child, which does not have their memory, only what describes them. */
void ddpi_windows_finish(struct ddpi_windows *windows, bool is_child);

/* Takes @window over and gives it its number, from 1. */
void ddpi_windows_add(struct ddpi_windows *windows, struct ddpi_window *window);

/* The window in which this rank's part begins at @address; NULL: there is none. And take it out:
 * it is the caller's. */
struct ddpi_window *ddpi_windows_find(struct ddpi_windows *windows, const void *address);
void ddpi_windows_remove(struct ddpi_windows *windows, struct ddpi_window *window);

/* A buffer in a window, as its rank tells others. */
struct ddpi_window_spot {
    uint64_t offset; /* in the rank's part */
    uint32_t window; /* its number; 0: the buffer is not in a window that all ranks see */
    uint32_t unused;
};

/* Where the @len bytes at @address are, in the parts of this rank. */
struct ddpi_window_spot ddpi_windows_spot(struct ddpi_windows *windows, const void *address,
                                          size_t len);

/* Where this rank sees the @len bytes that @rank has at @spot; NULL: not in a window. */
uint8_t *ddpi_windows_at(struct ddpi_windows *windows, uint32_t rank,
                         const struct ddpi_window_spot *spot, size_t len);

#endif
