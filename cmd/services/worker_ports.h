/*
 * worker_ports.h - free ports of this node for its workers to listen on: one, for a coordinator
 * that its first worker may run (JAX's), or one for each worker (TensorFlow's). Owns a socket on
 * each, which is bound and does not listen: the kernel then gives the port to nobody who asks for
 * any, and a worker can bind it.
 */
#ifndef CMD_WORKER_PORTS_H
#define CMD_WORKER_PORTS_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stdint.h>

struct worker_ports {
    int *fds;
    uint32_t count;
    uint16_t first; /* they follow each other; 0: none are reserved */
    bool chosen;    /* for the generation after @generation */
    uint64_t generation;
};

/* None are reserved yet; there will be @count. */
void worker_ports_init(struct worker_ports *ports, uint32_t count);

/* No worker of @generation or an earlier one runs: reserve new ports for the next one. Does nothing
 * if it has done so. Leaves @first 0 if so many free ones in a row are not found. */
void worker_ports_renew(struct worker_ports *ports, uint64_t generation);

/* Have worker_ports_renew() leave the ports that were chosen for @generation to the next one. */
void worker_ports_keep(struct worker_ports *ports, uint64_t generation);

void worker_ports_close(struct worker_ports *ports);

#endif
