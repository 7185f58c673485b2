/*
 * keeper.h - keeps a store together with two other machines, so that any one of the three may die:
 * `ddprund --cluster=a,b,c`. It runs an etcd, which is one of three members, and a ddprund that
 * serves or stands by on this etcd. It starts either of them again when it ends; both die with it.
 *
 * What it decides, and why that is safe, is in cluster.h.
 *
 *   RUNNING --etcd was removed, or its cluster is over--> WIPING --both have ended--> RUNNING
 *      |                                                    |
 *      +--a signal, or what a person must mend--> ENDING <--+
 *      |
 *      +--the job of its store is over--> OVER
 */
#ifndef CMD_KEEPER_H
#define CMD_KEEPER_H

#include "log.h"
#include "proof.h"
#include "sidecar.h"

#include <signal.h>
#include <stdbool.h>
#include <uv.h>

/* Who stops a service, or a step of Slurm, sends SIGTERM to each process of it. That is not meant
 * for the keeper of a job: the other nodes need its store, and this node's agent, which ends in
 * order. So that keeper, and its ddprund, end by another signal, which the guard sends. */
enum { KEEPER_END_SIGNAL = SIDECAR_END_SIGNAL };

static inline bool keeper_ends_by(const char *job, int signum)
{
    return signum == KEEPER_END_SIGNAL || (job == NULL && signum != SIGHUP);
}

struct keeper_options {
    const char *list;
    const char *job;         /* with which it ends; NULL: it ends by SIGTERM or SIGINT */
    const char *advertise;   /* NULL: found */
    const char *cluster_dir; /* NULL: TMPDIR, or /var/tmp */
    uint16_t port;           /* where the list names none */
    uint16_t peer_port;      /* 0: the store's + 1000 */
    uint64_t state_lease_ms;
    bool tls;
    bool listens; /* the words have a --listen */
    const struct ddpi_credential *token;
    char *const *argv; /* of this ddprund: words for the one that it starts */
    int argc;
    const struct ddpi_log *log;
    bool has_log_file;         /* else the log is stderr */
    void (*ready)(void *ctx);  /* it runs, waits for another one or a name, or is not needed */
    void (*reload)(void *ctx); /* SIGHUP */
    void *ctx;
};

/* Run until a signal, or the end of the job. Returns the exit code; a failure is told on stderr. */
int keeper_run(uv_loop_t *loop, const struct keeper_options *options);

#endif
