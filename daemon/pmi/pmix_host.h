/*
 * pmix_host.h - serves PMIx to programs of Open MPI among this node's workers. Workers know a port
 * from their start, at which the agent listens. When the first of them connects, the agent starts
 * the server, ddprun-pmix, and gives it port and connection; so nothing is loaded for other
 * programs. A connection of another user of the machine is closed, and starts nothing.
 *
 *     IDLE --begin--> LISTENING --a rank connects--> STARTING --spawned--> SERVING
 *       ^                 |                              |                    |
 *       |                end                            end                  end, or it ends
 *       |                 |                              v                    v
 *       +-----------------+<----------------reaped--- ENDING <----------------+
 *
 * The server is a child of the agent and lives as long as the workers of one generation.
 */
#ifndef DAEMON_PMIX_HOST_H
#define DAEMON_PMIX_HOST_H

#include "sm.h"
#include "spawner.h"

#include <uv.h>

#define PMIX_HOST_STATES(X)                                                                      \
    X(PMIX_HOST, IDLE, DDPI_SM_TO(PMIX_HOST_LISTENING), DDPI_SM_INITIAL)                         \
    X(PMIX_HOST, LISTENING, DDPI_SM_TO(PMIX_HOST_IDLE) | DDPI_SM_TO(PMIX_HOST_STARTING), 0)      \
    X(PMIX_HOST, STARTING,                                                                       \
      DDPI_SM_TO(PMIX_HOST_SERVING) | DDPI_SM_TO(PMIX_HOST_ENDING) | DDPI_SM_TO(PMIX_HOST_IDLE), \
      0)                                                                                         \
    X(PMIX_HOST, SERVING, DDPI_SM_TO(PMIX_HOST_ENDING) | DDPI_SM_TO(PMIX_HOST_IDLE), 0)          \
    X(PMIX_HOST, ENDING, DDPI_SM_TO(PMIX_HOST_IDLE), 0)

DDPI_SM_DECLARE(pmix_host, PMIX_HOST_STATES);

/* What the server is started with. */
struct pmix_host_start {
    char **envp; /* of local rank 0 */
    int key_fd;  /* its key for the store; 0: none */
};

struct pmix_host_hooks {
    void *ctx;
    void (*say)(void *ctx, const char *line);
    void (*aborted)(void *ctx, uint32_t local_rank, int exit_code); /* as of pmi_hooks */
    /* MPI programs cannot be served: the generation fails. @why is a sentence. */
    void (*failed)(void *ctx, const char *why);
    /* Whether the peer of the connection @fd is a process of our user. */
    bool (*is_ours)(void *ctx, int fd);
    /* Give what the server is started with, and free it. */
    ddp_status (*prepare)(void *ctx, struct pmix_host_start *ret, struct ddp_error *err);
    void (*release)(void *ctx, struct pmix_host_start *start);
    /* Children may be waited for again. */
    void (*settled)(void *ctx);
};

struct pmix_channel;
struct pmix_knock;

struct pmix_host {
    struct ddpi_sm sm;
    uv_loop_t *loop;
    struct pmix_host_hooks hooks;
    const char *program; /* path of the server; NULL: ddprun was built without it */
    uint32_t nproc;      /* workers of this node */
    int fd;              /* that listens; -1: none */
    uint16_t port;
    struct pmix_knock *knock; /* of @fd, until the first rank connects */
    struct spawner spawner;
    bool has_spawner; /* from the first start on */
    struct spawner_task task;
    struct pmix_host_start start;
    struct pmix_channel *channel; /* to the server; NULL: closed */
    int first;                    /* connection of the rank that came first; -1: none */
    int its_end;                  /* of that, until the server runs; -1: closed */
    bool has_failed;              /* the server has said why, in this generation */
    bool *gone;                   /* workers that have ended well, by local rank */
    pid_t pid;                    /* 0: none, or not known yet */
};

DDP_MUST_CHECK ddp_status pmix_host_open(struct pmix_host *host, uv_loop_t *loop,
                                         const char *program, uint32_t nproc,
                                         const struct pmix_host_hooks *hooks,
                                         struct ddp_error *err);

/* A generation begins, after the end of the last one: listen at @host->port. On failure nothing
 * listens. */
DDP_MUST_CHECK ddp_status pmix_host_begin(struct pmix_host *host, struct ddp_error *err);

/* The main programs of a generation have ended: the server removes what its ranks have left, and
 * ends. */
void pmix_host_end(struct pmix_host *host);

/* A worker has exited with 0. */
void pmix_host_rank_gone(struct pmix_host *host, uint32_t local_rank);

/* The server is being started, and its pid is not known: do not wait for unknown children. */
bool pmix_host_busy(const struct pmix_host *host);

/* waitpid() has returned @pid. Returns false if that is not the server. */
bool pmix_host_exited(struct pmix_host *host, pid_t pid, int wait_status);

/* The handles close while the loop turns; pmix_host_finish() follows. */
void pmix_host_close(struct pmix_host *host);
void pmix_host_finish(struct pmix_host *host);

#endif
