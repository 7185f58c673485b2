/*
 * probe_life.c - a worker that links the collectives library, by which its agent sees it die.
 *
 *     hold MIB [EXIT]   rank 0 touches so much memory; prints "ready PID" and waits, or exits
 *     leave             gives its communicator back, and exits with 0
 *     scribble EXIT     writes at random into the page that the agent watches, wakes it all the
 *                       time, and exits with EXIT
 *
 * Who waits has a thread called "idler" besides, and when it is asked to stop it prints "told".
 */
#include "life_slot.h"

#include <ddprun/comm.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SCRIBBLE_MS = 300, SLOTS = 4 };

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long number(const char *text)
{
    return strtol(text, NULL, 10);
}

static void touch(size_t mib)
{
    char *memory =
        mmap(NULL, (mib + 1) << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(99);
    memset(memory, 1, mib << 20);
}

static void *idle(void *arg)
{
    prctl(PR_SET_NAME, "idler", 0, 0, 0);
    for (;;)
        pause();
    return arg;
}

static void wait_for_the_end(void)
{
    pthread_t idler;
    sigset_t term;
    int sig;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (pthread_create(&idler, NULL, idle, NULL) != 0)
        exit(96);
    printf("ready %d\n", (int)getpid());
    sigwait(&term, &sig);
    puts("told");
}

static void scribble(void)
{
    struct ddpi_life_slot *page = mmap(NULL, SLOTS * sizeof *page, PROT_READ | PROT_WRITE,
                                       MAP_SHARED, (int)number(getenv(DDPI_LIFE_FD_ENV)), 0);
    if (page == MAP_FAILED)
        exit(98);
    unsigned random = 1;
    for (long long end = now_ns() + SCRIBBLE_MS * 1000000LL; now_ns() < end;) {
        for (unsigned i = 0; i < SLOTS * sizeof *page; i++) {
            random = random * 1103515245 + 12345;
            ((unsigned char *)page)[i] = (unsigned char)(random >> 16);
        }
        for (unsigned i = 0; i < SLOTS; i++) {
            page[i].word |= FUTEX_OWNER_DIED;
            syscall(SYS_futex, &page[i].word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
    }
}

int main(int argc, char **argv)
{
    const struct ddp_comm_options options = {.size = sizeof options, .world_size = 1};
    static ddp_comm *comm; /* never given back, but not lost either */
    const char *mode = argc > 1 ? argv[1] : "";
    setlinebuf(stdout);
    if (ddp_comm_init(&options, &comm, NULL) != DDP_OK)
        return 97;
    if (strcmp(mode, "leave") == 0) {
        ddp_comm_destroy(comm);
        return 0;
    }
    if (strcmp(mode, "scribble") == 0) {
        scribble();
        return (int)number(argv[2]);
    }
    if (argc > 2 && strcmp(getenv("RANK"), "0") == 0)
        touch((size_t)number(argv[2]));
    if (argc > 3)
        return (int)number(argv[3]);
    wait_for_the_end();
    return 0;
}
