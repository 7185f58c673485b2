/*
 * probe_words.c - ranks that tell each other words, for who listens between them.
 *
 *     probe_words WORD OTHER
 *
 * Rank 0 tells all ranks WORD, along the ring, and rank 1 tells rank 0 OTHER, on a connection of
 * their own; each many times over, so that it stands in some packet unbroken. Who heard it says so.
 */
#include <ddprun/comm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 64 * 1024, BYTES = COUNT * sizeof(int32_t) };

static _Alignas(int32_t) char told[BYTES], heard[BYTES];

static void expect(ddp_status status, const struct ddp_error *err, const char *what)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static void repeat(const char *word)
{
    size_t len = strlen(word);
    for (size_t at = 0; at < BYTES; at++)
        told[at] = word[at % len];
}

static void compare(const char *word)
{
    if (memcmp(told, heard, BYTES) != 0)
        exit(1);
    printf("heard %s\n", word);
}

int main(int argc, char **argv)
{
    ddp_comm *comm;
    struct ddp_error err = {0};
    if (argc != 3 || *argv[1] == '\0' || *argv[2] == '\0')
        return 2;
    expect(ddp_comm_init(NULL, &comm, &err), &err, "init");
    uint32_t rank = ddp_comm_rank(comm);
    repeat(argv[1]);
    if (rank == 0)
        memcpy(heard, told, BYTES);
    expect(ddp_broadcast(comm, heard, COUNT, DDP_INT32, 0, NULL, &err), &err, "broadcast");
    compare(argv[1]);
    repeat(argv[2]);
    if (rank == 1)
        expect(ddp_send(comm, told, COUNT, DDP_INT32, 0, NULL, &err), &err, "send");
    if (rank == 0) {
        expect(ddp_recv(comm, heard, COUNT, DDP_INT32, 1, NULL, &err), &err, "recv");
        compare(argv[2]);
    }
    ddp_comm_destroy(comm);
    return 0;
}
