/*
 * worker_env.h - where one worker stands in the job, and the environment that says so.
 */
#ifndef DAEMON_WORKER_ENV_H
#define DAEMON_WORKER_ENV_H

#include <ddprun/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Everything that differs between two workers, or between two generations. Strings are borrowed. */
struct placement {
    uint32_t rank;
    uint32_t local_rank;
    uint32_t world_size;
    uint32_t local_world_size;
    uint32_t group_rank; /* of the node */
    uint32_t group_world_size;
    uint32_t role_rank;
    uint32_t role_world_size;
    uint32_t restart_count;
    uint32_t max_restarts;
    const char *role;
    const char *run_id;
    const char *master_addr;
    uint16_t master_port;
    const char *error_file;
    uint32_t columns;         /* of its terminal; 0: it finds out by itself */
    const char *timer_file;   /* NULL: what is inherited stays */
    const char *store;        /* "host:port" */
    const char *store_prefix; /* keyspace of this generation */
    int token_fd;             /* with the worker's key for the store; 0: it has none */
    int rank_key_fd;          /* with what ranks prove themselves with to each other; 0: nothing */
    bool tls;                 /* to be spoken with it, */
    bool tls_ranks;           /* and between ranks */
    const char *signals_to_handle;
    bool agent_store;        /* the store is at master_addr:master_port */
    bool virtual_local_rank; /* LOCAL_RANK=0 and one device each */
    int life_fd;             /* of life_slot.h, in the worker; 0: none */
    int pmi_fd;              /* of pmi.h, in the worker; 0: none */
};

/*
 * The environment of a worker: @inherited with the variables of the placement in it. Each of these
 * is set once; see worker_env.c for the table. DDP_E_INVALID: with a virtual local rank, the
 * inherited list of devices has none for this worker.
 *
 * On DDP_OK *@ret_envp is a NULL-terminated array, freed with placement_env_free(). Its entries
 * point into @inherited and into memory of its own.
 */
DDP_MUST_CHECK ddp_status placement_env(const struct placement *placement, char *const *inherited,
                                        char ***ret_envp, struct ddp_error *err);
void placement_env_free(char **envp);

/* The keyspace of @generation in the store, below the job's own: 24 bytes more are enough. */
void placement_store_prefix(char *text, size_t size, const char *of_job, uint64_t generation);

/* Replace ${name} and $name of the given variables in @text; "$$" stands for "$", and what is not
 * known stays as it is. The result is the caller's to ddpi_free(); NULL: no memory. */
struct placement_var {
    const char *name;
    const char *value;
};
char *placement_expand(const char *text, const struct placement_var *vars, unsigned count);

#endif
