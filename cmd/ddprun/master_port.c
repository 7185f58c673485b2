/*
 * master_port.c - reserves a port, and asks the kernel who shares it. Owns the reserving socket.
 */
#include "master_port.h"

#include "error.h"
#include "host.h"

#include <unistd.h>

enum { TRIES = 8 }; /* ports to try while other users are on each */

static ddp_status master_port_check(void *ctx, uint16_t number, bool failed, struct ddp_error *err)
{
    struct master_port *port = ctx;
    uint32_t owner;
    if (!port->watched ||
        !ddpi_owners_stranger_on(&port->owners, number, failed || port->met, &owner))
        return DDP_OK;
    port->met = true;
    return ddpi_error_set(
        err, DDP_E_DENIED,
        "another user of this machine (number %u) has a socket on port %u, which is kept for rank "
        "0 (MASTER_PORT), and could impersonate it; end that process, choose another "
        "--master-port, or ignore it with --trust-local-users",
        owner, number);
}

void master_port_init(struct master_port *port)
{
    *port = (struct master_port){.fd = -1, .agent = {.check = master_port_check, .ctx = port}};
}

ddp_status master_port_keep(struct master_port *port, uint16_t asked, bool watched,
                            struct ddp_error *err)
{
    port->asked = asked != 0;
    port->watched = watched;
    port->number = asked;
    ddpi_owners_init(&port->owners);
    return host_reserve_port(asked, &port->fd, &port->number, err);
}

void master_port_renew(struct master_port *port)
{
    for (int i = 0; i < TRIES && port->fd >= 0 && !port->asked &&
                    master_port_check(port, port->number, false, NULL) != DDP_OK;
         i++) {
        int fd;
        if (host_reserve_port(0, &fd, &port->number, NULL) != DDP_OK)
            return; /* workers do not start with this port */
        close(port->fd);
        port->fd = fd;
    }
}

void master_port_close(struct master_port *port)
{
    if (port->fd >= 0)
        close(port->fd);
    port->fd = -1;
}
