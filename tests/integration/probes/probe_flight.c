/*
 * probe_flight.c - ranks that come to a halt in a collective, for who wants to know which.
 *
 *     probe_flight behind RANK    RANK does not make the third call
 *     probe_flight differ RANK    RANK makes another call than the others, and all fail
 *     probe_flight counts RANK    RANK has other counts in an all_gather
 *     probe_flight pairs RANK     RANK has other counts in an all_to_all
 *     probe_flight absent RANK    RANK makes no communicator
 *
 * None ends by itself, nor by SIGTERM. Each rank prints a line before its last call.
 */
#include <ddprun/comm.h>
#include <ddprun/comm_requests.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 100 };

static void expect(ddp_status status, const struct ddp_error *err, const char *what)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static void halt(void)
{
    for (;;)
        pause();
}

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}

/* The same on all ranks in number and sum; of @odd in another order. */
static ddp_status call_uneven(ddp_comm *comm, bool in_pairs, bool odd, struct ddp_error *err)
{
    static float send[COUNT], recv[COUNT];
    uint32_t rank = ddp_comm_rank(comm), ranks = ddp_comm_world_size(comm);
    size_t counts[COUNT] = {0}, equal[COUNT] = {0};
    for (uint32_t i = 0; i < ranks; i++)
        counts[i] = equal[i] = 2;
    counts[(rank + 1) % ranks] += odd;
    counts[(rank + 2) % ranks] -= odd;
    struct ddp_operation operation = {.size = sizeof operation,
                                      .kind = DDP_KIND_ALL_GATHER,
                                      .send = send,
                                      .recv = recv,
                                      .count = counts[rank],
                                      .recv_counts = counts,
                                      .uneven = 1,
                                      .dtype = DDP_FLOAT32};
    if (in_pairs) {
        operation.kind = DDP_KIND_ALL_TO_ALL;
        operation.send_counts = counts;
        operation.recv_counts = equal;
    }
    return ddp_run(comm, &operation, err);
}

int main(int argc, char **argv)
{
    float values[COUNT] = {0};
    ddp_comm *comm;
    struct ddp_error err = {0};
    const char *rank = getenv("RANK");
    if (argc != 3 || rank == NULL)
        return 2;
    bool odd = strcmp(rank, argv[2]) == 0, differs = strcmp(argv[1], "differ") == 0;
    signal(SIGTERM, SIG_IGN);
    say("ready");
    if (odd && strcmp(argv[1], "absent") == 0)
        halt();
    expect(ddp_comm_init(NULL, &comm, &err), &err, "init");
    for (int i = 0; i < 2; i++)
        expect(ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, &err), &err,
               "all_reduce");
    say("last call");
    if (strcmp(argv[1], "counts") == 0 || strcmp(argv[1], "pairs") == 0)
        (void)!call_uneven(comm, strcmp(argv[1], "pairs") == 0, odd, &err);
    else if (odd && !differs)
        halt();
    else if (odd)
        (void)!ddp_broadcast(comm, values, COUNT, DDP_FLOAT32, 0, NULL, &err);
    else
        (void)!ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, &err);
    halt();
}
