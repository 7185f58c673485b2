/*
 * probe_lines.c - a worker that writes numbered lines in pieces that respect no line:
 *
 *     probe_lines COUNT FD...    COUNT lines to each FD in turn, "<fd RANK NUMBER filling>\n"
 *
 * The last line has no end. The sizes of the pieces are a fixed sequence, different for each rank.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_ROOM = 512, PIECE_MAX = 1500, FILL_MAX = 150, FDS = 3 };

struct output {
    int fd;
    char *bytes;
    size_t used;
    size_t sent;
};

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void compose(struct output *out, const char *rank, long count, unsigned *state)
{
    for (long i = 0; i < count; i++) {
        char fill[FILL_MAX + 1];
        size_t len = next_random(state) % FILL_MAX;
        memset(fill, 'a' + (int)(i % 26), len);
        fill[len] = '\0';
        out->used += (size_t)snprintf(out->bytes + out->used, LINE_ROOM, "<%d %s %ld %s>%s",
                                      out->fd, rank, i, fill, i + 1 < count ? "\n" : "");
    }
}

static int send_piece(struct output *out, unsigned *state)
{
    size_t piece = 1 + next_random(state) % PIECE_MAX;
    size_t left = out->used - out->sent;
    ssize_t sent = write(out->fd, out->bytes + out->sent, piece < left ? piece : left);
    if (sent < 0)
        return -1;
    out->sent += (size_t)sent;
    return 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    if (argc < 3 || argc > 2 + FDS || rank == NULL)
        return 2;
    long count = strtol(argv[1], NULL, 10);
    unsigned state = 1 + (unsigned)strtoul(rank, NULL, 10);
    struct output outs[FDS] = {0};
    int fds = argc - 2;
    for (int i = 0; i < fds; i++) {
        outs[i].fd = (int)strtol(argv[2 + i], NULL, 10);
        outs[i].bytes = malloc((size_t)count * LINE_ROOM);
        if (outs[i].bytes == NULL)
            return 2;
        compose(&outs[i], rank, count, &state);
    }
    for (int busy = fds; busy > 0;) {
        busy = 0;
        for (int i = 0; i < fds; i++) {
            if (outs[i].sent < outs[i].used && send_piece(&outs[i], &state) != 0)
                return 3;
            busy += outs[i].sent < outs[i].used;
        }
    }
    for (int i = 0; i < fds; i++)
        free(outs[i].bytes);
    return 0;
}
