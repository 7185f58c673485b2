/*
 * peer_fate.h - what has become of a peer: whether its process lives. Its connections do not tell:
 * a forked child may hold them open after the peer has died, and they may end while it lives, as
 * programs close descriptors that are not theirs and networks cut connections.
 *
 * On this machine the kernel tells the process behind a Unix socket, and when it has ended. A
 * process on another machine is known to be dead when its listener no longer exists.
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
    bool over; /* it had ended before its descriptor was opened */
};

/* Find the process at the other end of @fd: the one that connected or, seen from there, the one
 * that listens. */
void ddpi_process_find(int fd, struct ddpi_process *ret_process);
void ddpi_process_finish(struct ddpi_process *process);

/* Whether it has ended, with all its threads. false if nothing is known. */
bool ddpi_process_ended(const struct ddpi_process *process);

/* The fate of a process whose connection has ended. Blocks up to a second without /proc. */
enum ddpi_fate ddpi_process_fate(const struct ddpi_process *process);

/* A question to the listener of a process whose connection has ended. */
struct ddpi_probe {
    const struct sockaddr_storage *address;
    enum ddpi_fate fate; /* result of ddpi_probe_all() */
    int fd;              /* the rest is internal */
    int error;
    int attempts;
};

/* Find out what has become of the processes that listened at the addresses of @probes, all at the
 * same time. Blocks for up to a second in all, unless all are dead. */
void ddpi_probe_all(struct ddpi_probe *probes, size_t count);

#endif
