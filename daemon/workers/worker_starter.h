/*
 * worker_starter.h - the start of one generation's workers, one after the other: each turned from
 * its place in the job into a running process. The loop turns meanwhile, however long that takes.
 */
#ifndef DAEMON_WORKER_STARTER_H
#define DAEMON_WORKER_STARTER_H

#include "agent_config.h"
#include "pmi.h"
#include "spawner.h"
#include "worker_proc.h"

#include <ddprun/round.h>

/* One is prepared while another is being started; more would only hold descriptors. */
enum { WORKER_STARTER_AHEAD = 2 };

struct worker_starter_hooks {
    void *ctx;
    /* @worker runs; the next may not. */
    void (*started)(void *ctx, struct worker_proc *worker);
    /* No worker is being started any more. DDP_OK: all run; DDP_E_CANCELED: not all, by
     * worker_starter_cancel(); otherwise one could not be started, why is in launch.error. */
    void (*over)(void *ctx, ddp_status status);
};

/* Of one worker, while it is prepared and started. */
struct worker_start {
    struct spawner_task task;
    struct worker_proc *worker; /* NULL: free */
    int stdio[3];               /* those above 2 are closed when it is done */
    int pmi_fd;                 /* the same; 0: none */
    char **argv, **envp;
};

struct worker_starter {
    const struct agent_config *config;
    struct logmux *mux;
    uv_loop_t *loop;
    struct pmi *pmi;
    struct worker_proc *workers;
    struct worker_starter_hooks hooks;
    struct spawner spawner;
    struct worker_start starts[WORKER_STARTER_AHEAD];
    /* What all workers of the generation have in common. */
    const struct ddp_round_seat *seat;
    int life_fd;          /* of death_watch.h; 0: there is none */
    uint32_t attempt;     /* counts generations on this node, from 0 */
    struct agent_key key; /* what they prove themselves with */
    uint32_t next;        /* worker to be prepared */
    uint32_t under_way;
    bool abandoned;
    ddp_status status;
    struct ddp_error error;
};

/* On failure, too, worker_starter_close() follows. All pointers stay until then. */
DDP_MUST_CHECK ddp_status worker_starter_open(struct worker_starter *starter,
                                              const struct agent_config *config, struct logmux *mux,
                                              uv_loop_t *loop, struct pmi *pmi,
                                              struct worker_proc *workers,
                                              const struct worker_starter_hooks *hooks,
                                              struct ddp_error *err);

/* Whether the port of rank 0 is nobody else's, if rank 0 is one of this node's: before the
 * generation of @seat, or when it has @failed. */
DDP_MUST_CHECK ddp_status worker_starter_check_port(const struct agent_config *config,
                                                    const struct ddp_round_seat *seat, bool failed,
                                                    struct ddp_error *err);

/* Start all workers, with the places that @seat gives them. over() may follow at once. On failure
 * the streams of a worker may be open and will end by themselves. */
void worker_starter_begin(struct worker_starter *starter, const struct ddp_round_seat *seat,
                          uint32_t attempt, int life_fd);

/* Start no more than the one that is being started already; over() follows. */
void worker_starter_cancel(struct worker_starter *starter);

/* A process is about to run, or to be waited for by us: nobody else may collect it. */
bool worker_starter_busy(const struct worker_starter *starter);

/* The process that is being started can neither be awaited nor killed: over() does not follow. */
void worker_starter_abandon(struct worker_starter *starter);

/* The handle closes while the loop turns. */
void worker_starter_close(struct worker_starter *starter);

#endif
