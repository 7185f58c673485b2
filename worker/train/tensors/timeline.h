/*
 * timeline.h - a Chrome trace of tensors: a row for each name (the "Trace Event Format" of
 * chrome://tracing and Perfetto). Owns its file.
 */
#ifndef DDPI_TIMELINE_H
#define DDPI_TIMELINE_H

#include "name_table.h"

#include <ddprun/status.h>
#include <stdbool.h>

struct ddpi_timeline_row;

struct ddpi_timeline {
    int fd; /* -1: there is no timeline, and calls do nothing */
    size_t used;
    char text[8192]; /* not written yet: exit() in a child of fork() would write that of a FILE */
    uint32_t rank;
    uint32_t nrows;
    uint64_t nevents;
    struct ddpi_name_table rows;
    struct ddpi_timeline_row *first;
};

/* @path may be NULL. DDP_E_INVALID: it cannot be written. */
ddp_status ddpi_timeline_open(struct ddpi_timeline *timeline, const char *path, uint32_t rank,
                              struct ddp_error *err);

/* An event in the row of the tensor; with too little memory for a new row it is left out. */
void ddpi_timeline_event(struct ddpi_timeline *timeline, uint32_t set, const char *tensor,
                         const char *what, uint64_t begin_us, uint64_t end_us);

/* End the file; in a child of fork() leave it to the parent. */
void ddpi_timeline_close(struct ddpi_timeline *timeline, bool is_child);

#endif
