/*
 * probe_flight.c - ranks that come to a halt in a collective, for who wants to know which.
 *
 *     probe_flight behind RANK    RANK does not make the third call
 *     probe_flight differ RANK    RANK makes another call than the others, and all fail
 *     probe_flight absent RANK    RANK makes no communicator
 *
 * None ends by itself, nor by SIGTERM. Each rank prints a line before its last call.
 */
#include <ddprun/comm.h>
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
    if (odd && !differs)
        halt();
    if (odd)
        (void)!ddp_broadcast(comm, values, COUNT, DDP_FLOAT32, 0, NULL, &err);
    else
        (void)!ddp_all_reduce(comm, values, values, COUNT, DDP_FLOAT32, DDP_SUM, NULL, &err);
    halt();
}
