/*
 * probe_state.c - a worker that prints what it was born with: descriptors, session, group, the
 * signal that its parent's death sends, blocked and ignored signals. One line each, "name value".
 * The page that lets its agent see it die, DDPRUN_LIFE_FD, is no descriptor to speak of, and
 * neither are DDPRUN_FLIGHT_FD, the memory of its flight recorder, and PMI_FD, the socket of the
 * MPI process manager.
 */
#include "flight_file.h"
#include "life_slot.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FDS_SEEN = 4096 };

static bool is_pmi_socket(int fd)
{
    const char *text = getenv("PMI_FD");
    return text != NULL && strtol(text, NULL, 10) == fd;
}

static bool is_sealed(int fd, int wanted)
{
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & wanted) == wanted;
}

static bool is_memory(int fd, const char *variable, int seals)
{
    const char *text = getenv(variable);
    return text != NULL && *text != '\0' && strtol(text, NULL, 10) == fd && is_sealed(fd, seals);
}

static bool is_shared_memory(int fd)
{
    return is_memory(fd, DDPI_LIFE_FD_ENV, DDPI_LIFE_SEALS) ||
           is_memory(fd, DDPI_FLIGHT_FD_ENV, DDPI_FLIGHT_SEALS);
}

static void print_descriptors(void)
{
    printf("fds");
    for (int fd = 0; fd < FDS_SEEN; fd++)
        if (fcntl(fd, F_GETFD) >= 0 && !is_shared_memory(fd) && !is_pmi_socket(fd))
            printf(" %d", fd);
    printf("\n");
}

static void print_signals(void)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    printf("blocked");
    for (int sig = 1; sig < NSIG; sig++)
        if (sigismember(&mask, sig) == 1)
            printf(" %d", sig);
    printf("\nignored");
    for (int sig = 1; sig < NSIG; sig++) {
        struct sigaction action;
        if (sigaction(sig, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            printf(" %d", sig);
    }
    printf("\n");
}

int main(void)
{
    int death_signal = 0;
    prctl(PR_GET_PDEATHSIG, &death_signal);
    print_descriptors();
    printf("own_session %d\n", getsid(0) == getpid());
    printf("own_group %d\n", getpgrp() == getpid());
    printf("death_signal %d\n", death_signal);
    print_signals();
    return 0;
}
