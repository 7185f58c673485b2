/*
 * listener.h - a listening socket on the loop, which passes on connections. It does not know the
 * protocol.
 */
#ifndef DDPI_LISTENER_H
#define DDPI_LISTENER_H

#include "list.h"
#include "log.h"
#include "proof.h"

#include <ddprun/status.h>
#include <stdint.h>
#include <uv.h>

enum { DDPI_ENDPOINT_MAX = 300 };

struct ddpi_listener;

/* What the listeners of a server share; outlives them. */
struct ddpi_listener_env {
    uv_loop_t *loop;
    const struct ddpi_log *log;
    void *owner;
    /* A connection from @peer; the hook takes over the descriptor. */
    void (*connected)(void *owner, const struct ddpi_listener *listener, int fd,
                      const struct sockaddr *peer);
    void (*shed)(void *owner);   /* one was closed for lack of descriptors */
    void (*closed)(void *owner); /* the listener has been freed */
};

struct ddpi_listener {
    struct ddpi_list of_server;
    const struct ddpi_listener_env *env;
    int fd;
    int reserve_fd; /* -1: none */
    uint16_t port;
    unsigned handles; /* not closed yet */
    uv_poll_t poll;
    uv_timer_t pause; /* until accepting goes on */
    char endpoint[DDPI_ENDPOINT_MAX];
    char job[DDPI_JOB_MAX + 1]; /* these three belong to the owner */
    uint64_t session;
    uint64_t generation;
};

/* Takes over @fd, which ddpi_listen() or ddpi_listen_check() approved, also when it fails. */
ddp_status ddpi_listener_create(const struct ddpi_listener_env *env, int fd,
                                struct ddpi_listener **ret, struct ddp_error *err);

/* Stop listening; the hook `closed` is called from the loop. */
void ddpi_listener_close(struct ddpi_listener *listener);

#endif
