/*
 * listeners.h - the addresses a server listens on: those its owner asked for, and the data ports of
 * jobs, which close with the session of the client that opened one, or with the generation for
 * which the server did. Owns the listeners.
 */
#ifndef DDPI_LISTENERS_H
#define DDPI_LISTENERS_H

#include "dialect.h"
#include "listener.h"

struct ddpi_listeners {
    struct ddpi_listener_env env;
    const struct ddpi_gate *gate;
    bool tls;
    uint32_t max_data_ports;
    struct ddpi_list all; /* ddpi_listener::of_server */
    unsigned open;        /* listeners whose handles are not closed yet */
};

/* Where to listen, and for which clients. */
struct ddpi_listen_at {
    const char *host;
    uint16_t port;
    char job[DDPI_JOB_MAX + 1]; /* "": any */
    uint64_t session;           /* the listener closes with this session; 0: none */
    uint64_t generation;        /* ... or with this generation of the job; 0: none */
};

/* The server's owner asked for it: it stays until the server is drained or closed. */
static inline bool ddpi_listener_is_permanent(const struct ddpi_listener *listener)
{
    return listener->session == 0 && listener->generation == 0;
}

/* @ret may be NULL. DDP_E_DENIED: the address takes a token, and there is none. */
ddp_status ddpi_listeners_add(struct ddpi_listeners *listeners, const struct ddpi_listen_at *at,
                              const struct ddpi_listener **ret, struct ddp_error *err);
/* Take over a listening socket, as ddpi_server_adopt(). */
ddp_status ddpi_listeners_adopt(struct ddpi_listeners *listeners, int fd, struct ddp_error *err);

/* The permanent ones, in the order in which they were added; NULL beyond the last. */
const struct ddpi_listener *ddpi_listeners_at(const struct ddpi_listeners *listeners, size_t index);

/* DDP_E_LIMIT: clients may open no further data port. */
ddp_status ddpi_listeners_check_room(const struct ddpi_listeners *listeners, struct ddp_error *err);

/* Close the data ports of @job, or of @session; or all listeners. */
void ddpi_listeners_close_job(struct ddpi_listeners *listeners, const char *job);
void ddpi_listeners_close_session(struct ddpi_listeners *listeners, uint64_t session);
void ddpi_listeners_close_all(struct ddpi_listeners *listeners);

#endif
