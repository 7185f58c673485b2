/*
 * worker.c - the worker of ddp-bench restart: writes a stamp on the board, and waits.
 *
 *     ddp-bench-worker BOARD [fork]
 *
 * With "fork" it starts two children, one of them in a session of its own.
 */
#include "bytes.h"
#include "clock.h"
#include "parse.h"
#include "perf_board.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_NS = 100 * 1000 * 1000, CHILDREN = 2 };

static uint32_t number(const char *text)
{
    int64_t value = 0;
    return text != NULL && ddpi_parse_int(text, 0, INT32_MAX, &value, NULL) == DDP_OK
               ? (uint32_t)value
               : 0;
}

/* N of ddprun's ".../gN/", or torchrun's restart count. */
static uint32_t generation(void)
{
    const char *prefix = getenv("DDPRUN_STORE_PREFIX");
    const char *at = prefix != NULL ? strrchr(prefix, 'g') : NULL;
    char text[16] = {0};
    if (at == NULL)
        return number(getenv("TORCHELASTIC_RESTART_COUNT"));
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at + 1, "/"), at + 1);
    return number(text);
}

static uint64_t digest_of(uint64_t before, const char *text)
{
    return text != NULL ? ddpi_digest64(before, text, strlen(text)) : before;
}

static uint64_t meeting(void)
{
    return digest_of(digest_of(DDPI_DIGEST64_NONE, getenv("MASTER_ADDR")), getenv("MASTER_PORT"));
}

static void stamp(struct perf_board *board, uint32_t world)
{
    uint32_t slot = atomic_fetch_add(&board->count, 1);
    if (slot >= PERF_BOARD_STAMPS)
        return;
    struct perf_stamp *mine = &board->stamps[slot];
    mine->pid = (int32_t)getpid();
    mine->world = world;
    mine->generation = generation();
    mine->meeting = meeting();
    mine->at_us = ddpi_monotonic_us();
    atomic_store(&mine->done, 1);
}

static void wait_for_the_end(const struct perf_board *board)
{
    const struct timespec look = {0, LOOK_NS};
    while (!atomic_load(&board->over) && kill(board->owner, 0) == 0)
        nanosleep(&look, NULL);
}

static void start_children(struct perf_board *board)
{
    for (int i = 0; i < CHILDREN; i++) {
        if (fork() != 0)
            continue;
        if (i > 0)
            setsid();
        signal(SIGTERM, SIG_IGN);
        stamp(board, 0);
        wait_for_the_end(board);
        _exit(0);
    }
}

int main(int argc, char **argv)
{
    const char *world = getenv("WORLD_SIZE");
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CLOEXEC) : -1;
    void *shared = mmap(NULL, sizeof(struct perf_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED || world == NULL)
        return 2;
    stamp(shared, number(world));
    if (argc > 2 && strcmp(argv[2], "fork") == 0)
        start_children(shared);
    wait_for_the_end(shared);
    return 0;
}
