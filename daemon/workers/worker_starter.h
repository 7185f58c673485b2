/*
 * worker_starter.h - starts the workers of a generation, one
 * after the other, or some at once on as many processors, while the loop turns.
 */
#ifndef DAEMON_WORKER_STARTER_H
#define DAEMON_WORKER_STARTER_H

#include "agent_config.h"
#include "flight_memory.h"
#include "pmi.h"
#include "spawner.h"
#include "warm_process.h"
#include "worker_proc.h"

#include <ddprun/round.h>

/* Prepare one worker while others are being started; more would only hold descriptors. */
enum { WORKER_STARTER_AHEAD = SPAWNER_THREADS_MAX + 1 };

struct worker_starter_hooks {
    void *ctx;
    /* @worker runs. */
    void (*started)(void *ctx, struct worker_proc *worker);
    /* No worker is being started any more. DDP_OK: all were; DDP_E_CANCELED:
     * worker_starter_cancel() was called; otherwise one could not be started, and @error of the
     * starter has the reason. */
    void (*over)(void *ctx, ddp_status status);
};

/* One worker while it is prepared and started. */
struct worker_start {
    struct spawner_task task;
    struct worker_proc *worker; /* NULL: free */
    int stdio[3];               /* descriptors above 2 are closed after the start */
    int pmi_fd;                 /* closed after the start; 0: none */
    int flight_fd;              /* the same */
    int warm_fd;                /* the same */
    char **argv, **envp;
};

struct worker_starter {
    const struct agent_config *config;
    struct logmux *mux;
    uv_loop_t *loop;
    struct pmi *pmi;
    uint16_t pmix_port;          /* of this generation; 0: none */
    struct warm_process *warm;   /* to fork workers from */
    struct flight_memory flight; /* of the latest generation */
    struct worker_proc *workers;
    struct worker_starter_hooks hooks;
    struct spawner spawner;
    struct worker_start starts[WORKER_STARTER_AHEAD];
    /* Of the generation. */
    const struct ddp_round_seat *seat;
    int life_fd;          /* of death_watch.h; 0: there is none */
    uint32_t attempt;     /* counts generations on this node, from 0 */
    struct agent_key key; /* that the workers authenticate with */
    uint32_t next;        /* worker to be prepared */
    uint32_t under_way;
    bool forks;      /* from the warm process, which was ready when the generation began */
    uint32_t forked; /* of the workers */
    bool abandoned;
    ddp_status status;
    struct ddp_error error;
};

/* On failure, too, worker_starter_close() follows. All pointers stay valid until then. */
DDP_MUST_CHECK ddp_status worker_starter_open(
    struct worker_starter *starter, const struct agent_config *config, struct logmux *mux,
    uv_loop_t *loop, struct pmi *pmi, struct warm_process *warm, struct worker_proc *workers,
    const struct worker_starter_hooks *hooks, struct ddp_error *err);

/* If rank 0 runs on this node, check that no other user holds its port: before the generation of
 * @seat starts, or after it has @failed. */
DDP_MUST_CHECK ddp_status worker_starter_check_port(const struct agent_config *config,
                                                    const struct ddp_round_seat *seat, bool failed,
                                                    struct ddp_error *err);

/* Start all workers of @seat. over() may be called before this returns. On failure a worker's
 * streams may be open; they end by themselves. @pmix_port: of pmix_host.h, 0: none. */
void worker_starter_begin(struct worker_starter *starter, const struct ddp_round_seat *seat,
                          uint32_t attempt, int life_fd, uint16_t pmix_port);

/* Start no further workers; over() follows when the current one has started. */
void worker_starter_cancel(struct worker_starter *starter);

/* A process is being started. Until over(), do not wait for unknown children: it may be one. */
bool worker_starter_busy(const struct worker_starter *starter);

/* The process that is being started can be neither awaited nor killed; over() is not called. */
void worker_starter_abandon(struct worker_starter *starter);

/* The handle closes while the loop turns. */
void worker_starter_close(struct worker_starter *starter);

#endif
