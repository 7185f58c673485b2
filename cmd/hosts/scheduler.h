/*
 * scheduler.h - what the variables of a job scheduler say about a job of several nodes: how many
 * there are, which one this is, where they can meet, and the name of the job. Pure.
 *
 * A scheduler is a row of the table in scheduler.c, with a function that reads its variables. To
 * add one, write that function in a file of its own.
 */
#ifndef CMD_SCHEDULER_H
#define CMD_SCHEDULER_H

#include "parse.h"
#include "proof.h"

#include <stdbool.h>

struct scheduler_job {
    const char
        *scheduler; /* its name; NULL: there is none, or it says nothing about several nodes */
    uint32_t nodes; /* 0: it does not say; only @node_rank, @host and @id are known */
    uint32_t node_rank;
    /* Nodes have been given to the job, but this process is the only one that was started: it has
     * to start the launcher of each node, itself included. */
    bool is_allocation;
    char host[DDPI_HOST_MAX]; /* where the nodes meet; "": not known */
    bool host_is_any;         /* the node that has this address hosts the store; else node 0 does */
    uint16_t port;            /* of the store; differs between jobs that may share a node */
    char id[DDPI_JOB_MAX + 1];
};

/*
 * Read the variables of the scheduler in @envp, as environ. @host_fqdn is the full name of this
 * machine, which tells where others can be reached under Kubernetes; NULL: not known.
 *
 * DDP_E_INVALID: the variables contradict each other, or cannot be used; @err names them, and says
 * which options to give instead. Without a scheduler *@ret is zeroed.
 */
DDP_MUST_CHECK ddp_status scheduler_read(char *const *envp, const char *host_fqdn,
                                         struct scheduler_job *ret, struct ddp_error *err);

/* Whether scheduler_read() needs the full name of this machine, which may take a look-up. */
bool scheduler_needs_fqdn(char *const *envp);

#endif
