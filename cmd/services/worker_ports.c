/*
 * worker_ports.c - see worker_ports.h.
 */
#include "worker_ports.h"

#include "host.h"
#include "mem.h"

#include <unistd.h>

enum { TRIES = 64 }; /* places at which a row of ports may begin */

static void release(struct worker_ports *ports, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        close(ports->fds[i]);
    ports->first = 0;
}

/* A row that begins at a port that the kernel chooses. */
static void reserve_row(struct worker_ports *ports)
{
    uint32_t count = 0;
    uint16_t port = 0;
    while (count < ports->count && (count == 0 || port < UINT16_MAX) &&
           host_reserve_port(count == 0 ? 0 : (uint16_t)(port + 1), &ports->fds[count], &port,
                             NULL) == DDP_OK)
        count++;
    if (count == ports->count)
        ports->first = (uint16_t)(port - count + 1);
    else
        release(ports, count);
}

void worker_ports_init(struct worker_ports *ports, uint32_t count)
{
    *ports = (struct worker_ports){.count = count};
}

void worker_ports_keep(struct worker_ports *ports, uint64_t generation)
{
    ports->generation = generation;
}

void worker_ports_renew(struct worker_ports *ports, uint64_t generation)
{
    if (ports->chosen && ports->generation == generation)
        return;
    ports->chosen = true;
    ports->generation = generation;
    if (ports->first != 0)
        release(ports, ports->count);
    if (ports->fds == NULL)
        ports->fds = ddpi_calloc(ports->count, sizeof *ports->fds);
    for (int i = 0; i < TRIES && ports->fds != NULL && ports->first == 0; i++)
        reserve_row(ports);
}

void worker_ports_close(struct worker_ports *ports)
{
    if (ports->first != 0)
        release(ports, ports->count);
    ddpi_free(ports->fds);
    ports->fds = NULL;
}
