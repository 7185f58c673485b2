/*
 * horovod.h - the rendezvous that Gloo asks for in Horovod's programs: PUT, GET and DELETE of
 * /SCOPE/KEY over HTTP, with bytes as values. The keys are in the job's store, below the prefix of
 * the generation, so all nodes share them and each generation begins without any.
 *
 * Each agent serves its own workers, on loopback: processes of this user and of root. Before the
 * first of them connects, this is a listening socket; then it loads the HTTP server and connects to
 * the store.
 */
#ifndef CMD_HOROVOD_H
#define CMD_HOROVOD_H

#include "http_server.h"
#include "listener.h"
#include "membership.h"
#include "peer_owner.h"

#include <ddprun/store_uv.h>

struct horovod {
    struct agent_horovod place; /* for the workers; its interface is its owner's to set */
    uv_loop_t *loop;
    struct membership *membership;
    struct ddp_store_options options;
    bool trust_local_users;
    struct ddpi_listener_env env;
    struct ddpi_listener *listener; /* NULL: not open */
    struct ddpi_owners owners;
    struct http_server *http; /* these two are NULL until a worker connects */
    ddp_store_uv *store;
    bool broken;         /* they could not be made */
    bool told_strangers; /* the user */
    bool told_failure;
};

/* Listen. @place.port is 0 if that is not possible. @membership must outlive this; so must what
 * @options, which names the job, point to. */
void horovod_open(struct horovod *horovod, uv_loop_t *loop, const struct ddp_store_options *options,
                  bool trust_local_users, struct membership *membership);

/* The handles close while the loop turns. Does nothing to a zeroed struct. */
void horovod_close(struct horovod *horovod);

#endif
