/*
 * pmix_relay.h - passes the connections of ranks on to the PMIx server. The ranks know the port on
 * which the agent listens, since before there is a server; the server chooses its own.
 *
 * A connection that another user of this machine has made is refused: PMIx itself believes what a
 * client says about its user.
 */
#ifndef CMD_PMIX_RELAY_H
#define CMD_PMIX_RELAY_H

#include <ddprun/status.h>
#include <netinet/in.h>
#include <uv.h>

struct pmix_relay {
    uv_tcp_t listener;
    struct sockaddr_in server;
};

/* Accept connections of the socket @fd, which listens, for the server at @server, "127.0.0.1:PORT".
 * Takes @fd. */
DDP_MUST_CHECK ddp_status pmix_relay_open(struct pmix_relay *relay, uv_loop_t *loop, int fd,
                                          const char *server, struct ddp_error *err);

/* Pass on the connection @fd, too, which has been accepted. Takes @fd. */
DDP_MUST_CHECK ddp_status pmix_relay_adopt(struct pmix_relay *relay, int fd, struct ddp_error *err);

#endif
