/*
 * ddprun/spawn.h - ranks as children of this process, without a launcher, as
 * torch.multiprocessing.spawn() starts them.
 *
 * ddp_spawn() forks a process for each rank, which runs a function of the program. In it
 * ddp_comm_init(NULL, ...) joins the ranks of this call, once; further communicators are made from
 * that one. All run on this machine.
 *
 * fork() copies the calling thread alone, so call ddp_spawn() before the program has threads, and
 * before it uses CUDA: a lock that another thread holds stays locked in the children, and a CUDA
 * context does not work there. Communicators of this process are unusable in the children.
 */
#ifndef DDPRUN_SPAWN_H
#define DDPRUN_SPAWN_H

#include <ddprun/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ddp_spawned ddp_spawned;

/*
 * What a rank does, in a process of its own. Return DDP_OK, or a failure with its sentence in @err,
 * which is never NULL: the process then exits with 0 or 1. stdio is flushed, functions of atexit()
 * are not called. Exiting in any other way is allowed; an exit code that is not 0 is a failure.
 * RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are set, and SIGTERM has its default action.
 */
typedef ddp_status ddp_rank_function(uint32_t rank, uint32_t world_size, void *arg,
                                     struct ddp_error *err);

/* Set @size to sizeof(struct ddp_spawn_options), and leave what you do not use zero. */
struct ddp_spawn_options {
    size_t size;
    uint32_t grace_ms; /* between SIGTERM and SIGKILL for the ranks that are ended; 0 = 5,000 */
};

/* The failure that came first. */
struct ddp_spawn_failure {
    size_t size; /* set to sizeof(struct ddp_spawn_failure) before the call */
    uint32_t rank;
    int pid;
    ddp_status status; /* what the function has returned; DDP_OK: it has not */
    int exit_code;     /* -1: the process was ended by a signal, or its end is not known */
    int signal;        /* 0: none */
};

/**
 * Start @nprocs processes, each of which calls @function with its rank, from 0, and @arg.
 *
 * @options may be NULL. Flushes stdio before it forks. Blocks until all are started. Each process
 * is killed (PR_SET_PDEATHSIG) when the thread that called this ends: so nothing outlives this
 * process, and that thread has to live as long as the ranks. They hold no copies of the sockets of
 * each other. Takes a descriptor for each.
 *
 * On DDP_OK, free *@ret_spawned with ddp_spawn_destroy(). One thread at a time may use it. On
 * failure no process is left. DDP_E_INVALID: @function is NULL, @nprocs is 0 or above 65,536, or
 * the options are malformed. DDP_E_SYSTEM: the system refused a process or a descriptor.
 * DDP_E_NOMEM.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_spawn(ddp_rank_function *function, void *arg, uint32_t nprocs,
                                            const struct ddp_spawn_options *options,
                                            ddp_spawned **ret_spawned, struct ddp_error *err);

/**
 * Wait at most @timeout_ms milliseconds until all ranks have ended; 0 looks once.
 *
 * When one fails, the others get SIGTERM and, after the grace, SIGKILL; the call returns when all
 * have ended, which the grace and up to ten seconds more are for. Of several failures the first is
 * reported; but one that may follow from another, such as DDP_E_PEER_DEAD, only if there is no
 * other within two seconds, or the grace. @ret_failure (may be NULL) is filled up to its size.
 *
 * DDP_OK: all have succeeded. DDP_E_TIMEOUT: the time is over and these ranks run on; call again.
 * DDP_E_PEER_DEAD: a rank has failed; the sentence has its number, its process, and what it
 * returned, its exit code or its signal. Later calls return the same. DDP_E_INVALID: the size in
 * @ret_failure is not set, or this is another process than the one that started the ranks.
 * DDP_E_SYSTEM: the system refused to wait.
 */
DDP_API DDP_MUST_CHECK ddp_status ddp_spawn_join(ddp_spawned *spawned, uint32_t timeout_ms,
                                                 struct ddp_spawn_failure *ret_failure,
                                                 struct ddp_error *err);

/**
 * The process of @rank, which is below the number of processes. It may have ended. Does not block.
 */
DDP_API int ddp_spawn_pid(const ddp_spawned *spawned, uint32_t rank);

/**
 * End the ranks that run, by SIGTERM and, after the grace, SIGKILL; then free @spawned. NULL is
 * allowed. Blocks until they have ended, at most the grace and ten seconds.
 */
DDP_API void ddp_spawn_destroy(ddp_spawned *spawned);

#ifdef __cplusplus
}
#endif

#endif
