/*
 * windows.h - buffers in memory that all ranks of a communicator can see: those of this rank, and
 * where it sees those of others.
 *
 * A window is a stretch of the arena's memory file. A rank makes one without the others. When it
 * uses a buffer in a window it shows the others where the window is in the file; who has not seen
 * the window before maps it. All ranks see what each has shown in an operation, so all know the
 * same windows at the next one.
 *
 * Any rank may write to the whole file anyway. What it shows is checked against the file's size, so
 * that this rank gets no signal, and against what was shown of the window before.
 */
#ifndef DDPI_WINDOWS_H
#define DDPI_WINDOWS_H

#include "list.h"

#include <ddprun/comm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Where windows are made: in the file @fd from byte @from on, of which all ranks together have
 * taken *@taken bytes. */
struct ddpi_window_file {
    int fd;
    uint64_t from;
    _Atomic uint64_t *taken;
};

struct ddpi_windows {
    pthread_mutex_t lock;
    struct ddpi_list list;        /* this rank's, and those of others that it has mapped */
    void *by_place, *by_address;  /* trees: of those in the file, and of this rank's in memory */
    struct ddpi_window_file file; /* if it is open */
    atomic_bool is_open;
    bool refused;            /* some rank could not map one: none is used any more, on any rank */
    uint64_t own_end;        /* of this rank's windows in the file */
    _Atomic uint32_t shared; /* how many windows of this rank are in the file */
};

void ddpi_windows_init(struct ddpi_windows *windows);

/* Free all; in a forked child, which does not have their memory, only what describes them. */
void ddpi_windows_finish(struct ddpi_windows *windows, bool is_child);

/* From now on windows are made in @file, which stays the caller's. Once. */
void ddpi_windows_open(struct ddpi_windows *windows, const struct ddpi_window_file *file);
bool ddpi_windows_are_open(const struct ddpi_windows *windows);

/* ---- those of this rank ---- */

/* Make one of @size bytes, zeroed, at *@ret. Where the windows are not open, only this rank sees
 * it. DDP_E_NOMEM, DDP_E_SYSTEM: there is no memory, or a limit forbids it. */
ddp_status ddpi_windows_make(struct ddpi_windows *windows, size_t size, void **ret,
                             struct ddp_error *err);

/* Free the one that begins at @address; false: there is none. */
bool ddpi_windows_free(struct ddpi_windows *windows, const void *address);

/* Take the one that begins at @address out: it stays mapped there, on *@ret_room bytes, and is the
 * caller's. false: there is none. */
bool ddpi_windows_detach(struct ddpi_windows *windows, const void *address, size_t *ret_room);

/* A buffer in a window, as its rank shows it. */
struct ddpi_window_spot {
    uint64_t at, room; /* the window: where it begins in the file, and its bytes there */
    uint64_t offset;   /* of the buffer in it */
};

/* false: the @len bytes at @address are in no window that others may see. */
bool ddpi_windows_spot(struct ddpi_windows *windows, const void *address, size_t len,
                       struct ddpi_window_spot *ret_spot);

/* ---- those that ranks have shown ---- */

enum ddpi_window_standing {
    DDPI_WINDOW_UNKNOWN, /* some rank may not have mapped it */
    DDPI_WINDOW_KNOWN,   /* all have */
    DDPI_WINDOW_UNUSABLE,
};

/* The same on all ranks, which have seen the same spots; and unusable unless @len bytes fit. */
enum ddpi_window_standing ddpi_windows_standing(struct ddpi_windows *windows,
                                                const struct ddpi_window_spot *spot, size_t len);

/* Map the unknown window of @spot, and reach its @len bytes there. false: this rank cannot. */
bool ddpi_windows_map(struct ddpi_windows *windows, const struct ddpi_window_spot *spot,
                      size_t len);

/* Windows that were mapped since the last call are known now to all ranks. @usable = false: some
 * rank could not map one of them, and none is used from now on; called on all ranks. */
void ddpi_windows_settle(struct ddpi_windows *windows, bool usable);

/* Where this rank sees the bytes at @spot, whose window it has mapped. */
uint8_t *ddpi_windows_at(struct ddpi_windows *windows, const struct ddpi_window_spot *spot);

#endif
