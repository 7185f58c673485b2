/*
 * worker_env.h - the environment of a worker. Pure.
 */
#ifndef DAEMON_WORKER_ENV_H
#define DAEMON_WORKER_ENV_H

#include "agent_config.h"

#include <ddprun/round.h>
#include <stddef.h>

/* A worker's place in the job: the configuration that all workers of this node share, the seat of
 * this node in the current generation, and what belongs to this worker. All pointers are
 * borrowed. */
struct worker_place {
    const struct agent_config *config;
    const struct ddp_round_seat *seat;
    uint32_t local_rank;
    const char *error_file; /* "": none */
    uint32_t columns;       /* of its terminal; 0: the worker finds out by itself */
    struct agent_key key;   /* of this generation */
    uint16_t pmix_port;     /* of pmix_host.h; 0: none */
    const char *library;    /* that is loaded first (LD_PRELOAD); NULL: as inherited */
    bool has_life_page;     /* it inherits the page of death_watch.h */
    bool has_recorder;      /* it inherits the memory of flight_memory.h */
};

/* The rank of the worker at @local_rank. */
static inline uint32_t worker_rank(const struct ddp_round_seat *seat, uint32_t local_rank)
{
    return seat->first_rank + local_rank;
}

/*
 * The environment of the worker at @place: that of the configuration, with the variables of the
 * table in worker_env.c. Each of these is set once. DDP_E_INVALID: with a virtual local rank, the
 * inherited list of devices has none for this worker.
 *
 * On DDP_OK *@ret_envp is a NULL-terminated array, freed with worker_env_free(). Its entries point
 * into config->envp and into memory of its own.
 */
DDP_MUST_CHECK ddp_status worker_env_make(const struct worker_place *place, char ***ret_envp,
                                          struct ddp_error *err);
void worker_env_free(char **envp);

/* The environment of a process in which modules are imported for all workers of @config: that of
 * the configuration, with the variables that are the same for all workers in all generations.
 * Freed with worker_env_free(). */
DDP_MUST_CHECK ddp_status worker_env_make_shared(const struct agent_config *config,
                                                 char ***ret_envp, struct ddp_error *err);

/* The names of the variables of which each worker of @config, or each generation, has its own
 * value, with a comma after each. COLUMNS is none of them: libraries read it when they are loaded,
 * for the width of a help text. The caller's to ddpi_free(); NULL: no memory. */
DDP_MUST_CHECK char *worker_env_own_names(const struct agent_config *config);

/* The name by which MPI programs know their job, at most 40 bytes: the same for all ranks, and
 * another one in each generation, as they name shared memory by it. Two jobs of several nodes
 * differ in it if they differ in run id or port of rank 0. */
void worker_env_job_name(char *text, size_t size, const struct agent_config *config,
                         const struct ddp_round_seat *seat);

/* The prefix of the keys of @generation in the store, after the prefix @of_job. Needs at most 24
 * bytes more than that. */
void worker_env_store_prefix(char *text, size_t size, const char *of_job, uint64_t generation);

#endif
