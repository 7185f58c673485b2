/*
 * peer_fate.h - what has become of a peer: whether its process lives, which its connections alone
 * do not say. A child that it has forked may hold them open when it is dead; and they may end while
 * it lives, as programs close descriptors that are not theirs and networks cut connections.
 *
 * On this machine the kernel says whose a Unix socket is and when that process has ended. Of a
 * process on another machine we know that it is dead when nobody listens any more where it did.
 */
#ifndef DDPI_PEER_FATE_H
#define DDPI_PEER_FATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum ddpi_fate {
    DDPI_FATE_UNASKED,
    DDPI_FATE_UNKNOWN,
    DDPI_FATE_DEAD,
    DDPI_FATE_ALIVE,
    DDPI_FATE_SILENT, /* its machine does not answer */
};

/* The process at the other end of a Unix socket. */
struct ddpi_process {
    int pidfd; /* -1: not known, or this process, or over */
    int pid;
    bool over; /* it had ended before we could look */
};

/* Look whose the other end of @fd is: who has connected, or, seen from there, who listens. */
void ddpi_process_find(int fd, struct ddpi_process *ret_process);
void ddpi_process_finish(struct ddpi_process *process);

/* It has ended, with all its threads. Where nothing is known: false. */
bool ddpi_process_ended(const struct ddpi_process *process);

/* What has become of a process whose connection has ended. Does not block, unless there is no
 * /proc: then up to a second. */
enum ddpi_fate ddpi_process_fate(const struct ddpi_process *process);

/* Where a process listened of which a connection has ended. */
struct ddpi_door {
    const struct sockaddr_storage *address;
    enum ddpi_fate fate; /* what ddpi_doors_ask() has found */
    int fd;              /* the rest is its own */
    int error;
    int knocks;
};

/* What has become of those who listened at @doors, all at the same time. Blocks for up to a second
 * in all, unless all are dead. */
void ddpi_doors_ask(struct ddpi_door *doors, size_t count);

#endif
