/*
 * player.c - reads orders "CALL BYTES ITERS", one a line, carries them out, and lets rank 0 answer
 * "MICROSECONDS WRONG": the time of one call on the slowest rank, and how many elements were wrong
 * in the call before, which is not timed. Owns the buffers.
 *
 * DDP_PERF_TURNS is the path of the FIFOs without their ends: ".RANK" for orders, ".answer".
 */
#include "player.h"

#include "parse.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 128, PATH = 4096 };

/* Where the bytes of a call are: those of one rank, or of all. */
static const struct shape {
    const char *name;
    int in_place;
    int all_send, all_recv; /* the buffer has a part for each rank */
    int sums;               /* every element is the sum of all ranks, else of one rank */
    int buffers;            /* it has any */
    int total;              /* BYTES are those of all parts, as in nccl-tests */
} shapes[] = {
    {"allreduce", .in_place = 1, .sums = 1, .buffers = 1},
    {"broadcast", .in_place = 1, .buffers = 1},
    {"allgather", .all_recv = 1, .buffers = 1, .total = 1},
    {"reducescatter", .all_send = 1, .sums = 1, .buffers = 1, .total = 1},
    {"alltoall", .all_send = 1, .all_recv = 1, .buffers = 1, .total = 1},
    {"barrier", .buffers = 0},
};

void player_fail(int rank, const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    exit(1);
}

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, name) == 0)
            return &shapes[i];
    return NULL;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static FILE *open_fifo(const struct player *player, const char *end, const char *mode)
{
    const char *turns = getenv("DDP_PERF_TURNS");
    char path[PATH];
    if (turns == NULL)
        player_fail(player->rank, "DDP_PERF_TURNS is not set: a benchmark starts this program");
    snprintf(path, sizeof path, "%s.%s", turns, end);
    FILE *file = fopen(path, mode);
    if (file == NULL)
        player_fail(player->rank, "cannot open a FIFO of the benchmark");
    return file;
}

/* What this rank gives: its number from 1, so that a wrong part is seen. */
static void fill(const struct player *player, const struct player_call *call, size_t count)
{
    for (size_t i = 0; i < count; i++)
        call->send[i] = (float)(player->rank + 1);
}

static float expected(const struct player *player, const struct shape *shape, size_t part)
{
    int ranks = player->ranks;
    if (shape->sums)
        return (float)(ranks * (ranks + 1) / 2);
    return shape->all_recv ? (float)(part + 1) : 1.0F; /* the root is rank 0 */
}

static uint64_t count_wrong(const struct player *player, const struct shape *shape,
                            const struct player_call *call)
{
    size_t parts = shape->all_recv ? (size_t)player->ranks : 1;
    uint64_t wrong = 0;
    for (size_t part = 0; part < parts; part++)
        for (size_t i = 0; i < call->count; i++)
            wrong += call->recv[part * call->count + i] != expected(player, shape, part);
    return wrong;
}

/* Carry out one order; returns the time of a call in microseconds. */
static double play(const struct player *player, const struct shape *shape, struct player_call *call,
                   size_t iters, double *ret_wrong)
{
    size_t sent = call->count * (shape->all_send ? (size_t)player->ranks : 1);
    fill(player, call, sent);
    player->run(call);
    *ret_wrong = player->slowest((double)count_wrong(player, shape, call));
    if (sent > 0) /* a barrier sends nothing, from nowhere */
        memset(call->send, 0, sent * sizeof *call->send);
    player->run(call);
    player->synchronize();
    double began_us = now_us();
    for (size_t i = 0; i < iters; i++)
        player->run(call);
    return player->slowest((now_us() - began_us) / (double)iters);
}

static size_t elements_of(const struct player *player, const struct shape *shape, size_t bytes)
{
    size_t count = bytes / sizeof(float) / (shape->total ? (size_t)player->ranks : 1);
    if (!shape->buffers)
        return 0;
    return count > 0 ? count : 1;
}

/* A word of an order that is a number. */
static bool read_number(char **rest, const char *end, size_t *ret)
{
    int64_t number = 0;
    const char *word = strtok_r(NULL, end, rest);
    if (word == NULL || ddpi_parse_int(word, 0, INT64_MAX, &number, NULL) != DDP_OK)
        return false;
    *ret = (size_t)number;
    return true;
}

/* The next order; false: there are no more. */
static bool read_order(FILE *orders, const struct shape **ret_shape, size_t *ret_bytes,
                       size_t *ret_iters)
{
    char line[LINE];
    char *rest = line;
    if (fgets(line, sizeof line, orders) == NULL)
        return false;
    const char *name = strtok_r(rest, " ", &rest);
    *ret_shape = name != NULL ? find_shape(name) : NULL;
    return *ret_shape != NULL && read_number(&rest, " ", ret_bytes) &&
           read_number(&rest, "\n", ret_iters) && *ret_iters > 0;
}

int player_serve(const struct player *player)
{
    const struct shape *shape;
    char number[32];
    size_t bytes, iters;
    snprintf(number, sizeof number, "%d", player->rank);
    FILE *orders = open_fifo(player, number, "r");
    FILE *answers = player->rank == 0 ? open_fifo(player, "answer", "w") : NULL;
    size_t room = 0;
    struct player_call call = {0};
    while (read_order(orders, &shape, &bytes, &iters)) {
        call.name = shape->name;
        call.count = elements_of(player, shape, bytes);
        size_t len = call.count * sizeof(float) * (size_t)player->ranks;
        if (len > room) {
            call.send = player->alloc(len);
            call.recv = player->alloc(len);
            room = len;
        }
        struct player_call now = call;
        now.recv = shape->in_place ? call.send : call.recv;
        double wrong, us = play(player, shape, &now, iters, &wrong);
        if (answers != NULL &&
            (fprintf(answers, "%.3f %.0f\n", us, wrong) < 0 || fflush(answers) != 0))
            player_fail(player->rank, "cannot answer the benchmark");
    }
    return 0;
}
