/*
 * probe_tree.c - a worker with descendants that nobody can easily end: they ignore every polite
 * signal and flee into sessions of their own, one as a child, one as a grandchild, one as a daemon
 * that no parent waits for. Prints "ready" when all are up, and then
 *
 *     probe_tree wait      waits for ever, ignoring polite signals
 *     probe_tree exit N    exits with code N, and leaves the others behind
 *     probe_tree flee      starts a process that for ever forks and exits, so that no pid lasts
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DESCENDANTS = 3 };

static void ignore_polite_signals(void)
{
    static const int polite[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    for (size_t i = 0; i < sizeof polite / sizeof *polite; i++)
        signal(polite[i], SIG_IGN);
}

static _Noreturn void wait_for_ever(void)
{
    for (;;)
        pause();
}

static _Noreturn void descend(int up_fd)
{
    if (setsid() < 0 || write(up_fd, "", 1) != 1)
        _exit(1);
    wait_for_ever();
}

/* A child in its own session, and a child of that in another. */
static void start_line(int up_fd)
{
    if (fork() != 0)
        return;
    if (fork() == 0)
        descend(up_fd);
    descend(up_fd);
}

static void start_daemon(int up_fd)
{
    if (fork() != 0)
        return;
    setsid();
    if (fork() != 0)
        _exit(0);
    descend(up_fd);
}

static void start_fleeing(void)
{
    if (fork() != 0)
        return;
    for (;;) {
        pid_t pid = fork();
        if (pid > 0)
            _exit(0);
        setsid();
    }
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "wait";
    int up[2];
    char byte;
    ignore_polite_signals();
    if (pipe(up) != 0)
        return 1;
    start_line(up[1]);
    start_daemon(up[1]);
    for (int i = 0; i < DESCENDANTS; i++)
        if (read(up[0], &byte, 1) != 1)
            return 1;
    if (strcmp(mode, "flee") == 0)
        start_fleeing();
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    if (strcmp(mode, "exit") == 0)
        return argc > 2 ? argv[2][0] - '0' : 0;
    wait_for_ever();
}
