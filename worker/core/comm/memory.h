/*
 * memory.h - memory types: host memory, memory of a GPU, ... Each is a table of functions that runs
 * operations on buffers of its kind. The address of a buffer tells the type.
 *
 * A communicator is created with a list of types. Host memory is the last one: it takes whatever no
 * other type claims. A type is opened when this process has begun to use its library; before that
 * no code of the type runs.
 */
#ifndef DDPI_MEMORY_H
#define DDPI_MEMORY_H

#include "task.h"

struct ddp_comm;
struct ddpi_memory;
struct ddpi_run;

/* A buffer, as its type knows it. */
struct ddpi_buffer {
    struct ddpi_memory *memory; /* its type; NULL: there is no buffer */
    void *context;              /* the rest is for the type; zeros for host memory */
    int ordinal;
};

/* Those of a task. */
struct ddpi_buffers {
    struct ddpi_buffer send, recv;
};

struct ddpi_memory_type {
    const char *name; /* "GPU", in sentences */

    /* Memory of this type exists only if this process has loaded @library and is_started() says so
     * of its @symbol. NULL: always; the type must be the last one. */
    const char *library;
    const char *symbol;
    bool (*is_started)(void *symbol);

    /* Open the type for @comm. DDP_E_NOMEM makes the communicator fail; after any other failure the
     * type counts as not there. */
    ddp_status (*open)(struct ddp_comm *comm, struct ddpi_memory **ret_memory);

    /* Set @ret_buffer to what @address is, if it is of this type. DDP_E_INVALID: memory that no
     * operation can use; the sentence begins with @what, as in "the send buffer". */
    ddp_status (*look)(struct ddpi_memory *memory, const void *address, const char *what,
                       struct ddpi_buffer *ret_buffer, struct ddp_error *err);

    /* Choose how @run is carried out, and put it into the queue (run_queue.h), after what is
     * enqueued on @stream. DDP_E_INVALID: nothing was done. */
    ddp_status (*submit)(struct ddpi_memory *memory, struct ddp_comm *comm, struct ddpi_run *run,
                         void *stream, struct ddp_error *err);

    /* Operations wait for a stream, so no thread of the program drives them: a run of this type is
     * not on the stack of its caller. */
    bool enqueues;

    /* Fill the members of @stats that only this type has; NULL: none. */
    void (*read_stats)(struct ddpi_memory *memory, struct ddp_comm_stats *stats);

    /* Whether the device has failed: the sentence, once and for all. Any thread, also beside
     * operations. NULL: it cannot. */
    ddp_status (*check)(struct ddpi_memory *memory, struct ddp_error *err);

    /* Free everything; no run is left. NULL: there is nothing. */
    void (*destroy)(struct ddpi_memory *memory);
};

/* A type as one communicator uses it; types put their own state behind it. */
struct ddpi_memory {
    const struct ddpi_memory_type *type;
};

enum { DDPI_MEMORY_TYPES_MAX = 4 };

/* The types of a communicator. */
struct ddpi_memories {
    const struct ddpi_memory_type *const *types; /* ends with the type of host memory */
    _Atomic(struct ddpi_memory *) open[DDPI_MEMORY_TYPES_MAX]; /* by type; NULL: not opened */
    struct ddpi_memory host;
    void *symbols[DDPI_MEMORY_TYPES_MAX]; /* by type; NULL: its library is not loaded */
    unsigned long long linker_version; /* when symbols were looked up; it changes when the dynamic
                                          linker loads or unloads something */
    _Atomic unsigned long long known_version; /* no type is to be opened while this is it */
};

void ddpi_memories_init(struct ddpi_memories *memories,
                        const struct ddpi_memory_type *const *types);

void ddpi_memories_read_stats(const struct ddpi_memories *memories, struct ddp_comm_stats *stats);
ddp_status ddpi_memories_check(const struct ddpi_memories *memories, struct ddp_error *err);
void ddpi_memories_destroy(struct ddpi_memories *memories);

#endif
