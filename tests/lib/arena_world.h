/*
 * arena_world.h - ranks that share an arena, all in one thread: they are advanced in any order, as
 * nothing in an arena blocks. Each has buffers that all see (windows.h), and others of its own.
 */
#ifndef TESTS_ARENA_WORLD_H
#define TESTS_ARENA_WORLD_H

#include "arena_op.h"

enum { ARENA_WORLD_MOST = 17 }; /* ranks */

struct arena_rank {
    struct ddpi_arena *arena;
    struct ddpi_windows windows;
    uint8_t *send, *recv;   /* in windows of their own */
    uint8_t *plain;         /* memory that only this rank sees */
    uint8_t *result, *want; /* of both ways */
    struct ddpi_task task;
    struct ddpi_arena_op op;
};

extern struct arena_world {
    uint32_t count; /* ranks */
    size_t room;    /* bytes of each buffer */
    struct arena_rank ranks[ARENA_WORLD_MOST];
} world;

/* Worlds of a multiple of 4 ranks are crowded. */
void arena_world_open(uint32_t nranks, size_t bytes);
void arena_world_close(void);

/* Begin on rank @i: a call with these buffers; or a task with its call, buffers and parts. */
void arena_world_begin(uint32_t i, const struct ddpi_call *call, const void *send, void *recv);
void arena_world_begin_task(uint32_t i, const struct ddpi_task *task);

/* Whether @rank has ended. */
bool arena_world_advance(uint32_t rank);

/* Until all have ended. The order in which ranks run depends on @seed. */
void arena_world_run_all(uint64_t seed);

/* Let the next operations take @path where it is possible. */
void arena_world_set_path(enum ddpi_copy_path path);

#endif
