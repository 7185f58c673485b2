/*
 * probe_ranks.c - ranks that meet, and keep meeting until somebody lets them go: for who wants to
 * come between them.
 *
 *     probe_ranks FILE
 *
 * Each rank says when it is there, and rank 0 again when its operations go on. When FILE is there,
 * rank 1 sends a number to rank 0, which says what it got, and how many descriptors it has.
 */
#include <ddprun/comm.h>
#include <dirent.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TELL_EVERY = 50, NUMBER = 4711 };

static void expect(ddp_status status, const struct ddp_error *err, const char *what)
{
    if (status == DDP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err->msg);
    exit(1);
}

static unsigned descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

/* Until the file is there. */
static void keep_meeting(ddp_comm *comm, const char *path, struct ddp_error *err)
{
    for (int32_t turn = 1, over = 0; !over; turn++) {
        over = ddp_comm_rank(comm) == 0 && access(path, F_OK) == 0;
        expect(ddp_broadcast(comm, &over, 1, DDP_INT32, 0, NULL, err), err, "broadcast");
        if (ddp_comm_rank(comm) == 0 && turn % TELL_EVERY == 0) {
            printf("turn %d\n", turn);
            fflush(stdout);
        }
        if (ddp_comm_rank(comm) != 0) /* rank 0 waits, and accepts meanwhile */
            poll(NULL, 0, 1);
    }
}

int main(int argc, char **argv)
{
    ddp_comm *comm;
    struct ddp_error err = {0};
    if (argc != 2)
        return 2;
    expect(ddp_comm_init(NULL, &comm, &err), &err, "init");
    printf("rank %u is process %d\n", ddp_comm_rank(comm), getpid());
    fflush(stdout);
    unsigned before = descriptors();
    keep_meeting(comm, argv[1], &err);
    int32_t number = NUMBER;
    if (ddp_comm_rank(comm) == 1)
        expect(ddp_send(comm, &number, 1, DDP_INT32, 0, NULL, &err), &err, "send");
    number = 0;
    if (ddp_comm_rank(comm) == 0) {
        expect(ddp_recv(comm, &number, 1, DDP_INT32, 1, NULL, &err), &err, "recv");
        printf("received %d, descriptors before %u, now %u\n", number, before, descriptors());
    }
    ddp_comm_destroy(comm);
    return 0;
}
