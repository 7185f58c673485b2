/*
 * keeper_server.h - the ddprund of a keeper: how it is started, and what it is told by a socket
 * that it inherits (cmd/ddprund/keeper_link.h is the other end).
 */
#ifndef CMD_KEEPER_SERVER_H
#define CMD_KEEPER_SERVER_H

#include "cluster_list.h"
#include "keeper_child.h"
#include "keeper_folder.h"
#include "proof.h"

/* Its descriptors. */
enum { KEEPER_TOKEN_FD = SPAWN_KEY_FD, KEEPER_LINK_FD = SPAWN_PMI_FD };

/* Packets of the socket: a letter, and for some a text. */
enum {
    KEEPER_SAYS_STATUS = 'S', /* to it: what other keepers are told, for a second */
    KEEPER_SAYS_JOB = 'J',    /* to it: the job that its store is for */
    KEEPER_SAYS_OPEN = 'O',   /* to it: it may open its state in etcd */
    KEEPER_SAYS_KEPT = 'K',   /* to it: how the store is kept, which it shows if it serves */
    KEEPER_HEARS_READY = 'R', /* from it: it listens */
    KEEPER_HEARS_OVER = 'E',  /* from it: it has led, and the job is over */
};

struct keeper_server {
    /* Set before the first start, and kept. */
    uv_loop_t *loop;
    char *const *argv; /* of this ddprund: words for the one that is started */
    int argc;
    bool listens;         /* they have a --listen */
    const char *endpoint; /* of this machine in the list */
    const char *state;    /* for --state */
    int token_fd;
    void (*ready)(void *ctx); /* the first one listens */
    void (*over)(void *ctx);  /* it has led, and says that the job is over */
    void (*ended)(void *ctx); /* child.wait_status says how; another one may be started */
    void *ctx;

    struct keeper_child child;
    int link; /* -1: none */
    uv_poll_t link_poll;
    bool listened; /* once, so what it needs was there */
    bool told_open;
    char told_job[DDPI_JOB_MAX + 1]; /* "": none */
};

void keeper_server_init(struct keeper_server *server);
DDP_MUST_CHECK ddp_status keeper_server_start(struct keeper_server *server, struct ddp_error *err);

/* From its start until ended(). */
bool keeper_server_runs(const struct keeper_server *server);

/* Without effect if there is none, or while it is stopped. */
void keeper_server_tell(struct keeper_server *server, const char *status, size_t len);
/* @summary: cluster_summary.h. */
void keeper_server_show(struct keeper_server *server, const char *summary, size_t len);
/* Tell it the job that its store is for, unless it knows that; "": nothing is said. */
void keeper_server_name(struct keeper_server *server, const char *job);
/* Tell it once that it may open its state. */
void keeper_server_open(struct keeper_server *server);

#endif
