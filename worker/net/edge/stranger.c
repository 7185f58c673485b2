/*
 * stranger.c - see stranger.h. Owns nothing that outlives a call.
 */
#include "stranger.h"

#include "thread.h"

#include <linux/close_range.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

bool ddpi_peer_is_ours(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

void ddpi_pass_rights(int fd, bool allowed)
{
    int value = allowed;
    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof value);
}

/* Closing does not linger in an exiting thread. So a thread gets a descriptor table of its own, and
 * the last reference to the connection goes when it ends. */
struct closing {
    sem_t copied, closed;
};

static void *keep_until_closed(void *arg)
{
    struct closing *closing = arg;
    (void)syscall(SYS_close_range, ~0U, ~0U, CLOSE_RANGE_UNSHARE);
    sem_post(&closing->copied);
    while (sem_wait(&closing->closed) != 0)
        ;
    return NULL;
}

static void close_by_thread(int fd)
{
    struct closing closing;
    pthread_t thread;
    sem_init(&closing.copied, 0, 0);
    sem_init(&closing.closed, 0, 0);
    bool started = ddpi_thread_start(&thread, 0, keep_until_closed, &closing) == 0;
    while (started && sem_wait(&closing.copied) != 0)
        ;
    close(fd);
    if (!started)
        return;
    sem_post(&closing.closed);
    pthread_join(thread, NULL);
}

void ddpi_close_stranger(int fd)
{
    int value;
    socklen_t len = sizeof value;
    bool none_there = getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, &len) == 0 && value == 0;
    if (none_there)
        close(fd);
    else
        close_by_thread(fd);
}
