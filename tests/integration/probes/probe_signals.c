/*
 * probe_signals.c - a worker that prints "ready", then "got SIGNAL" for each signal that arrives.
 * SIGUSR1 and SIGUSR2 do not end it. Others do, with exit code 0, unless its argument is "stay".
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    bool stay = argc > 1 && strcmp(argv[1], "stay") == 0;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    setlinebuf(stdout);
    printf("ready\n");
    for (;;) {
        int sig;
        if (sigwait(&all, &sig) != 0)
            continue;
        printf("got SIG%s\n", sigabbrev_np(sig));
        if (!stay && sig != SIGUSR1 && sig != SIGUSR2)
            return 0;
    }
}
