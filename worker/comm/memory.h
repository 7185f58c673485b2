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

/* A buffer, as its type knows it. */
struct ddpi_buffer {
    struct ddpi_memory *memory; /* its type; NULL: there is no buffer */
    void *context;              /* the rest is for the type; zeros for host memory */
    int ordinal;
    uint64_t allocation; /* tells an allocation apart from all earlier ones of this process */
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

    /* Run @task, or enqueue it on @stream. DDP_E_INVALID: nothing was done. */
    ddp_status (*run)(struct ddpi_memory *memory, struct ddp_comm *comm, struct ddpi_task *task,
                      const struct ddpi_buffers *buffers, void *stream, struct ddp_error *err);

    /* Fill @stats, @size excepted. */
    void (*read_stats)(struct ddpi_memory *memory, const struct ddp_comm *comm,
                       struct ddp_comm_stats *stats);

    /* The rest is NULL for host memory, which enqueues nothing. */

    /* Operations are enqueued, so the communicator belongs to the thread of the type. Wait until
     * none is. */
    bool (*is_busy)(struct ddpi_memory *memory);
    void (*drain)(struct ddpi_memory *memory);

    /* End what is enqueued, as ddp_comm_abort() does, and the thread. Then free everything. */
    void (*stop)(struct ddpi_memory *memory);
    void (*destroy)(struct ddpi_memory *memory);
};

/* A type as one communicator uses it; types put their own state behind it. */
struct ddpi_memory {
    const struct ddpi_memory_type *type;
};

enum { DDPI_MEMORY_TYPES_MAX = 4 };

/* The types of a communicator. */
struct ddpi_memories {
    const struct ddpi_memory_type *const *types;     /* ends with the type of host memory */
    struct ddpi_memory *open[DDPI_MEMORY_TYPES_MAX]; /* by type; NULL: not opened */
    struct ddpi_memory host;
    void *symbols[DDPI_MEMORY_TYPES_MAX]; /* by type; NULL: its library is not loaded */
    unsigned long long adds, subs; /* objects that the dynamic linker had loaded and unloaded when
                                      symbols were looked up */
};

void ddpi_memories_init(struct ddpi_memories *memories,
                        const struct ddpi_memory_type *const *types);

/* Whether operations are enqueued: then only ddpi_memories_read_stats() may look at the
 * communicator. */
bool ddpi_memories_are_busy(const struct ddpi_memories *memories);
void ddpi_memories_read_stats(const struct ddpi_memories *memories, const struct ddp_comm *comm,
                              struct ddp_comm_stats *stats);

/* Wait until no type but @but (may be NULL) has operations in its queue. */
void ddpi_memories_drain(const struct ddpi_memories *memories, const struct ddpi_memory *but);

void ddpi_memories_stop(const struct ddpi_memories *memories);
void ddpi_memories_destroy(struct ddpi_memories *memories);

#endif
