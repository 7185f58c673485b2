/*
 * tcp.h - what all connections by TCP want of the kernel.
 */
#ifndef DDPI_TCP_H
#define DDPI_TCP_H

/*
 * Let @fd send small messages at once, and end with ETIMEDOUT when the machine at its other end has
 * been silent for 10 s while nothing was to be sent. Without effect on other sockets than those of
 * TCP.
 *
 * Where something is under way there are no probes, and it takes a quarter of an hour to give up.
 * TCP_USER_TIMEOUT shortens that, but Linux also counts the time in which a machine that lives
 * acknowledges no more, since a program there does not read: that is for the caller to decide.
 */
void ddpi_tune_tcp(int fd);

#endif
