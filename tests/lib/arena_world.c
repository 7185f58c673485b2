/*
 * arena_world.c - see arena_world.h. Owns the world.
 */
#include "arena_world.h"

#include "check_main.h"
#include "elements.h"

#include <stdlib.h>
#include <unistd.h>

struct arena_world world;

static uint8_t *add_window(uint32_t rank, size_t bytes)
{
    struct ddp_error err;
    void *window;
    ck_assert_int_eq(ddpi_windows_make(&world.ranks[rank].windows, bytes, &window, &err), DDP_OK);
    return window;
}

static void make_arena(uint32_t i)
{
    struct arena_rank *rank = &world.ranks[i];
    uint32_t count = world.count;
    struct ddp_error err;
    if (i == 0)
        ck_assert_int_eq(ddpi_arena_create(count, count % 4 == 0, &rank->arena, &err), DDP_OK);
    else
        ck_assert_int_eq(
            ddpi_arena_attach(dup(ddpi_arena_fd(world.ranks[0].arena)), count, &rank->arena, &err),
            DDP_OK);
    ddpi_arena_enter(rank->arena, i);
    ddpi_windows_init(&rank->windows);
    ddpi_arena_set_windows(rank->arena, &rank->windows);
}

void arena_world_open(uint32_t nranks, size_t bytes)
{
    world.count = nranks;
    world.room = bytes;
    for (uint32_t i = 0; i < nranks; i++) {
        struct arena_rank *rank = &world.ranks[i];
        *rank = (struct arena_rank){
            .plain = malloc(bytes), .result = malloc(bytes), .want = malloc(bytes)};
        ck_assert(rank->plain != NULL && rank->result != NULL && rank->want != NULL);
        make_arena(i);
        rank->send = add_window(i, bytes);
        rank->recv = add_window(i, bytes);
    }
}

void arena_world_close(void)
{
    for (uint32_t i = 0; i < world.count; i++) {
        struct arena_rank *rank = &world.ranks[i];
        ddpi_windows_finish(&rank->windows, false);
        ddpi_arena_destroy(rank->arena);
        free(rank->plain);
        free(rank->result);
        free(rank->want);
    }
}

void arena_world_begin(uint32_t i, const struct ddpi_call *call, const void *send, void *recv)
{
    arena_world_begin_task(
        i, &(struct ddpi_task){
               .call = *call, .send = send, .recv = recv, .factor = i % 2 == 0 ? 0.5 : 3});
}

void arena_world_begin_task(uint32_t i, const struct ddpi_task *task)
{
    struct arena_rank *rank = &world.ranks[i];
    struct ddp_error err = {0};
    rank->task = *task;
    ck_assert_msg(ddpi_task_prepare(&rank->task, i, world.count, &err) == DDP_OK, "%s", err.msg);
    ddpi_arena_begin(&rank->op, rank->arena, &rank->task);
}

bool arena_world_advance(uint32_t rank)
{
    struct ddp_error err = {0};
    enum ddpi_arena_result result = ddpi_arena_advance(&world.ranks[rank].op, &err);
    ck_assert_msg(result == DDPI_ARENA_RESULT_WAITS || result == DDPI_ARENA_RESULT_COMPLETE,
                  "rank %u: %d, %s", rank, (int)result, err.msg);
    return result == DDPI_ARENA_RESULT_COMPLETE;
}

void arena_world_run_all(uint64_t seed)
{
    bool ended[ARENA_WORLD_MOST] = {false};
    for (uint32_t left = world.count; left > 0;) {
        uint32_t rank = (uint32_t)(elements_scramble(&seed) % world.count);
        if (ended[rank])
            continue;
        ended[rank] = arena_world_advance(rank);
        left -= ended[rank];
    }
}

/* As if all had been tried, and this one taken the least time. */
void arena_world_set_path(enum ddpi_copy_path path)
{
    struct ddpi_copy_class tried = {.count = DDPI_COPY_PATHS * DDPI_COPY_TRIES};
    for (unsigned other = 0; other < DDPI_COPY_PATHS; other++)
        tried.least[other] = other == (unsigned)path ? 1 : 1000000000; /* for each MiB */
    for (uint32_t i = 0; i < world.count; i++)
        for (unsigned kind = 0; kind < DDPI_OPERATIONS; kind++)
            for (unsigned k = 0; k < DDPI_COPY_CLASSES; k++)
                ddpi_arena_copy_choice(world.ranks[i].arena, (enum ddpi_operation)kind)
                    ->classes[k] = tried;
}
